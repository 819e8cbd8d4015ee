"""The means of measures as costs: in the table of the quality of responses, and after a change in “What it cost”.

A cost is a measure whose declaration has a name for it (`Measure.cost`). Evenhand's own costs are always measured; one
of the user's is measured if `generation_bias.outcomes` names it.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import pandas as pd

from evenhand.evaluation import columns
from evenhand.evaluation.facts import Finding
from evenhand.evaluation.metrics.generation_bias.engine.changes import column_change
from evenhand.evaluation.metrics.generation_bias.engine.comparable import common_values
from evenhand.evaluation.metrics.generation_bias.engine.levels import CONSTANT, mean_scores
from evenhand.evaluation.metrics.generation_bias.engine.values import MeasureValues
from evenhand.evaluation.metrics.generation_bias.measures import Measure, Needs, all_measures, find_measure, user_file
from evenhand.evaluation.report.formats import Format
from evenhand.evaluation.score import BiasScore, Form, Kind, find_score
from evenhand.evaluation.statistics.intervals import ANY, mean_covariance, ratio_interval, varies
from evenhand.evaluation.statistics.scores import CHANGE_BOUNDS, exponential

NOT_ABOVE_0 = "the {} before is not significantly above 0"
RELEVANCE = "relevance"
EVEN = {"responses": "even reference"}  # the group of the scores of even responses
COSTS = [measure for measure in all_measures() if measure.cost]
UNDER_MODEL = [measure for measure in COSTS if measure.needs == Needs.WEIGHTS]


def cost_measures(outcomes: Iterable[str]) -> list[Measure]:
    """Return the measures of costs: Evenhand's own, and the user's ones among the outcomes that a run measures."""
    measured = set(outcomes)
    return [each for each in all_measures() if each.cost and (user_file(each.name) is None or each.name in measured)]


def level_formats(measures: Iterable[Measure]) -> list[Format]:
    """Return how reports show the levels of costs."""
    formats = []
    for measure in measures:
        label = measure.label
        text = measure.description
        if measure.kind.is_share:
            formats.append(Format(measure.cost, label, text, "%", factor=100, ideal=measure.ideal))
            continue
        unit = "" if measure.is_logarithm else measure.unit
        formats.append(Format(measure.cost, label, text, unit, decimals=measure.decimals, ideal=measure.ideal))
    return formats


def change_formats(measures: Iterable[Measure]) -> list[Format]:
    """Return how reports show what is kept of costs, and the relative changes of logarithms; shares have neither."""
    relative = partial(Format, unit="%", factor=100, decimals=1)
    formats = []
    for measure in measures:
        if measure.is_logarithm:
            label = f"change of the {measure.label}"
            formats.append(relative(measure.cost, label, "Relative change.", ideal=0, signed=True, kind=Kind.RISE))
        elif not measure.kind.is_share:
            label = f"{measure.label} kept"
            kept = relative(
                measure.cost, label, "Value after / value before.", ideal=measure.kept_ideal, kind=Kind.KEPT
            )
            formats.append(kept)
    return formats


def cost_level(values: MeasureValues) -> BiasScore:
    """Return the mean of a cost, by the name of the cost and with its ideal."""
    (mean,) = mean_scores(values)
    return as_cost(mean)


def cost_changes(before: MeasureValues, after: MeasureValues, cells: np.ndarray | None = None) -> list[BiasScore]:
    """Return the paired difference of a cost and, of numbers, what is kept of it, after / before.

    Of a logarithm it is only the relative change.

    Args:
        before, after: the values of the cost in both runs, row by row.
        cells: the stratum of each row, (n,), for the interval of what is kept (`cell_codes`); None: those of `before`.
    """
    measure = declared(before.name)
    old, new = common_values(before, after)
    change = column_change(old, old.numbers[:, 0], new.numbers[:, 0], {})
    if not before.has_value.any():
        change = replace(change, reason=before.no_value)
    found = [change]
    if not (old.kind.is_share or measure.is_logarithm):
        has_both = old.has_value
        strata = before.strata if cells is None else cells
        reason = NOT_ABOVE_0.format(measure.label) if has_both.any() else str(change.reason)
        if strata is None:
            strata = np.zeros(len(old), dtype=int)
        sides = (old.numbers[has_both, 0], new.numbers[has_both, 0])
        kept = retention_ratio(old.name, *sides, strata[has_both], reason)
        found.append(replace(kept, n_left_out=change.n_left_out))
    return list(map(as_cost, found))


def undefined_cost_changes(measure: Measure, reason: str) -> list[BiasScore]:
    """Return the changes of a cost (`cost_changes`) as undefined scores with a reason."""
    kinds = {Kind.DIFFERENCE: 0.0}
    if measure.is_logarithm:
        kinds = {Kind.RISE: 0.0}
    elif not measure.kind.is_share:
        kinds[Kind.KEPT] = 1.0
    bounds = CHANGE_BOUNDS if measure.kind.is_share else ANY
    return [
        BiasScore(measure.cost, math.nan, ideal, bounds, n=0, reason=reason, kind=kind) for kind, ideal in kinds.items()
    ]


def declared(name: str) -> Measure:
    """Return the measure of a name; LookupError if there is none."""
    measure = find_measure(name)
    if measure is None:
        raise LookupError(f"{name} is no measure")
    return measure


def as_cost(score: BiasScore) -> BiasScore:
    """Return the score of a measure by the name of its cost; a level has the ideal of the measure.

    Of a logarithm, the level is e to its power, and the difference becomes the relative change.
    """
    measure = declared(score.metric)
    ideal = measure.ideal if score.kind == Kind.LEVEL else score.ideal
    cost = replace(score, metric=measure.cost, form=Form.PLAIN, ideal=ideal)
    if not measure.is_logarithm:
        return cost
    if score.kind == Kind.LEVEL:
        return exponential(cost, (1.0, math.inf))
    return replace(exponential(cost, (-1.0, math.inf), less=1.0), kind=Kind.RISE)


COST_FORMATS = (*level_formats(COSTS), *change_formats(COSTS))


def cell_codes(prompts: pd.DataFrame) -> np.ndarray:
    """Return an integer code of each prompt's cell (template, descriptor, axis), (n,), the stratum for intervals."""
    return prompts.groupby([columns.TEMPLATE, columns.DESCRIPTOR, columns.AXIS], sort=True).ngroup().to_numpy()


