"""Numbers of descriptors, templates and responses needed for an interval width or for a significant reduction.

A finished measurement (the pilot) has an estimate θ of pooled FGB* (Full Generation Bias without sampling noise, with
descriptors' means over all templates). The variance of the estimate is noise + slope · θ. The noise and the slope of
other designs follow by `resolution.rescale`, under the assumption that responses vary and descriptors differ as in the
pilot.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from scipy import stats

from evenhand.evaluation.statistics.cells import Cells
from evenhand.evaluation.statistics.intervals import spread_interval, student_quantile
from evenhand.evaluation.statistics.resolution import POWER, Design, rescale, smallest_detectable_spread
from evenhand.evaluation.statistics.u_statistics import Estimate

LEVERS = ("responses", "templates", "descriptors")
MAX_FACTOR = 10_000  # maximum multiple of the pilot's number in the search for a design


@dataclass(frozen=True)
class Pilot:
    """The design of a finished measurement of n responses, and the measured estimate of pooled FGB*."""

    design: Design
    estimate: Estimate

    @property
    def n(self) -> int:
        """The number of responses of the pilot."""
        return count_responses(self.design)

    def predict(self, design: Design) -> Estimate:
        """Return the pilot's estimate with the variance that another design is expected to have."""
        noise, slope = rescale(self.estimate.noise, self.estimate.slope or 0.0, self.design, design)
        freedom = self.estimate.freedom * _freedom_factor(design) / _freedom_factor(self.design)
        variance = noise + slope * max(self.estimate.value, 0.0)
        return Estimate(self.estimate.value, variance, noise, slope, freedom)


def design_of(cells: Cells) -> Design:
    """Return the numbers of descriptors and templates of the cells, and the mean number of responses in a cell."""
    k = len(cells.count)
    n_descriptors = len(set(cells.descriptor.tolist()))
    return Design(n_descriptors, len(set(cells.template.tolist())), cells.n / k if k else math.nan)


def count_responses(design: Design) -> int:
    """Return the total number of responses of a design: descriptors × templates × responses to each pair."""
    return round(design.descriptors * design.templates * design.responses)


def interval_width(estimate: Estimate) -> float:
    """Return the width of the 95 % interval of an estimated spread."""
    low, high = spread_interval(estimate.value, estimate.noise, estimate.slope or 0.0, estimate.freedom)
    return high - low


def shows_reduction(estimate: Estimate, fraction: float) -> bool:
    """Return whether a reduction of the spread by `fraction` is significant with at least 80 % power.

    A reduction is significant if the 95 % interval of the difference between the runs before and after is below 0. The
    noise, slope and degrees of freedom of `estimate` hold for both runs. The errors of the runs are independent, so the
    variances before and after add up.
    """
    return shows_difference(estimate, (1 - fraction) * max(estimate.value, 0.0))


def shows_difference(estimate: Estimate, after: float, factor: float = 1.0) -> bool:
    """Return whether the difference between a spread and a multiple of another is significant with at least 80 % power.

    The variances of the runs add up, as in `shows_reduction`.

    Args:
        estimate: the spread before.
        after: the spread after.
        factor: the spread after is compared with `factor` × the spread before.
    """
    before = max(estimate.value, 0.0)
    slope = (estimate.slope or 0.0) * (max(after, 0.0) + factor**2 * before)
    return is_significant(after - factor * before, (1 + factor**2) * estimate.noise + slope, estimate.freedom)


def is_significant(difference: float, variance: float, freedom: float) -> bool:
    """Return whether a true difference from 0 is significant with at least 80 % power.

    >>> is_significant(2.81, 1.0, math.inf), is_significant(-2.79, 1.0, math.inf)  # 1.96 + 0.84
    (True, False)
    """
    quantile = float(student_quantile(freedom)) + float(stats.norm.ppf(POWER))
    return abs(difference) >= quantile * math.sqrt(variance)


def detectable_spread(estimate: Estimate) -> float:
    """Return the smallest true spread that is significantly above 0 with 80 % power."""
    return smallest_detectable_spread(estimate.noise, estimate.slope or 0.0, estimate.freedom)


def smallest_design(pilot: Pilot, lever: str, is_enough: Callable[[Estimate], bool]) -> Design | None:
    """Return the smallest design that is enough, varying only one number of the pilot's design.

    The result is None if about MAX_FACTOR times the pilot's number is not enough.

    Args:
        pilot: the finished measurement.
        lever: the number that varies, one of LEVERS: responses to each pair of descriptor and template, templates, or
            descriptors.
        is_enough: function that returns whether a predicted estimate is good enough. If it returns True for one number,
            it must return True for all larger numbers.
    """

    def design(n: int) -> Design:
        return replace(pilot.design, **{lever: n})

    low = 1 if lever != "templates" else 0  # too small for an interval
    high = max(2, round(getattr(pilot.design, lever)))
    most = high * MAX_FACTOR
    while not is_enough(pilot.predict(design(high))):
        if high >= most:
            return None
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        if is_enough(pilot.predict(design(middle))):
            high = middle
        else:
            low = middle
    return design(high)


def _freedom_factor(design: Design) -> float:
    return design.descriptors * design.templates * (design.responses - 1)
