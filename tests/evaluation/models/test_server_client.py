"""Requests to a server and its answers: faults and retries, request bodies, and the key, which no error contains."""

import asyncio
import socket

import httpx
import pytest
from openai.types.chat import ChatCompletion
from openai.types.chat.chat_completion import Choice

from evenhand.evaluation.data.language.reasoning import UNFINISHED_REASONING
from evenhand.evaluation.data.readers.answers import MeasuredAnswer
from evenhand.evaluation.errors import InputError
from evenhand.evaluation.model_settings import ModelSettings
from evenhand.evaluation.models import server_client
from evenhand.evaluation.models.server_client import build_requests, fetch_answers, request_arguments
from tests.fault_server import Handler, answer_to, serving

CANARY = "canary-key-0123456789"
FAULTS = ("rate", "broken", "cut", "none", "two", "reset", "hang")


@pytest.fixture(autouse=True)
def key(monkeypatch):
    monkeypatch.setenv("EVENHAND_API_KEY", CANARY)


@pytest.fixture
def hangs_time_out(monkeypatch):
    """Let a request time out as soon as the server marks it as hanging, so that no other request depends on a clock."""
    handle = httpx.AsyncHTTPTransport.handle_async_request

    async def handle_or_time_out(transport, request):
        response = await handle(transport, request)
        if "Hangs" in response.headers:
            await response.aclose()
            raise httpx.ReadTimeout("", request=request)
        return response

    monkeypatch.setattr(httpx.AsyncHTTPTransport, "handle_async_request", handle_or_time_out)


def server_settings(url, **settings):
    return ModelSettings(name="m", server=url, **settings)


def text_of(answer, body):
    return server_client.parse_response(answer, body).text


def build_bodies(model, n=1, **settings):
    prompts = [f"I'm person {row}." for row in range(n)]
    return build_requests(model, prompts, [""] * n, list(range(n)), settings.get("tag", ""), {"max_tokens": 5})


@pytest.mark.parametrize("api", ["chat", "completions"])
def test_each_prompt_has_one_answer_despite_all_faults(hangs_time_out, api):
    with serving(*FAULTS) as (url, record):
        model = server_settings(url if api == "chat" else f"{url}/completions", concurrency=8)
        bodies = build_bodies(model, 60)
        answers = {
            row: text
            for rows, texts in fetch_answers(model, bodies, text_of)
            for row, text in zip(rows, texts, strict=True)
        }
        assert answers == {row: answer_to(body) for row, body in enumerate(bodies)}
        assert record["keys"] == {f"Bearer {CANARY}"} and record["failed"][None] == 60 and len(record["failed"]) > 4
        assert record["failed"]["hang"] > 0
        assert {body["seed"]: body for body in record["bodies"]} == dict(enumerate(bodies))  # and no other requests


def test_a_notebook_whose_event_loop_is_running_gets_the_same_answers():
    with serving("rate", "broken") as (url, _):
        model = server_settings(url, concurrency=4)
        bodies = build_bodies(model, 12)

        async def cell():
            return list(fetch_answers(model, bodies, text_of))

        answers = {row: text for rows, texts in asyncio.run(cell()) for row, text in zip(rows, texts, strict=True)}
        assert answers == {row: answer_to(body) for row, body in enumerate(bodies)}

    async def first_answer():  # the others are given up
        return next(fetch_answers(model, bodies, text_of))

    with serving() as (url, _):
        model = server_settings(url, concurrency=4)
        rows, texts = asyncio.run(first_answer())
        assert texts == [answer_to(bodies[row]) for row in rows]


def fetch_error(url, *, n=3, **settings):
    model = server_settings(url, **settings)
    with pytest.raises(InputError) as error:
        list(fetch_answers(model, build_bodies(model, n), text_of))
    assert CANARY not in str(error.value) and "\n" not in str(error.value)
    return str(error.value)


@pytest.mark.parametrize("choices", [[], None, [{}], [{"index": 0, "finish_reason": "stop", "message": None}], "x"])
def test_answers_without_a_text_are_one_error(monkeypatch, choices):
    monkeypatch.setattr(server_client, "MAX_FIRST_RETRIES", 1)
    send = Handler._send
    monkeypatch.setattr(Handler, "_send", lambda self, body, *rest, **more: send(self, body | {"choices": choices}))
    with serving() as (url, _):
        error = fetch_error(url, n=1)
    assert "do not have the format of the API" in error and "such as ChatCompletion(" in error


