"""Looks at a measurement before all answers are there: when it may stop, and intervals that account for the looks.

A measurement that stops as soon as an ordinary 95 % interval says something errs far more often than in 5 of 100 cases,
because each look is another chance to err. Here the looks are planned before the first answer, and all of them together
err in 5 of 100 cases at most (a group-sequential design; Jennison and Turnbull 2000, "Group Sequential Methods with
Applications to Clinical Trials").

*Order.* A round asks every person one template. The templates come in a random order, all of them once, then all of
them again, so that at each look every person has equally many answers to the same templates (`rounds_of`). A look needs
MIN_TEMPLATES whole templates, as the tests of cells do.

*Error.* Looks are at every eighth of the answers. A fraction t of the answers spends (exp(4 t) − 1) / (exp(4) − 1) of
the error: Lan and DeMets (1983), "Discrete sequential boundaries for clinical trials", with the function of Hwang, Shih
and DeCani (1990), "Group sequential designs using a family of type I error probability spending functions", γ = −4.
Most of the error is left for the later looks, so that the interval of a whole measurement is hardly wider.

*Intervals.* Each look has a quantile c_k in place of 1.96, such that the intervals of all looks hold together with 95 %
(repeated confidence intervals; Jennison and Turnbull 1989, "Interim analyses: the repeated confidence interval
approach"). So an interval holds whatever the reason to stop: a decision, impatience, a budget. The quantiles depend on
the correlation between looks (`boundaries`). Pooled FGB* is a U-statistic over templates, and U-statistics of more and
more observations are a reversed martingale: Cov(θ̂_j, θ̂_k) = Var(θ̂_k) for j < k. With the information
I_k = 1 / Var(θ̂_k) the correlation is √(I_j / I_k), as for a mean. The variance at a fraction t of the answers is
noise / t² + slope θ / t. So information grows as t² where people do not differ, and at most as slowly as t, like that
of means (an effect, a share). The quantiles are computed with the information t². This gives the smallest correlation
between looks, and so the largest quantiles, which therefore hold in both cases.

*Permutation tests.* A p-value at a look is divided by the share of the error that is spent there (`LookPlan.share`).
The shares sum to 1, so by Bonferroni's inequality P(some p_k / share_k ≤ α) ≤ α, whatever the looks have in common. For
the largest of many effects little is lost, since it is rarely the same effect at two looks.

*After stopping.* Where a decision was the reason to stop, `interval_after_stopping` has a narrower interval.

*Comparisons.* Two runs with the same planned prompts are asked in the same order. If one of them stopped, the other one
has the same prompts at that look, and the comparison of the two has the error of that look. Its intervals at all looks
hold together, so it holds although the first run may have stopped because chance made its bias large.

*A decision* (`decided_range`) is that the interval of a look is wholly within one range between limits: below or above
one limit, small, medium or large, no worse than a baseline. Whichever range is named, it is wrong in 5 of 100 cases at
most.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import scipy

from evenhand.evaluation.statistics.cell_table import MIN_TEMPLATES
from evenhand.evaluation.statistics.descriptor_spread import Estimate
from evenhand.evaluation.statistics.intervals import MAX_SKEWNESS, TAILS, Interval, Z
from evenhand.evaluation.statistics.level import Level
from evenhand.evaluation.statistics.simultaneous_tests import LEVEL

N_LOOKS = 8
GAMMA = -4.0  # of the spending function; the default of R's gsDesign, too
NODES = 400  # of the numerical integration between two looks
FARTHEST = 9.0  # standard deviations; the probability beyond is 10⁻¹⁹
PATHS = 5_000  # simulated measurements for the interval after stopping
BISECTIONS = 14  # steps in the search for each bound of the interval after stopping
LEAST_SKEWNESS = 1e-6  # below, a distribution is normal


@dataclass(frozen=True)
class LookPlan:
    """The planned looks at a measurement, K in number.

    Attributes:
        rounds: number of rounds that are finished at each look, (K,), increasing; the last look has all.
    """

    rounds: tuple[int, ...]

    @property
    def fraction(self) -> np.ndarray:
        """The fraction of the answers at each look, (K,), from above 0 to 1."""
        return np.array(self.rounds) / self.rounds[-1]

    @property
    def share(self) -> np.ndarray:
        """The share of the error that is spent at each look, (K,); a p-value is divided by it; the sum is 1."""
        return np.diff(spent_error(self.fraction), prepend=0.0)

    def level(self, look: int) -> Level:
        """Return how much intervals and tests may err at a look, numbered from 0."""
        return Level(float(self.share[look]), float(self.tail[look]), float(self.one_sided_tail[look]))

    @cached_property
    def tail(self) -> np.ndarray:
        """The probability below the upper quantile of the two-sided 95 % intervals of each look, (K,).

        It is 0.975 for a single look, and larger for several.
        """
        return self._tail(LEVEL / 2)

    @cached_property
    def one_sided_tail(self) -> np.ndarray:
        """The probability below the quantile of 95 % bounds on one side, (K,); 0.95 for a single look."""
        return self._tail(LEVEL)

    def _tail(self, error: float) -> np.ndarray:
        return scipy.special.ndtr(boundaries(self.fraction**2, error * spent_error(self.fraction)))


def plan_looks(n_rounds: int) -> LookPlan:
    """Return looks at every eighth of the rounds, rounded up, from MIN_TEMPLATES rounds on.

    >>> plan_looks(52).rounds  # 26 templates, two answers to each person
    (7, 13, 20, 26, 33, 39, 46, 52)
    >>> plan_looks(4).rounds
    (4,)
    """
    rounds = {math.ceil(n_rounds * number / N_LOOKS) for number in range(1, N_LOOKS + 1)}
    return LookPlan(tuple(sorted(number for number in rounds if number >= MIN_TEMPLATES or number == n_rounds)))


def rounds_of(template: np.ndarray, person: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return the round of each prompt, (n,), counted from 0.

    With the templates in a random order, the i-th prompt (from 0) of a person with the r-th of T templates is in round
    i T + r. If a person has n prompts of a template, and most have N, i N / n, rounded down, takes the place of i, so
    that nobody's answers come all at the end.

    Args:
        template, person: codes of each prompt's template and person, (n,), numbered from 0.
        rng: source of the order of the templates.

    With two prompts of one person for each of two templates, of which the first one happens to be first:

    >>> rounds_of(np.array([0, 0, 1, 1]), np.zeros(4, dtype=int), np.random.default_rng(0))
    array([0, 2, 1, 3])
    """
    n_templates = int(template.max(initial=-1)) + 1
    code = person.astype(np.int64) * n_templates + template
    _, cell, count = np.unique(code, return_inverse=True, return_counts=True)
    by_cell = np.argsort(cell, kind="stable")
    start_of_cell = np.cumsum(count) - count
    n_earlier = np.empty(len(cell), dtype=np.int64)  # prompts of the same person and template before each prompt
    n_earlier[by_cell] = np.arange(len(cell)) - start_of_cell[cell[by_cell]]
    repetition = n_earlier * int(np.median(count)) // count[cell]
    place_of_template = rng.permutation(n_templates)
    return repetition * n_templates + place_of_template[template]


