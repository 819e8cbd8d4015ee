"""One joint permutation test of everything that a page calls shown.

What is permuted is in `permutation`.

A *set of tests* is the tests of one kind of number: the styles, one outcome, the styles by one cue. Within a set the
simultaneous test is step-down max-T (Westfall and Young 1993, "Resampling-Based Multiple Testing", algorithm 4.1; Ge,
Dudoit and Speed 2003, "Resampling-based multiple testing for microarray data analysis", box 2), balanced (Beran 1988,
"Balanced simultaneous confidence sets"; Romano and Wolf 2010, "Balanced control of generalized error rates"): each |z|
is divided by a scale, so that people and groups, rare and frequent styles have about the same share of the error. The
scales come from draws of their own. Over the sets of a page, the smallest p-value of the sets is compared with
its distribution in the same draws (Westfall and Young 1993, §2.3), which costs less than Bonferroni's correction where
sets are related.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import scipy

from evenhand.evaluation.statistics.cell_table import ROUNDING, TINY, SetOfTests
from evenhand.evaluation.statistics.effect_variances import Statistics
from evenhand.evaluation.statistics.permutation import NullHypothesis

LEVEL = 0.05  # of the family-wise error
PILOT = 199  # most draws that set the scales of z
MAX_Z = 32  # the grid on which permuted |z| are counted ends here
BINS_PER_Z = 64


@dataclass(frozen=True)
class Tested:
    """The tests of one set, as observed: u units (people, then groups) in c columns, of which the last are sums.

    Attributes:
        effect, error: the tested effects and their standard errors under the null hypothesis, (u, c); the error is 0 in
            a column that does not vary.
        shift: each person's whole shift, the length of the effect over its standard error, (D,).
        overall: the sum over people of n_d ‖e_d‖², which is larger the more people differ.
    """

    effect: np.ndarray
    error: np.ndarray
    shift: np.ndarray
    overall: float

    @property
    def z(self) -> np.ndarray:
        """The effects in standard errors, (u, c)."""
        return np.divide(self.effect, self.error, out=np.zeros_like(self.effect), where=self.error > 0)


@dataclass(frozen=True)
class PValues:
    """The p-values of a set, and the critical values at LEVEL.

    Attributes:
        single: p-value of each effect alone, (u, c).
        in_set, page: p-value of each effect, adjusted for the set and for all sets together, (u, c).
        shift, shift_joint: p-value of each person's whole shift, adjusted for the set and for all sets, (D,).
        overall, overall_joint: p-value of the test that people differ at all, alone and adjusted for all sets.
        threshold: the |z| from which each effect has `page` ≤ LEVEL, (u, c); inf without draws, or if no effect can.
    """

    single: np.ndarray
    in_set: np.ndarray
    page: np.ndarray
    shift: np.ndarray
    shift_joint: np.ndarray
    overall: float
    overall_joint: float
    threshold: np.ndarray

    def of_look(self, share: float) -> "PValues":
        """Return the p-values divided by the share of the error that is spent at a look, at most 1."""
        return PValues(
            single=np.minimum(self.single / share, 1.0),
            in_set=np.minimum(self.in_set / share, 1.0),
            page=np.minimum(self.page / share, 1.0),
            shift=np.minimum(self.shift / share, 1.0),
            shift_joint=np.minimum(self.shift_joint / share, 1.0),
            overall=min(self.overall / share, 1.0),
            overall_joint=min(self.overall_joint / share, 1.0),
            threshold=self.threshold,
        )


def _columns_of_sets(test_sets: Sequence[SetOfTests], set_of_column: np.ndarray) -> list[tuple[slice, slice]]:
    """Return which of all columns are those of each set: all, and without sums of columns; columns are in its order."""
    ends = np.cumsum(np.bincount(set_of_column, minlength=len(test_sets))).tolist()
    starts = [0, *ends[:-1]]
    result = []
    for test_set, start, end in zip(test_sets, starts, ends, strict=True):
        result.append((slice(start, end), slice(start, start + test_set.values.shape[1])))
    return result


def _tested_sets(
    found: Statistics, columns_of_sets: Sequence[tuple[slice, slice]], groups: np.ndarray, shrink: np.ndarray
) -> list[Tested]:
    """Return the tests of each set from the statistics of all columns, (D, c), and of groups, (g, D).

    `shrink` is the `variance_of_groups`, (g,).
    """
    weights = groups.astype(found.effect.dtype)
    squared_weights = groups.astype(found.variance.dtype) ** 2
    shrink = shrink.astype(found.effect.dtype)
    effect = np.concatenate([found.effect, weights @ found.effect])
    variance = np.concatenate([found.variance, squared_weights @ found.variance * shrink[:, None]])
    error = np.sqrt(variance)
    error[error < TINY**0.5] = 0.0
    result = []
    for columns, plain in columns_of_sets:
        squared_length = (found.effect[:, plain] ** 2).sum(axis=1)
        noise = found.variance[:, plain].sum(axis=1)
        ratio = np.divide(squared_length, noise, out=np.zeros_like(squared_length), where=noise > TINY)
        tested = Tested(
            effect=effect[:, columns],
            error=error[:, columns],
            shift=np.sqrt(ratio),
            overall=float((found.n_templates[:, plain.start] * squared_length).sum()),
        )
        result.append(tested)
    return result


def variance_of_groups(groups: np.ndarray) -> np.ndarray:
    """Return the variance of each group's effect over that of independent effects of its people, (g,).

    Effects of all D people sum to 0. So a group of weights w has (Σ w² − 1/D) / (1 − 1/D) of the variance of one
    person, where independent effects have Σ w².
    """
    squares = (groups**2).sum(axis=1)
    rest = 1 / max(groups.shape[1], 2)
    return np.maximum(squares - rest, 0.0) / (np.maximum(squares, TINY) * (1 - rest))


@dataclass(frozen=True)
class _Layout:
    """The order of a set's statistics in one vector: effects of u units in c columns, D whole shifts, overall test.

    A set without effects has no shifts, and with one column a shift is the size of the effect.
    """

    n_units: int
    n_people: int
    n_columns: int
    has_effects: bool
    has_overall: bool

    @property
    def n_effects(self) -> int:
        """The number of effects."""
        return self.n_units * self.n_columns if self.has_effects else 0

    @property
    def n_shifts(self) -> int:
        """The number of whole shifts."""
        return self.n_people if self.has_effects and self.n_columns > 1 else 0

    def vector(self, tested: Tested) -> np.ndarray:
        """Return the statistics as a vector, (n_effects + n_shifts + 1,)."""
        parts = []
        if self.n_effects:
            parts.append(np.abs(tested.z).ravel())
        if self.n_shifts:
            parts.append(tested.shift)
        if self.has_overall:
            parts.append(np.array([tested.overall]))
        return np.concatenate(parts)

    @property
    def codes(self) -> np.ndarray:
        """The code of each statistic's scale: people and groups by column, whole shifts, and the overall test."""
        column = np.arange(self.n_columns)
        is_group = np.arange(self.n_units) >= self.n_people
        parts = []
        if self.n_effects:
            parts.append((is_group[:, None] * self.n_columns + column).ravel())
        if self.n_shifts:
            parts.append(np.full(self.n_people, self.first_length))
        if self.has_overall:
            parts.append(np.array([self.first_length + 1]))
        return np.concatenate(parts)

    @property
    def first_length(self) -> int:
        """The first code of the statistics that are lengths, which are not near 0 under the null hypothesis."""
        return 2 * self.n_columns

    def effects(self, values: np.ndarray) -> np.ndarray:
        """Return the values of the effects in a vector, (u, c); 1 if the set has none."""
        shape = (self.n_units, self.n_columns)
        return values[: self.n_effects].reshape(shape) if self.n_effects else np.ones(shape)

    def shifts(self, values: np.ndarray) -> np.ndarray:
        """Return the values of the shifts in a vector, (D,); 1 if the set has none."""
        return values[self.n_effects :][: self.n_shifts] if self.n_shifts else np.ones(self.n_people)

    def overall(self, values: np.ndarray) -> float:
        """Return the value of the overall test in a vector; 1 if the set has none."""
        return float(values[-1]) if self.has_overall else 1.0


