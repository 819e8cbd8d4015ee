"""What is exchanged in permutation tests of people's cells, and the statistics of the effects in each draw.

The p-values of all tests together are in `simultaneous_tests`.

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

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol

import numpy as np
import scipy

from evenhand.evaluation.statistics.cells import sum_by

# Units of chance.
CELLS = "cells"
ANSWERS = "answers"

MIN_TEMPLATES = 6  # of a person, in common with others; with fewer, answers are permuted
MIN_P = 0.01  # cells need enough permutations for this p-value
STRATA_P = 0.2  # of the test that the number of prompts depends on the person
STRATA_DRAWS = 199
STRATUM_STARTS = (2, 4)  # smallest numbers of prompts of the second and the third stratum
ROUNDING = 1e-5  # relative difference below which two statistics in float32 are equal
TINY = 1e-12
FEW_CELLS = 5  # of the answers that everybody has as many of: in fewer, a class is rare
COLUMNS = 16  # that are summed at once, which copies them as float64


@dataclass(frozen=True)
class SetOfTests:
    """Numbers of each answer whose effects are tested together.

    Attributes:
        name: what the numbers are, such as "style" or "refusal".
        values: the numbers of each answer, (n, c); a row of NaN is left out.
        sums: (c, k), 1 where a column belongs to each of k sums of columns (style clusters), which are tested too.
        has_effects: whether the effect on each person and group is tested, in each column and sum, and each person's
            whole shift.
        has_overall: whether it is tested that people differ at all.
        are_shares: whether the numbers are probabilities or 0 and 1, whose variance depends on their mean.
    """

    name: str
    values: np.ndarray
    sums: np.ndarray | None = None
    has_effects: bool = True
    has_overall: bool = True
    are_shares: bool = True

    @property
    def all_values(self) -> np.ndarray:
        """The numbers of each answer and their sums, (n, c + k)."""
        if self.sums is None:
            return self.values
        return np.concatenate([self.values, self.values @ self.sums], axis=1)


@dataclass(frozen=True)
class Design:
    """Who was asked what: one row for each of n answers, whether or not it has a value.

    Attributes:
        template, person: codes of each answer's template and person, (n,), numbered from 0 without gaps.
        groups: weight of each of D people in the mean of each group, (g, D); rows sum to 1.
        cue: code of how the model knows the person, (n,), or None.
        is_extra: whether each answer is one more than everybody has, (n,) bool; None: nobody was given more. Who gets
            more was decided before any answer was sampled.
    """

    template: np.ndarray
    person: np.ndarray
    groups: np.ndarray
    cue: np.ndarray | None = None
    is_extra: np.ndarray | None = None

    @property
    def n_people(self) -> int:
        """The number of people."""
        return self.groups.shape[1]

    @property
    def has_extra(self) -> bool:
        """Whether some people have more answers than the number that everybody has (`prompts.more_answers`)."""
        return bool(self.extra.any())

    @property
    def extra(self) -> np.ndarray:
        """Whether each answer is beyond the number that everybody has, (n,) bool."""
        return np.zeros(len(self.person), dtype=bool) if self.is_extra is None else self.is_extra

    def is_compared(self, has_value: np.ndarray) -> np.ndarray:
        """Return whether each answer has a value, (n,) bool, and is to a template on which two people have one."""
        pairs = np.stack([self.template, self.person])[:, has_value]
        template_of_cell = np.unique(pairs, axis=1)[0]
        n_people = np.bincount(template_of_cell, minlength=int(self.template.max(initial=-1)) + 1)
        return has_value & (n_people[self.template] > 1)


@dataclass(frozen=True)
class CellTable:
    """Means of all sets by cell, on templates that two people have.

    Attributes:
        template, person, asked: codes of each cell's template and person, and its number of prompts, (k,).
        stratum: only cells of one template and one stratum are exchanged, (k,).
        test_set: the number of each column's set, (c,).
        count: number of answers with a value, by cell and set, (k, f); 0 if nobody else has one on the template.
        mean: mean of each cell less the mean over the people of its template, (k, c); 0 where missing.
        average: mean over the people of the cell's template, (k, c); 0 where missing.
        deviations: summed squares of each cell's answers around their mean, (k, c).
        within: variance of one answer within its cell, (c,); 0 if no cell has two answers.
        unit: CELLS or ANSWERS.
        uses_own_variance: whether an effect is divided by the person's own standard error where it is the larger one.
    """

    template: np.ndarray
    person: np.ndarray
    asked: np.ndarray
    stratum: np.ndarray
    test_set: np.ndarray
    count: np.ndarray
    mean: np.ndarray
    average: np.ndarray
    deviations: np.ndarray
    within: np.ndarray
    unit: str = CELLS
    uses_own_variance: bool = False

    @cached_property
    def person_sums(self) -> scipy.sparse.csr_array:
        """The matrix (D, k) whose product with values of the cells is the sum over each person's cells."""
        k = len(self.person)
        n_people = int(self.person.max()) + 1
        ones = np.ones(k, dtype=np.float32)  # products with float64 are float64
        return scipy.sparse.csr_array((ones, (self.person, np.arange(k))), shape=(n_people, k))

    @property
    def present(self) -> np.ndarray:
        """Whether each cell has an answer with a value, by set, (k, f)."""
        return self.count > 0

    @property
    def has_strata(self) -> bool:
        """Whether the number of prompts depends on the person, so that cells are not alike."""
        return self.stratum.max(initial=0) > 0


