"""Sign test and t-test of one number per sentence pair or prompt, and the smallest effect that each test detects."""

import math
from functools import lru_cache

import numpy as np
from scipy import optimize, special, stats

from evenhand.evaluation.statistics.intervals import TAILS, student_quantile

POWER = 0.8  # customary power for the smallest detectable effect, at the two-sided 5 % level


def sign_test(signs: np.ndarray) -> float | None:
    """Return the p-value of the exact two-sided sign test of (n,) signs −1, 0, 1; zeros are dropped.

    The p-value is 1 if all signs are 0, and None for n = 0. For changes of a property that is 0 or 1 the sign test is
    McNemar's exact test (1947).
    """
    if not len(signs):
        return None
    up, down = int((signs > 0).sum()), int((signs < 0).sum())
    return float(stats.binomtest(up, up + down).pvalue) if up + down else 1.0


def t_test(values: np.ndarray, mean: float) -> float | None:
    """Return the p-value of the two-sided t-test of `mean` for (n,) values; None if the values do not vary."""
    return float(stats.ttest_1samp(values, mean).pvalue) if len(values) > 1 and np.ptp(values) > 0 else None


def reach_of_sign_test(n: int) -> float:
    """Return the smallest distance of a share from 50 % that `sign_test` on n pairs detects with 80 % power at 5 %.

    The distance is in percentage points and follows from the exact binomial distribution. It is NaN for fewer than six
    pairs, because the test of fewer pairs is never significant.

    >>> round(reach_of_sign_test(6), 2)  # all six must agree: 0.8 ** (1 / 6) − ½
    46.35
    """
    needed = int(stats.binom.isf(TAILS[0], n, 0.5)) + 1 if n else 1  # equal signs that the test needs to reject
    if needed > n:
        return math.nan
    # P(at least k of n | p) = POWER, solved for p: a binomial's tail is the distribution function of a beta.
    return 100 * (float(stats.beta.ppf(POWER, needed, n - needed + 1)) - 0.5)


def reach_of_mean(values: np.ndarray) -> float:
    """Return the smallest distance of a mean from its ideal that the t-test of (n,) values detects.

    The power is 80 % at the 5 % level. The distance is δ·sd/√n in the unit of the values, for normal values with the
    observed standard deviation sd. Student's t with n − 1 degrees of freedom and non-centrality δ exceeds the critical
    values of the test with probability 0.8 (Cohen 1988, "Statistical power analysis for the behavioral sciences",
    §2.4). δ is 2.80 for many values, 3.27 for 8 and 4.26 for 4. The result is NaN if the values do not vary.
    """
    n = len(values)
    if n < 2 or np.ptp(values) == 0:
        return math.nan
    return _non_centrality(n - 1) * float(values.std(ddof=1)) / math.sqrt(n)


@lru_cache(maxsize=4096)
def _non_centrality(freedom: int) -> float:
    """Return the distance δ of a mean from its ideal, in standard errors, that the two-sided t-test detects.

    The test has power POWER at δ. t is (z + δ) / s with z standard normal and s² = χ²_ν / ν for ν degrees of freedom.
    The power is the mean over s of Φ(δ − c s) + Φ(−δ − c s) with c the critical value, computed as an integral over
    the quantiles of s. (The function nct of SciPy 1.17 returns NaN for some δ.)
    """
    limit = float(student_quantile(freedom))
    nodes, weights = np.polynomial.legendre.leggauss(400)
    limits = limit * np.sqrt(stats.chi2.ppf((nodes + 1) / 2, freedom) / freedom)

    def short_of_power(delta: float) -> float:
        beyond = special.ndtr(delta - limits) + special.ndtr(-delta - limits)
        return float(beyond @ weights) / 2 - POWER

    return float(optimize.brentq(short_of_power, 1.0, 4 * limit, rtol=1e-9))
