"""Summaries of a sweep: means over seeds, and the Pareto front.

A *point* is one tuned model, measured on the same prompts as its base model. A *setting* is all points that differ only
in the seed. Criteria, charts and rankings compare settings, because seeds of one setting are not independent evidence.
"""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from evenhand.evaluation.report.numbers import sanitize
from evenhand.evaluation.report.page import Link
from evenhand.evaluation.statistics.hypothesis_tests import risen
from evenhand.evaluation.statistics.intervals import mean_interval, student_quantile
from evenhand.recipes.sweep.criteria import EVEN_REFERENCE, Criteria

METHOD, DECODING, SEED = "method", "decoding", "seed"
# Fractions of pooled FGB* removed, 1 = all of it. A point has a 95 % interval of each in `<name>_low`, `<name>_high`.
REDUCTIONS = ("reduction", "reduction_seen", "reduction_unseen", "reduction_confirmed")
# Changes from the base model with intervals: relative, except for the share `parroting`.
CHANGES = ("perplexity_change", "distinct_2_change", "length_change", "parroting_change")
# Quality of the responses in comparison with the base model's, with intervals.
RESPONSE_QUALITY = (
    *("relevance_kept", "relevance_within_template_kept"),
    *("style_drift", "response_perplexity_change", "distinct_responses_change"),
)
WITH_INTERVALS = (*REDUCTIONS, *RESPONSE_QUALITY, *CHANGES)
MEASURES = (*WITH_INTERVALS, "ratio_without_tag", "minutes")
COLUMNS = (
    *(METHOD, DECODING, SEED),
    *(f"{name}{end}" for name in WITH_INTERVALS for end in ("", "_low", "_high")),
    *("base", "base_low", "base_high", "ratio_without_tag", "minutes"),
    *("worst_cluster", "worst_cluster_change", "cluster_changes", *EVEN_REFERENCE, "folder", "failed"),
)
# Costs with a Pareto front, in the order of the figure's panels.
COSTS = (*RESPONSE_QUALITY[:2], "response_perplexity_change", "perplexity_change", "style_drift", "length_change")


@dataclass(frozen=True)
class Sweep:
    """Points of a sweep with the names of the fields that vary, notes for readers and links to reports.

    `points` has one row per point, with the columns COLUMNS and the names in `swept`: dotted fields of the loop that
    vary, which may include "method" and "seed". `failed` is the reason why a point was rejected, or ""; the scores of a
    rejected point are NaN. `decoding` is the preset or the settings of decoding; `base` is the pooled
    FGB* of the base model; `cluster_changes` is JSON of {style cluster: [change of pooled SCGB*, two-sided p-value]};
    `folder` is the comparison's folder, relative to the sweep's folder (the field `folder`, None if not on disk).
    """

    title: str
    base_model: str
    swept: Sequence[str]
    points: pd.DataFrame
    notes: Sequence[str] = ()
    links: Sequence[Link] = ()
    criteria: Criteria = field(default_factory=Criteria)
    folder: Path | None = None


def setting_fields(swept: Sequence[str]) -> list[str]:
    """Return the columns that identify a setting: method, decoding, and all swept fields except the seed."""
    return [METHOD, DECODING, *(name for name in dict.fromkeys(swept) if name not in (METHOD, DECODING, SEED))]


def setting_label(setting: Mapping[str, Any], among: pd.DataFrame, swept: Sequence[str]) -> str:
    """Return a label such as "control_tags · quantile 0.7": the method if several occur, and what varies within it.

    A field is written without its group if no other field has the same last name.
    """
    same_method = among[among[METHOD] == setting[METHOD]]
    fields = [name for name in setting_fields(swept)[1:] if same_method[name].nunique(dropna=False) > 1]
    last = [name.rsplit(".", 1)[-1] for name in fields]
    parts = [
        f"{short if last.count(short) == 1 else name} {format_value(setting[name])}"
        for name, short in zip(fields, last, strict=True)
        if not _is_absent(setting[name])
    ]
    if among[METHOD].nunique() > 1 or not parts:
        parts.insert(0, str(setting[METHOD]))
    return " · ".join(sanitize(part, 80) for part in parts)


def format_value(value: Any) -> str:
    """Return the value of a swept setting as text, floats with at most six significant digits."""
    return f"{value:g}" if isinstance(value, float) else str(value)


def _is_absent(value: Any) -> bool:
    return value is None or (isinstance(value, float) and math.isnan(value))


def summarise(points: pd.DataFrame, swept: Sequence[str]) -> pd.DataFrame:
    """Return a table of the sweep's settings, with means over seeds.

    Args:
        points: the table `points` of a `Sweep`, n rows.
        swept: names of the columns that vary.

    Returns:
        One row per setting, in the order of their first points:

        - the fields of the setting, `number` (from 1) and `label` (see `setting_label`);
        - `seeds`: the number of points that were not rejected; `refused`: the number of rejected points; `reasons`;
        - each of MEASURES: the mean, with its 95 % interval in `_low` and `_high`. With two or more seeds the interval
          is Student's t over the seeds; with one seed it is the point's interval, or NaN. A reduction
          or kept share that is undefined in a seed has no interval: it is defined only if the base's value is high,
          perhaps by chance;
        - `worst_cluster` and `worst_cluster_change`: the style cluster with the largest change over the seeds;
        - `clusters_rose`: the style clusters whose bias rose, with the number of seeds (Holm's correction over all
          clusters and seeds);
        - `without_bias`: the number of seeds in which the base shows no bias (the interval of its pooled FGB* includes
          0);
        - `folder`: the folder of the point with the lowest seed that was not rejected, or "";
        - EVEN_REFERENCE: means.

    Raises:
        ValueError: columns are missing, or two points have the same seed and the same settings.
    """
    fields = setting_fields(swept)
    missing = [name for name in (*COLUMNS, *fields) if name not in points]
    if missing:
        raise ValueError(f"points lack the columns {', '.join(dict.fromkeys(missing))}.")
    table = points.assign(
        **{name: points[name].map(make_hashable) for name in fields},
        **{name: points[name].fillna("").astype(str) for name in ("failed", "cluster_changes", "worst_cluster")},
    )
    same = table[table.duplicated([*fields, SEED])]
    if len(same):
        raise ValueError(f"two points have equal {', '.join([*fields, SEED])}; name all fields that vary in `swept`.")
    grouped = table.groupby(fields, sort=False, dropna=False)
    rows = [dict(zip(fields, values, strict=True)) | _summarise_setting(group) for values, group in grouped]
    summary = pd.DataFrame(rows, columns=[*fields, *_summarise_setting(table.head(0))])
    summary.insert(0, "number", np.arange(1, len(rows) + 1))
    summary.insert(1, "label", [setting_label(row, summary, swept) for row in rows])
    return summary