@dataclass(frozen=True)
class Statistics:
    """Effects on D people in c columns in one draw, or as observed.

    Attributes:
        effect: mean over a person's templates of the cell mean less the mean over people, (D, c).
        variance: variance of the effect by which it is tested, (D, c).
        n_templates: number of a person's templates with a value, (D, c).
    """

    effect: np.ndarray
    variance: np.ndarray
    n_templates: np.ndarray


def cell_table(design: Design, test_sets: Sequence[SetOfTests], rng: np.random.Generator) -> CellTable:
    """Return the means of all sets by cell.

    Raises:
        ValueError: no two people have a common template.
    """
    return _with_unit(_cell_means(design, test_sets), design, rng)


def _cell_means(design: Design, test_sets: Sequence[SetOfTests]) -> CellTable:
    """Return the means of all sets of tests by cell (person × template); who is exchanged with whom is not set yet."""
    n_templates = int(design.template.max(initial=-1)) + 1
    code = design.person.astype(np.int64) * n_templates + design.template
    code_of_cell, cell, asked = np.unique(code, return_inverse=True, return_counts=True)
    template = code_of_cell % max(n_templates, 1)
    person = code_of_cell // max(n_templates, 1)
    is_compared = np.bincount(template, minlength=n_templates)[template] > 1
    if not is_compared.any():
        raise ValueError("no two people have a common template")
    k = len(code_of_cell)
    columns = []
    sums = []
    squares = []
    counts = []
    for number, test_set in enumerate(test_sets):
        values = test_set.all_values
        has_value = np.asarray(np.isfinite(values).all(axis=1))
        columns.append(np.full(values.shape[1], number))
        counts.append(np.bincount(cell, has_value, minlength=k))
        for start in range(0, values.shape[1], COLUMNS):
            filled = np.where(has_value[:, None], values[:, start : start + COLUMNS], 0.0)
            sums.append(sum_by(cell, filled, k))
            squares.append(sum_by(cell, filled**2, k))
    set_of_column = np.concatenate(columns)
    count = np.stack(counts, axis=1)[is_compared]
    n = count[:, set_of_column]
    mean = np.concatenate(sums, axis=1)[is_compared] / np.maximum(n, 1)
    sum_of_squares = np.concatenate(squares, axis=1)[is_compared]
    deviations = sum_of_squares - n * mean**2
    deviations[deviations < TINY * sum_of_squares] = 0.0  # the rounding error of equal answers
    freedom = np.maximum(n - 1, 0).sum(axis=0)
    # Where one person alone has a value, there is nothing to compare. Permutations do not change how many have one.
    n_present = sum_by(template[is_compared], (count > 0).astype(float))[template[is_compared]]
    count = np.where(n_present > 1, count, 0)
    n = count[:, set_of_column]
    centred = _centred(mean, n > 0, template[is_compared])
    return CellTable(
        template=template[is_compared],
        person=person[is_compared],
        asked=asked[is_compared],
        stratum=np.zeros(int(is_compared.sum()), dtype=int),
        test_set=set_of_column,
        count=count,
        mean=centred,
        average=np.where(n > 0, mean - centred, 0.0),
        deviations=np.where(n > 0, deviations, 0.0),
        within=np.where(freedom > 0, deviations.sum(axis=0) / np.maximum(freedom, 1), 0.0),
    )


