"""Which α and β to choose: a prediction of the bias left after tuning, from the labelled responses alone.

Scoring the `no_bias` responses as they are misleads for low thresholds: a descriptor's m_d is noisy, the labels follow
the noise, and so the filtered responses spread *against* the noise, which no model learns. The plan therefore
predicts what a model can learn, the expected effect of the labels:

1.  Shrink. The spread of the measured m_d is that of the true ones plus noise. Each descriptor's responses are
    replaced by a mixture, √λ of its own and 1 − √λ of everybody's to the same template, λ = pooled FGB* / pooled FGB:
    the mixtures' means have the spread of the true means (constrained empirical Bayes; Louis 1984).
2.  Soften. A response with style vector p is labelled `no_bias` if (p − m̄)·(m_d − m̄) ≤ β‖m_d − m̄‖^α. With m_d
    drawn many times around the shrunken mean, with its sampling covariance, that happens in a share of the draws.
3.  The tuned model answers, under the tag, like the mixture weighted by that share. Its spread over descriptors,
    relative to the mixture's, is the predicted share of pooled FGB* that is left.
"""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from evaluation.statistics import arrange_cells, complete_descriptors, descriptor_spread
from mitigation.projection import ALPHAS, bias_values, cell_means, labels

QUANTILES = (0.30, 0.40, 0.50, 0.60, 0.70, 0.75, 0.80, 0.85, 0.90, 0.93, 0.95, 0.97, 0.99)
POOL_ROWS = 1000  # responses that stand for everybody's
DRAWS = 48  # of each noisy m_d
BOOTSTRAP = 200

# Held against 15 models tuned with these thresholds (recipes/configs/ablations/thresholds.yaml, seed 0): above this
# share every prediction came true within 0.1, below it every one was too high, by a factor of two to seven.
TRUSTED_ABOVE = 0.37

TRUST = (
    "Predicted from the labelled responses alone. Held against models tuned on the testbed, predictions above "
    f"{TRUSTED_ABOVE} came true within 0.1, and lower ones were too high: a model evens out more than the responses "
    "that it is tuned on. Trusted is what lies above, if the plain score of the no_bias responses agrees within a "
    "factor of two; take anything lower for an upper bound, and measure."
)


