"""One joint permutation test of everything that a page calls shown.

The unit of chance is a cell: the answers of one person to one template. The null hypothesis is that people's cells are
exchangeable over prompts like these. In each template one permutation of people moves all numbers of a cell together:
its styles, its outcomes, and which of them are missing. So the test is exact, P(p ≤ α) ≤ α, whatever the answers of a
cell have in common (copies, one template's peculiar effect on one person), and one answer to a cell suffices. Miller
(2024, "Adding error bars to evals", §2.2) clusters standard errors for the same reason.

A *family* is the tests of one kind of number: the styles, one outcome, the styles by one cue. Within a family the
simultaneous test is step-down max-T (Westfall and Young 1993, "Resampling-Based Multiple Testing", algorithm 4.1; Ge,
Dudoit and Speed 2003, "Resampling-based multiple testing for microarray data analysis", box 2), balanced (Beran 1988,
"Balanced simultaneous confidence sets"; Romano and Wolf 2010, "Balanced control of generalized error rates"): each |z|
is divided by a scale, so that people and groups, rare and frequent styles have about the same share of the error. The
scales come from draws of their own. Over the families of a page, the smallest p-value of the families is compared with
its distribution in the same draws (Westfall and Young 1993, §2.3), which costs less than Bonferroni's correction where
families are related.

Two designs need more care.

*Unequal cells.* A mean of one answer varies more than a mean of eight. If a permutation test finds that the number of
prompts depends on the person (p < 0.2), cells are only exchanged with cells of about as many prompts (1, 2 to 3, 4 or
more), and centred means are first divided by √(ρ + 1/n), with ρ the variance of the interaction over that of one
answer. Numbers of prompts are fixed before any answer is looked at, so choosing by them costs no error.

*Few templates.* With one template, no permutation of cells changes the largest effect. If somebody has fewer than
MIN_TEMPLATES templates in common with others, or the cells have too few permutations for p = MIN_P, single answers are
permuted within templates. What is shown then holds for these prompts only.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol

import numpy as np
import scipy

from evenhand.evaluation.statistics.cells import sum_by

# Units of chance.
CELLS = "cells"
ANSWERS = "answers"

LEVEL = 0.05  # of the family-wise error
MIN_TEMPLATES = 6  # of a person, in common with others; with fewer, answers are permuted
MIN_P = 0.01  # cells need enough permutations for this p-value
STRATA_P = 0.2  # of the test that the number of prompts depends on the person
STRATA_DRAWS = 199
STRATUM_STARTS = (2, 4)  # smallest numbers of prompts of the second and the third stratum
PILOT = 199  # most draws that set the scales of z
MAX_Z = 32  # the grid on which permuted |z| are counted ends here
BINS_PER_Z = 64
ROUNDING = 1e-5  # relative difference below which two statistics in float32 are equal
TINY = 1e-12


@dataclass(frozen=True)
class FamilyOfTests:
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
    """

    template: np.ndarray
    person: np.ndarray
    groups: np.ndarray
    cue: np.ndarray | None = None

    @property
    def n_people(self) -> int:
        """The number of people."""
        return self.groups.shape[1]


@dataclass(frozen=True)
class CellTable:
    """Means of all families by cell, on templates that two people have.

    Attributes:
        template, person, asked: codes of each cell's template and person, and its number of prompts, (k,).
        stratum: only cells of one template and one stratum are exchanged, (k,).
        family: the number of each column's family, (c,).
        count: number of answers with a value, by cell and family, (k, f).
        mean: mean of each cell less the mean over the people of its template, (k, c); 0 where missing.
        average: mean over the people of the cell's template, (k, c); 0 where missing.
        within: variance of one answer within its cell, (c,); 0 if no cell has two answers.
        unit: CELLS or ANSWERS.
        uses_own_variance: whether an effect is divided by the person's own standard error where it is the larger one.
    """

    template: np.ndarray
    person: np.ndarray
    asked: np.ndarray
    stratum: np.ndarray
    family: np.ndarray
    count: np.ndarray
    mean: np.ndarray
    average: np.ndarray
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
        """Whether each cell has an answer with a value, by family, (k, f)."""
        return self.count > 0

    @property
    def has_strata(self) -> bool:
        """Whether the number of prompts depends on the person."""
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


