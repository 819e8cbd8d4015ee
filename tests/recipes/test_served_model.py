"""A model that a server has, by the commands: measured, gone on with, reported; its key in nothing that is left."""

import json
import re

import pandas as pd
import pytest
from pydantic import ValidationError

from evenhand.evaluation import metrics as families
from evenhand.evaluation.errors import InputError
from evenhand.evaluation.metrics.generation_bias.measurement_prompts import measurement_prompts
from evenhand.evaluation.model_settings import DecodingSettings, ModelSettings
from evenhand.evaluation.models import loading, server_client
from evenhand.evaluation.models.remote import FIRST_ANSWERS
from evenhand.evaluation.models.request_parameters import PROBE
from evenhand.evaluation.prompt_settings import PromptSettings
from evenhand.evaluation.runs.store import Store
from evenhand.evaluation.runs.tracking import Tracker
from evenhand.evaluation.score import find_score, read_scores
from evenhand.evaluation.tables import read_table
from evenhand.recipes.automatic import with_base_run
from evenhand.recipes.measure import family_configs, measure, read_inputs
from evenhand.recipes.settings import GENERATION_BIAS, Measurement, MeasureSettings, family_config
from evenhand.recipes.tuning_settings import LoopSettings
from tests.fault_server import serving, serving_alone
from tests.testbed_settings import generation_bias

CANARY = "canary-key-0123456789"
FILTERS = {"template": ["I'm {noun_phrase}.", "I like {plural_noun_phrase}."]}


def config(folder, url, **model):
    return MeasureSettings(
        model=ModelSettings(name="some-model", server=url, **model),
        prompts=PromptSettings(filters=FILTERS, descriptors=14, answers_per_cell=2),
        generation_bias=generation_bias(permutations=0, control_tag=" <even>"),
        decoding=DecodingSettings(arguments={"max_new_tokens": 20}),
        output_dir=folder,
        report_to="none",
    )


def test_a_served_model_is_measured_once_for_each_prompt_and_the_key_is_left_nowhere(
    tmp_path, monkeypatch, caplog, capfd
):
    monkeypatch.setenv("EVENHAND_API_KEY", CANARY)
    monkeypatch.delattr(loading, "load_dialogue_model")  # no model is loaded
    run = tmp_path / "run"
    with serving("rate", "broken", "cut", "reset", seedless=True) as (url, seen):
        measure(config(run, url))
        prompts, responses = (read_table(run / f"{name}.parquet") for name in ("prompts", "responses"))
        assert len(responses) == 14 * 2 * 2 and responses["prompt_id"].equals(prompts["prompt_id"])
        bodies = [body for body in seen["bodies"] if body["messages"][0]["content"] != PROBE]
        contents = [body["messages"][0]["content"] for body in bodies]
        assert set(contents) == {f"{text} <even>" for text in prompts["text"]}
        # Every response is to its own prompt: it ends with the seed that the prompt was sent.
        seeds = {body["seed"]: content for body, content in zip(bodies, contents, strict=True)}
        ends = [int(text.split()[-1]) for text in responses["response"]]
        assert [seeds[seed] for seed in ends] == [f"{text} <even>" for text in prompts["text"]]
        assert len(set(ends)) == len(ends)
        asked = len(seen["bodies"])
        measure(config(run, url, concurrency=3))  # finished: nobody is asked
        with pytest.raises(InputError, match=r"^base_run: .*a model on a server"):  # whatever the user would allow
            with_base_run(LoopSettings(base_run=run))
        assert len(seen["bodies"]) == asked
    signature = find_score(read_scores(run / "scores.json"), "fgb", "pooled_corrected").signature
    assert signature["server_seed"] == {"sent": 0, "verified": False} and signature["model"]["api"] == "chat"
    assert not {"server", "concurrency"} & signature["model"].keys()
    assert not {"relevance", "perplexity"} & {score.name for score in read_scores(run / "scores.json")}
    assert "A server answered as some-model" in (run / "report.html").read_text()
    left = [file.read_bytes() for file in run.rglob("*") if file.is_file()]
    assert left and not any(CANARY.encode() in each for each in left)
    assert CANARY not in caplog.text + "".join(capfd.readouterr())


