"""Families of metrics. Each family is a package in this folder and is found by its name, so a new family needs no
change elsewhere.

A family is a package of these modules:

    settings: `Settings`, a dataclass, and `inputs(config)`, which returns fingerprints of all inputs by name and raises
        InputError for unusable inputs. `--help` imports the module, so it imports no slow library. Optional:
        `ComparisonSettings` and `comparison_inputs(settings)`, the same of a comparison; RECOMPUTABLE, {setting or
        input: the only table that depends on it}; SERVER_APIS, the APIs ("chat", "completions") by which the family
        measures a served model; USES_SYSTEM_PROMPT, whether it sends `model.system_prompt`; READS_RESPONSES, whether
        it samples responses, so that it can score a file of responses.
    measure: `measure(run, config)` returns the scores and writes the tables of their rows; with READS_RESPONSES also
        `write_prompts(path, config)`, which returns the number of prompts.
    metrics: METRICS, an `evaluation.report.formats.Format` for each metric of the scores.
    page: `page(run, context)` returns the report; `comparison_page(before, after, changes, context)` the report of two
        runs side by side.
    compare (optional): `differences(run, before, after, settings)` returns scores of the paired changes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Any

from evenhand.evaluation.errors import InputError, unknown_name
from evenhand.evaluation.settings import DecodingSettings, ModelSettings, PromptSettings

if TYPE_CHECKING:  # imported at run time, these would delay the command line
    import pandas as pd

    from evenhand.evaluation.models.model import Model
    from evenhand.evaluation.score import BiasScore


@dataclass(frozen=True)
class MeasureConfig:
    """The settings of one family's measurement.

    Attributes:
        model, prompts, decoding: settings that all families share.
        settings: an instance of the family's `Settings`.
        seed: seed of prompts, responses and the bootstrap.
        split: the split of prompts: "measure", "train" or "all".
        responses: a file of responses to score; if it is given, no model is loaded.
        capabilities: names of tasks of lm-evaluation-harness.
    """

    model: ModelSettings = field(default_factory=ModelSettings)
    prompts: PromptSettings = field(default_factory=PromptSettings)
    decoding: DecodingSettings = field(default_factory=DecodingSettings)
    settings: Any = None
    seed: int = 0
    split: str = "measure"
    responses: Path | None = None
    capabilities: Sequence[str] = ()

    def open_model(self, tag: str | None = None) -> "Model":
        """Return the measured model, not loaded; `tag` is the control tag, None for the tag that it was tuned with."""
        from evenhand.evaluation.models.loaded import LoadedModel
        from evenhand.evaluation.models.recorded import RecordedModel
        from evenhand.evaluation.models.served import ServedModel

        if self.responses is not None:
            column = self.prompts.descriptor_column
            return RecordedModel(self.model, self.decoding, self.responses, column, tag=tag)
        kind = LoadedModel if self.model.server is None else ServedModel
        return kind(self.model, self.decoding, tag=tag, seed=self.seed)


@dataclass(frozen=True)
class FamilyRun:
    """A finished measurement or comparison by one family: the run's folder and settings."""

    folder: Path
    config: Any = None

    @cached_property
    def scores(self) -> "list[BiasScore]":
        """All scores in the folder."""
        from evenhand.evaluation.score import read_scores

        return read_scores(self.folder / "scores.json")

    @property
    def model_name(self) -> str:
        """The displayed name of the measured model. An absolute path is shortened to its last three parts."""
        from evenhand.evaluation.score import display_name

        return display_name(self.config.model.name)

    def has(self, name: str) -> bool:
        """Return whether the folder contains the table `name`."""
        return (self.folder / f"{name}.parquet").exists()

    def table(self, name: str) -> "pd.DataFrame":
        """Return the table in the file `name`.parquet."""
        from evenhand.evaluation.tables import read_table

        return read_table(self.folder / f"{name}.parquet")

    def signature(self, *metrics: str) -> Mapping[str, Any]:
        """Return the signature of the first score whose metric is in `metrics`; {} if there is none."""
        return next((score.signature for score in self.scores if score.metric in metrics), {})

    def signature_lines(self, *metrics: str) -> list[str]:
        """Return [the signature line of the first score whose metric is in `metrics`], or [] if there is none."""
        from evenhand.evaluation.score import signature_line

        return [signature_line(score) for score in self.scores if score.metric in metrics][:1]


@dataclass(frozen=True)
class ReportContext:
    """Facts about a measured model for its report: its true scores, if they are known, and notes to readers."""

    truth: "Sequence[BiasScore]" = ()
    notes: Sequence[str] = ()


REQUIRED_MODULES = ("settings", "measure", "metrics", "page")


def names() -> list[str]:
    """Return the names of the families."""
    return [module.name for module in iter_modules(__path__) if module.ispkg]


def _load(name: str, part: str) -> Any:
    """Return the module `part` of a family.

    Raises:
        InputError: the family is unknown or lacks a module.
    """
    if name not in names():
        raise unknown_name("metrics", name, names())
    missing = [module for module in REQUIRED_MODULES if find_spec(f"{__name__}.{name}.{module}") is None]
    if missing:
        raise InputError(f"metrics: the family {name} has no module {', '.join(missing)}; see {__name__}.")
    return import_module(f"{__name__}.{name}.{part}")


def settings_of(name: str) -> Any:
    """Return the family's module `settings`, which imports no slow library; errors as in `_load`."""
    return _load(name, "settings")


def measure_of(name: str) -> Any:
    """Return the family's module `measure`; errors as in `_load`."""
    return _load(name, "measure")


def metrics_of(name: str) -> Any:
    """Return the family's module `metrics`; errors as in `_load`."""
    return _load(name, "metrics")


def page_of(name: str) -> Any:
    """Return the family's module `page`; errors as in `_load`."""
    return _load(name, "page")


def comparison_of(name: str) -> Any:
    """Return the family's module `compare`; errors as in `_load`."""
    return _load(name, "compare")


def comparable(name: str) -> bool:
    """Return whether the family has a module `compare`, so that two of its runs can be compared."""
    return name in names() and find_spec(f"{__name__}.{name}.compare") is not None
