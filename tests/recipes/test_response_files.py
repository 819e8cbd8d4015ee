"""Prompt and response files in the commands: write prompts; score, compare and label responses without a model."""

import json
import re

import numpy as np
import pandas as pd
import pytest

from evenhand.evaluation.data.readers.response_files import drop_repeated_rows, is_repeated
from evenhand.evaluation.errors import InputError
from evenhand.evaluation.metrics import FamilyRun
from evenhand.evaluation.metrics.generation_bias import GenerationBias
from evenhand.evaluation.metrics.generation_bias.page_warnings import run_cautions
from evenhand.evaluation.metrics.generation_bias.verdict import bias_verdict
from evenhand.evaluation.model_settings import DecodingSettings, ModelSettings, StyleClassifierSettings
from evenhand.evaluation.models import loading
from evenhand.evaluation.prompt_settings import PromptSettings
from evenhand.evaluation.score import find_score, read_scores, signature_line
from evenhand.recipes.check import check_findings
from evenhand.recipes.command_settings import CheckSettings, CompareSettings
from evenhand.recipes.compare import compare
from evenhand.recipes.label import label
from evenhand.recipes.measure import family_configs, measure, read_inputs
from evenhand.recipes.settings import MeasureSettings, family_config
from evenhand.recipes.tuning_settings import LabelSettings
from tests.named_scores import find_named
from tests.report_pages import table_of
from tests.testbed_settings import generation_bias

POOLED = "fgb_pooled_corrected"
KIND, CURT = "I am so sorry to hear that.", "Do you like to cook?"
FILTERS = {"template": ["I'm {noun_phrase}.", "I like {plural_noun_phrase}."]}


def make_settings(folder, **settings):
    common = {"model": ModelSettings(name="somebody/some-model"), "report_to": "none"}
    common |= {"prompts": PromptSettings(filters=FILTERS, descriptors=14, answers_per_cell=4), "output_dir": folder}
    return MeasureSettings(**{**common, "generation_bias": generation_bias(permutations=0), **settings})


@pytest.fixture(scope="module")
def prompt_rows(tmp_path_factory):
    """The rows of a prompts file: 14 descriptors × 2 templates × 4."""
    folder = tmp_path_factory.mktemp("prompts")
    measure(make_settings(folder / "run", write_prompts=folder / "prompts.csv"))
    assert not (folder / "run").exists()
    return pd.read_csv(folder / "prompts.csv", keep_default_na=False)


def measure_responses(folder, rows, responses, **settings):
    """Measure a file of these responses, in the reverse order of their prompts, and return the run's folder."""
    rows.assign(response=responses)[["prompt_id", "response"]].iloc[::-1].to_csv(f"{folder}.csv", index=False)
    measure(make_settings(folder, responses=f"{folder}.csv", **settings))
    return folder


@pytest.fixture(scope="module")
def runs(prompt_rows, tmp_path_factory):
    """Before: half of the descriptors get 3 kind and 1 curt response, half the reverse; after: all get 2 of each."""
    folder, names = tmp_path_factory.mktemp("runs"), sorted(set(prompt_rows["descriptor"]))
    before = [(names.index(name) + (row % 4 == 0)) % 2 for row, name in enumerate(prompt_rows["descriptor"])]
    after = np.arange(len(prompt_rows)) % 2
    decoding = DecodingSettings(arguments={"temperature": 0.7})
    with pytest.MonkeyPatch.context() as patch:
        patch.delattr(loading, "load_dialogue_model")  # no model is loaded
        return [
            measure_responses(
                folder / name, prompt_rows, [KIND if kind else CURT for kind in is_kind], decoding=decoding
            )
            for name, is_kind in (("before", before), ("after", after))
        ]


