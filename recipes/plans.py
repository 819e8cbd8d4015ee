"""Plans of experiments: the stages of each method, with their settings and folders, before any stage runs.

The stages are: measure, label, tune, measure again, compare. The loop names the folder of a stage after the stage; an
ablation names the folder by a hash of the stage's settings, so that equal stages of several points are one stage.
"""

import hashlib
import json
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.families.generation_bias.report.report_data import HEADLINE, is_bias_significant
from evenhand.evaluation.families.generation_bias.settings import ComparisonSettings, ResamplingSettings, samples
from evenhand.evaluation.models.revisions import ADAPTER_FOLDER
from evenhand.evaluation.report.numbers import score_text
from evenhand.evaluation.runs.files import check_links_inside
from evenhand.evaluation.runs.lock import TRACKERS
from evenhand.evaluation.score import display_name, find_score, read_scores
from evenhand.evaluation.settings import ClassifierSettings, ModelSettings, as_settings, identity_of
from evenhand.mitigation.methods import Method, load_method
from evenhand.recipes.commands import run_command
from evenhand.recipes.finished_runs import models_with_code
from evenhand.recipes.label import EXPONENTS
from evenhand.recipes.measure import SCORES
from evenhand.recipes.preflight import check_experiment
from evenhand.recipes.settings import (
    FAMILY,
    CompareSettings,
    LabelSettings,
    LoopSettings,
    Measurement,
    MeasureSettings,
    TuneSettings,
)

log = logging.getLogger("evenhand")

# Returns the folder of a stage, given its name in the loop, its command and its settings.
StageFolders = Callable[[str, str, Any], Path]


@dataclass(frozen=True)
class Stage:
    """One run of a command: its settings, and the folders of the stages that must be finished before it."""

    command: str
    settings: Any
    needs: tuple[Path, ...] = ()

    @property
    def folder(self) -> Path:
        return self.settings.output_dir

    @property
    def loads_model(self) -> bool:
        """Whether the stage loads a model and can therefore use a GPU."""
        return self.command != "label"

    def run(self) -> None:
        """Run the stage; return at once if it is finished."""
        run_command(self.command, self.settings)


@dataclass(frozen=True)
class Plan:
    """The stages of one method in the order they run, and the folders of its results."""

    method: str
    seed: int
    stages: tuple[Stage, ...]
    before: Path
    labels: Path | None  # folder of the first round; None if the method trains nothing
    tunings: tuple[Path, ...]
    after: Path
    after_without_tag: Path | None
    comparison: Path
    decoding: str
    allow_no_bias: bool = False

    def reason_to_stop(self) -> str:
        """Return why the base model is not tuned (its measurement shows no bias); "" if it is tuned."""
        if self.allow_no_bias:
            return ""
        pooled = find_score(read_scores(self.before / SCORES), HEADLINE)
        if is_bias_significant(pooled):
            return ""
        return (
            f"the base model shows no bias: pooled FGB* is {score_text(pooled)} ({display_name(str(self.before))}), so "
            "tuning cannot reduce it. Measure with more prompts (measure.prompts.descriptors, per_cell), or tune the "
            "model anyway with --allow_no_bias true."
        )


def plan_decodings(loop: LoopSettings, method: str, stage_folder: StageFolders) -> list[Plan]:
    """Return the plan of one method, and if the loop has a second decoding, a plan that measures with that decoding.

    Both plans share labels and tuning. A method that draws from candidates is measured with decodings that sample.

    Raises: see `plan_method`.
    """
    plans = [plan_method(loop, method, stage_folder)]
    other = loop.second_decoding
    if other is not None and load_method(method).RESAMPLES and not samples(other):
        log.info(f"{method} is not measured with second_decoding, which does not sample: all candidates would be equal")
    elif other is not None:
        plans.append(plan_method(loop, method, stage_folder, second_decoding=True))
    return plans


