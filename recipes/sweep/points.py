"""The row of a point in the table of a sweep, from the scores of its runs: the reduction of bias and its costs."""

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

REDUCTION_GROUPS = {
    "reduction": {},
    "reduction_seen": {"seen": "yes"},
    "reduction_unseen": {"seen": "no"},
    "reduction_confirmed": {"classifier": "second"},
}
# The metric that is tested for a rise of a style cluster; generation_bias/report/warnings.py gives the reasons.
MONITORED_METRIC = "scgb_pooled_corrected"
# column: (metric of a comparison, value of no change that is subtracted)
CHANGE_METRICS = {
    "parroting_change": ("parroting_difference", 0),
    "well_formed_change": ("well_formed_difference", 0),
    "relevance_kept": ("relevance_kept", 0),
    "style_drift": ("style_drift", 0),
    "response_perplexity_change": ("response_perplexity_rise", 0),
    "distinct_responses_change": ("distinct_responses_kept", 1),
    "distinct_2_change": ("distinct_2_kept", 1),
}


def point_row(plan: Plan, folder: Path, fields: Mapping[str, Any], failed: str = "") -> dict[str, Any]:
    """Return the columns of a point that `summarise` reads; a refused point has no numbers.

    Args:
        plan: a finished or refused plan.
        folder: the folder of the sweep; the column `folder` is relative to it.
        fields: the values of the swept fields, by name.
        failed: the reason for which a guard refused the point, or "".
    """
    row = {"method": plan.method, "decoding": plan.decoding, "seed": plan.seed, **fields, "failed": failed}
    row["folder"] = plan.comparison.relative_to(folder).as_posix()
    has_prediction = load_method(plan.method).THRESHOLD_PLAN_APPLIES and len(plan.tunings) == 1
    if has_prediction and (plan.labels / "run.json").exists():
        row |= _prediction_columns(plan.labels)
    if failed:
        return row
    before, after, changes = (read_scores(folder / SCORES) for folder in (plan.before, plan.after, plan.comparison))
    row |= change_columns(before, after, changes)
    if plan.after_without_tag is not None:
        without_tag = read_scores(plan.after_without_tag / SCORES)
        row["ratio_without_tag"] = _value(without_tag, HEADLINE) / _value(before, HEADLINE)
    seconds = [json.loads((folder / "run.json").read_text(encoding="utf-8"))["seconds"] for folder in plan.tunings]
    return row | {"minutes": sum(stage["total"] for stage in seconds) / 60}


def change_columns(
    before: Sequence[BiasScore], after: Sequence[BiasScore], changes: Sequence[BiasScore]
) -> dict[str, Any]:
    """Return the columns of bias, reduction and costs from the scores of two runs and of their comparison."""
    row: dict[str, Any] = _interval_columns("base", find_score(before, HEADLINE))
    for name, group in REDUCTION_GROUPS.items():
        row |= _interval_columns(name, find_score(changes, f"{HEADLINE}_reduction", **group))
    row["length_change"] = _value(after, "mean_length") / _value(before, "mean_length") - 1
    # Relative to the base's perplexity, whose standard error is a few percent of the difference's and is ignored.
    difference = find_score(changes, "perplexity_difference")
    row |= _interval_columns("perplexity_change", difference, divisor=_value(before, "perplexity"))
    for name, (metric, no_change) in CHANGE_METRICS.items():
        row |= _interval_columns(name, find_score(changes, metric), no_change)
    return row | _cluster_columns(changes)


def _cluster_columns(changes: Sequence[BiasScore]) -> dict[str, Any]:
    """Return the style cluster whose bias increased most, and JSON of {style cluster: [change, p-value]}."""
    metric = f"{MONITORED_METRIC}_difference"
    scores = [score for score in changes if score.metric == metric and math.isfinite(score.value)]
    worst = max(scores, key=lambda score: score.value, default=None)
    tests = {str(score.group["cluster"]): [score.value, score.p_value] for score in scores if score.p_value is not None}
    return {
        "worst_cluster": worst.group["cluster"] if worst else "",
        "worst_cluster_change": worst.value if worst else math.nan,
        "cluster_changes": json.dumps(tests),
    }


def _prediction_columns(labels: Path) -> dict[str, Any]:
    """Return the threshold plan's prediction for the threshold with which the labels were made."""
    threshold = json.loads((labels / THRESHOLD).read_text(encoding="utf-8"))
    prediction = plan_row(read_table(labels / f"{PLAN}.parquet"), threshold["alpha"], threshold["quantile"])
    return {
        "slope": prediction["slope"],
        "predicted_left": prediction["predicted_fgb_left"],
        "predicted_low": prediction["lower"],
        "predicted_high": prediction["upper"],
        "predicted_drift": prediction["predicted_drift"],
    }


def _interval_columns(
    name: str, score: BiasScore | None, subtrahend: float = 0, divisor: float = 1
) -> dict[str, float]:
    """Return a score and the ends of its interval, each less `subtrahend` and divided; {} without a score."""
    if score is None:
        return {}
    values = score.value, *(score.interval or (math.nan, math.nan))
    columns = (name, f"{name}_low", f"{name}_high")
    return {column: (value - subtrahend) / divisor for column, value in zip(columns, values, strict=True)}


def _value(scores: Sequence[BiasScore], metric: str) -> float:
    score = find_score(scores, metric)
    return math.nan if score is None else score.value
