"""Jackknife: the standard error of a statistic of stratified units, by leaving out one unit at a time."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from evenhand.evaluation.statistics.intervals import Interval, interval_around, student_quantile

ROUNDING = 1e-18  # variances below this are rounding errors of equal numbers


@dataclass(frozen=True)
class JackknifeError:
    """Standard error of a statistic, 0 if no unit changes it, and the degrees of freedom of this estimate."""

    value: float
    freedom: int

    def interval(self, value: float, bounds: Interval) -> Interval:
        """Return the 95 % interval of the statistic by Student's t, cut to the bounds."""
        return interval_around(value, float(student_quantile(self.freedom)) * self.value, bounds)

    def p_value(self, value: float) -> float:
        """Return the two-sided p-value of a true value of 0 by Student's t."""
        return 2 * float(stats.t.sf(abs(value) / self.value, self.freedom))


def jackknife_error(without: Sequence[np.ndarray]) -> JackknifeError:
    """Return the jackknife standard error of a statistic.

    Arvesen (1969), "Jackknifing U-statistics": Σ over strata of (n − 1)/n Σ (θ₋ᵢ − mean)². Degrees of freedom:
    the number of units minus the number of strata.

    Args:
        without: for each stratum, the statistic without each of its units in turn, (n,); NaN if undefined. Strata of
            one unit are ignored.

    >>> jackknife_error([np.array([0.0, 1.0]), np.array([0.5])])  # ½ (¼ + ¼)
    JackknifeError(value=0.5, freedom=1)
    """
    variance, freedom = 0.0, 0
    for values in without:
        values = values[np.isfinite(values)]
        n = len(values)
        if n > 1:
            variance += (n - 1) / n * float(((values - values.mean()) ** 2).sum())
            freedom += n - 1
    return JackknifeError(math.sqrt(variance) if variance > ROUNDING else 0.0, freedom)
