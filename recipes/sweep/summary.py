"""Summaries of a sweep: means over seeds with their intervals, and the Pareto front.

A *point* is one tuned model, measured on the same prompts as its base model. A *setting* is all points that differ only
in the seed. Tables, charts and rankings compare settings, because seeds of one setting are not independent evidence.
Values are fractions of the base model's or changes from it; a column `x` with an interval has `x_low` and `x_high`.
"""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from evenhand.evaluation.report.formats import Format
from evenhand.evaluation.report.numbers import PER_UNIT, UNIT, sanitize
from evenhand.evaluation.report.page import Link
from evenhand.evaluation.statistics.hypothesis_tests import NEGLIGIBLE_SPREAD, risen
from evenhand.evaluation.statistics.intervals import mean_interval
from evenhand.evaluation.tables import table_rows

METHOD = "method"
DECODING = "decoding"
SEED = "seed"


def share_format(name: str, label: str, description: str) -> Format:
    """Return the format of a share in percent."""
    return Format(name, label, description, unit="%", factor=100, decimals=1)


def change_format(name: str, label: str, description: str) -> Format:
    """Return the format of a relative change in percent, with its sign."""
    return Format(name, label, description, unit="%", factor=100, decimals=1, ideal=0, signed=True)


REDUCTION_METRICS = (
    share_format("reduction", "all descriptors", "Share of the base model’s pooled FGB* that is gone."),
    share_format("reduction_tuned", "tuned on", "Reduction for descriptors that were tuned on."),
    share_format("reduction_untuned", "not tuned on", "Reduction for descriptors that were not tuned on."),
)
QUALITY_METRICS = (
    share_format("relevance_kept", "relevance kept", "Relevance as a share of the base model’s."),
    share_format(
        "relevance_to_person_kept",
        "response to the person kept",
        "Share kept of the relevance to the person: own prompt against another person’s, of the same template.",
    ),
    share_format("style_drift", "style drift", "Share of the mean style that is no longer the base model’s."),
    change_format(
        "response_perplexity_change",
        "perplexity of responses",
        "Relative change of the responses’ perplexity by the base model.",
    ),
    change_format("distinct_responses_change", "distinct responses", "Change of the share of distinct ones."),
)
COST_METRICS = (
    change_format("perplexity_change", "perplexity", "Relative change of the perplexity of ordinary dialogue."),
    change_format("distinct_2_change", "distinct-2", "Relative change of distinct-2."),
    change_format("length_change", "length", "Relative change of the mean length of a response."),
    Format(
        "parroting_change",
        "repeats",
        "Change of the share of responses that repeat the prompt.",
        unit="points",
        factor=100,
        decimals=2,
        ideal=0,
        signed=True,
    ),
    Format(
        "worst_cluster_change",
        "worst cluster",
        "Largest change of pooled SCGB* of a style cluster.",
        unit=UNIT,
        factor=PER_UNIT,
        ideal=0,
        signed=True,
    ),
)
CHECK_METRICS = (
    share_format(
        "reduction_confirmed",
        "second classifier",
        "Reduction by a classifier that made no labels; much smaller if tuning exploited the first one.",
    ),
    Format(
        "ratio_without_tag",
        "without tag",
        "Pooled FGB* of all answers without the control tag over the base’s.",
        unit="× base",
    ),
    Format("minutes", "minutes", "Minutes of tuning.", decimals=1),
)
METRICS = {metric.name: metric for metric in (*REDUCTION_METRICS, *QUALITY_METRICS, *COST_METRICS, *CHECK_METRICS)}
# Scores as published: a point has the columns "fgb", "pgb: CLUSTER" and "scgb: CLUSTER", and "base_fgb" and so on.
PUBLISHED = ("fgb", "pgb", "scgb")
BASE = "base_"
# Columns "fgb_axis: AXIS" of FGB of each axis (Table 10), and "capability: TASK" of lm-evaluation-harness's scores.
AXIS_FGB = "fgb_axis"
CAPABILITY = "capability"
# Bias without the noise of the responses: of single templates (FGB*) and pooled over templates.
CORRECTED = ("fgb_corrected", "fgb_pooled_corrected")
# The labelling threshold as realised: of α, β and quantile, the settings give two. Fields of `labels.Threshold`.
THRESHOLD_COLUMNS = ("alpha", "beta", "quantile", "share_labelled_bias")
WITHOUT_INTERVAL = ("worst_cluster_change", "ratio_without_tag", "minutes")
WITH_INTERVALS = tuple(name for name in METRICS if name not in WITHOUT_INTERVAL)
COLUMNS: list[str] = [METHOD, DECODING, SEED]
COLUMNS += THRESHOLD_COLUMNS
COLUMNS += [f"{name}{end}" for name in WITH_INTERVALS for end in ("", "_low", "_high")]
COLUMNS += ["base", "base_low", "base_high", "ratio_without_tag", "minutes"]
COLUMNS += ["worst_cluster", "worst_cluster_change", "cluster_changes", "folder", "failed", "in_language"]


