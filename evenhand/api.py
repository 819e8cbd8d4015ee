"""The Python API: measure, label, tune and compare as functions that return a run (docs/python_api.md).

Each function takes the settings of its command as arguments, groups as dictionaries, and does what the command does:
a finished run returns at once, a killed one resumes. The commands are imported in the functions, because they import
PyTorch, and a program that only reads runs needs none of it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from evenhand.evaluation.doors import python_door
from evenhand.evaluation.errors import InputError
from evenhand.evaluation.models.revisions import ADAPTER_FOLDER, model_revision
from evenhand.evaluation.report.output import REPORT
from evenhand.evaluation.runs.record import read_record
from evenhand.evaluation.score import SCORES, BiasScore, read_scores
from evenhand.evaluation.settings import checked
from evenhand.evaluation.tables import read_table

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


@dataclass(frozen=True)
class Run:
    """A finished run of a command.

    Attributes:
        folder: the run's folder, which `evenhand report`, `label`, `tune` and `compare` read.
    """

    folder: Path

    @property
    def scores(self) -> list[BiasScore]:
        """The scores of a measurement or a comparison; natural units.

        Raises:
            InputError: the command writes no scores.
        """
        return read_scores(self.folder / SCORES)

    @property
    def tables(self) -> list[str]:
        """The names of the run's tables."""
        return sorted(path.stem for path in self.folder.glob("*.parquet"))

    def table(self, name: str) -> pd.DataFrame:
        """Return a table, such as "responses", "styles", "effects" or "labels".

        Raises:
            InputError: the folder has no run, or the run has no such table.
        """
        if name not in self.tables:
            _ = self.record  # raises if there is no run
            listed = ", ".join(self.tables) or "none"
            raise InputError("table", f"{self.folder} has no table {name!r}; its tables are: {listed}.")
        return read_table(self.folder / f"{name}.parquet")

    @property
    def page(self) -> Path:
        """The path of the report, a HTML page."""
        return self.folder / f"{REPORT}.html"

    @property
    def adapter(self) -> Path:
        """The folder of the tuned model that `tune` made; measure it as a model."""
        return self.folder / ADAPTER_FOLDER

    @property
    def record(self) -> Mapping[str, Any]:
        """The run's record: settings, fingerprints of its inputs, facts and times.

        Raises:
            InputError: the folder has no run.
        """
        record = read_record(self.folder, "run")
        if record is None:
            raise InputError("run", f"{self.folder} has no run; give the folder of one.")
        return record


@python_door()
def measure(
    model: "str | Path | Mapping[str, Any] | PreTrainedModel",
    tokenizer: "PreTrainedTokenizerBase | None" = None,
    *,
    system_prompt: str | None = None,
    reasoning: Sequence[str] | None = None,
    **settings: object,
) -> Run:
    """Measure a model, and return the run.

    Args:
        model: a Hugging Face id, a folder, such as `Run.adapter`, or settings of a model: {"name": …, "dtype": …}; or
            a causal or encoder-decoder model of transformers that is loaded, as `Trainer` has one after training.
        tokenizer: the tokenizer of a loaded model.
        system_prompt, reasoning: settings of a loaded model, as `model.system_prompt` and `model.reasoning`.
        settings: the settings of `evenhand measure`, such as output_dir="runs/before", prompts={"descriptors": 40} and
            generation_bias={"style_classifier": …, "style_clusters": …}; report_to is "none" by default.

    Raises:
        InputError: a setting or an input cannot be used.
    """
    from evenhand.recipes import measure as measure_command
    from evenhand.recipes.automatic import resolve
    from evenhand.recipes.settings import MeasureSettings

    if tokenizer is None:
        if not isinstance(model, str | Path | Mapping):
            raise InputError("tokenizer", "a loaded model needs its tokenizer; give it as the second argument.")
        if system_prompt is not None or reasoning is not None:
            raise InputError("model", 'give settings of a named model with it: {"name": …, "system_prompt": …}.')
        values = {"model": model if isinstance(model, Mapping) else str(model), **settings}
        measured = resolve(_settings(MeasureSettings, values, "measure"))
        measure_command.measure(measured, show=False)
        return Run(measured.output_dir)
    if isinstance(model, str | Path | Mapping):
        raise InputError("model", f"{model} is no loaded model; give one with its tokenizer, or the name alone.")
    from evenhand.evaluation.models.loading import loaded_dialogue_model

    name = model.config.name_or_path or "model"
    named = {"name": name, "system_prompt": system_prompt, "reasoning": None if reasoning is None else list(reasoning)}
    measured = resolve(_settings(MeasureSettings, {"model": named, **settings}, "measure"))
    with loaded_dialogue_model(model, tokenizer, "", system_prompt or "", reasoning) as loaded:
        measure_command.measure(measured, show=False, loaded=loaded)
    return Run(measured.output_dir)