def test_prompt_and_response_files_have_a_row_each(prompt_rows, tmp_path):
    responses = [(KIND, CURT)[row % 2] for row in range(len(prompt_rows))]
    run = measure_responses(tmp_path / "run", prompt_rows, responses)
    assert pd.read_parquet(run / "responses.parquet")["response"].tolist() == responses
    assert list(prompt_rows)[:5] == ["prompt_id", "repeat", "prompt", "system", "persona"]
    assert len(prompt_rows) == 14 * 2 * 4 and prompt_rows["prompt_id"].is_unique
    assert prompt_rows["prompt"].equals(prompt_rows["text"]) and set(prompt_rows["repeat"]) <= {1, 2, 3, 4}


def test_responses_are_scored_and_the_signature_has_their_hash(runs):
    scores = read_scores(runs[0] / "scores.json")
    pooled = find_named(scores, POOLED)
    # Two styles, of which a descriptor has ¾ or ¼ on both templates: 2 · 14/13 · 1/16 = 0.13 if it were sure.
    assert 0.05 < pooled.value < 0.14
    assert pooled.interval is None and "nothing varies" in pooled.reason
    assert not {"relevance", "perplexity"} & {score.name for score in scores}
    model = pooled.signature["model"]
    assert model["name"] == "somebody/some-model" and model["sha256"] == pooled.signature["inputs"]["responses"]
    assert pooled.signature["decoding"] == {"temperature": 0.7}
    assert f"|m:somebody/some-model@{model['sha256'][:7]}|d:paper@" in signature_line(pooled)
    assert "temperature 0.7" in (runs[0] / "report.html").read_text()


def test_runs_of_response_files_are_compared_and_labelled(runs, tmp_path):
    settings = {"output_dir": tmp_path / "compared", "report_to": "none"}
    compare(CompareSettings(before=runs[0], after=runs[1], **settings))
    scores = read_scores(tmp_path / "compared" / "scores.json")
    assert find_named(scores, f"{POOLED}_difference").value < -0.03
    relevance = find_score(scores, "relevance", kind="kept")
    assert np.isnan(relevance.value) and relevance.reason
    # The majority of a descriptor's responses, 3 of 4, are biased: their bias value is above 0.
    label(LabelSettings(run=runs[0], output_dir=tmp_path / "labels", report_to="none", beta=0.0))
    labels = pd.read_parquet(tmp_path / "labels" / "labels.parquet")
    assert labels["label"].value_counts().to_dict() == {"bias": 84, "no_bias": 28}


def test_empty_responses_are_left_out_and_missing_ones_raise(prompt_rows, tmp_path):
    responses = [""] + [KIND] * (len(prompt_rows) - 1)
    scores = read_scores(measure_responses(tmp_path / "empty", prompt_rows, responses) / "scores.json")
    assert find_named(scores, POOLED).n_left_out == 1
    assert find_score(scores, "empty_share").value == 1 / len(prompt_rows)
    with pytest.raises(InputError, match=r"^responses: .*\b112\b.* 1 "):
        measure_responses(tmp_path / "missing", prompt_rows.iloc[1:], responses[1:])
    measure_responses(tmp_path / "missing", prompt_rows, responses)  # the corrected file, into the same folder
    with pytest.raises(InputError, match=r"^responses: .*\b112\b"):
        measure_responses(tmp_path / "mute", prompt_rows, [""] * len(prompt_rows))


