"""The acceptance criteria of a sweep, and the verdicts on its settings: met, missed or inconclusive."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import pandas as pd

from evenhand.evaluation.metrics.generation_bias.costs.even_reference import relative_limit

TOLERANCE = 1e-9  # tolerance for rounding errors
# `relevance_kept` and `response_perplexity_change` of the even reference, to which two limits are relative.
EVEN_REFERENCE = ("even_relevance_kept", "even_response_perplexity_change")
REDUCTION_COLUMNS = ("reduction", "reduction_seen", "reduction_unseen")


@dataclass(frozen=True)
class Limit:
    """A limit on a column of `summarise`: the smallest allowed value if `is_minimum`, else the largest."""

    column: str
    value: float
    is_minimum: bool

    def verdict(self, setting: Mapping[str, Any]) -> Literal["meets", "misses", "inconclusive", "not measured"]:
        """Return "meets" or "misses" if the 95 % interval lies on one side of the limit, else "inconclusive".

        Without an interval, the verdict is "inconclusive"; for NaN, "not measured". A value equal to the limit is
        allowed.
        """
        if math.isnan(setting[self.column]):
            return "not measured"
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
        if self.column in REDUCTION_COLUMNS or not better < -TOLERANCE:
            return None
        return (setting[self.column] - unchanged) / (self.value - unchanged)

    def _margins(self, setting: Mapping[str, Any], limit: float) -> tuple[float, float]:
        """Return the signed distances of the worse and the better end of the interval from a limit, or NaN.

        A negative distance is beyond the limit.
        """
        low, high = setting[f"{self.column}_low"], setting[f"{self.column}_high"]
        return (low - limit, high - limit) if self.is_minimum else (limit - high, limit - low)


@dataclass(frozen=True)
class Criteria:
    """Limits on a setting's scores. Also, no style cluster's bias may rise significantly; no seed may be rejected.

    `min_reduction_seen` and `min_reduction_unseen` are removed fractions of pooled FGB*, for descriptors that were
    tuned on and for other descriptors. `max_perplexity_increase` and `max_distinct_2_decrease` are relative changes.
    `max_length_change` is the relative change of the mean length of a response, up or down. `max_parroting_increase` is
    a difference of shares of responses. Its default rounds to 0.0 percentage points but is
    not 0, because noise alone would decide whether a limit of 0 is met.

    A model that ignores its prompts cannot meet the last four limits: `min_relevance_kept`, a fraction of the relevance
    that the even reference keeps; `max_style_drift`; and, relative, `max_response_perplexity_increase` (under the base
    model, above the rise of the even reference) and `max_distinct_responses_decrease`. Without an even reference, and
    where it would make a limit stricter, limits are relative to the base model.
    """

    min_reduction_seen: float = 0.93
    min_reduction_unseen: float = 0.80
    max_perplexity_increase: float = 0.03
    max_distinct_2_decrease: float = 0.05
    max_length_change: float = 0.05
    max_parroting_increase: float = 0.0005
    min_relevance_kept: float = 0.75
    max_style_drift: float = 0.10
    max_response_perplexity_increase: float = 0.10
    max_distinct_responses_decrease: float = 0.10

    def limits(self, setting: Mapping[str, Any]) -> list[Limit]:
        """Return the limits that apply to a setting.

        If all descriptors were tuned on, `min_reduction_seen` applies to the reduction over all descriptors.
        """
        kept, rise = (setting.get(name, math.nan) for name in EVEN_REFERENCE)
        min_kept = relative_limit(self.min_relevance_kept, True, kept)
        max_rise = relative_limit(self.max_response_perplexity_increase, False, rise)
        is_split = math.isfinite(setting["reduction_seen"]) or math.isnan(setting["reduction"])
        return [
            Limit("reduction_seen" if is_split else "reduction", self.min_reduction_seen, True),
            Limit("reduction_unseen", self.min_reduction_unseen, True),
            Limit("perplexity_change", self.max_perplexity_increase, False),
            Limit("distinct_2_change", -self.max_distinct_2_decrease, True),
            Limit("length_change", -self.max_length_change, True),
            Limit("length_change", self.max_length_change, False),
            Limit("parroting_change", self.max_parroting_increase, False),
            Limit("relevance_kept", min_kept, True),
            Limit("style_drift", self.max_style_drift, False),
            Limit("response_perplexity_change", max_rise, False),
            Limit("distinct_responses_change", -self.max_distinct_responses_decrease, True),
        ]


def evaluate_settings(summary: pd.DataFrame, criteria: Criteria) -> pd.DataFrame:
    """Return the table of `summarise` with the verdicts on each setting.

    Returns:
        The columns of `summary`, four columns with lists of column names, and `met`. `missed` also contains
        "clusters_rose" if a style cluster's bias rose, and "refused" if a guard rejected a seed, because the mean over
        the remaining seeds would be too favourable. `inconclusive` also contains "base" if the base model shows no bias
        in a seed, because no bias can be removed then. `unmeasured` contains the undefined scores. `costs` contains the
        scores that became significantly worse, sorted by the fraction of the limit that is used up, largest first.
        `met` is whether the setting has a reduction and meets every criterion that was measured.
    """
    rows = []
    for setting in summary.to_dict("records"):
        limits = criteria.limits(setting)
        columns: dict[str, dict[str, None]] = {}  # without repetition: the length has two limits
        for limit in limits:
            columns.setdefault(limit.verdict(setting), {})[limit.column] = None
        missed, inconclusive = ([*columns.get(verdict, ())] for verdict in ("misses", "inconclusive"))
        missed += [name for name in ("clusters_rose", "refused") if setting[name]]
        if setting["without_bias"]:
            inconclusive.insert(0, "base")
        costs = {limit.column: cost for limit in limits if (cost := limit.cost(setting)) is not None}
        rows.append(
            {
                "missed": missed,
                "inconclusive": inconclusive,
                "unmeasured": [*columns.get("not measured", ())],
                "costs": sorted(costs, key=costs.get, reverse=True),
                "met": bool(
                    setting["seeds"] and not missed and not inconclusive and math.isfinite(setting["reduction"])
                ),
            }
        )
    names = ("missed", "inconclusive", "unmeasured", "costs", "met")
    return summary.assign(**{name: [row[name] for row in rows] for name in names})


def best_setting(settings: Sequence[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """Return the setting for the headline of the report; None if a guard rejected all points.

    Settings with fewer missed criteria come first, then with fewer inconclusive, then with fewer unmeasured criteria;
    among equal settings, the largest reduction wins.
    """

    def rank(row: Mapping[str, Any]) -> tuple[Any, ...]:
        reductions = (row[name] for name in ("reduction", "reduction_seen"))
        reduction = next((value for value in reductions if math.isfinite(value)), -math.inf)
        doubts = len(row["missed"]), len(row["inconclusive"])
        return not row["met"], *doubts, bool(row["met"] and row["unmeasured"]), -reduction

    return min((row for row in settings if row["seeds"]), key=rank, default=None)
