"""The means of measures as costs: in the table of the quality of responses, and after a change in “What it cost”.

A cost is a measure whose declaration has a name for it (`Measure.cost`). Evenhand's own costs are always measured; one
of the user's is measured if `generation_bias.outcomes` names it.
"""

import math
from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import pandas as pd

from evenhand.evaluation.metrics.generation_bias.engine.changes import column_change
from evenhand.evaluation.metrics.generation_bias.engine.comparable import on_common_terms
from evenhand.evaluation.metrics.generation_bias.engine.levels import mean_scores
from evenhand.evaluation.metrics.generation_bias.engine.values import MeasureValues
from evenhand.evaluation.metrics.generation_bias.measures import Measure, all_measures, find_measure, user_file
from evenhand.evaluation.report.formats import Format
from evenhand.evaluation.score import AXIS, DESCRIPTOR, TEMPLATE, BiasScore, Form, Kind, Signature
from evenhand.evaluation.statistics.intervals import ANY, mean_covariance, ratio_interval
from evenhand.evaluation.statistics.scores import NO_PAIRS

NOT_ABOVE_0 = "the mean before is not significantly above 0"


def cost_measures(outcomes: Iterable[str]) -> list[Measure]:
    """Return the measures of costs: Evenhand's own, and the user's ones among the outcomes that a run measures."""
    measured = set(outcomes)
    return [each for each in all_measures() if each.cost and (user_file(each.name) is None or each.name in measured)]


def cost_formats() -> tuple[list[Format], list[Format]]:
    """Return how reports show the levels of the costs, and what is kept of those that are no shares."""
    levels = []
    kept = []
    for measure in all_measures():
        if not measure.cost:
            continue
        label = measure.noun or measure.name.replace("_", " ")
        if measure.is_of_100:
            levels.append(Format(measure.cost, label, measure.description, "%", factor=100, ideal=measure.ideal))
            continue
        levels.append(Format(measure.cost, label, measure.description, measure.unit, ideal=measure.ideal))
        text = "Value after / value before."
        kept.append(Format(measure.cost, f"{label}, kept", text, "%", 100, 1, ideal=1, kind=Kind.KEPT))
    return levels, kept


def cost_levels(values: Iterable[MeasureValues], signature: Signature) -> list[BiasScore]:
    """Return the mean of each cost, by the name of the cost and with its ideal."""
    scores = []
    for of_measure in values:
        (mean,) = mean_scores(of_measure, signature)
        scores.append(as_cost(mean, of_measure))
    return scores


def cost_changes(
    pairs: Iterable[tuple[MeasureValues, MeasureValues]], cells: np.ndarray, signature: Signature
) -> list[BiasScore]:
    """Return the paired difference of each cost and, of numbers, what is kept of it, after / before.

    Args:
        pairs: the values of each cost in both runs, row by row.
        cells: the stratum of each row, (n,), for the interval of what is kept (`cell_codes`).
        signature: the signature of the scores.
    """
    scores = []
    for before, after in pairs:
        common = on_common_terms(before, after)
        if isinstance(common, str):  # a measure declares its kind, so that both runs have the same
            raise TypeError(common)
        old, new = common
        change = column_change(old, old.numbers[:, 0], new.numbers[:, 0], {})
        found = [change]
        if not old.is_share:
            has_both = old.has_value
            sides = (old.numbers[has_both, 0], new.numbers[has_both, 0])
            kept = retention_ratio(old.name, *sides, cells[has_both], NOT_ABOVE_0 if has_both.any() else NO_PAIRS)
            found.append(replace(kept, n_left_out=change.n_left_out))
        scores += [replace(as_cost(score, old), signature=signature) for score in found]
    return scores


def as_cost(score: BiasScore, values: MeasureValues) -> BiasScore:
    """Return the score of a measure by the name of its cost; a level has the ideal of the measure."""
    measure = find_measure(values.name)
    if measure is None:
        raise LookupError(f"{values.name} is no measure")
    ideal = measure.ideal if score.kind == Kind.LEVEL else score.ideal
    return replace(score, metric=measure.cost, form=Form.PLAIN, ideal=ideal)


def cell_codes(prompts: pd.DataFrame) -> np.ndarray:
    """Return an integer code of each prompt's cell (template, descriptor, axis), (n,), the stratum for intervals."""
    return prompts.groupby([TEMPLATE, DESCRIPTOR, AXIS], sort=True).ngroup().to_numpy()


def retention_ratio(
    metric: str,
    before: np.ndarray,
    after: np.ndarray,
    cells: np.ndarray,
    reason: str,
) -> BiasScore:
    """Return the score (KEPT) mean(after) / mean(before) of paired numbers, (n,), with Fieller's interval (ideal 1).

    The score is undefined, with `reason`, if mean(before) is not significantly above 0 or there are no numbers.
    """
    n = len(before)
    undefined = BiasScore(metric, math.nan, ideal=1.0, bounds=ANY, n=n, reason=reason, kind=Kind.KEPT)
    if not n:
        return undefined
    sides = np.stack([np.asarray(after, dtype=float), np.asarray(before, dtype=float)], axis=1)
    new, old = sides.mean(axis=0).tolist()
    covariance, freedom = mean_covariance(sides, cells)
    interval = ratio_interval(new, old, covariance, freedom)
    if interval is None or old <= 0:
        return undefined
    return replace(undefined, value=new / old, interval=interval, reason=None)
