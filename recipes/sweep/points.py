"""The files of a loop or an ablation: the table of its points, its report, and one W&B run for each point.

The row of a point contains the reduction of bias and the costs of the reduction, from the scores of the point's runs.
"""

import json
import math
import os
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from hashlib import sha256
from itertools import chain
from pathlib import Path
from typing import Any

import pandas as pd

from evenhand.evaluation import columns
from evenhand.evaluation.errors import InputError, TuningRejected
from evenhand.evaluation.facts import FACTS, read_findings
from evenhand.evaluation.files import write_json, write_text
from evenhand.evaluation.metrics.generation_bias.engine.spread import find_headline, headline_of
from evenhand.evaluation.metrics.generation_bias.headline import is_bias_significant
from evenhand.evaluation.metrics.generation_bias.requested_language import style_group, style_headline
from evenhand.evaluation.metrics.generation_bias.words import advice_text
from evenhand.evaluation.report.output import REPORT, present
from evenhand.evaluation.report.page import Link, Page
from evenhand.evaluation.runs.private_texts import contains_text, stand_ins
from evenhand.evaluation.runs.record import FINISHED, run_state
from evenhand.evaluation.runs.results import RECORD
from evenhand.evaluation.runs.tracking import WITH_RESPONSES, TrackedSettings, group_name, start_tracking
from evenhand.evaluation.score import (
    SCORES,
    BiasScore,
    Form,
    Kind,
    comparable_levels,
    find_score,
    read_scores,
)
from evenhand.evaluation.settings import as_settings
from evenhand.evaluation.tables import read_table, table_rows, write_table
from evenhand.mitigation.methods import load_method
from evenhand.recipes.commands import SWEEP
from evenhand.recipes.label import THRESHOLD_FILE, read_threshold
from evenhand.recipes.point import Point
from evenhand.recipes.settings import GENERATION_BIAS, settings_of_methods
from evenhand.recipes.sweep.page import page
from evenhand.recipes.sweep.published import published_rows, write_published_tables
from evenhand.recipes.sweep.setting_tables import is_of_base, swept_part
from evenhand.recipes.sweep.summary import (
    AXIS_FGB,
    BASE,
    CAPABILITY,
    COLUMNS,
    CORRECTED,
    METHOD,
    PUBLISHED,
    THRESHOLD_COLUMNS,
    Sweep,
    setting_label,
)
from evenhand.recipes.sweep.threshold_figure import curve_rows, threshold_charts, write_charts
from evenhand.recipes.sweep.training_curves import training_curves
from evenhand.recipes.sweep.words import note
from evenhand.recipes.tuning_settings import AblateSettings, LoopSettings

REDUCTION_GROUPS = {
    "reduction": {},
    "reduction_tuned": {"tuned": "yes"},
    "reduction_untuned": {"tuned": "no"},
    "reduction_confirmed": {"classifier": "second"},
}
# The metric that is tested for a rise of a style cluster; generation_bias/verdict.py gives the reasons.
MONITORED = ("scgb", Form.POOLED_CORRECTED, Kind.DIFFERENCE)
# column: (metric and kind of a score of a comparison, value of no change that is subtracted)
CHANGE_METRICS = {
    "parroting_change": ("parroting", Kind.DIFFERENCE, 0),
    "relevance_kept": ("relevance", Kind.KEPT, 0),
    "relevance_to_person_kept": ("relevance_to_person", Kind.KEPT, 0),
    "style_drift": ("style_drift", Kind.LEVEL, 0),
    "response_perplexity_change": ("response_perplexity", Kind.RISE, 0),
    "distinct_responses_change": ("distinct_responses", Kind.KEPT, 1),
    "distinct_2_change": ("distinct_2", Kind.KEPT, 1),
    "length_change": ("mean_length", Kind.KEPT, 1),
}
# Settings of where a stage reads, writes and reports. They are no settings of the experiment.
NOT_LOGGED = ("run", "labels", "output_dir", "report_to", "upload", "group")
# Results of a point that have a panel in its run: what is left, what was removed, and what it cost.
HEADLINES = ("fgb_pooled_corrected", "reduction", "relevance_kept", "perplexity_change")
POINTS = "points"
OF_POINTS = re.compile(r"thresholds(_\d+)?\.(png|pdf)|table_(8|9|10)\.(csv|tex)")  # figures and tables of the points
TRACKED = "tracked"
REFUSED = "refused"  # in the summary of a refused point's run, and the last line of its mark


