"""A server's answers: each prompt's own, through every fault; what it is asked; the key, in nothing that is said."""

from types import SimpleNamespace

import numpy as np
import pytest
from pydantic import ValidationError

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.models import server
from evenhand.evaluation.models.server import build_requests, fetch_answers, request_arguments
from evenhand.evaluation.runs.work_shards import WorkShard
from evenhand.evaluation.settings import ModelSettings
from tests.fault_server import answer_to, serving

CANARY = "canary-key-0123456789"
FAULTS = ("rate", "broken", "cut", "none", "two", "reset", "hang")


@pytest.fixture(autouse=True)
def key(monkeypatch):
    monkeypatch.setenv("EVENHAND_API_KEY", CANARY)
    monkeypatch.setattr(server, "TIMEOUT_SECONDS", 1.0)


def served(url, **told):
    return ModelSettings(name="m", server=url, **told)


def asked(model, n=1, **told):
    prompts = [f"I'm person {row}." for row in range(n)]
    return build_requests(model, prompts, [""] * n, list(range(n)), told.get("tag", ""), {"max_tokens": 5})


@pytest.mark.parametrize("api", ["chat", "completions"])
def test_every_prompt_is_answered_once_through_all_faults(api):
    with serving(*FAULTS) as (url, told):
        model = served(url, api=api, concurrency=8)
        bodies = asked(model, 60)
        batches = list(fetch_answers(model, bodies))
        assert [row for rows, _ in batches for row in rows] == list(range(60))
        assert [text for _, texts in batches for text in texts] == [answer_to(body) for body in bodies]
        assert told["keys"] == {f"Bearer {CANARY}"} and told["failed"][None] == 60 and len(told["failed"]) > 4
        assert {body["seed"]: body for body in told["bodies"]} == dict(enumerate(bodies))  # and nothing else was


def test_what_was_answered_before_a_run_went_on_is_not_asked_for_again():
    with serving() as (url, told):
        model = served(url)
        bodies = asked(model, 5)
        assert [row for rows, _ in fetch_answers(model, bodies, shard=WorkShard(np.arange(3))) for row in rows] == [
            3,
            4,
        ]
        assert sorted(body["seed"] for body in told["bodies"]) == [3, 4]


def test_a_server_is_asked_for_no_more_at_once_than_it_may_be():
    with serving() as (url, told):
        model = served(url, concurrency=2)
        next(fetch_answers(model, asked(model, 50)))
        assert len(told["bodies"]) <= 2 * server.MAX_PENDING_FACTOR


def failure(url, *, n=3, **told):
    model = served(url, **told)
    with pytest.raises(InputError) as error:
        list(fetch_answers(model, asked(model, n)))
    assert CANARY not in str(error.value) and "\n" not in str(error.value)
    return str(error.value)


def test_a_server_that_refuses_is_not_asked_again_and_the_key_is_not_told():
    with serving("refused", share=1) as (url, told):
        assert "401" in failure(url) and told["failed"]["refused"] <= 3
    with serving("bad", share=1) as (url, told):
        assert "no such model, said Bearer …" in failure(url) and told["failed"]["bad"] <= 3
    with serving("detailed", share=1) as (url, _):
        assert "unexpected field, said Bearer …" in failure(url)


@pytest.mark.parametrize(
    ("fault", "said"), [("broken", "status 500"), ("reset", "Connection error"), ("two", "format")]
)
def test_a_server_that_always_fails_is_told_in_one_line(monkeypatch, fault, said):
    monkeypatch.setattr(server, "MAX_RETRIES", 1)
    with serving(fault, share=1) as (url, told):
        assert said in failure(url) and 2 <= told["failed"][fault] <= 6


def test_what_was_answered_before_a_failure_is_handed_on(monkeypatch):
    monkeypatch.setattr(server, "MAX_RETRIES", 0)
    with serving() as (url, _):
        model = served(url)
        bodies = asked(model, 4)
        bodies[2]["max_tokens"] = "refuse"
        found = []
        with pytest.raises(InputError, match="no such model"):
            for rows, _ in fetch_answers(model, bodies):
                found.extend(rows)
        assert found == [0, 1]


