"""Which α and β to choose: a prediction of the bias left after tuning, from the labelled responses alone.

The `no_bias` responses of a bold threshold lie *beyond* the mean, on the other side than their descriptor's bias. A
model does not follow that far, and what it learns of it is less bias, not more: so the plan asks how far the labels
turn each descriptor's mean back along its own bias, the slope s, and not how far apart the means are afterwards.

1.  Shrink. The spread of the measured m_d is that of the true ones plus noise. Each descriptor's responses are
    replaced by a mixture, √λ of its own and 1 − √λ of everybody's to the same template, λ = pooled FGB* / pooled FGB:
    the mixtures' means have the spread of the true means (constrained empirical Bayes; Louis 1984).
2.  Soften. A response with style vector p is labelled `no_bias` if (p − m̄)·(m_d − m̄) ≤ β‖m_d − m̄‖^α. With m_d
    drawn many times around the shrunken mean, with its sampling covariance, that happens in a share of the draws.
3.  Compare. `after` are the means (D, S) of the mixtures weighted by that share, `base` those without weights, both
    less their mean over descriptors: s = ⟨after, base⟩ / ‖base‖². 1: nothing was filtered; 0: the kept responses know
    nothing of the bias; below 0: they lean the other way.
4.  Link. A model tuned on them keeps a share of pooled FGB* that falls with s, `fraction_left`. How fast is one number,
    the strength of a method on a model: one tuned model, the pilot, tells it (`fit_strength`).
"""

import math
from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd

from evenhand.evaluation.rows import Rows
from evenhand.evaluation.statistics.cells import Cells, arrange_cells, complete_descriptors, keep_cells
from evenhand.evaluation.statistics.covariances import sum_by
from evenhand.evaluation.statistics.intervals import percentile_interval
from evenhand.evaluation.statistics.u_statistics import descriptor_spread
from evenhand.mitigation.labelling.projection import ALPHAS, bias_values

QUANTILES = (0.30, 0.40, 0.50, 0.60, 0.70, 0.75, 0.80, 0.85, 0.90, 0.93, 0.95, 0.97, 0.99)
POOL_ROWS = 1000  # responses that stand for everybody's
N_DRAWS = 48  # of each noisy m_d
N_RESAMPLES = 200

# Fitted to 15 models tuned on the testbed by `rejection` (docs/mitigation.md): how far such a model follows the labels,
# and how reluctant it is to begin.
STRENGTH, RESERVE = 4.0, 2.0
MIN_FRACTION_LEFT = 0.02  # a pilot that left less, or nothing, has the strength of one that left this much
MAX_SLOPE = 0.95  # a pilot whose labels hardly ask for anything says nothing of how a model follows them
PILOT_SLOPE = 0.25  # about where what is left depends most on the strength, at strengths of 2 to 6


def threshold_plan(
    vectors: Rows,
    template: np.ndarray,
    descriptor: np.ndarray,
    *,
    alphas: Sequence[int] = ALPHAS,
    quantiles: Sequence[float] = QUANTILES,
    seed: int = 0,
) -> pd.DataFrame:
    """Predict, for each α and quantile of b, the share of pooled FGB* that tuning with that threshold leaves.

    Args:
        vectors: style vectors (n, S) of the responses to be labelled; template, descriptor: codes (n,).

    Returns:
        One row per (alpha, quantile): `beta`, the quantile of b; `share_labelled_bias`; `slope` s with `slope_lower`
        and `slope_upper` (95 %, bootstrap over descriptors: what a sample of other descriptors would say, not the error
        of the model behind the prediction); `predicted_drift`, ½ Σ |mean of `after` − mean of `base`|, in [0, 1]: how
        far the style of all responses together moves; and the columns of `predict_left`, with STRENGTH.
    """
    with np.errstate(divide="ignore", invalid="ignore"):  # without any bias there is no share of it: NaN
        rows = _rows(vectors, template, descriptor, alphas, quantiles, np.random.default_rng(seed))
        return predict_left(pd.DataFrame(rows))


def predict_left(plan: pd.DataFrame, strength: float = STRENGTH) -> pd.DataFrame:
    """Return the plan with what a method of that strength leaves: `predicted_fgb_left`, `lower` and `upper`."""
    columns = {"predicted_fgb_left": "slope", "lower": "slope_lower", "upper": "slope_upper"}
    return plan.assign(**{name: fraction_left(plan[of], strength) for name, of in columns.items()})


def fraction_left(slope: np.ndarray, strength: float = STRENGTH) -> np.ndarray:
    """Return the share of pooled FGB* left by a method of strength k, (1 + e^−h) / (1 + e^(k(1 − s) − h)).

    h is RESERVE. 1 where the labels ask for nothing (s = 1), falling to 0 however far they ask for more.

    >>> [round(float(fraction_left(s, strength=4)), 3) for s in (1, 0.5, 0, -1)]
    [1.0, 0.568, 0.135, 0.003]
    """
    return (1 + np.exp(-RESERVE)) / (1 + np.exp(strength * (1 - slope) - RESERVE))


