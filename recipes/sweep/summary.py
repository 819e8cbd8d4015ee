"""The numbers of a sweep: points averaged over seeds, the Pareto front, and the plan put to the test.

A *point* is one tuned model, measured on the same prompts as its base. A *setting* is all points that differ in nothing
but the seed; what is judged, drawn and ranked is settings, since seeds of one setting are no evidence of their own.
"""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from evenhand.evaluation.report.numbers import visible
from evenhand.evaluation.report.page import Link
from evenhand.evaluation.results import BiasScore
from evenhand.evaluation.statistics.intervals import mean_interval, student_quantile
from evenhand.evaluation.statistics.multiple_testing import risen
from evenhand.evaluation.statistics.rank_correlation import rank_correlation
from evenhand.mitigation.labelling.threshold_plan import PILOT_SLOPE, fit_strength, fraction_left
from evenhand.recipes.sweep.bar import Bar

METHOD, DECODING, SEED = "method", "decoding", "seed"
# Fractions of pooled FGB* removed, 1 = all of it; each with its own 95 % interval in `<name>_low`, `<name>_high`.
REDUCTIONS = ("reduction", "reduction_seen", "reduction_unseen", "reduction_confirmed")
# Changes from the base model (relative; parroting: of the share), each with its own interval too.
CHANGES = ("perplexity_change", "distinct_2_change", "parroting_change", "well_formed_change")
# What responses keep, and how far they go from the base's; each with its own interval too.
JUDGED = ("relevance_kept", "style_drift", "response_perplexity_change", "distinct_responses_change")
WITH_INTERVALS = (*REDUCTIONS, *JUDGED, *CHANGES)
MEASURES = (*WITH_INTERVALS, "length_change", "untagged_ratio", "minutes")
PREDICTION = ("slope", "predicted_left", "predicted_low", "predicted_high", "predicted_drift")
COLUMNS = (
    *(METHOD, DECODING, SEED),
    *(f"{name}{end}" for name in WITH_INTERVALS for end in ("", "_low", "_high")),
    *("base", "base_low", "base_high", "length_change", "untagged_ratio", "minutes"),
    *("worst_cluster", "worst_cluster_change", "cluster_changes", *PREDICTION, "folder", "failed"),
)
NEAR, FACTOR = 0.1, 2.0  # a prediction counts as right within 0.1 of pooled FGB*, or within a factor of two


@dataclass(frozen=True)
class Sweep:
    """A sweep: its points, what was swept, what a reader must know, and the reports behind it.

    `points` has one row per point, with the columns COLUMNS and those named in `swept` (dotted fields of the loop that
    vary; "method" and "seed" may be among them). `failed` says why a guard refused a point ("" if it went through);
    its numbers are then NaN. `decoding` is how responses were drawn, `base` the base's pooled FGB*, `cluster_changes`
    JSON of {style cluster: [change of pooled SCGB*, its two-sided p-value]}, `folder` the comparison's, seen from the
    sweep's.
    """

    title: str
    base_model: str
    swept: Sequence[str]
    points: pd.DataFrame
    notes: Sequence[str] = ()
    links: Sequence[Link] = ()
    bar: Bar = field(default_factory=Bar)


def setting_fields(swept: Sequence[str]) -> list[str]:
    """Return the columns that tell settings apart: method and decoding, then what was swept but the seed."""
    return [METHOD, DECODING, *(name for name in dict.fromkeys(swept) if name not in (METHOD, DECODING, SEED))]


def setting_label(setting: Mapping[str, Any], among: pd.DataFrame, swept: Sequence[str]) -> str:
    """Return "control_tags · quantile 0.7": the method if there are several, and what varies, by its short name."""
    fields = [name for name in setting_fields(swept)[1:] if among[name].nunique(dropna=False) > 1]
    last = [name.rsplit(".", 1)[-1] for name in fields]
    parts = [
        f"{short if last.count(short) == 1 else name} {value_text(setting[name])}"
        for name, short in zip(fields, last, strict=True)
        if not _absent(setting[name])
    ]
    if among[METHOD].nunique() > 1 or not parts:
        parts.insert(0, str(setting[METHOD]))
    return " · ".join(visible(part, 80) for part in parts)


def value_text(value: Any) -> str:
    """Return a swept value as it would be typed."""
    return f"{value:g}" if isinstance(value, float) else str(value)


def _absent(value: Any) -> bool:
    return value is None or (isinstance(value, float) and math.isnan(value))