def point_row(point: Point, folder: Path, failed: str = "") -> dict[str, object]:
    """Return the row of a point in the table that `summarise` reads.

    The row of a point that was rejected has the scores of its base model only.
    """
    row = point_fields(point)
    row["folder"] = point.comparison.relative_to(folder).as_posix()
    row["failed"] = failed
    base = point.before.output_dir / SCORES
    if not failed:
        row |= point_results(point)
    elif base.exists():
        before = read_scores(base)
        row |= _interval_columns("base", style_headline(before)) | bias_columns(before, [])
    return row


def point_fields(point: Point) -> dict[str, object]:
    """Return the columns that say what a point is: method, decoding, seed, swept settings and realised threshold."""
    fields: dict[str, object] = {"method": point.method, "decoding": point.decoding, "seed": point.seed}
    for name, value in point.swept.items():
        fields[name] = "null" if value is None else value  # an absent field is NaN
    return fields | threshold_columns(point)


def threshold_columns(point: Point) -> dict[str, float]:
    """Return α, β, quantile and share labelled `bias` as they were used; {} if the method reads no labels.

    A quantile is set or β; the other is computed from the labelled responses. A point whose labelling was rejected has
    no threshold.
    """
    settings = {} if point.tune is None else settings_of_methods(point.tune)
    trained = load_method(point.method, settings).training_part
    if point.label is None or trained is None or not trained.reads_labels:
        return {}
    if not (point.label.output_dir / THRESHOLD_FILE).exists():
        return {}
    threshold = read_threshold(point.label.output_dir)
    return {name: threshold[name] for name in THRESHOLD_COLUMNS}


def point_results(point: Point) -> dict[str, Any]:
    """Return the columns of bias, reduction and costs of a finished point."""
    changes = read_scores(point.comparison / SCORES)
    before = comparable_levels(read_scores(point.before.output_dir / SCORES), changes, "before")
    after = comparable_levels(read_scores(point.after.output_dir / SCORES), changes, "after")
    row = change_columns(before, after, changes)
    row |= bias_columns(before, after)
    if point.after_without_tag is not None:
        without_tag = headline_of(read_scores(point.after_without_tag.output_dir / SCORES))
        base = headline_of(before)
        # Without a shown bias there is nothing to divide by, as for a reduction.
        row["ratio_without_tag"] = without_tag.value / base.value if is_bias_significant(base) else math.nan
    row["minutes"] = 0.0
    if point.tune is not None:
        record = json.loads((point.tune.output_dir / RECORD).read_text(encoding="utf-8"))
        row["minutes"] = record["seconds"]["total"] / 60
    return row