def cell_table(design: Design, families: Sequence[FamilyOfTests], rng: np.random.Generator) -> CellTable:
    """Return the means of all families by cell.

    Raises:
        ValueError: no two people have a common template.
    """
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
    for number, family in enumerate(families):
        values = family.all_values
        has_value = np.asarray(np.isfinite(values).all(axis=1))
        filled = np.where(has_value[:, None], values, 0.0)
        columns.append(np.full(values.shape[1], number))
        counts.append(np.bincount(cell, has_value, minlength=k))
        sums.append(sum_by(cell, filled, k))
        squares.append(sum_by(cell, filled**2, k))
    family_of_column = np.concatenate(columns)
    count = np.stack(counts, axis=1)[is_compared]
    n = count[:, family_of_column]
    mean = np.concatenate(sums, axis=1)[is_compared] / np.maximum(n, 1)
    deviations = np.maximum(np.concatenate(squares, axis=1)[is_compared] - n * mean**2, 0.0)
    freedom = np.maximum(n - 1, 0).sum(axis=0)
    centred = _centred(mean, n > 0, template[is_compared])
    table = CellTable(
        template=template[is_compared],
        person=person[is_compared],
        asked=asked[is_compared],
        stratum=np.zeros(int(is_compared.sum()), dtype=int),
        family=family_of_column,
        count=count,
        mean=centred,
        average=np.where(n > 0, mean - centred, 0.0),
        within=np.where(freedom > 0, deviations.sum(axis=0) / np.maximum(freedom, 1), 0.0),
    )
    return _with_unit(table, design, rng)


def _centred(mean: np.ndarray, present: np.ndarray, template: np.ndarray) -> np.ndarray:
    """Return each cell's mean less the mean of the cells of its template that have one, (k, c); 0 where missing."""
    n_cells = np.maximum(sum_by(template, present.astype(float)), 1)
    average = sum_by(template, mean * present) / n_cells
    return np.where(present, mean - average[template], 0.0)


def _with_unit(table: CellTable, design: Design, rng: np.random.Generator) -> CellTable:
    """Return the table with its unit of chance and its strata."""
    if _smallest_number_of_templates(table, design) < MIN_TEMPLATES:
        return replace(table, unit=ANSWERS)
    if _depends_on_person(table, rng):
        stratum = np.searchsorted(STRATUM_STARTS, table.asked, side="right")
        table = replace(table, stratum=stratum, uses_own_variance=True)
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
    return np.where(table.present[:, table.family], table.mean * scale, 0.0)


def relative_variance(table: CellTable) -> np.ndarray:
    """Return the variance of each cell's mean over that of one answer, ρ + 1/n, (k, c); 0 where missing.

    ρ ≥ 0 is the variance of the interaction of person and template over that of one answer, by moments, where cells
    have two answers; elsewhere 0, and all cells are alike.
    """
    n = table.count[:, table.family]
    residual = residual_variance(table)
    inverse = np.divide(1.0, n, out=np.zeros(n.shape), where=n > 0)
    mean_inverse = inverse.sum(axis=0) / np.maximum((n > 0).sum(axis=0), 1)
    ratio = np.divide(residual, table.within, out=np.zeros_like(residual), where=table.within > TINY)
    interaction = np.where(table.within > TINY, np.maximum(ratio - mean_inverse, 0.0), 0.0)
    return np.where(n > 0, interaction + inverse, 0.0)


def residual_variance(table: CellTable) -> np.ndarray:
    """Return the variance of the cell means around template and person, (c,)."""
    present = table.present
    observed = statistics_of(table, table.mean, present)
    residual = np.where(present[:, table.family], table.mean - observed.effect[table.person], 0.0)
    n_cells = present.sum(axis=0)
    n_templates = np.array([len(np.unique(table.template[has])) for has in present.T])
    n_people = np.array([len(np.unique(table.person[has])) for has in present.T])
    freedom = np.maximum(n_cells - n_templates - n_people + 1, 1)
    variance = (residual**2).sum(axis=0) / freedom[table.family]
    return np.maximum(variance, least_variance(table.mean, np.maximum(n_cells, 1)[table.family]))


