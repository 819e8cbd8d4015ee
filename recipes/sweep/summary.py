"""Summaries of a sweep: means over seeds, verdicts, what each swept field changes, and the Pareto front.

A *point* is one tuned model, measured on the same prompts as its base model. A *setting* is all points that differ only
in the seed. Criteria, charts and rankings compare settings, because seeds of one setting are not independent evidence.
Values are fractions of the base model's or changes from it; a column `x` with an interval has `x_low` and `x_high`.
"""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd

from evenhand.evaluation.metrics.generation_bias.costs.relevance import relative_limit
from evenhand.evaluation.report.formats import Format
from evenhand.evaluation.report.numbers import PER_UNIT, UNIT, sanitize
from evenhand.evaluation.report.page import Link
from evenhand.evaluation.statistics.hypothesis_tests import TreatmentMeans, compare_treatments, holm, risen
from evenhand.evaluation.statistics.intervals import mean_interval, student_quantile

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
    """Return the limits that a setting must meet: one on the reduction of bias, the others on the costs.

    The reduction is that of descriptors which were not tuned on, or of all descriptors if all were tuned on. A limit on
    a cost is relative to the even reference unless this makes the limit stricter.
    """
    is_split = math.isfinite(setting["reduction_seen"]) or math.isnan(setting["reduction"])
    first = LIMITS[0] if is_split else replace(LIMITS[0], column="reduction")
    return [
        replace(it, value=relative_limit(it.value, it.is_minimum, setting.get(f"even_{it.column}", math.nan)))
        for it in (first, *LIMITS[1:])
    ]


MEASURES = (*WITH_INTERVALS, "ratio_without_tag", "minutes")
VERDICTS = ("missed", "inconclusive", "unmeasured", "costs", "met")
# Costs with a Pareto front, in the order of the figure's panels.
COSTS = (
    *(it.name for it in QUALITY_METRICS[:2]),
    *("response_perplexity_change", "perplexity_change", "style_drift", "length_change"),
)
OUTCOMES = ("reduction", "relevance_kept", "response_perplexity_change")  # outcomes of `setting_effects`


@dataclass(frozen=True)
class Sweep:
    """Points of a sweep with the names of the fields that vary, notes for readers and links to reports.

    `points` has one row per point, with the columns COLUMNS and the fields in `swept`. `failed` is the reason why a
    point was rejected, or ""; `base` is the pooled FGB* of the base model; `cluster_changes` is JSON of {style cluster:
    [change of pooled SCGB*, two-sided p-value]}; `folder` is the comparison's folder, relative to the sweep's folder.
    """

    title: str
    base_model: str
    swept: Sequence[str]
    points: pd.DataFrame
    notes: Sequence[str] = ()
    links: Sequence[Link] = ()
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


def _hashable(value: Any) -> Any:
    """Return a swept value that pandas can group by: a list or mapping becomes text."""
    return str(value) if isinstance(value, (list, dict)) else value


def summarise(points: pd.DataFrame, swept: Sequence[str]) -> pd.DataFrame:
    """Return a table of the sweep's settings, with means over seeds and verdicts.

    Args:
        points: the table `points` of a `Sweep`, n rows.
        swept: names of the columns that vary.

    Returns:
        One row per setting, in the order of their first points: its fields, `number` and `label`; the numbers of points
        that were not rejected (`seeds`) and rejected (`refused`); the mean of each of MEASURES, with its 95 % interval
        by Student's t over the seeds (with one seed, the point's interval), but none for a reduction or kept share that
        is undefined in a seed, since it is defined only if the base's value is high, perhaps by chance;
        `worst_cluster` over the seeds, and `clusters_rose` by Holm's correction over clusters and seeds;
        `without_bias`, the number of seeds in which the interval of the base's pooled FGB* includes 0; `folder`, of the
        lowest seed; and VERDICTS, lists of columns. `missed` also has "clusters_rose", and "refused" if a seed was
        rejected, because the mean over the others would be too favourable; `inconclusive` also has "base", because no
        bias can be removed where there is none; `costs` are the significantly worse columns, sorted by the fraction of
        the limit that is used up; `met` is whether there is a reduction and every measured criterion is met.
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
        raise ValueError(f"two points have equal {', '.join([*fields, SEED])}; name all fields that vary in `swept`.")
    rows = []
    for number, (values, group) in enumerate(table.groupby(fields, sort=False, dropna=False), 1):
        setting = dict(zip(fields, values, strict=True))
        row = {"number": number, "label": setting_label(setting, table, swept), **setting, **_summarise_setting(group)}
        rows.append(row | _verdicts(row))
    return pd.DataFrame(rows, columns=["number", "label", *fields, *_summarise_setting(table.head(0)), *VERDICTS])


def _summarise_setting(group: pd.DataFrame) -> dict[str, Any]:
    """Return the row of `summarise` for points that differ only in the seed."""
    done = group[group["failed"] == ""]
    row: dict[str, Any] = {"seeds": len(done), "refused": len(group) - len(done)}
    for name in MEASURES:
        row[name], row[f"{name}_low"], row[f"{name}_high"] = _mean_over_seeds(done, name)
    worst = done.sort_values("worst_cluster_change", ascending=False, kind="stable").head(1)  # NaN sorts last
    row["worst_cluster"] = next(iter(worst["worst_cluster"]), "")
    row["worst_cluster_change"] = float(next(iter(worst["worst_cluster_change"]), math.nan))
    row["folder"] = next(iter(done.sort_values(SEED)["folder"]), "")
    row["clusters_rose"] = find_increased_clusters(list(done["cluster_changes"]))
    row["without_bias"] = int((~(done["base_low"].astype(float) > 0)).sum())  # NaN counts as no bias
    return row | {name: float(done[name].astype(float).mean()) for name in EVEN_REFERENCE}


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
    """Return the style clusters whose bias rose in any seed, with Holm's correction over all clusters of all seeds."""
    tests = [(name, *test) for changes in changes_by_seed for name, test in json.loads(changes or "{}").items()]
    rose = risen([change for _, change, _ in tests], [p_value for *_, p_value in tests])
    names = [name for (name, *_), up in zip(tests, rose, strict=True) if up]
    names = sorted(names, key=lambda name: (-names.count(name), name))
    n = len(changes_by_seed)
    return ", ".join(name if n == 1 else f"{name} ({names.count(name)} of {n} seeds)" for name in dict.fromkeys(names))


