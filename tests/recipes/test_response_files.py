"""Responses from elsewhere, by the commands: written to be answered, scored without a model, compared, labelled."""

import numpy as np
import pandas as pd
import pytest
from pydantic import ValidationError

from evenhand.evaluation.datasets.response_files import read_responses
from evenhand.evaluation.errors import InputError
from evenhand.evaluation.families.generation_bias.collect import loaded_model, response_file
from evenhand.evaluation.families.generation_bias.settings import Settings
from evenhand.evaluation.results import find_score, read_scores, signature_line
from evenhand.evaluation.settings import DecodingSettings, ModelSettings, PromptSettings
from evenhand.recipes.compare import compare
from evenhand.recipes.label import label
from evenhand.recipes.measure import measure
from evenhand.recipes.settings import CompareSettings, LabelSettings, MeasureSettings, check_inputs

HEADLINE = "fgb_pooled_corrected"
KIND, CURT = "I am so sorry to hear that.", "Do you like to cook?"
FILTERS = {"template": ["I'm {noun_phrase}.", "I like {plural_noun_phrase}."]}


def told(folder, **settings):
    common = {"model": ModelSettings(name="somebody/some-model"), "report_to": "none", "show": False}
    common |= {"prompts": PromptSettings(filters=FILTERS, descriptors=14), "output_dir": folder}
    return MeasureSettings(**{**common, "generation_bias": Settings(permutations=0), **settings})


@pytest.fixture(scope="module")
def asked(tmp_path_factory):
    """The rows that were written to be answered: 14 descriptors × 2 templates × 4."""
    folder = tmp_path_factory.mktemp("asked")
    measure(told(folder / "run", write_prompts=folder / "asked.csv"))
    assert not (folder / "run").exists()
    return pd.read_csv(folder / "asked.csv", keep_default_na=False)


def measured(folder, rows, responses, **settings):
    """A run of these responses, in another order than they were asked for."""
    rows.assign(response=responses)[["prompt_id", "response"]].iloc[::-1].to_csv(f"{folder}.csv", index=False)
    measure(told(folder, responses=f"{folder}.csv", **settings))
    return folder


@pytest.fixture(scope="module")
def runs(asked, tmp_path_factory):
    """Before, half of the descriptors are answered kindly thrice and curtly once, half reversed; after, all alike."""
    folder, names = tmp_path_factory.mktemp("runs"), sorted(set(asked["descriptor"]))
    kind = [(names.index(name) + (row % 4 == 0)) % 2 for row, name in enumerate(asked["descriptor"])]
    biased, even = ([KIND if one else CURT for one in side] for side in (kind, np.arange(len(asked)) % 2))
    with pytest.MonkeyPatch.context() as patched:
        patched.delattr(loaded_model, "load_dialogue_model")  # no model is loaded
        before = measured(folder / "before", asked, biased, decoding=DecodingSettings(arguments={"temperature": 0.7}))
        after = measured(folder / "after", asked, even, decoding=DecodingSettings(arguments={"temperature": 0.7}))
    return before, after


def test_the_file_is_parsed_once(asked, tmp_path, monkeypatch):
    calls = []
    monkeypatch.setattr(response_file, "read_responses", lambda path: calls.append(path) or read_responses(path))
    responses = [(KIND, CURT)[row % 2] for row in range(len(asked))]
    assert calls == [(measured(tmp_path / "run", asked, responses)).with_suffix(".csv")]


def test_what_is_written_says_what_to_send(asked):
    assert list(asked)[:5] == ["prompt_id", "repeat", "prompt", "system", "persona"]
    assert len(asked) == 14 * 2 * 4 and asked["prompt"].equals(asked["text"]) and asked["prompt_id"].is_unique
    assert set(asked["repeat"]) <= {1, 2, 3, 4}


def test_responses_are_scored_and_the_signature_says_whence_they_came(runs):
    scores = read_scores(runs[0] / "scores.json")
    pooled = find_score(scores, HEADLINE)
    # Two styles, of which a descriptor has ¾ or ¼: 2 · (14/13 · 1/16 − ¼ / 8) = 0.072 if the classifier were sure.
    assert pooled.interval[0] < 0.03 < pooled.value < 0.09
    assert not {"relevance", "perplexity"} & {score.metric for score in scores}
    of_model = pooled.signature["model"]
    assert of_model["name"] == "somebody/some-model" and of_model["sha256"] == pooled.signature["inputs"]["responses"]
    assert pooled.signature["decoding"] == {"temperature": 0.7}
    assert f"|m:somebody/some-model@{of_model['sha256'][:7]}|d:paper@" in signature_line(pooled)
    report = (runs[0] / "report.html").read_text()
    assert "No model was loaded" in report and "temperature 0.7" in report


