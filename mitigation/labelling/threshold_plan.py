"""The threshold plan: a prediction of the bias left after tuning for each α and β, from the labelled responses.

With a low threshold, the mean style of a descriptor's `no_bias` responses is biased in the opposite direction. A model
tuned on such responses does not reverse its bias as far. The plan therefore does not predict from the distances of the
means after filtering, but from the slope s, the remaining component of each descriptor's mean along its bias.

1.  Shrink. The variance of the measured m_d is the variance of the true means plus noise. Each descriptor's responses
    are replaced by a mixture with weight √λ of these responses and 1 − √λ of a pool of all responses,
    λ = pooled FGB* / pooled FGB. The mixtures' means have the variance of the true means (constrained empirical Bayes;
    Louis 1984).
2.  Soften. A response with style vector p is labelled `no_bias` if (p − m̄)·(m_d − m̄) ≤ β‖m_d − m̄‖^α. m_d is sampled
    repeatedly around the shrunken mean, with its sampling covariance; the weight of a response is the share of samples
    in which it is labelled `no_bias`.
3.  Compare. `after` are the means (D, S) of the mixtures with these weights, `base` the means without weights, both
    minus their mean over descriptors: s = ⟨after, base⟩ / ‖base‖². s = 1: nothing is filtered. s = 0: the `no_bias`
    responses do not depend on the descriptor. s < 0: their dependence is reversed.
4.  Link. The fraction of pooled FGB* that a tuned model retains decreases with s (`fraction_left`). Its only parameter
    is the strength of a method on a model, which is estimated from one tuned model, the pilot (`fit_strength`).
"""

import math
from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd

from evenhand.evaluation.statistics.cells import Cells, arrange_cells, complete_descriptors, select_cells, sum_by
from evenhand.evaluation.statistics.intervals import percentile_interval
from evenhand.evaluation.statistics.u_statistics import descriptor_spread
from evenhand.mitigation.labelling.projection import ALPHAS, bias_values

QUANTILES = (0.30, 0.40, 0.50, 0.60, 0.70, 0.75, 0.80, 0.85, 0.90, 0.93, 0.95, 0.97, 0.99)
POOL_ROWS = 1000  # responses in the pool of all descriptors
N_DRAWS = 48  # samples of each m_d
N_RESAMPLES = 200

# Parameters of `fraction_left`, fitted to 15 models tuned on the testbed by `rejection` (docs/mitigation.md).
STRENGTH, RESERVE = 4.0, 2.0
MIN_FRACTION_LEFT = 0.02  # smaller fractions of a pilot are clipped to this
MAX_SLOPE = 0.95  # labels with a larger slope filter too little to estimate the strength of a pilot
PILOT_SLOPE = 0.25  # about where the fraction left depends most on the strength, for strengths of 2 to 6


def threshold_plan(
    vectors: np.ndarray,
    template: np.ndarray,
    descriptor: np.ndarray,
    *,
    alphas: Sequence[int] = ALPHAS,
    quantiles: Sequence[float] = QUANTILES,
    seed: int = 0,
) -> pd.DataFrame:
    """Return the predicted fraction of pooled FGB* that remains after tuning, for each α and quantile of bias values b.

    Args:
        vectors: style vectors of the responses to be labelled, (n, S).
        template, descriptor: integer codes from 0, (n,).

    Returns:
        One row per (alpha, quantile): `beta`, the quantile of b; `share_labelled_bias`; `slope` s with `slope_lower`
        and `slope_upper` (95 %, bootstrap over descriptors, which does not cover errors of the model of the
        prediction); `predicted_drift`, ½ Σ |mean of `after` − mean of `base`|, in [0, 1], the change of the mean style
        of all responses; and the columns of `predict_left`, with STRENGTH.
    """
    with np.errstate(divide="ignore", invalid="ignore"):  # without bias, the fraction left is NaN
        rows = _rows(vectors, template, descriptor, alphas, quantiles, np.random.default_rng(seed))
        return predict_left(pd.DataFrame(rows))


def predict_left(plan: pd.DataFrame, strength: float = STRENGTH) -> pd.DataFrame:
    """Return the plan with the fraction left by a method of this strength, and with the fraction's interval.

    The columns are `predicted_fgb_left`, `lower` and `upper`.
    """
    columns = {"predicted_fgb_left": "slope", "lower": "slope_lower", "upper": "slope_upper"}
    return plan.assign(**{name: fraction_left(plan[slope], strength) for name, slope in columns.items()})


def fraction_left(slope: np.ndarray, strength: float = STRENGTH) -> np.ndarray:
    """Return the fraction of pooled FGB* left by a method of strength k, (1 + e^−h) / (1 + e^(k(1 − s) − h)).

    s is the slope and h is RESERVE. The fraction is 1 for s = 1 (labels that filter nothing), and nears 0 as s
    decreases.

    >>> [round(float(fraction_left(s, strength=4)), 3) for s in (1, 0.5, 0, -1)]
    [1.0, 0.568, 0.135, 0.003]
    """
    return (1 + np.exp(-RESERVE)) / (1 + np.exp(strength * (1 - slope) - RESERVE))


def fit_strength(slope: float, left: float) -> float:
    """Return the strength k for which `fraction_left(slope, k)` is `left`, the measured fraction of a pilot model.

    The strength is NaN if the slope exceeds MAX_SLOPE: the labels filter too little to estimate it.

    >>> round(fit_strength(0.5, 0.568), 2)
    4.0
    """
    if not slope <= MAX_SLOPE:
        return math.nan
    odds = (1 + np.exp(-RESERVE)) / np.clip(left, MIN_FRACTION_LEFT, 1) - 1
    return float((RESERVE + np.log(odds)) / (1 - slope))


