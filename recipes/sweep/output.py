"""The files of a loop or an ablation: the table of its points, its report, and one W&B run for each point."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from hashlib import sha256
from pathlib import Path
from typing import Any

import pandas as pd

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.families import FamilyRun
from evenhand.evaluation.report.files import REPORT, present
from evenhand.evaluation.report.numbers import score_text
from evenhand.evaluation.report.page import Link
from evenhand.evaluation.results import find_score, read_scores
from evenhand.evaluation.runs.files import write_json, write_text
from evenhand.evaluation.runs.tables import read_table, write_table
from evenhand.evaluation.runs.tracking import start_tracking
from evenhand.recipes.measure import SCORES, read_settings
from evenhand.recipes.plans import Plan
from evenhand.recipes.settings import FAMILY, AblateSettings, LoopSettings, measure_config
from evenhand.recipes.sweep.page import page
from evenhand.recipes.sweep.points import HEADLINE, point_row
from evenhand.recipes.sweep.summary import COLUMNS, METHOD, Sweep, setting_label
from evenhand.recipes.sweep.tables import text
from evenhand.recipes.testbed.facts import reader_notes

POINTS, SWEEP, TRACKED = "points", "sweep.json", "tracked"

Fields = Mapping[Path, Mapping[str, Any]]  # the values of a point's swept fields, by the folder of its comparison


def track_point(settings: LoopSettings | AblateSettings, plan: Plan, fields: Fields) -> None:
    """Record a finished point as one run of the tracker, in the sweep's group; do nothing for a refused point.

    A mark on disk prevents a second record when the sweep is resumed.
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
        refused: the reason for which a guard refused a plan, by the folder of its comparison.

    Raises:
        InputError: a guard refused every point.
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
    points = points.reindex(columns=list(dict.fromkeys([*points, *COLUMNS])))
    mixed_columns = [name for name in swept if points[name].dtype == object]
    path = folder / f"{POINTS}.parquet"
    write_table(path, points.assign(**{name: points[name].map(str, na_action="ignore") for name in mixed_columns}))
    before = plans[0].before
    base = FamilyRun(before, measure_config(read_settings(before, "before")[0], FAMILY))
    measurement = settings.measure if isinstance(settings, LoopSettings) else settings.loop.measure
    description = {
        "title": title,
        "base_model": measurement.model.name,
        "swept": swept,
        "notes": [*_base_notes(plans), *reader_notes(FAMILY, base)],
        "links": [asdict(link) for link in _links(folder, plans, points, swept)],
    }
    write_json(folder / SWEEP, description)
    files = present(folder, {FAMILY: page(read_sweep(folder))}, write=True, show=True)
    with start_tracking("summary", settings, group=folder.name, name=f"{folder.name}-summary") as tracker:
        tracker.log_table(POINTS, points)
        tracker.log_report(files)
        tracker.log_artifact(POINTS, "report", *files, path)


def read_sweep(folder: Path) -> Sweep:
    """Return the finished loop or ablation of a folder.

    Raises:
        InputError: the folder has no finished loop or ablation, or a file cannot be read.
    """
    try:
        description = json.loads((folder / SWEEP).read_text(encoding="utf-8"))
        links = [Link(**link) for link in description.pop("links")]
        return Sweep(**description, points=read_table(folder / f"{POINTS}.parquet"), links=links, folder=folder)
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise InputError(
            f"{folder} has no finished loop or ablation ({error}); run `evenhand loop` or `evenhand ablate` with "
            f"--output_dir {folder}."
        ) from None


def _links(folder: Path, plans: Sequence[Plan], points: pd.DataFrame, swept: Sequence[str]) -> list[Link]:
    """Return links to the reports of all points that were not refused, and of the base models."""
    labels = {}
    for row in points[points["failed"] == ""].to_dict("records"):
        seed = f", seed {row['seed']}" if points["seed"].nunique() > 1 else ""
        labels[f"{row['folder']}/{REPORT}.html"] = setting_label(row, points, swept) + seed
    for before in dict.fromkeys(plan.before for plan in plans):
        seed = f", seed {read_settings(before, 'before')[0].seed}" if points["seed"].nunique() > 1 else ""
        labels[f"{before.relative_to(folder).as_posix()}/{REPORT}.html"] = f"the base model{seed}"
    return [Link(label, path) for path, label in labels.items()]


def _base_notes(plans: Sequence[Plan]) -> list[str]:
    """Return a sentence with the scores of the base model for each different measurement of it."""
    notes = []
    for folder in dict.fromkeys(plan.before for plan in plans):
        scores = read_scores(folder / SCORES)
        metrics = ("perplexity", "distinct_2", "parroting")
        quality = [score for metric in metrics for score in scores if score.metric == metric and not score.group]
        config = read_settings(folder, "before")[0]
        bias = score_text(find_score(scores, HEADLINE))
        notes.append(text.base_scores(config.seed, config.decoding.title(), bias, quality))
    return list(dict.fromkeys(notes))