def change_columns(
    before: Sequence[BiasScore], after: Sequence[BiasScore], changes: Sequence[BiasScore]
) -> dict[str, Any]:
    """Return the columns of bias, reduction and costs from the scores of two runs and of their comparison.

    As on the page of the comparison, bias and its reduction are of the answers in the language of the request, if
    somebody gets more answers in another one (`in_language`).
    """
    in_language = style_group(changes, Kind.DIFFERENCE)
    row: dict[str, Any] = {"in_language": bool(in_language)}
    row |= _interval_columns("base", find_headline(before, Kind.LEVEL, in_language))
    for name, group in REDUCTION_GROUPS.items():
        row |= _interval_columns(name, find_headline(changes, Kind.REDUCTION, group or in_language))
    # Relative to the base's perplexity, whose standard error is a few percent of the difference's and is ignored.
    difference = find_score(changes, "perplexity", kind=Kind.DIFFERENCE)
    row |= _interval_columns("perplexity_change", difference, divisor=_value(before, "perplexity"))
    for name, (metric, kind, no_change) in CHANGE_METRICS.items():
        row |= _interval_columns(name, find_score(changes, metric, kind=kind), no_change)
    monitored = [score for score in changes if (score.metric, score.form, score.kind) == MONITORED]
    clusters = [score for score in monitored if math.isfinite(score.value)]
    worst = max(clusters, key=lambda score: score.value, default=None)
    row["worst_cluster"] = "" if worst is None else worst.group["cluster"]
    row["worst_cluster_change"] = math.nan if worst is None else worst.value
    tested = [score for score in clusters if score.p_value is not None]
    row["cluster_changes"] = json.dumps({score.group["cluster"]: [score.value, score.p_value] for score in tested})
    return row


def bias_columns(before: Sequence[BiasScore], after: Sequence[BiasScore]) -> dict[str, float]:
    """Return the columns of bias and capability after tuning and, as `base_…`, before.

    As published: FGB, FGB of each axis, and PGB and SCGB of each style cluster. Without the noise of the responses:
    FGB* and pooled FGB*; pooled FGB* is of the answers whose styles pages show (`style_headline`), the others of all.
    """
    row: dict[str, float] = {}
    for prefix, scores in ((BASE, before), ("", after)):
        for score in scores:
            name = level_column(score)
            if name:
                row |= _interval_columns(f"{prefix}{name}", score)
        row |= _interval_columns(f"{prefix}{CORRECTED[1]}", style_headline(scores))
    return row


def level_column(score: BiasScore) -> str:
    """Return the name of a score's column: of Tables 8 to 10 of Smith et al. 2022, FGB* or capability; "" for others.

    The tables have FGB, PGB and SCGB of each style cluster, and FGB of each axis.
    """
    cut = tuple(score.group)
    if score.kind != Kind.LEVEL:
        return ""
    if score.name in CORRECTED and not cut:
        return score.name
    if score.form != Form.PLAIN:
        return ""
    if score.metric == "fgb" and cut == ():
        return "fgb"
    if score.metric == "fgb" and cut == (columns.AXIS,):
        return f"{AXIS_FGB}: {score.group[columns.AXIS]}"
    if score.metric in PUBLISHED and cut == (columns.CLUSTER,):
        return f"{score.metric}: {score.group[columns.CLUSTER]}"
    if score.metric == CAPABILITY and len(cut) == 1:
        return f"{CAPABILITY}: {score.group[cut[0]]}"
    return ""


def _interval_columns(
    name: str, score: BiasScore | None, subtrahend: float = 0, divisor: float = 1
) -> dict[str, float]:
    """Return columns of a score and the ends of its interval, as (value − subtrahend) / divisor; {} without a score."""
    if score is None:
        return {}
    low, high = score.interval or (math.nan, math.nan)
    values = {name: score.value, f"{name}_low": low, f"{name}_high": high}
    return {column: (value - subtrahend) / divisor for column, value in values.items()}


def _value(scores: Sequence[BiasScore], metric: str) -> float:
    score = find_score(scores, metric)
    return math.nan if score is None else score.value


