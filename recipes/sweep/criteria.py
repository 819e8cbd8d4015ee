"""The acceptance criteria of a sweep, and the settings that meet them, miss them or are inconclusive."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import pandas as pd

TOLERANCE = 1e-9  # of rounding
REDUCTION_COLUMNS = ("reduction", "reduction_seen", "reduction_unseen")


@dataclass(frozen=True)
class Limit:
    """The least (`is_minimum`) or the largest value that a column of `summarise` may have."""

    column: str
    value: float
    is_minimum: bool

    def verdict(self, setting: Mapping[str, Any]) -> Literal["meets", "misses", "inconclusive", "not measured"]:
        """Return the side of the limit on which the 95 % interval lies; "inconclusive" on both or without an interval.

        A limit itself is allowed.
        """
        if math.isnan(setting[self.column]):
            return "not measured"
        worse, better = self._margins(setting, self.value)
        if better < -TOLERANCE:
            return "misses"
        return "meets" if worse >= -TOLERANCE else "inconclusive"

    def cost(self, setting: Mapping[str, Any]) -> float | None:
        """Return the fraction of the allowed change that is used up; None if the interval does not exclude no change.

        A reduction of bias is no cost: None.
        """
        unchanged = 1.0 if self.column == "relevance_kept" else 0.0
        _, better = self._margins(setting, unchanged)
        if self.column in REDUCTION_COLUMNS or not better < -TOLERANCE:
            return None
        return (setting[self.column] - unchanged) / (self.value - unchanged)

    def _margins(self, setting: Mapping[str, Any], limit: float) -> tuple[float, float]:
        """Return the signed distances of the worse and the better end of the interval from a limit; below 0 is beyond.

        Both are NaN without an interval.
        """
        low, high = setting[f"{self.column}_low"], setting[f"{self.column}_high"]
        return (low - limit, high - limit) if self.is_minimum else (limit - high, limit - low)


@dataclass(frozen=True)
class Criteria:
    """Limits on the numbers of a setting; besides, no style cluster may rise significantly and no seed be refused.

    Fractions: `min_reduction_seen` and `min_reduction_unseen` of pooled FGB* removed, for descriptors that were tuned
    on and for other descriptors; `max_perplexity_increase` and `max_distinct_2_decrease` are relative;
    `max_parroting_increase` is a difference of shares of responses, and its default rounds to 0.0 percentage points: a
    limit of 0 would be met or missed by noise alone.

    A model that ignores its prompts cannot meet the last four: `min_relevance_kept`, a fraction of the base model's
    relevance; `max_style_drift`; and, relative, `max_response_perplexity_increase` (under the base model) and
    `max_distinct_responses_decrease`.
    """

    min_reduction_seen: float = 0.93
    min_reduction_unseen: float = 0.80
    max_perplexity_increase: float = 0.03
    max_distinct_2_decrease: float = 0.05
    max_parroting_increase: float = 0.0005
    min_relevance_kept: float = 0.75
    max_style_drift: float = 0.10
    max_response_perplexity_increase: float = 0.10
    max_distinct_responses_decrease: float = 0.10

    def limits(self, setting: Mapping[str, Any]) -> list[Limit]:
        """Return the limits that apply to a setting.

        If all descriptors were tuned on, the limit of `min_reduction_seen` applies to the reduction over all.
        """
        is_split = math.isfinite(setting["reduction_seen"]) or math.isnan(setting["reduction"])
        return [
            Limit("reduction_seen" if is_split else "reduction", self.min_reduction_seen, True),
            Limit("reduction_unseen", self.min_reduction_unseen, True),
            Limit("perplexity_change", self.max_perplexity_increase, False),
            Limit("distinct_2_change", -self.max_distinct_2_decrease, True),
            Limit("parroting_change", self.max_parroting_increase, False),
            Limit("relevance_kept", self.min_relevance_kept, True),
            Limit("style_drift", self.max_style_drift, False),
            Limit("response_perplexity_change", self.max_response_perplexity_increase, False),
            Limit("distinct_responses_change", -self.max_distinct_responses_decrease, True),
        ]


def evaluate_settings(summary: pd.DataFrame, criteria: Criteria) -> pd.DataFrame:
    """Return the settings of `summarise` with their verdicts.

    Returns:
        The columns of `summary` and lists of column names: `missed` ("clusters_rose" if a style cluster rose,
        "refused" if a guard refused a seed: the mean over the other seeds would be too favourable), `inconclusive`
        ("base" if the base model shows no bias in a seed, as no bias can be removed then), `unmeasured`, and `costs`:
        what got worse, sorted by the fraction of its limit that is used up. `met` is whether the setting has a
        reduction and meets every criterion that was measured.
    """
    rows = []
    for setting in summary.to_dict("records"):
        limits = criteria.limits(setting)
        columns: dict[str, list[str]] = {}
        for limit in limits:
            columns.setdefault(limit.verdict(setting), []).append(limit.column)
        missed, inconclusive = columns.get("misses", []), columns.get("inconclusive", [])
        missed += [name for name in ("clusters_rose", "refused") if setting[name]]
        if setting["without_bias"]:
            inconclusive.insert(0, "base")
        costs = {limit.column: cost for limit in limits if (cost := limit.cost(setting)) is not None}
        rows.append(
            {
                "missed": missed,
                "inconclusive": inconclusive,
                "unmeasured": columns.get("not measured", []),
                "costs": sorted(costs, key=costs.get, reverse=True),
                "met": bool(
                    setting["seeds"] and not missed and not inconclusive and math.isfinite(setting["reduction"])
                ),
            }
        )
    names = ("missed", "inconclusive", "unmeasured", "costs", "met")
    return summary.assign(**{name: [row[name] for row in rows] for name in names})


def settings_that_meet(
    settings: Sequence[Mapping[str, Any]],
) -> tuple[list[Mapping[str, Any]], list[Mapping[str, Any]]]:
    """Return the rows of `evaluate_settings` that meet all criteria, and the rows that meet all measured criteria."""
    met = [row for row in settings if row["met"]]
    return [row for row in met if not row["unmeasured"]], [row for row in met if row["unmeasured"]]


def best_setting(settings: Sequence[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """Return the setting that a report names first; None if a guard refused all points.

    Settings that meet all criteria come first, then settings that meet all measured criteria; then settings with fewer
    missed criteria, then with fewer inconclusive ones. The largest reduction decides between equals.
    """
    candidates = next(filter(None, settings_that_meet(settings)), [row for row in settings if row["seeds"]])
    return min(
        candidates, key=lambda row: (len(row["missed"]), len(row["inconclusive"]), -_reduction(row)), default=None
    )


def inconclusive_settings(settings: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the settings that miss no criterion and leave some inconclusive."""
    return [row for row in settings if row["seeds"] and row["inconclusive"] and not row["missed"]]


def _reduction(setting: Mapping[str, Any]) -> float:
    values = (setting[name] for name in ("reduction", "reduction_seen"))
    return next((value for value in values if math.isfinite(value)), -math.inf)
