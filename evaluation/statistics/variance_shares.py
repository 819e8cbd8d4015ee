"""Shares of template, descriptor, their interaction, and chance in the variance of responses.

The method is a two-way analysis of variance of cell means with fixed templates and descriptors (Scheffé 1959, "The
Analysis of Variance", §4.3), summed over columns. Each cell has the same weight. With m_td the expected vector of the
cell of template t and descriptor d, and V_td the variance of one response in the cell, all variances with ddof = 1:

    template     Var_t(mean_d m_td)                descriptor  Var_d(mean_t m_td), which is pooled FGB*
    interaction  mean_t Var_d(m_td) − descriptor   chance      mean of V_td over the cells

FGB* is Full Generation Bias without sampling noise. The interaction is FGB* − pooled FGB*: differences between
descriptors in single templates that cancel when all templates are averaged. All four estimates are unbiased.
`descriptor_spread` estimates the descriptor part and, with templates and descriptors exchanged, the template part.
"""

import math
from dataclasses import dataclass, replace

import numpy as np

from evenhand.evaluation.statistics.cells import Cells, complete_descriptors
from evenhand.evaluation.statistics.intervals import Interval, interval_around, student_quantile
from evenhand.evaluation.statistics.spread import Estimate, descriptor_spread

TEMPLATE, DESCRIPTOR, INTERACTION, CHANCE = SOURCES = ("template", "descriptor", "interaction", "chance")
ONE_TEMPLATE = "there is one template: no difference between templates and no interaction can be measured"
CONSTANT = "all responses have the same style"
NO_REPEATS = "no two descriptors have two responses to each template: interaction and chance cannot be separated"


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
        parts = {TEMPLATE: self.template, DESCRIPTOR: self.descriptor, INTERACTION: self.interaction}
        total = sum(part.value for part in parts.values()) + self.chance
        if not total > 0:
            return dict.fromkeys(SOURCES, Share(np.nan, reason=CONSTANT))
        shares = {
            source: Share(part.value / total, part.interval and tuple(bound / total for bound in part.interval))
            for source, part in parts.items()
        }
        value = self.chance / total
        # The value is 1 − (template + FGB*) / total, and the errors of template and FGB* are nearly independent.
        error = math.hypot(self.template.standard_error, self.by_template.standard_error) / total
        half = float(student_quantile(min(self.template.freedom, self.by_template.freedom))) * error
        known = self.template.interval is not None and self.by_template.interval is not None
        return {**shares, CHANCE: Share(value, interval_around(value, half, (-math.inf, 1.0)) if known else None)}


def variance_parts(cells: Cells) -> VarianceParts:
    """Return the parts of the variance of responses that are due to template, descriptor, interaction and chance.

    Intervals hold for new responses to the same templates and descriptors.

    Args:
        cells: responses by cell, at least two in each cell; descriptors that lack a template are excluded.
    """
    cells = complete_descriptors(cells)
    descriptor = descriptor_spread(cells, pooled=True).corrected
    n_templates = len(np.unique(cells.template))
    if np.isnan(descriptor.value) or n_templates < 2:
        undefined = Estimate(np.nan, np.nan)
        reason = NO_REPEATS if np.isnan(descriptor.value) else ONE_TEMPLATE
        return VarianceParts(undefined, descriptor, undefined, undefined, np.nan, reason)
    exchanged = replace(cells, template=cells.descriptor, descriptor=cells.template)
    by_template = descriptor_spread(cells).corrected
    # FGB* = interaction + pooled FGB*, and the errors of interaction and pooled FGB* are nearly uncorrelated.
    interaction = Estimate(
        by_template.value - descriptor.value,
        by_template.variance - descriptor.variance,
        by_template.noise * (1 - 1 / n_templates),
        freedom=by_template.freedom,
    )
    template = descriptor_spread(exchanged, pooled=True).corrected
    squares = np.zeros(len(cells.count))
    for block in cells.blocks():
        squares[block.cells] = block.sum_by_cell((block.deviations**2).sum(axis=1))
    return VarianceParts(template, descriptor, interaction, by_template, float((squares / (cells.count - 1)).mean()))
