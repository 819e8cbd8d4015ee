"""An experiment as data: the stages that turn one config into a comparison, planned first and run after.

Measure → label → tune → measure again → compare, for each method, as a list of stages each of which has its config and
its folder. The loop runs them one after another in folders with names; an ablation runs what several plans have in
common once, in folders named by what is in them.
"""

import hashlib
import json
import logging
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Any

from evenhand.evaluation.errors import InputError, Refused
from evenhand.evaluation.families.generation_bias.report.report_data import HEADLINE, bias_shown
from evenhand.evaluation.families.generation_bias.settings import ComparisonSettings
from evenhand.evaluation.models.revisions import ADAPTER_FOLDER
from evenhand.evaluation.report.numbers import score_text
from evenhand.evaluation.results import display_name, find_score, read_scores
from evenhand.evaluation.runs import processes
from evenhand.evaluation.runs.files import refuse_links_out
from evenhand.evaluation.runs.lock import TRACKERS
from evenhand.evaluation.runs.settings_comparison import NOT_COMPARED
from evenhand.evaluation.settings import ClassifierSettings, ModelSettings, as_settings
from evenhand.mitigation.methods import Method, load_method
from evenhand.recipes.commands import run_command
from evenhand.recipes.launchers import launched
from evenhand.recipes.measure import SCORES, models_with_code
from evenhand.recipes.preflight import check_stages
from evenhand.recipes.settings import (
    FAMILY,
    CompareSettings,
    LabelSettings,
    Launching,
    LoopSettings,
    MeasureSettings,
    TuneSettings,
)

log = logging.getLogger("evenhand")

# Where a stage goes, given its name in the loop, the command and the settings.
Place = Callable[[str, str, Any], Path]


@dataclass(frozen=True)
class Stage:
    """One run of a command: what it is told, and the folders of the stages that must be finished before."""

    command: str
    settings: Any
    needs: tuple[Path, ...] = ()

    @property
    def folder(self) -> Path:
        return self.settings.output_dir

    @property
    def loads_model(self) -> bool:
        """Whether a GPU is of use to it: labelling is arithmetic."""
        return self.command != "label"

    def run(self) -> None:
        """Run it, or find that it is finished."""
        run_command(self.command, self.settings)


@dataclass(frozen=True)
class Plan:
    """The stages of one method in the order they run, and the folders that its results are read from."""

    method: str
    seed: int
    stages: tuple[Stage, ...]
    before: Path
    labels: Path | None  # of the first round; None where the method trains nothing
    tunings: tuple[Path, ...]
    after: Path
    after_without_tag: Path | None
    comparison: Path
    decoding: str
    allow_no_bias: bool = False

    def nothing_to_remove(self) -> str:
        """Return why there is nothing to tune, once the base is measured: no bias of it is shown; else ""."""
        if self.allow_no_bias:
            return ""
        pooled = find_score(read_scores(self.before / SCORES), HEADLINE)
        if bias_shown(pooled):
            return ""
        place = display_name(str(self.before))
        return (
            f"no bias of the base model can be shown: pooled FGB* is {score_text(pooled)} ({place}), so there is "
            "nothing to remove, and tuning could only do harm. Measure with more prompts (measure.prompts.descriptors, "
            "per_cell), or tune it all the same by --allow_no_bias true."
        )


def plans(loop: LoopSettings, method: str, place: Place) -> list[Plan]:
    """Return what one method takes, under the decoding that is labelled and, if there is one, under the second.

    Both tune one model; the second decoding differs in what is measured alone.

    Raises: see `plan`.
    """
    return [plan(loop, method, place, second) for second in (False, True)[: 1 + (loop.second_decoding is not None)]]


