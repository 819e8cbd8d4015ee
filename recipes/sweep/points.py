"""Finished plans → one row a point: what was removed, from whom, at what cost. The sweep's report reads the rows."""

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from evenhand.evaluation.families.generation_bias.report.report_data import HEADLINE
from evenhand.evaluation.results import BiasScore, find_score, read_scores
from evenhand.evaluation.runs.tables import read_table
from evenhand.mitigation.labelling.page import PLAN, THRESHOLD, plan_row
from evenhand.mitigation.methods import load_method
from evenhand.recipes.measure import SCORES
from evenhand.recipes.plans import Plan

PARTS = {
    "reduction": {},
    "reduction_seen": {"seen": "yes"},
    "reduction_unseen": {"seen": "no"},
    "reduction_confirmed": {"classifier": "second"},
}
# What is watched for a rise of a style cluster: one metric, and the steadiest (generation_bias/warnings.py).
WATCHED = "scgb_pooled_corrected"


def point_row(plan: Plan, folder: Path, fields: Mapping[str, Any], failed: str = "") -> dict[str, Any]:
    """Return the columns that `evenhand.recipes.sweep.summary` reads; numbers of a failed point are absent.

    Args:
        folder: of the sweep; the point's `folder` is its comparison's, seen from there.
        fields: what was swept, by name.
        failed: why a guard refused the point, "" if it went through.
    """
    row = {"method": plan.method, "decoding": plan.decoding, "seed": plan.seed, **fields, "failed": failed}
    row["folder"] = plan.comparison.relative_to(folder).as_posix()
    planned = load_method(plan.method).THRESHOLD_PLAN_APPLIES and len(plan.tunings) == 1
    row |= _predicted(plan.labels) if planned and (plan.labels / "run.json").exists() else {}
    if failed:
        return row
    before, after, changes = (read_scores(folder / SCORES) for folder in (plan.before, plan.after, plan.comparison))
    row |= change_columns(before, after, changes)
    if plan.after_without_tag is not None:
        without_tag = read_scores(plan.after_without_tag / SCORES)
        row["untagged_ratio"] = _value(without_tag, HEADLINE) / _value(before, HEADLINE)
    seconds = [json.loads((folder / "run.json").read_text(encoding="utf-8"))["seconds"] for folder in plan.tunings]
    return row | {"minutes": sum(each["total"] for each in seconds) / 60}


def change_columns(
    before: Sequence[BiasScore], after: Sequence[BiasScore], changes: Sequence[BiasScore]
) -> dict[str, Any]:
    """Return what was there, what was removed, and what it cost, from the scores of two runs and their comparison."""
    row: dict[str, Any] = _with_interval("base", find_score(before, HEADLINE))
    for name, group in PARTS.items():
        row |= _with_interval(name, find_score(changes, f"{HEADLINE}_reduction", **group))
    row["length_change"] = _value(after, "mean_length") / _value(before, "mean_length") - 1
    # As a share of the base's, whose own error is some percent of the change's: that is left out.
    of_neutral = find_score(changes, "perplexity_difference")
    row |= _with_interval("perplexity_change", of_neutral, of=_value(before, "perplexity"))
    for name, metric, less in (
        ("parroting_change", "parroting_difference", 0),
        ("well_formed_change", "well_formed_difference", 0),
        ("relevance_kept", "relevance_kept", 0),
        ("style_drift", "style_drift", 0),
        ("response_perplexity_change", "response_perplexity_rise", 0),
        ("distinct_responses_change", "distinct_responses_kept", 1),
        ("distinct_2_change", "distinct_2_kept", 1),
    ):
        row |= _with_interval(name, find_score(changes, metric), less)
    return row | _clusters(changes)


def _clusters(changes: Sequence[BiasScore]) -> dict[str, Any]:
    """Return the style cluster whose bias moved most upwards, and how each moved, [change, p], as JSON."""
    moved = [score for score in changes if score.metric == f"{WATCHED}_difference" and math.isfinite(score.value)]
    worst = max(moved, key=lambda score: score.value, default=None)
    tested = {str(score.group["cluster"]): [score.value, score.p_value] for score in moved if score.p_value is not None}
    return {
        "worst_cluster": worst.group["cluster"] if worst else "",
        "worst_cluster_change": worst.value if worst else math.nan,
        "cluster_changes": json.dumps(tested),
    }


def _predicted(labels: Path) -> dict[str, Any]:
    """Return what the threshold plan says of the threshold that was used."""
    used = json.loads((labels / THRESHOLD).read_text(encoding="utf-8"))
    at = plan_row(read_table(labels / f"{PLAN}.parquet"), used["alpha"], used["quantile"])
    return {
        "slope": at["slope"],
        "predicted_left": at["predicted_fgb_left"],
        "predicted_low": at["lower"],
        "predicted_high": at["upper"],
        "predicted_drift": at["predicted_drift"],
    }


def _with_interval(name: str, score: BiasScore | None, less: float = 0, of: float = 1) -> dict[str, float]:
    if score is None:
        return {}
    values = score.value, *(score.interval or (math.nan, math.nan))
    return {f"{name}{end}": (value - less) / of for end, value in zip(("", "_low", "_high"), values, strict=True)}


def _value(scores: Sequence[BiasScore], metric: str) -> float:
    score = find_score(scores, metric)
    return math.nan if score is None else score.value
