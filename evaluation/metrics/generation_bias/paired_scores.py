"""Difference and reduction of a generation-bias score between two runs over the same prompts."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from evenhand.evaluation.score import BiasScore
from evenhand.evaluation.statistics.cells import Cells
from evenhand.evaluation.statistics.intervals import covariance_from_variances, ratio_interval, student_quantile
from evenhand.evaluation.statistics.jackknife import MIN_UNITS, jackknife_ratio_interval
from evenhand.evaluation.statistics.spread import Estimate

TOO_FEW = (
    "no template has two descriptors with two responses each, and descriptors are compared within a template; measure "
    "more descriptors, or give the same template to the prompts that you compare"
)
INCOMPLETE = "fewer than two descriptors have two responses to every template"
NO_INTERVAL = "no interval: the responses vary within one cell at most"
ONE_SIDED = (
    "caution: of intervals from one template with two responses per descriptor, up to 8.7 % begin above the true "
    "value, instead of 2.5 %"
)
NOT_SIGNIFICANT = "the bias before is not significantly above 0: there is nothing to divide by"
UNBOUNDED = "its 95 % interval is unbounded: the bias before is less than {:.1f} standard errors above 0"
MIN_COUNT = 2  # responses per cell from which its noise can be estimated
UNBOUNDED_FOR_OTHERS = "for other {} its 95 % interval is unbounded: the bias before may be 0 for these"


def missing_interval_reason(estimate: Estimate) -> str | None:
    """Return the reason why an estimate of a spread has no value or no interval; None if it has both."""
    if np.isnan(estimate.value):
        return TOO_FEW
    return NO_INTERVAL if estimate.interval is None else None


def one_sided_reason(cells: Cells) -> str | None:
    """Return the warning that intervals err on one side, for one template with two responses per descriptor, else None.

    With two responses per cell, the noise of a cell is estimated from one difference, and with one template nothing
    averages these estimates.
    """
    is_short = len(np.unique(cells.template)) == 1 and len(cells.count) and float(np.median(cells.count)) == MIN_COUNT
    return ONE_SIDED if is_short else None


def paired_scores(
    name: str,
    spread: Callable[[float, float], Estimate],
    leave_one_out: Callable[[], np.ndarray],
    over: str,
    cells: Cells,
    group: Mapping[str, str],
    signature: Mapping[str, Any],
) -> list[BiasScore]:
    """Return the scores `<name>_difference`, after − before, and `<name>_reduction`, 1 − after / before.

    Args:
        name: name of the metric.
        spread: function from two weights w₁ and w₂ to the estimate of w₁ · before + w₂ · after.
        leave_one_out: function that returns before − after, and before, without each template or descriptor, (n, 2).
        over: TEMPLATES or DESCRIPTORS, the units that `leave_one_out` leaves out one at a time.
        cells: the compared responses.
    """
    before, after, difference = spread(1, 0), spread(0, 1), spread(-1, 1)
    common = {"n": cells.n, "n_left_out": cells.n_left_out, "group": group, "signature": signature}
    scores = [
        BiasScore(
            f"{name}_difference",
            difference.value,
            ideal=-before.value,
            bounds=(-3.0, 3.0),
            interval=difference.interval,
            p_value=difference.p_value,
            reason=missing_interval_reason(difference),
            **common,
        )
    ]
    return [*scores, _reduction(f"{name}_reduction", (before, after, difference), leave_one_out, over, common)]


def _reduction(
    metric: str,
    estimates: tuple[Estimate, Estimate, Estimate],
    leave_one_out: Callable[[], np.ndarray],
    over: str,
    common: Mapping[str, Any],
) -> BiasScore:
    """Return the reduction 1 − after / before, computed as (before − after) / before, with Fieller's interval.

    The interval (`ratio_interval`) uses the variances and degrees of freedom of the test of the difference, so the
    interval of the reduction excludes 0 exactly if the interval of the difference excludes 0. For a reduction ρ, the
    variance of (before − after) − ρ · before is a quadratic form in the weights of the two runs, which the variances of
    before, after and difference determine.

    The reduction is undefined if the interval of the bias before contains 0, or if the interval of the reduction is
    unbounded. The run after affects these conditions only through the degrees of freedom.

    Over all comparisons, nominally 2.5 % of the intervals are above the true reduction, if an undefined reduction
    counts as covered. For a weak bias, more intervals of defined reductions are above the true reduction, since a
    reduction is defined mostly if the bias before is high by chance. No bounded interval can avoid this selection;
    `python -m benchmarks.coverage --reduction` measures its effect. The difference is always defined.
    """
    before, after, difference = estimates
    score = BiasScore(
        metric, np.nan, 1.0, (-np.inf, np.inf), reason=missing_interval_reason(before) or NOT_SIGNIFICANT, **common
    )
    if before.interval is None:
        return score
    variances = (estimate.standard_error**2 for estimate in (difference, before, after))
    removed, freedom = -difference.value, difference.freedom
    interval = ratio_interval(removed, before.value, covariance_from_variances(*variances), freedom)
    if before.interval[0] <= 0:
        return score if interval else replace(score, reason=f"{NOT_SIGNIFICANT}, and its 95 % interval is unbounded")
    if interval is None:
        return replace(score, reason=UNBOUNDED.format(student_quantile(freedom)))
    score = replace(
        score, value=1 - after.value / before.value, jackknife_over=over, reason=missing_interval_reason(difference)
    )
    if difference.interval is None:
        return score
    values = leave_one_out()
    jackknife = jackknife_ratio_interval(removed, before.value, values)
    has_enough = np.isfinite(values).all(axis=1).sum() >= MIN_UNITS
    reason = UNBOUNDED_FOR_OTHERS.format(over) if jackknife is None and has_enough else None
    return replace(score, interval=interval, jackknife_interval=jackknife, reason=reason)