def spent_error(fraction: np.ndarray, gamma: float = GAMMA) -> np.ndarray:
    """Return the share of the error that is spent by each fraction of the answers, (K,), from 0 to 1.

    Hwang, Shih and DeCani (1990): (1 − exp(−γ t)) / (1 − exp(−γ)) for γ ≠ 0. Negative γ spend little early.

    >>> spent_error(np.array([0.0, 0.5, 1.0])).round(3)
    array([0.   , 0.119, 1.   ])
    """
    return np.expm1(-gamma * np.asarray(fraction, dtype=np.float64)) / math.expm1(-gamma)


def boundaries(information: np.ndarray, spent: np.ndarray) -> np.ndarray:
    """Return the quantile c_k of each look, (K,), at which one-sided tests err as often as planned.

    Z_k is a normal test statistic at look k, and the correlation of Z_j and Z_k is √(I_j / I_k) for j < k. c_k is such
    that, under the null hypothesis,

        P(Z_1 < c_1, …, Z_{k−1} < c_{k−1}, Z_k ≥ c_k) = spent_k − spent_{k−1}.

    B_k = Z_k √I_k has independent increments of variance I_k − I_{k−1}, so the density of B_k among measurements that
    have not crossed before follows from that of B_{k−1} by one integral (Armitage, McPherson and Rowe 1969, "Repeated
    significance tests on accumulating data"), here by Gauss and Legendre's rule.

    Args:
        information: I_k of each look, (K,), increasing; only ratios count.
        spent: probability that may be spent by each look, (K,), increasing and below 0.5.

    In the example, two equal looks spend 2.5 % in all, the first of them half:

    >>> boundaries(np.array([0.5, 1.0]), np.array([0.0125, 0.025])).round(3)
    array([2.241, 2.125])
    """
    scale = np.sqrt(np.asarray(information, dtype=np.float64))
    allowed = np.diff(spent, prepend=0.0)
    node, node_weight = np.polynomial.legendre.leggauss(NODES)
    place = np.zeros(1)  # B before the first look
    mass = np.ones(1)  # probability at each place
    result = []
    for look in range(len(scale)):
        before = scale[look - 1] if look else 0.0
        step = math.sqrt(scale[look] ** 2 - before**2)
        boundary = _boundary_crossed_with(allowed[look], place, mass, step)
        result.append(boundary / scale[look])
        lowest = -FARTHEST * scale[look]
        half = (min(boundary, -lowest) - lowest) / 2
        next_place = lowest + half * (node + 1)
        distance = (next_place[:, None] - place) / step
        density = np.exp(-(distance**2) / 2) @ mass / (step * math.sqrt(2 * math.pi))
        mass = density * node_weight * half
        place = next_place
    return np.array(result)


