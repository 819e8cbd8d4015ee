"""Paired changes of a measure between two runs over the same prompts, with both runs' levels on the same answers."""

import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from evenhand.evaluation.metrics.generation_bias.answers import Answers
from evenhand.evaluation.metrics.generation_bias.engine.comparable import on_common_terms
from evenhand.evaluation.metrics.generation_bias.engine.estimates import all_cells, pooled_estimate
from evenhand.evaluation.metrics.generation_bias.engine.levels import (
    OF_MEASURES,
    basis_of,
    bounds_of,
    columns_of,
    divisor,
    level_scores,
)
from evenhand.evaluation.metrics.generation_bias.engine.values import MeasureValues
from evenhand.evaluation.score import BiasScore, Form, Kind
from evenhand.evaluation.statistics.intervals import ANY, Interval
from evenhand.evaluation.statistics.level import ONE_LOOK, Level
from evenhand.evaluation.statistics.person_pairs import reach_of_constant
from evenhand.evaluation.statistics.scores import mean_change, share_change

NO_INTERVAL = "no interval: the spread of one of the runs has none"
ALL_ALIKE = "no interval: every answer changes by the same"


def measure_changes(
    responses: Answers,
    before: MeasureValues,
    after: MeasureValues,
) -> list[BiasScore]:
    """Return the changes of a measure between two runs over the same prompts, and both runs' levels on these answers.

    The difference of the form MEAN is the change of each column's mean, paired by prompt: of a share with McNemar's
    exact test (`share_change`), of a number by its paired differences (`mean_change`). That of SPREAD is the spread
    after less the spread before (`spread_change`). An answer without a value in one run is left out of both. The levels
    (`level_scores`, without tests) have the group {"run": "before"} or {"run": "after"}, and add up: after = before +
    change. If the values are not comparable, both differences are undefined, and there are no levels.

    Args:
        responses: the rows' templates and descriptors, and the level.
        before, after: the values of the measure in both runs, row by row.
    """
    pair = on_common_terms(before, after)
    if isinstance(pair, str):
        return undefined_changes(before.name, pair)
    old, new = pair
    levels = {}
    for name, side in (("before", old), ("after", new)):
        levels[name] = level_scores(responses, side)
    changes = []
    for (group, old_column), (_, new_column) in zip(columns_of(old), columns_of(new), strict=True):
        change = column_change(old, old_column, new_column, group, responses.level)
        changes.append(replace(change, form=Form.MEAN))
    spreads = (levels["before"][0], levels["after"][0])
    changes.append(spread_change(responses, old, new, spreads))
    changes = [replace(change, signature=OF_MEASURES, basis=basis_of(old)) for change in changes]
    scores = []
    for name, of_side in levels.items():
        for score in of_side:
            scores.append(replace(score, group={**score.group, "run": name}))
    return scores + changes


def undefined_changes(name: str, reason: str) -> list[BiasScore]:
    """Return the differences of the mean and of the spread of a measure as undefined scores with the reason."""
    undefined = BiasScore(name, math.nan, None, ANY, 0, reason=reason, kind=Kind.DIFFERENCE)
    return [replace(undefined, form=form) for form in (Form.MEAN, Form.SPREAD)]


def column_change(
    values: MeasureValues,
    before: np.ndarray,
    after: np.ndarray,
    group: Mapping[str, str],
    level: Level = ONE_LOOK,
) -> BiasScore:
    """Return the paired change of the mean of a column of a measure; `values` says which measure it is.

    Args:
        values: the values of the measure in one of the runs.
        before, after: the column in both runs, (n,); NaN in both where an answer has no value in one.
        group: the group of the score.
        level: how much the test and the interval may err.
    """
    has_both = np.isfinite(before) & np.isfinite(after)
    n_left_out = int((~has_both).sum())
    old = before[has_both]
    new = after[has_both]
    if values.kind.is_share:
        return share_change(values.name, old == 1, new == 1, group=group, n_left_out=n_left_out, level=level)
    low, high = bounds_of(values)
    bounds = (low - high, high - low) if math.isfinite(high - low) else ANY
    change = mean_change(
        values.name,
        old,
        new,
        bounds=bounds,
        strata=values.strata_of(has_both),
        group=group,
        n_left_out=n_left_out,
        level=level,
    )
    return change if change.interval or change.reason else replace(change, reason=ALL_ALIKE)


def spread_change(
    responses: Answers,
    before: MeasureValues,
    after: MeasureValues,
    spreads: tuple[BiasScore, BiasScore],
) -> BiasScore:
    """Return the difference a − b of the spread of a measure after, a, and before, b.

    Its p-value is of the paired difference a² − b² of pooled FGB*, which has no bounds, since numbers may be in any
    unit. Its interval is the one of this difference divided by a + b, since a² − b² = (a − b) (a + b). Where a + b is
    small, a quotient has no bounds; but a spread is not negative and, with 95 % confidence, not above the upper end of
    its own interval, so that the change lies between minus the one of b and the one of a. Of shares that no
    person's answers vary in, in either run, it is exact (`reach_of_constant`).
    """
    of_before, of_after = spreads
    b = of_before.value
    a = of_after.value
    cells = all_cells(responses, np.hstack([before.numbers, after.numbers]))
    square = pooled_estimate(cells, np.repeat([-1.0, 1.0], before.numbers.shape[1]), responses.level)
    of_square = square.estimate.interval
    interval = None
    reason = square.reason if cells.n else before.no_value
    reach = reach_of_constant(cells, responses.level.tail) if before.kind.is_share and of_square is None else None
    if reach is not None:
        interval = (a - b - reach, a - b + reach)
        reason = None
    elif of_square and of_before.interval and of_after.interval:
        possible = (-of_before.interval[1], of_after.interval[1])
        interval = _interval_of_change(a - b, of_square, divisor(before) * (a + b), possible)
    return BiasScore(
        before.name,
        a - b,
        ideal=-b,
        bounds=ANY,
        n=square.cells.n,
        interval=interval,
        p_value=responses.level.p_value(square.estimate.p_value),
        n_left_out=len(responses) - square.cells.n,
        reason=reason or (None if interval else NO_INTERVAL),
        form=Form.SPREAD,
        kind=Kind.DIFFERENCE,
        caution=square.caution,
    )


def _interval_of_change(value: float, of_square: Interval, scale: float, possible: Interval) -> Interval:
    """Return the interval of a change of a spread, from that of the change of its square, within what is possible."""
    low, high = possible
    if scale > 0:
        low = max(low, of_square[0] / scale)
        high = min(high, of_square[1] / scale)
    return min(low, value), max(high, value)