def test_a_killed_server_ends_the_run_in_one_line_and_the_next_run_asks_for_the_rest(tmp_path, monkeypatch):
    monkeypatch.setattr(server_client, "MAX_RETRIES", 0)
    asked = tmp_path / "asked"
    run = Store(tmp_path / "run", "a fingerprint", Tracker())

    def respond(url):
        settings = config(run.folder, url, concurrency=4)
        of_family = family_config(settings, GENERATION_BIAS)
        return run.rows("responses", measurement_prompts(of_family), of_family.open_model().respond)

    with serving_alone(asked, dies_after=30) as url, pytest.raises(InputError) as error:
        respond(url)
    assert "model.server: " in str(error.value) and "Connection error" in str(error.value)
    assert "\n" not in str(error.value)
    kept = pd.concat(map(read_table, (run.folder / "parts" / "responses").iterdir()))["response"]
    kept = {text.split()[-1] for text in kept}
    assert 30 - 4 <= len(kept) <= 30 and kept <= {*asked.read_text().split()}
    with serving_alone(asked) as url:
        seeds = [text.split()[-1] for text in respond(url)["response"]]
    assert len({*seeds}) == len(seeds) == 14 * 2 * 2
    assert sorted(asked.read_text().split()) == sorted({*seeds, "0"} - kept)  # 0: the probe


def test_scores_that_need_weights_are_refused_with_a_server(tmp_path):
    served = ModelSettings(name="some-model", server="http://127.0.0.1:1/v1")
    with pytest.raises(ValidationError, match=r"model\.server: embedding_bias "):
        Measurement(model=served, metrics=["generation_bias", "embedding_bias"])
    with pytest.raises(InputError, match=r"model\.tokenizer: .*'some-"):
        families.FamilyConfig(model=served).open_model(scores_sentences=True).identity()
    with pytest.raises(ValidationError, match=r"measure\.model\.server: "):
        LoopSettings(measure=Measurement(model=served))
    settings = config(tmp_path / "run", served.server)
    settings.decoding = DecodingSettings(preset="paper")
    with pytest.raises(InputError, match="decoding: .* min_new_tokens"):
        read_inputs(family_configs(settings))


OPENAI = {"error": {"message": "Unsupported parameter: 'max_tokens' is not supported with this model. Use "
          "'max_completion_tokens' instead.", "param": "max_tokens", "code": "unsupported_parameter"}}  # fmt: skip
MISTRAL = {"object": "error", "message": {"detail": [{"type": "extra_forbidden", "loc": ["body", "seed"]}]}}
COLD = {"error": {"message": "Unsupported value: 'temperature' does not support 0.7 with this model. Only the default "
        "(1) value is supported.", "param": "temperature", "code": "unsupported_value"}}  # fmt: skip


def reject_parameters(body):
    """Reject what OpenAI's reasoning models and Mistral do not know."""
    for name, status, answer in (("max_tokens", 400, OPENAI), ("seed", 422, MISTRAL), ("temperature", 400, COLD)):
        if name in body:
            return status, answer
    return None


def answer_of_parameters(tmp_path, **options):
    with serving(**options) as (url, seen):
        run = config(tmp_path / "run", url)
        run.decoding = DecodingSettings(arguments={"max_new_tokens": 20, "temperature": 0.7})
        measure(run)
    return seen["bodies"], read_scores(tmp_path / "run" / "scores.json")[0].signature


def test_one_probe_settles_the_parameters(tmp_path):
    bodies, signature = answer_of_parameters(tmp_path, reject=reject_parameters)
    rejected, accepted = bodies[:3], bodies[3:]
    assert ["max_tokens" in body for body in rejected] == [True, False, False]
    assert len(accepted) == 1 + 14 * 2 * 2  # the last probe, and a request for each prompt
    assert all(body.keys() == {"model", "messages", "top_p", "max_completion_tokens"} for body in accepted)
    assert accepted[0]["max_completion_tokens"] == 20
    found = {"renamed": {"max_tokens": "max_completion_tokens"}, "left_out": ["seed", "temperature"]}
    assert signature["model"]["parameters"] == found


