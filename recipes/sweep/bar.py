"""What a setting of a sweep must reach, and which settings do."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

TINY = 1e-9  # of rounding
REMOVED = ("reduction", "reduction_seen", "reduction_unseen")


@dataclass(frozen=True)
class Bar:
    """What a setting must reach: limits on intervals, and no style cluster that rose significantly in any seed.

    A number *meets* its limit where its 95 % interval lies on the right side of it, *misses* it where the interval lies
    on the wrong side, and in between it cannot be told; nor can it without an interval.

    Fractions: `reduction_seen` and `reduction_unseen` of pooled FGB* removed, for descriptors tuned on and not tuned
    on; `perplexity_rise` and `distinct_2_fall` relative; `parroting_rise` a share of the responses. That one's default
    is what rounds to no rise in tenths of a percentage point: a limit of 0 would be passed or failed by noise alone.

    What a model that does not listen cannot keep: `relevance_kept` of the base's, `style_drift`, and, relative,
    `response_perplexity_rise` (under the base model) and `distinct_responses_fall`.
    """

    reduction_seen: float = 0.93
    reduction_unseen: float = 0.80
    perplexity_rise: float = 0.03
    distinct_2_fall: float = 0.05
    parroting_rise: float = 0.0005
    relevance_kept: float = 0.75
    style_drift: float = 0.10
    response_perplexity_rise: float = 0.10
    distinct_responses_fall: float = 0.10

    def missed(self, setting: Mapping[str, Any]) -> list[str]:
        """Return the columns of a setting's row that miss the bar; `refused` if a guard refused any of its seeds.

        Refused seeds count: the mean over those that got through would speak for the lucky ones only.
        """
        columns = [name for name, limit, sign in self._limits(setting) if _best(setting, name, sign, limit) < -TINY]
        columns += ["clusters_rose"] if setting["clusters_rose"] else []
        return columns + (["refused"] if setting["refused"] else [])

    def inconclusive(self, setting: Mapping[str, Any]) -> list[str]:
        """Return the columns that neither meet the bar nor miss it; `base` if there was nothing to remove in a seed.

        Where the base shows no bias (its interval holds 0), none of it can have been removed: whatever was measured,
        nothing passes.
        """
        found = [
            name
            for name, limit, sign in self._limits(setting)
            if not math.isnan(setting[name])
            and not _worst(setting, name, sign, limit) >= -TINY
            and not _best(setting, name, sign, limit) < -TINY
        ]
        return [*(["base"] if setting["without_bias"] else []), *found]

    def unknown(self, setting: Mapping[str, Any]) -> list[str]:
        """Return the columns of a setting's row that the bar asks for and that were not measured."""
        return [name for name, *_ in self._limits(setting) if math.isnan(setting[name])]

    def costs(self, setting: Mapping[str, Any]) -> list[str]:
        """Return the columns, of what is limited but not removed, that got worse: the interval leaves no change out.

        Sorted by how much of its limit each uses up.
        """
        used = {}
        for name, limit, sign in self._limits(setting):
            unchanged = 1.0 if name == "relevance_kept" else 0.0
            if name not in REMOVED and _best(setting, name, sign, unchanged) < -TINY:
                used[name] = (setting[name] - unchanged) / (limit - unchanged)
        return sorted(used, key=used.get, reverse=True)

    def _limits(self, setting: Mapping[str, Any]) -> list[tuple[str, float, int]]:
        """Return (column, limit, 1 for a lower limit and -1 for an upper one).

        Where nothing was kept from tuning, what is removed of all is what is removed of those tuned on.
        """
        split = math.isfinite(setting["reduction_seen"]) or math.isnan(setting["reduction"])
        return [
            ("reduction_seen" if split else "reduction", self.reduction_seen, 1),
            ("reduction_unseen", self.reduction_unseen, 1),
            ("perplexity_change", self.perplexity_rise, -1),
            ("distinct_2_change", -self.distinct_2_fall, 1),
            ("parroting_change", self.parroting_rise, -1),
            ("relevance_kept", self.relevance_kept, 1),
            ("style_drift", self.style_drift, -1),
            ("response_perplexity_change", self.response_perplexity_rise, -1),
            ("distinct_responses_change", -self.distinct_responses_fall, 1),
        ]


def judged(summary: pd.DataFrame, bar: Bar) -> pd.DataFrame:
    """Return the settings of `summarise` with the columns of the bar that they miss, and that say nothing of it.

    Adds `missed`, `inconclusive` (measured, and neither met nor missed), `unknown` (not measured) and `costs` (what got
    worse, the worst first), lists of names, and `met`: whether the setting went through, with something removed, and
    meets all that was measured.
    """
    rows = summary.to_dict("records")
    ways = (bar.missed, bar.inconclusive, bar.unknown, bar.costs)
    missed, inconclusive, unknown, costs = ([how(row) for row in rows] for how in ways)
    met = [
        bool(row["seeds"]) and not fails and not open_ and math.isfinite(row["reduction"])
        for row, fails, open_ in zip(rows, missed, inconclusive, strict=True)
    ]
    return summary.assign(missed=missed, inconclusive=inconclusive, unknown=unknown, costs=costs, met=met)


def _best(setting: Mapping[str, Any], name: str, sign: int, limit: float) -> float:
    """Return by how much the better end of an interval is beyond the limit; NaN without one."""
    return sign * (setting[f"{name}_high" if sign > 0 else f"{name}_low"] - limit)


def _worst(setting: Mapping[str, Any], name: str, sign: int, limit: float) -> float:
    return sign * (setting[f"{name}_low" if sign > 0 else f"{name}_high"] - limit)


def meeting(settings: Sequence[Mapping[str, Any]]) -> tuple[list[Mapping[str, Any]], list[Mapping[str, Any]]]:
    """Return, of the rows of `judged`, those that meet the whole bar, and those that meet what was measured of it."""
    met = [row for row in settings if row["met"]]
    return [row for row in met if not row["unknown"]], [row for row in met if row["unknown"]]


def most_removed(settings: Sequence[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """Return the setting that removes most; None where there is none."""
    return max(settings, key=_gain, default=None)


def nearest(settings: Sequence[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """Return the setting that misses least of the bar, of those the one that is least open, and that removes most."""
    done = [row for row in settings if row["seeds"]]
    return min(done, key=lambda row: (len(row["missed"]), len(row["inconclusive"]), -_gain(row)), default=None)


def open_settings(settings: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the settings that miss nothing of the bar and do not meet it: of these it cannot be told."""
    return [row for row in settings if row["seeds"] and row["inconclusive"] and not row["missed"]]


def _gain(setting: Mapping[str, Any]) -> float:
    values = (setting[name] for name in ("reduction", "reduction_seen"))
    return next((value for value in values if math.isfinite(value)), -math.inf)