def retention_ratio(
    metric: str,
    before: np.ndarray,
    after: np.ndarray,
    cells: np.ndarray,
    reason: str,
) -> BiasScore:
    """Return the score (KEPT) mean(after) / mean(before) of paired numbers, (n,), with Fieller's interval (ideal 1).

    The score is undefined, with `reason`, if mean(before) is not significantly above 0 or there are no numbers. It has
    no interval if all numbers before are equal, and all after: they say nothing about their error.
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
    if not (varies(sides[:, 0]) or varies(sides[:, 1])):
        return replace(undefined, value=new / old, reason=CONSTANT)
    return replace(undefined, value=new / old, interval=interval, reason=None)


def under_base(scores: Sequence[BiasScore], changes: Sequence[BiasScore], side: str) -> list[BiasScore]:
    """Return a run's scores, with its costs under a model replaced by those under the base model in `changes`."""
    names = {measure.cost for measure in UNDER_MODEL}
    found = [score for score in scores if score.metric not in names]
    for score in changes:
        if score.metric in names and score.group == {"run": side}:
            found.append(replace(score, group={}))
    return found


def likelihood_finding(scores: Sequence[BiasScore], model: str) -> list[Finding]:
    """Return a finding on the model that scored relevance and perplexity, and on how many responses; [] without."""
    score = find_score(scores, RELEVANCE)
    if score is None:
        return []
    return [Finding("about_likelihoods", {"model": model, "scored": score.signature.get("scored")})]