def test_a_text_with_its_end_is_an_answer_and_a_text_alone_is_none():
    cut = server_client.parse_response({"text": "I am", "finish_reason": "length"}, {})
    whole = server_client.parse_response({"text": "I am.", "finish_reason": "stop"}, {})
    assert (cut.text, cut.is_cut, whole.text, whole.is_cut) == ("I am", True, "I am.", False)
    with pytest.raises(ValueError, match="it is a text"):
        server_client.answer_of("<html>")


def test_an_error_in_the_function_that_asks_is_named(monkeypatch):
    async def ask(client, body):
        return body["prompt"]  # a chat has messages

    monkeypatch.setattr(server_client, "MAX_FIRST_RETRIES", 0)
    model = server_settings("http://127.0.0.1:9/v1")
    with pytest.raises(InputError, match="KeyError: 'prompt'"):
        list(fetch_answers(model, build_bodies(model), text_of, ask=ask))


def test_a_server_without_a_certificate_is_called_so():
    """It is there, so "no server answers there" would be wrong."""
    with serving() as (url, _):
        model = ModelSettings(name="m", server=url.replace("http://", "https://"))
        with pytest.raises(InputError, match=r"no secure connection \(.*SSL.*\); give http://"):
            list(fetch_answers(model, build_requests(model, ["Hi."], [""], [0], "", {}), lambda answer, _: answer))


def test_a_failure_in_json_is_the_same_as_in_a_file():
    with serving(choice=lambda body: {"message": {"content": '{"error": "Rate limit exceeded"}'}}) as (url, _):
        assert answers_or_reasons(url, build_bodies(server_settings(url), 1)) == {0: ""}


def test_two_choices_are_called_so():
    with pytest.raises(ValueError, match="it has 2 choices"):
        server_client.answer_of({"choices": [{"message": {"content": "Oh."}}] * 2})


def test_a_region_is_no_wrong_key():
    body = (403, {"error": {"message": "Country, region, or territory not supported"}})
    with (
        serving(reject=lambda _: body) as (url, _),
        pytest.raises(InputError, match="it forbids .*region, or territory"),
    ):
        answers_or_reasons(url, build_bodies(server_settings(url), 1))


def test_an_answer_of_megabytes_is_refused_at_once(monkeypatch):
    long = {"message": {"role": "assistant", "content": "x" * 1_000_001}}
    with serving(choice=lambda body: long) as (url, record):
        assert "an answer has 1,000,001 characters" in fetch_error(url, n=1)
        assert len(record["bodies"]) == 1


def test_rejected_requests_are_not_repeated_and_errors_hide_the_key(monkeypatch):
    with serving("refused", share=1) as (url, record):
        assert "the key in EVENHAND_API_KEY (401)" in fetch_error(url) and record["failed"]["refused"] <= 3
        monkeypatch.delenv("EVENHAND_API_KEY")
        monkeypatch.delenv("OPENAI_API_KEY", raising=False)
        assert "asks for a key (401)" in fetch_error(url)
        monkeypatch.setenv("EVENHAND_API_KEY", CANARY)
    with serving("bad", share=1) as (url, record):
        assert "no such model, said Bearer …" in fetch_error(url) and record["failed"]["bad"] <= 3
    with serving("detailed", share=1) as (url, _):
        assert "unexpected field, said Bearer …" in fetch_error(url)


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("elsewhere", "redirects to http://elsewhere.example/v1"),
        ("nested", "format"),
        ("drip", "0.5 seconds"),
        ("silent", "timed out"),
    ],
)
def test_an_answer_that_would_do_harm_is_one_error(monkeypatch, fault, message):
    monkeypatch.setattr(server_client, "MAX_FIRST_RETRIES", 1)
    if fault == "drip":
        monkeypatch.setattr(server_client, "REQUEST_SECONDS", 0.5)
    if fault == "silent":
        monkeypatch.setattr(server_client, "TIMEOUT_SECONDS", 0.1)
    with serving(fault, share=1) as (url, _):
        assert message in fetch_error(url, n=1)


