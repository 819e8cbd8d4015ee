"""The even target: for each descriptor, the distribution with the average style that is nearest to the model's.

Let p(x | c) be the model's responses x to context c of template t and descriptor d, φ(x) the style vector of x, and M_t
the mean style vector of template t over descriptors. Of all distributions whose mean style is the average, the mean of
M_t over the templates of d, the target is the nearest to p in KL(q ‖ p), an I-projection (Csiszár 1975, "I-divergence
geometry of probability distributions and minimization problems"):

    q(x | c) = p(x | c) · exp(λ_d · φ(x)) / Z(c).

Khalifa, Elsahar and Dymetman 2021 ("A distributional approach to controlled text generation") train a language model on
such a target, and Korbak et al. 2022 ("Controlling conditional language models without catastrophic forgetting") on one
for each context. Entropy balancing (Hainmueller 2012) finds the weights of a survey in the same way.

λ_d from labelled responses. A context has one labelled response, and a descriptor some dozens: too few to normalise the
weights of a context, and to invert the covariance of the styles. Both are taken from the responses to all descriptors:

1.  Effects are shrunk as in the report (`evenhand.evaluation.statistics.shrinkage`): first the effects on axes, then
    the differences of the effects on descriptors from the effects on their axes. An effect that may be noise is not
    removed: without shrinkage, weights from few responses add more bias than they remove.
2.  p is estimated by the distribution nearest in KL to the responses of all descriptors, p̄(x | t), with d's mean style:
    p_d(x | t) = p̄(x | t) · exp(−λ_d · φ(x)) · A_td, such that the mean over the templates of d is the average plus the
    shrunk effect. The I-projection of p_d on the average style is p̄(x | t), with the same λ_d.
3.  The weight of a labelled response is w(x) = q / p_d = exp(λ_d · φ(x)) / A_td, with mean 1 in each template.

Weights are normalised by template, so that templates whose responses are characteristic of d do not become rarer.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from evenhand.evaluation.metrics.generation_bias.styled_responses import StyledResponses
from evenhand.evaluation.score import AXIS, DESCRIPTOR, KIND, TEMPLATE, UNIT
from evenhand.evaluation.statistics.cells import (
    Cells,
    arrange_cells,
    complete_descriptors,
    factorize,
    select_cells,
    to_codes,
)
from evenhand.evaluation.statistics.effects import (
    bernoulli_ratio,
    centred,
    contrast_factors,
    descriptor_means,
    shrunk_effects,
    template_variances,
)
from evenhand.evaluation.statistics.spread import descriptor_spread
from evenhand.mitigation.labels import cell_means
from evenhand.mitigation.tilts import NO_VARIANCE, Pool, Tilt, solve_tilt


@dataclass(frozen=True)
class Target:
    """The tilts of D descriptors and of their A axes.

    `names` (D,) and `axes` (A,) are sorted; `axis` (D,) is the index of each descriptor's axis. Shrunk `effects`
    (D + A, S) and `tilts` are of the descriptors, then of the axes. The tilt of an axis is for descriptors of the axis
    that have no labelled responses.
    """

    names: np.ndarray
    axes: np.ndarray
    axis: np.ndarray
    effects: np.ndarray
    tilts: tuple[Tilt, ...]

    def exponents(self, styles: Sequence[str]) -> pd.DataFrame:
        """Return a table of `kind` ("descriptor" or "axis"), `unit` (its name), and λ with a column for each style."""
        table = pd.DataFrame(np.stack([tilt.exponent for tilt in self.tilts]), columns=list(styles))
        kinds = [DESCRIPTOR] * len(self.names) + [AXIS] * len(self.axes)
        return pd.concat([pd.DataFrame({KIND: kinds, UNIT: [*self.names, *self.axes]}), table], axis=1)

    def table(self, descriptor: Sequence[str], weights: np.ndarray) -> pd.DataFrame:
        """Return a table of each descriptor's target, from the descriptors and the weights of the responses, (n,).

        Columns: descriptor; axis; n, the number of responses; effective_share, (Σw)² / (n Σw²), in (0, 1] (Kish 1965);
        distance, the squared length of the shrunk effect, in units of pooled FGB*; fraction, the share of the effect
        that the target removes, in [0, 1]; kl, KL(target ‖ own), in nats.
        """
        code = factorize(descriptor)[0]
        n, total, squares = (np.bincount(code, it, len(self.names)) for it in (None, weights, weights**2))
        tilts, effects = self.tilts[: len(self.names)], self.effects[: len(self.names)]
        return pd.DataFrame(
            {
                DESCRIPTOR: self.names,
                AXIS: self.axes[self.axis],
                "n": n,
                "effective_share": total**2 / (n * squares),
                "distance": (effects**2).sum(axis=1),
                "fraction": [tilt.fraction for tilt in tilts],
                "kl": [tilt.kl for tilt in tilts],
            }
        )


def fit_target(responses: StyledResponses) -> Target:
    """Return the target of labelled responses, whose style vectors are finite.

    A descriptor in several axes belongs to the first of them in sorted order. Descriptors that have no template in
    common with others have λ = 0.
    """
    descriptor, names = factorize(responses.table[DESCRIPTOR])
    first = responses.table[AXIS].astype(str).groupby(descriptor).min()
    axis, axes = factorize(first)
    cells = _compared_cells(responses, descriptor)
    n, n_styles = len(names), responses.vectors.shape[1]
    effects, nothing = np.zeros((n + len(axes), n_styles)), Tilt(np.zeros(n_styles))
    if not len(cells.count):
        return Target(names, axes, axis, effects, (nothing,) * len(effects))
    present = np.unique(cells.descriptor)
    axes_present, axis_present = np.unique(axis[present], return_inverse=True)
    compared = replace(cells, descriptor=np.searchsorted(present, cells.descriptor))
    pool = Pool.from_cells(cells)
    effects[n + axes_present], effects[present] = shrink_effects(compared, axis_present)
    has_template = np.ones((len(effects), len(np.unique(cells.template))), dtype=bool)
    has_template[:n] = False
    has_template[cells.descriptor, np.unique(cells.template, return_inverse=True)[1]] = True
    tilts = (
        solve_tilt(pool.templates(mask), effect) if effect.any() else nothing
        for mask, effect in zip(has_template, effects, strict=True)
    )
    return Target(names, axes, axis, effects, tuple(tilts))


def log_weights(target: Target, responses: StyledResponses) -> np.ndarray:
    """Return log w = λ_d · φ − log A_td of each response, (n,); A_td is estimated from the responses.

    The responses have the target's descriptors. The weights of responses to a template without another descriptor are
    1.
    """
    descriptor = factorize(responses.table[DESCRIPTOR])[0]
    cells = _compared_cells(responses, descriptor)
    template = to_codes(responses.table[TEMPLATE])
    exponents = np.stack([tilt.exponent for tilt in target.tilts[: len(target.names)]])
    log_a, is_compared = np.zeros((len(target.names), int(template.max()) + 1)), np.zeros(int(template.max()) + 1, bool)
    if len(cells.count):
        templates = np.unique(cells.template)
        pool, is_compared[templates] = Pool.from_cells(cells), True
        for index, exponent in enumerate(exponents):
            log_a[index, templates] = -pool.log_normalisers(-exponent)
    log_w = (responses.vectors * exponents[descriptor]).sum(axis=1) - log_a[descriptor, template]
    return np.where(is_compared[template], log_w, 0.0)


def _compared_cells(responses: StyledResponses, descriptor: np.ndarray) -> Cells:
    """Return the cells of templates that have several descriptors."""
    cells = arrange_cells(responses.vectors, to_codes(responses.table[TEMPLATE]), descriptor, min_count=1)
    return select_cells(cells, np.bincount(cells.template)[cells.template] > 1)


def shrink_effects(cells: Cells, axis: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the shrunk effects on A axes, (A, S), and on D descriptors, (D, S), in S styles.

    The difference between the effects on a descriptor and on its axis is shrunk, and added to the shrunk effect on the
    axis. Descriptors are numbered from 0 without gaps; `axis` is the code of each descriptor's axis, (D,).
    """
    templates = [np.flatnonzero(cells.template == code) for code in np.unique(cells.template)]
    members = np.eye(int(axis.max()) + 1)[axis]
    axis_units = (members / members.sum(axis=0)).T
    raw = descriptor_means(cells, centred(cells.mean, templates))
    average = descriptor_means(cells, cells.mean) - raw
    _, noise = template_variances(cells, templates, np.eye(cells.mean.shape[1]))

    def shrunk(units: np.ndarray, level: np.ndarray) -> np.ndarray:
        variance = contrast_factors(cells, templates, units) @ noise
        variance[variance < NO_VARIANCE] = 0  # an axis of one descriptor does not differ from it
        kinds = [slice(0, len(units))]
        return shrunk_effects(units @ raw, variance, kinds, lambda at, effect: bernoulli_ratio(level[at], effect))[0]

    of_axes = shrunk(axis_units, axis_units @ average)
    differences = shrunk(np.eye(len(axis)) - axis_units[axis], average + of_axes[axis])
    return of_axes, of_axes[axis] + differences


