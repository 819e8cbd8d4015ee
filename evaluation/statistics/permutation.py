"""Permutation tests: whether people get other answers than by chance, by exchanging their answers within templates.

The module `cell_table` has the means by cell, and decides what is exchanged; `effect_variances` has the statistics, and
`simultaneous_tests` the p-values of all tests together.

The unit of chance is a cell: the answers of one person to one template. The null hypothesis is that people's cells are
exchangeable over prompts like these. In each template one permutation of people moves all numbers of a cell together:
its styles, its outcomes, and which of them are missing. So the test is exact, P(p ≤ α) ≤ α, whatever the answers of a
cell have in common (copies, one template's peculiar effect on one person), and one answer to a cell suffices. Miller
(2024, "Adding error bars to evals", §2.2) clusters standard errors for the same reason.

Three designs need more care.

*Unequal cells.* A mean of one answer varies more than a mean of eight. If a permutation test finds that the number of
prompts depends on the person (p < 0.2), cells are only exchanged with cells of about as many prompts (1, 2 to 3, 4 or
more), and centred means are first divided by √(ρ + 1/n), with ρ the variance of the interaction over that of one
answer. If somebody then has fewer than MIN_TEMPLATES templates at which others have about as many prompts, such as the
one group of a log that asks most, all cells of a template are exchanged: nobody could be shown to differ otherwise. In
simulations of one person with thirty times as many answers as seven others, 8 of 100 pages then err.
Numbers of prompts are fixed before any answer is looked at, so choosing by them costs no error.

*More answers for some people*, who were chosen before any answer was sampled (`Design.is_extra`). Only the cells of the
answers that everybody has as many of are exchanged, since these are alike. The observed effects are of all answers.
The means of people with more answers are first studentised (Janssen 1997, "Studentized permutation tests for non-i.i.d.
hypotheses"; Chung and Romano 2013, "Exact and asymptotically robust permutation tests"): multiplied by s₀ / s, at most
√(n / n₀), with s² the variance of cell means around the person's effect, summed over the columns of a set, of this
person or on average of all who have more, whichever is larger; s₀² that of what is exchanged; n and n₀ the numbers of
answers in a cell. Their tails are lighter than those of means of fewer answers. A class that occurs in fewer than
FEW_CELLS of the exchanged cells is tested by these alone.

*Few templates.* With one template, no permutation of cells changes the largest effect. If somebody has fewer than
MIN_TEMPLATES templates in common with others, or the cells have too few permutations for p = MIN_P, single answers are
permuted within templates. What is shown then holds for these prompts only.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Protocol

import numpy as np
import scipy

from evenhand.evaluation.statistics.cell_table import (
    ANSWERS,
    CELLS,
    TINY,
    CellTable,
    Design,
    SetOfTests,
    centre,
    means_by_cell,
    random_orders,
    segments,
)
from evenhand.evaluation.statistics.cells import sum_by
from evenhand.evaluation.statistics.effect_variances import (
    Statistics,
    answer_factor,
    own_effect_variance,
    relative_variance,
    statistics_of,
)

FEW_CELLS = 5  # of the answers that everybody has as many of: in fewer, a class is rare


class NullHypothesis(Protocol):
    """A null hypothesis: the observed statistics, and random draws of the statistics under the hypothesis."""

    @property
    def observed(self) -> Statistics:
        """The statistics as observed."""
        ...

    def draws(self, n: int, rng: np.random.Generator) -> Iterator[Statistics]:
        """Yield the statistics in n draws with the random numbers of `rng`."""
        ...


def null_hypothesis(table: CellTable, design: Design, test_sets: Sequence[SetOfTests]) -> NullHypothesis:
    """Return the null hypothesis of one run: cells, or single answers, are exchangeable (`CellTable.unit`)."""
    if table.unit == ANSWERS:
        return ExchangeableAnswers(table, design, test_sets)
    if design.has_extra:
        return ExchangeableEqualCells(table, design, test_sets)
    return ExchangeableCells(table)


def tested_means(table: CellTable) -> np.ndarray:
    """Return the numbers that are permuted, (k, c): centred means, of unequal cells over their standard deviations."""
    if not table.has_strata:
        return table.mean
    scale = 1 / np.sqrt(np.maximum(relative_variance(table), TINY))
    return np.where(table.present[:, table.test_set], table.mean * scale, 0.0)


class ExchangeableCells:
    """People's cells are exchangeable within each template and stratum."""

    def __init__(self, table: CellTable) -> None:
        self.table = table
        self.values = tested_means(table)

    @property
    def observed(self) -> Statistics:
        """The statistics as observed."""
        return statistics_of(self.table, self.values, self.table.present)

    def draws(self, n: int, rng: np.random.Generator) -> Iterator[Statistics]:
        """Yield the statistics of n permutations of people within each template and stratum."""
        values = self.values.astype(np.float32)
        present = self.table.present
        for order in random_orders(segments(self.table), n, rng):
            yield statistics_of(self.table, values[order], present[order])


