"""The command `loop`: measure, label, tune, measure again and compare, for each method, with one report."""

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from peft import LoraConfig

from evenhand.evaluation.doors import spelled
from evenhand.evaluation.errors import InputError, TuningRejected
from evenhand.evaluation.files import check_links_inside
from evenhand.evaluation.metrics.generation_bias.engine.spread import headline_of
from evenhand.evaluation.metrics.generation_bias.headline import is_bias_significant
from evenhand.evaluation.metrics.generation_bias.measurement_prompts import measurement_prompts
from evenhand.evaluation.metrics.generation_bias.requested_language import style_group
from evenhand.evaluation.models.checkpoints import check_strength
from evenhand.evaluation.models.decoding import decoding_arguments
from evenhand.evaluation.report.numbers import score_text
from evenhand.evaluation.runs import processes
from evenhand.evaluation.runs.lock import run_lock
from evenhand.evaluation.runs.pages import claim_pages
from evenhand.evaluation.runs.record import FINISHED, run_state
from evenhand.evaluation.runs.results import TRACKERS
from evenhand.evaluation.score import SCORES, display_name, read_scores
from evenhand.mitigation.checks import check_tuning, default_methods, with_defaults
from evenhand.mitigation.methods import trained_method
from evenhand.recipes.automatic import measurement_of
from evenhand.recipes.command_settings import CompareSettings
from evenhand.recipes.compare import compare
from evenhand.recipes.label import label
from evenhand.recipes.measure import family_configs, measure, read_inputs
from evenhand.recipes.point import Point, plan_points
from evenhand.recipes.ray_tasks import run_on_ray
from evenhand.recipes.remaining import remaining_text
from evenhand.recipes.settings import GENERATION_BIAS, MeasureSettings, family_config, settings_of_methods
from evenhand.recipes.sweep.points import report_so_far, write_report
from evenhand.recipes.tune import tune
from evenhand.recipes.tuning_settings import AblateSettings, LabelSettings, LoopSettings, TuneSettings

log = logging.getLogger("evenhand")

TITLE = "Generation bias before and after tuning"  # of the report


def loop(settings: LoopSettings) -> None:
    """Run every unfinished stage; write the report of all methods side by side after each, and print it at the end.

    Raises:
        InputError: a stage cannot be run, or every method was rejected.
    """
    if settings.methods is None:
        model = family_config(measurement_of(settings), GENERATION_BIAS).model
        settings = settings.replaced(methods=processes.on_rank_zero(lambda: default_methods(model)))
        log.info("loop: chosen for this model: methods %s", ",".join(settings.methods))
    points = []
    for method in dict.fromkeys(settings.methods):
        points += plan_points(settings, method, lambda name, command, stage: settings.output_dir / name)
    refused = run_points(points, settings, on_finished=report_so_far(TITLE, settings, points))
    processes.on_rank_zero(lambda: write_report(TITLE, settings, points, refused))


def run_points(
    points: Sequence[Point],
    settings: LoopSettings | AblateSettings,
    on_finished: Callable[[Point], None] = lambda point: None,
    on_labelled: Callable[[], None] | None = None,
) -> dict[Path, TuningRejected]:
    """Check the settings of all stages, then run each stage once; call `on_finished` for each finished point.

    With `on_labelled`, the labels of all points are made first, and it is called before anything is tuned; on Ray, it
    is not called.

    A point ends early if a guard rejects its tuned model or the base model shows no bias; the other points continue.

    Returns:
        The error that ended each such point, by the folder of the point's comparison.
    """
    folder = settings.output_dir
    command = "loop" if isinstance(settings, LoopSettings) else "ablate"
    processes.on_rank_zero(lambda: check_points(folder, points))
    processes.on_rank_zero(lambda: claim_pages(folder, command))
    with ExitStack() as locks:
        # Two commands in one folder would refuse each other's stages, and both would end.
        processes.on_rank_zero(lambda: locks.enter_context(run_lock(folder)))
        if len(points) > 1:
            log.info("%s: %s", command, remaining_text(points))
        results = run_here(points, on_labelled) if settings.ray is None else run_on_ray(points, run_alone, settings)
        return _refused_points(points, results, on_finished, command)


def _refused_points(
    points: Sequence[Point],
    results: Iterator[tuple[Point, InputError | None]],
    on_finished: Callable[[Point], None],
    command: str,
) -> dict[Path, TuningRejected]:
    """Return the error of each point that a guard ended, by its folder, when all points have ended (`run_points`)."""
    ended: list[Path] = []
    refused: dict[Path, TuningRejected] = {}
    failed: InputError | None = None
    for point, error in results:
        ended.append(point.comparison)
        if len(ended) < len(points):
            log.info("%s: %s", command, remaining_text(points, ended))
        if error is None:
            processes.on_rank_zero(lambda point=point: on_finished(point))
        elif isinstance(error, TuningRejected):
            if len(points) > 1 and str(error) not in map(str, refused.values()):
                log.warning("%s: %s", point.title, error)
            refused[point.comparison] = error
        elif processes.world_size() > 1:
            raise error  # the other processes may not have this error, and would wait
        else:
            if len(points) > 1 and str(error) != str(failed):  # the error of the only point is raised below
                log.warning("%s: %s", point.title, error)
            failed = failed or error
    if failed is not None:
        raise failed
    return refused


def run_here(
    points: Sequence[Point], on_labelled: Callable[[], None] | None
) -> Iterator[tuple[Point, InputError | None]]:
    """Run the points one after the other; yield each with the error that ended it, or None."""
    stages = Stages(points)
    if on_labelled is not None:
        for point in points:
            with suppress(InputError):  # which ends the point when it runs
                run_labels(point, stages)
        processes.on_rank_zero(on_labelled)
    for point in points:
        yield point, run_point(point, stages)


