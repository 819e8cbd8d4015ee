"""Scales of generation bias for readers: shift of the styles, share of moved responses, shares of variance, resolution.

Let m_d be the mean style vector of descriptor d (of D) over all templates and m̄ the mean of all m_d. Pooled FGB*
estimates

    θ = 1/(D − 1) Σ_d ‖m_d − m̄‖²,

where the squared norm is a sum over styles. √θ is the root mean square length of the shift m_d − m̄ of a descriptor. If
a share x of a descriptor's responses moves from one style to another, the shift has the length √2 · x, because one
style loses x and another gains x. So √(θ / 2) is the share of responses that would have to move to another style for a
shift of √θ.
"""

import math
from collections.abc import Mapping
from typing import Any

from evenhand.evaluation.metrics.generation_bias.metric import VERSION
from evenhand.evaluation.metrics.generation_bias.paired_scores import missing_interval_reason
from evenhand.evaluation.metrics.generation_bias.styled_responses import StyledResponses
from evenhand.evaluation.score import DESCRIPTOR, TEMPLATE, BiasScore
from evenhand.evaluation.statistics.cells import arrange_cells, to_codes
from evenhand.evaluation.statistics.intervals import Interval
from evenhand.evaluation.statistics.sample_size import smallest_detectable_spread
from evenhand.evaluation.statistics.variance_shares import variance_parts

SHIFT, MOVED, SHARE, DETECTABLE = "style_shift", "moved_share", "variance_share", "fgb_pooled_corrected_detectable"
NOT_DETECTABLE = "responses do not vary within cells, so the noise of the spread is unknown"


def root(spread: float, interval: Interval | None, divisor: float = 1.0) -> tuple[float, Interval | None]:
    """Return the square root of `spread / divisor` and its interval; negative values count as 0.

    >>> root(-0.01, (-0.04, 0.09))
    (0.0, (0.0, 0.3))
    """
    low, high = (math.sqrt(max(bound, 0.0) / divisor) for bound in interval or (0.0, 0.0))
    return math.sqrt(max(spread, 0.0) / divisor) if not math.isnan(spread) else spread, interval and (low, high)


def scale_scores(responses: StyledResponses, signature: Mapping[str, Any]) -> list[BiasScore]:
    """Return the scores `style_shift`, `moved_share`, `variance_share` and the smallest detectable pooled FGB*.

    `style_shift` and `moved_share` are √θ and √(θ / 2), with θ = pooled FGB*; their intervals follow from the interval
    of θ. `variance_share`, by source (template, descriptor, interaction, chance), is the result of `variance_parts`.
    `fgb_pooled_corrected_detectable` is the smallest pooled FGB* whose interval would be above 0 with a probability of
    80 % (`smallest_detectable_spread`).

    Args:
        responses: at least two responses to each template and descriptor.
        signature: the signature of the scores, to which the metric's version is added.
    """
    cells = arrange_cells(responses.vectors, *(to_codes(responses.table[name]) for name in (TEMPLATE, DESCRIPTOR)))
    parts, common = variance_parts(cells), {"n": cells.n, "n_left_out": cells.n_left_out}
    common["signature"] = {**signature, "generation_bias": VERSION}
    spread, reason = parts.descriptor, missing_interval_reason(parts.descriptor)
    scores = []
    for name, divisor in ((SHIFT, 1.0), (MOVED, 2.0)):
        value, interval = root(spread.value, spread.interval, divisor)
        bounds = (0.0, math.sqrt(2 / divisor))
        scores.append(BiasScore(name, value, 0.0, bounds, interval=interval, reason=reason, **common))
    for source, share in parts.shares().items():
        group = {"source": source}
        scores.append(
            BiasScore(
                SHARE, share.value, None, (-1, 1), interval=share.interval, group=group, reason=share.reason, **common
            )
        )
    detectable = smallest_detectable_spread(spread.noise, spread.slope or 0.0, spread.freedom)
    missing = (reason or NOT_DETECTABLE) if math.isnan(detectable) else None
    return [*scores, BiasScore(DETECTABLE, detectable, None, (0.0, math.inf), reason=missing, **common)]