def plan(loop: LoopSettings, method: str, place: Place, second: bool = False) -> Plan:
    """Return what one method takes, from the first measurement to the comparison; `second`: by the second decoding.

    Raises:
        InputError: prompts that cannot be split into two sides, metrics that do not begin with generation bias, or an
            unknown method.
    """
    _check(loop)
    stages: list[Stage] = []
    tracked = {"report_to": loop.report_to, "log_artifacts": loop.log_artifacts, "group": loop.output_dir.name}

    def add(name: str, command: str, cls: type, part: Any, *needs: Path, **further: Any) -> Path:
        settings = _with(cls, part, **tracked, **further)
        settings = replace(settings, output_dir=place(name, command, settings))
        stages.append(Stage(command, settings, needs))
        return settings.output_dir

    def measure(name: str, part: Any, *needs: Path, **further: Any) -> Path:
        return add(name, "measure", MeasureSettings, part, *needs, seed=loop.seed, show=False, **further)

    module = load_method(method)
    trusted = bool(models_with_code(as_settings(loop.measure)))  # later stages read what these settings made
    training = loop.tune.training.with_method_defaults(module)
    measured, under = loop.measure, ""
    if second:
        measured = replace(loop.measure, decoding=loop.second_decoding, capabilities=[])
        under = "second_decoding/"
    before = measure(f"{under}before", measured)
    model, tuned_before, labels, tunings = loop.measure.model, (), [], []
    if module.TRAINER is None:
        model, tuned_before = _instructed(loop, module), (before,)
    for number in range(1, 1 + (loop.rounds if module.TRAINER else 0)):
        # The first round's responses and labels are every method's.
        shared, of_method = ("", f"{method}/") if number == 1 else (f"{method}/round_{number}/",) * 2
        responses = measure(f"{shared}train", _to_label(loop, model), *tuned_before, split="train")
        labels.append(
            add(f"{shared}label", "label", LabelSettings, loop.label, responses, responses=responses, seed=loop.seed)
        )
        told = {"labels": labels[-1], "method": method, "seed": loop.seed, "trust_remote_code": trusted}
        tuning = replace(loop.tune, training=training)
        tunings.append(add(f"{of_method}tune", "tune", TuneSettings, tuning, labels[-1], **told))
        # The adapter names its base by itself, at the revision that was tuned.
        model = replace(loop.measure.model, name=str(tunings[-1] / ADAPTER_FOLDER), revision=None)
        tuned_before = (tunings[-1],)
    # Comparisons score all responses by the base; what a tuned model makes of its own would be in no report.
    unscored = replace(measured.generation_bias, relevance=False)
    families = [FAMILY] if model.system_prompt else measured.metrics  # the others ask without any
    asked = replace(measured.with_metrics(*families), model=model, generation_bias=unscored)
    after = measure(f"{method}/{under}after", asked, *tuned_before)
    after_without_tag = None
    if module.INFERENCE_TAG and loop.measure_without_tag and not second:
        asked_without = replace(unscored, control_tag="", permutations=0)
        alone = loop.measure.with_metrics(FAMILY)
        alone = replace(alone, model=model, generation_bias=asked_without, capabilities=[])
        after_without_tag = measure(f"{method}/untagged", alone, *tuned_before)
    first, last = (next(iter(found), None) for found in (labels, reversed(tunings)))
    folders = {
        "before": before,
        "after": after,
        "labels": first,
        "tuning": last,
        "after_without_tag": after_without_tag,
    }
    needed = [folder for folder in folders.values() if folder is not None]
    told = {"generation_bias": ComparisonSettings(relevance=measured.generation_bias.relevance), "show": False}
    told["trust_remote_code"] = trusted
    comparison = add(f"{method}/{under}compare", "compare", CompareSettings, None, *needed, **folders, **told)
    folders = (before, first, tuple(tunings), after, after_without_tag, comparison)
    return Plan(method, loop.seed, tuple(stages), *folders, measured.decoding.title(), loop.allow_no_bias)


def _instructed(loop: LoopSettings, method: Method) -> ModelSettings:
    """Return the model as it is told to answer evenly, after whatever it is told already."""
    told = loop.measure.model.system_prompt, loop.instruction or method.INSTRUCTION
    return replace(loop.measure.model, system_prompt="\n".join(filter(None, told)))


def _to_label(loop: LoopSettings, model: Any) -> Any:
    """Return the measurement whose responses are labelled: by one classifier, on the train side."""
    measured = loop.measure.with_metrics(FAMILY)
    # The second classifier must not shape a label.
    alone = {
        "permutations": 0,
        "relevance": False,
        "second_style_classifier": None,
        "offensiveness": ClassifierSettings(),
    }
    return replace(
        measured,
        model=model,
        prompts=replace(measured.prompts, per_cell=loop.train_per_cell),
        capabilities=[],
        generation_bias=replace(measured.generation_bias, **alone),
    )


def _with(cls: type, part: Any, **further: Any) -> Any:
    """Return the settings of a command: those of its part of an experiment, and the run's."""
    of_part = {} if part is None else {each.name: getattr(part, each.name) for each in fields(part)}
    return cls(**{**of_part, **further})


def by_name(folder: Path) -> Place:
    """Return the place of a stage that is called by its name."""
    return lambda name, command, settings: folder / name