def test_the_batch_api_answers_the_requests(tmp_path):
    """The requests are answered as OpenAI's endpoint does, and the output is scored by custom_id."""
    settings = {
        "decoding": DecodingSettings(arguments={"temperature": 0.7}),
        "generation_bias": generation_bias(permutations=9),
    }
    model = ModelSettings(name="gpt-x", system_prompt="Be brief.")
    with pytest.raises(InputError, match="model.name: .*asked.jsonl"):
        measure(make_settings(tmp_path / "run", model=ModelSettings(), write_prompts=tmp_path / "asked.jsonl"))
    measure(make_settings(tmp_path / "run", model=model, write_prompts=tmp_path / "asked.jsonl", **settings))
    requests = [json.loads(line) for line in (tmp_path / "asked.jsonl").read_text().splitlines()]
    assert len({request["custom_id"] for request in requests}) == len(requests) == 14 * 2 * 4
    body = requests[0]["body"]
    assert (requests[0]["method"], requests[0]["url"]) == ("POST", "/v1/chat/completions")
    assert (body["model"], body["temperature"], body["max_tokens"]) == ("gpt-x", 0.7, 40)
    assert [message["role"] for message in body["messages"]] == ["system", "user"]

    lines = []
    for number, request in enumerate(reversed(requests)):
        choice = {"message": {"content": (KIND, CURT)[number % 2], "refusal": None}, "finish_reason": "stop"}
        lines.append(
            {"custom_id": request["custom_id"], "response": {"status_code": 200, "body": {"choices": [choice]}}}
        )
    lines[0]["response"]["status_code"] = 429
    lines[1]["response"]["body"]["choices"][0]["message"] = {"content": None, "refusal": "<script>No."}
    (tmp_path / "output.jsonl").write_text("\n".join(map(json.dumps, lines)))
    measure(make_settings(tmp_path / "run", model=model, responses=tmp_path / "output.jsonl", **settings))
    table = pd.read_parquet(tmp_path / "run" / "responses.parquet")
    assert table["left_out"].value_counts().to_dict() == {"status 429": 1, "refusal": 1}
    assert table["left_out"].notna().equals(table["response"] == "")
    assert find_named(read_scores(tmp_path / "run" / "scores.json"), POOLED).n_left_out == 2
    page = (tmp_path / "run" / "report.html").read_text()
    assert "“status 429” took the place of 1 of 112 answers" in page and "withheld 1 of 112 answers" in page
    assert json.loads((tmp_path / "run" / "run.json").read_text())["left_out"] == {"status 429": 1, "refusal": 1}


def test_copied_rows_change_nothing_but_a_warning(tmp_path):
    """Twelve descriptors, eight templates, no bias; then every row three times, once with other punctuation."""
    kinds = np.random.default_rng(1).permutation(np.arange(96) % 2)
    names = {"descriptor": [f"d{row // 8}" for row in range(96)], "template": [f"t{row % 8}" for row in range(96)]}
    rows = pd.DataFrame(names)
    rows = rows.assign(text="Hi", response=[f"{(KIND, CURT)[kind]} {row}" for row, kind in enumerate(kinds)])
    altered = rows.assign(response=rows["response"].str.replace(".", " !"))
    files = {"first": rows, "copies": pd.concat([rows, altered, rows]).sample(frac=1, random_state=0)}
    scores = {}
    warned = {}
    for name, repeated in (("first", "warn"), ("copies", "warn"), ("copies", "independent")):
        files[name].to_json(tmp_path / f"{name}.jsonl", orient="records", lines=True)
        settings = {"generation_bias": generation_bias(permutations=99, repeated_rows=repeated)}
        folder = tmp_path / name / repeated
        measure(make_settings(folder, responses=tmp_path / f"{name}.jsonl", **settings))
        scores[name, repeated] = find_named(read_scores(folder / "scores.json"), POOLED)
        warned[name, repeated] = "of the rows repeat" in (folder / "report.html").read_text()
    first, copies, independent = scores.values()
    assert copies.n == independent.n == 288 and bias_verdict(first) == "not shown"
    for other in (copies, independent):
        assert other.value == pytest.approx(first.value, abs=1e-3) and bias_verdict(other) == "not shown"
    assert list(warned.values()) == [False, True, False]


def test_once_drops_the_rows_that_the_warning_counts():
    """Case, punctuation and spaces aside; an empty response repeats nothing."""
    table = {
        "text": ["a", "a", "a", "b", "a", "a"],
        "descriptor": ["d"] * 6,
        "response": ["Yes!", "yes", "no", "yes", "", ""],
    }
    assert drop_repeated_rows(table)["response"] == ["Yes!", "no", "yes", "", ""]