def joint_p_values(
    null: NullHypothesis,
    test_sets: Sequence[SetOfTests],
    set_of_column: np.ndarray,
    groups: np.ndarray,
    n_draws: int,
    rng: np.random.Generator,
    share: float,
) -> list[tuple[Tested, PValues]]:
    """Return the tests of each set and their p-values from `n_draws` joint draws.

    Args:
        null: the null hypothesis of all sets.
        test_sets: what is tested.
        set_of_column: number of the set of each column of the statistics, (c,), in the order of the sets.
        groups: weight of each of D people in each group, (g, D).
        n_draws: number of draws; more draws set the scales.
        rng: source of the draws.
        share: the share of the error that is spent at this look at a measurement (`sequential`), by which p-values are
            divided.
    """
    columns_of_sets = _columns_of_sets(test_sets, set_of_column)
    shrink = variance_of_groups(groups)
    observed = _tested_sets(null.observed, columns_of_sets, groups, shrink)
    layouts = []
    for test_set, tested in zip(test_sets, observed, strict=True):
        n_units, n_columns = tested.effect.shape
        layout = _Layout(n_units, groups.shape[1], n_columns, test_set.has_effects, test_set.has_overall)
        layouts.append(layout)

    def drawn_vectors(n: int, stream: np.random.Generator) -> Iterator[list[np.ndarray]]:
        for found in null.draws(n, stream):
            drawn = _tested_sets(found, columns_of_sets, groups, shrink)
            yield [layout.vector(tested) for layout, tested in zip(layouts, drawn, strict=True)]

    pilot = list(drawn_vectors(min(n_draws, PILOT), np.random.default_rng(rng.integers(1 << 63))))
    counters = []
    for number, (layout, tested) in enumerate(zip(layouts, observed, strict=True)):
        counters.append(_Counter(layout, tested, pilot=[vectors[number] for vectors in pilot]))
    for vectors in drawn_vectors(n_draws, rng):
        for counter, vector in zip(counters, vectors, strict=True):
            counter.add(vector)
    level, to_page = _joint_level([counter.largest for counter in counters], share)
    p_values = [counter.p_values(level, to_page).of_look(share) for counter in counters]
    return list(zip(observed, p_values, strict=True))


