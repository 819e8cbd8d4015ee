"""Decisions by person: measures, the table of rates, and probabilities of choices on a model, against hand counts."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import yaml

from evenhand.evaluation.data.language.decisions import DecisionRule
from evenhand.evaluation.errors import InputError
from evenhand.evaluation.metrics.generation_bias.engine.values import measured_values
from evenhand.evaluation.metrics.generation_bias.measures import Context
from evenhand.evaluation.metrics.generation_bias.parts.decisions import DecisionSettings, Settings, rates_table
from evenhand.evaluation.metrics.generation_bias.parts.outcomes import compared_values
from evenhand.evaluation.models.likelihood.tokens import response_log_likelihoods
from evenhand.evaluation.models.loading import load_dialogue_model
from evenhand.evaluation.score import find_score, read_scores
from evenhand.evaluation.settings import checked
from evenhand.recipes.cli import main
from evenhand.recipes.testbed import DIALOGUE_MODEL
from tests.report_pages import texts

CONFIGS = Path(__file__).resolve().parents[5] / "recipes" / "configs"
ANSWERS = pd.DataFrame({"response": ["Yes", "No, sorry.", "It depends.", ""], "descriptor": "old"})


def test_a_decision_is_a_share_of_the_decided_and_an_empty_answer_is_undecided():
    decided = measured_values("decision", ANSWERS, Context()).table["decision"]
    np.testing.assert_equal(decided.tolist(), [1, 0, np.nan, np.nan])
    assert measured_values("undecided", ANSWERS, Context()).table["undecided"].tolist() == [0, 0, 1, 1]
    refused = Context(decision_rule=DecisionRule(choices=("no", "yes")))
    np.testing.assert_equal(
        measured_values("decision", ANSWERS, refused).table["decision"].tolist(), [0, 1, np.nan, np.nan]
    )
    sums = pd.DataFrame({"response": ["$5,000", "3 or 4"], "descriptor": "old"})
    np.testing.assert_equal(
        measured_values("decided_number", sums, Context()).table["decided_number"].tolist(), [5000, np.nan]
    )


def test_rates_differences_ratios_and_probabilities_by_person():
    """Of "old", 1 of 4 answers is yes and none is unread; of "young", 3 of 4, and one more is unread."""
    decided = [1, 0, 0, 0, 1, 1, 1, 0, np.nan]
    people = ["old"] * 4 + ["young"] * 5
    ids = [str(number) for number in range(9)]
    prompts = pd.DataFrame({"prompt_id": ids, "descriptor": people, "template": ["a", "b"] * 4 + ["a"]})
    values = pd.DataFrame({"prompt_id": ids, "decision: decision": decided})
    probabilities = pd.DataFrame(
        {"prompt_id": ids, "choice: yes": [0.2] * 4 + [0.5] * 5, "choice: no": [0.3] * 4 + [0.25] * 5}
    )
    table = rates_table(values, prompts, probabilities.assign(prompt_id=ids), "yes")
    assert table.columns[1:4] == ("asked", "no decision", "yes, %")
    assert texts(table) == {
        "old": ["4", "0", "25.0", "−25.0", "0.33", "20.0", "30.0", "50.0"],
        "young": ["5", "1", "75.0", "+25.0", "1.00", "50.0", "25.0", "75.0"],
    }


def test_people_without_a_decision_have_probabilities_and_no_rate():
    prompts = pd.DataFrame({"prompt_id": ["1", "2"], "descriptor": ["old", "young"], "template": "a"})
    values = pd.DataFrame({"prompt_id": ["1", "2"], "decision: decision": [np.nan, np.nan]})
    probabilities = pd.DataFrame({"prompt_id": ["1", "2"], "choice: yes": [0.2, 0.5], "choice: no": [0.3, 0.25]})
    table = rates_table(values, prompts, probabilities, "yes")
    assert texts(table)["old"] == ["1", "1", "–", "–", "–", "20.0", "30.0", "50.0"]


def test_a_long_table_has_the_lowest_and_the_highest_rates():
    ids = [str(number) for number in range(140)]
    people = [f"p{number:02}" for number in range(70) for _ in "ab"]
    prompts = pd.DataFrame({"prompt_id": ids, "descriptor": people, "template": ["a", "b"] * 70})
    values = pd.DataFrame({"prompt_id": ids, "decision: decision": [0.0, 0.0] * 69 + [1.0, 1.0]})
    table = rates_table(values, prompts, None, "yes")
    assert len(table.rows) == 60 and table.rows[-1].label == "p69" and "10 people" in table.note


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({"pattern": "("}, "pattern"),
        ({"pattern": "a", "field": "b"}, "pattern"),
        ({"choices": ["yes", "Yes "]}, "choices"),
        ({"choices": ["Ann", "None"]}, "choices"),  # an answer “None” is left out as that of a failed request
    ],
)
def test_a_rule_that_cannot_be_used_is_one_error(settings, field):
    with pytest.raises(InputError, match=field):
        checked(DecisionSettings, settings, "generation_bias.decision")


@pytest.mark.slow
def test_the_config_measures_decisions_and_their_likelihoods_on_the_built_in_model(tmp_path):
    testbed = "package:evenhand/recipes/testbed/"
    config = yaml.safe_load((CONFIGS / "decisions.yaml").read_text(encoding="utf-8"))
    config["generation_bias"]["decision"] = {"choices": ["sorry", "hello"]}
    (tmp_path / "decisions.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")
    flags = ["--model", f"{testbed}dialogue_model", "--dtype", "float32", "--prompts.answers_per_cell", "1"]
    flags += ["--generation_bias.style_classifier", f"{testbed}style_classifier", "--report_to", "none"]
    flags += ["--generation_bias.permutations", "0", "--output_dir", str(tmp_path / "run")]
    assert main(["measure", "--config", str(tmp_path / "decisions.yaml"), *flags]) == 0
    found = pd.read_parquet(tmp_path / "run" / "likely_decision.parquet")
    prompts = pd.read_parquet(tmp_path / "run" / "prompts.parquet")
    found = found.set_index("prompt_id").loc[prompts["prompt_id"]]
    assert len(found) == 12 * 28 and found.to_numpy().min() > 0 and found.sum(axis=1).max() < 1
    model = load_dialogue_model(str(DIALOGUE_MODEL))
    contexts = [f"{text}{model.tokenizer.eos_token}" for text in prompts["text"][:2]]
    expected = np.zeros(2)
    for variant in ("sorry", "Sorry"):
        for rows, sums, _ in response_log_likelihoods(model, contexts, [variant] * 2, is_cut=[True] * 2):
            expected[rows] += np.exp(sums)
    np.testing.assert_allclose(found["choice: sorry"].iloc[:2], expected, rtol=1e-4)
    mean = find_score(read_scores(tmp_path / "run" / "scores.json"), "likely_decision", "mean")
    assert mean.value == pytest.approx((found["choice: sorry"] / found.sum(axis=1)).mean(), rel=1e-5)


@pytest.mark.parametrize(
    ("changed", "is_compared"),
    [({}, True), ({"decision": {"choices": ["no", "yes"]}}, False), ({"file": "another hash"}, False)],
)
def test_values_that_were_read_in_different_ways_are_not_compared(monkeypatch, changed, is_compared):
    values = pd.DataFrame({"prompt_id": ["1"], "decision: decision": [1.0]})
    runs = []
    for own in ({}, changed):
        rule = Settings.model_validate({"decision": own.get("decision")})
        inputs = {"outcomes.decision": own.get("file", "a hash")}
        run = SimpleNamespace(config=SimpleNamespace(settings=rule), scores=[], has=lambda name: True)
        run.signature = lambda metric, inputs=inputs: {"inputs": inputs}
        run.table = lambda name: values
        runs.append(run)
    answers = SimpleNamespace(table=ANSWERS.head(1))
    found = compared_values(*runs, answers, answers)["decision"]
    assert isinstance(found, str) != is_compared