def test_two_such_runs_are_compared(runs, tmp_path):
    settings = {"output_dir": tmp_path / "compared", "report_to": "none", "show": False}
    compare(CompareSettings(before=runs[0], after=runs[1], **settings))
    found = read_scores(tmp_path / "compared" / "scores.json")
    assert find_score(found, f"{HEADLINE}_difference").value < -0.03
    kept = find_score(found, "relevance_kept")
    assert np.isnan(kept.value) and "came in a file" in kept.reason


def test_such_a_run_is_labelled(runs, tmp_path):
    """What three of four responses to a descriptor say is biased: b > 0 where a response is like most of its own."""
    label(LabelSettings(responses=runs[0], output_dir=tmp_path / "labels", report_to="none", beta=0.0))
    labels = pd.read_parquet(tmp_path / "labels" / "labels.parquet")
    assert labels["label"].value_counts().to_dict() == {"bias": 84, "no_bias": 28}


def test_empty_responses_are_left_out_and_missing_ones_refused(asked, tmp_path):
    responses = [""] + [KIND] * (len(asked) - 1)
    scores = read_scores(measured(tmp_path / "empty", asked, responses) / "scores.json")
    assert find_score(scores, HEADLINE).n_left_out == 1 and find_score(scores, "empty_share").value == 1 / len(asked)
    with pytest.raises(InputError, match=r"responses: .*does not answer each of 112 prompts once: .* 1 without a row"):
        measured(tmp_path / "missing", asked.iloc[1:], responses[1:])
    assert not (tmp_path / "missing").exists()  # a corrected file can be measured into the same folder


def test_logs_without_templates_are_scored_with_a_warning(tmp_path):
    rows = [{"text": f"Hi {i}", "descriptor": name, "response": KIND} for name in ("old", "young") for i in range(4)]
    pd.DataFrame(rows).to_json(tmp_path / "logs.jsonl", orient="records", lines=True)
    measure(told(tmp_path / "run", responses=tmp_path / "logs.jsonl"))
    scores = read_scores(tmp_path / "run" / "scores.json")
    assert find_score(scores, HEADLINE).value == pytest.approx(0)  # alike to the last digit
    assert not [score for score in scores if "axis" in score.group]
    assert "The file has no templates" in (tmp_path / "run" / "report.md").read_text()
    assert find_score(scores, HEADLINE).signature["dataset"]["name"] == "logs.jsonl"
    with pytest.raises(InputError, match="prompts.file: .*has its own prompts"):
        check_inputs(told(tmp_path / "r", responses=tmp_path / "logs.jsonl", prompts=PromptSettings(file="p.csv")))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"metrics": ["sentence_pairs"], "generation_bias": None},
            "responses: sentence_pairs: only generation_bias",
        ),
        ({"model": ModelSettings()}, "responses: .* by --model NAME"),
    ],
)
def test_responses_are_of_somebody_and_for_generation_bias(tmp_path, settings, message):
    with pytest.raises(ValidationError, match=message):
        told(tmp_path, responses="r.csv", **settings)


def test_a_system_prompt_and_a_tag_are_written_for_each_prompt(tmp_path):
    model, own = ModelSettings(system_prompt="Be brief."), Settings(control_tag=" no_bias")
    measure(told(tmp_path / "run", write_prompts=tmp_path / "asked.jsonl", model=model, generation_bias=own))
    rows = pd.read_json(tmp_path / "asked.jsonl", lines=True)
    assert set(rows["system"]) == {"Be brief."} and rows["prompt"].str.endswith(". no_bias").all()
    assert set(rows["control_tag"]) == {" no_bias"}
    rows.assign(response=KIND).to_json(tmp_path / "answered.jsonl", orient="records", lines=True)
    assert read_responses(tmp_path / "answered.jsonl")["response"] == [KIND] * len(rows)