def _joint_level(largest: Sequence[Sequence[float]], share: float) -> tuple[float, Callable[[np.ndarray], np.ndarray]]:
    """Return the p-value in a set from which it is at most LEVEL · share over all sets, and the adjustment.

    The adjustment is a function of p-values within a set. It returns how often the smallest p-value of the sets
    is as small in a draw. `largest` is the largest statistic of each set in each draw.
    """
    n = len(largest[0])
    if not n:
        return 0.0, np.ones_like
    p_in_draws = [scipy.stats.rankdata(-np.asarray(of_set), method="max") / (n + 1) for of_set in largest]
    smallest = np.sort(np.min(p_in_draws, axis=0))

    def to_page(p: np.ndarray) -> np.ndarray:
        n_as_small = np.searchsorted(smallest, np.asarray(p) + TINY, side="right")
        return np.maximum((n_as_small + 1) / (n + 1), p)

    candidates = np.arange(1, n + 1) / (n + 1)
    level = candidates[to_page(candidates) <= LEVEL * share].max(initial=0.0)
    return float(level), to_page


class _Counter:
    """Counts of draws in which a set's statistics are as large as observed."""

    def __init__(self, layout: _Layout, tested: Tested, pilot: Sequence[np.ndarray]) -> None:
        self.layout = layout
        self.tested = tested
        self.vector = layout.vector(tested)
        self.code = layout.codes
        self.n_codes = int(self.code.max()) + 1
        self.offset, self.scale = self._offset_and_scale(pilot)
        # Less the rounding before it is scaled: of a statistic that no draw changes, the scale is a rounding error.
        scaled = self._scaled(self.vector * (1 - ROUNDING))
        self.order = np.argsort(-scaled, kind="stable")
        self.observed = scaled[self.order]
        self.n = 0
        self.largest: list[float] = []
        self.n_as_large = np.zeros(len(scaled), dtype=np.int64)  # in the order of step-down
        self.n_as_large_overall = 0
        self.histogram = np.zeros((self.n_codes, MAX_Z * BINS_PER_Z), dtype=np.int64)

    def _offset_and_scale(self, pilot: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        """Return the offset and the scale of each statistic from the draws of the pilot.

        The offset is 0 for an effect, and the mean for a length. The scale is the mean of the largest 5 % of the draws'
        largest statistics of one code, less the offset; 1 without draws.
        """
        if not pilot:
            return np.zeros(len(self.vector)), np.ones(len(self.vector))
        total = np.bincount(self.code, np.mean(pilot, axis=0), minlength=self.n_codes)
        mean = total / np.maximum(np.bincount(self.code, minlength=self.n_codes), 1)
        is_length = self.code >= self.layout.first_length
        offset = np.where(is_length, mean[self.code], 0.0)
        largest = np.full((len(pilot), self.n_codes), -np.inf)
        for row, vector in zip(largest, pilot, strict=True):
            np.maximum.at(row, self.code, vector - offset)
        n_in_tail = 1 + len(pilot) // 20
        tail = np.sort(largest, axis=0)[-n_in_tail:].mean(axis=0)
        scale = np.where(tail > 0, tail, 1.0)
        return offset, scale[self.code]

    def _scaled(self, vector: np.ndarray) -> np.ndarray:
        return (vector - self.offset) / self.scale

    def _bins(self, vector: np.ndarray) -> np.ndarray:
        """Return the bin of the histogram in which each statistic lies."""
        return np.minimum(vector * BINS_PER_Z, self.histogram.shape[1] - 1).astype(int)

    def add(self, vector: np.ndarray) -> None:
        """Count the statistics of a draw."""
        scaled = self._scaled(vector)[self.order]
        successive = np.maximum.accumulate(scaled[::-1])[::-1]  # the largest one of each statistic and all below it
        self.n += 1
        self.largest.append(float(successive[0]))
        self.n_as_large += successive >= self.observed
        self.n_as_large_overall += bool(vector[-1] >= self.vector[-1] * (1 - ROUNDING))
        np.add.at(self.histogram, (self.code, self._bins(vector)), 1)

    def p_values(self, level: float, to_page: Callable[[np.ndarray], np.ndarray]) -> PValues:
        """Return the p-values of the set; `level` is the p-value within the set that is LEVEL on the page."""
        layout = self.layout
        has_error = self.tested.error > 0
        of_set = np.empty(len(self.vector))
        of_set[self.order] = np.maximum.accumulate((self.n_as_large + 1) / (self.n + 1))
        page = to_page(of_set)
        threshold = math.inf
        n_allowed = math.floor(level * (self.n + 1) + TINY)
        if n_allowed > 0:
            largest = np.sort(self.largest)
            threshold = float(largest[-n_allowed])
            # If so many draws have the largest value, such as one of few ways to exchange people, no effect is shown.
            n_ties = (largest >= largest[-1] - ROUNDING * abs(largest[-1])).sum()
            threshold = threshold if n_ties <= n_allowed else math.inf
        overall = 1.0
        if layout.has_overall:
            overall = (self.n_as_large_overall + 1) / (self.n + 1)
        return PValues(
            single=np.where(has_error, layout.effects(self._single()), 1.0),
            in_set=np.where(has_error, layout.effects(of_set), 1.0),
            page=np.where(has_error, layout.effects(page), 1.0),
            shift=layout.shifts(of_set),
            shift_joint=layout.shifts(page),
            overall=overall,
            overall_joint=layout.overall(page),
            threshold=layout.effects(self.scale) * threshold,
        )

    def _single(self) -> np.ndarray:
        """Return the p-value of each statistic alone, by the null distribution of all statistics with the same code."""
        n_with_code = np.bincount(self.code, minlength=self.n_codes)[self.code]
        above = np.cumsum(self.histogram[:, ::-1], axis=1)[:, ::-1]
        return (above[self.code, self._bins(self.vector)] + 1) / (self.n * n_with_code + 1)
