"""Means of people's answers by cell (person × template), and what is exchanged: cells, or single answers.

What is exchanged, and why, is said in `permutation`.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

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


def cell_table(design: Design, test_sets: Sequence[SetOfTests], rng: np.random.Generator) -> CellTable:
    """Return the means of all sets by cell.

    Raises:
        ValueError: no two people have a common template.
    """
    return _with_unit(means_by_cell(design, test_sets), design, rng)


def means_by_cell(design: Design, test_sets: Sequence[SetOfTests]) -> CellTable:
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
    centred = centre(mean, n > 0, template[is_compared])
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


def centre(mean: np.ndarray, present: np.ndarray, template: np.ndarray) -> np.ndarray:
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
    centred = centre(asked[:, None], np.ones((len(asked), 1)), table.template)[:, 0]
    if np.abs(centred).max(initial=0.0) < TINY:
        return False
    n_templates = np.bincount(table.person)

    def spread(values: np.ndarray) -> float:
        return float((np.bincount(table.person, values) ** 2 / np.maximum(n_templates, 1)).sum())

    observed = spread(centred) * (1 - ROUNDING)
    n_as_large = 0
    for order in random_orders(table.template, STRATA_DRAWS, rng):
        n_as_large += spread(centred[order]) >= observed
    return (1 + n_as_large) / (1 + STRATA_DRAWS) < STRATA_P


def random_orders(segment: np.ndarray, n: int, rng: np.random.Generator) -> Iterator[np.ndarray]:
    """Yield n random orders of items, (k,), that exchange items of one segment only."""
    by_segment = np.argsort(segment, kind="stable")
    sorted_segment = segment[by_segment].astype(float)
    order = np.empty(len(segment), dtype=int)
    for _ in range(n):
        shuffled = np.argsort(sorted_segment + rng.random(len(segment)))
        order[by_segment] = by_segment[shuffled]
        yield order.copy()


def segments(table: CellTable) -> np.ndarray:
    """Return a code for each template and stratum, (k,)."""
    return table.template * (len(STRATUM_STARTS) + 1) + table.stratum


def _is_everybody_exchanged(table: CellTable) -> bool:
    """Return whether each person shares a stratum with somebody else on MIN_TEMPLATES templates or more."""
    segment = segments(table)
    is_exchanged = np.bincount(segment)[segment] > 1
    return bool(np.bincount(table.person, is_exchanged).min() >= MIN_TEMPLATES)


def _log_permutations(table: CellTable) -> float:
    """Return the logarithm of the number of permutations of cells that may differ in the largest effect.

    One permutation of people in all templates at once only renames them.
    """
    sizes = np.bincount(segments(table))
    n_people = len(np.unique(table.person))
    return float(scipy.special.gammaln(sizes + 1.0).sum() - scipy.special.gammaln(n_people + 1.0))