def by_content(folder: Path) -> Place:
    """Return the place of a stage that is called by its command and a hash of its settings: equal stages are one.

    Stages that it reads are called by their names in the same folder, wherever that is.
    """

    def place(name: str, command: str, settings: Any) -> Path:
        told = {key: value for key, value in as_settings(settings).items() if key not in NOT_COMPARED}
        text = json.dumps([command, _named_from(folder, told)], sort_keys=True, ensure_ascii=False)
        digest = hashlib.sha256(text.encode()).hexdigest()
        return folder / f"{command}-{digest[:12]}"

    return place


def _named_from(folder: Path, value: Any) -> Any:
    """Return plain settings with what lies in the folder named by the way from it."""
    if isinstance(value, dict):
        return {key: _named_from(folder, item) for key, item in value.items()}
    if isinstance(value, str) and Path(value).is_relative_to(folder):
        return f"./{Path(value).relative_to(folder)}"
    return value


def refuse_stages_outside(folder: Path, plans: Iterable[Plan]) -> None:
    """Raise InputError if a stage's folder is a symbolic link that leads out of the experiment's folder."""
    for place in dict.fromkeys(stage.folder for plan in plans for stage in plan.stages):
        refuse_links_out(place, "output_dir", within=folder, leave_out=TRACKERS)


def run(
    plans: Sequence[Plan], launching: Launching, on_finished: Callable[[Plan], None] = lambda plan: None
) -> dict[str, str]:
    """Run every stage of the plans once, where and how many at once they are told; call `on_finished` as a plan ends.

    A tuning that a guard refuses ends its own plan and no other, and so does a base without a bias, before anything is
    tuned.

    Returns:
        Why a plan was refused, by the folder of its comparison.

    Raises:
        InputError: any other mistake, as soon as it shows, of settings before the first stage; see `launched`.
    """
    processes.on_rank_zero(lambda: check_stages(plans))
    waiting = {stage.folder: stage for plan in plans for stage in plan.stages}
    started, total = 0, len(waiting)
    unfinished = list(plans)
    finished: set[Path] = set()
    refused: dict[Path, str] = {}
    at_once = launching.most_at_once()
    with launched(launching) as start:
        running: dict[Future[InputError | None], Stage] = {}
        while waiting or running:
            for stage in list(waiting.values()):
                reasons = [refused[folder] for folder in stage.needs if folder in refused]
                if reasons:
                    refused[stage.folder] = reasons[0]
                    del waiting[stage.folder]
                elif len(running) < at_once and finished.issuperset(stage.needs):
                    del waiting[stage.folder]
                    started += 1
                    log.info("stage %d of %d: %s → %s", started, total, stage.command, stage.folder)
                    running[start(stage)] = stage
            done, _ = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                stage = running.pop(future)
                mistake = future.result()
                if isinstance(mistake, Refused):
                    log.warning("%s: refused: %s", stage.folder, mistake)
                    refused[stage.folder] = str(mistake)
                elif mistake:
                    raise mistake
                else:
                    finished.add(stage.folder)
            refused |= _without_bias(plan for plan in unfinished if plan.before in finished)
            for plan in [plan for plan in unfinished if {plan.comparison} & ({*finished} | {*refused})]:
                unfinished.remove(plan)
                processes.on_rank_zero(partial(on_finished, plan))
            wanted = {stage.folder for plan in unfinished for stage in plan.stages}
            waiting = {folder: stage for folder, stage in waiting.items() if folder in wanted}
    return {str(plan.comparison): refused[plan.comparison] for plan in plans if plan.comparison in refused}


def _without_bias(plans: Iterable[Plan]) -> dict[Path, str]:
    """Return why there is nothing to tune, by the comparisons that the plans would end with."""
    reasons = {plan.comparison: plan.nothing_to_remove() for plan in plans}
    for reason in dict.fromkeys(filter(None, reasons.values())):
        log.warning(reason)
    return {comparison: reason for comparison, reason in reasons.items() if reason}


def _check(loop: LoopSettings) -> None:
    if loop.measure.metrics[0] != FAMILY:
        raise InputError(f"measure.metrics: {loop.measure.metrics} must begin with {FAMILY}, which the loop reduces.")
    prompts = loop.measure.prompts
    if prompts.file and not (prompts.train_file or prompts.split_by):
        raise InputError(
            "measure.prompts.file: the loop needs prompts to train on besides; give measure.prompts.train_file, or "
            "measure.prompts.split_by, a column whose values the two sides do not share."
        )