def statistics_of(table: CellTable, mean: np.ndarray, present: np.ndarray) -> Statistics:
    """Return the effects on people, and their variances, from centred cell means, (k, c), and which exist, (k, f).

    The variance is that of the cell means around each person's effect, pooled over people, because styles are rare: if
    no answer to a person has a style, the person's own variance is nearly 0. Where cells are not alike (strata, random
    signs), it is the larger one of this and the person's own. Both are computed anew in each draw.
    """
    of_person = table.person_sums
    n = np.maximum(of_person @ present.astype(mean.dtype), 1)[:, table.family]
    effect = (of_person @ mean) / n
    around = np.maximum(of_person @ mean**2 - n * effect**2, 0.0)  # summed squares around each person's effect
    n_cells = np.maximum(present.sum(axis=0), 1)[table.family].astype(mean.dtype)
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
    return (sum_by(table.person, factor) / n**2)[:, table.family]


def effect_variance(table: CellTable) -> np.ndarray:
    """Return the sampling variance of each effect, (D, c): of D people on each of c columns.

    The noise is estimated from all people together, and scaled by how many answers and cells each person has.
    """
    if table.unit == ANSWERS and (table.within > 0).any():
        return table.within * answer_factor(table)
    relative = relative_variance(table)
    of_people = statistics_of(table, relative, table.present)
    n_cells = np.maximum(table.present.sum(axis=0), 1)[table.family]
    of_all = relative.sum(axis=0) / n_cells
    # How a person's cells vary relative to all cells, since they may have more or fewer answers.
    factor = np.divide(of_people.effect, of_all, out=np.ones_like(of_people.effect), where=of_all > 0)
    n_people = len(of_people.effect)
    return residual_variance(table) * factor / of_people.n_templates * (1 - 1 / max(n_people, 2))


class NullHypothesis(Protocol):
    """A null hypothesis: the observed statistics, and random draws of the statistics under the hypothesis."""

    @property
    def observed(self) -> Statistics:
        """The statistics as observed."""
        ...

    def draws(self, n: int, rng: np.random.Generator) -> Iterator[Statistics]:
        """Yield the statistics in n draws with the random numbers of `rng`."""
        ...


