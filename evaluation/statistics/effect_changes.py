"""Changes of effects between two runs over the same prompts: estimates, standard errors and tests.

Let x_i and y_i be the style vectors of the responses to prompt i before and after, and D_i = y_i − x_i. Effects
(`statistics.effects`) are linear in the vectors, so the effects on the differences D_i are the changes of the effects:

    Δ_d = e'_d − e_d = 1/T_d Σ_t (δ_td − mean of δ_te over the descriptors e of template t),

where δ_td is the mean of D_i in the cell of template t and descriptor d, and T_d is the number of templates of d.

Null hypothesis: every change is the same for all descriptors. If nothing changed, x_i and y_i are exchangeable for each
prompt, so that D_i and −D_i are equally likely. If all descriptors changed by the same amount, r_i and −r_i are equally
likely for r_i = D_i − (mean of D over the responses to the template), up to the skewness of single residuals. The null
distribution is therefore the distribution of Δ with r_i → ±r_i, one random sign for each prompt (Winkler et al. 2014,
"Permutation inference for the general linear model", §2). Shuffling D_i between descriptors, as for a single run, would
be wrong: where a descriptor has the same effect before and after, the variance of D_i differs from other descriptors.

Standard error: √max(descriptor's variance, pooled variance). The descriptor's variance is Σ_i K_i² r_i² / N², with K_i
the coefficient and N the number of responses of prompt i's cell; changes of signs do not affect it. It is larger where
the descriptor has an effect before and after. Styles are rare: if hardly any response to a descriptor has a style, the
descriptor's variance is near 0 by chance, and the variance pooled over descriptors replaces it. With descriptors'
variances alone, 53–100 % of simulations in which all descriptors changed by the same amount have a false significant
change (`python -m benchmarks.effects --change` measures the error rate of the implemented test).
"""

from collections.abc import Callable
from functools import partial

import numpy as np

from evenhand.evaluation.statistics.cells import Cells, paired_differences
from evenhand.evaluation.statistics.effects import (
    Effects,
    Place,
    averaging_matrix,
    bernoulli_variance,
    contrast,
    descriptor_effects,
)


def effect_changes(
    cells: Cells,
    before: Effects,
    after: Effects,
    groups: np.ndarray,
    clusters: np.ndarray,
    draws: int,
    rng: np.random.Generator,
) -> Effects:
    """Return the changes of the effects, after − before, with p-values and intervals.

    Simultaneous and single tests, false discovery rate and shrinkage are as in `descriptor_effects`, with random signs
    instead of shuffled responses. `mean` in the result is the change of the mean probability.

    Args:
        cells: paired responses by cell, (n, 2s): the style vector before, then the style vector after. Descriptors are
            numbered from 0 without gaps.
        before, after: the effects in the first and in the second half of the columns.
        groups, clusters: as in `descriptor_effects`.
        draws: number of draws of signs.
        rng: source of the signs.
    """
    difference = paired_differences(cells)
    averages = [side.mean - side.effect for side in (before, after)]
    of_average = sum(map(bernoulli_variance, averages))
    of_before = bernoulli_variance(averages[0] + before.shrunk)

    def variance_ratio(place: Place, change: np.ndarray) -> np.ndarray:
        """Return the ratio if the effect before changes by `change`: effects change the variance of responses."""
        of_after = bernoulli_variance((averages[1] + before.shrunk)[place] + change)
        return np.maximum((of_before[place] + of_after) / of_average[place], 1.0)

    return descriptor_effects(
        difference,
        groups,
        clusters,
        draws,
        rng,
        sampler=partial(_sign_sampler, difference),
        variance_ratio=variance_ratio,
        own_variance=partial(_own_variance, difference),
    )


def _residuals(cells: Cells, chosen: np.ndarray) -> np.ndarray:
    """Return the residuals r_i of the n responses to one template, (n, s), times √(n / (n − 1)).

    The factor corresponds to a variance with ddof = 1.
    """
    rows = cells.responses(chosen).astype(np.float64)
    return (rows - rows.mean(axis=0)) * np.sqrt(len(rows) / max(len(rows) - 1, 1))


def _own_variance(cells: Cells, templates: list[np.ndarray], units: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """Return the variance from a unit's responses, Σ_j (K_j / N_j)² Σ_{i in j} r_i², of each unit and column, (u, c).

    K_j is the unit's coefficient of cell j (`contrast`), and N_j is the number of responses i in cell j.
    """
    result = np.zeros((len(units), columns.shape[1]))
    for chosen in templates:
        squares = (_residuals(cells, chosen) @ columns) ** 2
        count = cells.count[chosen]
        of_cell = np.add.reduceat(squares, np.cumsum(count) - count, axis=0)
        result += (contrast(cells, chosen, units) / count) ** 2 @ of_cell
    return result


def _sign_sampler(cells: Cells, chosen: np.ndarray, stream: np.random.Generator) -> Callable[[], np.ndarray]:
    """Return a function that returns the means of a template's cells after new random signs of the residuals."""
    rows, average = _residuals(cells, chosen).astype(np.float32), averaging_matrix(cells.count[chosen])
    weight = average.data.copy()

    def sample() -> np.ndarray:
        sign = stream.integers(0, 2, size=len(rows), dtype=np.int8) * np.float32(2) - np.float32(1)
        average.data[:] = sign * weight
        return average @ rows

    return sample