def cross_fitted_spread(responses: StyledResponses) -> tuple[float, float]:
    """Return pooled FGB* of the responses, and of the responses weighted by the target.

    The responses to each half of the templates are weighted by the target of the other half, so that no response
    contributes to its own weight. A target of half of the responses is noisier than the target of all: the second value
    is an upper estimate. The values are means over both halves, and NaN if no cell has several responses.
    """
    template = to_codes(responses.table[TEMPLATE])
    is_even = template % 2 == 0
    spreads = []
    for fitted, weighted in ((is_even, ~is_even), (~is_even, is_even)):
        if not (fitted.any() and weighted.any()):
            return np.nan, np.nan
        target, part = fit_target(responses.rows(fitted)), responses.rows(weighted)
        if not np.array_equal(target.names, factorize(part.table[DESCRIPTOR])[1]):
            return np.nan, np.nan
        spreads.append([_pooled_spread(part, weights) for weights in (None, np.exp(log_weights(target, part)))])
    before, after = np.mean(spreads, axis=0)
    return float(before), float(after)


def _pooled_spread(responses: StyledResponses, weights: np.ndarray | None) -> float:
    """Return pooled FGB* of responses, whose deviations from the mean of their template are multiplied by weights.

    Weights are divided by their mean for each descriptor, so that single large weights have a limited influence.
    """
    template, descriptor = to_codes(responses.table[TEMPLATE]), to_codes(responses.table[DESCRIPTOR])
    vectors = responses.vectors.astype(np.float64)
    if weights is not None:
        mean = np.nanmean(cell_means(vectors, template, descriptor)[0], axis=0)[template]
        weights = weights * (np.bincount(descriptor) / np.bincount(descriptor, weights))[descriptor]
        vectors = mean + weights[:, None] * (vectors - mean)
    cells = complete_descriptors(arrange_cells(vectors, template, descriptor))
    return float(descriptor_spread(cells, pooled=True).corrected.value)
