"""Several tuned models beside one base: finished plans → points, report, and one W&B run a point."""

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
from evenhand.recipes.sweep.tables import say
from evenhand.recipes.testbed.known import notes_on

POINTS, SWEEP, TRACKED = "points", "sweep.json", "tracked"

Fields = Mapping[Path, Mapping[str, Any]]  # what was swept, by the folder of a point's comparison


def track(settings: LoopSettings | AblateSettings, plan: Plan, fields: Fields) -> None:
    """Make the point's own run in the group, once, whatever is resumed; nothing for a point that was refused."""
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


def summarise_and_present(
    title: str,
    settings: LoopSettings | AblateSettings,
    plans: Sequence[Plan],
    refused: Mapping[str, str],
    fields: Fields | None = None,
) -> None:
    """Write the points and the report of all plans, and print it.

    Args:
        refused: why a guard refused a plan, by the folder of its comparison.

    Raises:
        InputError: every point was refused.
    """
    if len(refused) == len(plans):
        raise InputError(next(iter(refused.values())))
    folder, fields = settings.output_dir, fields or {}
    swept = list(dict.fromkeys(name for of_point in fields.values() for name in of_point if name != METHOD))
    points = pd.DataFrame(
        [point_row(it, folder, fields.get(it.comparison, {}), refused.get(str(it.comparison), "")) for it in plans]
    )
    points = points.reindex(columns=list(dict.fromkeys([*points, *COLUMNS])))
    texts = [name for name in swept if points[name].dtype == object]
    path = folder / f"{POINTS}.parquet"
    write_table(path, points.assign(**{name: points[name].map(str, na_action="ignore") for name in texts}))
    measured = settings.measure if isinstance(settings, LoopSettings) else settings.loop.measure
    told = {
        "title": title,
        "base_model": measured.model.name,
        "swept": swept,
        "notes": [*_bases(plans), *_notes_on(plans[0].before)],
        "links": [asdict(link) for link in _links(folder, plans, points, swept)],
    }
    write_json(folder / SWEEP, told)
    files = present(folder, {FAMILY: page(read_sweep(folder))}, write=True, show=True)
    with start_tracking("summary", settings, group=folder.name, name=f"{folder.name}-summary") as tracker:
        tracker.log_table(POINTS, points)
        tracker.log_report(files)
        tracker.log_artifact(POINTS, "report", *files, path)


def read_sweep(folder: Path) -> Sweep:
    """Return what a loop or an ablation left in its folder.

    Raises:
        InputError: there is none, or it cannot be read.
    """
    try:
        told = json.loads((folder / SWEEP).read_text(encoding="utf-8"))
        links = [Link(**link) for link in told.pop("links")]
        return Sweep(**told, points=read_table(folder / f"{POINTS}.parquet"), links=links)
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise InputError(
            f"{folder} holds no finished loop or ablation ({error}); run `evenhand loop` or `evenhand ablate` into it."
        ) from None


def _links(folder: Path, plans: Sequence[Plan], points: pd.DataFrame, swept: Sequence[str]) -> list[Link]:
    """Return the reports of all points that went through, and of the measured bases."""
    found = {}
    for row in points[points["failed"] == ""].to_dict("records"):
        seed = f", seed {row['seed']}" if points["seed"].nunique() > 1 else ""
        found[f"{row['folder']}/{REPORT}.html"] = setting_label(row, points, swept) + seed
    for before in dict.fromkeys(plan.before for plan in plans):
        told = read_settings(before, "before")[0]
        seed = f", seed {told.seed}" if points["seed"].nunique() > 1 else ""
        found[f"{before.relative_to(folder).as_posix()}/{REPORT}.html"] = f"the base alone{seed}"
    return [Link(text, path) for path, text in found.items()]


def _bases(plans: Sequence[Plan]) -> list[str]:
    """Return what the base model scored, in a sentence for each of the measurements that differ."""
    found = []
    for folder in dict.fromkeys(plan.before for plan in plans):
        scores = read_scores(folder / SCORES)
        others = ("perplexity", "distinct_2", "parroting")
        beside = [score for metric in others for score in scores if score.metric == metric and not score.group]
        told = read_settings(folder, "before")[0]
        found.append(say.base(told.seed, told.decoding.title(), score_text(find_score(scores, HEADLINE)), beside))
    return list(dict.fromkeys(found))


def _notes_on(before: Path) -> Sequence[str]:
    """Return what a reader must know of the measured model and of what judged it."""
    return notes_on(FAMILY, FamilyRun(before, measure_config(read_settings(before, "before")[0], FAMILY)))
