"""Numbers of descriptors, templates and responses needed for an interval width or for a significant reduction.

A finished measurement (the pilot) has an estimate θ of pooled FGB* with the variance noise + slope · θ. Noise and slope
of other designs follow by `rescale`, if responses vary and descriptors differ as in the pilot.

A spread is significant if its 95 % interval (`spread_interval`) is above 0. If the true spread is θ ≥ 0, the estimate
has mean θ and variance noise + slope · θ. For D descriptors, T templates and N responses in each cell, with V the
covariance of one response within its cell and ρ V that of the interaction of descriptor and template,

    noise = 2 tr(V²) (ρ + 1/N)² / (T (T − 1) (D − 1))       slope = 4 λ (ρ + 1/N) / ((D − 1) T),

where λ is the mean variance of a response along the differences between descriptors (`person_pairs`). So the smallest
detectable spread falls as 1 / T and, down to ρ, as 1 / N, and its square root, a descriptor's distance from the mean,
as the root of these.
"""

import math
from bisect import bisect_left
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import scipy

from evenhand.evaluation.statistics.descriptor_spread import Estimate
from evenhand.evaluation.statistics.intervals import skewed_quantile, spread_interval, student_quantile
from evenhand.evaluation.statistics.level import ONE_LOOK, Level

POWER = 0.8
LEVERS = ("responses", "templates", "descriptors")
MAX_FACTOR = 10_000  # maximum multiple of the pilot's number in the search for a design


@dataclass(frozen=True)
class StudySize:
    """Numbers of descriptors and templates, and the mean number of responses to each pair of them.

    Attributes:
        responses: the mean over the pairs that have one.
        interaction: ρ of the module's docstring: the variance of the interaction over that of one response.
        share_of_pairs: the share of pairs of a descriptor and a template that have a response.
    """

    descriptors: int
    templates: int
    responses: float
    interaction: float = 0.0
    share_of_pairs: float = 1.0

    @property
    def n(self) -> int:
        """The total number of responses."""
        return round(self.descriptors * self.templates * self.share_of_pairs * self.responses)

    @property
    def freedom(self) -> int:
        """The degrees of freedom of the variance between the templates of a descriptor, over all descriptors."""
        return self.descriptors * (self.templates - 1)

    @property
    def cell_variance(self) -> float:
        """The variance of a cell's mean over that of one response."""
        return self.interaction + 1 / self.responses

    @property
    def noise_factor(self) -> float:
        """The variance of pooled FGB* under the null hypothesis, divided by tr(V²) of the module's docstring."""
        n_products = self.templates * (self.templates - 1) * (self.descriptors - 1)
        return 2 * self.cell_variance**2 / n_products

    @property
    def slope_factor(self) -> float:
        """The increase of the variance of pooled FGB* per unit of spread, divided by λ of the module's docstring."""
        return 4 * self.cell_variance / ((self.descriptors - 1) * self.templates)


def smallest_detectable_spread(estimate: Estimate) -> float:
    """Return the true spread whose 95 % interval is above 0 with 80 % power at an estimate's noise; NaN without noise.

    The interval is above 0 if the estimate exceeds √noise · k, with k the quantile at which `spread_interval` tests a
    spread of 0. The result is the spread θ for which √noise · k is the 20 % quantile of the estimate, which has the
    shifted χ² distribution of `spread_interval`. The variance of the estimate is noise + slope · θ.

    >>> round(smallest_detectable_spread(Estimate(0.0, 1.0, noise=1.0)), 2)  # normal: 1.96 + 0.84
    2.8
    """
    noise = estimate.noise
    slope = estimate.slope or 0.0
    if not noise > 0:
        return math.nan
    quantile = student_quantile(estimate.freedom)
    critical = math.sqrt(noise) * skewed_quantile(quantile, slope / math.sqrt(noise))
    lower_quantile = float(scipy.stats.norm.ppf(1 - POWER))

    def excess(theta: float) -> float:
        variance = noise + slope * theta
        skewness = slope * (noise + 1.5 * slope * theta) / variance**1.5
        return theta + math.sqrt(variance) * skewed_quantile(lower_quantile, skewness) - critical

    high = critical
    while excess(high) < 0:
        high *= 2
    return float(scipy.optimize.brentq(excess, 0.0, high, rtol=1e-9))