@python_door()
def label(run: Run | str | Path, **settings: object) -> Run:
    """Label the responses of a measurement as `bias` or `no_bias`, and return the run of the labels.

    Args:
        run: a measurement with split="train", or its folder.
        settings: the settings of `evenhand label`, such as quantile=0.7.

    Raises:
        InputError: a setting or the measurement cannot be used.
    """
    from evenhand.recipes import label as label_command
    from evenhand.recipes.tuning_settings import LabelSettings

    labelled = _settings(LabelSettings, {"run": _folder(run), **settings}, "label")
    label_command.label(labelled)
    return Run(labelled.output_dir)


@python_door()
def tune(
    labels: Run | str | Path,
    method: str | None = None,
    *,
    model: "PreTrainedModel | None" = None,
    tokenizer: "PreTrainedTokenizerBase | None" = None,
    **settings: object,
) -> Run:
    """Tune the labelled model with a method, and return the run; the tuned model is `Run.adapter`.

    Args:
        labels: a run of `label`, or its folder.
        method: the name of a method that trains; None: distill for a model with a chat template, else exchange.
        model: the labelled model, if it is loaded already. It is not changed. It must also be saved under its name,
            `model.config.name_or_path`, since the adapter is loaded onto that.
        tokenizer: the tokenizer of a loaded model.
        settings: the settings of `evenhand tune`, such as training={"epochs": 1}.

    Raises:
        InputError: a setting or the labels cannot be used, the model is not the labelled one, or not saved as it is, or
            the tuned model was rejected.
    """
    from evenhand.recipes import tune as tune_command
    from evenhand.recipes.tuning_settings import TuneSettings

    tuned = _settings(TuneSettings, {"labels": _folder(labels), "method": method, **settings}, "tune")
    if model is None or tokenizer is None:
        if model is not None or tokenizer is not None:
            raise InputError("tokenizer", "a loaded model and its tokenizer belong together; give both, or none.")
        tune_command.tune(tuned)
        return Run(tuned.output_dir)
    from evenhand.evaluation.models.in_memory import check_saved
    from evenhand.evaluation.models.loading import loaded_dialogue_model

    name = model.config.name_or_path or ""
    revision = model_revision(name, None, None)  # raises if the model is not saved
    check_saved(model, name, trust_remote_code=tuned.trust_remote_code)
    with loaded_dialogue_model(model, tokenizer) as loaded:
        tune_command.tune(tuned, loaded=replace(loaded, name=name, revision=revision))
    return Run(tuned.output_dir)


@python_door()
def compare(
    before: Run | str | Path,
    after: Run | str | Path,
    *,
    labels: Run | str | Path | None = None,
    tuning: Run | str | Path | None = None,
    **settings: object,
) -> Run:
    """Compare two measurements over the same prompts, and return the run with the differences.

    Args:
        before: the measurement of the base model, or its folder.
        after: the measurement of the other model.
        labels: the run of `label` between them, for bias values.
        tuning: the run of `tune` between them, for training curves.
        settings: the settings of `evenhand compare`.

    Raises:
        InputError: a setting or a run cannot be used.
    """
    from evenhand.recipes import compare as compare_command
    from evenhand.recipes.command_settings import CompareSettings

    values = {"before": _folder(before), "after": _folder(after), **settings}
    for name, run in (("labels", labels), ("tuning", tuning)):
        if run is not None:
            values[name] = _folder(run)
    compared = _settings(CompareSettings, values, "compare")
    compare_command.compare(compared, show=False)
    return Run(compared.output_dir)


def _folder(run: Run | str | Path) -> str:
    return str(run.folder if isinstance(run, Run) else run)


def _settings(kind: type, values: Mapping[str, object], source: str) -> Any:
    return checked(kind, {"report_to": "none", **values}, source)