def track_point(settings: LoopSettings | AblateSettings, point: Point, refused: TuningRejected | None = None) -> None:
    """Record a point as one run of the tracker, in the sweep's group, once even if the sweep is resumed.

    A point that was refused, and is finished by now, continues its run. Nothing is recorded without a tracker.

    The run's config has the settings of the point, its summary the results, and its panels the training curves and
    HEADLINES. Points with the same tuning have its curves in the first one's run, which their config names. A point
    that was refused is a failed run with the reason.
    """
    mark = mark_of(settings, "point", point.comparison)
    known = mark.read_text(encoding="utf-8").splitlines() if mark.exists() else []
    was_refused = known[-1:] == [REFUSED]
    is_tracked = bool(known) and (refused is not None or not was_refused)
    if is_tracked or settings.report_to == "none":
        return
    tuned = None if point.tune is None else mark_of(settings, "curves", point.tune.output_dir)
    curves = []
    name = replace(point, swept=public_swept(settings, point.swept)).title
    config = point_config(point)
    if point.tune is not None and tuned is not None:
        curves = [] if tuned.exists() else training_curves(point.tune.output_dir)
        config["training_curves"] = tuned.read_text(encoding="utf-8").strip() if tuned.exists() else name
    tracked = start_tracking("point", settings, group=group_name(settings), name=name, settings=config)
    with suppress(TuningRejected), tracked as tracker:
        tracker.log_curves("training", "step", curves)
        if refused is not None:
            tracker.log_summary({REFUSED: str(refused)})
            raise refused  # ends the run as failed
        if was_refused:
            tracker.log_summary({REFUSED: ""})
        results = {name: value for name, value in point_results(point).items() if isinstance(value, (int, float))}
        tracker.log_values({name: results[name] for name in HEADLINES if math.isfinite(results.get(name, math.nan))})
        tracker.log_summary(results)
        tracker.log_score_table(read_scores(point.comparison / SCORES))
    if tuned is not None and curves:
        write_text(tuned, f"{name}\n")
    write_text(mark, f"{point.title}\n" if refused is None else f"{point.title}\n{REFUSED}\n")


def mark_of(settings: LoopSettings | AblateSettings, kind: str, folder: Path) -> Path:
    """Return the file that says that the tracker has a folder of a sweep, as a point or with its training curves."""
    name = folder.relative_to(settings.output_dir).as_posix()
    identity = name if kind == "point" else f"{kind} {name}"  # of points: as in earlier versions
    return settings.output_dir / TRACKED / sha256(identity.encode()).hexdigest()[:12]


def public_swept(settings: TrackedSettings, swept: Mapping[str, object]) -> dict[str, object]:
    """Return the swept values of a point as the tracker gets them: texts are numbered unless responses are uploaded."""
    if settings.upload in WITH_RESPONSES:
        return dict(swept)
    known = stand_ins(as_settings(settings).get("sweep") or [])
    return {name: known[str(value)] if contains_text(name, value) else value for name, value in swept.items()}


def public_sweep(settings: TrackedSettings, sweep: Sweep) -> Sweep:
    """Return a sweep as the tracker gets it, unless responses are uploaded: without advice, which names people.

    Swept texts are numbered; notes and links, which have them, are left out.
    """
    if settings.upload in WITH_RESPONSES:
        return sweep
    sweep = replace(sweep, advice=())
    known = stand_ins(as_settings(settings).get("sweep") or [])
    if not known:
        return sweep
    points = sweep.points.assign(**{name: sweep.points[name].replace(known) for name in sweep.swept})
    return replace(sweep, points=points, notes=[], links=[])


def point_config(point: Point) -> dict[str, object]:
    """Return the settings of a point for the tracker: its fields, and the settings of its stages without folders."""
    config = point_fields(point)
    stages = {"measure": point.before, "train": point.train, "label": point.label, "tune": point.tune}
    for name, stage in stages.items():
        if stage is not None:
            config[name] = {key: value for key, value in as_settings(stage).items() if key not in NOT_LOGGED}
    return config


def report_so_far(
    title: str, settings: LoopSettings | AblateSettings, points: Sequence[Point]
) -> Callable[[Point], None]:
    """Return a function to call with each finished point: it writes the files of the points that are finished so far.

    Nothing is written after a point that was finished before this command, nor after the last: `write_report` follows.
    """
    unfinished = {point.comparison for point in points if run_state(point.comparison) != FINISHED}
    finished: set[Path] = set()

    def write(point: Point) -> None:
        finished.add(point.comparison)
        if point.comparison in unfinished and len(finished) < len(points):
            so_far = [each for each in points if each.comparison in finished]
            write_files(title, settings, so_far, {}, n_points=len(points), show=False)

    return write