def threshold_plan(
    vectors: np.ndarray,
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
        One row per (alpha, quantile): `beta`, the quantile of b; `share_labelled_bias`; `predicted_fgb_left` with
        `lower` and `upper` (95 %, bootstrap over descriptors: what a sample of other descriptors would say, not the
        error of the model behind the prediction); `filtered_fgb_left`, what the `no_bias` responses alone score
        with labels from cross-fitted directions; `trusted`, whether the prediction is above TRUSTED_ABOVE and within
        a factor of two of that.
    """
    with np.errstate(divide="ignore", invalid="ignore"):  # without any bias there is no share of it: NaN
        return _threshold_plan(vectors, template, descriptor, alphas, quantiles, np.random.default_rng(seed))


def _threshold_plan(
    vectors: np.ndarray,
    template: np.ndarray,
    descriptor: np.ndarray,
    alphas: Sequence[int],
    quantiles: Sequence[float],
    rng: np.random.Generator,
) -> pd.DataFrame:
    spread = descriptor_spread(complete_descriptors(arrange_cells(vectors, template, descriptor)), pooled=True)
    n_descriptors = int(descriptor.max()) + 1
    means, size = cell_means(vectors, template, descriptor)
    m_d = np.nanmean(means, axis=1)
    m_bar, template_means = m_d.mean(axis=0), np.nanmean(means, axis=0)
    plain = spread.plain.value * n_descriptors / (n_descriptors - 1)
    own_weight = np.sqrt(np.clip(spread.corrected.value / plain, 0, 1))
    shrunken = own_weight * (m_d - m_bar)
    noise = _noise_covariances(vectors, template, descriptor, means, size)
    own = _by_descriptor(vectors - m_bar, descriptor)
    pool = vectors[rng.choice(len(vectors), min(POOL_ROWS, len(vectors)), replace=False)] - m_bar
    base = np.stack([own_weight * rows.mean(axis=0) + (1 - own_weight) * pool.mean(axis=0) for rows in own])
    # What a response's b would be for each drawn direction: (rows, draws) for a descriptor's own and for the pool.
    projections, norms = [], []
    for d, rows in enumerate(own):
        draws = shrunken[d] + rng.multivariate_normal(np.zeros(len(m_bar)), noise[d], DRAWS, method="eigh")
        projections.append((rows @ draws.T, pool @ draws.T))
        norms.append(np.linalg.norm(draws, axis=1))
    unfiltered = _pooled_spread(vectors - template_means[template], descriptor)
    resamples = rng.multinomial(n_descriptors, np.full(n_descriptors, 1 / n_descriptors), BOOTSTRAP)

    table = []
    for alpha in alphas:
        b = bias_values(vectors, template, descriptor, alpha)
        b_crossed = bias_values(vectors, template, descriptor, alpha, cross_fitted=True)
        for quantile in quantiles:
            beta = float(np.quantile(b, quantile))
            after = np.empty_like(base)
            for d, rows in enumerate(own):
                kept_own, kept_pool = ((b_drawn <= beta * norms[d] ** alpha).mean(axis=1) for b_drawn in projections[d])
                kept_own *= own_weight / len(rows)
                kept_pool *= (1 - own_weight) / len(pool)
                after[d] = (kept_own @ rows + kept_pool @ pool) / (kept_own.sum() + kept_pool.sum())
            ratios = _spreads(after, resamples) / _spreads(base, resamples)
            kept = labels(b_crossed, float(np.quantile(b_crossed, quantile))) == "no_bias"
            filtered = _pooled_spread(vectors[kept] - template_means[template[kept]], descriptor[kept])
            table.append(
                {
                    "alpha": alpha,
                    "quantile": quantile,
                    "beta": beta,
                    "share_labelled_bias": float((b > beta).mean()),
                    "predicted_fgb_left": float(_spread(after) / _spread(base)),
                    "lower": float(np.quantile(ratios, 0.025)),
                    "upper": float(np.quantile(ratios, 0.975)),
                    "filtered_fgb_left": filtered / unfiltered,
                }
            )
    plan = pd.DataFrame(table)
    agreement = plan["filtered_fgb_left"] / plan["predicted_fgb_left"]
    return plan.assign(trusted=agreement.between(0.5, 2.0) & (plan["predicted_fgb_left"] > TRUSTED_ABOVE))


def _noise_covariances(
    vectors: np.ndarray, template: np.ndarray, descriptor: np.ndarray, means: np.ndarray, size: np.ndarray
) -> np.ndarray:
    """Return the sampling covariance of each m_d, (D, S, S)."""
    n = size[descriptor, template]
    n_templates = (size > 0).sum(axis=1)[descriptor]
    scale = 1 / (n_templates * np.sqrt(np.maximum(n * (n - 1.0), 1)))
    residual = (vectors - means[descriptor, template]) * scale[:, None]
    return np.stack([part.T @ part for part in _by_descriptor(residual, descriptor)])


def _by_descriptor(rows: np.ndarray, descriptor: np.ndarray) -> list[np.ndarray]:
    order = np.argsort(descriptor, kind="stable")
    return np.split(rows[order], np.cumsum(np.bincount(descriptor))[:-1])


def _pooled_spread(deviations: np.ndarray, descriptor: np.ndarray) -> float:
    """Return pooled FGB* of vectors freed of their template's mean, where filtering has emptied some cells."""
    one_template = np.zeros_like(descriptor)
    means, size = cell_means(deviations, one_template, descriptor)
    squares, _ = cell_means(deviations**2, one_template, descriptor)
    enough = size[:, 0] >= 2
    noise = (squares - means**2)[enough, 0].sum(axis=1) / (size[enough, 0] - 1)
    return float(_spread(means[enough, 0]) - noise.mean())


def _spread(means: np.ndarray) -> float:
    return means.var(axis=0, ddof=1).sum()


def _spreads(means: np.ndarray, times: np.ndarray) -> np.ndarray:
    """Return the spread of each resample, given how many `times` (b, D) it holds each descriptor."""
    n = times.shape[1]
    return (times @ (means**2).sum(axis=1) - ((times @ means) ** 2).sum(axis=1) / n) / (n - 1)