def null_hypothesis(table: CellTable, design: Design, families: Sequence[FamilyOfTests]) -> NullHypothesis:
    """Return the null hypothesis of one run: cells, or single answers, are exchangeable (`CellTable.unit`)."""
    if table.unit == ANSWERS:
        return ExchangeableAnswers(table, design, families)
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
        has_value: whether each answer has the numbers of each family, (n, f).
        template, cell: template and cell of each answer, (n,).
        variance: variance of each effect, (D, c), from that of one answer within its template, which no permutation of
            answers changes.
    """

    def __init__(self, table: CellTable, design: Design, families: Sequence[FamilyOfTests]) -> None:
        self.table = table
        n_templates = int(design.template.max()) + 1
        code = design.person.astype(np.int64) * n_templates + design.template
        code_of_cell = table.person.astype(np.int64) * n_templates + table.template
        is_used = np.isin(code, code_of_cell)
        values = np.concatenate([family.all_values for family in families], axis=1)[is_used]
        has_value = [np.isfinite(family.all_values).all(axis=1) for family in families]
        self.has_value = np.stack(has_value, axis=1)[is_used]
        self.values = np.where(self.has_value[:, table.family], values, 0.0)
        self.template = design.template[is_used]
        self.cell = np.searchsorted(code_of_cell, code[is_used])
        self.variance = self._variance_of_answer() * answer_factor(table)

    def _variance_of_answer(self) -> np.ndarray:
        """Return the variance of one answer within its template, (c,)."""
        family = self.table.family
        n = sum_by(self.template, self.has_value.astype(float))
        average = sum_by(self.template, self.values) / np.maximum(n, 1)[:, family]
        deviation = np.where(self.has_value[:, family], self.values - average[self.template], 0.0)
        freedom = np.maximum(np.maximum(n - 1, 0).sum(axis=0), 1)
        return (deviation**2).sum(axis=0) / freedom[family]

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
            mean = (cell_sums @ self.values[order]) / np.maximum(count, 1)[:, table.family]
            present = count > 0
            centred = _centred(mean, present[:, table.family], table.template)
            yield replace(statistics_of(table, centred, present), variance=self.variance)


@dataclass(frozen=True)
class Tested:
    """The tests of one family, as observed: u units (people, then groups) in c columns, of which the last are sums.

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
    """The p-values of a family, and the critical values at LEVEL.

    Attributes:
        single: p-value of each effect alone, (u, c).
        family, page: p-value of each effect, adjusted for the family and for all families together, (u, c).
        shift, shift_page: p-value of each person's whole shift, adjusted for the family and for all families, (D,).
        overall, overall_page: p-value of the test that people differ at all, alone and adjusted for all families.
        threshold: the |z| from which each effect has `page` ≤ LEVEL, (u, c); inf without draws.
    """

    single: np.ndarray
    family: np.ndarray
    page: np.ndarray
    shift: np.ndarray
    shift_page: np.ndarray
    overall: float
    overall_page: float
    threshold: np.ndarray

    def of_look(self, share: float) -> "PValues":
        """Return the p-values divided by the share of the error that is spent at a look, at most 1."""
        return PValues(
            single=np.minimum(self.single / share, 1.0),
            family=np.minimum(self.family / share, 1.0),
            page=np.minimum(self.page / share, 1.0),
            shift=np.minimum(self.shift / share, 1.0),
            shift_page=np.minimum(self.shift_page / share, 1.0),
            overall=min(self.overall / share, 1.0),
            overall_page=min(self.overall_page / share, 1.0),
            threshold=self.threshold,
        )


