"""Estimates: the cells of answers, and FGB* and pooled FGB* of cells, from which scores and tests are made."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from evenhand.evaluation import columns
from evenhand.evaluation.errors import InputError, format_value
from evenhand.evaluation.metrics.generation_bias.answers import Answers
from evenhand.evaluation.score import Caution, Signature
from evenhand.evaluation.statistics.cells import Cells, Labels, arrange_cells, select_cells, to_codes
from evenhand.evaluation.statistics.descriptor_spread import Estimate, descriptor_spread
from evenhand.evaluation.statistics.intervals import Interval
from evenhand.evaluation.statistics.level import ONE_LOOK, Level
from evenhand.evaluation.statistics.person_pairs import compared_cells, pooled_spread

VERSION = "3"
OF_METRICS: Signature = {"generation_bias": VERSION}  # what the scores of the spread add to the signature of a run
EVERYBODY = "everybody"  # the test that people differ in style at all
TOO_FEW = (
    "no template has two descriptors with two responses each, and descriptors are compared within a template; measure "
    "more descriptors, or give the same template to the prompts that you compare"
)
NO_STYLE = "no compared answer has a style"  # of a comparison, perhaps those in the requests' language only
NO_COMMON = "no two descriptors have two common templates with a response; measure more descriptors, or more templates"
NO_INTERVAL = "no interval: the responses vary within one cell at most"
NOTHING_VARIES = "no interval: nothing varies between the templates of a descriptor"
MIN_COUNT = 2  # responses per cell from which its noise can be estimated


def check_arguments(responses: Answers, clusters: Mapping[str, Sequence[int]], permutations: int = 0) -> None:
    """Raise InputError if a cluster has no column, one twice or an unknown one, or if `permutations` < 0."""
    n_styles = len(responses.columns)
    for cluster, numbers in clusters.items():
        is_wrong = isinstance(numbers, str) or any(number not in range(n_styles) for number in numbers)
        if is_wrong or not 0 < len(numbers) == len(set(numbers)):
            raise InputError(
                "clusters",
                f"{cluster!r} has {format_value(numbers)}; give different columns from 0 to {n_styles - 1}, such as of "
                "load_style_clusters.",
            )
    if not isinstance(permutations, int) or permutations < 0:
        raise InputError("permutations", f"{format_value(permutations)}; give a whole number from 0.")


def check_same_prompts(before: Answers, after: Answers) -> None:
    """Raise InputError if two sets of responses differ in a style, or in the template or descriptor of a row."""
    compared: dict[str, tuple[Labels, Labels]] = {"styles": (before.columns, after.columns)}
    for name in (columns.TEMPLATE, columns.DESCRIPTOR):
        compared[name] = (before.table[name], after.table[name])
    for name, (old, new) in compared.items():
        if list(old) != list(new):
            raise InputError(
                "after",
                f"its {name} values differ from those of before; two runs are compared by responses to the same "
                "prompts in the same order, by the same classifier.",
            )


def repeated_cells(cells: Cells) -> Cells:
    """Return the cells with at least two responses, of which the noise is known."""
    return select_cells(cells, cells.count >= MIN_COUNT)


def on_common_templates(cells: Cells) -> Cells:
    """Return the cells on templates that two descriptors have; other cells are part of no variance."""
    return select_cells(cells, np.bincount(cells.template)[cells.template] > 1)


@dataclass(frozen=True)
class SpreadEstimate:
    """A spread of people, the cells it is computed from, why it or its interval is undefined, and a caution."""

    estimate: Estimate
    cells: Cells
    reason: str | None
    caution: Caution | None = None


def corrected_estimate(cells: Cells, weights: np.ndarray | None = None) -> SpreadEstimate:
    """Return FGB* of the cells with two responses or more."""
    repeated = repeated_cells(cells)
    estimate = descriptor_spread(repeated, weights).corrected
    reason = missing_interval_reason(estimate) if cells.n else NO_STYLE
    return SpreadEstimate(estimate, on_common_templates(repeated), reason)


def pooled_estimate(cells: Cells, weights: np.ndarray | None = None, level: Level = ONE_LOOK) -> SpreadEstimate:
    """Return pooled FGB* of cells, one response to each or more; of one template FGB*, with a caution."""
    compared = on_common_templates(cells)
    if len(np.unique(compared.template)) == 1:
        corrected = corrected_estimate(compared, weights)
        caution = Caution.ONE_TEMPLATE if corrected.reason is None else None
        return replace(corrected, estimate=replace(corrected.estimate, level=level), caution=caution)
    estimate = replace(pooled_spread(cells, weights), level=level)
    reason = None
    if not cells.n:
        reason = NO_STYLE
    elif math.isnan(estimate.value):
        reason = NO_COMMON
    elif estimate.interval is None:
        reason = NOTHING_VARIES
    return SpreadEstimate(estimate, compared_cells(cells), reason)


def root(spread: float, interval: Interval | None, divisor: float = 1.0) -> tuple[float, Interval | None]:
    """Return the square root of `spread / divisor` and its interval; negative values count as 0.

    >>> root(-0.01, (-0.04, 0.09))
    (0.0, (0.0, 0.3))
    """
    ends = None
    if interval is not None:
        low, high = interval
        ends = (math.sqrt(max(low, 0.0) / divisor), math.sqrt(max(high, 0.0) / divisor))
    if math.isnan(spread):
        return spread, ends
    return math.sqrt(max(spread, 0.0) / divisor), ends


def missing_interval_reason(estimate: Estimate) -> str | None:
    """Return the reason why an estimate of a spread has no value or no interval; None if it has both."""
    if np.isnan(estimate.value):
        return TOO_FEW
    return NO_INTERVAL if estimate.interval is None else None


def all_cells(responses: Answers, vectors: np.ndarray | None = None) -> Cells:
    """Return the cells of template and descriptor with a vector or more; `repeated_cells` are the ones with two.

    `vectors` replace the style vectors of the responses, (n, c).
    """
    template = to_codes(responses.table[columns.TEMPLATE])
    descriptor = to_codes(responses.table[columns.DESCRIPTOR])
    return arrange_cells(responses.values if vectors is None else vectors, template, descriptor, min_count=1)