def test_one_template_decides_nothing(tmp_path):
    rows = [{"text": "Hi", "descriptor": name, "response": text} for name, text in (("old", KIND), ("young", CURT))]
    pd.DataFrame(rows * 20).to_json(tmp_path / "logs.jsonl", orient="records", lines=True)
    measure(make_settings(tmp_path / "run", responses=tmp_path / "logs.jsonl"))
    score = find_named(read_scores(tmp_path / "run" / "scores.json"), POOLED)
    assert score.caution == "one_template" or score.interval is None
    assert bias_verdict(score) in ("unclear", "no interval")


def test_rows_are_repeated_if_they_differ_in_case_punctuation_or_spaces_only():
    table = pd.DataFrame({"text": ["a", "a", "a", "b", "a"], "response": ["Hi, you!", "hi  you", "hi", "hi you", ""]})
    assert is_repeated(table).tolist() == [False, True, False, False, False]


def test_logs_without_templates_are_scored(tmp_path):
    rows = [{"text": f"Hi {i}", "descriptor": name, "response": KIND} for name in ("old", "young") for i in range(4)]
    pd.DataFrame(rows).to_json(tmp_path / "logs.jsonl", orient="records", lines=True)
    measure(make_settings(tmp_path / "run", responses=tmp_path / "logs.jsonl"))
    scores = read_scores(tmp_path / "run" / "scores.json")
    assert find_named(scores, POOLED).value == pytest.approx(0)  # all responses are the same
    assert not [score for score in scores if "axis" in score.group]
    assert "The file has no column template" in (tmp_path / "run" / "report.html").read_text()
    assert find_named(scores, POOLED).signature["dataset"]["name"] == "logs.jsonl"
    with pytest.raises(InputError, match="prompts.dataset: "):
        prompts = PromptSettings(dataset="p.csv")
        read_inputs(family_configs(make_settings(tmp_path / "run", responses=tmp_path / "logs.jsonl", prompts=prompts)))


def test_a_page_warns_of_empty_responses_and_of_descriptors_that_differ_in_case(tmp_path):
    rows = [("Old", KIND), ("old ", CURT), ("young", ""), ("young", "")] + [(f"d{n}", " ") for n in range(5)]
    frame = pd.DataFrame(rows * 2, columns=["descriptor", "response"]).assign(text="Hi", template="t", bucket="b")
    frame.to_csv(tmp_path / "logs.csv", index=False)
    measure(settings := make_settings(tmp_path / "run", responses=tmp_path / "logs.csv"))
    run = FamilyRun(tmp_path / "run", family_config(settings, "generation_bias"))
    labels = {row.label for row in table_of(GenerationBias().page(run), "The scores").rows}
    assert len(labels) == 3 and np.isnan(find_score(run.scores, "fgb", "person").value)  # one bucket: no row
    empty, alike = run_cautions(run)[-2:]
    assert (empty.kind, empty.values["n"], empty.values["n_of"]) == ("missing_answers", 14, 18)
    assert empty.values["people"][:2] == [{"name": "young", "n": 4, "n_of": 4}, {"name": "d0", "n": 2, "n_of": 2}]
    assert (alike.kind, alike.values) == ("alike", {"names": ["Old", "old"]})


def test_a_file_that_compares_nobody_and_an_unknown_classifier_are_refused(tmp_path):
    path = tmp_path / "logs.csv"
    with pytest.raises(InputError, match=r"^responses: .*logs\.csv"):
        read_inputs(family_configs(make_settings(tmp_path / "run", responses=path)))
    frame = pd.DataFrame({"text": ["Hi"] * 2, "descriptor": "veteran", "response": KIND})
    frame.to_csv(path, index=False)
    with pytest.raises(InputError, match="^responses: .*“veteran”"):
        read_inputs(family_configs(make_settings(tmp_path / "run", responses=path)))
    frame.assign(descriptor=["old", "young"]).to_csv(path, index=False)
    for setting in ("style_classifier", "second_style_classifier"):
        family = generation_bias(**{setting: StyleClassifierSettings(name="/nowhere")})
        with pytest.raises(InputError, match=f"^generation_bias.{setting}: .*/nowhere"):
            read_inputs(family_configs(make_settings(tmp_path / "run", responses=path, generation_bias=family)))


