"""Jackknife standard errors and intervals, computed by leaving out one unit at a time (Arvesen 1969)."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy

from evenhand.evaluation.statistics.intervals import Interval, interval_around, student_quantile

ROUNDING = 1e-18  # variances below this are rounding errors of equal numbers


@dataclass(frozen=True)
class JackknifeError:
    """Standard error of a statistic, 0 if its value is the same whichever unit is left out; and degrees of freedom."""

    value: float
    freedom: float

    def interval(self, value: float, bounds: Interval) -> Interval:
        """Return the 95 % interval of the statistic by Student's t, clipped to the bounds."""
        half = float(student_quantile(self.freedom)) * self.value
        return interval_around(value, half, bounds)

    def p_value(self, value: float) -> float:
        """Return the two-sided p-value of the t-test that the true value is 0."""
        return 2 * float(scipy.stats.t.sf(abs(value) / self.value, self.freedom))


def jackknife_error(without: Sequence[np.ndarray]) -> JackknifeError:
    """Return the jackknife standard error of a statistic.

    Arvesen (1969), "Jackknifing U-statistics": the square root of the sum over strata of (n − 1)/n Σ (θ₋ᵢ − mean)²,
    with θ₋ᵢ the statistic without unit i of a stratum of n units. Degrees of freedom: the number of units minus the
    number of strata.
    `without` has the values of each stratum, NaN where undefined; strata of one unit are ignored.

    >>> jackknife_error([np.array([0.0, 1.0]), np.array([0.5])])  # ½ (¼ + ¼)
    JackknifeError(value=0.5, freedom=1)
    """
    variance = 0.0
    freedom = 0
    for of_stratum in without:
        values = of_stratum[np.isfinite(of_stratum)]
        n = len(values)
        if n > 1:
            variance += (n - 1) / n * float(((values - values.mean()) ** 2).sum())
            freedom += n - 1
    error = math.sqrt(variance) if variance > ROUNDING else 0.0
    return JackknifeError(error, freedom)
