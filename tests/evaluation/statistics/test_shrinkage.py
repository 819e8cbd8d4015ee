"""Shrunk estimates: limits, symmetry, agreement with numerical integration, and coverage under the model."""

import numpy as np
import pytest
from scipy import integrate, stats

from evenhand.evaluation.statistics.shrinkage import Prior, fit_prior, shrink

RNG = np.random.default_rng(0)


def test_the_posterior_under_a_normal_prior_is_the_textbook_one():
    # θ ~ N(0, 4), x | θ ~ N(θ, 1): mean 4/5 x.
    mean = shrink(np.array([1.0, -2.0]), np.ones(2), Prior(np.array([4.0]), np.array([1.0])))
    np.testing.assert_allclose(mean, [0.8, -1.6], rtol=1e-12)


def test_the_posterior_under_a_mixture_agrees_with_numerical_integration():
    prior, x, v = Prior(np.array([0.01, 2.0]), np.array([0.7, 0.3])), 1.7, 0.5

    def joint(theta: float) -> float:
        density = sum(
            w * stats.norm.pdf(theta, 0, np.sqrt(s)) for s, w in zip(prior.variances, prior.weights, strict=True)
        )
        return density * stats.norm.pdf(x, theta, np.sqrt(v))

    total = integrate.quad(joint, -9, 9, points=[0, x])[0]
    mean = integrate.quad(lambda theta: theta * joint(theta), -9, 9, points=[0, x])[0] / total
    assert shrink(np.array([x]), np.array([v]), prior)[0] == pytest.approx(mean, rel=1e-6)


@pytest.mark.parametrize("freedom", [2, 30])
def test_shrunk_estimates_are_nearer_to_the_truth(freedom):
    theta = stats.t.rvs(freedom, size=2000, random_state=RNG)
    x = theta + RNG.normal(size=2000)
    assert ((shrink(x, np.ones(2000)) - theta) ** 2).mean() < 0.9 * ((x - theta) ** 2).mean()


def test_estimates_without_variance_stay_as_they_are():
    assert shrink(np.array([0.3, 0.0]), np.zeros(2)).tolist() == [0.3, 0.0]
    mean = shrink(np.array([0.3, 1.0, -1.0]), np.array([0.0, 1.0, 1.0]))
    assert mean[0] == 0.3 and abs(mean[1]) < 1
    assert fit_prior(np.array([1.0]), np.array([0.0])).weights.sum() == 1