def test_an_address_where_nothing_listens_says_so(monkeypatch):
    monkeypatch.setattr(server_client, "MAX_FIRST_RETRIES", 0)
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        assert "no server answers there" in fetch_error(f"http://127.0.0.1:{bound.getsockname()[1]}/v1")


def test_an_address_without_its_end_names_it_until_a_request_was_answered(monkeypatch):
    monkeypatch.setattr(Handler, "do_GET", lambda handler: handler._send({}, 404))
    not_found = (404, {"error": {"message": "Not Found"}})
    with serving(reject=lambda body: not_found) as (url, _):
        assert "Not Found" in (error := fetch_error(url)) and "usually ends in /v1" in error
    with serving(reject=lambda body: not_found if body["seed"] else None) as (url, _):
        assert "Not Found" in (error := fetch_error(url, concurrency=1)) and "usually ends in /v1" not in error


def test_first_failures_and_answers_before_one(monkeypatch):
    monkeypatch.setattr(server_client, "MAX_RETRIES", 0)
    with serving() as (url, _):
        model = server_settings(url, concurrency=1)
        bodies = build_bodies(model, 4)
        bodies[2]["max_tokens"] = "refuse"
        rows_done = []
        with pytest.raises(InputError, match="no such model"):
            for rows, _ in fetch_answers(model, bodies, text_of):
                rows_done.extend(rows)
        assert rows_done == [0, 1]
    monkeypatch.setattr(server_client, "MAX_FIRST_RETRIES", 0)
    with serving("reset", share=1) as (url, record):
        assert "Connection error. Answers" in fetch_error(url, concurrency=1) and record["failed"]["reset"] == 1


@pytest.mark.parametrize("last_words", ["_send", "_broken"])
def test_a_server_that_answers_and_then_ends_is_reported_with_the_flags_for_vllms_cpu_engine(monkeypatch, last_words):
    monkeypatch.setattr(server_client, "MAX_RETRIES", 1)

    def answer_and_end(handler, answer):
        handler.server.socket.close()  # no further connection
        handler.close_connection = True
        getattr(Handler, last_words)(handler, answer)

    with serving("last", share=1) as (url, _):
        monkeypatch.setattr(Handler, "_last", answer_and_end, raising=False)
        error = fetch_error(url, concurrency=1)
    assert "Connection error; the server has answered before" in error and "--no-enable-chunked-prefill" in error


def test_request_bodies_of_both_apis():
    model = server_settings("http://host/v1", system_prompt="Be kind.")
    (body,) = build_requests(model, ["I'm deaf."], ["I like tea."], [2**40 + 7], " <t>", {"temperature": 1.0})
    messages = [{"role": "system", "content": "Be kind.\nI like tea."}, {"role": "user", "content": "I'm deaf. <t>"}]
    assert body == {"model": "m", "seed": 7, "temperature": 1.0, "messages": messages}
    (body,) = build_requests(
        server_settings("http://host/v1/completions"), ["I'm deaf."], ["I like tea."], [7], " <t>", {}
    )
    assert body == {"model": "m", "seed": 7, "prompt": "I like tea.\nI'm deaf. <t>"}


def test_decoding_arguments_become_the_apis_arguments():
    sample = {"do_sample": True, "temperature": 1.0, "top_k": 0, "top_p": 1.0, "max_new_tokens": 40}
    expected = {"temperature": 1.0, "top_p": 1.0, "max_tokens": 40}
    assert request_arguments(sample) == expected
    assert request_arguments({**sample, "stop_strings": ["."], "min_p": None}) == {**expected, "stop": ["."]}
    assert request_arguments({"do_sample": False, "max_new_tokens": 40}) == {"max_tokens": 40, "temperature": 0}
    with pytest.raises(InputError, match="decoding: .* min_new_tokens, num_beams;"):
        request_arguments({"do_sample": False, "num_beams": 10, "min_new_tokens": 20})
    with pytest.raises(InputError, match="decoding: .* top_k;"):
        request_arguments({**sample, "top_k": 50})