def summarise(points: pd.DataFrame, swept: Sequence[str]) -> pd.DataFrame:
    """Average points over seeds.

    Args:
        points: as in `Sweep`; n rows.
        swept: names of the columns that vary.

    Returns:
        One row per setting, in the order of their first points: the setting's fields; `number` (from 1) and `label`,
        see `setting_label`; `seeds`, how many went through, and `refused`, how many did not, with their `reasons`; for
        each of MEASURES the mean, and its 95 % interval in `_low` and `_high`: from two seeds on Student's t over the
        seeds, with one seed the point's own, where it has one (else NaN). A reduction that is undefined in some of the
        seeds has no interval: it is defined where the base's bias is high, which may be by chance. `worst_cluster` and
        its `_change` (the largest over the seeds), `clusters_rose` (with the number of seeds; Holm's correction over
        clusters × seeds), `without_bias` (in how many seeds the base shows none: the interval of its pooled FGB* holds
        0), PREDICTION (means: the plan's interval does not say how seeds differ), and `front_perplexity`,
        `front_distinct_2`: no other setting removes as much for less, judged by means.

    Raises:
        ValueError: columns are missing, or two points differ in nothing that is known of them.
    """
    fields = setting_fields(swept)
    missing = [name for name in (*COLUMNS, *fields) if name not in points]
    if missing:
        raise ValueError(f"points lack the columns {', '.join(dict.fromkeys(missing))}.")
    table = points.assign(
        **{name: points[name].map(_hashable) for name in fields},
        **{name: points[name].fillna("").astype(str) for name in ("failed", "cluster_changes", "worst_cluster")},
    )
    same = table[table.duplicated([*fields, SEED])]
    if len(same):
        raise ValueError(f"two points are alike in {', '.join([*fields, SEED])}: what else varies belongs in `swept`.")
    grouped = table.groupby(fields, sort=False, dropna=False)
    rows = [dict(zip(fields, values, strict=True)) | _setting(group) for values, group in grouped]
    summary = pd.DataFrame(rows, columns=[*fields, *_setting(table.head(0))])
    summary.insert(0, "number", np.arange(1, len(rows) + 1))
    summary.insert(1, "label", [setting_label(row, summary, swept) for row in rows])
    summary["front_perplexity"] = pareto_front(summary["perplexity_change"], summary["reduction"])
    summary["front_distinct_2"] = pareto_front(-summary["distinct_2_change"], summary["reduction"])
    return summary


def pareto_front(cost: Iterable[float], gain: Iterable[float]) -> np.ndarray:
    """Return which of n points no other point beats: none costs as little and gains as much, with one of them better.

    Equal points are on the front together. What has NaN is never on it.

    Returns:
        bool (n,).
    """
    cost, gain = np.asarray(cost, dtype=float), np.asarray(gain, dtype=float)
    no_worse = (cost[None] <= cost[:, None]) & (gain[None] >= gain[:, None])  # [i, j]: j is no worse than i
    better = (cost[None] < cost[:, None]) | (gain[None] > gain[:, None])
    return ~(no_worse & better).any(axis=1) & ~np.isnan(cost) & ~np.isnan(gain)


@dataclass(frozen=True)
class Agreement:
    """How well the plan's predictions of one kind held: `near` of n within NEAR, `factor` within FACTOR."""

    name: str
    n: int
    near: int
    factor: int
    correlation: BiasScore


def several_thresholds(points: pd.DataFrame) -> bool:
    """Return whether points of one seed had different predictions, so that there is something to rank."""
    return bool((points.groupby(SEED)["predicted_left"].nunique() > 1).any())


def planned(settings: pd.DataFrame) -> pd.DataFrame:
    """Return the settings that have a prediction and a measured value; adds `left`, `left_low`, `left_high`, `pilot`
    and `piloted_left`.

    What is left is 1 − `reduction`; the others as in `piloted`.
    """
    rows = settings[np.isfinite(settings["predicted_left"]) & np.isfinite(settings["reduction"])]
    return piloted(
        rows.assign(
            left=1 - rows["reduction"], left_low=1 - rows["reduction_high"], left_high=1 - rows["reduction_low"]
        )
    )