def _centred(mean: np.ndarray, present: np.ndarray, template: np.ndarray) -> np.ndarray:
    """Return each cell's mean less the mean of the cells of its template that have one, (k, c); 0 where missing."""
    n_cells = np.maximum(sum_by(template, present.astype(float)), 1)
    average = sum_by(template, mean * present) / n_cells
    return np.where(present, mean - average[template], 0.0)


def _with_unit(table: CellTable, design: Design, rng: np.random.Generator) -> CellTable:
    """Return the table with its unit of chance and its strata."""
    if _smallest_number_of_templates(table, design) < MIN_TEMPLATES:
        return replace(table, unit=ANSWERS)
    if not design.has_extra and _depends_on_person(table, rng):
        stratum = np.searchsorted(STRATUM_STARTS, table.asked, side="right")
        table = replace(table, stratum=stratum, uses_own_variance=True)
        if not _is_everybody_exchanged(table):
            table = replace(table, stratum=np.ones_like(table.stratum))
    if _log_permutations(table) < math.log(1 / MIN_P):
        return replace(table, unit=ANSWERS, stratum=np.zeros_like(table.stratum), uses_own_variance=False)
    return table


def _smallest_number_of_templates(table: CellTable, design: Design) -> int:
    """Return the smallest number of templates that a person has in common with others, by cue if there are several."""
    if design.cue is None:
        return int(np.bincount(table.person, minlength=design.n_people).min())
    cue_of_template = np.zeros(int(design.template.max()) + 1, dtype=int)
    cue_of_template[design.template] = design.cue
    cue = cue_of_template[table.template]
    n_templates = np.zeros((design.n_people, int(design.cue.max()) + 1), dtype=int)
    np.add.at(n_templates, (table.person, cue), 1)
    return int(n_templates.min())


def _depends_on_person(table: CellTable, rng: np.random.Generator) -> bool:
    """Return whether a permutation test finds that the number of prompts depends on the person, at p < STRATA_P."""
    asked = table.asked.astype(float)
    centred = _centred(asked[:, None], np.ones((len(asked), 1)), table.template)[:, 0]
    if np.abs(centred).max(initial=0.0) < TINY:
        return False
    n_templates = np.bincount(table.person)

    def spread(values: np.ndarray) -> float:
        return float((np.bincount(table.person, values) ** 2 / np.maximum(n_templates, 1)).sum())

    observed = spread(centred) * (1 - ROUNDING)
    n_as_large = 0
    for order in _orders(table.template, STRATA_DRAWS, rng):
        n_as_large += spread(centred[order]) >= observed
    return (1 + n_as_large) / (1 + STRATA_DRAWS) < STRATA_P


def _orders(segment: np.ndarray, n: int, rng: np.random.Generator) -> Iterator[np.ndarray]:
    """Yield n random orders of items, (k,), that exchange items of one segment only."""
    by_segment = np.argsort(segment, kind="stable")
    sorted_segment = segment[by_segment].astype(float)
    order = np.empty(len(segment), dtype=int)
    for _ in range(n):
        shuffled = np.argsort(sorted_segment + rng.random(len(segment)))
        order[by_segment] = by_segment[shuffled]
        yield order.copy()