def run_labels(point: Point, stages: "Stages") -> None:
    """Run the stages of a point that are not finished, up to its labels; InputError if one ends the point."""
    if point.base_run is None:
        stages.measure(point.before, for_comparisons=True)
    if point.must_show_bias:
        check_shows_bias(point.before.output_dir)
    if point.train is not None and point.label is not None:
        stages.measure(point.train)
        stages.label(point.label)


def run_alone(point: Point) -> InputError | None:
    """Run one point, whose stages other processes may have finished; return the error that ended it, or None."""
    return run_point(point, Stages([point]))


def run_point(point: Point, stages: "Stages") -> InputError | None:
    """Run the stages of a point that are not finished; return the error that ended the point, or None."""
    try:
        run_labels(point, stages)
        if point.tune is not None:
            stages.tune(point.tune)
        stages.measure(point.after)
        if point.after_without_tag is not None:
            stages.measure(point.after_without_tag)
        stages.compare(point.compare)
    except InputError as error:
        return error
    return None


class Stages:
    """Runs each stage of some points once, although several points have it, and logs its number among all stages.

    Attributes:
        n: the number of stages.
        errors: the error that ended each stage that has run, by its folder; None if it was finished.
    """

    def __init__(self, points: Sequence[Point]) -> None:
        self.n = len({stage.output_dir for point in points for stage in point.stages})
        self.errors: dict[Path, InputError | None] = {}

    def measure(self, settings: MeasureSettings, *, for_comparisons: bool = False) -> None:
        self._run(
            "measure", settings.output_dir, lambda: measure(settings, show=False, for_comparisons=for_comparisons)
        )

    def label(self, settings: LabelSettings) -> None:
        self._run("label", settings.output_dir, lambda: processes.on_rank_zero(lambda: label(settings)))

    def tune(self, settings: TuneSettings) -> None:
        self._run("tune", settings.output_dir, lambda: tune(settings))

    def compare(self, settings: CompareSettings) -> None:
        self._run("compare", settings.output_dir, lambda: processes.on_rank_zero(lambda: compare(settings, show=False)))

    def _run(self, command: str, folder: Path, run: Callable[[], object]) -> None:
        """Run a stage, or raise the error that it ended with before."""
        if folder not in self.errors:
            log.info("stage %d of %d: %s → %s", len(self.errors) + 1, self.n, command, folder)
            self.errors[folder] = None
            try:
                run()
            except InputError as error:
                self.errors[folder] = error
        error = self.errors[folder]
        if error is not None:
            raise error


def check_shows_bias(folder: Path) -> None:
    """Raise TuningRejected if the measurement in a folder shows no bias that tuning could reduce.

    Somebody who gets more answers in another language is one, also if styles are not shown to differ.
    """
    scores = read_scores(folder / SCORES)
    pooled = headline_of(scores)
    if not (is_bias_significant(pooled) or style_group(scores)):
        shows = "shows no bias" if pooled.interval is not None else f"has a bias of unknown error ({pooled.reason})"
        raise TuningRejected(
            "model",
            f"the base model {shows}: pooled FGB* is {score_text(pooled)} ({display_name(str(folder))}), so that no "
            "reduction can be shown. Measure with more prompts (measure.prompts.descriptors, answers_per_cell), or "
            f"tune the model anyway with {spelled('allow_no_bias', 'true')}.",
        )


def check_points(folder: Path, points: Sequence[Point]) -> None:
    """Check the settings and inputs of all unfinished stages, as far as that is possible before the first stage.

    Raises:
        InputError: a stage would fail.
    """
    for path in dict.fromkeys(stage.output_dir for point in points for stage in point.stages):
        check_links_inside(path, "output_dir", within=folder, leave_out=TRACKERS)
    measurements: list[MeasureSettings] = []  # that are checked already
    tunings: list[Any] = []  # the values that the check of a tuning reads, of the tunings that are checked already
    for point in points:
        base = point.before.model.name
        for measurement in (point.before, point.train, point.after, point.after_without_tag):
            if measurement is not None and measurement not in measurements:
                measurements.append(measurement)
                _check_measurement(measurement, base, for_comparisons=measurement is point.before)
        if point.tune is not None and run_state(point.tune.output_dir) != FINISHED:
            has_strength = point.after.model.adapter_strength is not None
            read_by_check = (point.before.model, point.tune.method, point.tune.training, has_strength)
            if read_by_check not in tunings:
                tunings.append(read_by_check)
                _check_tuning(point)


def _check_measurement(settings: MeasureSettings, base: str, *, for_comparisons: bool) -> None:
    """Check the settings and inputs of a measurement, unless it is finished.

    The files of a tuned model, whose name is not `base`, cannot be read yet, and are not checked.
    """
    if run_state(settings.output_dir) == FINISHED:
        return
    config = family_config(settings, GENERATION_BIAS)
    model = config.open_model()
    model.check()
    if settings.model.name == base:
        model.check_memory()
        read_inputs(family_configs(settings, for_comparisons=for_comparisons))
    if settings.split == "train":  # the other measurements have the same descriptors
        measurement_prompts(config)


def _check_tuning(point: Point) -> None:
    """Check the settings of a point's tuning, and whether an adapter with them can have a strength, if one is given."""
    base = point.before.model
    method = trained_method(point.tune.method, settings_of_methods(point.tune))
    training = with_defaults(base, method, point.tune.training)
    check_tuning(base, method, training)
    decoding = point.after.decoding
    method.check_decoding(decoding_arguments(decoding.preset, decoding.arguments))
    if point.after.model.adapter_strength is not None:
        check_strength(LoraConfig(**training.peft), "an adapter with tune.training.peft")
