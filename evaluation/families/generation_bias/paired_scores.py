"""The difference and the reduction of a generation-bias score between two runs over the same prompts."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from evenhand.evaluation.results import BiasScore
from evenhand.evaluation.statistics.cells import Cells
from evenhand.evaluation.statistics.intervals import student_quantile
from evenhand.evaluation.statistics.jackknife_spread import MIN_UNITS, jackknife_ratio_interval
from evenhand.evaluation.statistics.ratios import covariance_from_variances, ratio_interval
from evenhand.evaluation.statistics.u_statistics import Estimate

TOO_FEW = "fewer than two descriptors with two responses to the same template: nothing to compare"
NO_INTERVAL = "no interval: within cells responses are all alike, or in all cells but one"
NOT_SHOWN = "the bias before is not significantly above 0: there is nothing to divide by"
UNBOUNDED = "its 95 % interval is unbounded: the bias before is less than {:.1f} standard errors above 0"
UNBOUNDED_FOR_OTHERS = "for other {} its 95 % interval is unbounded: the bias before may be 0 for these"


def missing_interval_reason(estimate: Estimate) -> str | None:
    """Return why an estimate of a spread has no value or no interval; None if it has both."""
    if np.isnan(estimate.value):
        return TOO_FEW
    return NO_INTERVAL if estimate.interval is None else None


def paired_scores(
    name: str,
    spread: Callable[[float, float], Estimate],
    without: Callable[[], np.ndarray],
    over: str,
    cells: Cells,
    group: Mapping[str, str],
    signature: Mapping[str, Any],
) -> list[BiasScore]:
    """Return `<name>_difference`, after − before, and `<name>_reduction`, 1 − after / before, of one metric.

    Args:
        name: of the metric.
        spread: returns the estimate of w₁ · before + w₂ · after from the two weights.
        without: returns before − after and before without each template or descriptor, (n, 2).
        over: DESCRIPTORS or TEMPLATES, which `without` leaves out.
        cells: the responses, which are counted.
        group, signature: of the scores.
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
    return [*scores, _reduction(f"{name}_reduction", (before, after, difference), without, over, common)]


def _reduction(
    metric: str,
    estimates: tuple[Estimate, Estimate, Estimate],
    without: Callable[[], np.ndarray],
    over: str,
    common: Mapping[str, Any],
) -> BiasScore:
    """Return 1 − after / before, which is (before − after) / before, with Fieller's interval.

    The interval (`ratio_interval`) rests on the variances and the degrees of freedom with which the difference is
    tested: it excludes 0 exactly where the interval of the difference does. The variance of (before − after) −
    ρ · before is a quadratic form in the weights of the two runs, so those of before, after and difference determine
    it for each ρ.

    Undefined where the bias before is not significantly above 0, by its interval (no verdict speaks of a reduction
    there) or by the Student's t of the difference (the interval of the reduction is unbounded there). So a value always
    comes with an interval, and whether there is one does not depend on the run after, except by the degrees of freedom
    and where the two runs differ in nothing that varies.

    Over all comparisons, with an undefined reduction counted as agreeing with anything, nominally 2.5 % of the
    intervals lie wholly above the truth. Among the defined reductions of a weak bias it is more: they are defined where
    the bias before is high by chance, while the bias after is not. No interval with bounds can avoid this
    (`ratio_interval`); `python -m benchmarks.coverage --reduction` prints by how much. The difference is always
    defined, so that its interval is not selected in this way.

    Args:
        estimates: before, after and difference.
        without: returns before − after and before without each template or descriptor, (n, 2).
    """
    before, after, difference = estimates
    score = BiasScore(
        metric, np.nan, 1.0, (-np.inf, np.inf), reason=missing_interval_reason(before) or NOT_SHOWN, **common
    )
    if before.interval is None:
        return score
    variances = (estimate.standard_error**2 for estimate in (difference, before, after))
    top, freedom = -difference.value, difference.freedom
    interval = ratio_interval(top, before.value, covariance_from_variances(*variances), freedom)
    if before.interval[0] <= 0:
        return score if interval else replace(score, reason=f"{NOT_SHOWN}, and its 95 % interval is unbounded")
    if interval is None:
        return replace(score, reason=UNBOUNDED.format(student_quantile(freedom)))
    score = replace(
        score, value=1 - after.value / before.value, jackknife_over=over, reason=missing_interval_reason(difference)
    )
    if difference.interval is None:
        return score
    values = without()
    wider = jackknife_ratio_interval(top, before.value, values)
    enough = np.isfinite(values).all(axis=1).sum() >= MIN_UNITS
    reason = UNBOUNDED_FOR_OTHERS.format(over) if wider is None and enough else None
    return replace(score, interval=interval, jackknife_interval=wider, reason=reason)