def write_report(
    title: str, settings: LoopSettings | AblateSettings, points: Sequence[Point], refused: Mapping[Path, TuningRejected]
) -> None:
    """Write the table of points and the report of all points, and print the report.

    Args:
        refused: the error that ended each rejected point early, by the folder of the point's comparison.
    """
    if isinstance(settings, AblateSettings):  # a loop tracks its stages
        for point in points:
            if point.comparison in refused:
                track_point(settings, point, refused[point.comparison])
    if len(refused) == len(points):
        raise next(iter(refused.values()))
    folder = settings.output_dir
    sweep, pages, files = write_files(title, settings, points, refused, n_points=len(points), show=True)
    public = public_sweep(settings, sweep)
    run_name = f"{folder.resolve().name}-summary"
    with start_tracking("summary", settings, group=group_name(settings), name=run_name) as tracker:
        tracker.log_table(POINTS, public.points)
        for name, rows in published_rows(public).items():
            tracker.log_table(name, pd.DataFrame(rows))
        tracker.log_curves("thresholds", "share_labelled_bias", curve_rows(public.settings, public.swept))
        for name, chart in threshold_charts(public.settings, public.swept).items():
            tracker.log_figure(name, lambda chart=chart: chart)
        tracker.log_report({path: page(public) for path in pages})
        tracker.log_artifact(POINTS, "report", *files)


def write_files(
    title: str,
    settings: LoopSettings | AblateSettings,
    points: Sequence[Point],
    refused: Mapping[Path, TuningRejected],
    *,
    n_points: int,
    show: bool,
) -> tuple[Sweep, dict[Path, Page], list[Path]]:
    """Write the table of points, the report, the figures and the tables as published.

    Args:
        points: the points that have ended.
        n_points: the number of all points, those to come included.
        show: whether to print the report.

    Returns:
        The sweep, the pages of its report by their paths, and the paths of all files.
    """
    folder = settings.output_dir
    write_sweep(title, settings, points, refused, n_points)
    sweep = read_sweep(folder)
    pages = present(folder, {GENERATION_BIAS: page(sweep)}, write=True, show=show)
    files = [*pages, folder / f"{POINTS}.parquet"]
    files += write_charts(folder, threshold_charts(sweep.settings, sweep.swept))
    files += write_published_tables(folder, sweep)
    for path in folder.iterdir():
        if OF_POINTS.fullmatch(path.name) and path not in files:
            path.unlink()  # of a sweep that had other points
    return sweep, pages, files


def write_sweep(
    title: str,
    settings: LoopSettings | AblateSettings,
    points: Sequence[Point],
    refused: Mapping[Path, TuningRejected],
    n_points: int,
) -> None:
    """Write the table of points, and the file with the other contents of a `Sweep`; `read_sweep` reads both."""
    folder = settings.output_dir
    table, swept = points_table(folder, points, refused)
    write_table(folder / f"{POINTS}.parquet", table)
    links = []
    advice = []
    for row in table_rows(table[table["failed"] == ""]):
        label = setting_label(row, table, swept)
        links.append((f"{label}, seed {row['seed']}", row["folder"]))
        if isinstance(settings, LoopSettings):  # an ablation compares settings, and ships none
            advice += [f"{label}: {advised}" for advised in comparison_advice(folder / row["folder"] / FACTS)]
    notes = []
    n_in_language = int((table["in_language"] == True).sum())  # noqa: E712 — NaN of a refused point
    n_responses = []
    for point in {point.before.output_dir: point for point in points}.values():
        base_folder = point.before.output_dir
        name = base_name(point)
        scores = read_scores(base_folder / SCORES)
        fgb = find_score(scores, "fgb")
        if fgb is not None:
            n_responses.append(fgb.n)
        notes.append(_base_note(name, scores))
        links.append((name, path_from(folder, base_folder)))
    description = {
        "title": title,
        "base_model": common_value([point.before.model.name for point in points]),
        "classifier": common_value([classifier_name(point) for point in points]),
        "n": [min(n_responses), max(n_responses)] if n_responses else [],
        "base_folder": path_from(folder, points[0].before.output_dir),
        "tuning": path_from(folder, points[0].tune.output_dir) if len(points) == 1 and points[0].tune else "",
        "advice": advice,
        "n_points": n_points,
        "n_in_language": n_in_language,
        "swept": swept,
        "notes": notes,
        "links": [asdict(Link(label, f"{path}/{REPORT}.html")) for label, path in links],
    }
    write_json(folder / SWEEP, description)


