"""Paired changes of generation bias between two runs over the same prompts."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from evenhand.evaluation.metrics.generation_bias.metric import (
    VERSION,
    SpreadEstimate,
    axis_subsets,
    cells_and_axes,
    check_arguments,
    check_same_prompts,
    cluster_subsets,
    missing_interval_reason,
    pooled_estimate,
    repeated_cells,
)
from evenhand.evaluation.metrics.generation_bias.styled_responses import StyledResponses
from evenhand.evaluation.score import BiasScore, Form, Kind
from evenhand.evaluation.statistics.cells import Cells
from evenhand.evaluation.statistics.intervals import (
    covariance_from_variances,
    ratio_interval,
    student_quantile,
)
from evenhand.evaluation.statistics.spread import Estimate, descriptor_spread

NOT_SIGNIFICANT = "the bias before is not significantly above 0: there is nothing to divide by"
UNBOUNDED = "its 95 % interval is unbounded: the bias before is less than {:.1f} standard errors above 0"


def compare_generation_bias(
    before: StyledResponses,
    after: StyledResponses,
    clusters: Mapping[str, Sequence[int]],
    *,
    by_axis: bool = True,
    signature: Mapping[str, Any] | None = None,
) -> list[BiasScore]:
    """Return the changes of corrected scores between two runs over the same prompts, overall, by axis and by cluster.

    Of each metric and form without noise: the difference, after − before, with the p-value of the null hypothesis of no
    difference (ideal: minus the value before); and the reduction, 1 − after / before (ideal 1; `_reduction`).
    Both are paired by prompt. A prompt with an empty response in one run is left out of both runs. In the example, the
    bias falls from 1 to 0.

    Raises:
        InputError: the runs have other prompts or styles, or a cluster has a column that no style has.

    >>> import pandas as pd
    >>> frame = pd.DataFrame({"template": "t", "descriptor": ["a", "a", "b", "b"]})
    >>> vectors = np.eye(2).repeat(2, axis=0), np.eye(2)[[0, 0, 0, 0]]
    >>> compare_generation_bias(*(StyledResponses(frame, each, ["s", "r"]) for each in vectors), {})[0].value
    -1.0
    """
    check_same_prompts(before, after)
    check_arguments(before, clusters)
    signature = {**(signature or {}), "generation_bias": VERSION}
    cells, axis = cells_and_axes(before, np.hstack([before.vectors, after.vectors]), min_count=1)
    n_styles = before.vectors.shape[1]
    by_group = axis_subsets(cells, axis if by_axis else {})
    of_styles = [("fgb", group, subset, np.ones(n_styles)) for group, subset in by_group]
    scores = []
    for metric, group, subset, weights in (*of_styles, *cluster_subsets(cells, clusters, (0, n_styles))):
        for form, estimate in ((Form.CORRECTED, _estimate_within), (Form.POOLED_CORRECTED, pooled_estimate)):
            common = {"form": form, "group": group, "signature": signature}
            scores += _paired_scores(metric, subset, weights, estimate, common)
    return scores


def _estimate_within(cells: Cells, weights: np.ndarray) -> SpreadEstimate:
    """Return FGB* of the cells with two responses or more."""
    repeated = repeated_cells(cells)
    estimate = descriptor_spread(repeated, weights).corrected
    return SpreadEstimate(estimate, repeated, missing_interval_reason(estimate))


def excess_over_baseline(before: StyledResponses, after: StyledResponses, factor: float) -> Estimate:
    """Return the estimate of pooled FGB* after − `factor` × pooled FGB* before, paired as in `compare_generation_bias`.

    In the example, the bias is 1 before and after, so it exceeds half of the bias before by ½.

    >>> import pandas as pd
    >>> frame = pd.DataFrame({"template": "t", "descriptor": ["a", "a", "b", "b"]})
    >>> styled = StyledResponses(frame, np.eye(2).repeat(2, axis=0), ["s", "r"])
    >>> excess_over_baseline(styled, styled, 0.5).value
    0.5
    """
    cells, _ = cells_and_axes(before, np.hstack([before.vectors, after.vectors]), min_count=1)
    weights = np.repeat([-factor, 1.0], before.vectors.shape[1])
    return pooled_estimate(cells, weights).estimate


def _paired_scores(
    metric: str,
    cells: Cells,
    weights: np.ndarray,
    estimate: Callable[[Cells, np.ndarray], SpreadEstimate],
    common: Mapping[str, Any],
) -> list[BiasScore]:
    zeros = np.zeros_like(weights)
    old = np.concatenate([weights, zeros])
    new = np.concatenate([zeros, weights])
    before, after, difference = (estimate(cells, each) for each in (old, new, new - old))
    n = difference.cells.n
    common = {**common, "n": n, "n_left_out": cells.n + cells.n_left_out - n}
    change = BiasScore(
        metric,
        difference.estimate.value,
        ideal=-before.estimate.value,
        bounds=(-3.0, 3.0),
        interval=difference.estimate.interval,
        p_value=difference.estimate.p_value,
        reason=difference.reason,
        kind=Kind.DIFFERENCE,
        caution=difference.caution,
        **common,
    )
    estimates = before.estimate, after.estimate, difference.estimate
    return [change, _reduction(metric, estimates, {**common, "kind": Kind.REDUCTION})]


def _reduction(metric: str, estimates: tuple[Estimate, Estimate, Estimate], common: Mapping[str, Any]) -> BiasScore:
    """Return the reduction (before − after) / before of a bias, with its 95 % interval (Fieller 1954). Ideal 1.

    The interval contains 0 if and only if the interval of the difference does. The reduction is undefined if the
    interval of the bias before contains 0, or if its own interval is unbounded. This selects biases that are high by
    chance, so that for a weak bias more than 2.5 % of the intervals of defined reductions are above the truth
    (`python -m benchmarks.coverage --reduction`). The difference is always defined.
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
    return replace(
        score,
        value=1 - after.value / before.value,
        interval=interval if difference.interval else None,
        reason=missing_interval_reason(difference),
    )
