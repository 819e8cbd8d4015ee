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

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from evenhand.evaluation.statistics.cells import arrange_cells, complete_descriptors
from evenhand.evaluation.statistics.intervals import percentile_interval
from evenhand.evaluation.statistics.u_statistics import descriptor_spread
from evenhand.mitigation.labelling.projection import ALPHAS, NO_BIAS, bias_values, cell_means, labels

QUANTILES = (0.30, 0.40, 0.50, 0.60, 0.70, 0.75, 0.80, 0.85, 0.90, 0.93, 0.95, 0.97, 0.99)
POOL_ROWS = 1000  # responses that stand for everybody's
DRAWS = 48  # of each noisy m_d
BOOTSTRAP = 200

# Held against 15 models tuned with these thresholds (recipes/configs/ablations/thresholds.yaml, seed 0): above this
# share every prediction came true within 0.1, below it every one was too high, by a factor of two to seven.
TRUSTED_ABOVE = 0.37


@dataclass(frozen=True)
class _Mixtures:
    """Step 1 and the draws of step 2: each descriptor's own responses and everybody's, and b of both in every draw.

    of_descriptor: the responses to each, [(n_d, S)] for D descriptors, less m̄; everybody: (P, S), less m̄.
    weight: √λ, that of a descriptor's own responses.
    projections: [(n_d, draws), (P, draws)] for each descriptor; norms: (draws,) of the directions.
    """

    of_descriptor: list[np.ndarray]
    everybody: np.ndarray
    weight: float
    projections: list[tuple[np.ndarray, np.ndarray]]
    norms: list[np.ndarray]

    def means(self) -> np.ndarray:
        """Return the mean of each mixture, (D, S)."""
        pooled = (1 - self.weight) * self.everybody.mean(axis=0)
        return np.stack([self.weight * rows.mean(axis=0) + pooled for rows in self.of_descriptor])

    def means_learned(self, alpha: int, beta: float) -> np.ndarray:
        """Return the mean of each mixture weighted by the share of draws in which a response is `no_bias`, (D, S)."""
        after = []
        for rows, projections, norms in zip(self.of_descriptor, self.projections, self.norms, strict=True):
            kept, kept_pool = ((b <= beta * norms**alpha).mean(axis=1) for b in projections)
            kept *= self.weight / len(rows)
            kept_pool *= (1 - self.weight) / len(self.everybody)
            after.append((kept @ rows + kept_pool @ self.everybody) / (kept.sum() + kept_pool.sum()))
        return np.stack(after)


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
        rows = list(_rows(vectors, template, descriptor, alphas, quantiles, np.random.default_rng(seed)))
        plan = pd.DataFrame(rows)
        agreement = plan["filtered_fgb_left"] / plan["predicted_fgb_left"]
        return plan.assign(trusted=agreement.between(0.5, 2.0) & (plan["predicted_fgb_left"] > TRUSTED_ABOVE))


def _rows(
    vectors: np.ndarray,
    template: np.ndarray,
    descriptor: np.ndarray,
    alphas: Sequence[int],
    quantiles: Sequence[float],
    rng: np.random.Generator,
) -> Iterator[dict[str, float]]:
    """Yield the plan's rows, without `trusted`."""
    means, size = cell_means(vectors, template, descriptor)
    mixtures = _mixtures(vectors, template, descriptor, means, size, rng)
    base = mixtures.means()
    n_descriptors = len(base)
    resamples = rng.multinomial(n_descriptors, np.full(n_descriptors, 1 / n_descriptors), BOOTSTRAP)
    deviations = vectors - np.nanmean(means, axis=0)[template]
    unfiltered = _pooled_spread(deviations, descriptor)
    for alpha in alphas:
        b = bias_values(vectors, template, descriptor, alpha)
        b_crossed = bias_values(vectors, template, descriptor, alpha, cross_fitted=True)
        for quantile in quantiles:
            beta = float(np.quantile(b, quantile))
            after = mixtures.means_learned(alpha, beta)
            lower, upper = percentile_interval(_spreads(after, resamples) / _spreads(base, resamples))
            kept = labels(b_crossed, float(np.quantile(b_crossed, quantile))) == NO_BIAS
            yield {
                "alpha": alpha,
                "quantile": quantile,
                "beta": beta,
                "share_labelled_bias": float((b > beta).mean()),
                "predicted_fgb_left": float(_spread(after) / _spread(base)),
                "lower": lower,
                "upper": upper,
                "filtered_fgb_left": _pooled_spread(deviations[kept], descriptor[kept]) / unfiltered,
            }


def _mixtures(
    vectors: np.ndarray,
    template: np.ndarray,
    descriptor: np.ndarray,
    means: np.ndarray,
    size: np.ndarray,
    rng: np.random.Generator,
) -> _Mixtures:
    m_d = np.nanmean(means, axis=1)
    m_bar = m_d.mean(axis=0)
    spread = descriptor_spread(complete_descriptors(arrange_cells(vectors, template, descriptor)), pooled=True)
    plain = spread.plain.value * len(m_d) / (len(m_d) - 1)
    weight = np.sqrt(np.clip(spread.corrected.value / plain, 0, 1))
    noise = _noise_covariances(vectors, template, descriptor, means, size)
    of_descriptor = _by_descriptor(vectors - m_bar, descriptor)
    everybody = vectors[rng.choice(len(vectors), min(POOL_ROWS, len(vectors)), replace=False)] - m_bar
    projections, norms = [], []
    for rows, mean, covariance in zip(of_descriptor, weight * (m_d - m_bar), noise, strict=True):
        draws = mean + rng.multivariate_normal(np.zeros(len(m_bar)), covariance, DRAWS, method="eigh")
        projections.append((rows @ draws.T, everybody @ draws.T))
        norms.append(np.linalg.norm(draws, axis=1))
    return _Mixtures(of_descriptor, everybody, weight, projections, norms)


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
