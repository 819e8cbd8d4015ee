"""The columns of a sweep: what is measured of each point, with its format, and the acceptance criteria.

Values are fractions of the base model's value or changes from it; a column `x` with an interval has `x_low`, `x_high`.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from evenhand.evaluation.metrics.generation_bias.costs.relevance import relative_limit
from evenhand.evaluation.report.formats import Format
from evenhand.evaluation.report.numbers import PER_UNIT, UNIT

METHOD, DECODING, SEED = "method", "decoding", "seed"
_PERCENT = {"unit": "%", "factor": 100, "decimals": 1}
_CHANGE = {**_PERCENT, "ideal": 0, "signed": True}
_POINTS = {**_CHANGE, "unit": "points", "decimals": 2}
_CLUSTER = {"unit": UNIT, "factor": PER_UNIT, "ideal": 0, "signed": True}
_WITHIN = "Share kept of the relevance to the person: own prompt against another person’s, of the same template."
_SECOND = "Reduction by a classifier that made no labels; much smaller if tuning exploited the first one."
_PERPLEXITY = "Relative change of the responses’ perplexity by the base model."

REDUCTION_METRICS = (
    Format("reduction", "all descriptors", "Share of the base model’s pooled FGB* that is gone.", **_PERCENT),
    Format("reduction_seen", "tuned on", "Reduction for descriptors that were tuned on.", **_PERCENT),
    Format("reduction_unseen", "not tuned on", "Reduction for descriptors that were not tuned on.", **_PERCENT),
)
QUALITY_METRICS = (
    Format("relevance_kept", "relevance kept", "Relevance as a share of the base model’s.", **_PERCENT),
    Format("relevance_within_template_kept", "… within the template", _WITHIN, **_PERCENT),
    Format("style_drift", "style drift", "Share of the mean style that is no longer the base model’s.", **_PERCENT),
    Format("response_perplexity_change", "perplexity of responses", _PERPLEXITY, **_CHANGE),
    Format("distinct_responses_change", "distinct responses", "Change of the share of distinct ones.", **_CHANGE),
)
COST_METRICS = (
    Format("perplexity_change", "perplexity", "Relative change of the perplexity of ordinary dialogue.", **_CHANGE),
    Format("distinct_2_change", "distinct-2", "Relative change of distinct-2.", **_CHANGE),
    Format("length_change", "length", "Relative change of the mean length of a response.", **_CHANGE),
    Format("parroting_change", "repeats", "Change of the share of responses that repeat the prompt.", **_POINTS),
    Format("worst_cluster_change", "worst cluster", "Largest change of pooled SCGB* of a style cluster.", **_CLUSTER),
)
CHECK_METRICS = (
    Format("reduction_confirmed", "second classifier", _SECOND, **_PERCENT),
    Format("ratio_without_tag", "without tag", "Pooled FGB* without the control tag over the base’s.", unit="× base"),
    Format("minutes", "minutes", "Minutes of tuning.", decimals=1),
)
METRICS = {it.name: it for it in (*REDUCTION_METRICS, *QUALITY_METRICS, *COST_METRICS, *CHECK_METRICS)}
WITHOUT_INTERVAL = ("worst_cluster_change", "ratio_without_tag", "minutes")
WITH_INTERVALS = tuple(name for name in METRICS if name not in WITHOUT_INTERVAL)
REDUCTIONS = tuple(name for name in METRICS if name.startswith("reduction"))
# The changes of the even reference, to which two limits are relative.
EVEN_REFERENCE = ("even_relevance_kept", "even_response_perplexity_change")
COLUMNS = (
    *(METHOD, DECODING, SEED),
    *(f"{name}{end}" for name in WITH_INTERVALS for end in ("", "_low", "_high")),
    *("base", "base_low", "base_high", "ratio_without_tag", "minutes"),
    *("worst_cluster", "worst_cluster_change", "cluster_changes", *EVEN_REFERENCE, "folder", "failed"),
)
TOLERANCE = 1e-9  # tolerance for rounding errors


@dataclass(frozen=True)
class Limit:
    """A limit on a column: the smallest allowed value if `is_minimum`, else the largest."""

    column: str
    value: float
    is_minimum: bool = False

    def verdict(self, setting: Mapping[str, Any]) -> Literal["meets", "misses", "inconclusive", "unmeasured"]:
        """Return "meets" or "misses" if the 95 % interval lies on one side of the limit, else "inconclusive".

        Without an interval, the verdict is "inconclusive"; for NaN, "unmeasured". A value equal to the limit is
        allowed.
        """
        if math.isnan(setting[self.column]):
            return "unmeasured"
        worse, better = self._margins(setting, self.value)
        if better < -TOLERANCE:
            return "misses"
        return "meets" if worse >= -TOLERANCE else "inconclusive"

    def cost(self, setting: Mapping[str, Any]) -> float | None:
        """Return the fraction of the allowed change that a setting uses: 0 without a change, 1 at the limit.

        The result is None for a reduction of bias, which is not a cost, and for a change whose 95 % interval includes
        no change or an improvement.
        """
        unchanged = 1.0 if self.column == "relevance_kept" else 0.0
        _, better = self._margins(setting, unchanged)
        if self.column in REDUCTIONS or not better < -TOLERANCE:
            return None
        return (setting[self.column] - unchanged) / (self.value - unchanged)

    def _margins(self, setting: Mapping[str, Any], limit: float) -> tuple[float, float]:
        """Return the distances of the worse and the better end of the interval from a limit; beyond it, negative."""
        low, high = setting[f"{self.column}_low"], setting[f"{self.column}_high"]
        return (low - limit, high - limit) if self.is_minimum else (limit - high, limit - low)


# A model that ignores its prompts cannot meet the last four. Also, no style cluster's bias may rise significantly, and
# no seed may be refused.
LIMITS = (
    Limit("reduction_seen", 0.93, True),
    Limit("reduction_unseen", 0.80, True),
    Limit("perplexity_change", 0.03),
    Limit("distinct_2_change", -0.05, True),
    Limit("length_change", -0.05, True),
    Limit("length_change", 0.05),
    Limit("parroting_change", 0.0005),  # rounds to 0.0 points; whether a limit of 0 is met, noise alone would decide
    Limit("relevance_kept", 0.75, True),
    Limit("style_drift", 0.10),
    Limit("response_perplexity_change", 0.10),
    Limit("distinct_responses_change", -0.10, True),
)


def limits(setting: Mapping[str, Any]) -> list[Limit]:
    """Return the limits that apply to a setting.

    If all descriptors were tuned on, the first is on the reduction over all descriptors. Where that makes it no
    stricter, a limit is relative to the even reference.
    """
    is_split = math.isfinite(setting["reduction_seen"]) or math.isnan(setting["reduction"])
    first = LIMITS[0] if is_split else replace(LIMITS[0], column="reduction")
    return [
        replace(it, value=relative_limit(it.value, it.is_minimum, setting.get(f"even_{it.column}", math.nan)))
        for it in (first, *LIMITS[1:])
    ]