def completion(**choice):
    return ChatCompletion.model_construct(choices=[Choice.model_construct(**choice)])


def test_an_answer_without_text_is_empty_or_unfinished():
    def parse(finish_reason):
        message = {"content": None, "refusal": None}
        return server_client.parse_response(completion(message=message, finish_reason=finish_reason), {"messages": []})

    assert parse("stop") == MeasuredAnswer(text="", reason=None, is_cut=False, had_reasoning=False)
    assert parse("length").reason == UNFINISHED_REASONING and parse("length").had_reasoning


def test_a_content_may_be_a_list_of_parts_and_reasoning_a_field():
    parts = [{"type": "thinking", "thinking": [{"type": "text", "text": "Well"}]}, {"type": "text", "text": "Oh."}]
    messages = [
        {"content": parts},
        {"content": "Oh.", "reasoning_content": "Well"},
        {"content": "<think>Well</think> Oh."},
    ]
    for message in messages:
        answer = completion(message=message, finish_reason="stop")
        parsed = server_client.parse_response(answer, {"messages": []})
        assert (parsed.text, parsed.had_reasoning) == ("Oh.", True)


RATE_LIMIT = {"message": "Provider returned error", "code": 429}


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (lambda choice: {"error": RATE_LIMIT}, "error 429"),
        (lambda choice: {"choices": [], "error": {"code": "rate_limit_exceeded"}}, "error rate_limit_exceeded"),
        (lambda choice: {"choices": [{**choice, "message": {"content": None}}], "error": RATE_LIMIT}, "error 429"),
        (lambda choice: {"choices": [{**choice, "error": {"code": 502}}]}, "error 502"),
        (lambda choice: {"choices": [{**choice, "finish_reason": "error"}]}, "failed: error"),
        (lambda choice: {"choices": None, "object": None, "code": 500, "msg": "later"}, "error: no choices"),
        (lambda choice: {"choices": None, "object": None, "detail": "Internal error"}, "error"),
        (lambda choice: {"choices": None, "object": None, "error": {"message": None}}, "error: no choices"),
    ],
)
def test_a_failed_request_is_asked_again_and_then_counted(monkeypatch, answer, reason):
    """Half of the failures are of the moment: the second request is answered."""
    monkeypatch.setattr(server_client, "MAX_FAILED_RETRIES", 1)
    failed = []

    def body_of(body, choice):
        is_first = body["seed"] not in failed
        if body["seed"] % 3 or (body["seed"] % 2 and not is_first):
            return {"choices": [choice]}
        failed.append(body["seed"])
        return answer(choice)

    with serving(body=body_of) as (url, _):
        bodies = build_bodies(server_settings(url), 12)
        found = answers_or_reasons(url, bodies)
    assert sorted(failed) == [0, 0, 3, 6, 6, 9]
    assert found == {row: reason if row in (0, 6) else answer_to(body) for row, body in enumerate(bodies)}


def answers_or_reasons(url, bodies):
    """Return, by row, the text of each answer, or the reason why it is missing."""
    found = {}
    for rows, texts in fetch_answers(server_settings(url), bodies, text_of, on_missing=lambda reason: reason):
        found.update(zip(rows, texts, strict=True))
    return found


@pytest.mark.parametrize(
    ("status", "message", "reason"),
    [
        (451, "Unavailable For Legal Reasons", "content_filter"),
        (400, "Wir mögen diesen Text nicht", "rejected: status 400"),
        (422, "…", "rejected: status 422"),
        (403, "Your input was flagged", "content_filter"),
    ],
)
def test_a_rejected_text_does_not_end_the_run_in_which_others_are_answered(status, message, reason):
    def reject(body):
        return (status, {"error": {"message": message}}) if body["seed"] % 3 == 0 else None

    with serving(reject=reject) as (url, record):
        bodies = build_bodies(server_settings(url), 12)
        found = answers_or_reasons(url, bodies)
    assert len(record["bodies"]) == 12
    assert found == {row: answer_to(body) if row % 3 else reason for row, body in enumerate(bodies)}


