"""Generation bias: how much the style of a model's responses depends on who the other person says they are.

Paper 002 (Smith et al. 2022), Appendix A.7, and the noise-corrected forms of design.md. With p_tdis the probability
of style s in the i-th response to template t filled with descriptor d:

    FGB     = 1/T Σ_t Σ_s       Var_d( mean_i p_tdis )
    PGB(C)  = 1/T Σ_t Σ_{s∈C}   Var_d( mean_i p_tdis )
    SCGB(C) = 1/T Σ_t           Var_d( mean_i Σ_{s∈C} p_tdis )

Var over descriptors has ddof = 0, as a plain reading of the paper (it does not say). FGB*, PGB*, SCGB* take the
noise of finite sampling out (ddof = 1); the pooled forms do the same to the descriptors' means over all templates.
Natural units here; reports show them ×1000, as the paper does.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.results import AXIS, DESCRIPTOR, TEMPLATE, BiasScore
from evenhand.evaluation.statistics.cells import Cells, arrange_cells, codes, complete_descriptors, keep_cells
from evenhand.evaluation.statistics.permutation import permutation_p_value
from evenhand.evaluation.statistics.u_statistics import Estimate, Spread, column_spreads, descriptor_spread

VERSION = "1"
TOO_FEW = "fewer than two descriptors with two responses to the same template: nothing to compare"
NO_INTERVAL = "too few responses for an interval: it needs four to a cell (per_cell), and more than a few cells"


@dataclass(frozen=True)
class StyledResponses:
    """Style vectors (n, S) with the template, descriptor and axis of the prompt of each, all (n,).

    A row of NaN stands for a response without a style vector (an empty one); it is left out and counted.
    """

    vectors: np.ndarray
    template: Sequence[str]
    descriptor: Sequence[str]
    axis: Sequence[str]
    styles: Sequence[str]


def styled_responses(frame: pd.DataFrame, vectors: np.ndarray, styles: Sequence[str]) -> StyledResponses:
    """Return what the metrics read, from a table with a row for each response and its style vectors (n, S).

    Args:
        frame: columns template and descriptor, by which responses are compared, and axis, by which scores are cut;
            without an axis all descriptors are of one.
        vectors: as `style_vectors` returns them, in the order of the rows.
        styles: the S names of the columns.

    Raises:
        InputError: a column is missing, or the numbers of rows or styles do not fit.

    >>> frame = pd.DataFrame({"template": ["hi"] * 2, "descriptor": ["old", "young"]})
    >>> styled_responses(frame, np.eye(2), ["kind", "curt"]).descriptor
    ['old', 'young']
    """
    for name in (TEMPLATE, DESCRIPTOR):
        if name not in frame:
            raise InputError(f"frame: no column {name!r}; there are {', '.join(map(str, frame))}.")
    if vectors.shape != (len(frame), len(styles)):
        raise InputError(
            f"vectors: the shape is {vectors.shape}; {len(frame)} rows and {len(styles)} styles need "
            f"{(len(frame), len(styles))}."
        )
    axis = frame[AXIS].tolist() if AXIS in frame else [""] * len(frame)
    return StyledResponses(vectors, frame[TEMPLATE].tolist(), frame[DESCRIPTOR].tolist(), axis, list(styles))


def generation_bias(
    responses: StyledResponses,
    clusters: Mapping[str, Sequence[int]],
    *,
    permutations: int = 99,
    seed: int = 0,
    signature: Mapping[str, Any] | None = None,
) -> list[BiasScore]:
    """Return FGB, FGB* and pooled FGB*, by axis and by style, and PGB and SCGB in the same forms by style cluster.

    Args:
        responses: at least four responses to each (template, descriptor) are advised.
        clusters: style cluster → columns of its styles.
        permutations: of the test that the style does not depend on the descriptor, whose p-value stands in the
            overall `fgb_corrected`; 0 leaves it out.
        seed: of the permutations.
        signature: what shaped the numbers; the metric's version is added.

    Returns:
        Scores in natural units; ideal 0. Intervals: 95 %, over new responses to the same prompts' cells, by the
        normal approximation with an unbiased variance (`descriptor_spread`); descriptors and templates are
        taken as given, not as a sample of others. The interval of an uncorrected score is one of what the score
        would be on average at this number of responses, noise included.

    Two descriptors, answered twice each, always in one style of their own: the variance between (1, 0) and (0, 1) is
    ¼ for each style with ddof = 0, ½ with ddof = 1, and no noise is to be taken out.

    >>> styled = StyledResponses(np.eye(2).repeat(2, axis=0), ["t"] * 4, ["a", "a", "b", "b"], ["x"] * 4, ["s", "r"])
    >>> [(score.metric, score.value) for score in generation_bias(styled, {}, permutations=0)[:3]]
    [('fgb', 0.5), ('fgb_corrected', 1.0), ('fgb_pooled_corrected', 1.0)]
    """
    signature = {**(signature or {}), "generation_bias": VERSION}
    n_styles = responses.vectors.shape[1]
    cells, axis = _cells_and_axes(responses, _with_sums(responses.vectors, clusters))
    all_styles = _mask(cells, range(n_styles))
    scores: list[BiasScore] = []
    with ThreadPoolExecutor(1) as aside:  # numpy computes outside the interpreter's lock: the second core helps
        of_styles = aside.submit(column_spreads, _styles_only(cells, n_styles))
        for group, chosen in _axis_cuts(cells, axis):
            p_value = None
            if not group and permutations and cells.n:
                p_value = permutation_p_value(_styles_only(chosen, n_styles), permutations, np.random.default_rng(seed))
            scores += _three_forms("fgb", chosen, all_styles, group, signature, p_value)
        for metric, group, weights in _cluster_cuts(cells, clusters, n_styles):
            scores += _three_forms(metric, cells, weights, group, signature)
        for style, spread in zip(responses.styles, of_styles.result(), strict=True):
            scores += _plain_and_corrected("fgb", cells, spread, {"style": style}, signature)
    return scores


def compare_generation_bias(
    before: StyledResponses,
    after: StyledResponses,
    clusters: Mapping[str, Sequence[int]],
    *,
    by_axis: bool = True,
    signature: Mapping[str, Any] | None = None,
) -> list[BiasScore]:
    """Return what changed between two runs over the same prompts, row by row, by axis and by style cluster.

    For each corrected metric M: `M_difference` = after − before (ideal: −before; p-value of no difference) and
    `M_reduction` = 1 − after / before (ideal 1; undefined where the bias before is not significantly above 0).
    Intervals are those of a paired comparison. A prompt whose response is empty in either run is left out of both.
    """
    signature = {**(signature or {}), "generation_bias": VERSION}
    n_styles = before.vectors.shape[1]
    sides = [_with_sums(side.vectors, clusters) for side in (before, after)]
    width = sides[0].shape[1]
    cells, axis = _cells_and_axes(before, np.concatenate(sides, axis=1))

    def scores_of(metric: str, chosen: Cells, weights: np.ndarray, group: Mapping[str, str]) -> list[BiasScore]:
        found = []
        for name, pooled, kept in _corrected_forms(metric, chosen):

            def spread(w_before: float, w_after: float, kept: Cells = kept, pooled: bool = pooled) -> Estimate:
                both = np.concatenate([w_before * weights, w_after * weights])
                return descriptor_spread(kept, both, pooled=pooled).corrected

            found += _change(name, spread, kept, group, signature)
        return found

    all_styles = np.zeros(width)
    all_styles[:n_styles] = 1
    scores = []
    for group, chosen in _axis_cuts(cells, axis if by_axis else {}):
        scores += scores_of("fgb", chosen, all_styles, group)
    for metric, group, weights in _cluster_cuts(cells, clusters, n_styles):
        scores += scores_of(metric, cells, weights[:width], group)
    return scores


def _change(
    name: str,
    spread: Callable[[float, float], Estimate],
    cells: Cells,
    group: Mapping[str, str],
    signature: Mapping[str, Any],
) -> list[BiasScore]:
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
            reason=_reason(difference),
            **common,
        )
    ]
    if before.interval is None or before.interval[0] <= 0:
        reason = _reason(before) or "the bias before is not significantly above 0: there is nothing to divide by"
        return [*scores, BiasScore(f"{name}_reduction", np.nan, 1.0, (-np.inf, np.inf), reason=reason, **common)]
    left = after.value / before.value
    # Delta method: the error of after/before is that of (after − left × before) / before, itself a spread.
    error = Estimate(1 - left, spread(-left, 1).variance / before.value**2)
    return [
        *scores,
        BiasScore(f"{name}_reduction", error.value, 1.0, (-np.inf, np.inf), interval=error.interval, **common),
    ]


def _three_forms(
    metric: str,
    cells: Cells,
    weights: np.ndarray,
    group: Mapping[str, str],
    signature: Mapping[str, Any],
    p_value: float | None = None,
) -> list[BiasScore]:
    """Return the paper's form, the corrected one, which has the p-value, and the pooled corrected one."""
    scores = _plain_and_corrected(metric, cells, descriptor_spread(cells, weights), group, signature, p_value)
    complete = complete_descriptors(cells)
    pooled = descriptor_spread(complete, weights, pooled=True).corrected
    return [*scores, _score(f"{metric}_pooled_corrected", pooled, complete, (-1.0, 2.0), group, signature)]