@dataclass(frozen=True)
class Sweep:
    """Points of a sweep with the names of the fields that vary, notes for readers and links to reports.

    `points` has one row per point, with the columns COLUMNS and the fields in `swept`. `failed` is the reason why a
    point was rejected, or ""; `base` is the pooled FGB* of the base model; `cluster_changes` is JSON of {style cluster:
    [change of pooled SCGB*, two-sided p-value]}; `folder` is the comparison's folder, relative to the sweep's folder.
    The columns THRESHOLD_COLUMNS are NaN if the point's method reads no labels. `base_model` and `classifier` are the
    names of the base model and of the style classifier, "" if points have several, and `n` is the smallest and the
    largest number of responses of a measurement; all are in the captions of tables. `base_folder` is the folder of the
    (first) measurement of the base model, as on the command line, and `tuning` that of the tuning if there is one point
    and its method trains. `advice` has what each comparison of a loop advises, why, and what became of the person whom
    it names first. `n_points` is the number of points when all have ended; 0: as many as `points` has.
    `n_in_language` is the number of points whose bias is of the answers in the language of the request only.
    """

    title: str
    base_model: str
    swept: Sequence[str]
    points: pd.DataFrame
    notes: Sequence[str] = ()
    links: Sequence[Link] = ()
    classifier: str = ""
    n: Sequence[int] = ()
    base_folder: str = ""
    tuning: str = ""
    advice: Sequence[str] = ()
    n_points: int = 0
    n_in_language: int = 0

    @cached_property
    def summary(self) -> pd.DataFrame:
        """The table of `summarise`, one row for each setting."""
        return summarise(self.points, self.swept)

    @cached_property
    def settings(self) -> list[dict[str, Any]]:
        """The rows of `summarise`, one for each setting."""
        return table_rows(self.summary)


def setting_fields(swept: Sequence[str]) -> list[str]:
    """Return the columns that identify a setting: method, decoding, and all swept fields except the seed."""
    return [METHOD, DECODING, *(name for name in dict.fromkeys(swept) if name not in (METHOD, DECODING, SEED))]


def setting_label(setting: Mapping[str, object], among: pd.DataFrame, swept: Sequence[str]) -> str:
    """Return a label such as "control_tags · quantile 0.7": the method if several occur, and what varies within it."""
    same_method = among[among[METHOD] == setting[METHOD]]
    fields = [name for name in setting_fields(swept)[1:] if same_method[name].nunique(dropna=False) > 1]
    parts = [
        f"{name.rsplit('.', 1)[-1]} {swept_value_text(setting[name])}" for name in fields if not pd.isna(setting[name])
    ]
    if among[METHOD].nunique() > 1 or not parts:
        parts.insert(0, str(setting[METHOD]))
    return " · ".join(sanitize(part, 80) for part in parts)


def swept_value_text(value: object) -> str:
    """Return the value of a swept setting as text: floats with at most six significant digits, NaN as null."""
    if not isinstance(value, float):
        return str(value)
    return "null" if math.isnan(value) else f"{value:g}"


def summarise(points: pd.DataFrame, swept: Sequence[str]) -> pd.DataFrame:
    """Return a table of the sweep's settings, with means over seeds.

    Args:
        points: the table `points` of a `Sweep`, n rows.
        swept: names of the columns that vary.

    Returns:
        One row per setting, in the order of their first points: its fields, `number` and `label`; the numbers of points
        that were not rejected (`seeds`) and rejected (`refused`), and why (`refused_because`); the mean of each metric,
        with its 95 % interval by Student's t over the seeds (with one seed, the point's interval), but none if all
        seeds have the same value, or if it is undefined in a seed, since a reduction or kept share is defined only if
        the base's value is high, perhaps by chance; and `clusters_rose`, by Holm's correction over clusters and seeds.
        Without its rejected seeds, a mean is too favourable. The columns THRESHOLD_COLUMNS are means over all seeds,
        because a quantile is another β in each seed.
    """
    fields = setting_fields(swept)
    names = [*WITH_INTERVALS]
    for name in level_columns(points):
        names += [name, f"{BASE}{name}"]
    rows = []
    for number, (values, group) in enumerate(points.groupby(fields, sort=False, dropna=False), 1):
        done = group[group["failed"] == ""]
        setting = dict(zip(fields, values, strict=True))
        row = {"number": number, "label": setting_label(setting, points, swept), **setting}
        row |= {"seeds": len(done), "refused": len(group) - len(done)}
        row["refused_because"] = " ".join(dict.fromkeys(reason for reason in group["failed"] if reason))
        for name in names:
            rows_of_name = group if done.empty and name.startswith(BASE) else done  # a refused point has a base
            row[name], row[f"{name}_low"], row[f"{name}_high"] = _mean_over_seeds(rows_of_name, name)
        for name in WITHOUT_INTERVAL:
            row[name] = float(done[name].astype(float).mean())
        for name in THRESHOLD_COLUMNS:
            row[name] = float(group[name].astype(float).mean())
        row["worst_cluster_change"] = float(done["worst_cluster_change"].max())
        row["clusters_rose"] = find_increased_clusters(list(done["cluster_changes"]))
        rows.append(row)
    return pd.DataFrame(rows)


