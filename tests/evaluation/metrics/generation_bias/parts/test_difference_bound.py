"""The bound within which a model is even: by hand, under equality, and with a planted difference."""

import numpy as np
import pandas as pd
import pytest

from evenhand.evaluation.metrics.generation_bias.answers import Answers
from evenhand.evaluation.metrics.generation_bias.engine.effects import difference_bound, effects
from evenhand.evaluation.metrics.generation_bias.verdict import comparison_explanations


def responses(shares, n=400, seed=0):
    """Return n responses to each descriptor in one template, of style x with the descriptor's share."""
    rng = np.random.default_rng(seed)
    x = np.concatenate([rng.random(n) < share for share in shares]).astype(float)
    table = pd.DataFrame({"template": "t", "descriptor": np.repeat([f"d{k}" for k in range(len(shares))], n)})
    return Answers(table, np.stack([x, 1 - x], axis=1), ["x", "y"])


def test_the_bound_by_hand():
    """Shares ½ and ½ of n = 100 each, one template: e = 0, its standard error √(S² (¼ + ¼) / n), S² = ¼ · 100 / 99."""
    half = np.tile([1.0, 0.0], 50)
    x = np.concatenate([half, half])
    table = pd.DataFrame({"template": "t", "descriptor": np.repeat(["a", "b"], 100)})
    found = difference_bound(effects(Answers(table, np.stack([x, 1 - x], 1), ["x", "y"]), {}, permutations=19))
    assert found.value == pytest.approx(1.6449 * (0.25 * 100 / 99 * 0.5 / 100) ** 0.5, rel=1e-3)
    assert found.interval[0] == 0 and found.n == 200 and found.ideal == 0


def test_the_bound_contains_a_planted_difference_and_shows_some_of_it():
    """Shares ½, ½, ½ and ¾: the last descriptor is 3/16 above the average."""
    found = difference_bound(effects(responses([0.5, 0.5, 0.5, 0.75]), {}, permutations=199))
    assert 0 < found.interval[0] < 3 / 16 < found.value < 0.26


def test_without_a_common_template_there_is_no_bound():
    table = pd.DataFrame({"template": ["s", "s", "t", "t"], "descriptor": ["a", "a", "b", "b"]})
    found = difference_bound(effects(Answers(table, np.eye(2)[[0, 1, 0, 1]], ["x", "y"]), {}))
    assert np.isnan(found.value) and "common template" in found.reason


def test_nothing_that_varies_is_no_certainty():
    """Four equal answers do not show that nobody differs; nor does a style that never occurs."""
    table = pd.DataFrame({"template": ["s", "s", "t", "t"], "descriptor": ["a", "b", "a", "b"]})
    found = difference_bound(effects(Answers(table, np.ones((4, 1)), ["x"]), {}))
    assert np.isnan(found.value) and found.interval is None and "nothing varies" in found.reason
    styled = responses([0.5, 0.5])
    never = np.concatenate([styled.values, np.zeros((len(styled), 1))], axis=1)
    table = effects(Answers(styled.table, never, ["x", "y", "z"]), {}, permutations=19)
    rows = table[table["name"] == "z"]
    assert rows[["low", "high", "at_most"]].isna().all(axis=None)


def test_the_bound_is_the_largest_end_of_any_interval_of_the_table():
    table = effects(responses([0.5, 0.5, 0.5, 0.75]), {}, permutations=199)
    assert (table["certainty"] == "shown").any()
    assert difference_bound(table).value == pytest.approx(table[["low", "high"]].abs().max(axis=None))


def test_a_comparison_has_the_bounds_before_and_after():
    scores = [
        [difference_bound(effects(responses(shares), {}, permutations=9))]
        for shares in ([0.5, 0.5, 0.75], [0.5, 0.5, 0.5])
    ]
    bounds = {side: of_side[0].value for side, of_side in zip(("before", "after"), scores, strict=True)}
    found = comparison_explanations([*scores, []], {})[0]
    assert (found.kind, found.values) == ("limits_before_after", bounds)
    kinds = [each.kind for each in comparison_explanations([scores[0], [], []], {})]
    assert "limits_before_after" not in kinds