def fit_strength(slope: float, left: float) -> float:
    """Return the strength k with which `fraction_left` of a pilot's slope is what it left of pooled FGB*.

    NaN where the pilot cannot tell: its labels ask for next to nothing (its slope is above LARGEST_SLOPE).

    >>> round(fit_strength(0.5, 0.568), 2)
    4.0
    """
    if not slope <= MAX_SLOPE:
        return math.nan
    odds = (1 + np.exp(-RESERVE)) / np.clip(left, MIN_FRACTION_LEFT, 1) - 1
    return float((RESERVE + np.log(odds)) / (1 - slope))


def _rows(
    vectors: Rows,
    template: np.ndarray,
    descriptor: np.ndarray,
    alphas: Sequence[int],
    quantiles: Sequence[float],
    rng: np.random.Generator,
) -> Iterator[dict[str, float]]:
    """Yield the plan's rows, without what is predicted."""
    thresholds = []
    for alpha in alphas:
        b = bias_values(vectors, template, descriptor, alpha)
        for quantile, beta in zip(quantiles, np.quantile(b, quantiles).tolist(), strict=True):
            share = float((b > beta).mean())
            thresholds.append({"alpha": alpha, "quantile": quantile, "beta": beta, "share_labelled_bias": share})
    everybody = vectors[rng.choice(len(vectors), min(POOL_ROWS, len(vectors)), replace=False)]
    cells = arrange_cells(vectors, template, descriptor, fewest=1)
    base, learned = _mixtures(cells, everybody, [(row["alpha"], row["beta"]) for row in thresholds], rng)
    n = len(base)
    resamples = rng.multinomial(n, np.full(n, 1 / n), N_RESAMPLES)
    for row, after in zip(thresholds, learned, strict=True):
        lower, upper = percentile_interval(_slopes(after, base, resamples))
        yield row | {
            "slope": float(_slopes(after, base, np.ones((1, n)))[0]),
            "slope_lower": lower,
            "slope_upper": upper,
            "predicted_drift": float(np.abs(after.mean(axis=0) - base.mean(axis=0)).sum() / 2),
        }


def _mixtures(
    cells: Cells, everybody: np.ndarray, thresholds: Sequence[tuple[int, float]], rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean of each descriptor's mixture, (D, S), and weighted by the share of draws in which a response is
    `no_bias`, for each threshold (α, β), (K, D, S): steps 1 and 2, less m̄.

    `everybody` are the responses that stand for everybody's, (P, S).
    """
    each = np.unique(cells.descriptor, return_inverse=True)[1]
    n_templates, size = np.bincount(each), np.bincount(each, cells.count)
    m_d = sum_by(each, cells.mean) / n_templates[:, None]
    m_bar = m_d.mean(axis=0)
    weight = _own_weight(cells, len(m_d))
    everybody = everybody - m_bar
    scale = 1 / (n_templates[each] * np.sqrt(np.maximum(cells.count * (cells.count - 1.0), 1)))
    own = sum_by(each, cells.mean * cells.count[:, None]) / size[:, None] - m_bar
    learned = np.empty((len(thresholds), *m_d.shape))
    for place, direction in enumerate(weight * (m_d - m_bar)):
        chosen = np.flatnonzero(each == place)
        covariance = np.zeros((len(m_bar), len(m_bar)))  # of m_d by sampling
        for block in cells.blocks(chosen):
            residual = block.deviations * block.of_rows(scale)[:, None]
            covariance += residual.T @ residual
        draws = direction + rng.multivariate_normal(np.zeros(len(m_bar)), covariance, N_DRAWS, method="eigh")
        limits = np.stack([beta * np.linalg.norm(draws, axis=1) ** alpha for alpha, beta in thresholds])
        sums, kept = _kept(everybody, draws, limits)
        sums, kept = (1 - weight) / len(everybody) * sums, (1 - weight) / len(everybody) * kept
        for block in cells.blocks(chosen):
            for total, of_block in zip((sums, kept), _kept(block.rows - m_bar, draws, limits), strict=True):
                total += weight / size[place] * of_block
        learned[:, place] = sums / kept[:, None]
    return weight * own + (1 - weight) * everybody.mean(axis=0), learned


def _own_weight(cells: Cells, n: int) -> float:
    """Return √λ, the weight of a descriptor's own responses, for n descriptors."""
    spread = descriptor_spread(complete_descriptors(keep_cells(cells, cells.count > 1)), pooled=True)
    plain = spread.plain.value * n / (n - 1)
    return float(np.sqrt(np.clip(spread.corrected.value / plain, 0, 1)))


def _kept(rows: np.ndarray, draws: np.ndarray, limits: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the sum of the rows (r, S), each by the share of draws (m, S) in which it is within the limits (K, m).

    (K, S), and the sum of the shares, (K,).
    """
    projections = rows @ draws.T
    shares = np.stack([(projections <= limit).mean(axis=1) for limit in limits])
    return shares @ rows, shares.sum(axis=1)


def _slopes(after: np.ndarray, base: np.ndarray, times: np.ndarray) -> np.ndarray:
    """Return ⟨after, base⟩ / ‖base‖² over descriptors, (b,), each of which a resample holds so many `times`, (b, D)."""
    return _products(after, base, times) / _products(base, base, times)


def _products(one: np.ndarray, other: np.ndarray, times: np.ndarray) -> np.ndarray:
    """Return the product of two sets of means (D, S), less their mean over descriptors, by resample (b,)."""
    n = times.sum(axis=1)
    return times @ (one * other).sum(axis=1) - ((times @ one) * (times @ other)).sum(axis=1) / n
