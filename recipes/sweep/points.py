"""The files of a loop or an ablation: the table of its points, its report, and one W&B run for each point.

The row of a point contains the reduction of bias and the costs of the reduction, from the scores of the point's runs.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

import pandas as pd

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.files import write_json, write_text
from evenhand.evaluation.manifest import MANIFEST
from evenhand.evaluation.metrics.generation_bias.metric import HEADLINE
from evenhand.evaluation.report.files import REPORT, present
from evenhand.evaluation.report.numbers import number, score_text
from evenhand.evaluation.report.page import Link
from evenhand.evaluation.score import BiasScore, find_score, read_scores
from evenhand.evaluation.tables import read_table, write_table
from evenhand.evaluation.tracking import start_tracking
from evenhand.recipes.measurement import SCORES
from evenhand.recipes.settings import FAMILY, AblateSettings, LoopSettings
from evenhand.recipes.sweep.page import page
from evenhand.recipes.sweep.summary import BASE, COLUMNS, METHOD, PUBLISHED, Sweep, setting_label

REDUCTION_GROUPS = {
    "reduction": {},
    "reduction_tuned": {"tuned": "yes"},
    "reduction_untuned": {"tuned": "no"},
    "reduction_confirmed": {"classifier": "second"},
}
# The metric that is tested for a rise of a style cluster; generation_bias/verdict.py gives the reasons.
MONITORED_METRIC = "scgb_pooled_corrected"
# column: (metric of a comparison, value of no change that is subtracted)
CHANGE_METRICS = {
    "parroting_change": ("parroting_difference", 0),
    "relevance_kept": ("relevance_kept", 0),
    "relevance_to_person_kept": ("relevance_to_person_kept", 0),
    "style_drift": ("style_drift", 0),
    "response_perplexity_change": ("response_perplexity_rise", 0),
    "distinct_responses_change": ("distinct_responses_kept", 1),
    "distinct_2_change": ("distinct_2_kept", 1),
    "length_change": ("mean_length_kept", 1),
}
POINTS, SWEEP, TRACKED = "points", "sweep.json", "tracked"


@dataclass(frozen=True)
class Point:
    """A method with one seed, measured under one decoding: the folders of its results.

    `labels` and `tuning` are None if the method has none. `swept` has the values of the fields that an ablation varies.
    """

    method: str
    seed: int
    decoding: str
    before: Path
    labels: Path | None
    tuning: Path | None
    after: Path
    after_without_tag: Path | None
    comparison: Path
    swept: Mapping[str, Any] = field(default_factory=dict)


def point_row(point: Point, folder: Path, failed: str = "") -> dict[str, Any]:
    """Return the row of a point in the table that `summarise` reads; a point that was rejected has no scores."""
    row = {"method": point.method, "decoding": point.decoding, "seed": point.seed, "failed": failed}
    row |= {name: "null" if value is None else value for name, value in point.swept.items()}  # an absent field is NaN
    row["folder"] = point.comparison.relative_to(folder).as_posix()
    if failed:
        return row
    before, after, changes = (read_scores(run / SCORES) for run in (point.before, point.after, point.comparison))
    row |= change_columns(before, after, changes) | published_columns(before, after)
    if point.after_without_tag is not None:
        without_tag = read_scores(point.after_without_tag / SCORES)
        row["ratio_without_tag"] = _value(without_tag, HEADLINE) / _value(before, HEADLINE)
    seconds = (
        json.loads((point.tuning / MANIFEST).read_text(encoding="utf-8"))["seconds"]["total"] if point.tuning else 0
    )
    return row | {"minutes": seconds / 60}


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
    clusters = [it for it in changes if it.metric == f"{MONITORED_METRIC}_difference" and math.isfinite(it.value)]
    worst = max(clusters, key=lambda score: score.value, default=None)
    tests = {str(it.group["cluster"]): [it.value, it.p_value] for it in clusters if it.p_value is not None}
    return row | {
        "worst_cluster": worst.group["cluster"] if worst else "",
        "worst_cluster_change": worst.value if worst else math.nan,
        "cluster_changes": json.dumps(tests),
    }


def published_columns(before: Sequence[BiasScore], after: Sequence[BiasScore]) -> dict[str, float]:
    """Return the columns of FGB, and of PGB and SCGB of each style cluster, after tuning and, as `base_…`, before."""
    row: dict[str, float] = {}
    for prefix, scores in ((BASE, before), ("", after)):
        for score in scores:
            if score.metric in PUBLISHED and set(score.group) == ({"cluster"} if score.metric != "fgb" else set()):
                row |= _interval_columns(prefix + ": ".join([score.metric, *score.group.values()]), score)
    return row


def _interval_columns(
    name: str, score: BiasScore | None, subtrahend: float = 0, divisor: float = 1
) -> dict[str, float]:
    """Return columns of a score and the ends of its interval, as (value − subtrahend) / divisor; {} without a score."""
    if score is None:
        return {}
    values = score.value, *(score.interval or (math.nan, math.nan))
    columns = (name, f"{name}_low", f"{name}_high")
    return {column: (value - subtrahend) / divisor for column, value in zip(columns, values, strict=True)}


def _value(scores: Sequence[BiasScore], metric: str, **group: str) -> float:
    score = find_score(scores, metric, **group)
    return math.nan if score is None else score.value


def track_point(settings: LoopSettings | AblateSettings, point: Point) -> None:
    """Record a finished point as one run of the tracker, in the sweep's group, once even if the sweep is resumed."""
    row = point_row(point, settings.output_dir)
    mark = settings.output_dir / TRACKED / sha256(row["folder"].encode()).hexdigest()[:12]
    if mark.exists():
        return
    swept = [f"{name} {value}" for name, value in point.swept.items() if name != METHOD]
    name = ", ".join([point.method, point.decoding, *swept, f"seed {point.seed}"])
    group = settings.group or settings.output_dir.name
    with start_tracking("point", settings, group=group, name=name, settings=row) as tracker:
        tracker.log_summary({name: float(value) for name, value in row.items() if isinstance(value, (int, float))})
        tracker.log_scores(read_scores(point.comparison / SCORES))
    write_text(mark, f"{name}\n")


