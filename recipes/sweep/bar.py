"""What a setting of a sweep must reach, and which settings do."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd


@dataclass(frozen=True)
class Bar:
    """What a setting must reach: limits on its means, and no style cluster that rose significantly in any seed.

    Fractions: `reduction_seen` and `reduction_unseen` of pooled FGB* removed, for descriptors tuned on and not tuned
    on; `perplexity_rise` and `distinct_2_fall` relative; `parroting_rise` a share of the responses. That one's default
    is what rounds to no rise in tenths of a percentage point: a limit of 0 would be passed or failed by noise alone.
    """

    reduction_seen: float = 0.93
    reduction_unseen: float = 0.80
    perplexity_rise: float = 0.03
    distinct_2_fall: float = 0.05
    parroting_rise: float = 0.0005

    def missed(self, setting: Mapping[str, Any]) -> list[str]:
        """Return the columns of a setting's row that miss the bar; `refused` if a guard refused any of its seeds.

        Refused seeds count: the mean over those that got through would speak for the lucky ones only.
        """
        columns = [name for name, limit, sign in self._limits() if sign * (setting[name] - limit) < -1e-9]
        columns += ["clusters_rose"] if setting["clusters_rose"] else []
        return columns + (["refused"] if setting["refused"] else [])

    def unknown(self, setting: Mapping[str, Any]) -> list[str]:
        """Return the columns of a setting's row that the bar asks for and that were not measured."""
        return [name for name, *_ in self._limits() if math.isnan(setting[name])]

    def _limits(self) -> list[tuple[str, float, int]]:
        """Return (column, limit, 1 for a lower limit and -1 for an upper one)."""
        return [
            ("reduction_seen", self.reduction_seen, 1),
            ("reduction_unseen", self.reduction_unseen, 1),
            ("perplexity_change", self.perplexity_rise, -1),
            ("distinct_2_change", -self.distinct_2_fall, 1),
            ("parroting_change", self.parroting_rise, -1),
        ]


def judged(summary: pd.DataFrame, bar: Bar) -> pd.DataFrame:
    """Return the settings of `summarise` with the columns of the bar that they miss and that were not measured.

    Adds `missed` and `unknown`, lists of names, and `met`: whether the setting went through and misses nothing.
    """
    rows = summary.to_dict("records")
    missed, unknown = [bar.missed(row) for row in rows], [bar.unknown(row) for row in rows]
    met = [bool(row["seeds"]) and not columns for row, columns in zip(rows, missed, strict=True)]
    return summary.assign(missed=missed, unknown=unknown, met=met)


def meeting(settings: Sequence[Mapping[str, Any]]) -> tuple[list[Mapping[str, Any]], list[Mapping[str, Any]]]:
    """Return, of the rows of `judged`, those that meet the whole bar, and those that meet what was measured of it."""
    met = [row for row in settings if row["met"]]
    return [row for row in met if not row["unknown"]], [row for row in met if row["unknown"]]


def most_removed(settings: Sequence[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """Return the setting that removes most; None where there is none."""
    return max(settings, key=_gain, default=None)


def nearest(settings: Sequence[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """Return the setting that misses least of the bar, and of those the one that removes most."""
    done = [row for row in settings if row["seeds"]]
    return min(done, key=lambda row: (len(row["missed"]), -_gain(row)), default=None)


def _gain(setting: Mapping[str, Any]) -> float:
    values = (setting[name] for name in ("reduction", "reduction_seen"))
    return next((value for value in values if math.isfinite(value)), -math.inf)
