"""Finished plans → one row a point: what was removed, from whom, at what cost. The sweep's report reads the rows."""

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from evenhand.evaluation.families.generation_bias.content import HEADLINE
from evenhand.evaluation.results import BiasScore, find_score, read_scores
from evenhand.evaluation.runs.tables import read_table
from evenhand.mitigation.labelling.page import PLAN, THRESHOLD
from evenhand.recipes.experiment import Plan
from evenhand.recipes.measure import SCORES

PARTS = {
    "reduction": {},
    "reduction_seen": {"seen": "yes"},
    "reduction_unseen": {"seen": "no"},
    "reduction_confirmed": {"classifier": "second"},
}
# The corrected metrics that are watched for a rise of a style cluster.
WATCHED = ("scgb_pooled_corrected", "pgb_pooled_corrected")


def point_row(plan: Plan, folder: Path, fields: Mapping[str, Any], failed: str = "") -> dict[str, Any]:
    """Return the columns that `evenhand.recipes.sweep.summary` reads; numbers of a failed point are absent.

    Args:
        folder: of the sweep; the point's `folder` is its comparison's, seen from there.
        fields: what was swept, by name.
        failed: why a guard refused the point, "" if it went through.
    """
    row = {"method": plan.method, "seed": plan.seed, **fields, "failed": failed}
    row["folder"] = plan.comparison.relative_to(folder).as_posix()
    row |= _predicted(plan.labels) if len(plan.tunings) == 1 and (plan.labels / "run.json").exists() else {}
    if failed:
        return row
    before, after, changes = (read_scores(folder / SCORES) for folder in (plan.before, plan.after, plan.comparison))
    for name, group in PARTS.items():
        row |= _with_interval(name, _find(changes, f"{HEADLINE}_reduction", group))
    for metric in ("perplexity", "distinct_2", "mean_length"):
        name = {"mean_length": "length"}.get(metric, metric)
        row[f"{name}_change"] = _value(after, metric) / _value(before, metric) - 1
    row |= _with_interval("parroting_change", _find(changes, "parroting_difference", {}))
    row |= _clusters(changes)
    if plan.untagged is not None:
        row["untagged_ratio"] = _value(read_scores(plan.untagged / SCORES), HEADLINE) / _value(before, HEADLINE)
    seconds = [json.loads((folder / "run.json").read_text(encoding="utf-8"))["seconds"] for folder in plan.tunings]
    return row | {"minutes": sum(each["total"] for each in seconds) / 60}


def _clusters(changes: Sequence[BiasScore]) -> dict[str, Any]:
    """Return the style cluster whose bias moved most upwards, and those that rose significantly."""
    moved = [score for score in changes if score.metric in {f"{metric}_difference" for metric in WATCHED}]
    rose = {str(score.group["cluster"]) for score in moved if score.interval and score.interval[0] > 0}
    summed = [score for score in moved if score.metric.startswith("scgb") and math.isfinite(score.value)]
    worst = max(summed, key=lambda score: score.value, default=None)
    return {
        "worst_cluster": worst.group["cluster"] if worst else "",
        "worst_cluster_change": worst.value if worst else math.nan,
        "clusters_rose": ", ".join(sorted(rose)),
    }


def _predicted(labels: Path) -> dict[str, Any]:
    """Return what the threshold plan says of the threshold that was used."""
    used = json.loads((labels / THRESHOLD).read_text(encoding="utf-8"))
    table = read_table(labels / f"{PLAN}.parquet")
    at = table[(table["alpha"] == used["alpha"]) & ((table["quantile"] - used["quantile"]).abs() < 1e-9)].iloc[0]
    return {
        "predicted_left": at["predicted_fgb_left"],
        "predicted_low": at["lower"],
        "predicted_high": at["upper"],
        "trusted": bool(at["trusted"]),
    }


def _with_interval(name: str, score: BiasScore | None) -> dict[str, float]:
    if score is None:
        return {}
    low, high = score.interval or (math.nan, math.nan)
    return {name: score.value, f"{name}_low": low, f"{name}_high": high}


def _find(scores: Sequence[BiasScore], metric: str, group: Mapping[str, str]) -> BiasScore | None:
    try:
        return find_score(scores, metric, **group)
    except KeyError:
        return None


def _value(scores: Sequence[BiasScore], metric: str) -> float:
    score = _find(scores, metric, {})
    return math.nan if score is None else score.value