def cost_rows(settings: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Return, for each of COSTS that was measured, the settings that have this cost and a reduction.

    Two columns are added: `loss` is how much worse than the base model's the score is (0 without a change, 0.2 if 80 %
    are kept), `on_front` whether the setting is on the Pareto front.
    """
    by_cost = {}
    for column in COSTS:
        values = settings[column].astype(float)
        if column.endswith("_kept"):
            values = 1 - values
        elif column == "length_change":  # no direction is better
            values = values.abs()
        rows = settings.assign(loss=values).dropna(subset=["loss", "reduction"])
        if len(rows):
            by_cost[column] = rows.assign(on_front=pareto_front(rows["loss"], rows["reduction"]))
    return by_cost


def pareto_front(cost: Iterable[float], gain: Iterable[float]) -> np.ndarray:
    """Return whether each of n points is on the Pareto front of low cost and large gain.

    A point is on the front if no other point is at least as good in cost and gain and better in one. Equal points are
    on the front together; a point with NaN is not on the front.

    Returns:
        bool (n,).
    """
    cost, gain = np.asarray(cost, dtype=float), np.asarray(gain, dtype=float)
    no_worse = (cost[None] <= cost[:, None]) & (gain[None] >= gain[:, None])  # [i, j]: j is no worse than i
    better = (cost[None] < cost[:, None]) | (gain[None] > gain[:, None])
    return ~(no_worse & better).any(axis=1) & ~np.isnan(cost) & ~np.isnan(gain)


def _summarise_setting(group: pd.DataFrame) -> dict[str, Any]:
    """Return the row of `summarise` for points that differ only in the seed."""
    done = group[group["failed"] == ""]
    reasons = dict.fromkeys(group.loc[group["failed"] != "", "failed"])
    row: dict[str, Any] = {"seeds": len(done), "refused": len(group) - len(done), "reasons": "; ".join(reasons)}
    for name in MEASURES:
        row[name], row[f"{name}_low"], row[f"{name}_high"] = _mean_over_seeds(done, name)
    worst = done.sort_values("worst_cluster_change", ascending=False, kind="stable").head(1)  # NaN sorts last
    row["worst_cluster"] = next(iter(worst["worst_cluster"]), "")
    row["worst_cluster_change"] = float(next(iter(worst["worst_cluster_change"]), math.nan))
    row["folder"] = next(iter(done.sort_values(SEED)["folder"]), "")
    row["clusters_rose"] = find_increased_clusters(list(done["cluster_changes"]))
    row["without_bias"] = int((~(done["base_low"].astype(float) > 0)).sum())  # NaN counts as no bias
    row |= {name: float(done[name].astype(float).mean()) for name in EVEN_REFERENCE}
    return row


def _mean_over_seeds(done: pd.DataFrame, name: str) -> tuple[float, float, float]:
    """Return the mean of a measure and the ends of its interval; NaN if undefined."""
    rows = done[done[name].notna()]
    values = rows[name].astype(float).to_numpy()
    if len(values) == 0:
        return math.nan, math.nan, math.nan
    if (name in REDUCTIONS or name.endswith("_kept")) and len(values) < len(done):
        return float(values.mean()), math.nan, math.nan
    if len(values) > 1:
        return float(values.mean()), *mean_interval(values, student_quantile(len(values) - 1))
    ends = [f"{name}_low", f"{name}_high"]
    low, high = rows[ends].astype(float).iloc[0] if name in WITH_INTERVALS else (math.nan, math.nan)
    return float(values[0]), float(low), float(high)


def find_increased_clusters(changes_by_seed: Sequence[str]) -> str:
    """Return the style clusters whose bias rose in any seed, with the number of seeds if there are several.

    Holm's correction covers all clusters of all seeds.

    Args:
        changes_by_seed: the column `cluster_changes` of the points.
    """
    tests = [(name, *test) for changes in changes_by_seed for name, test in json.loads(changes or "{}").items()]
    rose = risen([change for _, change, _ in tests], [p_value for *_, p_value in tests])
    names = [name for (name, *_), up in zip(tests, rose, strict=True) if up]
    names = sorted(names, key=lambda name: (-names.count(name), name))
    n = len(changes_by_seed)
    return ", ".join(name if n == 1 else f"{name} ({names.count(name)} of {n} seeds)" for name in dict.fromkeys(names))


def make_hashable(value: Any) -> Any:
    """Return a swept value that pandas can group by: a list or mapping becomes text."""
    return str(value) if isinstance(value, (list, dict)) else value