def write_report(
    title: str, settings: LoopSettings | AblateSettings, points: Sequence[Point], refused: Mapping[Path, str]
) -> None:
    """Write the table of points and the report of all points, and print the report.

    Args:
        refused: the error that ended each rejected point early, by the folder of the point's comparison.
    """
    if len(refused) == len(points):
        raise next(iter(refused.values()))
    folder = settings.output_dir
    swept = list(dict.fromkeys(name for point in points for name in point.swept if name != METHOD))
    table = pd.DataFrame([point_row(point, folder, str(refused.get(point.comparison, ""))) for point in points])
    mixed_columns = [name for name in swept if table[name].dtype == object]
    table = table.assign(**{name: table[name].map(str, na_action="ignore") for name in mixed_columns})
    table = table.reindex(columns=list(dict.fromkeys([*table, *COLUMNS])))
    write_table(folder / f"{POINTS}.parquet", table)
    notes, links = [], []
    for row in table[table["failed"] == ""].to_dict("records"):
        links.append((f"{setting_label(row, table, swept)}, seed {row['seed']}", row["folder"]))
    for point in {point.before: point for point in points}.values():
        scores, name = read_scores(point.before / SCORES), f"base model, seed {point.seed}, {point.decoding}"
        quality = [find_score(scores, metric) for metric in ("perplexity", "distinct_2", "parroting")]
        numbers = "".join(f", {it.metric} {number(it.value, 4)}" for it in quality if it)
        notes.append(f"The {name}: pooled FGB* {score_text(find_score(scores, HEADLINE))}{numbers}.")
        links.append((name, point.before.relative_to(folder).as_posix()))
    description = {
        "title": title,
        "base_model": (settings if isinstance(settings, LoopSettings) else settings.loop).measure.model.name,
        "swept": swept,
        "notes": notes,
        "links": [asdict(Link(label, f"{path}/{REPORT}.html")) for label, path in links],
    }
    write_json(folder / SWEEP, description)
    files = present(folder, {FAMILY: page(read_sweep(folder))}, write=True, show=True)
    group = settings.group or folder.name
    with start_tracking("summary", settings, group=group, name=f"{folder.name}-summary") as tracker:
        tracker.log_table(POINTS, table)
        tracker.log_report(files)
        tracker.log_artifact(POINTS, "report", *files, folder / f"{POINTS}.parquet")


def read_sweep(folder: Path) -> Sweep:
    """Return the finished loop or ablation in a folder."""
    try:
        description = json.loads((folder / SWEEP).read_text(encoding="utf-8"))
        links = [Link(**link) for link in description.pop("links")]
        return Sweep(**description, points=read_table(folder / f"{POINTS}.parquet"), links=links)
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise InputError(
            folder,
            f"has no finished loop or ablation ({error}); run `evenhand loop` or `evenhand ablate` with "
            f"--output_dir {folder}.",
        ) from None