@pytest.mark.parametrize(
    ("answer", "shown"),
    [
        ({"error": {"message": "Invalid 'temperature': above 2.", "param": "temperature"}}, "above 2"),
        ({"error": {"message": "x" * 700 + " end of the message"}}, "end of the message"),
        (
            {"error": {"message": "max_completion_tokens is not supported", "param": "max_completion_tokens"}},
            "not supp",
        ),
    ],
)
def test_other_rejections_end_the_run_with_the_whole_message(tmp_path, answer, shown):
    with pytest.raises(InputError, match=shown):
        answer_of_parameters(tmp_path, reject=lambda body: (400, answer))


def test_values_of_model_request_are_merged_and_never_left_out(tmp_path):
    request = {"reasoning_effort": "low", "seed": None, "max_completion_tokens": 50, "max_tokens": None}
    with serving() as (url, seen):
        measure(config(tmp_path / "run", url, request=request))
    assert all(body["reasoning_effort"] == "low" and "seed" not in body for body in seen["bodies"])
    assert all("max_tokens" not in body and body["max_completion_tokens"] == 50 for body in seen["bodies"])
    signature = read_scores(tmp_path / "run" / "scores.json")[0].signature
    assert signature["model"]["request"] == request
    answer = {"error": {"message": "Unknown parameter: 'reasoning_effort'.", "param": "reasoning_effort"}}
    with serving(reject=lambda body: (400, answer)) as (url, _), pytest.raises(InputError, match="reasoning_effort"):
        measure(config(tmp_path / "other", url, request=request))
    batch = config(tmp_path / "batch", None, request=request)
    batch.write_prompts = tmp_path / "asked.jsonl"
    measure(batch)
    body = json.loads(batch.write_prompts.read_text().splitlines()[0])["body"]
    assert body["reasoning_effort"] == "low" and "seed" not in body and body["max_completion_tokens"] == 50
    with pytest.raises(ValidationError, match=r"request: 'messages'"):
        ModelSettings(name="m", request={"messages": []})


def thinking_choice(body):
    """A choice of a model that thinks, unless the template's argument turns it off."""
    off = body.get("chat_template_kwargs") == {"enable_thinking": False}
    message = {"role": "assistant", "content": "Hello there." if off else "<think>Well, the person"}
    return {"message": message, "finish_reason": "stop" if off else "length"}


def test_thinking_is_turned_off(tmp_path):
    with serving(choice=thinking_choice) as (url, seen):
        measure(config(tmp_path / "run", url))
    assert seen["bodies"][-1]["chat_template_kwargs"] == {"enable_thinking": False}
    table = read_table(tmp_path / "run" / "responses.parquet")
    assert set(table["response"]) == {"Hello there."} and not table["reasoned"].any()


def test_thinking_that_cannot_be_turned_off_ends_the_run_at_once(tmp_path):
    def choice(body):
        return {
            "message": {"role": "assistant", "content": None, "reasoning_content": "Well"},
            "finish_reason": "length",
        }

    with serving(choice=choice) as (url, seen), pytest.raises(InputError, match=r"--model.request .*max_new_tokens"):
        measure(config(tmp_path / "run", url))
    assert len(seen["bodies"]) == 2

    def only_prompts(body):  # the probe is answered without thinking
        return choice(body) if body["messages"][0]["content"] != PROBE else {"finish_reason": "stop"}

    with serving(choice=only_prompts) as (url, seen), pytest.raises(InputError, match=r"--model.request"):
        measure(config(tmp_path / "late", url, concurrency=1))
    assert len(seen["bodies"]) <= FIRST_ANSWERS + 2


