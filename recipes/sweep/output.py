"""The files of a loop or an ablation: the table of its points, its report, and one W&B run for each point.

The row of a point contains the reduction of bias and the costs of the reduction, from the scores of the point's runs.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from hashlib import sha256
from pathlib import Path
from typing import Any

import pandas as pd

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.families.generation_bias.costs.even_reference import EVEN
from evenhand.evaluation.families.generation_bias.report.report_data import HEADLINE
from evenhand.evaluation.report.files import REPORT, present
from evenhand.evaluation.report.numbers import score_text
from evenhand.evaluation.report.page import Link
from evenhand.evaluation.runs.files import write_json, write_text
from evenhand.evaluation.runs.tables import read_table, write_table
from evenhand.evaluation.runs.tracking import start_tracking
from evenhand.evaluation.score import BiasScore, find_score, read_scores
from evenhand.mitigation.labelling.page import PLAN, THRESHOLD, plan_row
from evenhand.mitigation.methods import load_method
from evenhand.recipes.finished_runs import read_settings
from evenhand.recipes.measure import SCORES
from evenhand.recipes.plans import Plan
from evenhand.recipes.settings import FAMILY, AblateSettings, LoopSettings
from evenhand.recipes.sweep.criteria import EVEN_REFERENCE
from evenhand.recipes.sweep.page import page
from evenhand.recipes.sweep.summary import COLUMNS, METHOD, Sweep, setting_label
from evenhand.recipes.sweep.tables import text

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
    "relevance_kept": ("relevance_kept", 0),
    "relevance_within_template_kept": ("relevance_within_template_kept", 0),
    "style_drift": ("style_drift", 0),
    "response_perplexity_change": ("response_perplexity_rise", 0),
    "distinct_responses_change": ("distinct_responses_kept", 1),
    "distinct_2_change": ("distinct_2_kept", 1),
    "length_change": ("mean_length_kept", 1),
}
POINTS, SWEEP, TRACKED = "points", "sweep.json", "tracked"
Fields = Mapping[Path, Mapping[str, Any]]  # the values of a point's swept fields, by the folder of its comparison


def point_row(plan: Plan, folder: Path, fields: Mapping[str, Any], failed: str = "") -> dict[str, Any]:
    """Return the row of a point in the table that `summarise` reads; a rejected point has no scores.

    Args:
        plan: a finished or rejected plan.
        folder: the folder of the sweep; the column `folder` is relative to it.
        fields: the values of the swept fields, by name.
        failed: the reason why the point was rejected, or "".
    """
    row = {"method": plan.method, "decoding": plan.decoding, "seed": plan.seed, "failed": failed}
    row |= {name: "null" if value is None else value for name, value in fields.items()}  # an absent field is NaN
    row["folder"] = plan.comparison.relative_to(folder).as_posix()
    after = next(stage.settings.model for stage in plan.stages if stage.folder == plan.after)
    is_whole = len(plan.tunings) == 1 and after.adapter_strength in (None, 1)
    has_prediction = load_method(plan.method).THRESHOLD_PLAN_APPLIES and is_whole
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
    # Relative to the base's perplexity, whose standard error is a few percent of the difference's and is ignored.
    difference = find_score(changes, "perplexity_difference")
    row |= _interval_columns("perplexity_change", difference, divisor=_value(before, "perplexity"))
    for name, (metric, no_change) in CHANGE_METRICS.items():
        row |= _interval_columns(name, find_score(changes, metric), no_change)
    for name in EVEN_REFERENCE:
        score = find_score(changes, CHANGE_METRICS[name.removeprefix("even_")][0], **EVEN)
        row[name] = math.nan if score is None else score.value
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
    """Return the threshold plan's prediction for the threshold of the labels."""
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
    """Return columns of a score and the ends of its interval, as (value − subtrahend) / divisor; {} without a score."""
    if score is None:
        return {}
    values = score.value, *(score.interval or (math.nan, math.nan))
    columns = (name, f"{name}_low", f"{name}_high")
    return {column: (value - subtrahend) / divisor for column, value in zip(columns, values, strict=True)}


def _value(scores: Sequence[BiasScore], metric: str) -> float:
    score = find_score(scores, metric)
    return math.nan if score is None else score.value


