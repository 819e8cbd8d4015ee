"""Intervals of ratios of two estimates, by Fieller's method."""

import math

import numpy as np

from evenhand.evaluation.statistics.intervals import Interval, student_quantile


def ratio_interval(top: float, bottom: float, covariance: np.ndarray, freedom: float) -> Interval | None:
    """Return the 95 % interval of a ratio of two expectations, or None if it is unbounded.

    Fieller (1954), "Some problems in interval estimation", Journal of the Royal Statistical Society B 16. For the
    true ratio ρ, top − ρ · bottom has expectation 0 and the variance s₁₁ − 2 ρ s₁₂ + ρ² s₂₂, with s the covariance of
    top and bottom. With t the 97.5 % quantile of Student's t, the test does not reject ρ where
    (top − ρ · bottom)² ≤ t² (s₁₁ − 2 ρ s₁₂ + ρ² s₂₂), which is

        a ρ² − 2 b ρ + c ≤ 0,   a = bottom² − t² s₂₂,   b = top · bottom − t² s₁₂,   c = top² − t² s₁₁.

    For normal estimates the set of the ρ that are not rejected contains the true ratio in 95 % of all cases. The set is

    - for a > 0, where the bottom differs significantly from 0: the interval from (b − √(b² − ac)) / a to
      (b + √(b² − ac)) / a, which contains top / bottom;
    - for a < 0 and b² > ac: all numbers outside the open interval between the two roots, unbounded on both sides;
    - for a < 0 and b² ≤ ac: all numbers;
    - for a = 0: all numbers on one side of c / 2b, or all numbers if b = 0.

    The result is None in the last three cases: the bottom may be 0, so ratios of any size agree with the data. At ρ = 0
    the inequality is c ≤ 0, so a bounded interval excludes 0 exactly where the top differs significantly from 0 by
    Student's t with the same variance and degrees of freedom.

    The coverage of 95 % counts None as containing the true ratio. Among bounded intervals alone the coverage is lower
    if the bottom is seldom significant, since the bottom is then large by chance in each of these cases. No interval
    that is always bounded has a coverage of 95 % for all true values (Gleser and Hwang 1987, "The nonexistence of
    100(1 − α) % confidence sets of finite expected diameter in errors-in-variables and related models", Annals of
    Statistics 15).

    Args:
        top, bottom: unbiased estimates.
        covariance: covariance s of (top, bottom), (2, 2), positive semidefinite.
        freedom: degrees of freedom of the estimate of the covariance; below 1 the interval is None.

    In the first example top is 2, bottom is 4, both variances are 1/t², and the covariance is 0, so a = 15, b = 8 and
    c = 3, and the interval is (8 ± √19) / 15. In the second example a < 0:

    >>> from evenhand.evaluation.statistics.intervals import Z
    >>> [round(bound, 4) for bound in ratio_interval(2.0, 4.0, np.eye(2) / Z**2, math.inf)]
    [0.2427, 0.8239]
    >>> ratio_interval(2.0, 0.9, np.eye(2) / Z**2, math.inf)  # a < 0
    """
    if not freedom >= 1:
        return None
    t = float(student_quantile(freedom))
    a, c = (
        (abs(value) - t * math.sqrt(variance)) * (abs(value) + t * math.sqrt(variance))
        for value, variance in ((bottom, float(covariance[1, 1])), (top, float(covariance[0, 0])))
    )
    if not a > 0:
        return None
    b = top * bottom - t**2 * float(covariance[0, 1])
    # The product of the roots is c / a, so the root nearer to 0 is computed as c / far and has exactly the sign of c.
    far = b + math.copysign(math.sqrt(max(b * b - a * c, 0.0)), b)
    roots = far / a, c / far if far else 0.0
    return min(*roots, top / bottom), max(*roots, top / bottom)


def covariance_from_variances(first: float, second: float, of_difference: float) -> np.ndarray:
    """Return the (2, 2) covariance matrix of two estimates from the variances of both and of the difference.

    2 Cov(x, y) = Var(x) + Var(y) − Var(x − y). Cov(x, y) is clipped to ± √(Var(x) Var(y)), which estimates may exceed,
    so that the matrix is positive semidefinite.

    >>> covariance_from_variances(4.0, 1.0, 3.0)
    array([[4., 1.],
           [1., 1.]])
    """
    largest = math.sqrt(first * second)
    covariance = min(max((first + second - of_difference) / 2, -largest), largest)
    return np.array([[first, covariance], [covariance, second]])
