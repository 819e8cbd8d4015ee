"""Effects of descriptors on the probability of each style: estimates, intervals and tests.

With m_td the mean of the cell of template t and descriptor d, M_t the mean of m_td over the descriptors of template t,
and T_d the number of templates of descriptor d, the effect on descriptor d is

    e_d = 1/T_d Σ_t (m_td − M_t),

the difference from the average over descriptors on the same templates; every cell has the same weight. The effect on a
group of descriptors (an axis or a bucket) is the mean of the effects on the group's descriptors.

Tests: `statistics.simultaneous_tests`. Intervals have the tests' unit of chance: their variance is that of the cell
means around template and descriptor, m_td − M_t − e_d, pooled over descriptors because styles are rare and skewed (if
no answer to a descriptor has a style, the standard error from this descriptor alone is nearly 0). An effect changes the
variance, since a share p has the variance p (1 − p): the pooled variance is multiplied by v(average + θ) / v(average)
with v(p) = p (1 − p), where this is larger than 1. Of other numbers, a descriptor's own variance is used where it is
larger than the pooled one.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from types import EllipsisType

import numpy as np
import scipy

from evenhand.evaluation.statistics.cell_table import CellTable, Design, SetOfTests, cell_table
from evenhand.evaluation.statistics.effect_variances import effect_variance, own_effect_variance, statistics_of
from evenhand.evaluation.statistics.level import ONE_LOOK, Level
from evenhand.evaluation.statistics.permutation import NullHypothesis, RandomSigns, null_hypothesis
from evenhand.evaluation.statistics.shrinkage import shrink
from evenhand.evaluation.statistics.simultaneous_tests import LEVEL, PValues, Tested, joint_p_values, variance_of_groups

Place = tuple | EllipsisType  # index of units and columns
# (index of effects, their true values) → the sampling variance at these values over the pooled variance, at least 1
VarianceRatio = Callable[[Place, np.ndarray], np.ndarray]
# The same with the average of each unit and column, (u, c), as the first argument.
RatioAtAverage = Callable[[np.ndarray, Place, np.ndarray], np.ndarray]
POWER = 0.8  # of the smallest detectable effect
STEPS = 10  # of the fixed-point iteration for the smallest detectable effect
BISECTIONS = 40  # of each bound of an interval
TINY = 1e-18  # a variance in place of 0
LEAST_SHARE = 1e-6
LARGEST = 1e6  # detectable effects end here


@dataclass(frozen=True)
class Effects:
    """The effects on u units (descriptors, then groups) in c columns (styles, then clusters), (u, c) each.

    Attributes:
        mean: mean probability.
        effect: difference of the mean probability from the average over descriptors on the same templates, in [−1, 1],
            0 without bias.
        z: tested effect in standard errors under the null hypothesis.
        p: p-value of each effect alone.
        p_set: p-value adjusted for all effects of the set (balanced step-down max-T).
        p_joint: p-value adjusted for all sets. If all effects with p_joint ≤ α are called shown, the probability of
            one or more false ones on the page is at most α.
        q: p-value adjusted for the false discovery rate (Benjamini and Hochberg 1995) in the set.
        shrunk: the effect shrunk toward 0.
        low, high: the 95 % interval of a shown effect (`intervals_if_shown`); of any other one, the two bounds that
            each hold with 95 % confidence for this effect alone; NaN in a column that never varies.
        detectable: size of an effect that has `p_joint` ≤ 0.05 with 80 % probability; inf without permutations, NaN in
            a column that never varies.
        at_most: upper 95 % bound of the size of each effect alone; NaN in a column that never varies.
        at_least: lower 95 % bounds of the sizes of all effects together.
        shift_p, shift_joint: p-value of each descriptor's whole shift, adjusted for the set and the page, (D,).
        overall_p, overall_joint: p-value of the test that descriptors differ at all, alone and adjusted for the page.
        unit: the unit of chance, CELLS or ANSWERS.
    """

    mean: np.ndarray
    effect: np.ndarray
    z: np.ndarray
    p: np.ndarray
    p_set: np.ndarray
    p_joint: np.ndarray
    q: np.ndarray
    shrunk: np.ndarray
    low: np.ndarray
    high: np.ndarray
    detectable: np.ndarray
    at_most: np.ndarray
    at_least: np.ndarray
    shift_p: np.ndarray
    shift_joint: np.ndarray
    overall_p: float
    overall_joint: float
    unit: str


def joint_effects(
    design: Design,
    test_sets: Sequence[SetOfTests],
    draws: int,
    rng: np.random.Generator,
    level: Level = ONE_LOOK,
) -> list[Effects]:
    """Return the effects of each set, tested jointly.

    Args:
        design: who was asked what.
        test_sets: the numbers of each answer.
        draws: number of permutations; with 999 the smallest `p_set` is 0.001, and the smallest `p` is far below.
        rng: source of the permutations.
        level: how much the tests and intervals may err, at one of several looks at a measurement.

    Raises:
        ValueError: no two descriptors have a common template.
    """
    table = cell_table(design, test_sets, rng)
    null = null_hypothesis(table, design, test_sets)
    ratios = [share_ratio if test_set.are_shares else constant_ratio for test_set in test_sets]
    return _effects(table, null, test_sets, design.groups, ratios, draws, rng, level)


def changed_effects(
    design: Design,
    before: SetOfTests,
    after: SetOfTests,
    effects_before: Effects,
    effects_after: Effects,
    draws: int,
    rng: np.random.Generator,
    level: Level = ONE_LOOK,
) -> Effects:
    """Return the changes of the effects of a set, after − before, with p-values and intervals.

    Let D_td be the mean difference between the two runs in a cell, over the prompts that both answered. Effects are
    linear, so the effects on D_td are the changes of the effects. Null hypothesis: every change is the same for all
    descriptors. Then r_td = D_td − (mean of D over the descriptors of template t) and −r_td are equally likely, up to
    skewness, and each cell gets one random sign (Winkler et al. 2014, "Permutation inference for the general linear
    model", §2). Exchanging cells, as for a single run, would be wrong: where a descriptor has the same effect before
    and after, the variance of D_td differs from that of other descriptors.

    `mean` in the result is the change of the mean probability.
    """
    difference = SetOfTests(after.name, after.values - before.values, after.sums, are_shares=after.are_shares)
    table = cell_table(design, [difference], rng)
    null = RandomSigns(table)
    ratio = constant_ratio
    if after.are_shares:
        ratio = partial(_ratio_of_change, effects_before, effects_after)
    return _effects(null.table, null, [difference], design.groups, [ratio], draws, rng, level)[0]


def share_ratio(average: np.ndarray, place: Place, effect: np.ndarray) -> np.ndarray:
    """Return the variance of a share average + effect over its variance at the average, at least 1."""
    return np.maximum(share_variance(average[place] + effect) / share_variance(average[place]), 1.0)


def constant_ratio(average: np.ndarray, place: Place, effect: np.ndarray) -> np.ndarray:
    """Return 1 for each effect: the variance does not depend on the effect."""
    return np.ones(np.broadcast_shapes(average[place].shape, np.shape(effect)))


def share_variance(p: np.ndarray) -> np.ndarray:
    """Return p (1 − p) of probabilities p, which are first clipped to [10⁻⁶, 1 − 10⁻⁶]."""
    p = np.clip(p, LEAST_SHARE, 1 - LEAST_SHARE)
    return p * (1 - p)


def _ratio_of_change(
    before: Effects, after: Effects, average: np.ndarray, place: Place, change: np.ndarray
) -> np.ndarray:
    """Return the variance of a difference between two shares, if the effect before changes by `change`, at least 1.

    The ratio is to the variance of the difference between two average shares.
    """
    average_before = (before.mean - before.effect)[place]
    average_after = (after.mean - after.effect)[place]
    effect = before.shrunk[place]
    at_change = share_variance(average_before + effect) + share_variance(average_after + effect + change)
    return np.maximum(at_change / (share_variance(average_before) + share_variance(average_after)), 1.0)


def _effects(
    table: CellTable,
    null: NullHypothesis,
    test_sets: Sequence[SetOfTests],
    groups: np.ndarray,
    ratios: Sequence[RatioAtAverage],
    draws: int,
    rng: np.random.Generator,
    level: Level,
) -> list[Effects]:
    """Return the effects of each set, whose variances depend on the effects by the function in `ratios`."""
    tests = joint_p_values(null, test_sets, table.test_set, groups, draws, rng, level.share)
    units = np.concatenate([np.eye(groups.shape[1]), groups])
    effect = units @ statistics_of(table, table.mean, table.present).effect
    average = units @ statistics_of(table, table.average, table.present).effect
    are_shares = np.array([test_set.are_shares for test_set in test_sets])[table.test_set]
    variance = _variance(table, groups, are_shares, level)
    results = []
    for number, (tested, p) in enumerate(tests):
        columns = table.test_set == number
        effects = _estimates(
            tested,
            p,
            effect=effect[:, columns],
            average=average[:, columns],
            variance=variance[:, columns],
            ratio_at_average=ratios[number],
            n_people=groups.shape[1],
            table=table,
            level=level,
        )
        results.append(effects)
    return results


def _variance(table: CellTable, groups: np.ndarray, are_shares: np.ndarray, level: Level) -> np.ndarray:
    """Return the sampling variances of the effects on people and groups, (u, c); `are_shares` is of the columns, (c,).

    They are pooled over people. Of numbers, whose variance no mean tells, it is the person's own variance where that is
    larger: the number of a person may vary more than other people's. It is multiplied by the square of the quantile of
    Student's t over the normal one, since it is estimated with the few degrees of freedom of one person.
    """
    pooled = effect_variance(table)
    own, freedom = own_effect_variance(table)
    own = np.where(are_shares, 0.0, own)
    tail = level.tail
    student = scipy.stats.t.ppf(tail, np.maximum(freedom, 1)) / scipy.special.ndtri(tail)
    of_people = np.maximum(pooled, own * student**2)
    of_groups = np.maximum((groups**2) @ pooled, (groups**2) @ own) * variance_of_groups(groups)[:, None]
    return np.concatenate([of_people, of_groups])


def _estimates(
    tested: Tested,
    p: PValues,
    effect: np.ndarray,
    average: np.ndarray,
    variance: np.ndarray,
    ratio_at_average: RatioAtAverage,
    n_people: int,
    table: CellTable,
    level: Level,
) -> Effects:
    """Return the effects of one set from their estimates, averages and sampling variances, (u, c) each."""
    ratio = partial(ratio_at_average, average)
    varies = (tested.error > 0) & (variance > TINY)
    kinds = [slice(0, n_people)]
    if len(effect) > n_people:
        kinds.append(slice(n_people, len(effect)))
    shrunk = shrunk_effects(effect, variance, kinds, ratio)
    one_sided_quantile = float(scipy.special.ndtri(level.one_sided_tail))
    bound_low, bound_high = interval_of_one(effect, variance, ratio, one_sided_quantile)
    # `threshold` is in the units of z. Unequal cells are scaled before they are tested, so z is no multiple of the
    # effect; the ratio of threshold and z gives the threshold in the units of the effect.
    size = np.abs(tested.z)
    relative = np.divide(p.threshold, size, out=np.full(size.shape, np.inf), where=size > 0)
    is_shown = varies & (p.page <= LEVEL)
    threshold = np.where(is_shown, np.abs(effect) * np.minimum(relative, 1.0), np.inf)
    shown_low, shown_high = intervals_if_shown(effect, variance, ratio, threshold, level)
    low = np.minimum(np.where(is_shown, shown_low, bound_low), shrunk)
    high = np.maximum(np.where(is_shown, shown_high, bound_high), shrunk)
    at_least = np.zeros(effect.shape)
    if np.isfinite(p.threshold).all():
        error_at_effect = np.sqrt(variance * ratio(..., effect))
        per_z = np.divide(np.abs(effect), size, out=np.zeros(size.shape), where=size > 0)
        at_least = np.maximum(np.abs(effect) - p.threshold * np.maximum(error_at_effect, per_z), 0.0)
    own_variance = variance if table.uses_own_variance else np.zeros(variance.shape)
    # Unequal cells are scaled before they are tested, and their errors with them.
    tested_size = np.abs(tested.effect)
    scale = np.divide(np.abs(effect), tested_size, out=np.ones(effect.shape), where=tested_size > TINY**0.5)
    error = tested.error * scale
    detectable = detectable_size(average, variance, error, own_variance, p.threshold, ratio)
    return Effects(
        mean=average + effect,
        effect=effect,
        z=tested.z,
        p=p.single,
        p_set=p.in_set,
        p_joint=p.page,
        q=scipy.stats.false_discovery_control(p.single, axis=None).reshape(p.single.shape),
        shrunk=shrunk,
        low=np.where(varies, low, np.nan),
        high=np.where(varies, high, np.nan),
        detectable=np.where(varies, detectable, np.nan),
        at_most=np.where(varies, np.maximum(-bound_low, bound_high), np.nan),
        at_least=at_least,
        shift_p=p.shift,
        shift_joint=p.shift_joint,
        overall_p=p.overall,
        overall_joint=p.overall_joint,
        unit=table.unit,
    )


def detectable_size(
    average: np.ndarray,
    variance: np.ndarray,
    error: np.ndarray,
    own_variance: np.ndarray,
    threshold: np.ndarray,
    ratio: VarianceRatio,
) -> np.ndarray:
    """Return the size of each effect that is shown with a probability of POWER, (u, c).

    It is that of an effect in the direction in which a share has more room: away from the nearer one of 0 and 1. The
    test divides by `error` or, where that grows larger with the effect, by the root of the descriptor's own variance.
    """
    if not np.isfinite(threshold).all():
        return np.full(error.shape, np.inf)
    size = error.copy()
    direction = np.where(average > 0.5, -1.0, 1.0)
    for _ in range(STEPS):
        relative = ratio(..., direction * size)
        tested = np.maximum(error, np.sqrt(own_variance * relative))
        error_at_size = np.sqrt(variance * relative)
        size = np.minimum(threshold * tested + scipy.special.ndtri(POWER) * error_at_size, LARGEST)
    return size


def shrunk_effects(
    effect: np.ndarray, variance: np.ndarray, kinds: list[slice], variance_ratio: VarianceRatio
) -> np.ndarray:
    """Return the effects shrunk toward 0 (`shrink`), (u, c), over the units of one kind, one column at a time.

    `variance` is the pooled sampling variance of each effect, (u, c); `kinds` are the units of each kind.
    """
    result = np.empty(effect.shape)
    for kind in kinds:
        for column in range(effect.shape[1]):
            ratio = partial(variance_ratio, (kind, [column]))
            result[kind, column] = shrink(effect[kind, column], variance[kind, column], variance_ratio=ratio)
    return result


def interval_of_one(
    effect: np.ndarray, variance: np.ndarray, variance_ratio: VarianceRatio, quantile: float
) -> tuple[np.ndarray, np.ndarray]:
    """Return the bounds of the interval of each effect alone, (u, c) each: θ with |effect − θ| ≤ quantile · √v(θ).

    The variance at the bound, not at the estimate, decides whether the estimate agrees with the bound (Wilson 1927).
    """
    bounds = []
    for sign in (-1.0, 1.0):

        def reach(distance: np.ndarray, sign: float = sign) -> np.ndarray:
            return quantile * np.sqrt(np.maximum(variance * variance_ratio(..., effect + sign * distance), TINY))

        inside = np.zeros(effect.shape)
        outside = quantile * np.sqrt(np.maximum(variance, TINY))
        for _ in range(BISECTIONS):
            is_inside = outside < reach(outside)
            if not is_inside.any():
                break
            outside = np.where(is_inside, 1.5 * outside, outside)
        for _ in range(BISECTIONS):
            middle = (inside + outside) / 2
            is_inside = middle < reach(middle)
            inside = np.where(is_inside, middle, inside)
            outside = np.where(is_inside, outside, middle)
        bounds.append(effect + sign * outside)
    return bounds[0], bounds[1]


def intervals_if_shown(
    effect: np.ndarray,
    variance: np.ndarray,
    variance_ratio: VarianceRatio,
    threshold: np.ndarray,
    level: Level,
) -> tuple[np.ndarray, np.ndarray]:
    """Return the bounds of intervals that cover 95 to 97.5 % of true effects *given that they are shown*, (u, c) each.

    An effect x is shown if |x| ≥ threshold, so chance helped it if it is hardly larger. With a normal error of variance
    v(θ), let x > 0. The bound toward 0 is the θ for which P(X ≥ x | X ≥ threshold) is 2.5 % (Zhong and Prentice 2008,
    "Bias-reduced estimators and confidence intervals for odds ratios in genome-wide association studies"), but not
    below 0, since the family-wise error covers the sign. The outer bound is that of the effect alone
    (`interval_of_one`): selection by a large x only makes it safer. Neither bound depends on the distribution of true
    effects (`python -m benchmarks.effects`).
    """
    size = np.abs(effect)
    sign = np.sign(effect)
    low = np.zeros_like(size)
    high = size.copy()
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        error = np.sqrt(np.maximum(variance * variance_ratio(..., sign * middle), TINY))
        above = scipy.special.log_ndtr((middle - size) / error)
        selected = scipy.special.log_ndtr((middle - threshold) / error)
        is_below = above - selected < math.log(1 - level.tail)
        low = np.where(is_below, middle, low)
        high = np.where(is_below, high, middle)
    outer_low, outer_high = interval_of_one(effect, variance, variance_ratio, float(scipy.special.ndtri(level.tail)))
    return np.where(effect > 0, low, outer_low), np.where(effect > 0, outer_high, -low)
