"""Analysis of variance for treatments that were all measured once in each block, such as settings with equal seeds.

Some blocks have higher values than others. Treatments are compared within blocks, so this does not change the result.
"""

import math
from dataclasses import dataclass

import numpy as np
from scipy import stats

from evenhand.evaluation.statistics.intervals import student_quantile


@dataclass(frozen=True)
class TreatmentMeans:
    """Means of k treatments over the blocks, in the unit of the values.

    Attributes:
        means: the mean of each treatment, (k,).
        half_width: half of the 95 % interval of a treatment's difference from the mean of all treatments.
        p_value: of the F test that all treatments have equal means.
    """

    means: np.ndarray
    half_width: float
    p_value: float


def compare_treatments(values: np.ndarray) -> TreatmentMeans:
    """Compare k treatments by their values in n blocks (Fisher 1935, *The Design of Experiments*, chapter IV).

    A value is modelled as the effect of its block + the effect of its treatment + independent noise with a variance σ²
    that all values share. The residuals estimate σ² with (n − 1)(k − 1) degrees of freedom; a treatment's difference
    from the mean of all treatments has the variance σ² (k − 1) / (k n). Without any noise, the p-value is 0, or 1 for
    equal means.

    Args:
        values: a row for each block, a column for each treatment, (n, k), all finite.

    Raises:
        ValueError: fewer than two blocks or treatments.

    In the example, the treatments differ by 1 and 3, and the block by 10 (SciPy's paired t-test has the same p-value):

    >>> compared = compare_treatments(np.array([[0.0, 1.0], [10.0, 13.0]]))
    >>> compared.means.tolist(), round(compared.p_value, 3)
    ([5.0, 7.0], 0.295)
    """
    values = np.asarray(values, dtype=np.float64)
    n, k = values.shape
    if n < 2 or k < 2:
        raise ValueError(f"values: {n} blocks of {k} treatments; a comparison needs two of each.")
    means = values.mean(axis=0)
    residuals = values - values.mean(axis=1, keepdims=True) - means + values.mean()
    freedom = (n - 1) * (k - 1)
    variance = float((residuals**2).sum()) / freedom
    between = n * float(means.var(ddof=1))
    rounding = n * k * np.finfo(float).eps * float(np.square(values).max())
    is_exact = variance <= rounding
    p_value = float(between <= rounding) if is_exact else float(stats.f.sf(between / variance, k - 1, freedom))
    return TreatmentMeans(means, float(student_quantile(freedom)) * math.sqrt(variance * (k - 1) / (k * n)), p_value)