def _plain_and_corrected(
    metric: str,
    cells: Cells,
    spread: Spread,
    group: Mapping[str, str],
    signature: Mapping[str, Any],
    p_value: float | None = None,
) -> list[BiasScore]:
    # A probability's variance is at most 1/4, a style vector's total variance below 1; ddof = 1 at most doubles it.
    upper = 0.25 if metric == "scgb" else 1.0
    return [
        _score(metric, spread.plain, cells, (0.0, upper), group, signature),
        _score(f"{metric}_corrected", spread.corrected, cells, (-1.0, 2 * upper), group, signature, p_value),
    ]


def _score(
    metric: str,
    estimate: Estimate,
    cells: Cells,
    bounds: tuple[float, float],
    group: Mapping[str, str],
    signature: Mapping[str, Any],
    p_value: float | None = None,
) -> BiasScore:
    return BiasScore(
        metric,
        estimate.value,
        ideal=0.0,
        bounds=bounds,
        n=cells.n,
        interval=estimate.interval,
        p_value=p_value,
        n_left_out=cells.n_left_out,
        group=group,
        reason=_reason(estimate),
        signature=signature,
    )


def _reason(estimate: Estimate) -> str | None:
    if np.isnan(estimate.value):
        return TOO_FEW
    return NO_INTERVAL if estimate.interval is None else None


