"""What each method removes, keeps and costs: all methods on the same base, and the section of a page with the table.

$ python -m benchmarks.map                                     # SmolLM2, 20 descriptors, one seed, to be continued
$ python -m benchmarks.map --descriptors 60 --seeds 0 1 2 --methods distill shrink --results runs/map60
$ python -m benchmarks.map --run runs/half --results runs/half-loop          # from a finished measurement
$ python -m benchmarks.map --config loop --methods distill shrink --max_rows 48 --results runs/try --page runs/try.md

Each method's model is made and measured as by `evenhand loop`, half of the axes being left out of tuning. With `--run`,
the base is the finished measurement, with its settings and seed, and stages of a loop in `--results` are used. Stages
and results are kept in `--results`: the same command continues after a kill, and a finished method is not repeated.
A folder has results of one set of options, apart from seeds and methods.
When all are done, `--page` gets a section on this number of descriptors, and a figure in the same folder. Both show all
finished methods and seeds in `--results`, and the section also the means of methods with several seeds.

- removed: of pooled FGB*, over all people, those tuned on and those never tuned on;
- removed of the divergence: of the predictions of an answer's first four tokens between eight people, in nats;
- CPU minutes of the method's own stages, tuning and measuring, in this process.
"""

import json
import math
import shlex
import sys
import time
from collections.abc import Sequence
from functools import cache
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import torch
from datasets import Dataset

from benchmarks.measuring import parse_options
from benchmarks.thresholds import row_divergences
from evenhand.evaluation import columns
from evenhand.evaluation.errors import InputError
from evenhand.evaluation.files import read_json, write_json, write_text
from evenhand.evaluation.metrics.generation_bias.answers import read_answers
from evenhand.evaluation.models.contexts import render_contexts
from evenhand.evaluation.models.loading import DialogueModel, load_dialogue_model
from evenhand.evaluation.runs.record import run_state
from evenhand.evaluation.score import SCORES, Kind, read_scores
from evenhand.evaluation.statistics.intervals import mean_interval
from evenhand.mitigation.hidden_state_maps import load_maps
from evenhand.mitigation.labelled_responses import rows_of_several_people
from evenhand.mitigation.methods import load_method, names
from evenhand.mitigation.methods.shrink import MAPS_FILE
from evenhand.mitigation.shrinking import divergence_and_change, encoded_groups
from evenhand.mitigation.trainers import DistillTrainer
from evenhand.recipes.automatic import resolve
from evenhand.recipes.command_line import parse
from evenhand.recipes.finished_runs import read_measurement
from evenhand.recipes.loop import Stages, check_points, run_labels, run_point
from evenhand.recipes.point import Point, plan_points
from evenhand.recipes.settings import GENERATION_BIAS, family_config
from evenhand.recipes.sweep.points import point_results
from evenhand.recipes.tuning_settings import LoopSettings

CAPABILITY = "capability"  # the metric of tasks of lm-evaluation-harness
CPU_MINUTES = "cpu_minutes"
FIRST_TOKENS = 4
OPTIONS = "options.json"  # in the folder of results
MARKERS = "osD^v<>PX*p"
MARGIN = 20  # of the figure, in % removed
MIN_SEEDS = 3  # of an interval: with two, it is mean ± 12.7 errors
N_DIVERGENCES = 40  # responses of each side from which the divergence is read
BEGIN = "<!-- `make map` writes this section: {} descriptors -->"
END = "<!-- end of the section of `make map`: {} descriptors -->"
SERVING = {
    "borrowed_opening": "two requests; your code finds the person",
    "nearest_style": "several requests and a style classifier",
    "prompt": "a line in the system prompt",
    "opening": "the adapter for the first tokens, then the base",
    "shrink": "hooks in transformers",
}
CONTROL_TAG = "a tag at the end of each context"
MERGED = "nothing: the weights are merged"
COLUMNS = {
    "reduction": "removed of pooled FGB*",
    "reduction_tuned": "… of people tuned on",
    "reduction_untuned": "… of people never tuned on",
    "divergence_tuned": "removed of the divergence of people tuned on",
    "divergence_untuned": "removed of the divergence of people never tuned on",
    "relevance_to_person_kept": "response to the person kept",
    "relevance_kept": "relevance kept",
    "response_perplexity_change": "perplexity of the responses",
    "piqa": "PIQA",
}