def _rows(
    vectors: np.ndarray,
    template: np.ndarray,
    descriptor: np.ndarray,
    alphas: Sequence[int],
    quantiles: Sequence[float],
    rng: np.random.Generator,
) -> Iterator[dict[str, float]]:
    """Yield the rows of the threshold plan without the columns of `predict_left`."""
    thresholds = []
    for alpha in alphas:
        b = bias_values(vectors, template, descriptor, alpha)
        for quantile, beta in zip(quantiles, np.quantile(b, quantiles).tolist(), strict=True):
            share = float((b > beta).mean())
            thresholds.append({"alpha": alpha, "quantile": quantile, "beta": beta, "share_labelled_bias": share})
    pool = vectors[rng.choice(len(vectors), min(POOL_ROWS, len(vectors)), replace=False)]
    cells = arrange_cells(vectors, template, descriptor, min_count=1)
    base, weighted_means = _mixtures(cells, pool, [(row["alpha"], row["beta"]) for row in thresholds], rng)
    n = len(base)
    resamples = rng.multinomial(n, np.full(n, 1 / n), N_RESAMPLES)
    for row, after in zip(thresholds, weighted_means, strict=True):
        lower, upper = percentile_interval(_slopes(after, base, resamples))
        yield row | {
            "slope": float(_slopes(after, base, np.ones((1, n)))[0]),
            "slope_lower": lower,
            "slope_upper": upper,
            "predicted_drift": float(np.abs(after.mean(axis=0) - base.mean(axis=0)).sum() / 2),
        }


def _mixtures(
    cells: Cells, pool: np.ndarray, thresholds: Sequence[tuple[int, float]], rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean of each descriptor's mixture, (D, S), and its weighted means for K thresholds (α, β), (K, D, S).

    The means are the results of steps 1 and 2 above, minus m̄. `pool` contains responses to all descriptors, (P, S).
    """
    descriptor = np.unique(cells.descriptor, return_inverse=True)[1]
    n_templates, size = np.bincount(descriptor), np.bincount(descriptor, cells.count)
    m_d = sum_by(descriptor, cells.mean) / n_templates[:, None]
    m_bar = m_d.mean(axis=0)
    weight = _shrinkage_weight(cells, len(m_d))
    pool = pool - m_bar
    scale = 1 / (n_templates[descriptor] * np.sqrt(np.maximum(cells.count * (cells.count - 1.0), 1)))
    response_means = sum_by(descriptor, cells.mean * cells.count[:, None]) / size[:, None] - m_bar
    weighted_means = np.empty((len(thresholds), *m_d.shape))
    for index, direction in enumerate(weight * (m_d - m_bar)):
        indices = np.flatnonzero(descriptor == index)
        covariance = np.zeros((len(m_bar), len(m_bar)))  # sampling covariance of m_d
        for block in cells.blocks(indices):
            residual = block.deviations * block.per_row(scale)[:, None]
            covariance += residual.T @ residual
        draws = direction + rng.multivariate_normal(np.zeros(len(m_bar)), covariance, N_DRAWS, method="eigh")
        limits = np.stack([beta * np.linalg.norm(draws, axis=1) ** alpha for alpha, beta in thresholds])
        sums, weights = _weighted_sums(pool, draws, limits)
        sums, weights = (1 - weight) / len(pool) * sums, (1 - weight) / len(pool) * weights
        for block in cells.blocks(indices):
            block_sums, block_weights = _weighted_sums(block.rows - m_bar, draws, limits)
            sums += weight / size[index] * block_sums
            weights += weight / size[index] * block_weights
        weighted_means[:, index] = sums / weights[:, None]
    return weight * response_means + (1 - weight) * pool.mean(axis=0), weighted_means


def _shrinkage_weight(cells: Cells, n: int) -> float:
    """Return √λ, the weight of a descriptor's responses in its mixture; n is the number of descriptors."""
    spread = descriptor_spread(complete_descriptors(select_cells(cells, cells.count > 1)), pooled=True)
    plain = spread.plain.value * n / (n - 1)
    return float(np.sqrt(np.clip(spread.corrected.value / plain, 0, 1)))


def _weighted_sums(rows: np.ndarray, draws: np.ndarray, limits: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the weighted sums of `rows` (r, S) for K thresholds, (K, S), and the sums of the weights, (K,).

    The weight of a row is the share of the m `draws` (m, S) on which its projection is within the `limits` (K, m).
    """
    projections = rows @ draws.T
    shares = np.stack([(projections <= limit).mean(axis=1) for limit in limits])
    return shares @ rows, shares.sum(axis=1)


def _slopes(after: np.ndarray, base: np.ndarray, times: np.ndarray) -> np.ndarray:
    """Return the slope ⟨after, base⟩ / ‖base‖² in each of b resamples, (b,).

    `times` (b, D) is how often each resample contains each descriptor.
    """
    return _products(after, base, times) / _products(base, base, times)


def _products(one: np.ndarray, other: np.ndarray, times: np.ndarray) -> np.ndarray:
    """Return Σ_d ⟨x_d − x̄, y_d − ȳ⟩ over the descriptors d of each of b resamples, (b,).

    `one` and `other`, (D, S), have the rows x_d and y_d; x̄ and ȳ are their means in the resample. `times` (b, D) is how
    often each resample contains each descriptor.
    """
    n = times.sum(axis=1)
    return times @ (one * other).sum(axis=1) - ((times @ one) * (times @ other)).sum(axis=1) / n