def piloted(rows: pd.DataFrame, may_be: pd.Series | bool = True) -> pd.DataFrame:
    """Add `pilot`, which row of each method calibrates the plan, and `piloted_left`, what it predicts for the others.

    The pilot is chosen by what is known before tuning: its slope is the nearest to PILOT_SLOPE. `piloted_left` is NaN
    for itself, and for methods without one.

    Args:
        rows: columns method, slope and left. may_be: which rows may be a pilot, (n,) bool; all.
    """
    strength = pd.Series(map(fit_strength, rows["slope"], rows["left"]), rows.index, float)
    distance = (rows["slope"] - PILOT_SLOPE).abs().where(strength.notna() & may_be)
    pilot = distance.groupby(rows[METHOD]).rank(method="first") == 1
    of_method = strength.where(pilot).groupby(rows[METHOD]).transform("first")  # passes over NaN
    return rows.assign(pilot=pilot, piloted_left=fraction_left(rows["slope"], of_method).mask(pilot))


def plan_agreement(rows: pd.DataFrame) -> list[Agreement]:
    """Return how the plan fared as it stood, among all settings of `planned`, and as pilots calibrated it."""
    piloted = rows[rows["piloted_left"].notna()]
    return [
        _agreement("as it stood", rows["predicted_left"], rows["left"]),
        _agreement("by one pilot a method", piloted["piloted_left"], piloted["left"]),
    ]


def _agreement(name: str, predicted: pd.Series, left: pd.Series) -> Agreement:
    predicted, left = predicted.to_numpy(), left.to_numpy()
    near = np.abs(left - predicted) <= NEAR + 1e-9
    within = (left * FACTOR >= predicted) & (left <= predicted * FACTOR)  # never of a negative beside a positive
    names = ("the prediction", "the measured value")
    correlation = rank_correlation("plan_rho", predicted, left, names=names, of="setting")
    return Agreement(name, len(left), int(near.sum()), int(within.sum()), correlation)


def _setting(group: pd.DataFrame) -> dict[str, Any]:
    """Return the summary of points that differ in the seed alone."""
    done = group[group["failed"] == ""]
    reasons = dict.fromkeys(group.loc[group["failed"] != "", "failed"])
    row: dict[str, Any] = {"seeds": len(done), "refused": len(group) - len(done), "reasons": "; ".join(reasons)}
    for name in MEASURES:
        row[name], row[f"{name}_low"], row[f"{name}_high"] = _over_seeds(done, name)
    worst = done.sort_values("worst_cluster_change", ascending=False, kind="stable").head(1)  # NaN sorts last
    row["worst_cluster"] = next(iter(worst["worst_cluster"]), "")
    row["worst_cluster_change"] = float(next(iter(worst["worst_cluster_change"]), math.nan))
    row["clusters_rose"] = _risen(list(done["cluster_changes"]))
    row["without_bias"] = int((~(done["base_low"].astype(float) > 0)).sum())  # NaN is no bias
    row |= {name: float(done[name].astype(float).mean()) for name in PREDICTION}
    return row


def _over_seeds(done: pd.DataFrame, name: str) -> tuple[float, float, float]:
    """Return the mean of a measure with its interval, NaN where there is none."""
    rows = done[done[name].notna()]
    values = rows[name].astype(float).to_numpy()
    if len(values) == 0:
        return math.nan, math.nan, math.nan
    if name in REDUCTIONS and len(values) < len(done):
        return float(values.mean()), math.nan, math.nan
    if len(values) > 1:
        return float(values.mean()), *mean_interval(values, student_quantile(len(values) - 1))
    ends = [f"{name}_low", f"{name}_high"]
    low, high = rows[ends].astype(float).iloc[0] if name in WITH_INTERVALS else (math.nan, math.nan)
    return float(values[0]), float(low), float(high)


def _risen(by_seed: Sequence[str]) -> str:
    """Return the clusters that rose in any seed, corrected for all of all seeds; with how many of several."""
    tests = [(name, *test) for changes in by_seed for name, test in json.loads(changes or "{}").items()]
    rose = risen([change for _, change, _ in tests], [p_value for *_, p_value in tests])
    names = [name for (name, *_), up in zip(tests, rose, strict=True) if up]
    names = sorted(names, key=lambda name: (-names.count(name), name))
    of = f" of {len(by_seed)} seeds)"
    return ", ".join(name if len(by_seed) == 1 else f"{name} ({names.count(name)}{of}" for name in dict.fromkeys(names))


def _hashable(value: Any) -> Any:
    """Return a swept value by which rows can be grouped: a list or mapping as text."""
    return str(value) if isinstance(value, (list, dict)) else value