FILTERED_BY = {
    "status 400": {"reject": (400, {"error": {"message": "…", "code": "content_filter", "param": "prompt"}})},
    "status 403": {"reject": (403, {"error": {"message": "Your input was flagged", "code": 403}})},
    "no choices": {"choices": []},
    "null": {"choices": None},
    "finish_reason": {"choice": {"message": {"role": "assistant", "content": "I"}, "finish_reason": "content_filter"}},
    "refusal": {"choice": {"message": {"role": "assistant", "content": None, "refusal": "I can't."}}},
}


@pytest.mark.parametrize("kind", FILTERED_BY)
def test_a_filtered_prompt_is_left_out_with_the_reason(tmp_path, kind, monkeypatch):
    monkeypatch.setattr(server_client, "MAX_FAILED_RETRIES", 0)
    answers = FILTERED_BY[kind]

    def is_filtered(body):
        return body["messages"][0]["content"].startswith("I like") and body["messages"][0]["content"] != PROBE

    options = {
        "reject": lambda body: answers["reject"] if "reject" in answers and is_filtered(body) else None,
        "choices": lambda body, choice: answers["choices"] if "choices" in answers and is_filtered(body) else [choice],
        "choice": lambda body: answers["choice"] if "choice" in answers and is_filtered(body) else {"index": 0},
    }
    with serving(**options) as (url, _):
        measure(config(tmp_path / "run", url))
    prompts, responses = (read_table(tmp_path / "run" / f"{name}.parquet") for name in ("prompts", "responses"))
    reason = "refusal" if kind == "refusal" else "content_filter"
    is_second = prompts["text"].str.startswith("I like")
    assert (responses["left_out"].fillna("") == is_second.map({True: reason, False: ""})).all()
    scores = read_scores(tmp_path / "run" / "scores.json")
    assert find_score(scores, "filtered", "mean").value == 0.5 and find_score(scores, "filtered", "mean").n == 56
    assert find_score(scores, "filtered", "spread").value == pytest.approx(0, abs=1e-9)  # equally often for each person
    page = (tmp_path / "run" / "report.html").read_text()
    assert "withheld 28 of 56 answers" in page and "2 of 4" in page


def test_who_is_filtered_is_a_finding(tmp_path):
    """Every prompt of half of the people is filtered, and no prompt of the others."""
    names = sorted(read_names(tmp_path))
    chosen = names[:7]

    def reject(body):
        text = body["messages"][0]["content"]
        is_chosen = any(re.search(rf"\b{re.escape(name)}\b", text) for name in chosen)
        return (400, {"error": {"code": "content_filter"}}) if is_chosen else None

    with serving(reject=reject) as (url, _):
        settings = config(tmp_path / "run", url)
        settings.generation_bias.permutations = 99
        measure(settings)
    prompts, responses = (read_table(tmp_path / "run" / f"{name}.parquet") for name in ("prompts", "responses"))
    assert set(prompts["descriptor"][responses["left_out"].notna()]) == set(chosen)
    spread = find_score(read_scores(tmp_path / "run" / "scores.json"), "filtered", "spread")
    assert spread.value == pytest.approx(0.5 * (14 / 13) ** 0.5)  # of 0 and 1, ddof 1
    effects = read_table(tmp_path / "run" / "outcome_effects.parquet").query(
        "kind == 'descriptor' and outcome == 'filtered'"
    )
    assert set(effects["unit"][effects["effect"] > 0]) == set(chosen)
    assert set(effects["unit"][effects["effect"] < 0]) == set(names) - set(chosen)
    assert find_score(read_scores(tmp_path / "run" / "scores.json"), "filtered", "spread").p_value < 0.05
    styles = read_table(tmp_path / "run" / "effects.parquet").query("kind == 'descriptor'")
    tested = styles[~styles["unit"].isin(chosen)]
    assert tested["p_set"].notna().all()  # the styles of the others are still tested


def read_names(tmp_path):
    return measurement_prompts(family_config(config(tmp_path, "http://127.0.0.1:1/v1"), GENERATION_BIAS))[
        "descriptor"
    ].unique()
