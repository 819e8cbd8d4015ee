"""Which part of the variance of responses is due to the template, the descriptor, their interaction, and chance.

Two-way analysis of variance with fixed templates and descriptors (Scheffé 1959, "The Analysis of Variance", §4.3),
summed over columns, on cell means, so that uneven cells count alike. With m_td the expected vector of a cell and V_td
the variance of one response in it, all variances with ddof = 1:

    template     Var_t(mean_d m_td)                descriptor  Var_d(mean_t m_td), which is pooled FGB*
    interaction  mean_t Var_d(m_td) − descriptor   chance      mean of V_td over the cells

The interaction is FGB* − pooled FGB*: differences between descriptors in single templates that cancel over all of
them. Each part is estimated without bias, the first two by `descriptor_spread` (for templates, with exchanged roles).
"""

import math
from dataclasses import dataclass, replace

import numpy as np

from evenhand.evaluation.statistics.cells import Cells, complete_descriptors
from evenhand.evaluation.statistics.intervals import Interval, interval_around, student_quantile
from evenhand.evaluation.statistics.u_statistics import Estimate, descriptor_spread

TEMPLATE, DESCRIPTOR, INTERACTION, CHANCE = SOURCES = ("template", "descriptor", "interaction", "chance")
ONE_TEMPLATE = "there is one template: no difference between templates and no interaction can be measured"
CONSTANT = "all responses have the same style"
NO_REPEATS = "no two descriptors have two responses to each template: interaction and chance cannot be separated"


@dataclass(frozen=True)
class Share:
    """The share of one source in the total variance, and its 95 % interval, None if nothing varies within cells.

    An unbiased share may be slightly negative. NaN with a `reason` if it is not defined.
    """

    value: float
    interval: Interval | None = None
    reason: str | None = None


@dataclass(frozen=True)
class VarianceParts:
    """The parts of the variance of responses as estimates; `chance` is known far better than the other parts.

    `descriptor` is pooled FGB*, `by_template` is FGB*, `interaction` their difference.
    """

    template: Estimate
    descriptor: Estimate
    interaction: Estimate
    by_template: Estimate
    chance: float
    reason: str | None = None

    def shares(self) -> dict[str, Share]:
        """Return the share of each of the SOURCES in the sum of all parts."""
        if self.reason:
            return dict.fromkeys(SOURCES, Share(np.nan, reason=self.reason))
        parts = {TEMPLATE: self.template, DESCRIPTOR: self.descriptor, INTERACTION: self.interaction}
        total = sum(part.value for part in parts.values()) + self.chance
        if not total > 0:
            return dict.fromkeys(SOURCES, Share(np.nan, reason=CONSTANT))
        shares = {source: Share(part.value / total, _scaled(part.interval, total)) for source, part in parts.items()}
        value = self.chance / total
        # 1 − (template + FGB*) / total: the errors of these two are nearly independent.
        error = math.hypot(self.template.standard_error, self.by_template.standard_error) / total
        half = float(student_quantile(min(self.template.freedom, self.by_template.freedom))) * error
        known = self.template.interval is not None and self.by_template.interval is not None
        return {**shares, CHANCE: Share(value, interval_around(value, half, (-math.inf, 1.0)) if known else None)}


def variance_parts(cells: Cells) -> VarianceParts:
    """Return the parts of the variance of responses that are due to template, descriptor, interaction and chance.

    Args:
        cells: responses by cell, at least two to each; descriptors that lack a template are left out.

    Intervals hold for new responses to the same templates and descriptors.
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
    # FGB* = interaction + pooled FGB*, and the errors of these two are nearly uncorrelated.
    interaction = Estimate(
        by_template.value - descriptor.value,
        by_template.variance - descriptor.variance,
        by_template.noise * (1 - 1 / n_templates),
        freedom=by_template.freedom,
    )
    template = descriptor_spread(exchanged, pooled=True).corrected
    return VarianceParts(template, descriptor, interaction, by_template, _variance_within(cells))


def _variance_within(cells: Cells) -> float:
    """Return the mean over cells of the variance within a cell (ddof = 1), summed over columns."""
    squares = np.zeros(len(cells.count))
    for block in cells.blocks():
        squares[block.cells] += block.sum_by_cell((block.deviations**2).sum(axis=1))
    return float((squares / (cells.count - 1)).mean())


def _scaled(interval: Interval | None, total: float) -> Interval | None:
    return interval and (interval[0] / total, interval[1] / total)