def map_points(settings: LoopSettings, methods: Sequence[str], seeds: Sequence[int]) -> list[Point]:
    """Return the point of each method and seed; methods share the stages of the base.

    With `base_run`, the seed is the run's, and stages have the folders of a loop.
    """
    points = []
    for seed in seeds if settings.base_run is None else [settings.seed]:
        of_seed = settings.replaced(seed=seed)
        folder = stages_folder(settings, seed)
        for method in methods:
            points += plan_points(of_seed, method, lambda name, command, stage, folder=folder: folder / name)
    return points


def stages_folder(settings: LoopSettings, seed: int) -> Path:
    """Return the folder of a seed's stages and results."""
    return settings.output_dir / f"seed_{seed}" if settings.base_run is None else settings.output_dir


def result_of(point: Point, stages: Stages) -> dict[str, Any]:
    """Run the stages of a point; return its row of the map, or why there is none."""
    row: dict[str, Any] = {"method": point.method, "seed": point.seed, "failed": ""}
    try:
        run_labels(point, stages)
    except InputError as error:
        return row | {"failed": str(error)}
    own = [stage for stage in (point.tune, point.after) if stage is not None]
    is_timed = all(run_state(stage.output_dir) is None for stage in own)  # else an earlier command ran a part
    start = time.process_time()
    error = run_point(point, stages)
    row[CPU_MINUTES] = (time.process_time() - start) / 60 if is_timed else math.nan
    if error is not None:
        return row | {"failed": str(error)}
    found = point_results(point)
    for name in COLUMNS:
        for end in ("", "_low", "_high"):
            row[f"{name}{end}"] = found.get(f"{name}{end}", math.nan)
    for score in read_scores(point.comparison / SCORES):
        if score.metric == CAPABILITY and score.kind == Kind.DIFFERENCE:
            row |= dict(zip(("piqa", "piqa_low", "piqa_high"), (score.value, *(score.interval or ())), strict=False))
    return row | divergence_columns(point)


def divergence_columns(point: Point) -> dict[str, float]:
    """Return the share of the divergence that a trained method removes, by people tuned on and never tuned on."""
    if point.tune is None:
        return {}
    adapter = Path(point.after.model.name)
    has_maps = (adapter / MAPS_FILE).exists()
    model = load_dialogue_model(point.before.model if has_maps else point.after.model)
    maps = load_maps(adapter / MAPS_FILE) if has_maps else None
    columns = {}
    for name, is_untuned in (("divergence_tuned", False), ("divergence_untuned", True)):
        before = base_divergence(point.before.output_dir, is_untuned)
        rows = divergence_rows(model, point.before.output_dir, is_untuned)
        if before is None or rows is None:
            continue
        if maps is None:
            after = row_divergences(model, DistillTrainer.encode_rows(model, rows)).mean()
        else:
            groups = encoded_groups(model, rows, FIRST_TOKENS)
            after = divergence_and_change(model, groups, maps, FIRST_TOKENS)[0]
        columns[name] = float(1 - after / before)
    return columns


@cache
def base_divergence(run: Path, is_untuned: bool) -> float | None:
    """Return the mean divergence of the base's responses to people tuned on or never tuned on, None without such."""
    settings, _ = read_measurement(run, "run")
    base = load_dialogue_model(family_config(settings, GENERATION_BIAS).model)
    rows = divergence_rows(base, run, is_untuned)
    return None if rows is None else float(row_divergences(base, DistillTrainer.encode_rows(base, rows)).mean())