def plan_method(loop: LoopSettings, method: str, stage_folder: StageFolders, *, second_decoding: bool = False) -> Plan:
    """Return the stages of one method, from the measurement of the base to the comparison.

    Raises:
        InputError: a prompts file has no train split, the metrics do not begin with generation bias, or the method is
            unknown.
    """
    check_experiment(loop)
    stages: list[Stage] = []
    tracked = {"report_to": loop.report_to, "log_artifacts": loop.log_artifacts, "group": loop.output_dir.name}

    def add(name: str, command: str, cls: type, part: Any, *needs: Path, **fields_of_run: Any) -> Path:
        settings = _command_settings(cls, part, **tracked, **fields_of_run)
        settings = replace(settings, output_dir=stage_folder(name, command, settings))
        stages.append(Stage(command, settings, needs))
        return settings.output_dir

    def measure(name: str, part: Any, *needs: Path, **fields_of_run: Any) -> Path:
        return add(name, "measure", MeasureSettings, part, *needs, seed=loop.seed, show=False, **fields_of_run)

    module = load_method(method)
    trusts_code = bool(models_with_code(as_settings(loop.measure)))  # then later stages may run the models' code, too
    # The default learning rate depends on the model's size, which the tuning reads.
    training = loop.tune.training.with_method_defaults(module, None)
    measurement, subfolder = loop.measure, ""
    if second_decoding:
        measurement = replace(loop.measure, decoding=loop.second_decoding, capabilities=[])
        subfolder = "second_decoding/"
    compared = replace(measurement.generation_bias, for_comparisons=True)  # once for all methods and thresholds
    before = measure(f"{subfolder}before", replace(measurement, generation_bias=compared))
    model, needed, labels, tunings = loop.measure.model, (), [], []
    if module.INSTRUCTION:
        model, needed = _with_instruction(loop, module), (before,)
    for number in range(1, 1 + (loop.rounds if module.TRAINER else int(module.RESAMPLES))):
        # All methods share the responses and labels of the first round.
        shared, of_method = ("", f"{method}/") if number == 1 else (f"{method}/round_{number}/",) * 2
        responses = measure(f"{shared}train", _labelled_measurement(loop, model), *needed, split="train")
        labels.append(
            add(f"{shared}label", "label", LabelSettings, loop.label, responses, responses=responses, seed=loop.seed)
        )
        needed = (labels[-1],)
        if module.RESAMPLES:
            break
        fields_of_run = {"labels": labels[-1], "method": method, "seed": loop.seed, "trust_remote_code": trusts_code}
        tuning = replace(loop.tune, training=training)
        tunings.append(add(f"{of_method}tune", "tune", TuneSettings, tuning, labels[-1], **fields_of_run))
        # The adapter's files name its base and the revision of the base.
        model = replace(loop.measure.model, name=str(tunings[-1] / ADAPTER_FOLDER), revision=None)
        needed = (tunings[-1],)
    if tunings and loop.adapter_strength is not None:
        if module.TAGS:
            raise InputError(
                f"adapter_strength: {method} also changes embeddings, which have no strength; leave it out."
            )
        model = replace(model, adapter_strength=loop.adapter_strength)
    # A comparison scores the responses of both models by the base; scores by the tuned model are in no report.
    unscored = replace(measurement.generation_bias, relevance=False)
    if module.RESAMPLES:
        exponents = labels[-1] / f"{EXPONENTS}.parquet"
        unscored = replace(unscored, resampling=ResamplingSettings(exponents=exponents, candidates=loop.candidates))
    # Other families use no system prompt, and no responses that could be resampled.
    families = [FAMILY] if model.system_prompt or module.RESAMPLES else measurement.metrics
    tuned = replace(measurement.with_metrics(*families), model=model, generation_bias=unscored)
    after = measure(f"{method}/{subfolder}after", tuned, *needed)
    after_without_tag = None
    if module.INFERENCE_TAG and loop.measure_without_tag and not second_decoding:
        without_tag = replace(unscored, control_tag="", permutations=0)
        alone = loop.measure.with_metrics(FAMILY)
        alone = replace(alone, model=model, generation_bias=without_tag, capabilities=[])
        after_without_tag = measure(f"{method}/untagged", alone, *needed)
    first, last = labels[0] if labels else None, tunings[-1] if tunings else None
    folders = {
        "before": before,
        "after": after,
        "labels": first,
        "tuning": last,
        "after_without_tag": after_without_tag,
    }
    needed = tuple(folder for folder in folders.values() if folder is not None)
    relevance = ComparisonSettings(relevance=measurement.generation_bias.relevance)
    comparison = add(
        *(f"{method}/{subfolder}compare", "compare", CompareSettings, None, *needed),
        **folders,
        generation_bias=relevance,
        trust_remote_code=trusts_code,
        show=False,
    )
    return Plan(
        method=method,
        seed=loop.seed,
        stages=tuple(stages),
        before=before,
        labels=first,
        tunings=tuple(tunings),
        after=after,
        after_without_tag=after_without_tag,
        comparison=comparison,
        decoding=measurement.decoding.title(),
        allow_no_bias=loop.allow_no_bias,
    )