def _boundary_crossed_with(probability: float, place: np.ndarray, mass: np.ndarray, step: float) -> float:
    """Return the boundary that B crosses with a probability.

    Args:
        probability: the probability that B is above the boundary after the step.
        place, mass: places of B before the step, and the probability of each.
        step: the standard deviation of the step, which is normal.
    """

    def excess(boundary: float) -> float:
        return float(mass @ scipy.special.ndtr((place - boundary) / step)) - probability

    farthest = float(place.max()) + 4 * FARTHEST * step
    return float(scipy.optimize.brentq(excess, float(place.min()), farthest, xtol=1e-13))


def decided_range(interval: Interval | None, limits: Sequence[float]) -> int | None:
    """Return which of the ranges between increasing limits contains the whole interval; None if a limit is within it.

    0 is the range up to the first limit, and len(limits) the range above the last. None as an interval decides nothing.

    >>> [decided_range(interval, (0.02, 0.05)) for interval in ((0.0, 0.01), (0.03, 0.04), (0.01, 0.03), None)]
    [0, 1, None, None]
    """
    if interval is None:
        return None
    low, high = interval
    for number, upper_limit in enumerate((*limits, math.inf)):
        lower_limit = limits[number - 1] if number else -math.inf
        if low > lower_limit and high <= upper_limit:
            return number
    return None


def interval_after_stopping(
    estimate: Estimate, looks: LookPlan, look: int, limits: Sequence[float], paths: int = PATHS
) -> Interval | None:
    """Return the 95 % interval after a stop at the first look that decided, by an interval within one range.

    The interval of that look, with its larger quantile, holds whatever the reason to stop. If a decision between the
    limits is the reason, or the end, a narrower one holds, too. Results are ordered by the estimate at the stop,
    whatever the look (Emerson and Fleming 1990, "Parameter estimation following group sequential hypothesis testing").
    The interval is of the true values θ for which an estimate at the stop that is as large as this one, and one that is
    as small, each has a probability of 2.5 % at least. The probabilities are shares of simulated measurements, which
    have the sampling distribution of `spread_interval` at each look, and stop by the same rule.

    Args:
        estimate: pooled FGB*, or its difference between two runs, at the stop.
        looks: the planned looks.
        look: number of the look at which the measurement stopped, from 0.
        limits: the increasing limits of `decided_range`, in the unit of the estimate.
        paths: number of simulated measurements.

    Returns:
        The interval; None if the estimate has none.
    """
    at_look = replace(estimate, level=looks.level(look)).interval
    if at_look is None:
        return None
    if len(looks.rounds) == 1:
        return at_look
    distribution = _Distribution.predicted(estimate, looks, look)
    rule = _StoppingRule.between(limits, distribution, looks)
    noise = np.random.default_rng(0).normal(size=(paths, len(looks.rounds)))
    noise *= distribution.heavier_tails
    each_side = LEVEL / 2

    # As in `spread_interval`, values above θ have the skewed distribution, and values below it the normal one.
    def is_too_low(theta: float) -> bool:
        errors = _skewed(distribution.errors(noise, theta), distribution.skewness(theta))
        stopped = rule.value_at_stop(theta + errors * distribution.scale(theta))
        return bool((stopped >= estimate.value).mean() < each_side)

    def is_too_high(theta: float) -> bool:
        errors = distribution.errors(noise, theta)
        stopped = rule.value_at_stop(theta + errors * distribution.scale(theta))
        return bool((stopped <= estimate.value).mean() < each_side)

    low, high = at_look
    return _bisect(is_too_low, low, estimate.value), _bisect(is_too_high, high, estimate.value)