def divergence_rows(model: DialogueModel, run: Path, is_untuned: bool) -> Dataset | None:
    """Return some responses of a run to people tuned on or never tuned on, each with the contexts of eight of them.

    The contexts end with the model's control tag, if it has one. Without such responses, the result is None.
    """
    table = read_answers(run).table
    of_untuned = (
        table[columns.UNTUNED].to_numpy(dtype=bool) if columns.UNTUNED in table else np.zeros(len(table), dtype=bool)
    )
    in_side = of_untuned == is_untuned
    if not in_side.any():
        return None

    def render(prompts: Sequence[str], personas: Sequence[str], _: str) -> list[str]:
        return render_contexts(model, prompts, personas, model.control_tag)

    rows = rows_of_several_people(table[in_side], render, "", 0).shuffle(0)
    return rows.select(range(min(N_DIVERGENCES, len(rows))))


def needs_of(method: str) -> str:
    """Return what serving a method needs."""
    parts = method.split("+")
    trained = load_method(parts[0]).training_part
    needs = [SERVING[part] for part in parts if part in SERVING]
    if trained is not None and parts[0] not in SERVING:
        needs.insert(0, CONTROL_TAG if trained.control_tag else MERGED)
    return "; ".join(needs)


def cell(row: dict[str, Any], name: str) -> str:
    """Return a share in percent, with its interval if it has one; "–" if it is not known."""
    value = row.get(name)
    if value is None or math.isnan(value):
        return "–"
    low = row.get(f"{name}_low", math.nan)
    if math.isnan(low):
        return f"{round(100 * value)} %"
    return f"{round(100 * value)} % [{round(100 * low)}, {round(100 * row[f'{name}_high'])}]"


def known_or_none(value: Any) -> Any:
    """Return a number as a float, None for NaN, which JSON does not have, and other values as they are."""
    if isinstance(value, str | int):
        return value
    return None if math.isnan(value) else float(value)


def check_same_options(folder: Path, **options: object) -> None:
    """Record the options of the results in a folder; raise InputError if it has results of other options."""
    file = folder / OPTIONS
    given = {name: str(value) for name, value in options.items()}
    if not file.exists():
        write_json(file, given)
    recorded = read_json(file, "results")
    changed = [name for name in given if recorded.get(name) != given[name]]
    if changed:
        name = changed[0]
        raise InputError(
            "results", f"{folder} has results of --{name} {recorded.get(name)}, not {given[name]}; give another folder."
        )


def finished_rows(settings: LoopSettings) -> list[dict[str, Any]]:
    """Return the rows of all finished methods and seeds in the folder of results, in this order."""
    folder = settings.output_dir
    files = folder.glob("seed_*/*.json") if settings.base_run is None else folder.glob("*.json")
    files = [file for file in files if file.name != OPTIONS]
    rows = []
    for file in files:
        row = json.loads(file.read_text(encoding="utf-8"))
        rows.append({name: math.nan if value is None else value for name, value in row.items()})
    return sorted(rows, key=lambda row: (row["method"], row["seed"]))