def test_a_server_that_rejects_all_first_requests_ends_the_run_and_a_filter_does_not():
    with serving(reject=lambda body: (400, {"error": {"message": "the server is misconfigured"}})) as (url, record):
        with pytest.raises(InputError, match="of the first .. requests failed.*status 400"):
            answers_or_reasons(url, build_bodies(server_settings(url), 100))
        assert len(record["bodies"]) < 50
    with serving(reject=lambda body: (451, {})) as (url, _):
        assert set(answers_or_reasons(url, build_bodies(server_settings(url), 20)).values()) == {"content_filter"}


@pytest.mark.parametrize("status", [500, 503, 504, 429])
def test_requests_that_the_server_fails_to_the_end_are_counted_and_others_answered(monkeypatch, status):
    """The texts of one person make the server fail; the first request is one of them."""
    monkeypatch.setattr(server_client, "MAX_RETRIES", 3)
    monkeypatch.setattr(server_client, "MAX_FIRST_RETRIES", 3)
    wait = {"Retry-After": "0.02"}
    send = Handler._send
    monkeypatch.setattr(Handler, "_send", lambda self, body, *rest, **more: send(self, body, *rest, **{**wait, **more}))

    def reject(body):
        return (status, {"error": {"message": "internal error"}}) if body["seed"] % 4 == 0 else None

    with serving(reject=reject) as (url, record):
        bodies = build_bodies(server_settings(url), 12)
        found = answers_or_reasons(url, bodies)
    assert found == {row: answer_to(body) if row % 4 else f"failed: status {status}" for row, body in enumerate(bodies)}
    seeds = [body["seed"] for body in record["bodies"]]
    assert all(seeds.count(seed) >= 2 for seed in (0, 4, 8))  # asked again


@pytest.mark.parametrize(("code", "n_asked"), [("insufficient_quota", 1), ("rate_limit_exceeded", 2)])
def test_a_first_request_that_a_rate_limit_fails_is_asked_again_unless_the_quota_is_used_up(monkeypatch, code, n_asked):
    monkeypatch.setattr(server_client, "MAX_RETRIES", 0)
    monkeypatch.setattr(server_client, "MAX_FIRST_RETRIES", 0)
    with serving(reject=lambda body: (429, {"error": {"code": code, "message": "later"}})) as (url, record):
        assert "later" in fetch_error(url, n=1)
        assert len(record["bodies"]) == n_asked


def test_a_server_that_fails_nearly_all_requests_ends_the_run_with_one_error(monkeypatch):
    monkeypatch.setattr(server_client, "MAX_RETRIES", 0)
    reject = {"error": {"message": "internal error"}}
    with serving(reject=lambda body: (500, reject) if body["seed"] % 50 else None) as (url, record):
        with pytest.raises(InputError, match="requests failed.*status 500"):
            answers_or_reasons(url, build_bodies(server_settings(url), 100))
        assert len(record["bodies"]) < 100


def test_failures_after_the_server_has_ceased_to_answer_are_not_counted(monkeypatch):
    """Nothing is written that a later run would not ask for again."""
    monkeypatch.setattr(server_client, "MAX_RETRIES", 0)
    monkeypatch.setattr(server_client, "MAX_FAILED_RETRIES", 0)
    seen = []

    def reject(body):
        seen.append(body["seed"])
        return (503, {"error": {"message": "no worker"}}) if len(seen) > 20 else None

    with serving(reject=reject) as (url, _):
        model = server_settings(url, concurrency=2)
        found = []
        with pytest.raises(InputError, match="run the command again"):
            for _, texts in fetch_answers(model, build_bodies(model, 40), text_of, on_missing=lambda reason: reason):
                found += texts
    assert len(found) == 20 and not any("failed" in text for text in found)


def test_a_beginning_that_ended_for_another_reason_is_no_answer():
    stops = ("refusal", "ERROR_TOXIC", "model_context_window_exceeded", "a new word")

    def choice(body):
        return {"finish_reason": stops[body["seed"]], "message": {"content": "I am so", "role": "assistant"}}

    with serving(choice=choice) as (url, _):
        found = answers_or_reasons(url, build_bodies(server_settings(url), 4))
    assert found == {0: "refusal", 1: "content_filter", 2: "I am so", 3: "unknown stop reason a new word"}
