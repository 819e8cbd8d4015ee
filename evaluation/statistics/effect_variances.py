"""The effects on people from the means of their cells, and the sampling variances of the effects."""

from dataclasses import dataclass

import numpy as np

from evenhand.evaluation.statistics.cell_table import ANSWERS, CELLS, TINY, CellTable
from evenhand.evaluation.statistics.cells import sum_by


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
