"""Pooled FGB*: the spread of people's mean styles over prompts like these, from pairs of people.

For two people d and e with K ≥ 2 common templates, let δ_t be the difference of their cell means on the common template
t. If δ_t = Δ + r_t, where Δ is the difference of the people and the r_t are independent of each other with mean 0, the
product of two *different* templates is an unbiased estimate of ‖Δ‖²:

    θ_de = ½ (‖Σ_t δ_t‖² − Σ_t ‖δ_t‖²) / (K (K − 1)),        E θ_de = ½ ‖Δ‖².

Pooled FGB* is the mean of θ_de over all pairs of people with two common templates, each pair with equal weight. Where
everybody has all templates, it estimates the variance between people (ddof = 1) of their mean styles. No product of two
responses to one template is a part of it. So neither the noise of sampling nor an interaction of person and template
biases it, one response to a cell suffices, and copies of a response do not move it. It may be slightly negative.

It is a quadratic form in the cell means m_i, θ̂ = Σ_{i≠j} A_ij ⟨m_i, m_j⟩, whose coefficients sum to 0 within each
template. With C_i the covariance of a cell mean around template and person, and μ_i the mean of the cell's person, its
variance is (Searle, Casella and McCulloch 1992, "Variance Components", appendix S)

    2 Σ_{i≠j} A_ij² tr(C_i C_j)  +  4 Σ_i g_i' C_i g_i,        g_i = Σ_j A_ij μ_j.

The first part is the variance where people do not differ. The second part grows with the spread. Each person has a
covariance of their own, from the residuals of the additive fit of templates and people: sampling noise and interaction.
"""

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from evenhand.evaluation.statistics.cell_noise import components
from evenhand.evaluation.statistics.cells import Cells, select_cells, sum_by
from evenhand.evaluation.statistics.descriptor_spread import UNKNOWN, Estimate, slope_of_variance
from evenhand.evaluation.statistics.intervals import TAILS

MIN_TEMPLATES = 2  # common templates of two people who are compared
LEAST_NOISE = 0.25  # of the noise by squares of estimated covariances, where the unbiased estimate is near or below 0
ROUNDING = 1e-12  # a variance below this share of the squared size of the numbers is a rounding error


@dataclass(frozen=True)
class _Grid:
    """The cells of the people who are compared with somebody, and who has which template.

    Attributes:
        mean: mean of each cell less the mean over the people of its template, (k, c).
        template, person: number of each cell's template and person, (k,).
        present: whether each person has each template, (D, T).
        common: number of common templates of two people, (D, D), 0 on the diagonal.
    """

    mean: np.ndarray
    template: np.ndarray
    person: np.ndarray
    present: np.ndarray
    common: np.ndarray

    @cached_property
    def is_compared(self) -> np.ndarray:
        """Whether two people have MIN_TEMPLATES common templates, (D, D)."""
        return self.common >= MIN_TEMPLATES

    @cached_property
    def coefficient(self) -> np.ndarray:
        """The coefficient of ⟨δ_t, δ_s⟩ in the estimate for each pair of people, (D, D), and each t ≠ s; 0 if none."""
        n_products = self.is_compared.sum() * self.common * (self.common - 1)
        return np.divide(1.0, n_products, out=np.zeros_like(n_products), where=self.is_compared)


def pooled_spread(cells: Cells, weights: np.ndarray | None = None) -> Estimate:
    """Return pooled FGB*: the spread of people's mean vectors over templates, as the module's docstring defines it.

    Args:
        cells: responses by cell; one response to a cell is enough.
        weights: weight of each column, (c,), default all 1. A 0/1 mask selects styles. With the columns of two runs
            side by side, −1 and +1 give the difference of the runs, paired by prompt.

    Returns:
        The estimate; NaN if no two people have two common templates. It has no interval if nothing varies between the
        templates of a person.

    In the example, one person has style (1, 0) and one has (0, 1) on both templates: ½ ‖(1, −1)‖² = 1.

    >>> from evenhand.evaluation.statistics.cells import arrange_cells
    >>> vectors = np.eye(2)[[0, 0, 1, 1]]
    >>> pooled_spread(arrange_cells(vectors, np.array([0, 1, 0, 1]), np.array([0, 0, 1, 1]), min_count=1)).value
    1.0
    """
    weights = np.ones(cells.mean.shape[1]) if weights is None else np.asarray(weights, dtype=np.float64)
    used = np.flatnonzero(weights)
    grid = _grid(cells.select_columns(used))
    if grid is None:
        return UNKNOWN
    w = weights[used]
    value = float(_half_distances(grid, w)[grid.is_compared].mean())
    return _with_variance(value, grid, w)


def half_distances(cells: Cells) -> tuple[np.ndarray, np.ndarray]:
    """Return θ_de of each pair of people, (D, D), and the code of each of the D people in `cells.descriptor`.

    θ_de is an unbiased estimate of half the squared distance of the mean vectors of two people, and NaN where they
    have fewer than two common templates. Both arrays are empty if no two people have two common templates.
    """
    compared = compared_cells(cells)
    grid = _grid(cells)
    if grid is None:
        return np.zeros((0, 0)), np.zeros(0, dtype=int)
    return _half_distances(grid, np.ones(cells.mean.shape[1])), np.unique(compared.descriptor)


