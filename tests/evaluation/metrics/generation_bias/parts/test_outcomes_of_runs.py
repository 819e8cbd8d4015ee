"""Outcomes of several runs on one page: an outcome that only one run has is 0 in the others if it is absent there."""

import numpy as np

from evenhand.evaluation.metrics import FamilyRun
from evenhand.evaluation.metrics.generation_bias.parts.outcomes import with_absent_outcomes
from evenhand.evaluation.score import BiasScore, Form, find_score
from evenhand.recipes.finished_runs import read_measurement
from evenhand.recipes.settings import GENERATION_BIAS, family_config
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