def _tested_families(
    found: Statistics, families: Sequence[FamilyOfTests], family_of_column: np.ndarray, groups: np.ndarray
) -> list[Tested]:
    """Return the tests of each family from the statistics of all columns, (D, c), and of groups, (g, D)."""
    weights = groups.astype(found.effect.dtype)
    squared_weights = groups.astype(found.variance.dtype) ** 2
    shrink = variance_of_groups(groups).astype(found.effect.dtype)
    effect = np.concatenate([found.effect, weights @ found.effect])
    variance = np.concatenate([found.variance, squared_weights @ found.variance * shrink[:, None]])
    error = np.sqrt(variance)
    error[error < TINY**0.5] = 0.0
    result = []
    for number, family in enumerate(families):
        columns = np.flatnonzero(family_of_column == number)
        plain = columns[: family.values.shape[1]]  # without sums of columns
        squared_length = (found.effect[:, plain] ** 2).sum(axis=1)
        noise = found.variance[:, plain].sum(axis=1)
        ratio = np.divide(squared_length, noise, out=np.zeros_like(squared_length), where=noise > TINY)
        tested = Tested(
            effect=effect[:, columns],
            error=error[:, columns],
            shift=np.sqrt(ratio),
            overall=float((found.n_templates[:, plain[0]] * squared_length).sum()),
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
    """The order of a family's statistics in one vector: effects of u units in c columns, D whole shifts, overall test.

    A family without effects has no shifts, and with one column a shift is the size of the effect.
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
        """Return the values of the effects in a vector, (u, c); 1 if the family has none."""
        shape = (self.n_units, self.n_columns)
        return values[: self.n_effects].reshape(shape) if self.n_effects else np.ones(shape)

    def shifts(self, values: np.ndarray) -> np.ndarray:
        """Return the values of the shifts in a vector, (D,); 1 if the family has none."""
        return values[self.n_effects :][: self.n_shifts] if self.n_shifts else np.ones(self.n_people)

    def overall(self, values: np.ndarray) -> float:
        """Return the value of the overall test in a vector; 1 if the family has none."""
        return float(values[-1]) if self.has_overall else 1.0


def joint_p_values(
    null: NullHypothesis,
    families: Sequence[FamilyOfTests],
    family_of_column: np.ndarray,
    groups: np.ndarray,
    n_draws: int,
    rng: np.random.Generator,
    share: float = 1.0,
) -> list[tuple[Tested, PValues]]:
    """Return the tests of each family and their p-values from `n_draws` joint draws.

    Args:
        null: the null hypothesis of all families.
        families: the families.
        family_of_column: number of the family of each column of the statistics, (c,).
        groups: weight of each of D people in each group, (g, D).
        n_draws: number of draws; more draws set the scales.
        rng: source of the draws.
        share: the share of the error that is spent at this look at a measurement (`sequential`), by which p-values are
            divided.
    """
    observed = _tested_families(null.observed, families, family_of_column, groups)
    layouts = []
    for family, tested in zip(families, observed, strict=True):
        n_units, n_columns = tested.effect.shape
        layout = _Layout(n_units, groups.shape[1], n_columns, family.has_effects, family.has_overall)
        layouts.append(layout)

    def drawn_vectors(n: int, stream: np.random.Generator) -> Iterator[list[np.ndarray]]:
        for found in null.draws(n, stream):
            drawn = _tested_families(found, families, family_of_column, groups)
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
    """Return the p-value in a family from which it is at most LEVEL · share over all families, and the adjustment.

    The adjustment is a function of p-values within a family. It returns how often the smallest p-value of the families
    is as small in a draw. `largest` is the largest statistic of each family in each draw.
    """
    n = len(largest[0])
    if not n:
        return 0.0, np.ones_like
    p_in_draws = [scipy.stats.rankdata(-np.asarray(of_family), method="max") / (n + 1) for of_family in largest]
    smallest = np.sort(np.min(p_in_draws, axis=0))

    def to_page(p: np.ndarray) -> np.ndarray:
        n_as_small = np.searchsorted(smallest, np.asarray(p) + TINY, side="right")
        return np.maximum((n_as_small + 1) / (n + 1), p)

    candidates = np.arange(1, n + 1) / (n + 1)
    level = candidates[to_page(candidates) <= LEVEL * share].max(initial=0.0)
    return float(level), to_page


class _Counter:
    """Counts of draws in which a family's statistics are as large as observed."""

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
        place = self.code * self.histogram.shape[1] + self._bins(vector)
        self.histogram += np.bincount(place, minlength=self.histogram.size).reshape(self.histogram.shape)

    def p_values(self, level: float, to_page: Callable[[np.ndarray], np.ndarray]) -> PValues:
        """Return the p-values of the family; `level` is the p-value within the family that is LEVEL on the page."""
        layout = self.layout
        has_error = self.tested.error > 0
        of_family = np.empty(len(self.vector))
        of_family[self.order] = np.maximum.accumulate((self.n_as_large + 1) / (self.n + 1))
        page = to_page(of_family)
        threshold = math.inf
        n_allowed = math.floor(level * (self.n + 1) + TINY)
        if n_allowed > 0:
            threshold = float(np.sort(self.largest)[-n_allowed])
        overall = 1.0
        if layout.has_overall:
            overall = (self.n_as_large_overall + 1) / (self.n + 1)
        return PValues(
            single=np.where(has_error, layout.effects(self._single()), 1.0),
            family=np.where(has_error, layout.effects(of_family), 1.0),
            page=np.where(has_error, layout.effects(page), 1.0),
            shift=layout.shifts(of_family),
            shift_page=layout.shifts(page),
            overall=overall,
            overall_page=layout.overall(page),
            threshold=layout.effects(self.scale) * threshold,
        )

    def _single(self) -> np.ndarray:
        """Return the p-value of each statistic alone, by the null distribution of all statistics with the same code."""
        n_with_code = np.bincount(self.code, minlength=self.n_codes)[self.code]
        above = np.cumsum(self.histogram[:, ::-1], axis=1)[:, ::-1]
        return (above[self.code, self._bins(self.vector)] + 1) / (self.n * n_with_code + 1)