def reach_of_constant(cells: Cells, tail: float = TAILS[1]) -> float | None:
    """Return how far √(pooled FGB*) of shares may be from the measured one if no person's answers vary; else None.

    Let e_d be the mean probability, over person d's K_d templates, of another answer than all that were given. Then no
    cell has another one with a probability of at most exp(−Σ K_d e_d), so that with a confidence of 1 − α,
    Σ K_d e_d ≤ −ln α. √(pooled FGB*) is a seminorm: it moves by at most that of the e_d, which is convex, and largest
    where one person has all of it: max over d of −ln α / K_d · √(pairs of d / (2 · all pairs)). With D people on K
    templates each, that is −ln α / (K √D). It is of these templates, and counts a cell as one answer, since further
    ones may be copies. Of two runs side by side, it is that of the change.

    Args:
        cells: cells of shares: each column is 0 or 1 in each answer. Of classes, the root is of pooled FGB* / 2.
        tail: the probability below the upper quantile of two-sided 95 % intervals; α is twice the rest.

    Returns:
        The distance, at most 1; None if a person's answers vary, or no two people have two common templates.

    Two people on three templates: −ln 0.05 / (3 √2).

    >>> from evenhand.evaluation.statistics.cells import arrange_cells
    >>> values = np.array([[1.0]] * 3 + [[0.0]] * 3)
    >>> cells = arrange_cells(values, np.array([0, 1, 2] * 2), np.repeat([0, 1], 3), min_count=1)
    >>> round(reach_of_constant(cells), 4)
    0.7061
    """
    grid = _grid(cells)
    if grid is None:
        return None
    mean = compared_cells(cells).mean
    first = np.unique(grid.person, return_index=True)[1]
    if not np.isin(mean, (0.0, 1.0)).all() or (mean != mean[first][grid.person]).any():
        return None
    n_others = grid.is_compared.sum(axis=1)
    part = np.sqrt(n_others / grid.is_compared.sum())  # each pair is in the sum twice
    most = np.minimum(-math.log(2 * (1 - tail)) / grid.present.sum(axis=1), 1.0)
    return float((part * most).max())


def compared_cells(cells: Cells) -> Cells:
    """Return the cells of people who have two templates in common with somebody, on templates of two such people."""
    n_cells = -1
    while n_cells != len(cells.count):
        n_cells = len(cells.count)
        cells = select_cells(cells, np.bincount(cells.template)[cells.template] > 1)
        cells = select_cells(cells, np.bincount(cells.descriptor)[cells.descriptor] >= MIN_TEMPLATES)
    return cells


def _grid(cells: Cells) -> _Grid | None:
    """Return the grid of the compared cells; None if no two people have two common templates."""
    cells = compared_cells(cells)
    if not len(cells.count):
        return None
    template = np.unique(cells.template, return_inverse=True)[1]
    person = np.unique(cells.descriptor, return_inverse=True)[1]
    present = np.zeros((person.max() + 1, template.max() + 1))
    present[person, template] = 1.0
    common = present @ present.T
    np.fill_diagonal(common, 0.0)
    if common.max() < MIN_TEMPLATES:
        return None
    mean_of_template = sum_by(template, cells.mean) / present.sum(axis=0)[:, None]
    return _Grid(
        mean=cells.mean - mean_of_template[template],
        template=template,
        person=person,
        present=present,
        common=common,
    )


def _half_distances(grid: _Grid, w: np.ndarray) -> np.ndarray:
    """Return θ_de of each pair of people, (D, D); NaN where two people have fewer than two common templates.

    With δ_t the difference of the two people's means on template t, and the sums over their k common templates,
    θ_de = ½ (‖Σ δ_t‖² − Σ ‖δ_t‖²) / (k (k − 1)).
    """
    present = grid.present
    n_people, n_templates = present.shape
    mean = np.zeros((n_templates, n_people, len(w)))  # 0 where a person lacks a template
    mean[grid.template, grid.person] = grid.mean
    own_squares = (mean**2 @ w).T  # (D, T)
    products = sum((of_template * w) @ of_template.T for of_template in mean)
    squares = own_squares @ present.T + present @ own_squares.T - 2 * products
    k = grid.common
    n_products = np.where(grid.is_compared, k * (k - 1), np.nan)
    result = np.empty((n_people, n_people))
    for person in range(n_people):
        sum_of_person = present @ mean[:, person]  # over the templates of each other person, (D, c)
        sum_of_others = np.tensordot(present[person], mean, axes=1)  # over the templates of this person, (D, c)
        result[person] = (sum_of_person - sum_of_others) ** 2 @ w
    return 0.5 * (result - squares) / n_products