def test_a_server_that_is_absent_fails_after_the_few_retries_of_the_first_request(monkeypatch):
    monkeypatch.setattr(server, "MAX_FIRST_RETRIES", 0)
    with serving("reset", share=1) as (url, told):
        assert "Connection error" in failure(url, concurrency=1) and told["failed"]["reset"] == 1


def test_a_key_that_is_none_is_refused_without_being_told(monkeypatch):
    monkeypatch.setenv("EVENHAND_API_KEY", f"{CANARY}\nX-Other: ü")
    with pytest.raises(InputError, match="EVENHAND_API_KEY has characters") as error:
        server.check_client()
    assert CANARY not in str(error.value)


def test_the_client_is_an_extra(monkeypatch):
    monkeypatch.setattr(server, "find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"pip install 'evenhand\[server\]'"):
        server.check_client()


# What it is asked.


def test_preface_prompt_and_tag_stand_where_each_api_has_them():
    model = served("http://host/v1", system_prompt="Be kind.")
    (body,) = build_requests(model, ["I'm deaf."], ["I like tea."], [2**40 + 7], " <t>", {"temperature": 1.0})
    messages = [{"role": "system", "content": "Be kind.\nI like tea."}, {"role": "user", "content": "I'm deaf. <t>"}]
    assert body == {"model": "m", "seed": 7, "temperature": 1.0, "messages": messages}
    (body,) = build_requests(
        served("http://host/v1", api="completions"), ["I'm deaf."], ["I like tea."], [7], " <t>", {}
    )
    assert body == {"model": "m", "seed": 7, "prompt": "I like tea.\nI'm deaf. <t>"}


def test_decoding_is_told_as_the_api_has_it():
    sample = {"do_sample": True, "temperature": 1.0, "top_k": 0, "top_p": 1.0, "max_new_tokens": 40}
    told = {"temperature": 1.0, "top_p": 1.0, "max_tokens": 40}
    assert request_arguments(sample) == told
    assert request_arguments({**sample, "stop_strings": ["."], "min_p": None}) == {**told, "stop": ["."]}
    assert request_arguments({"do_sample": False, "max_new_tokens": 40}) == {"max_tokens": 40, "temperature": 0}
    with pytest.raises(InputError, match="decoding: .* min_new_tokens, num_beams;"):
        request_arguments({"do_sample": False, "num_beams": 10, "min_new_tokens": 20})
    with pytest.raises(InputError, match="decoding: .* top_k;"):
        request_arguments({**sample, "top_k": 50})


# What is the response in an answer.


def said(content, finish_reason="stop", api="chat"):
    message = SimpleNamespace(content=content, refusal=None)
    choice = SimpleNamespace(message=message, text=content, finish_reason=finish_reason)
    body = {"messages": []} if api == "chat" else {"prompt": ""}
    return server.parse_response(SimpleNamespace(choices=[choice]), body)


def test_thoughts_are_no_part_of_the_response():
    assert said(" Hello! ") == "Hello!" and said("") == "" and said(None) == ""
    assert said("<think>They greet.</think>\nHello!") == "Hello!"
    assert said("<think>They gr", "length") is None and said(None, "length") is None
    assert said("Hello!", "length") == "Hello!" == said("Hello!", api="completions")


# Settings.


@pytest.mark.parametrize(
    ("told", "why"),
    [
        ({"server": "host:8000"}, "server: "),
        ({"server": "https://me:secret@host/v1"}, "server: "),
        ({"server": "https://host/v1?key=secret"}, "server: "),
        ({"server": "http://host/v1", "name": "testbed"}, "name: "),
        ({"server": "http://host/v1", "dtype": "bfloat16"}, "dtype: "),
        ({"server": "http://host/v1", "base": "b"}, "base: "),
        ({"tokenizer": "t"}, "tokenizer: 't' "),
        ({"server": "http://host/v1", "concurrency": 0}, "concurrency"),
        ({"server": "http://host/v1", "api": "responses"}, "chat"),
    ],
)
def test_what_cannot_be_served_is_refused(told, why):
    with pytest.raises(ValidationError) as error:
        ModelSettings(**{"name": "m", **told})
    (found,) = error.value.errors()
    said = f"{'.'.join(found['loc'])} {found['msg']}"
    assert why in said and "secret" not in said