def with_means(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows; after the rows of a method with several seeds comes their mean with its 95 % interval."""
    result = []
    for method, group in groupby(rows, key=itemgetter("method")):
        of_seeds = list(group)
        result += of_seeds
        known = [row for row in of_seeds if not row["failed"]]
        if len(known) > 1:
            result.append({"method": method, "seed": "mean", "failed": ""} | mean_of_seeds(known))
    return result


def mean_of_seeds(rows: Sequence[dict[str, Any]]) -> dict[str, float]:
    """Return the mean of each column, over the rows that have a value there, with its interval."""
    means = {}
    for name in (*COLUMNS, CPU_MINUTES):
        values = np.array([row.get(name, math.nan) for row in rows])
        values = values[~np.isnan(values)]
        if len(values):
            means[name] = float(values.mean())
            if len(values) >= MIN_SEEDS:
                means[f"{name}_low"], means[f"{name}_high"] = mean_interval(values) or (math.nan, math.nan)
    return means


def section(rows: Sequence[dict[str, Any]], settings: LoopSettings, command: str) -> str:
    """Return the section of the page: how it was made, the table and the figure."""
    seeds = sorted({row["seed"] for row in rows})
    prompts = settings.measure.prompts
    lines = [
        BEGIN.format(prompts.descriptors),
        f"## The map of {prompts.descriptors} descriptors",
        "",
        f"Every method on the same base, {settings.measure.model.name.rpartition('/')[2]}, "
        f"{'seed' if len(seeds) == 1 else 'seeds'} {', '.join(map(str, seeds))}. "
        + ("Half of the axes were left out of tuning." if prompts.untuned_by else "All people were tuned on."),
        "",
        "```console",
        f"$ {command}",
        "```",
        "",
        "![Two panels: removed of the divergence and of pooled FGB*, against the response to the person that is kept, "
        f"one point a method and seed]({figure_name(settings)})",
        "",
        f"| method | seed | {' | '.join(COLUMNS.values())} | CPU minutes | serving needs |",
        "|" + " --- |" * (len(COLUMNS) + 4),
    ]
    for row in with_means(rows):
        begin = f"| `{row['method']}` | {row['seed']} | "
        if row["failed"]:
            reason = " ".join(row["failed"].split()).replace("|", "\\|")
            lines.append(begin + f"refused: {reason[:120]} |" + " |" * (len(COLUMNS) + 1))
            continue
        cells = [cell(row, name) for name in COLUMNS]
        minutes = "–" if math.isnan(row.get(CPU_MINUTES, math.nan)) else f"{row[CPU_MINUTES]:.1f}"
        lines.append(begin + " | ".join([*cells, minutes, needs_of(row["method"])]) + " |")
    lines += [
        "",
        "A dash is a number that is not known: a reduction where the base shows no bias, the divergence of a method "
        "that trains nothing, PIQA without `--piqa`, or the time of stages that an earlier command ran. Brackets are "
        "95 % intervals: of a seed over the prompts, which do not contain the chance of training, and of the mean of "
        f"at least {MIN_SEEDS} seeds Student's t.",
        END.format(prompts.descriptors),
    ]
    return "\n".join(lines)


def figure_name(settings: LoopSettings) -> str:
    """Return the name of the figure's file, which is in the folder of the page."""
    return f"map_{settings.measure.prompts.descriptors}.png"


def write_section(page: Path, text: str) -> None:
    """Write the section into a page, in place of the one between the same markers, or at the end."""
    begin, *_, end = text.splitlines()
    old = page.read_text(encoding="utf-8") if page.exists() else ""
    if begin in old:
        before, _, rest = old.partition(begin)
        text = before + text + rest.partition(end)[2]
    else:
        text = f"{old.rstrip()}\n\n{text}\n".lstrip()
    page.parent.mkdir(parents=True, exist_ok=True)
    write_text(page, text)


def write_figure(file: Path, rows: Sequence[dict[str, Any]]) -> None:
    """Draw what is removed against the response to the person that is kept, with 95 % intervals.

    On the left, removed is of the divergence, which only trained methods have, and on the right of pooled FGB*, whose
    whiskers may end outside.
    """
    matplotlib.use("Agg")
    from matplotlib import pyplot

    kept = "relevance_to_person_kept"
    methods = list(dict.fromkeys(row["method"] for row in rows))
    figure, panels = pyplot.subplots(1, 2, figsize=(10, 4.5), layout="constrained", sharey=True)
    handles = {}
    for panel, removed in zip(panels, ("divergence_untuned", "reduction"), strict=True):
        shown = []
        for row in rows:
            x = row.get(removed, math.nan)
            y = row.get(kept, math.nan)
            if row["failed"] or math.isnan(x) or math.isnan(y):
                continue
            shown.append(100 * x)
            number = methods.index(row["method"])
            handles[row["method"]] = panel.errorbar(
                100 * x,
                100 * y,
                xerr=whisker(row, removed),
                yerr=whisker(row, kept),
                fmt=MARKERS[number % len(MARKERS)],
                color=f"C{number}",
                elinewidth=0.7,
            )
        if shown:
            panel.set_xlim(min(*shown, 0) - MARGIN, max(*shown, 0) + MARGIN)
        panel.set_xlabel(f"{COLUMNS[removed]}, %", loc="right")
    panels[0].set_ylabel("response to the person kept, %")
    figure.legend(list(handles.values()), list(handles), loc="outside right upper", frameon=False)
    figure.savefig(file, dpi=150, facecolor="white")
    pyplot.close(figure)


def whisker(row: dict[str, Any], name: str) -> list[list[float]]:
    """Return the lengths of an interval below and above its value, in percent; 0 without an interval."""
    value = row[name]
    low = row.get(f"{name}_low", math.nan)
    high = row.get(f"{name}_high", math.nan)
    if math.isnan(low):
        return [[0.0], [0.0]]
    return [[100 * max(0.0, value - low)], [100 * max(0.0, high - value)]]


def loop_settings(options: Any) -> LoopSettings:
    """Return the settings of the loop whose stages the map runs."""
    if options.run:
        flags = ["loop", str(options.run)]
    else:
        flags = ["loop", "--config", options.config, "--measure.prompts.untuned_by", "axis"]
        flags += ["--measure.prompts.descriptors", str(options.descriptors)]
    flags += ["--output_dir", str(options.results), "--report_to", "none", "--allow_no_bias", "true"]
    flags += ["--tune.measure_every", "0", "--train_answers_per_cell", "2"]
    if options.piqa:
        flags += ["--measure.capabilities", "[piqa]"]
    if options.learning_rate:
        flags += ["--tune.training.learning_rate", str(options.learning_rate)]
    if options.max_rows:
        flags += ["--tune.training.max_rows", str(options.max_rows)]
    return resolve(parse(flags))


def main() -> None:
    options = parse_options(
        __doc__,
        config=("smollm2", "of `loop`, with the model"),
        descriptors=(20, "that are measured"),
        seeds=([0], "of prompts, responses and training"),
        methods=(names(), "of the map"),
        run=(Path, "finished measurement of the base, in place of config, descriptors and seeds"),
        max_rows=(80, "responses to tune on; 0: the method's own number"),
        learning_rate=(1e-3, "of training; 0: the method's own"),
        piqa=(False, "also score PIQA, by lm-evaluation-harness"),
        results=(Path("runs/map"), "folder of stages and results"),
        page=(Path("docs/benchmarks/methods.md"), "page with the section"),
    )
    torch.set_num_threads(1)
    settings = loop_settings(options)
    check_same_options(
        settings.output_dir,
        config=options.config,
        descriptors=options.descriptors,
        run=options.run,
        max_rows=options.max_rows,
        learning_rate=options.learning_rate,
        piqa=options.piqa,
    )
    points = map_points(settings, options.methods, options.seeds)
    files = [stages_folder(settings, point.seed) / f"{point.method}.json" for point in points]
    n_left = sum(not file.exists() for file in files)
    n_trained = sum(point.tune is not None and not file.exists() for point, file in zip(points, files, strict=True))
    print(
        f"{n_left} of {len(points)} models are left, {n_trained} of them to be tuned. With 20 descriptors, one of "
        "SmolLM2 takes 15 to 25 minutes of a core, and more with many rows or candidates. A finished stage is kept.",
        flush=True,
    )
    check_points(settings.output_dir, points)
    stages = Stages(points)
    for point, file in zip(points, files, strict=True):
        if not file.exists():
            row = result_of(point, stages)
            write_json(file, {name: known_or_none(value) for name, value in row.items()})
            print(f"{point.title}: removed {cell(row, 'reduction')} {row['failed']}", flush=True)
    rows = finished_rows(settings)
    write_section(options.page, section(rows, settings, shlex.join(["python", "-m", "benchmarks.map", *sys.argv[1:]])))
    write_figure(options.page.with_name(figure_name(settings)), rows)
    print(f"the section is in {options.page}")


if __name__ == "__main__":
    main()
