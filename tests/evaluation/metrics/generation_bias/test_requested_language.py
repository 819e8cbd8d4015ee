"""Styles of the answers in the language of the request: a classifier of one language misreads the others."""

import math
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from evenhand.evaluation.metrics.generation_bias.answers import Answers
from evenhand.evaluation.metrics.generation_bias.cuts import Cuts
from evenhand.evaluation.metrics.generation_bias.engine.effects import REQUESTED_EFFECTS
from evenhand.evaluation.metrics.generation_bias.engine.spread import find_headline
from evenhand.evaluation.metrics.generation_bias.parts import Comparison
from evenhand.evaluation.metrics.generation_bias.requested_language import (
    IN_REQUESTED,
    compared_in_language,
    style_group,
)
from evenhand.evaluation.metrics.generation_bias.settings import ComparisonSettings
from evenhand.evaluation.score import Kind, common_levels

SPANISH = [0, 1, 4]  # rows of the answers of the first run, and of the second, that are in another language
ALSO_SPANISH = [2]


def answers(spanish):
    """Return four answers each to two people: "joy" by all, but "anger" as the classifier reads Spanish."""
    table = pd.DataFrame({"template": list("stuv") * 2, "descriptor": ["a"] * 4 + ["b"] * 4, "axis": "x"})
    vectors = np.tile([1.0, 0.0], (8, 1))
    vectors[spanish] = [0.0, 1.0]
    return Answers(table, vectors, ["joy", "anger"])


def run(spanish, *tables):
    """Return a run with the language of its answers, and with the given tables."""
    values = pd.DataFrame({"prompt_id": range(8), "other_language: other_language": np.zeros(8)})
    values.loc[spanish, "other_language: other_language"] = 1.0
    found = {"outcomes": values, **dict.fromkeys(tables)}
    return SimpleNamespace(has=found.__contains__, table=found.__getitem__, scores=[])


def test_pairs_of_which_one_is_in_another_language_have_no_vector():
    sides = (answers(SPANISH), answers(ALSO_SPANISH))
    assert compared_in_language(run(SPANISH), run(ALSO_SPANISH), *sides) is None
    for tables in ([REQUESTED_EFFECTS], []), ([], [REQUESTED_EFFECTS]):
        runs = [run(spanish, *names) for spanish, names in zip((SPANISH, ALSO_SPANISH), tables, strict=True)]
        for side in compared_in_language(*runs, *sides):
            assert np.flatnonzero(~side.has_value()).tolist() == [0, 1, 2, 4]
            assert (side.values[side.has_value()] == [1, 0]).all()  # nothing but joy is left


def test_levels_and_change_are_of_the_same_answers():
    """Of rows 3, 5, 6 and 7, all joyful, nothing differs, before or after; of all answers, something seems to."""
    old = answers(SPANISH)
    new = answers(ALSO_SPANISH)
    runs = (run(SPANISH, REQUESTED_EFFECTS), run(ALSO_SPANISH))
    comparison = Comparison(
        store=None,
        before=runs[0],
        after=runs[1],
        old=old,
        new=new,
        clusters={},
        corpus=ComparisonSettings().corpus,
        phrases=None,
        base=None,
        without_base="",
        signature={},
        in_language=compared_in_language(*runs, old, new),
    )
    scores = Cuts().compare(comparison)
    before, after = (find_headline(common_levels(scores, side), group=IN_REQUESTED) for side in ("before", "after"))
    change = find_headline(scores, Kind.DIFFERENCE, IN_REQUESTED)
    assert before.n == after.n == change.n
    assert style_group(scores, Kind.DIFFERENCE) == IN_REQUESTED and style_group([before]) == IN_REQUESTED
    for score in (before, after, change):
        assert score.value == pytest.approx(0.0) or math.isnan(score.value)
