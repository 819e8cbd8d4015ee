"""The resolution of a design: the smallest spread between descriptors that is significant with 80 % power.

A spread is significant if its 95 % interval (`spread_interval`) is above 0. If the true spread is θ ≥ 0, the estimate
has mean θ and variance noise + slope · θ. For D descriptors, T templates and N responses in each cell, with V the
covariance of one response within its cell,

    noise = 2 tr(V²) / (T N)² · [1 / (D − 1) + 1 / (D T (N − 1))]       slope = 4 λ / ((D − 1) T N),

where λ is the mean variance of a response along the differences between descriptors. The first term of the noise is
from products of different cells' means, the second term from pairs of responses within a cell; both terms are exact
for pooled FGB* (`u_statistics`) and independent responses. So the smallest detectable spread falls approximately as
1 / (T N), and the square root of this spread, a descriptor's distance from the mean, as 1 / √(T N).
"""

import math
from dataclasses import dataclass

from scipy import optimize, stats

from evenhand.evaluation.statistics.intervals import skewed_quantile, student_quantile

POWER = 0.8


@dataclass(frozen=True)
class Design:
    """Numbers of descriptors and templates, and the mean number of responses to each pair of them, at least 2."""

    descriptors: int
    templates: int
    responses: float

    @property
    def noise_factor(self) -> float:
        """The variance of pooled FGB* under the null hypothesis, divided by tr(V²) of the module's docstring."""
        d, t, n = self.descriptors, self.templates, self.responses
        return 2 / (t * n) ** 2 * (1 / (d - 1) + 1 / (d * t * (n - 1)))

    @property
    def slope_factor(self) -> float:
        """The increase of the variance of pooled FGB* per unit of spread, divided by λ of the module's docstring."""
        return 4 / ((self.descriptors - 1) * self.templates * self.responses)


def smallest_detectable_spread(noise: float, slope: float, freedom: float = math.inf, power: float = POWER) -> float:
    """Return the true spread whose 95 % interval is above 0 with a probability of `power`; NaN if `noise` is 0.

    The interval is above 0 if the estimate exceeds √noise · k, with k the quantile at which `spread_interval` tests a
    spread of 0. The result is the spread θ for which √noise · k is the (1 − power) quantile of the estimate, which has
    the shifted χ² distribution of `spread_interval`.

    Args:
        noise: variance of the estimate if the spread is 0.
        slope: increase of the variance per unit of spread.
        freedom: degrees of freedom of the estimate of the noise.
        power: the probability.

    >>> round(smallest_detectable_spread(1.0, 0.0), 2)  # normal: 1.96 + 0.84
    2.8
    """
    if not noise > 0:
        return math.nan
    critical = math.sqrt(noise) * skewed_quantile(float(student_quantile(freedom)), slope / math.sqrt(noise))

    def excess(theta: float) -> float:
        variance = noise + slope * theta
        skewness = slope * (noise + 1.5 * slope * theta) / variance**1.5
        return theta + math.sqrt(variance) * skewed_quantile(float(stats.norm.ppf(1 - power)), skewness) - critical

    high = critical
    while excess(high) < 0:
        high *= 2
    return float(optimize.brentq(excess, 0.0, high, rtol=1e-9))


def rescale(noise: float, slope: float, design: Design, new: Design) -> tuple[float, float]:
    """Return the noise and slope of the design `new` from the noise and slope of `design`.

    >>> rescale(1.0, 1.0, Design(11, 5, 2), Design(11, 10, 2))[1]
    0.5
    """
    return noise * new.noise_factor / design.noise_factor, slope * new.slope_factor / design.slope_factor