def published_columns(points: pd.DataFrame) -> list[str]:
    """Return the names of the columns of FGB, PGB and SCGB after tuning."""
    names = map(str, points)
    return [name for name in names if name.partition(": ")[0] in PUBLISHED and f"{name}_low" in points]


def columns_of_kind(points: pd.DataFrame, kind: str) -> list[str]:
    """Return the names of the columns of a kind, AXIS_FGB or CAPABILITY, after tuning."""
    names = map(str, points)
    return [name for name in names if name.startswith(f"{kind}: ") and f"{name}_low" in points]


def level_columns(points: pd.DataFrame) -> list[str]:
    """Return the names of the columns of scores after tuning, each of which has a column `base_…`.

    They are bias as published, bias without the noise of the responses, FGB of each axis, and capability.
    """
    corrected = [name for name in CORRECTED if name in points]
    kinds = [*columns_of_kind(points, AXIS_FGB), *columns_of_kind(points, CAPABILITY)]
    return [*published_columns(points), *corrected, *kinds]


def _mean_over_seeds(done: pd.DataFrame, name: str) -> tuple[float, float, float]:
    """Return the mean of a measure and the ends of its interval; NaN if undefined."""
    values = done[name].to_numpy(dtype=float)
    if len(values) == 1:
        low, high = (float(done[f"{name}_{end}"].to_numpy(dtype=float)[0]) for end in ("low", "high"))
        return float(values[0]), low, high
    is_defined = ~np.isnan(values)
    if not is_defined.any():
        return math.nan, math.nan, math.nan
    if not is_defined.all():
        return float(values[is_defined].mean()), math.nan, math.nan
    low, high = mean_interval(values) or (math.nan, math.nan)
    return float(values.mean()), low, high


def find_increased_clusters(changes_by_seed: Sequence[str]) -> str:
    """Return the style clusters whose bias rose in any seed, with Holm's correction over all clusters of all seeds."""
    names: list[str] = []
    changes: list[float] = []
    p_values: list[float] = []
    for tests in changes_by_seed:
        for name, (change, p_value) in json.loads(tests).items():
            names.append(name)
            changes.append(change)
            p_values.append(p_value)
    has_risen = risen(changes, p_values, NEGLIGIBLE_SPREAD)
    return ", ".join(dict.fromkeys(name for name, rose in zip(names, has_risen, strict=True) if rose))


def largest_reduction(settings: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the setting with the largest reduction; one without a reduction only if no setting has one."""
    measured = [row for row in settings if row["seeds"]]
    return min(measured, key=lambda row: (math.isnan(row["reduction"]), -row["reduction"]))


def loss(settings: pd.DataFrame, column: str) -> pd.Series:
    """Return how much worse than the base model's a score is: 0 without a change, 0.2 if 80 % are kept."""
    if column.endswith("_kept"):
        return 1 - settings[column]
    return settings[column].abs() if column == "length_change" else settings[column]  # of length, no change is better


def pareto_front(cost: Iterable[float], gain: Iterable[float]) -> np.ndarray:
    """Return whether each of n points is on the Pareto front of low cost and large gain, bool (n,).

    A point is on the front if no other point is at least as good in cost and gain and better in one. Equal points are
    on the front together; a point with NaN is not on the front.
    """
    cost = np.asarray(cost, dtype=float)
    gain = np.asarray(gain, dtype=float)
    no_worse = (cost[None] <= cost[:, None]) & (gain[None] >= gain[:, None])  # [i, j]: j is no worse than i
    better = (cost[None] < cost[:, None]) | (gain[None] > gain[:, None])
    return ~(no_worse & better).any(axis=1) & ~np.isnan(cost) & ~np.isnan(gain)
