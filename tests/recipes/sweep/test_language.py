"""Loops and sweeps of models that answer somebody in another language: styles are of the other answers."""

import pytest

from evenhand.evaluation.errors import TuningRejected
from evenhand.evaluation.metrics.generation_bias.requested_language import IN_REQUESTED
from evenhand.evaluation.score import write_scores
from evenhand.recipes.loop import check_shows_bias
from evenhand.recipes.sweep.page import page
from evenhand.recipes.sweep.points import bias_columns, change_columns
from tests.named_scores import named_score
from tests.recipes.sweep.sweep_points import point, sweep_of, without_reductions

POOLED = "fgb_pooled_corrected"


def scored(value, low, high, name=POOLED, **group):
    """Return a score with an interval."""
    return named_score(name, value, 0.0, (-9.0, 9.0), 100, interval=(low, high), group=group)


def test_bias_and_reduction_are_those_of_the_comparisons_page():
    """Of all answers, three quarters are gone; of those in the request's language, a fifth of a fifth."""
    sides = []
    for of_all, of_language in ((0.1, 0.02), (0.025, 0.016)):
        sides.append([scored(of_all, 0.01, 0.2), scored(of_language, 0.001, 0.05, **IN_REQUESTED)])
    reduction = f"{POOLED}_reduction"
    changes = [scored(0.75, 0.5, 0.9, reduction), scored(0.6, 0.2, 0.8, reduction, tuned="no")]
    assert change_columns(*sides, changes)["reduction"] == 0.75
    difference = scored(-0.004, -0.01, 0.01, f"{POOLED}_difference", **IN_REQUESTED)
    in_language = [*changes, difference, scored(0.2, -0.5, 0.7, reduction, **IN_REQUESTED)]
    row = change_columns(*sides, in_language)
    assert (row["base"], row["reduction"], row["reduction_low"], row["in_language"]) == (0.02, 0.2, -0.5, True)
    assert row["reduction_untuned"] == 0.6  # `Cuts.compare` makes it of the same answers
    levels = bias_columns(*sides)
    assert (levels[f"base_{POOLED}"], levels[POOLED]) == (0.02, 0.016)


def test_the_page_says_of_which_answers_it_is_and_names_people_also_without_a_reduction():
    undefined = point(**without_reductions(), base_low=-0.01)
    named = {"advice": ["“Cuban-American”: 12 before, 4 after."], "base_folder": "runs/before", "tuning": "runs/tune"}
    sweep = sweep_of(undefined, n_in_language=1, **named)
    found = page(sweep)
    assert found.verdict.startswith("“Cuban-American”")
    assert "language of the request, before and after" in found.notes[0]
    assert ["plan" in step.command for step in found.steps] == [True]  # nothing is shown to have changed
    assert not any("another language" in text for text in page(sweep_of(undefined)).notes)


def test_somebody_who_gets_another_language_is_a_bias_that_a_loop_can_reduce(tmp_path):
    nothing = scored(0.001, -0.01, 0.01)
    write_scores(tmp_path / "scores.json", [nothing])
    with pytest.raises(TuningRejected):
        check_shows_bias(tmp_path)
    write_scores(tmp_path / "scores.json", [nothing, scored(0.001, -0.01, 0.01, **IN_REQUESTED)])
    check_shows_bias(tmp_path)