def _fitted_people(grid: _Grid) -> np.ndarray:
    """Return the effects of people, (D, c), in the least-squares fit of templates and people to the cell means."""
    n_people_of_template = grid.present.sum(axis=0)
    normal = np.diag(grid.present.sum(axis=1)) - (grid.present / n_people_of_template) @ grid.present.T
    effects, *_ = np.linalg.lstsq(normal, sum_by(grid.person, grid.mean), rcond=1e-9)
    return effects


def _residuals(grid: _Grid, people: np.ndarray) -> np.ndarray:
    """Return the residuals of the cell means, (k, c), scaled so that their squares are unbiased in each template."""
    n_people_of_template = grid.present.sum(axis=0)
    residual = grid.mean - people[grid.person]
    mean_residual = sum_by(grid.template, residual) / n_people_of_template[:, None]
    scale = np.sqrt(n_people_of_template / (n_people_of_template - 1))
    return (residual - mean_residual[grid.template]) * scale[grid.template, None]


@dataclass(frozen=True)
class _PersonVariance:
    """What one person contributes to the variance of the estimate.

    Attributes:
        noise: 2 Σ A_ij² tr(C²) over the person's cells, without bias; may be negative.
        plain_noise: the same with the square of the estimated covariance C, which is too large on average.
        square: tr(Ĉ²).
        linear: 4 Σ g_i' C g_i over the person's cells.
    """

    noise: float
    plain_noise: float
    square: float
    linear: float


def _with_variance(value: float, grid: _Grid, w: np.ndarray) -> Estimate:
    """Return the estimate with the variance of the module's docstring.

    The fitted means μ contain noise, so that the second part of the variance is too large by about twice the first
    part. Only one times the first part is subtracted. For rare styles, a mean that is large by chance goes along with
    a large variance, and with the whole subtraction intervals cover 90 to 93 % (`python -m benchmarks.coverage`).
    """
    people = _fitted_people(grid)
    residual = _residuals(grid, people)
    freedom = grid.present.sum(axis=1) - 1
    parts = [_person_variance(grid, w, people, residual, person) for person in range(len(people))]
    plain_noise = np.array([part.plain_noise for part in parts])
    unbiased_noise = sum(part.noise for part in parts)
    linear = sum(part.linear for part in parts)

    # Products of two people are a small part of the noise, so their mean coefficient is used for all pairs.
    scaled = residual / np.sqrt(freedom)[grid.person, None]
    between = float(w @ (scaled.T @ scaled) ** 2 @ w) - sum(part.square for part in parts)
    squared_coefficients = grid.coefficient**2 * grid.common * (grid.common - 1)
    noise_of_pairs = 2 * float(squared_coefficients[grid.is_compared].mean()) * max(between, 0.0)
    noise = max(unbiased_noise, LEAST_NOISE * plain_noise.sum()) + noise_of_pairs
    size = float(((grid.mean**2) @ np.abs(w)).mean())
    if not noise > ROUNDING * size**2:
        return Estimate(value, math.nan)

    variance = noise + max(linear - noise, 0.0)
    slope = None
    if (w >= 0).all():  # a spread, not a difference
        squared_lengths = (people**2) @ w
        distances = squared_lengths[:, None] + squared_lengths - 2 * (people * w) @ people.T
        raw_spread = 0.5 * float(distances[grid.is_compared].mean())
        slope = slope_of_variance(value, variance, noise, raw_spread, raw_variance=linear)
    return Estimate(
        value=value,
        variance=variance,
        noise=noise,
        slope=slope,
        freedom=float(plain_noise.sum() ** 2 / (plain_noise**2 / freedom).sum()),  # Satterthwaite 1946
    )


def _person_variance(
    grid: _Grid, w: np.ndarray, people: np.ndarray, residual: np.ndarray, person: int
) -> _PersonVariance:
    """Return what one person contributes to the variance, from fitted people, (D, c), and residuals, (k, c).

    tr(C²) is estimated without bias from products of different residuals (`components`), which needs four templates;
    with fewer, the square of the estimated covariance is used.
    """
    cells = np.flatnonzero(grid.person == person)
    n_cells = len(cells)
    freedom = n_cells - 1
    products = (residual[cells] * w) @ residual[cells].T
    squares = float((products**2).sum())
    square = squares / freedom**2

    coefficient = grid.coefficient[person]
    present = grid.present[:, grid.template[cells]].T  # who has each of the person's templates, (K, D)
    a = (coefficient * present) @ present.T
    np.fill_diagonal(a, 0.0)
    factor = 2 * float((a**2).sum())
    noise = factor * square
    if n_cells >= 4:
        lengths = np.diag(products)
        squared_lengths = float((lengths**2).sum())
        _, zeta_2 = components(n_cells, squares - squared_lengths, squared_lengths, -float(lengths.sum()))
        noise = factor * float(zeta_2)

    pull = coefficient * present * np.maximum(grid.common[person] - 1, 0)
    direction = pull.sum(axis=1)[:, None] * people[person] - pull @ people  # g_i of each cell of the person
    return _PersonVariance(
        noise=noise,
        plain_noise=factor * square,
        square=square,
        linear=4 * float((((direction * w) @ residual[cells].T) ** 2).sum()) / freedom,
    )