def rescale(noise: float, slope: float, design: StudySize, new: StudySize) -> tuple[float, float]:
    """Return the noise and slope of the design `new` from the noise and slope of `design`.

    >>> rescale(1.0, 1.0, StudySize(11, 5, 2), StudySize(11, 10, 2))[1]
    0.5
    """
    new_noise = noise * new.noise_factor / design.noise_factor
    new_slope = slope * new.slope_factor / design.slope_factor
    return new_noise, new_slope


@dataclass(frozen=True)
class Pilot:
    """The design of a finished measurement, and the measured estimate of pooled FGB*.

    Attributes:
        limits: by lever, how many templates or descriptors there are; those without a limit can be written.
    """

    design: StudySize
    estimate: Estimate
    limits: Mapping[str, int] = field(default_factory=dict)

    def predict(self, design: StudySize) -> Estimate:
        """Return the pilot's estimate with the variance that another design is expected to have."""
        noise, slope = rescale(self.estimate.noise, self.estimate.slope or 0.0, self.design, design)
        return replace(
            self.estimate,
            variance=noise + slope * max(self.estimate.value, 0.0),
            noise=noise,
            slope=slope,
            freedom=self.estimate.freedom * design.freedom / self.design.freedom,
        )


def interval_width(estimate: Estimate) -> float:
    """Return the width of the 95 % interval of an estimated spread."""
    low, high = spread_interval(estimate.value, estimate.noise, estimate.slope or 0.0, estimate.freedom)
    return high - low


def shows_difference(estimate: Estimate, after: float, factor: float = 1.0) -> bool:
    """Return whether the difference between a spread and a multiple of another is significant with at least 80 % power.

    The noise, slope and degrees of freedom of `estimate`, the spread before, hold for both runs. Their errors are
    independent, so the variances add up. The spread `after` is compared with `factor` × the spread before.
    """
    before = max(estimate.value, 0.0)
    of_noise = (1 + factor**2) * estimate.noise
    of_spreads = (estimate.slope or 0.0) * (max(after, 0.0) + factor**2 * before)
    return is_significant(after - factor * before, of_noise + of_spreads, estimate.freedom)


def is_significant(difference: float, variance: float, freedom: float, level: Level = ONE_LOOK) -> bool:
    """Return whether a true difference from 0 is significant with at least 80 % power.

    `level` is that of the interval that must not contain 0.

    >>> is_significant(2.81, 1.0, math.inf), is_significant(-2.79, 1.0, math.inf)  # 1.96 + 0.84
    (True, False)
    """
    quantile = student_quantile(freedom, level.tail) + float(scipy.stats.norm.ppf(POWER))
    return abs(difference) >= quantile * math.sqrt(variance)


def smallest_design(
    pilot: Pilot, lever: str, is_enough: Callable[[Estimate], bool], *, is_larger: bool = False
) -> StudySize | None:
    """Return the smallest design that is enough, varying only the number `lever` of the pilot's design, one of LEVERS.

    With `is_larger`, it is larger than the pilot, which was not enough, though one of its size is often enough. The
    result is None if the pilot's limit of this number, or MAX_FACTOR times its own, is not enough. If `is_enough`
    is True for the estimate that is predicted from one number, it must be True for all larger numbers.
    """

    with_number = {
        "responses": lambda n: replace(pilot.design, responses=n),
        "templates": lambda n: replace(pilot.design, templates=n),
        "descriptors": lambda n: replace(pilot.design, descriptors=n),
    }[lever]
    smallest = 1 if lever == "responses" else 2  # the smallest number with an interval
    if is_larger:
        smallest = max(smallest, math.floor(getattr(pilot.design, lever)) + 1)
    largest = max(2, round(getattr(pilot.design, lever))) * MAX_FACTOR
    largest = min(largest, pilot.limits.get(lever, largest))
    numbers = range(smallest, largest + 1)
    place = bisect_left(numbers, True, key=lambda n: is_enough(pilot.predict(with_number(n))))
    return with_number(numbers[place]) if place < len(numbers) else None
