"""Shares of template, descriptor, their interaction, and chance in the variance of responses.

The method is a two-way analysis of variance of cell means with fixed templates and descriptors (Scheffé 1959, "The
Analysis of Variance", §4.3), summed over columns. With m_td the expected vector of the cell of template t and
descriptor d, and V_td the variance of one response in the cell:

    descriptor   pooled FGB*: products of different templates     template  the same with both exchanged
    interaction  mean_t Var_d(m_td; ddof = 1) − descriptor        chance    mean of V_td over the cells

FGB* is Full Generation Bias without sampling noise. The interaction is FGB* − pooled FGB*: differences between
descriptors in single templates, which other templates do not share. All four estimates are unbiased.
"""

import math
from dataclasses import dataclass, replace

import numpy as np

from evenhand.evaluation.statistics.cells import Cells, select_cells
from evenhand.evaluation.statistics.descriptor_spread import Estimate, descriptor_spread
from evenhand.evaluation.statistics.intervals import Interval, interval_around, student_quantile
from evenhand.evaluation.statistics.person_pairs import pooled_spread

TEMPLATE = "template"
DESCRIPTOR = "descriptor"
INTERACTION = "interaction"
CHANCE = "chance"
SOURCES = (TEMPLATE, DESCRIPTOR, INTERACTION, CHANCE)
ONE_TEMPLATE = "there is one template: no difference between templates and no interaction can be measured"
CONSTANT = "all responses have the same style"
NO_REPEATS = "no template has two descriptors with two responses: interaction and chance cannot be separated"
NO_COMMON = "no two descriptors have two common templates"


@dataclass(frozen=True)
class Share:
    """The share of one source in the total variance, which may be slightly negative, and its 95 % interval."""

    value: float
    interval: Interval | None = None
    reason: str | None = None


@dataclass(frozen=True)
class VarianceParts:
    """Estimates of the parts of the variance of responses; `by_template` is FGB*.

    `chance` is a plain number because its sampling error is negligible relative to the errors of the other parts.
    """

    template: Estimate
    descriptor: Estimate
    interaction: Estimate
    by_template: Estimate
    chance: float
    reason: str | None = None

    def shares(self) -> dict[str, Share]:
        """Return the share of each of the four SOURCES in the total variance, by source."""
        if self.reason:
            return dict.fromkeys(SOURCES, Share(np.nan, reason=self.reason))
        total = self.template.value + self.descriptor.value + self.interaction.value + self.chance
        if not total > 0:
            return dict.fromkeys(SOURCES, Share(np.nan, reason=CONSTANT))
        return {
            TEMPLATE: _share(self.template, total),
            DESCRIPTOR: _share(self.descriptor, total),
            INTERACTION: _share(self.interaction, total),
            CHANCE: self._share_of_chance(total),
        }

    def _share_of_chance(self, total: float) -> Share:
        """Return the share of chance, which is 1 − (template + FGB*) / total.

        The errors of template and FGB* are nearly independent.
        """
        value = self.chance / total
        if self.template.interval is None or self.by_template.interval is None:
            return Share(value)
        error = math.hypot(self.template.standard_error, self.by_template.standard_error) / total
        freedom = min(self.template.freedom, self.by_template.freedom)
        return Share(value, interval_around(value, student_quantile(freedom) * error))


def _share(part: Estimate, total: float) -> Share:
    """Return the share of a part in the total variance."""
    if part.interval is None:
        return Share(part.value / total)
    low, high = part.interval
    return Share(part.value / total, (low / total, high / total))


def variance_parts(cells: Cells) -> VarianceParts:
    """Return the parts of the variance of responses that are due to template, descriptor, interaction and chance.

    Intervals hold for new responses to the same templates and descriptors.

    Args:
        cells: responses by cell. Interaction and chance need templates on which two descriptors have two responses.
    """
    undefined = Estimate(np.nan, np.nan)
    descriptor = pooled_spread(cells)
    repeated = select_cells(cells, cells.count > 1)
    by_template = descriptor_spread(repeated).corrected
    reason = None
    if len(np.unique(cells.template)) < 2:
        reason = ONE_TEMPLATE
    elif np.isnan(descriptor.value):
        reason = NO_COMMON
    elif np.isnan(by_template.value):
        reason = NO_REPEATS
    if reason:
        return VarianceParts(undefined, descriptor, undefined, undefined, np.nan, reason)
    # FGB* = interaction + pooled FGB*, and the errors of interaction and pooled FGB* are nearly uncorrelated.
    n_templates = len(np.unique(repeated.template))
    interaction = Estimate(
        value=by_template.value - descriptor.value,
        variance=by_template.variance,
        noise=by_template.noise * (1 - 1 / n_templates),
        freedom=by_template.freedom,
    )
    squares = np.zeros(len(repeated.count))
    for block in repeated.blocks():
        squares[block.cells] = block.sum_by_cell((block.deviations**2).sum(axis=1))
    return VarianceParts(
        template=pooled_spread(replace(cells, template=cells.descriptor, descriptor=cells.template)),
        descriptor=descriptor,
        interaction=interaction,
        by_template=by_template,
        chance=float((squares / (repeated.count - 1)).mean()),
    )