def test_outcomes_of_a_file_are_measured_and_fluency_needs_a_model(prompt_rows, tmp_path):
    """Responses to every second descriptor are three words longer: the length has a spread and effects."""
    names = sorted(set(prompt_rows["descriptor"]))
    is_long = [names.index(name) % 2 == 0 for name in prompt_rows["descriptor"]]
    texts = ["I like to cook and to read." if it else "I like to cook." for it in is_long]
    settings = generation_bias(permutations=99, outcomes=["length", "refusal"])
    run = measure_responses(tmp_path / "run", prompt_rows, texts, generation_bias=settings)
    spread = find_score(read_scores(run / "scores.json"), "length", "spread")
    assert spread.value == pytest.approx(1.5 * (14 / 13) ** 0.5, rel=1e-3)  # of ±1.5 words, ddof 1
    effects = pd.read_parquet(run / "outcome_effects.parquet").query("outcome == 'length' and kind == 'descriptor'")
    assert "inconclusive" not in set(effects["certainty"])
    typical = (5 * 8) ** 0.5 - 1  # of 4 and 7 words: exp(mean of log(1 + x)) − 1
    assert effects["effect"].abs().max() == pytest.approx(7 - typical)
    even = measure_responses(tmp_path / "even", prompt_rows, ["I like to cook."] * len(texts), generation_bias=settings)
    compare(CompareSettings(before=run, after=even, output_dir=tmp_path / "c", report_to="none"))
    scores = read_scores(tmp_path / "c" / "scores.json")
    assert find_score(scores, "length", "spread", "difference").value == pytest.approx(-spread.value)
    assert find_score(scores, "length", "mean", "difference").value == pytest.approx(-1.5)
    assert find_score(scores, "refusal", "spread", "difference").value == 0
    assert "Language and other outcomes, before and after" in (tmp_path / "c" / "report.html").read_text()
    limits = {"length": 2.0, "refusal": 1.0}
    finding, inconclusive = check_findings(CheckSettings(run=run, max_spread=limits))
    assert (finding.status, inconclusive.status) == ("inconclusive", "inconclusive")  # nothing varies within cells
    with pytest.raises(InputError, match=r"^max_spread: .* 'fluency'"):
        check_findings(CheckSettings(run=run, max_spread={"fluency": 1.0}))
    with pytest.raises(InputError, match=r"^generation_bias\.outcomes: fluency: "):
        fluency = generation_bias(permutations=0, outcomes=["fluency"])
        measure_responses(tmp_path / "fluency", prompt_rows, texts, generation_bias=fluency)


@pytest.mark.parametrize(
    ("outcomes", "columns", "message"),
    [
        (["refusal"], {"refusal": [1.0] * 4}, "'refusal' is built in, and a column of the file, too"),
        (["descriptor"], {}, "'descriptor' is the name of something else"),
        (["response"], {}, "'response' is the name of something else"),
        (["a: b"], {"a: b": [1.0] * 4}, "'a: b' has a colon"),
        (["blank"], {"blank": [None] * 4}, "the column 'blank' has no values"),
        (["mixed"], {"mixed": [1, "a", 2, 3]}, "the column 'mixed' has other values"),
        (["lists"], {"lists": [[1], [2], [3], [4]]}, "the column 'lists' has other values"),
        (["absent"], {"toxic": [1.0] * 4}, "'absent' is unknown"),
    ],
)
def test_names_of_users_do_not_meet_names_of_ours(tmp_path, outcomes, columns, message):
    rows = [{"text": "Hi", "descriptor": name, "response": KIND} for name in "abab"]
    rows = [row | {name: values[i] for name, values in columns.items()} for i, row in enumerate(rows)]
    (tmp_path / "r.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    of_outcomes = {"generation_bias": generation_bias(outcomes=outcomes)}
    with pytest.raises(InputError, match=re.escape(message)):
        read_inputs(family_configs(make_settings(tmp_path / "run", responses=tmp_path / "r.jsonl", **of_outcomes)))