def comparison_advice(facts: Path) -> list[str]:
    """Return a list with the advice of the comparison that wrote these facts; an empty list if it gave none."""
    people = read_findings(facts, GENERATION_BIAS, "people")
    return [advice_text(decision, people) for decision in read_findings(facts, GENERATION_BIAS, "decision")]


def base_name(point: Point) -> str:
    """Return the name of a point's base model: the swept settings of its measurement, the seed and the decoding."""
    parts = ["base model"]
    for name, value in point.swept.items():
        if is_of_base(name):
            parts.append(swept_part(name, "null" if value is None else value))
    return ", ".join([*parts, f"seed {point.seed}", point.decoding])


def classifier_name(point: Point) -> str:
    """Return the name of the style classifier of a point."""
    return getattr(point.before, GENERATION_BIAS).style_classifier.name


def common_value(values: Sequence[str]) -> str:
    """Return the value of all points; "" if they have several."""
    return values[0] if len(set(values)) == 1 else ""


def path_from(folder: Path, path: Path) -> str:
    """Return the path of another folder relative to `folder`, so that both can be moved."""
    return Path(os.path.relpath(path.resolve(), folder.resolve())).as_posix()


def points_table(
    folder: Path, points: Sequence[Point], refused: Mapping[Path, TuningRejected]
) -> tuple[pd.DataFrame, list[str]]:
    """Return the table of points, a row each, and the names of the swept settings."""
    rows = [point_row(point, folder, str(refused.get(point.comparison, ""))) for point in points]
    table = pd.DataFrame(rows)
    names = dict.fromkeys(chain.from_iterable(point.swept for point in points))
    swept = [name for name in names if name != METHOD]
    for name in swept:
        if table[name].dtype == object:  # values of several types, which a column of Parquet cannot have
            table[name] = table[name].map(str, na_action="ignore")
    return table.reindex(columns=list(dict.fromkeys([*table, *COLUMNS]))), swept  # what no point has is NaN


def _base_note(name: str, scores: Sequence[BiasScore]) -> str:
    """Return a sentence with the bias and the quality of a base model."""
    quality = [find_score(scores, metric) for metric in ("perplexity", "distinct_2", "parroting")]
    pooled = style_headline(scores)
    return note("base_model", name=name, pooled=pooled, quality=list(filter(None, quality)))


def read_sweep(folder: Path) -> Sweep:
    """Return the finished loop or ablation in a folder."""
    try:
        description = json.loads((folder / SWEEP).read_text(encoding="utf-8"))
        links = [Link(**link) for link in description.pop("links")]
        for name in ("base_folder", "tuning"):
            if description.get(name):
                description[name] = os.path.normpath(folder / description[name])
        points = read_table(folder / f"{POINTS}.parquet")
        return Sweep(**description, points=points, links=links)
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise InputError(
            folder,
            f"has no finished loop or ablation ({error}); run `evenhand loop` or `evenhand ablate` with "
            f"--output_dir {folder}.",
        ) from None