def _bisect(is_excluded: Callable[[float], bool], excluded: float, included: float) -> float:
    """Return the border between excluded and included values, from one value of each."""
    for _ in range(BISECTIONS):
        middle = (excluded + included) / 2
        if is_excluded(middle):
            excluded = middle
        else:
            included = middle
    return excluded


@dataclass(frozen=True)
class _Distribution:
    """The sampling distribution of an estimate at each of K looks, for any true value θ.

    Attributes:
        constant, slope: the variance is constant + slope · θ for θ ≥ 0, (K,) each; the slope of a difference is 0.
        freedom: degrees of freedom of the variance, (K,).
    """

    constant: np.ndarray
    slope: np.ndarray
    freedom: np.ndarray

    @classmethod
    def predicted(cls, estimate: Estimate, looks: LookPlan, look: int) -> "_Distribution":
        """Return the distribution at all looks from the estimate at one of them: noise / t² + slope θ / t."""
        t = looks.fraction / looks.fraction[look]
        freedom = estimate.freedom * t
        if estimate.slope is not None:
            return cls(estimate.noise / t**2, estimate.slope / t, freedom)
        growing = max(estimate.variance - estimate.noise, 0.0)
        return cls(estimate.noise / t**2 + growing / t, np.zeros(len(t)), freedom)

    def scale(self, theta: float) -> np.ndarray:
        """Return the standard error at each look, (K,)."""
        return np.sqrt(self.constant + self.slope * max(theta, 0.0))

    def skewness(self, theta: float) -> np.ndarray:
        """Return the skewness at each look, (K,)."""
        return self.slope * (self.constant + 1.5 * self.slope * max(theta, 0.0)) / self.scale(theta) ** 3

    @property
    def heavier_tails(self) -> np.ndarray:
        """The quantile of Student's t over the normal one at each look, (K,)."""
        return scipy.stats.t.ppf(TAILS[1], self.freedom) / Z

    def errors(self, noise: np.ndarray, theta: float) -> np.ndarray:
        """Return errors of the estimate in standard errors, (n, K), with the correlation √(I_j / I_k), from noise."""
        information = 1 / self.scale(theta) ** 2
        steps = np.sqrt(np.diff(information, prepend=0.0))
        return (noise * steps).cumsum(axis=1) / np.sqrt(information)


@dataclass(frozen=True)
class _StoppingRule:
    """When a measurement stops: at the first look at which its estimate is within the bounds of one of R ranges.

    Attributes:
        low, high: the bounds of each range at each of K looks, (R, K); they are such that the interval of the estimate
            is wholly within the range. The range up to the first limit has no lower bound, the last one no upper bound.
    """

    low: np.ndarray
    high: np.ndarray

    @classmethod
    def between(cls, limits: Sequence[float], distribution: _Distribution, looks: LookPlan) -> "_StoppingRule":
        """Return the rule to stop when the interval of a look lies between two neighbouring limits."""
        quantile = scipy.stats.t.ppf(looks.tail, distribution.freedom)
        never = np.full((1, len(quantile)), math.inf)
        above = []
        below = []
        for limit in limits:
            scale = distribution.scale(limit)
            above.append(limit + scale * _skewed(quantile, distribution.skewness(limit)))
            below.append(limit - scale * quantile)
        return cls(low=np.concatenate([-never, above]), high=np.concatenate([below, never]))

    def value_at_stop(self, estimates: np.ndarray) -> np.ndarray:
        """Return the estimate of each measurement at its stop, (n,), from estimates at all looks, (n, K)."""
        stops = np.zeros(estimates.shape, dtype=bool)
        for low, high in zip(self.low, self.high, strict=True):
            stops |= (estimates > low) & (estimates <= high)
        stops[:, -1] = True
        return estimates[np.arange(len(estimates)), stops.argmax(axis=1)]


def _skewed(z: np.ndarray, skewness: np.ndarray) -> np.ndarray:
    """Return `skewed_quantile` of an array, with a skewness for each column."""
    skewness = np.clip(skewness, LEAST_SKEWNESS, MAX_SKEWNESS)
    return 2 / skewness * (np.maximum(1 + skewness * z / 6 - skewness**2 / 36, 0.0) ** 3 - 1)
