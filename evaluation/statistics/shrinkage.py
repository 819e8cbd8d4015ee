"""Shrinkage of many estimates toward 0, against the selection bias of the largest estimate (the winner's curse).

Estimates x_i of h true values θ_i have known sampling variances v_i: x_i | θ_i ~ N(θ_i, v_i). The true values come
from one distribution around 0, θ_i ~ τ · t_ν: most true values are small, and the smaller ν is, the larger a few true
values may be. The h estimates determine the scale τ and the degrees of freedom ν, which have flat priors on a grid
(Gelman 2006, "Prior distributions for variance parameters in hierarchical models", §5.2). The posterior averages over τ
instead of using one estimate of τ, so that intervals keep a width where τ may be 0, as in Morris (1983), "Parametric
empirical Bayes inference".

Student's t is a mixture of normal distributions, so the prior and every posterior are mixtures of normal distributions.
The sampling variance may depend on the true value, as a share's does: each component of a posterior has the variance at
its mean, so that an effect that needs a large variance to be compatible with 0 is not shrunk by this variance.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import scipy

FREEDOMS = (1, 2, 8)  # ν: from a few very large values among many small ones to nearly normal ones
SCALES = 25  # grid size: values of τ
VARIANCES = 40  # grid size: variances of the prior
VARIANCE_STEPS = 4


@dataclass(frozen=True)
class Prior:
    """The distribution of true values: a mixture of m normals of mean 0, with variances and weights, (m,) each."""

    variances: np.ndarray
    weights: np.ndarray


def fit_prior(estimates: np.ndarray, variances: np.ndarray) -> Prior:
    """Return the distribution of the true values of h estimates, (h,), with known sampling variances, (h,).

    Estimates of variance 0 are excluded. If no estimate is left, the distribution is N(0, 1), which is wide relative to
    effects.
    """
    is_noisy = variances > 0
    x = estimates[is_noisy]
    v = variances[is_noisy]
    if not len(x):
        return Prior(np.ones(1), np.ones(1))
    noise = np.sqrt(np.median(v))
    largest = max(4 * noise, 3 * np.abs(x).max())
    tau = np.append(0.02 * noise, np.geomspace(0.05 * noise, largest, SCALES - 1))
    grid = np.geomspace(0.005 * noise, 10 * largest, VARIANCES) ** 2
    edges = np.concatenate([[0.0], np.sqrt(grid[1:] * grid[:-1]), [np.inf]])
    with np.errstate(divide="ignore"):  # the variances of the normals in τ · t_ν are ν τ² / χ²_ν
        scaled = tau[:, None] ** 2 / edges
        below = np.stack([scipy.special.chdtrc(freedom, freedom * scaled) for freedom in FREEDOMS])
    mixtures = np.diff(below, axis=2)  # (ν, τ, variance)
    density = mixtures @ _normal_density(x, v + grid[:, None])  # (ν, τ, estimate)
    with np.errstate(divide="ignore"):  # a scale far too small has density 0
        log_posterior = np.log(density).sum(axis=2) + np.log(np.gradient(tau))
    posterior = np.exp(log_posterior - log_posterior.max())
    weights = np.tensordot(posterior, mixtures, axes=2)
    return Prior(grid, weights / weights.sum())


def shrink(
    estimates: np.ndarray,
    variances: np.ndarray,
    prior: Prior | None = None,
    variance_ratio: Callable[[np.ndarray], np.ndarray] = np.ones_like,
) -> np.ndarray:
    """Return the posterior mean of h true values, (h,). An estimate of variance 0 is returned without shrinkage.

    Args:
        estimates, variances: the unbiased estimates x and their sampling variances v, (h,) each.
        prior: the distribution of true values; None: `fit_prior` of the estimates and variances.
        variance_ratio: function of true values, (h, m), that returns the sampling variances at these, over `variances`.

    The largest estimate is reduced, and small estimates move toward 0:

    >>> mean = shrink(np.array([3.0, -0.5, 0.2, 0.1, -0.3, 0.4]), np.ones(6))
    >>> bool(0 < mean[0] < 3), bool(abs(mean[1]) < 0.5)
    (True, True)
    """
    if prior is None:
        prior = fit_prior(estimates, variances)
    is_known = variances <= 0
    x = estimates[:, None]
    v = np.where(is_known, 1.0, variances)[:, None]
    means = np.zeros((len(x), len(prior.variances)))
    at_mean = v
    for _ in range(VARIANCE_STEPS):
        at_mean = v * variance_ratio(means)
        share = prior.variances / (prior.variances + at_mean)
        means = share * x
    weight = prior.weights * _normal_density(x, prior.variances + at_mean)
    weight /= weight.sum(axis=1, keepdims=True)
    return np.where(is_known, estimates, (weight * means).sum(axis=1))


def _normal_density(x: np.ndarray, variance: np.ndarray) -> np.ndarray:
    return np.exp(-0.5 * x**2 / variance) / np.sqrt(2 * np.pi * variance)