def track_point(settings: LoopSettings | AblateSettings, plan: Plan, fields: Fields) -> None:
    """Record a finished point as one run of the tracker, in the sweep's group; do nothing for a rejected point.

    A marker file prevents a second run of the tracker when the sweep is resumed.
    """
    if not (plan.comparison / "run.json").exists():
        return
    row = point_row(plan, settings.output_dir, fields.get(plan.comparison, {}))
    mark = settings.output_dir / TRACKED / sha256(row["folder"].encode()).hexdigest()[:12]
    if mark.exists():
        return
    swept = {name: value for name, value in fields.get(plan.comparison, {}).items() if name != METHOD}
    name = ", ".join(
        [plan.method, plan.decoding, *(f"{field} {value}" for field, value in swept.items()), f"seed {plan.seed}"]
    )
    with start_tracking("point", settings, group=settings.output_dir.name, name=name, settings=row) as tracker:
        tracker.log_summary({name: float(value) for name, value in row.items() if isinstance(value, (int, float))})
        tracker.log_scores(read_scores(plan.comparison / SCORES))
    write_text(mark, f"{name}\n")


def write_report(
    title: str,
    settings: LoopSettings | AblateSettings,
    plans: Sequence[Plan],
    refused: Mapping[str, str],
    fields: Fields | None = None,
) -> None:
    """Write the table of points and the report of all plans, and print the report.

    Args:
        refused: the reason why each rejected plan ended early, by the folder of the plan's comparison.

    Raises:
        InputError: every point was rejected.
    """
    if len(refused) == len(plans):
        raise InputError(next(iter(refused.values())))
    folder, fields = settings.output_dir, fields or {}
    swept = list(dict.fromkeys(name for values in fields.values() for name in values if name != METHOD))
    points = pd.DataFrame(
        [
            point_row(plan, folder, fields.get(plan.comparison, {}), refused.get(str(plan.comparison), ""))
            for plan in plans
        ]
    )
    points = _with_all_columns(points)
    mixed_columns = [name for name in swept if points[name].dtype == object]
    path = folder / f"{POINTS}.parquet"
    points = points.assign(**{name: points[name].map(str, na_action="ignore") for name in mixed_columns})
    write_table(path, points)
    measurement = settings.measure if isinstance(settings, LoopSettings) else settings.loop.measure
    description = {
        "title": title,
        "base_model": measurement.model.name,
        "swept": swept,
        "notes": _base_notes(plans),
        "links": [asdict(link) for link in _links(folder, plans, points, swept)],
    }
    write_json(folder / SWEEP, description)
    files = present(folder, {FAMILY: page(read_sweep(folder))}, write=True, show=True)
    with start_tracking("summary", settings, group=folder.name, name=f"{folder.name}-summary") as tracker:
        tracker.log_table(POINTS, points)
        tracker.log_report(files)
        tracker.log_artifact(POINTS, "report", *files, path)


def read_sweep(folder: Path) -> Sweep:
    """Return the finished loop or ablation in a folder.

    Raises:
        InputError: the folder has no finished loop or ablation, or a file cannot be read.
    """
    try:
        description = json.loads((folder / SWEEP).read_text(encoding="utf-8"))
        links = [Link(**link) for link in description.pop("links")]
        points = read_table(folder / f"{POINTS}.parquet")
        return Sweep(**description, points=_with_all_columns(points), links=links, folder=folder)  # old ones have fewer
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise InputError(
            f"{folder} has no finished loop or ablation ({error}); run `evenhand loop` or `evenhand ablate` with "
            f"--output_dir {folder}."
        ) from None


def _with_all_columns(points: pd.DataFrame) -> pd.DataFrame:
    """Return the table of points, with COLUMNS that it lacks as NaN."""
    return points.reindex(columns=list(dict.fromkeys([*points, *COLUMNS])))


def _links(folder: Path, plans: Sequence[Plan], points: pd.DataFrame, swept: Sequence[str]) -> list[Link]:
    """Return links to the reports of all points that were not rejected, and of the base models."""
    labels = {}
    for row in points[points["failed"] == ""].to_dict("records"):
        seed = f", seed {row['seed']}" if points["seed"].nunique() > 1 else ""
        labels[f"{row['folder']}/{REPORT}.html"] = setting_label(row, points, swept) + seed
    for before in dict.fromkeys(plan.before for plan in plans):
        seed = f", seed {read_settings(before, 'before')[0].seed}" if points["seed"].nunique() > 1 else ""
        labels[f"{before.relative_to(folder).as_posix()}/{REPORT}.html"] = f"the base model{seed}"
    return [Link(label, path) for path, label in labels.items()]


def _base_notes(plans: Sequence[Plan]) -> list[str]:
    """Return a sentence with the base model's scores for each different measurement of the base model."""
    notes = []
    for folder in dict.fromkeys(plan.before for plan in plans):
        scores = read_scores(folder / SCORES)
        metrics = ("perplexity", "distinct_2", "parroting")
        quality = [score for metric in metrics for score in scores if score.metric == metric and not score.group]
        config = read_settings(folder, "before")[0]
        bias = score_text(find_score(scores, HEADLINE))
        notes.append(text.base_scores(config.seed, config.decoding.title(), bias, quality))
    return list(dict.fromkeys(notes))