def _segments(table: CellTable) -> np.ndarray:
    """Return a code for each template and stratum, (k,)."""
    return table.template * (len(STRATUM_STARTS) + 1) + table.stratum


def _is_everybody_exchanged(table: CellTable) -> bool:
    """Return whether each person shares a stratum with somebody else on MIN_TEMPLATES templates or more."""
    segment = _segments(table)
    is_exchanged = np.bincount(segment)[segment] > 1
    return bool(np.bincount(table.person, is_exchanged).min() >= MIN_TEMPLATES)


def _log_permutations(table: CellTable) -> float:
    """Return the logarithm of the number of permutations of cells that may differ in the largest effect.

    One permutation of people in all templates at once only renames them.
    """
    sizes = np.bincount(_segments(table))
    n_people = len(np.unique(table.person))
    return float(scipy.special.gammaln(sizes + 1.0).sum() - scipy.special.gammaln(n_people + 1.0))


def tested_means(table: CellTable) -> np.ndarray:
    """Return the numbers that are permuted, (k, c): centred means, of unequal cells over their standard deviations."""
    if not table.has_strata:
        return table.mean
    scale = 1 / np.sqrt(np.maximum(relative_variance(table), TINY))
    return np.where(table.present[:, table.test_set], table.mean * scale, 0.0)


def relative_variance(table: CellTable) -> np.ndarray:
    """Return the variance of each cell's mean over that of one answer, ρ + 1/n, (k, c); 0 where missing.

    ρ ≥ 0 is the variance of the interaction of person and template over that of one answer, by moments, where cells
    have two answers; elsewhere 0, and all cells are alike.
    """
    n = table.count[:, table.test_set]
    residual = residual_variance(table)
    inverse = np.divide(1.0, n, out=np.zeros(n.shape), where=n > 0)
    mean_inverse = inverse.sum(axis=0) / np.maximum((n > 0).sum(axis=0), 1)
    ratio = np.divide(residual, table.within, out=np.zeros_like(residual), where=table.within > TINY)
    interaction = np.where(table.within > TINY, np.maximum(ratio - mean_inverse, 0.0), 0.0)
    return np.where(n > 0, interaction + inverse, 0.0)


def residual_variance(table: CellTable) -> np.ndarray:
    """Return the variance of the cell means around template and person, (c,).

    Where people and templates together leave no degree of freedom, as on a single template, it is the variance around
    the template, which is too large by the differences between people.
    """
    present = table.present
    observed = statistics_of(table, table.mean, present)
    residual = np.where(present[:, table.test_set], table.mean - observed.effect[table.person], 0.0)
    n_cells = present.sum(axis=0)
    n_templates = np.array([len(np.unique(table.template[has])) for has in present.T])
    n_people = np.array([len(np.unique(table.person[has])) for has in present.T])
    freedom = (n_cells - n_templates - n_people + 1)[table.test_set]
    freedom_of_templates = np.maximum(n_cells - n_templates, 1)[table.test_set]
    around_template = (table.mean**2).sum(axis=0) / freedom_of_templates
    around_person = (residual**2).sum(axis=0) / np.maximum(freedom, 1)
    variance = np.where(freedom > 0, around_person, around_template)
    return np.maximum(variance, least_variance(table.mean, np.maximum(n_cells, 1)[table.test_set]))


def statistics_of(table: CellTable, mean: np.ndarray, present: np.ndarray) -> Statistics:
    """Return the effects on people, and their variances, from centred cell means, (k, c), and which exist, (k, f).

    The variance is that of the cell means around each person's effect, pooled over people, because styles are rare: if
    no answer to a person has a style, the person's own variance is nearly 0. Where cells are not alike (strata, random
    signs), it is the larger one of this and the person's own. Both are computed anew in each draw.
    """
    of_person = table.person_sums
    n = np.maximum(of_person @ present.astype(mean.dtype), 1)[:, table.test_set]
    effect = (of_person @ mean) / n
    around = np.maximum(of_person @ mean**2 - n * effect**2, 0.0)  # summed squares around each person's effect
    n_cells = np.maximum(present.sum(axis=0), 1)[table.test_set].astype(mean.dtype)
    pooled = around.sum(axis=0) / np.maximum((n - 1).sum(axis=0), 1)
    variance = np.maximum(pooled, least_variance(mean, n_cells)) / n
    if table.uses_own_variance:
        variance = np.maximum(variance, around / np.maximum(n - 1, 1) / n)
    return Statistics(effect, variance, n)