def _cells_and_axes(responses: StyledResponses, vectors: np.ndarray) -> tuple[Cells, dict[str, np.ndarray]]:
    """Return the cells, and for each axis the codes of its descriptors."""
    template, descriptor = codes(responses.template), codes(responses.descriptor)
    axes = np.asarray(responses.axis, dtype=str)
    return (
        arrange_cells(vectors, template, descriptor),
        {axis: np.unique(descriptor[axes == axis]) for axis in np.unique(axes).tolist()},
    )


def _axis_cuts(cells: Cells, axis: Mapping[str, np.ndarray]) -> Iterable[tuple[dict[str, str], Cells]]:
    yield {}, cells
    if len(axis) > 1:
        for name, descriptors in axis.items():
            of_axis = keep_cells(cells, np.isin(cells.descriptor, descriptors))
            # What another axis holds is not "left out" of this one.
            yield {"axis": name}, replace(of_axis, n_left_out=0)


def _cluster_cuts(
    cells: Cells, clusters: Mapping[str, Sequence[int]], n_styles: int
) -> Iterable[tuple[str, dict[str, str], np.ndarray]]:
    for i, (name, styles) in enumerate(clusters.items()):
        yield "pgb", {"cluster": name}, _mask(cells, styles)
        yield "scgb", {"cluster": name}, _mask(cells, [n_styles + i])


def _corrected_forms(metric: str, cells: Cells) -> Iterable[tuple[str, bool, Cells]]:
    yield f"{metric}_corrected", False, cells
    yield f"{metric}_pooled_corrected", True, complete_descriptors(cells)


def _with_sums(vectors: np.ndarray, clusters: Mapping[str, Sequence[int]]) -> np.ndarray:
    """Append one column per cluster: the summed probability of its styles."""
    sums = [vectors[:, list(styles)].sum(axis=1, keepdims=True) for styles in clusters.values()]
    return np.concatenate([vectors, *sums], axis=1)


def _styles_only(cells: Cells, n_styles: int) -> Cells:
    return replace(cells, vectors=cells.vectors[:, :n_styles])


def _mask(cells: Cells, columns: Iterable[int]) -> np.ndarray:
    mask = np.zeros(cells.vectors.shape[1])
    mask[list(columns)] = 1
    return mask