class ExchangeableEqualCells(ExchangeableCells):
    """The cells of the answers that everybody has as many of are exchangeable; the observed statistics are of all.

    Whether people differ at all, of sets without effects, is tested by the answers that everybody has as many of alone.

    Attributes:
        table: the cells of the answers that everybody has as many of.
        all_answers: the cells of all answers.
        scaled: centred means of all answers, which vary as much as those of `table`, (k, c).
        present: whether each cell has an answer with a value among those that count, by set, (k, f).
    """

    def __init__(self, table: CellTable, design: Design, test_sets: Sequence[SetOfTests]) -> None:
        is_equal = ~design.extra
        cue = None if design.cue is None else design.cue[is_equal]
        equal = Design(design.template[is_equal], design.person[is_equal], design.groups, cue)
        parts = [replace(test_set, values=test_set.values[is_equal]) for test_set in test_sets]
        super().__init__(means_by_cell(equal, parts))
        self.all_answers = table
        has_extra = np.isin(np.arange(design.n_people), design.person[design.extra])
        of_all = _variances_of_people(table)
        of_extra = np.maximum(of_all, of_all[has_extra].mean(axis=0))
        of_equal = _variances_of_people(self.table).mean(axis=0)
        ratio = np.divide(of_equal, of_extra, out=np.full(of_all.shape, np.inf), where=of_extra > TINY)
        most = table.count / np.maximum(self.table.count, 1)  # without an effect of each template on each person
        scale = np.sqrt(np.minimum(np.where(has_extra[:, None], ratio, 1.0)[table.person], most))
        has_effects = np.array([test_set.has_effects for test_set in test_sets])
        self.present = np.where(has_effects, table.present, self.table.present)
        scaled = np.where(table.present, scale, 0.0)[:, table.test_set] * table.mean
        # More answers find more of what is rare, such as a language; it is tested by the equal answers alone.
        equal_mean = self.table.mean
        n_unlike = np.minimum((equal_mean > TINY).sum(axis=0), (equal_mean < -TINY).sum(axis=0))
        is_frequent = n_unlike >= FEW_CELLS
        self.scaled = np.where(has_effects[table.test_set] & is_frequent, scaled, equal_mean)

    @property
    def observed(self) -> Statistics:
        """The statistics of the observed data, with the answers that only some people have."""
        return statistics_of(self.all_answers, self.scaled, self.present)


def _variances_of_people(table: CellTable) -> np.ndarray:
    """Return the variance of a person's cell means around the effect, summed over the columns of each set, (D, f)."""
    variance_of_effect, _ = own_effect_variance(replace(table, unit=CELLS))
    n_templates = statistics_of(table, table.mean, table.present).n_templates
    of_column = variance_of_effect * n_templates
    is_of_set = table.test_set[:, None] == np.arange(table.count.shape[1])
    return of_column @ is_of_set.astype(float)


class RandomSigns:
    """Cells of differences between two runs are as likely as the same with the other sign."""

    def __init__(self, table: CellTable) -> None:
        self.table = replace(table, unit=CELLS, stratum=np.zeros_like(table.stratum), uses_own_variance=True)

    @property
    def observed(self) -> Statistics:
        """The statistics as observed."""
        return statistics_of(self.table, self.table.mean, self.table.present)

    def draws(self, n: int, rng: np.random.Generator) -> Iterator[Statistics]:
        """Yield the statistics of n draws, in each of which every cell gets a random sign."""
        values = self.table.mean.astype(np.float32)
        for _ in range(n):
            sign = rng.integers(0, 2, size=(len(values), 1)).astype(np.float32) * 2 - 1
            yield statistics_of(self.table, values * sign, self.table.present)


class ExchangeableAnswers:
    """Single answers are exchangeable within each template.

    Attributes:
        values: numbers of the answers in the table's cells, 0 where missing, (n, c).
        has_value: whether each answer has the numbers of each set, (n, f).
        template, cell: template and cell of each answer, (n,).
        variance: variance of each effect, (D, c), from that of one answer within its template, which no permutation of
            answers changes.
    """

    def __init__(self, table: CellTable, design: Design, test_sets: Sequence[SetOfTests]) -> None:
        self.table = table
        n_templates = int(design.template.max()) + 1
        code = design.person.astype(np.int64) * n_templates + design.template
        code_of_cell = table.person.astype(np.int64) * n_templates + table.template
        is_used = np.isin(code, code_of_cell)
        values = np.concatenate([test_set.all_values for test_set in test_sets], axis=1)[is_used]
        has_value = [np.isfinite(test_set.all_values).all(axis=1) for test_set in test_sets]
        self.has_value = np.stack(has_value, axis=1)[is_used]
        self.values = np.where(self.has_value[:, table.test_set], values, 0.0)
        self.template = design.template[is_used]
        self.cell = np.searchsorted(code_of_cell, code[is_used])
        self.variance = self._variance_of_answer() * answer_factor(table)

    def _variance_of_answer(self) -> np.ndarray:
        """Return the variance of one answer within its template, (c,)."""
        test_set = self.table.test_set
        n = sum_by(self.template, self.has_value.astype(float))
        average = sum_by(self.template, self.values) / np.maximum(n, 1)[:, test_set]
        deviation = np.where(self.has_value[:, test_set], self.values - average[self.template], 0.0)
        freedom = np.maximum(np.maximum(n - 1, 0).sum(axis=0), 1)
        return (deviation**2).sum(axis=0) / freedom[test_set]

    @property
    def observed(self) -> Statistics:
        """The statistics as observed."""
        found = statistics_of(self.table, self.table.mean, self.table.present)
        return replace(found, variance=self.variance)

    def draws(self, n: int, rng: np.random.Generator) -> Iterator[Statistics]:
        """Yield the statistics of n permutations of answers within each template."""
        table = self.table
        n_answers = len(self.cell)
        places = (self.cell, np.arange(n_answers))
        cell_sums = scipy.sparse.csr_array((np.ones(n_answers), places), shape=(len(table.template), n_answers))
        for order in random_orders(self.template, n, rng):
            count = cell_sums @ self.has_value[order].astype(float)
            mean = (cell_sums @ self.values[order]) / np.maximum(count, 1)[:, table.test_set]
            present = count > 0
            centred = centre(mean, present[:, table.test_set], table.template)
            yield replace(statistics_of(table, centred, present), variance=self.variance)
