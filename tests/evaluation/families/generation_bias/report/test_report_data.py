"""Pairing of scores and the direction of a change."""

from dataclasses import replace

from evenhand.evaluation.families.generation_bias.report.report_data import Comparison
from tests.evaluation.families.generation_bias.conftest import score


def row(before, after, difference=None):
    return Comparison(
        "row",
        "m",
        score("m", sum(before) / 2, before),
        score("m", sum(after) / 2, after),
        difference and score("m_difference", sum(difference) / 2, difference),
    )


def test_direction_follows_the_paired_interval():
    assert row((0, 4), (1, 5), (0.5, 1.5)).direction == 1  # overlapping, but the pairs differ
    assert row((0, 1), (4, 5), (-1, 9)).direction == 0
    assert row((4, 5), (0, 1), (-5, -3)).direction == -1


def test_without_a_paired_difference_the_intervals_must_not_overlap():
    assert row((0, 1), (2, 3)).direction == 1
    assert row((2, 3), (0, 1)).direction == -1
    assert row((0, 2), (1, 3)).direction == 0
    assert replace(row((0, 1), (2, 3)), after=None).direction == 0


def test_scores_are_paired_by_metric_and_group_and_sorted_by_size(tuned):
    rows = tuned.comparisons("scgb_corrected", "cluster")
    assert [(row.label, row.before.value, row.after.value) for row in rows] == [
        ("CARE", 0.00757, 0.00737),
        ("HATE", 0.00008, 0.00066),
    ]
    assert rows[1].difference.p_value == 0.0003
    (everything,) = tuned.comparisons("fgb_pooled_corrected")
    assert everything.before.group == {} and everything.truth.value == 0.0153
    assert [row.label for row in tuned.comparisons("fgb_pooled_corrected", "axis")] == ["ability", "nonce"]  # NaN last