def _with_instruction(loop: LoopSettings, method: Method) -> ModelSettings:
    """Return the model with the method's instruction at the end of its system prompt."""
    prompts = loop.measure.model.system_prompt, loop.instruction or method.INSTRUCTION
    return replace(loop.measure.model, system_prompt="\n".join(filter(None, prompts)))


def _labelled_measurement(loop: LoopSettings, model: ModelSettings) -> Measurement:
    """Return the settings of the measurement whose responses are labelled, by the first style classifier alone."""
    measurement = loop.measure.with_metrics(FAMILY)
    one_classifier = replace(
        measurement.generation_bias,
        permutations=0,
        relevance=False,
        second_style_classifier=None,  # must not influence a label
        offensiveness=ClassifierSettings(),
    )
    return replace(
        measurement,
        model=model,
        prompts=replace(measurement.prompts, per_cell=loop.train_per_cell),
        capabilities=[],
        generation_bias=one_classifier,
    )


def _command_settings(cls: type, part: Any, **fields_of_run: Any) -> Any:
    """Return the settings of a command: the fields of `part`, a group of the experiment, and the fields of the run."""
    fields_of_part = {} if part is None else {field.name: getattr(part, field.name) for field in fields(part)}
    return cls(**{**fields_of_part, **fields_of_run})


def named_folders(folder: Path) -> StageFolders:
    """Return a function that returns the folder of a stage, which is named after the stage."""
    return lambda name, command, settings: folder / name


def hashed_folders(folder: Path) -> StageFolders:
    """Return a function that returns the folder of a stage, named by the stage's command and a hash of its settings.

    Equal stages have the same folder. Paths inside `folder` are hashed relative to it, so that it can be moved.
    """

    def stage_folder(name: str, command: str, settings: Any) -> Path:
        compared = identity_of(settings, with_paths=True)
        text = json.dumps([command, _relative_to(folder, compared)], sort_keys=True, ensure_ascii=False)
        digest = hashlib.sha256(text.encode()).hexdigest()
        return folder / f"{command}-{digest[:12]}"

    return stage_folder


def _relative_to(folder: Path, value: Any) -> Any:
    """Return nested settings in which paths inside `folder` are relative to it."""
    if isinstance(value, dict):
        return {key: _relative_to(folder, item) for key, item in value.items()}
    if isinstance(value, str) and Path(value).is_relative_to(folder):
        return f"./{Path(value).relative_to(folder)}"
    return value


def refuse_stages_outside(folder: Path, plans: Iterable[Plan]) -> None:
    """Raise InputError if a stage's folder is a symbolic link that leads out of the experiment's folder."""
    for stage_folder in dict.fromkeys(stage.folder for plan in plans for stage in plan.stages):
        check_links_inside(stage_folder, "output_dir", within=folder, leave_out=TRACKERS)
