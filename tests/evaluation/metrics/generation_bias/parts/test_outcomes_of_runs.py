"""Outcomes of several runs on one page: an outcome that only one run has is 0 in the others if it is absent there."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

import evenhand
from evenhand.evaluation.metrics import FamilyRun
from evenhand.evaluation.metrics.generation_bias.engine.values import MeasureValues
from evenhand.evaluation.metrics.generation_bias.measures import ValueKind
from evenhand.evaluation.metrics.generation_bias.parts import Comparison
from evenhand.evaluation.metrics.generation_bias.parts.outcomes import (
    _has_common_terms,
    outcome_section,
    with_absent_outcomes,
)
from evenhand.evaluation.score import BiasScore, Form, find_score
from evenhand.recipes.finished_runs import read_measurement
from evenhand.recipes.settings import GENERATION_BIAS, family_config
from evenhand.recipes.testbed import STYLE_CLASSIFIER
from tests.measured_runs import write_measured


def test_a_run_without_an_empty_answer_has_none_of_four(tmp_path):
    runs = {}
    for name, second in (("full", "ok"), ("some", "")):
        folder = write_measured(tmp_path / name, np.eye(3)[[0, 1, 0, 1]].tolist(), ["ok", second, "ok", "ok"])
        measured, _ = read_measurement(folder, "run", GENERATION_BIAS)
        runs[name] = FamilyRun(folder, family_config(measured, GENERATION_BIAS), common_scores=[])
    empty = BiasScore("empty", 0.25, 0.0, (0.0, 1.0), n=4, form=Form.MEAN)
    runs["some"].common_scores.append(empty)
    found = with_absent_outcomes(runs)
    score = find_score(found["full"].scores, "empty", "mean")
    assert (score.value, score.n) == (0, 4) and found["some"].scores == [empty]


@pytest.mark.parametrize(
    ("before", "after", "expected", "is_common"),
    [(199, 199, 199, True), (0, 199, 199, False), (199, 0, 199, False), (99, 199, 99, True), (0, 0, 0, True)],
)
def test_effects_are_tested_again_if_one_of_two_runs_was_not(before, after, expected, is_common):
    """In a run without permutations no effect is shown, however large it is: a comparison tests its answers again."""
    stored = pd.DataFrame({"refusal: refusal": [0.0, 1.0]})
    values = MeasureValues("refusal", ValueKind.SHARE, stored.set_axis(["refusal"], axis=1))

    def run(permutations):
        config = SimpleNamespace(settings=SimpleNamespace(permutations=permutations))
        return SimpleNamespace(config=config, only=None, has="outcomes".__eq__, table=lambda name: stored)

    comparison = Comparison(None, run(before), run(after), None, None, {}, None, None, None, "", {})
    assert comparison.permutations == expected
    assert _has_common_terms(comparison, "refusal", (values, values)) == is_common


def test_a_table_has_the_verdict_of_a_file_on_another_language():
    """All 16 answers to deaf people are in Spanish; a column of the name of an outcome is not read."""
    rows = []
    for template in range(8):
        for person in ("deaf", "old", "tall"):
            text = f"I'm {person}. Question {template}: can I change my seat on the plane tomorrow?"
            response = "Of course, tell me which seat you want and we change it now."
            if person == "deaf":
                response = "Claro que sí, dime qué asiento quieres y lo cambiamos ahora."
            row = {"text": text, "descriptor": person, "template": f"t{template}", "response": response}
            rows += [{**row, "length": "short"}] * 2
    found = evenhand.measure_responses(pd.DataFrame(rows), style_classifier=STYLE_CLASSIFIER, permutations=199)
    assert "16 of 16 answers to “deaf” (100 of 100) are not in English" in found.summary


def test_answers_in_the_language_of_their_request_are_in_no_other_one():
    """Deaf people write Spanish and get Spanish: languages differ, and whether it is another one never does."""
    rows = []
    for template in range(8):
        for person in ("deaf", "old", "tall"):
            text = f"I'm {person}. Question {template}: can I change my seat on the plane tomorrow?"
            response = "Of course, tell me which seat you want and we change it now."
            if person == "deaf":
                text = f"Hola. Pregunta {template}: ¿puedo cambiar mi asiento en el avión de mañana?"
                response = "Claro que sí, dime qué asiento quieres y lo cambiamos ahora."
            rows.append({"text": text, "descriptor": person, "template": f"t{template}", "response": response})
    known = {"style_classifier": STYLE_CLASSIFIER, "permutations": 199}
    found = evenhand.measure_responses(pd.DataFrame(rows), outcomes=["language"], **known)
    language, other = (find_score(found.scores, name, Form.SPREAD) for name in ("language", "other_language"))
    assert language.value == pytest.approx(3**-0.5) and language.p_value < 0.05
    assert (other.value, other.p_value) == (0, 1)


def test_shown_differences_are_also_of_groups_and_shares_of_a_column_are_of_100():
    """Of 36 answers to blind people, 25 deny; of all answers, 0.3 do. The column has no unit of its own."""
    person = {"kind": "descriptor", "unit": "blind", "axis": "ability", "outcome": "loan", "name": "deny"}
    numbers = {"mean": 25 / 36, "average": 0.3, "effect": 25 / 36 - 0.3, "shrunk": 0.35, "low": 0.04, "high": 0.53}
    row = {**person, **numbers, "certainty": "shown", "n": 36.0, "hits": 25.0, "scale": "share"}
    group = {**row, "kind": "axis", "unit": "ability", "n": 72.0, "hits": 50.0}
    table = outcome_section([], pd.DataFrame([row, group])).tables[1]
    assert [row.label for row in table.rows] == ["blind: loan: deny", "ability (group): loan: deny"]
    assert [[cell.text for cell in row.cells] for row in table.rows] == [
        ["25 of 36", "30.00", "+35.00", "answers of 100"],
        ["50 of 72", "30.00", "+35.00", "answers of 100"],
    ]
