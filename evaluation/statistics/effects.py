"""Effects of descriptors on the probability of each style: estimates, standard errors and permutation tests.

With m_td the mean style vector of the cell of template t and descriptor d, M_t the mean of m_td over the descriptors
of template t, and T_d the number of templates of descriptor d, the effect on descriptor d is

    e_d = 1/T_d Σ_t (m_td − M_t),

the difference from the average over descriptors on the same templates. The effect on a group of descriptors (an axis
or a bucket) is the mean of the effects on the group's descriptors. Every effect is a contrast Σ_j K_j m_j of the means
m_j of cells j, with N_j responses each, whose coefficients K_j sum to 0 within each template.

Null hypothesis: responses to one template are exchangeable between descriptors. Shuffling responses within templates
does not change the variance S²_t of all responses to template t (ddof = 1), so the null variance of an effect,

    Var(e) = Σ_t S²_t Σ_{j in t} K_j² / N_j,

is the same in every permutation, and z = e / √Var(e) has an exact permutation distribution. The variance is pooled
over descriptors because styles are rare and skewed: if no response to a descriptor has a style, the standard error from
this descriptor's responses alone is nearly 0, and z may be −12 by chance.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from types import EllipsisType

import numpy as np
import scipy

from evenhand.evaluation.statistics.cells import Cells, sum_by
from evenhand.evaluation.statistics.intervals import TAILS, Z
from evenhand.evaluation.statistics.shrinkage import shrink

Place = tuple | EllipsisType  # index of units and columns
# (index of effects, their true values) → the sampling variance at these values over the pooled variance, at least 1
VarianceRatio = Callable[[Place, np.ndarray], np.ndarray]
# (cells of a template, stream of random numbers) → function that returns the cells' means in a new draw
Sampler = Callable[[np.ndarray, np.random.Generator], Callable[[], np.ndarray]]
NUMBERS_IN_BATCH = 1 << 25  # float32 numbers in a batch of `effects_under_null`: 128 MiB
LEVEL, POWER = 0.05, 0.8  # level and power of the smallest detectable effect
DETECTABLE_STEPS, BISECTIONS = 10, 40
ONE_SIDED = float(scipy.special.ndtri(1 - LEVEL))
TINY = 1e-18  # a variance in place of 0
MAX_Z, BINS_PER_Z = 64, 128  # the grid on which permuted |z| are counted
PILOT = 199  # most draws that set the scales of z


@dataclass(frozen=True)
class Effects:
    """The effects on u units (descriptors, then groups) in c columns (styles, then clusters), (u, c) each.

    Attributes:
        mean: mean probability.
        effect: difference of the mean probability from the average over descriptors on the same templates, in [−1, 1],
            0 without bias.
        z: effect in standard errors under the null hypothesis.
        p: p-value of each effect alone.
        p_family: p-value adjusted for all effects together (balanced step-down max-T). If all effects with
            p_family ≤ α are called significant, the probability of one or more false positives is at most α.
        q: p-value adjusted for the false discovery rate (Benjamini and Hochberg 1995).
        shrunk, low, high: the effect shrunk toward 0, and the bounds of the 95 % interval (`intervals_if_shown` for
            p_family ≤ 0.05, `shrunk_effects` otherwise).
        detectable: size of an effect that has `p_family` ≤ 0.05 with 80 % probability; inf without permutations, NaN
            in a column that never varies.
        at_most: upper 95 % bound of the size of each effect alone, |e| + 1.64 standard errors at the effect.
        at_least: lower 95 % bounds of the sizes of all effects of descriptors on styles together: |e| less the 95 %
            quantile of the largest size under the null hypothesis, which is larger for an effect that makes a style's
            standard error larger than that of any other.
    """

    mean: np.ndarray
    effect: np.ndarray
    z: np.ndarray
    p: np.ndarray
    p_family: np.ndarray
    q: np.ndarray
    shrunk: np.ndarray
    low: np.ndarray
    high: np.ndarray
    detectable: np.ndarray
    at_most: np.ndarray
    at_least: np.ndarray


def descriptor_effects(
    cells: Cells,
    groups: np.ndarray,
    clusters: np.ndarray,
    draws: int,
    rng: np.random.Generator,
    *,
    sampler: Sampler | None = None,
    variance_ratio: VarianceRatio | None = None,
    own_variance: Callable[[list[np.ndarray], np.ndarray, np.ndarray], np.ndarray] | None = None,
) -> Effects:
    """Return the effects on all descriptors and groups, in all styles and clusters, with p-values and intervals.

    Simultaneous test: two-sided step-down max-T over all effects (Westfall and Young 1993, "Resampling-Based Multiple
    Testing", algorithm 4.1; Ge, Dudoit and Speed 2003, "Resampling-based multiple testing for microarray data
    analysis", box 2), balanced (Beran 1988, "Balanced simultaneous confidence sets"; Romano and Wolf 2010, "Balanced
    control of generalized error rates"): each |z| is divided by a scale (`balancing_scale`), so that descriptors and
    groups, rare and frequent styles have about the same share of the family-wise error. The z of a rare style is
    skewed; without the scale it would set the critical |z| of all styles (`python -m benchmarks.effects --unbalanced`).
    The scales come from draws of their own, so that the test stays exact. Single tests: under the null hypothesis the
    z of a column have the same distribution for all units of one kind (exactly in a balanced design). The permuted z
    of the column are therefore pooled over these units, as in Tusher, Tibshirani and Chu 2001, "Significance analysis
    of microarrays". False discovery rate: Benjamini and Hochberg. Shrinkage: `shrunk_effects`, over the units of one
    kind, one column at a time, with the sampling variance Σ_t s²_t Σ_{j in t} K_j² / N_j, where s²_t is the variance
    within cells, pooled over the cells of template t.

    Args:
        cells: responses by cell, (n, s), descriptors numbered from 0 without gaps.
        groups: (g, D), the weight of each descriptor in the mean of each group; rows sum to 1.
        clusters: (s, k), 1 where a style belongs to a cluster.
        draws: number of permutations; with 999 the smallest `p_family` is 0.001, and the smallest `p` is far below.
        rng: source of the permutations.
        sampler: samples from another null hypothesis than that of permuted responses, see `effects_under_null`.
        variance_ratio: default: as of a share, `bernoulli_ratio` at the average probability.
        own_variance: function of templates, units and columns that returns the sampling variance of each effect,
            (u, c), from the responses to its unit alone; the larger one of this and the pooled variance is used.
    """
    templates = [np.flatnonzero(cells.template == template) for template in np.unique(cells.template)]
    units = np.concatenate([np.eye(groups.shape[1]), groups])
    kinds = [slice(0, groups.shape[1]), slice(groups.shape[1], len(units))][: 1 + (len(groups) > 0)]
    columns = np.concatenate([np.eye(len(clusters)), clusters], axis=1)
    total, within = template_variances(cells, templates, columns)
    factors = contrast_factors(cells, templates, units)
    mean = units @ descriptor_means(cells, cells.mean) @ columns
    effect = units @ descriptor_means(cells, centred(cells.mean, templates)) @ columns
    variance = factors @ total
    if own_variance is not None:
        variance = np.maximum(own_variance(templates, units, columns), variance)
    error = np.sqrt(variance)
    inverse = np.divide(1.0, error, out=np.zeros_like(error), where=error > 1e-9).astype(np.float32)
    z = effect * inverse
    sampler = sampler or partial(permutation_sampler, cells)
    pilot, null = (
        null_z(effects_under_null(cells, templates, n, stream, sampler), units, columns, inverse)
        for n, stream in ((min(draws, PILOT), np.random.default_rng(rng.integers(1 << 63))), (draws, rng))
    )
    scale = balancing_scale(pilot, kinds, z.shape[1])
    p, p_family, critical, widest = p_values(null, draws, scale, z, kinds)
    p[inverse == 0] = 1.0
    ratio = variance_ratio or (lambda place, effects: bernoulli_ratio((mean - effect)[place], effects))
    shrunk, low, high = shrunk_effects(effect, factors @ within, kinds, ratio)
    if (shown := p_family <= LEVEL).any():
        threshold = min(critical, float(np.abs(z / scale)[shown].min())) * scale * error
        found = intervals_if_shown(effect, factors @ within, ratio, threshold)
        low = np.where(shown, np.minimum(found[0], low), low)
        high = np.where(shown, np.maximum(found[1], high), high)
    q = scipy.stats.false_discovery_control(p, axis=None).reshape(p.shape)
    at_effect = error * np.sqrt(ratio(..., effect))
    at_most = np.abs(effect) + ONE_SIDED * at_effect
    at_least = np.maximum(np.abs(effect) - widest * np.fmax(1.0, at_effect / max(error.max(), TINY)), 0)
    error[inverse == 0], detectable = np.nan, error
    for _ in range(DETECTABLE_STEPS):  # the variance depends on the size of the effect
        at_size = np.sqrt(ratio(..., detectable)) * error
        tested = error  # the standard error by which the test divides; with own_variance it grows with the effect
        if own_variance is not None:
            tested = np.hypot(at_size, detectable * np.sqrt(factors.sum(axis=1, keepdims=True)))
        detectable = critical * scale * tested + scipy.stats.norm.ppf(POWER) * at_size
    return Effects(mean, effect, z, p, p_family, q, shrunk, low, high, detectable, at_most, at_least)


def shrunk_effects(
    effect: np.ndarray, variance: np.ndarray, kinds: list[slice], variance_ratio: VarianceRatio
) -> np.ndarray:
    """Return the shrunk effects, and bounds that cover 95 % on average over all effects (`shrink`), (3, u, c).

    `variance` is the pooled sampling variance of each effect, (u, c); `kinds` are the units of each kind.
    """
    result = np.empty((3, *effect.shape))
    for kind in kinds:
        for column in range(effect.shape[1]):
            ratio = partial(variance_ratio, (kind, [column]))
            result[:, kind, column] = shrink(effect[kind, column], variance[kind, column], variance_ratio=ratio)
    return result


def intervals_if_shown(
    effect: np.ndarray, variance: np.ndarray, variance_ratio: VarianceRatio, threshold: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the bounds of intervals that cover 95 to 97.5 % of true effects *given that they are shown*, (u, c) each.

    An effect x is shown if |x| ≥ threshold, so chance helped it if it is hardly larger. With a normal error of variance
    v(θ), let x > 0. The bound toward 0 is the θ for which P(X ≥ x | X ≥ threshold) is 2.5 % (Zhong and Prentice 2008,
    "Bias-reduced estimators and confidence intervals for odds ratios in genome-wide association studies"), but not
    below 0, since the family-wise error covers the sign. The outer bound is x + 1.96 √v(x): selection by a large x only
    makes it safer. Neither bound depends on the distribution of true effects (`python -m benchmarks.effects`).
    """
    size, low, high = np.abs(effect), np.zeros_like(effect), np.abs(effect)
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        error = np.sqrt(np.fmax(variance * variance_ratio(..., np.sign(effect) * middle), TINY))
        tail = scipy.special.log_ndtr((middle - size) / error) - scipy.special.log_ndtr((middle - threshold) / error)
        low, high = np.where(tail < math.log(TAILS[0]), middle, low), np.where(tail < math.log(TAILS[0]), high, middle)
    outer = size + Z * np.sqrt(variance * variance_ratio(..., effect))
    return np.where(effect > 0, low, -outer), np.where(effect > 0, outer, -low)


def bernoulli_variance(p: np.ndarray) -> np.ndarray:
    """Return p (1 − p) of probabilities p, which are first clipped to [1e-6, 0.5]."""
    p = np.clip(p, 1e-6, 0.5)
    return p * (1 - p)


def bernoulli_ratio(average: np.ndarray, effect: np.ndarray) -> np.ndarray:
    """Return the variance of a style with the probability average + effect over its variance at the average, or 1."""
    return np.maximum(bernoulli_variance(average + effect) / bernoulli_variance(average), 1.0)


def centred(means: np.ndarray, templates: list[np.ndarray]) -> np.ndarray:
    """Return each cell's mean minus the average of the means of all cells of the same template, (k, c)."""
    result = np.empty_like(means)
    for chosen in templates:
        result[chosen] = means[chosen] - means[chosen].mean(axis=0)
    return result


def descriptor_means(cells: Cells, values: np.ndarray) -> np.ndarray:
    """Return, for each descriptor, the mean of the cells' values over the descriptor's templates, (D, c)."""
    return sum_by(cells.descriptor, values) / np.bincount(cells.descriptor)[:, None]


def contrast_factors(cells: Cells, templates: list[np.ndarray], units: np.ndarray) -> np.ndarray:
    """Return Σ_{j in t} K_j² / N_j of each unit and template t, (u, T), the factor of S²_t in Var(e)."""
    coefficients = (contrast(cells, chosen, units) for chosen in templates)
    return np.stack(
        [(k**2) @ (1.0 / cells.count[chosen]) for k, chosen in zip(coefficients, templates, strict=True)], 1
    )


def contrast(cells: Cells, chosen: np.ndarray, units: np.ndarray) -> np.ndarray:
    """Return the coefficients K_j, (u, m), of the m cells of one template in the effects on u units.

    K_j = A_j − (Σ_i A_i) / m, where i runs over the cells of the template and A_j is the weight of cell j in the mean
    of the unit: the descriptor's weight in `units` over the descriptor's number of templates.
    """
    weight = 1.0 / np.bincount(cells.descriptor)
    a = units[:, cells.descriptor[chosen]] * weight[cells.descriptor[chosen]]
    return a - a.sum(axis=1, keepdims=True) / len(chosen)


def template_variances(cells: Cells, templates: list[np.ndarray], columns: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the variance of all responses to each template, and the variance within cells, (T, c) each (ddof = 1).

    If all cells of a template have one response, the first variance stands in for the second. It includes bias, so
    that effects are shrunk more.
    """
    total, within = (np.zeros((len(templates), columns.shape[1])) for _ in range(2))
    for number, chosen in enumerate(templates):
        n, mean = int(cells.count[chosen].sum()), cells.mean[chosen] @ columns
        average = np.average(mean, axis=0, weights=cells.count[chosen])
        for block in cells.blocks(chosen):
            rows = block.rows @ columns
            total[number] += ((rows - average) ** 2).sum(axis=0)
            within[number] += ((rows - np.repeat(cells.mean[block.cells] @ columns, block.count, axis=0)) ** 2).sum(
                axis=0
            )
        total[number] /= max(n - 1, 1)
        within[number] = within[number] / (n - len(chosen)) if n > len(chosen) else total[number]
    return total, within


def effects_under_null(
    cells: Cells,
    templates: list[np.ndarray],
    draws: int,
    rng: np.random.Generator,
    sampler: Sampler,
    most: int | None = None,
) -> Iterator[np.ndarray]:
    """Yield the effects on descriptors in batches of at most `most` draws from the null hypothesis, (b, D, s) float32.

    Each template has a separate stream of random numbers, so that the batch size does not change the draws. Each call
    of the function that `sampler` returns for a template's m cells and stream returns the cells' means, (m, s) float32.
    """
    streams, descriptors, styles = rng.spawn(len(templates)), int(cells.descriptor.max()) + 1, cells.mean.shape[1]
    weight = (1.0 / np.bincount(cells.descriptor)).astype(np.float32)
    size = most or max(1, NUMBERS_IN_BATCH // (descriptors * styles))
    for start in range(0, draws, size):
        effects = np.zeros((min(size, draws - start), descriptors, styles), dtype=np.float32)
        for chosen, stream in zip(templates, streams, strict=True):
            sample, of_cell = sampler(chosen, stream), cells.descriptor[chosen]
            for drawn in effects:
                mean = sample()
                drawn[of_cell] += (mean - mean.mean(axis=0)) * weight[of_cell, None]
        yield effects


def averaging_matrix(count: np.ndarray) -> "scipy.sparse.csr_array":
    """Return the matrix (m, n) whose product with n rows sorted by cell is the mean of each of m cells, float32."""
    weight = np.repeat(1.0 / count, count).astype(np.float32)
    rows, ends = np.arange(count.sum(), dtype=np.int32), np.append(0, np.cumsum(count))
    return scipy.sparse.csr_array((weight, rows, ends), shape=(len(count), len(rows)))


def permutation_sampler(cells: Cells, chosen: np.ndarray, stream: np.random.Generator) -> Callable[[], np.ndarray]:
    """Return a function that returns the means of a template's cells after a new permutation of the responses."""
    rows, average = cells.responses(chosen).astype(np.float32), averaging_matrix(cells.count[chosen])

    def sample() -> np.ndarray:
        average.indices[:] = stream.permutation(len(rows))
        return average @ rows

    return sample


def null_z(
    draws: Iterable[np.ndarray], units: np.ndarray, columns: np.ndarray, inverse_error: np.ndarray
) -> Iterator[tuple[np.ndarray, float]]:
    """Yield |z| of all effects, (u, c), and the largest |effect| of a descriptor on a style, in each draw.

    `draws` are batches of effects, (b, D, s); `units`, (u, D), and `columns`, (s, c), are weights of descriptors and of
    styles, and `inverse_error` is 1 / standard error, 0 where undefined.
    """
    groups, clusters = units[units.shape[1] :].astype(np.float32), columns[:, len(columns) :].astype(np.float32)
    for batch in draws:
        for effects in batch:
            of_units = np.concatenate([effects, groups @ effects])
            null = np.abs(np.concatenate([of_units, of_units @ clusters], axis=1) * inverse_error)
            yield null, float(np.abs(effects).max())


def balancing_scale(draws: Iterable[tuple[np.ndarray, float]], kinds: list[slice], columns: int) -> np.ndarray:
    """Return the mean of the largest 5 % of the draws' largest |z| of each kind and column, (u, c); 1 without draws."""
    largest = np.array([[null[kind].max(axis=0) for kind in kinds] for null, _ in draws])
    tail = np.sort(largest, axis=0)[-1 - len(largest) // 20 :].mean(axis=0) if len(largest) else 0.0
    scale = np.broadcast_to(np.where(tail > 0, tail, 1.0), (len(kinds), columns)).astype(np.float32)
    return np.repeat(scale, [kind.stop - kind.start for kind in kinds], axis=0)


def p_values(
    draws: Iterable[tuple[np.ndarray, float]], n_draws: int, scale: np.ndarray, z: np.ndarray, kinds: list[slice]
) -> tuple[np.ndarray, np.ndarray, float, float]:
    """Return the p-value of each effect alone and adjusted for all effects, (u, c) each, and two critical values.

    They are the 95 % quantiles of the largest |z| / scale and of the largest |effect| of a descriptor on a style under
    the null hypothesis. `draws` is the result of `null_z`.
    """
    scaled = np.abs(z) / scale
    order = np.argsort(-scaled, axis=None, kind="stable")
    observed = (scaled.ravel()[order] * (1 - 1e-5)).astype(np.float32)  # values that differ by rounding are equal
    as_large, largest, widest = np.zeros(z.size, dtype=np.int64), [], []
    bins = MAX_Z * BINS_PER_Z
    counts, offset = np.zeros((len(kinds), z.shape[1], bins), dtype=np.int64), np.arange(z.shape[1]) * bins
    for null, size in draws:
        successive = np.maximum.accumulate((null / scale).ravel()[order][::-1])[::-1]
        as_large += successive >= observed
        largest.append(float(successive[0]))
        widest.append(size)
        place = np.minimum(null * BINS_PER_Z, bins - 1).astype(np.int64) + offset
        for count, kind in zip(counts, kinds, strict=True):
            count += np.bincount(place[kind].ravel(), minlength=count.size).reshape(count.shape)
    p_family = np.empty(z.size)
    p_family[order] = np.maximum.accumulate((as_large + 1) / (n_draws + 1))
    p, column = np.ones_like(z), np.arange(z.shape[1])
    for count, kind in zip(counts, kinds, strict=True):
        above = np.cumsum(count[:, ::-1], axis=1)[:, ::-1]  # number of values in this bin or a higher bin
        place = np.minimum(np.abs(z[kind]) * BINS_PER_Z, bins - 1).astype(np.int64)
        p[kind] = (above[column, place] + 1) / (n_draws * (kind.stop - kind.start) + 1)
    quantiles = (np.quantile(it or [np.inf], 1 - LEVEL, method="higher") for it in (largest, widest))
    return p, p_family.reshape(z.shape), *map(float, quantiles)
