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

import numpy as np
import scipy

from evenhand.evaluation.statistics.cells import sum_by

CELLS, ANSWERS = "cells", "answers"  # units of chance
MIN_TEMPLATES, MIN_P = 6, 0.01
STRATA_P, STRATA_DRAWS = 0.2, 199
STRATUM_STARTS = (2, 4)  # smallest numbers of prompts of the second and the third stratum
LEVEL = 0.05
TINY = 1e-12
ROUNDING = 1e-5  # relative difference below which two statistics in float32 are equal
MAX_Z, BINS_PER_Z = 32, 64  # the grid on which permuted |z| are counted
PILOT = 199  # most draws that set the scales of z


@dataclass(frozen=True)
class Family:
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
        return self.values if self.sums is None else np.concatenate([self.values, self.values @ self.sums], axis=1)


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
class Table:
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
        shape = (int(self.person.max()) + 1, k)
        ones = np.ones(k, dtype=np.float32)  # products with float64 are float64
        return scipy.sparse.csr_array((ones, (self.person, np.arange(k))), shape=shape)

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


def cell_table(design: Design, families: Sequence[Family], rng: np.random.Generator) -> Table | None:
    """Return the means of all families by cell; None if no two people have a common template."""
    n_templates = int(design.template.max(initial=-1)) + 1
    key, cell, asked = np.unique(
        design.person.astype(np.int64) * n_templates + design.template, return_inverse=True, return_counts=True
    )
    template = key % max(n_templates, 1)
    is_compared = np.bincount(template, minlength=n_templates)[template] > 1
    if not is_compared.any():
        return None
    columns = [family.all_values for family in families]
    number = np.repeat(np.arange(len(families)), [each.shape[1] for each in columns])
    sums = []
    squares = []
    counts = []
    for values in columns:
        has_value = np.isfinite(values).all(axis=1)
        filled = np.where(has_value[:, None], values, 0.0)
        counts.append(np.bincount(cell, has_value, minlength=len(key)))
        sums.append(sum_by(cell, filled, len(key)))
        squares.append(sum_by(cell, filled**2, len(key)))
    count = np.stack(counts, axis=1)[is_compared]
    n = count[:, number]
    mean = np.concatenate(sums, axis=1)[is_compared] / np.maximum(n, 1)
    deviations = np.maximum(np.concatenate(squares, axis=1)[is_compared] - n * mean**2, 0.0)
    freedom = np.maximum(n - 1, 0).sum(axis=0)
    within = np.where(freedom > 0, deviations.sum(axis=0) / np.maximum(freedom, 1), 0.0)
    centred = _centred(mean, n > 0, template[is_compared])
    table = Table(
        template=template[is_compared],
        person=(key // max(n_templates, 1))[is_compared],
        asked=asked[is_compared],
        stratum=np.zeros(int(is_compared.sum()), dtype=int),
        family=number,
        count=count,
        mean=centred,
        average=np.where(n > 0, mean - centred, 0.0),
        within=within,
    )
    return _with_unit(table, design, rng)


def _centred(mean: np.ndarray, present: np.ndarray, template: np.ndarray) -> np.ndarray:
    """Return each cell's mean less the mean of the cells of its template that have one, (k, c); 0 where missing."""
    average = sum_by(template, mean * present) / np.maximum(sum_by(template, present.astype(float)), 1)
    return np.where(present, mean - average[template], 0.0)


def _with_unit(table: Table, design: Design, rng: np.random.Generator) -> Table:
    """Return the table with its unit of chance and its strata."""
    if _smallest_number_of_templates(table, design) < MIN_TEMPLATES:
        return replace(table, unit=ANSWERS)
    if _depends_on_person(table, rng):
        stratum = np.searchsorted(STRATUM_STARTS, table.asked, side="right")
        table = replace(table, stratum=stratum, uses_own_variance=True)
    if _log_permutations(table) < math.log(1 / MIN_P):
        return replace(table, unit=ANSWERS, stratum=np.zeros_like(table.stratum), uses_own_variance=False)
    return table


def _smallest_number_of_templates(table: Table, design: Design) -> int:
    """Return the smallest number of templates that a person has in common with others, by cue if there are several."""
    if design.cue is None:
        return int(np.bincount(table.person, minlength=design.n_people).min())
    cue_of_template = np.zeros(int(design.template.max()) + 1, dtype=int)
    cue_of_template[design.template] = design.cue
    cue = cue_of_template[table.template]
    n_templates = np.zeros((design.n_people, int(design.cue.max()) + 1), dtype=int)
    np.add.at(n_templates, (table.person, cue), 1)
    return int(n_templates.min())


def _depends_on_person(table: Table, rng: np.random.Generator) -> bool:
    """Return whether a permutation test finds that the number of prompts depends on the person, at p < STRATA_P."""
    asked = table.asked.astype(float)
    centred = _centred(asked[:, None], np.ones((len(asked), 1)), table.template)[:, 0]
    if np.abs(centred).max(initial=0.0) < TINY:
        return False
    n_templates = np.bincount(table.person)

    def spread(values: np.ndarray) -> float:
        return float((np.bincount(table.person, values) ** 2 / np.maximum(n_templates, 1)).sum())

    observed = spread(centred) * (1 - ROUNDING)
    drawn = [spread(centred[order]) for order in _orders(table.template, STRATA_DRAWS, rng)]
    return (1 + sum(each >= observed for each in drawn)) / (1 + STRATA_DRAWS) < STRATA_P


def _orders(segment: np.ndarray, n: int, rng: np.random.Generator) -> Iterator[np.ndarray]:
    """Yield n random orders of items, (k,), that exchange items of one segment only."""
    by_segment = np.argsort(segment, kind="stable")
    sorted_segment = segment[by_segment].astype(float)
    order = np.empty(len(segment), dtype=int)
    for _ in range(n):
        shuffled = np.argsort(sorted_segment + rng.random(len(segment)))
        order[by_segment] = by_segment[shuffled]
        yield order.copy()


def _segments(table: Table) -> np.ndarray:
    """Return a code for each template and stratum, (k,)."""
    return table.template * (len(STRATUM_STARTS) + 1) + table.stratum


def _log_permutations(table: Table) -> float:
    """Return the logarithm of the number of permutations of cells that may differ in the largest effect.

    One permutation of people in all templates at once only renames them.
    """
    sizes = np.bincount(_segments(table))
    n_people = len(np.unique(table.person))
    return float(scipy.special.gammaln(sizes + 1.0).sum() - scipy.special.gammaln(n_people + 1.0))


def tested_means(table: Table) -> np.ndarray:
    """Return the numbers that are permuted, (k, c): centred means, of unequal cells over their standard deviations."""
    if not table.has_strata:
        return table.mean
    scale = 1 / np.sqrt(np.maximum(relative_variance(table), TINY))
    return np.where(table.count[:, table.family] > 0, table.mean * scale, 0.0)


def relative_variance(table: Table) -> np.ndarray:
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


def residual_variance(table: Table) -> np.ndarray:
    """Return the variance of the cell means around template and person, (c,)."""
    present = table.count > 0
    observed = statistics_of(table, table.mean, present)
    residual = np.where(present[:, table.family], table.mean - observed.effect[table.person], 0.0)
    n_cells = present.sum(axis=0)
    n_templates = np.array([len(np.unique(table.template[has])) for has in present.T])
    n_people = np.array([len(np.unique(table.person[has])) for has in present.T])
    freedom = np.maximum(n_cells - n_templates - n_people + 1, 1)
    variance = (residual**2).sum(axis=0) / freedom[table.family]
    return np.maximum(variance, least_variance(table.mean, np.maximum(n_cells, 1)[table.family]))


def statistics_of(table: Table, mean: np.ndarray, present: np.ndarray) -> Statistics:
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


# A source of draws from the null hypothesis: yields n statistics with a stream of random numbers.
Draws = Callable[[int, np.random.Generator], Iterator[Statistics]]


def permuted_cells(table: Table) -> Draws:
    """Return the draws in which people are permuted within each template and stratum."""
    values = tested_means(table).astype(np.float32)
    present = table.count > 0
    segments = _segments(table)

    def draws(n: int, rng: np.random.Generator) -> Iterator[Statistics]:
        for order in _orders(segments, n, rng):
            yield statistics_of(table, values[order], present[order])

    return draws


def flipped_cells(table: Table) -> Draws:
    """Return the draws in which each cell of differences between two runs gets a random sign."""
    values = table.mean.astype(np.float32)
    present = table.count > 0

    def draws(n: int, rng: np.random.Generator) -> Iterator[Statistics]:
        for _ in range(n):
            sign = rng.integers(0, 2, size=(len(values), 1)).astype(np.float32) * 2 - 1
            yield statistics_of(table, values * sign, present)

    return draws


def for_signs(table: Table) -> Table:
    """Return the table as random signs need it: cells as the unit of chance, no strata, people's own variances."""
    return replace(table, unit=CELLS, stratum=np.zeros_like(table.stratum), uses_own_variance=True)


@dataclass(frozen=True)
class _Answers:
    """The answers of the table's cells: values, 0 where missing, (n, c); which exist, (n, f); template; and cell."""

    values: np.ndarray
    has_value: np.ndarray
    template: np.ndarray
    cell: np.ndarray


def _answers(table: Table, design: Design, families: Sequence[Family]) -> _Answers:
    n_templates = int(design.template.max()) + 1
    key = design.person.astype(np.int64) * n_templates + design.template
    keys = table.person.astype(np.int64) * n_templates + table.template
    is_used = np.isin(key, keys)
    values = np.concatenate([family.all_values for family in families], axis=1)[is_used]
    has_value = np.stack([np.isfinite(family.all_values).all(axis=1) for family in families], axis=1)[is_used]
    return _Answers(
        values=np.where(has_value[:, table.family], values, 0.0),
        has_value=has_value,
        template=design.template[is_used],
        cell=np.searchsorted(keys, key[is_used]),
    )


def answer_variance_of(table: Table, design: Design, families: Sequence[Family]) -> np.ndarray:
    """Return the variance of one answer within its template, (c,), which no permutation of answers changes."""
    answers = _answers(table, design, families)
    n = sum_by(answers.template, answers.has_value.astype(float))
    average = sum_by(answers.template, answers.values) / np.maximum(n, 1)[:, table.family]
    deviation = np.where(answers.has_value[:, table.family], answers.values - average[answers.template], 0.0)
    freedom = np.maximum(np.maximum(n - 1, 0).sum(axis=0), 1)
    return (deviation**2).sum(axis=0) / freedom[table.family]


def permuted_answers(table: Table, design: Design, families: Sequence[Family]) -> Draws:
    """Return the draws in which single answers are permuted within each template."""
    answers = _answers(table, design, families)
    pooled = answer_variance_of(table, design, families) * answer_factor(table)
    shape = (len(table.template), len(answers.cell))
    places = (answers.cell, np.arange(len(answers.cell)))
    of_cell = scipy.sparse.csr_array((np.ones(len(answers.cell)), places), shape=shape)

    def draws(n: int, rng: np.random.Generator) -> Iterator[Statistics]:
        for order in _orders(answers.template, n, rng):
            count = of_cell @ answers.has_value[order].astype(float)
            present = count > 0
            mean = (of_cell @ answers.values[order]) / np.maximum(count, 1)[:, table.family]
            centred = _centred(mean, present[:, table.family], table.template)
            found = statistics_of(table, centred, present)
            yield replace(found, variance=pooled)

    return draws


def answer_factor(table: Table) -> np.ndarray:
    """Return the variance of each effect on a person over that of one answer, if answers are independent, (D, c).

    A cell of n_j answers, one of m cells on its template, contributes (1 − 2/m) / n_j + Σ_i 1/n_i / m², since it is a
    part of the average that it is compared with.
    """
    count = table.count
    present = (count > 0).astype(float)
    inverse = np.divide(1.0, count, out=np.zeros(count.shape), where=count > 0)
    n_cells = np.maximum(sum_by(table.template, present), 1)
    of_average = sum_by(table.template, inverse) / n_cells**2
    m = n_cells[table.template]
    factor = present * ((1 - 2 / m) * inverse + of_average[table.template])
    n = np.maximum(sum_by(table.person, present), 1)
    return (sum_by(table.person, factor) / n**2)[:, table.family]


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


def tested_families(
    found: Statistics, families: Sequence[Family], numbers: np.ndarray, groups: np.ndarray
) -> list[Tested]:
    """Return the tests of each family from statistics of all columns; `numbers` are the columns' families, (c,)."""
    units = np.concatenate([np.eye(groups.shape[1], dtype=found.effect.dtype), groups.astype(found.effect.dtype)])
    shrink = variance_of_groups(groups).astype(found.effect.dtype)
    variance = found.variance
    effect = np.concatenate([found.effect, units[groups.shape[1] :] @ found.effect])
    of_groups = (groups.astype(variance.dtype) ** 2) @ variance * shrink[:, None]
    error = np.sqrt(np.concatenate([variance, of_groups]))
    error[error < TINY**0.5] = 0.0
    result = []
    for number, family in enumerate(families):
        chosen = np.flatnonzero(numbers == number)
        plain = chosen[: family.values.shape[1]]
        length = (found.effect[:, plain] ** 2).sum(axis=1)
        noise = found.variance[:, plain].sum(axis=1)
        shift = np.sqrt(np.divide(length, noise, out=np.zeros_like(length), where=noise > TINY))
        overall = float((found.n_templates[:, plain[0]] * length).sum())
        result.append(Tested(effect[:, chosen], error[:, chosen], shift, overall))
    return result


def variance_of_groups(groups: np.ndarray) -> np.ndarray:
    """Return the variance of each group's effect over that of independent effects of its people, (g,).

    Effects of all D people sum to 0. So a group of weights w has (Σ w² − 1/D) / (1 − 1/D) of the variance of one
    person, where independent effects have Σ w².
    """
    squares = (groups**2).sum(axis=1)
    rest = 1 / max(groups.shape[1], 2)
    return np.maximum(squares - rest, 0.0) / (np.maximum(squares, TINY) * (1 - rest))


def _as_vector(tested: Tested, family: Family, n_people: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the statistics of a family as one vector, and the code of each one's scale.

    People and groups, columns, whole shifts and the overall test have scales of their own. The last two are lengths,
    which are not near 0 under the null hypothesis: their codes are the last two.
    """
    parts = []
    codes = []
    n_columns = tested.effect.shape[1]
    if family.has_effects:
        is_group = (np.arange(len(tested.effect)) >= n_people).astype(int)
        parts.append(np.abs(tested.z).ravel())
        codes.append((is_group[:, None] * n_columns + np.arange(n_columns)).ravel())
        if n_columns > 1:
            parts.append(tested.shift)
            codes.append(np.full(n_people, 2 * n_columns))
    if family.has_overall:
        parts.append(np.array([tested.overall]))
        codes.append(np.array([2 * n_columns + 1]))
    return np.concatenate(parts), np.concatenate(codes)


def p_values(
    observed: Sequence[Tested],
    draws: Draws,
    n_draws: int,
    families: Sequence[Family],
    numbers: np.ndarray,
    groups: np.ndarray,
    rng: np.random.Generator,
) -> list[PValues]:
    """Return the p-values of all families from `n_draws` joint draws."""
    n_people = groups.shape[1]
    vectors = [_as_vector(tested, family, n_people) for tested, family in zip(observed, families, strict=True)]
    counters = [
        _Counter(vector, code, first_length=2 * tested.effect.shape[1])
        for (vector, code), tested in zip(vectors, observed, strict=True)
    ]

    def drawn(n: int, stream: np.random.Generator) -> Iterator[list[np.ndarray]]:
        for found in draws(n, stream):
            tested = tested_families(found, families, numbers, groups)
            yield [_as_vector(each, family, n_people)[0] for each, family in zip(tested, families, strict=True)]

    pilot = list(drawn(min(n_draws, PILOT), np.random.default_rng(rng.integers(1 << 63))))
    for number, counter in enumerate(counters):
        counter.set_scale([draw[number] for draw in pilot])
    for draw in drawn(n_draws, rng):
        for counter, vector in zip(counters, draw, strict=True):
            counter.add(vector)
    level, to_page = _joint_level([counter.largest for counter in counters])
    return [
        counter.p_values(tested, family, level, to_page)
        for counter, tested, family in zip(counters, observed, families, strict=True)
    ]


def _joint_level(largest: Sequence[Sequence[float]]) -> tuple[float, Callable[[np.ndarray], np.ndarray]]:
    """Return the p-value within a family from which it is at most LEVEL over all families, and the adjustment.

    The adjustment is a function of p-values within a family. It returns how often the smallest p-value of the families
    is as small in a draw.
    """
    n = len(largest[0])
    if not n:
        return 0.0, np.ones_like
    ranks = [scipy.stats.rankdata(-np.asarray(each), method="max") / (n + 1) for each in largest]
    smallest = np.sort(np.min(ranks, axis=0))

    def to_page(p: np.ndarray) -> np.ndarray:
        as_small = np.searchsorted(smallest, np.asarray(p) + TINY, side="right")
        return np.maximum((as_small + 1) / (n + 1), p)

    candidates = np.arange(1, n + 1) / (n + 1)
    return float(candidates[to_page(candidates) <= LEVEL].max(initial=0.0)), to_page


class _Counter:
    """Counts of draws in which a family's statistics are as large as observed."""

    def __init__(self, vector: np.ndarray, code: np.ndarray, first_length: int) -> None:
        self.vector = vector
        self.code = code
        self.is_length = code >= first_length
        self.largest: list[float] = []
        self.n = 0
        self.as_large_overall = 0
        self.counts = np.zeros((int(code.max()) + 1, MAX_Z * BINS_PER_Z), dtype=np.int64)

    def set_scale(self, pilot: Sequence[np.ndarray]) -> None:
        """Set the offset and the scale of each code from the draws of the pilot.

        The offset is 0 for an effect, and the mean for a length. The scale is the mean of the largest 5 % of the draws'
        largest statistics, less the offset; 1 without draws.
        """
        n_codes = len(self.counts)
        self.offset = np.zeros(len(self.vector))
        scale = np.ones(n_codes)
        if pilot:
            total = np.bincount(self.code, np.mean(pilot, axis=0), minlength=n_codes)
            mean = total / np.maximum(np.bincount(self.code, minlength=n_codes), 1)
            self.offset = np.where(self.is_length, mean[self.code], 0.0)
            largest = np.full((len(pilot), n_codes), -np.inf)
            for row, vector in zip(largest, pilot, strict=True):
                np.maximum.at(row, self.code, vector - self.offset)
            tail = np.sort(largest, axis=0)[-1 - len(largest) // 20 :].mean(axis=0)
            scale = np.where(tail > 0, tail, 1.0)
        self.scale = scale[self.code]
        scaled = self._scaled(self.vector)
        self.order = np.argsort(-scaled, kind="stable")
        self.observed = scaled[self.order] - ROUNDING * np.abs(scaled[self.order])
        self.as_large = np.zeros(len(scaled), dtype=np.int64)

    def _scaled(self, vector: np.ndarray) -> np.ndarray:
        return (vector - self.offset) / self.scale

    def add(self, vector: np.ndarray) -> None:
        """Count the statistics of a draw."""
        scaled = self._scaled(vector)[self.order]
        successive = np.maximum.accumulate(scaled[::-1])[::-1]
        self.as_large += successive >= self.observed
        self.largest.append(float(successive[0]))
        self.n += 1
        self.as_large_overall += bool(vector[-1] >= self.vector[-1] * (1 - ROUNDING))
        place = self.code * self.counts.shape[1] + np.minimum(vector * BINS_PER_Z, self.counts.shape[1] - 1).astype(int)
        self.counts += np.bincount(place, minlength=self.counts.size).reshape(self.counts.shape)

    def p_values(
        self, tested: Tested, family: Family, level: float, to_page: Callable[[np.ndarray], np.ndarray]
    ) -> PValues:
        """Return the p-values of the family; `level` is the p-value within the family that is LEVEL on the page."""
        of_family = np.empty(len(self.vector))
        of_family[self.order] = np.maximum.accumulate((self.as_large + 1) / (self.n + 1))
        # The null distribution of a single effect is that of all effects with its scale.
        n_of_code = np.bincount(self.code, minlength=len(self.counts))
        above = np.cumsum(self.counts[:, ::-1], axis=1)[:, ::-1]
        place = np.minimum(self.vector * BINS_PER_Z, self.counts.shape[1] - 1).astype(int)
        single = (above[self.code, place] + 1) / (self.n * n_of_code[self.code] + 1)
        threshold = math.inf
        allowed = math.floor(level * (self.n + 1) + TINY)
        if allowed > 0:
            threshold = float(np.sort(self.largest)[-allowed])
        shape = tested.effect.shape
        n_effects = tested.effect.size if family.has_effects else 0
        n_shifts = len(tested.shift) if family.has_effects and shape[1] > 1 else 0
        effects = slice(0, n_effects)
        shifts = slice(n_effects, n_effects + n_shifts)
        page = to_page(of_family)

        def of_effects(values: np.ndarray) -> np.ndarray:
            return values[effects].reshape(shape) if n_effects else np.ones(shape)

        def of_shifts(values: np.ndarray) -> np.ndarray:
            return values[shifts] if n_shifts else np.ones(len(tested.shift))

        has_error = tested.error > 0
        return PValues(
            single=np.where(has_error, of_effects(single), 1.0),
            family=np.where(has_error, of_effects(of_family), 1.0),
            page=np.where(has_error, of_effects(page), 1.0),
            shift=of_shifts(of_family),
            shift_page=of_shifts(page),
            overall=(self.as_large_overall + 1) / (self.n + 1) if family.has_overall else 1.0,
            overall_page=float(page[-1]) if family.has_overall else 1.0,
            threshold=of_effects(self.scale) * threshold,
        )