def _verdicts(setting: Mapping[str, Any]) -> dict[str, Any]:
    """Return the columns VERDICTS of a setting."""
    columns: dict[str, dict[str, None]] = {}  # without repetition: the length has two limits
    for limit in limits(setting):
        columns.setdefault(limit.verdict(setting), {})[limit.column] = None
    missed, inconclusive, unmeasured = ([*columns.get(name, ())] for name in ("misses", "inconclusive", "unmeasured"))
    missed += [name for name in ("clusters_rose", "refused") if setting[name]]
    if setting["without_bias"]:
        inconclusive.insert(0, "base")
    costs = {limit.column: cost for limit in limits(setting) if (cost := limit.cost(setting)) is not None}
    met = setting["seeds"] and not missed and not inconclusive and math.isfinite(setting["reduction"])
    found = missed, inconclusive, unmeasured, sorted(costs, key=costs.get, reverse=True), bool(met)
    return dict(zip(VERDICTS, found, strict=True))


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
    """Return whether each of n points is on the Pareto front of low cost and large gain, bool (n,).

    A point is on the front if no other point is at least as good in cost and gain and better in one. Equal points are
    on the front together; a point with NaN is not on the front.
    """
    cost, gain = np.asarray(cost, dtype=float), np.asarray(gain, dtype=float)
    no_worse = (cost[None] <= cost[:, None]) & (gain[None] >= gain[:, None])  # [i, j]: j is no worse than i
    better = (cost[None] < cost[:, None]) | (gain[None] > gain[:, None])
    return ~(no_worse & better).any(axis=1) & ~np.isnan(cost) & ~np.isnan(gain)


def setting_effects(points: pd.DataFrame, swept: Sequence[str]) -> pd.DataFrame:
    """Return the means of OUTCOMES for each value of each swept field, on average over the other settings.

    Points with the same seed share prompts, the base model's responses, and often the labels or the tuned model, so
    they are not independent. Therefore values are compared within combinations of a seed and other settings, and the
    means of each seed are the blocks of `compare_treatments`. If a combination lacks a value (a refused point, a method
    without a threshold), those values and combinations are compared that have the most points in a table without gaps.
    Fields without two such values or two such combinations have no rows.

    Args:
        points: the table `points` of a `Sweep`.
        swept: names of the columns that vary.

    Returns:
        A row for each field, outcome and value (as text; numbers ascend): the number of points, their mean outcome with
        the interval of its difference from the mean over values, `low` to `high`, and the p-value of the field's effect
        after Holm's correction over all fields and outcomes. Interval and p-value are NaN for one seed.
    """
    fields, found = setting_fields(swept), {}
    for name in fields:
        rows = points[points[name].notna()]
        keys = [rows[other].astype(str).fillna("") for other in (SEED, *fields) if other != name]
        for outcome in OUTCOMES:
            means = rows[outcome].astype(float).groupby([*keys, rows[name].map(_hashable)]).mean()
            complete = _without_gaps(means.unstack(name))
            if len(complete) > 1:  # means of single points would only repeat the report's other tables
                found[name, outcome] = complete
    compared = [_compare_seeds(complete.groupby(level=0).mean().to_numpy()) for complete in found.values()]
    adjusted = iter(holm([it.p_value for it in compared if not math.isnan(it.p_value)]))
    effects = []
    for (key, complete), it in zip(found.items(), compared, strict=True):
        p_value = it.p_value if math.isnan(it.p_value) else next(adjusted)
        for value, mean in zip(complete.columns, it.means, strict=True):
            ends = mean - it.half_width, mean + it.half_width
            effects.append((*key, format_value(value), len(complete), mean, *ends, p_value))
    columns = ["field", "outcome", "value", "points", "mean", "low", "high", "p_value"]
    return pd.DataFrame(effects, columns=columns)


def _without_gaps(table: pd.DataFrame) -> pd.DataFrame:
    """Return the largest part of the table without NaN that has at least two columns, or no rows if there is none."""
    patterns = table.notna().drop_duplicates().to_numpy()
    parts = [table.loc[:, pattern].dropna() for pattern in patterns if pattern.sum() > 1]
    return max(parts, key=lambda part: part.size, default=table.head(0))


def _compare_seeds(values: np.ndarray) -> TreatmentMeans:
    """Return `compare_treatments` of (seeds, values), without interval and p-value for one seed."""
    return compare_treatments(values) if len(values) > 1 else TreatmentMeans(values[0], math.nan, math.nan)
