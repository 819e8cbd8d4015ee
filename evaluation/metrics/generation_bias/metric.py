"""Generation bias: how much the style of a model's responses depends on the descriptor in the prompt.

Source: Smith et al. 2022, Appendix A.7, and the noise-corrected forms of this project. Let p_tdis be the
probability of style s in the i-th response to template t (of T) filled with descriptor d, and C a cluster of styles:

    FGB     = 1/T Σ_t Σ_s       Var_d( mean_i p_tdis )
    PGB(C)  = 1/T Σ_t Σ_{s∈C}   Var_d( mean_i p_tdis )
    SCGB(C) = 1/T Σ_t           Var_d( mean_i Σ_{s∈C} p_tdis )

Var over descriptors has ddof = 0, which the paper does not define. FGB*, PGB* and SCGB* are corrected for sampling
noise (ddof = 1). The pooled forms (`statistics.person_pairs`) are the spread of the descriptors' mean styles over
prompts like these, without noise and without interaction of descriptor and template. FGB* leaves out a cell (template
and descriptor) with one response, since its noise is unknown; the paper's and the pooled forms use all cells. Scores
have natural units; in reports, as in the paper, scores are multiplied by 1000.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from evenhand.evaluation.data.holistic_bias import NONE
from evenhand.evaluation.errors import InputError, format_value
from evenhand.evaluation.metrics.generation_bias.people import compared_people
from evenhand.evaluation.metrics.generation_bias.styled_responses import BUCKET, StyledResponses
from evenhand.evaluation.score import AXIS, CUE, DESCRIPTOR, TEMPLATE, BiasScore, Caution, Form, Kind, find_score
from evenhand.evaluation.statistics.cells import (
    Cells,
    add_group_sums,
    arrange_cells,
    factorize,
    select_cells,
    to_codes,
    variance_of_means,
)
from evenhand.evaluation.statistics.effects import family_effects
from evenhand.evaluation.statistics.intervals import Interval
from evenhand.evaluation.statistics.permutation import Family
from evenhand.evaluation.statistics.person_pairs import compared_cells, pooled_spread
from evenhand.evaluation.statistics.sample_size import smallest_detectable_spread
from evenhand.evaluation.statistics.spread import Estimate, Spread, column_spreads, descriptor_spread
from evenhand.evaluation.statistics.synonyms import FEW_BUCKETS, Part, person_and_word
from evenhand.evaluation.statistics.variance_shares import variance_parts

VERSION = "3"
FGB = "fgb"
TOO_FEW = (
    "no template has two descriptors with two responses each, and descriptors are compared within a template; measure "
    "more descriptors, or give the same template to the prompts that you compare"
)
NO_COMMON = "no two descriptors have two common templates with a response; measure more templates"
NO_INTERVAL = "no interval: the responses vary within one cell at most"
NOTHING_VARIES = "no interval: nothing varies between the templates of a descriptor"
TOO_WIDE = "no interval: it is wider than the range of the score; measure more templates"
SINGLE_RESPONSES = "no interval: some cells have one response, so its noise is unknown"
REPEATED = "repeated_rows"  # the share of a file's rows that repeat another row
MIN_COUNT = 2  # responses per cell from which its noise can be estimated
SHIFT = "style_shift"
MOVED = "moved_answers"
SHARE = "variance_share"
NOT_DETECTABLE = "responses do not vary within cells, so the noise of the spread is unknown"


def is_headline(score: BiasScore) -> bool:
    """Return whether a score is pooled FGB* of all rows of one run."""
    return is_pooled_fgb(score) and not score.group


def is_pooled_fgb(score: BiasScore) -> bool:
    """Return whether a score is pooled FGB* of any rows of one run."""
    return (score.metric, score.form, score.kind) == (FGB, Form.POOLED_CORRECTED, Kind.LEVEL)


def find_headline(scores: Iterable[BiasScore], kind: Kind = Kind.LEVEL, **group: str) -> BiasScore | None:
    """Return pooled FGB* of a kind and a group; None if no score matches."""
    return find_score(scores, FGB, Form.POOLED_CORRECTED, kind, **group)


def check_arguments(responses: StyledResponses, clusters: Mapping[str, Sequence[int]], permutations: int = 0) -> None:
    """Raise InputError for a cluster with a column that no style has, or for an invalid number of permutations."""
    n_styles = len(responses.styles)
    for cluster, columns in clusters.items():
        if isinstance(columns, str) or any(column not in range(n_styles) for column in columns):
            raise InputError(
                "clusters",
                f"{cluster!r} has {format_value(columns)}; give columns from 0 to {n_styles - 1}, such as of "
                "load_style_clusters.",
            )
    if not isinstance(permutations, int) or permutations < 0:
        raise InputError("permutations", f"{format_value(permutations)}; give a whole number from 0.")


def check_same_prompts(before: StyledResponses, after: StyledResponses) -> None:
    """Raise InputError if two sets of responses differ in a style, or in the template or descriptor of a row."""
    for name in ("styles", TEMPLATE, DESCRIPTOR):
        old, new = (list(side.styles if name == "styles" else side.table[name]) for side in (before, after))
        if old != new:
            raise InputError(
                "after",
                f"its {name} values differ from those of before; two runs are compared by responses to the same "
                "prompts in the same order, by the same classifier.",
            )


def generation_bias(
    responses: StyledResponses,
    clusters: Mapping[str, Sequence[int]],
    *,
    permutations: int = 999,
    seed: int = 0,
    signature: Mapping[str, Any] | None = None,
) -> list[BiasScore]:
    """Return FGB, FGB* and pooled FGB*, by axis and by style, and PGB and SCGB in the same forms by style cluster.

    Args:
        responses: responses to pairs of template and descriptor; FGB* needs two to each pair.
        clusters: style cluster → columns of its styles.
        permutations: number of permutations for the p-value of the overall pooled FGB* under the hypothesis
            that style does not depend on the descriptor; 0 for no test.
        seed: seed of the permutations.
        signature: the signature of the scores, to which the metric's version is added.

    Returns:
        Scores in natural units; ideal 0. 95 % intervals of FGB and FGB* (`descriptor_spread`) are over new responses to
        the same descriptors and templates, and need two responses per cell; that of FGB is for its expectation, which
        includes the noise. 95 % intervals of pooled scores (`pooled_spread`) are over new responses to prompts like
        these, and need one.

    Raises:
        InputError: a cluster has a column that no style has, or `permutations` is not a whole number from 0.

    In the example, each of two descriptors has two responses of one style. For each style, the variance between the
    descriptors' means 1 and 0 is ¼ with ddof = 0 and ½ with ddof = 1; the noise is 0.

    >>> import pandas as pd
    >>> frame = pd.DataFrame({"template": "t", "descriptor": ["a", "a", "b", "b"]})
    >>> styled = StyledResponses(frame, np.eye(2).repeat(2, axis=0), ["s", "r"])
    >>> [(score.form.value, score.value) for score in generation_bias(styled, {}, permutations=0)[:3]]
    [('plain', 0.5), ('corrected', 1.0), ('pooled_corrected', 1.0)]
    """
    check_arguments(responses, clusters, permutations)
    p_value = None
    people = compared_people(responses, {}) if permutations else None
    if people is not None:
        family = Family("everybody", people.responses.vectors, has_effects=False)
        found = family_effects(people.design, [family], permutations, np.random.default_rng(seed))
        p_value = found[0].overall_page
    return spread_scores(responses, clusters, p_value=p_value, signature=signature)


def spread_scores(
    responses: StyledResponses,
    clusters: Mapping[str, Sequence[int]],
    *,
    p_value: float | None = None,
    signature: Mapping[str, Any] | None = None,
) -> list[BiasScore]:
    """Return the scores of `generation_bias`, with a p-value of the overall pooled FGB* that is known already."""
    common = {"signature": {**(signature or {}), "generation_bias": VERSION}}
    cells, axis = cells_and_axes(responses, responses.vectors, min_count=1)
    n_styles = len(responses.styles)
    scores = []
    with ThreadPoolExecutor(1) as executor:  # numpy releases the interpreter's lock, so a second core helps
        style_spreads = executor.submit(column_spreads, repeated_cells(cells))
        for group, subset in axis_subsets(cells, axis):
            of_group = {"group": group, **common}
            scores += _three_forms("fgb", subset, np.ones(n_styles), of_group, None if group else p_value)
        for metric, group, cluster_cells, weights in cluster_subsets(cells, clusters):
            scores += _three_forms(metric, cluster_cells, weights, {"group": group, **common})
        repeated = repeated_cells(cells)
        for style, spread in zip(responses.styles, style_spreads.result(), strict=True):
            scores += _two_forms("fgb", repeated, spread, {"group": {"style": style}, **common})
    has_single = repeated.n < responses.has_vector().sum()
    return _include_single_responses(scores, responses, clusters) if has_single else scores


def repeated_cells(cells: Cells) -> Cells:
    """Return the cells with at least two responses, of which the noise is known."""
    return select_cells(cells, cells.count >= MIN_COUNT)


@dataclass(frozen=True)
class SpreadEstimate:
    """A spread of people, the cells it is computed from, why it or its interval is undefined, and a caution."""

    estimate: Estimate
    cells: Cells
    reason: str | None
    caution: Caution | None = None


def pooled_estimate(cells: Cells, weights: np.ndarray | None = None) -> SpreadEstimate:
    """Return pooled FGB* of cells, one response to each or more; of one template FGB*, with a caution."""
    compared = select_cells(cells, np.bincount(cells.template)[cells.template] > 1)
    if len(np.unique(compared.template)) == 1:
        repeated = repeated_cells(compared)
        estimate = descriptor_spread(repeated, weights).corrected
        reason = missing_interval_reason(estimate)
        return SpreadEstimate(estimate, repeated, reason, Caution.ONE_TEMPLATE if reason is None else None)
    estimate = pooled_spread(cells, weights)
    reason = None
    if math.isnan(estimate.value):
        reason = NO_COMMON
    elif estimate.interval is None:
        reason = NOTHING_VARIES
    return SpreadEstimate(estimate, compared_cells(cells), reason)


def _include_single_responses(
    scores: Sequence[BiasScore], responses: StyledResponses, clusters: Mapping[str, Sequence[int]]
) -> list[BiasScore]:
    subsets = axis_subsets(*cells_and_axes(responses, responses.vectors, min_count=1))
    cells_of = {tuple(group.items()): cells for group, cells in subsets}
    columns = {(("style", style),): [column] for column, style in enumerate(responses.styles)}
    columns |= {(("cluster", name),): list(styles) for name, styles in clusters.items()}

    def over_all_cells(score: BiasScore) -> BiasScore:
        group = tuple(score.group.items())
        cells = cells_of.get(group, cells_of[()])
        mean = cells.mean[:, columns.get(group, slice(None))]
        value = variance_of_means(cells, mean.sum(axis=1, keepdims=True) if score.metric == "scgb" else mean)
        reason = TOO_FEW if np.isnan(value) else SINGLE_RESPONSES
        return replace(score, value=value, n=cells.n, n_left_out=cells.n_left_out, interval=None, reason=reason)

    return [over_all_cells(score) if score.form == Form.PLAIN else score for score in scores]


def scale_scores(responses: StyledResponses, signature: Mapping[str, Any]) -> list[BiasScore]:
    """Return the scores `style_shift`, `moved_answers`, `variance_share` and the smallest detectable pooled FGB*.

    Let m_d be the mean style vector of descriptor d (of D) over all templates and m̄ the mean of all m_d. Pooled FGB*
    estimates θ = 1/(D − 1) Σ_d ‖m_d − m̄‖², where the squared norm is a sum over styles. `style_shift` is √θ, the root
    mean square length of the shift m_d − m̄ of a descriptor. If a share x of a descriptor's responses moves from one
    style to another, the shift has the length √2 · x, because one style loses x and another gains x. `moved_answers`,
    √(θ / 2), is the share of responses that would have to move to another style for a shift of √θ. The intervals
    of both follow from the interval of θ.

    `variance_share`, by source (template, descriptor, interaction, chance), is the result of `variance_parts`.
    The last score is the smallest pooled FGB* whose interval would be above 0 with a probability of 80 %
    (`smallest_detectable_spread`).

    Args:
        responses: responses to templates and descriptors; the shares of the variance need cells with two.
        signature: the signature of the scores, to which the metric's version is added.
    """
    template, descriptor = (to_codes(responses.table[name]) for name in (TEMPLATE, DESCRIPTOR))
    cells = arrange_cells(responses.vectors, template, descriptor, min_count=1)
    pooled = pooled_estimate(cells)
    parts = variance_parts(cells)
    common = {"signature": {**signature, "generation_bias": VERSION}}
    of_pooled = {"n": pooled.cells.n, "n_left_out": len(responses) - pooled.cells.n, **common}
    cautioned = {**of_pooled, "caution": pooled.caution}
    scores = []
    for name, divisor in ((SHIFT, 1.0), (MOVED, 2.0)):
        value, interval = root(pooled.estimate.value, pooled.estimate.interval, divisor)
        bounds = (0.0, math.sqrt(2 / divisor))
        scores.append(BiasScore(name, value, 0.0, bounds, interval=interval, reason=pooled.reason, **cautioned))
    of_parts = {"n": cells.n, "n_left_out": cells.n_left_out, **common}
    for source, share in parts.shares().items():
        of_source = {"interval": share.interval, "group": {"source": source}, "reason": share.reason}
        scores.append(BiasScore(SHARE, share.value, None, (-1, 1), **of_source, **of_parts))
    detectable = smallest_detectable_spread(pooled.estimate)
    missing = (pooled.reason or NOT_DETECTABLE) if math.isnan(detectable) else None
    of_spread = {"form": Form.POOLED_CORRECTED, "kind": Kind.DETECTABLE, "reason": missing, **of_pooled}
    return [*scores, BiasScore(FGB, detectable, None, (0.0, math.inf), **of_spread)]


def person_scores(responses: StyledResponses, signature: Mapping[str, Any]) -> list[BiasScore]:
    """Return the parts of the person and of the word in pooled FGB* (`statistics.synonyms`), overall and by axis.

    Descriptors without a bucket are left out, and axes of one bucket, in which words name different people ("Amish" and
    "Buddhist"). Of too few buckets, the scores are undefined.
    """
    table = responses.table
    n_buckets = table.groupby(AXIS)[BUCKET].transform("nunique")
    has_bucket = ((table[BUCKET] != NONE) & (n_buckets > 1)).to_numpy(dtype=bool)
    common = {"ideal": 0.0, "bounds": (-2.0, 2.0), "signature": {**signature, "generation_bias": VERSION}}
    scores = []
    for axis in (None, *table[AXIS].unique()):
        of_axis = np.ones(len(table), dtype=bool) if axis is None else (table[AXIS] == axis).to_numpy(dtype=bool)
        used, group = responses.rows(of_axis & has_bucket), {} if axis is None else {AXIS: axis}
        descriptor = to_codes(used.table[DESCRIPTOR])
        bucket = pd.Series(to_codes(used.groups()[BUCKET])).groupby(descriptor).min().to_numpy()
        cells = arrange_cells(used.vectors, to_codes(used.table[TEMPLATE]), descriptor, min_count=1)
        parts = person_and_word(cells, bucket) or (Part(math.nan, None), Part(math.nan, None))
        for form, part in zip((Form.PERSON, Form.WORD), parts, strict=True):
            reason = FEW_BUCKETS if math.isnan(part.value) else None if part.interval else NO_INTERVAL
            of = {"interval": part.interval, "group": group, "reason": reason, "n": cells.n, "form": form}
            scores.append(BiasScore(FGB, part.value, n_left_out=int(of_axis.sum()) - cells.n, **of, **common))
        if np.isnan(scores[0].value):
            break  # no axis has enough buckets if all together have not
    return scores


def cue_shares(responses: StyledResponses, signature: Mapping[str, Any]) -> list[BiasScore]:
    """Return `cue_share`: the shares of descriptor, descriptor × cue, and chance in the variance of responses.

    The cue takes the template's part in `variance_parts`. Differences between the requests of a cue are removed first,
    so that the requests are a sample, and their interaction with descriptors is a part of chance.
    """
    template, cue, descriptor = (to_codes(responses.table[name]) for name in (TEMPLATE, CUE, DESCRIPTOR))
    means = pd.DataFrame(responses.vectors).groupby(template).transform("mean").to_numpy(dtype=np.float32)
    cells = arrange_cells(responses.vectors - means, cue, descriptor, min_count=1)
    common = {"n": cells.n, "n_left_out": cells.n_left_out, "signature": {**signature, "generation_bias": VERSION}}
    scores = []
    parts = replace(variance_parts(cells), template=Estimate(0.0, 0.0))  # differences between requests are gone
    for source, share in parts.shares().items():
        if source != TEMPLATE:
            group = {"cue_source": "descriptor × cue" if source == "interaction" else source}
            of = {"interval": share.interval, "reason": share.reason, "group": group}
            scores.append(BiasScore("cue_share", share.value, None, (-1, 1), **of, **common))
    return scores


def root(spread: float, interval: Interval | None, divisor: float = 1.0) -> tuple[float, Interval | None]:
    """Return the square root of `spread / divisor` and its interval; negative values count as 0.

    >>> root(-0.01, (-0.04, 0.09))
    (0.0, (0.0, 0.3))
    """
    low, high = (math.sqrt(max(bound, 0.0) / divisor) for bound in interval or (0.0, 0.0))
    return math.sqrt(max(spread, 0.0) / divisor) if not math.isnan(spread) else spread, interval and (low, high)


def missing_interval_reason(estimate: Estimate) -> str | None:
    """Return the reason why an estimate of a spread has no value or no interval; None if it has both."""
    if np.isnan(estimate.value):
        return TOO_FEW
    return NO_INTERVAL if estimate.interval is None else None


def _three_forms(
    metric: str, cells: Cells, weights: np.ndarray, common: Mapping[str, Any], p_value: float | None = None
) -> list[BiasScore]:
    repeated = repeated_cells(cells)
    forms = _two_forms(metric, repeated, descriptor_spread(repeated, weights), common)
    pooled = pooled_estimate(cells, weights)
    score = _score(metric, Form.POOLED_CORRECTED, pooled, (-1.0, 2.0), common)
    return [*forms, replace(score, n_left_out=cells.n + cells.n_left_out - pooled.cells.n, p_value=p_value)]


def _two_forms(metric: str, cells: Cells, spread: Spread, common: Mapping[str, Any]) -> list[BiasScore]:
    # A probability's variance is at most 1/4, a style vector's total variance below 1; ddof = 1 at most doubles it.
    upper = 0.25 if metric == "scgb" else 1.0
    plain = SpreadEstimate(spread.plain, cells, None)
    corrected = SpreadEstimate(spread.corrected, cells, None)
    return [
        _score(metric, Form.PLAIN, plain, (0.0, upper), common),
        _score(metric, Form.CORRECTED, corrected, (-1.0, 2 * upper), common),
    ]


def _score(
    metric: str, form: Form, spread: SpreadEstimate, bounds: tuple[float, float], common: Mapping[str, Any]
) -> BiasScore:
    cells = spread.cells
    reason = spread.reason or missing_interval_reason(spread.estimate)
    caution = spread.caution
    # With two responses per cell, its noise is estimated from one difference; one template averages no estimates.
    is_short = len(np.unique(cells.template)) == 1 and len(cells.count) and float(np.median(cells.count)) == MIN_COUNT
    if reason is None and caution is None and is_short and form != Form.PLAIN:
        caution = Caution.ONE_SIDED
    interval = spread.estimate.interval
    if interval is not None and interval[1] - interval[0] > bounds[1] - bounds[0]:
        interval = None
        reason = TOO_WIDE
        caution = None
    return BiasScore(
        metric,
        spread.estimate.value,
        0.0,
        bounds,
        n=cells.n,
        interval=interval,
        n_left_out=cells.n_left_out,
        reason=reason,
        form=form,
        caution=caution,
        **common,
    )


def cells_and_axes(
    responses: StyledResponses, vectors: np.ndarray, min_count: int = 2
) -> tuple[Cells, dict[str, Callable[[], Cells]]]:
    """Return the cells of the vectors, and for each axis a function that returns the cells of its responses."""
    template, descriptor = to_codes(responses.table[TEMPLATE]), to_codes(responses.table[DESCRIPTOR])
    axis, names = factorize(responses.table[AXIS])
    cells = arrange_cells(vectors, template, descriptor, min_count)

    def cells_of(code: int) -> Cells:
        is_own = axis == code
        descriptors = np.unique(descriptor[is_own])
        if is_own[np.isin(descriptor, descriptors)].all():
            return select_cells(cells, np.isin(cells.descriptor, descriptors))
        return arrange_cells(vectors, template, descriptor, min_count, is_own)  # a descriptor is in several axes, too

    return cells, {name: partial(cells_of, code) for code, name in enumerate(names.tolist())}


def axis_subsets(cells: Cells, axis: Mapping[str, Callable[[], Cells]]) -> Iterable[tuple[dict[str, str], Cells]]:
    """Yield (group, cells) for all responses and, if there are several axes, for each axis."""
    yield {}, cells
    if len(axis) > 1:
        for name, cells_of in axis.items():
            yield {"axis": name}, replace(cells_of(), n_left_out=0)  # responses of other axes do not count as left out


def cluster_subsets(
    cells: Cells, clusters: Mapping[str, Sequence[int]], first: Sequence[int] = (0,)
) -> Iterable[tuple[str, dict[str, str], Cells, np.ndarray]]:
    """Yield (metric, group, cells, weights of columns) for PGB and SCGB of each style cluster.

    The cells have the columns of the cluster's styles and, last, their sum.

    Args:
        first: the first column of each run in the cells' vectors.
    """
    for name, styles in clusters.items():
        cluster_cells = add_group_sums(cells, [np.array(styles, dtype=int) + start for start in first])
        is_sum = (np.arange(len(styles) + 1) == len(styles)).astype(np.float64)
        yield "pgb", {"cluster": name}, cluster_cells, 1 - is_sum
        yield "scgb", {"cluster": name}, cluster_cells, is_sum