def least_variance(mean: np.ndarray, n_cells: np.ndarray) -> np.ndarray:
    """Return the variance of a cell mean if one cell of all differed, (c,), so that people without variance have some.

    No draw changes it.
    """
    return (mean**2).sum(axis=0) / n_cells**2


def answer_factor(table: CellTable) -> np.ndarray:
    """Return the variance of each effect on a person over that of one answer, if answers are independent, (D, c).

    A cell of n_j answers, one of m cells on its template, contributes (1 − 2/m) / n_j + Σ_i 1/n_i / m², since it is a
    part of the average that it is compared with.
    """
    count = table.count
    present = table.present.astype(float)
    inverse = np.divide(1.0, count, out=np.zeros(count.shape), where=table.present)
    n_cells = np.maximum(sum_by(table.template, present), 1)
    of_average = sum_by(table.template, inverse) / n_cells**2
    m = n_cells[table.template]
    factor = present * ((1 - 2 / m) * inverse + of_average[table.template])
    n = np.maximum(sum_by(table.person, present), 1)
    return (sum_by(table.person, factor) / n**2)[:, table.test_set]


def effect_variance(table: CellTable) -> np.ndarray:
    """Return the sampling variance of each effect, (D, c): of D people on each of c columns.

    The noise is estimated from all people together, and scaled by how many answers and cells each person has. Of single
    answers, it is the variance within cells, or that of cell means in a column that does not vary within cells.
    """
    relative = relative_variance(table)
    of_people = statistics_of(table, relative, table.present)
    n_cells = np.maximum(table.present.sum(axis=0), 1)[table.test_set]
    of_all = relative.sum(axis=0) / n_cells
    # How a person's cells vary relative to all cells, since they may have more or fewer answers.
    factor = np.divide(of_people.effect, of_all, out=np.ones_like(of_people.effect), where=of_all > 0)
    n_people = len(of_people.effect)
    variance = residual_variance(table) * factor / of_people.n_templates * (1 - 1 / max(n_people, 2))
    if table.unit == ANSWERS:
        return np.where(table.within > TINY, table.within * answer_factor(table), variance)
    return variance


def own_effect_variance(table: CellTable) -> tuple[np.ndarray, np.ndarray]:
    """Return the sampling variance of each effect from the person's own cells or answers, and its freedom, (D, c) each.

    It is unbiased also where a person's numbers vary more or less than other people's. Both are 0 for a person with one
    cell or, of single answers, without two in a cell.
    """
    if table.unit == CELLS:
        found = statistics_of(table, table.mean, table.present)
        around = np.maximum(table.person_sums @ table.mean**2 - found.n_templates * found.effect**2, 0.0)
        freedom = np.maximum(table.person_sums @ table.present - 1, 0)[:, table.test_set]
        return around / np.maximum(freedom, 1) / found.n_templates, freedom
    freedom = (table.person_sums @ np.maximum(table.count - 1, 0))[:, table.test_set]
    within = (table.person_sums @ table.deviations) / np.maximum(freedom, 1)
    return within * answer_factor(table), freedom


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
        for order in _orders(_segments(self.table), n, rng):
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
        super().__init__(_cell_means(equal, parts))
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
        for order in _orders(self.template, n, rng):
            count = cell_sums @ self.has_value[order].astype(float)
            mean = (cell_sums @ self.values[order]) / np.maximum(count, 1)[:, table.test_set]
            present = count > 0
            centred = _centred(mean, present[:, table.test_set], table.template)
            yield replace(statistics_of(table, centred, present), variance=self.variance)
