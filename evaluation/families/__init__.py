"""Families of metrics: each is a folder here, found by its name; nothing else has to know of it.

A family `x` is a package with the modules

- `settings`: `Settings`, a dataclass of what only this family is told, and `inputs(told)`. It imports nothing heavy.
- `measure`: `measure(run, told)`, which keeps its rows in the run's folder and returns the scores.
- `page`: `page(measured, known)`, the report of one run.

and, if two runs can be compared by it,

- `compare`: `differences(run, before, after, told)`, and `page.comparison_page(before, after, changes, known)`. A class
  `ComparisonSettings` in `settings` is what the comparison is told; without one, `told` is None.

What they have in common (folders, going on after a kill, tracking, files of the report) is the caller's: the commands
`measure` and `compare`. `Family` has the types.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from pkgutil import iter_modules
from types import ModuleType
from typing import TYPE_CHECKING, Any, Protocol

from evenhand.evaluation.errors import InputError, unknown_name
from evenhand.evaluation.settings import TESTBED, DecodingSettings, ModelSettings, PromptSettings

if TYPE_CHECKING:  # what these import would delay the command line
    import pandas as pd

    from evenhand.evaluation.report.page import Page
    from evenhand.evaluation.results import BiasScore
    from evenhand.evaluation.runs.folders import Run


@dataclass(frozen=True)
class MeasureConfig:
    """What a family is told: the groups of settings that all share, and its own `settings`.

    `side` is the side of the split of prompts: "measure", "train" or "all". `embedded` says what the name "testbed"
    stands for, by the field that has it ("model", "style_classifier", "pairs", …). `responses` is a file of responses
    that a model gave elsewhere; it is then not loaded. `capabilities` are tasks of lm-evaluation-harness.
    """

    model: ModelSettings = field(default_factory=ModelSettings)
    prompts: PromptSettings = field(default_factory=PromptSettings)
    decoding: DecodingSettings = field(default_factory=DecodingSettings)
    settings: Any = None
    seed: int = 0
    split: str = "measure"
    embedded: Mapping[str, Path] = field(default_factory=dict)
    responses: Path | None = None
    capabilities: Sequence[str] = ()

    @property
    def loads_model(self) -> bool:
        """Whether the model itself is loaded, and can be asked what only weights can say."""
        return self.responses is None and self.model.server is None

    def scored_model(self) -> dict[str, str]:
        """Return fingerprints of a model that is asked how likely sentences are, loaded or served.

        Raises:
            InputError: it cannot be found, or not its tokenizer.
        """
        from evenhand.evaluation.models.revisions import model_revision
        from evenhand.evaluation.models.server import served_fingerprints

        if self.model.server is not None:
            return served_fingerprints(self.model)
        name = self.place(self.model.name, "model")
        return {"model": model_revision(name, self.model.revision, self.model.base)}

    def place(self, name: str, where: str) -> str:
        """Return what a name stands for in the field `where`: the name itself, or the embedded file or folder.

        Raises:
            InputError: it is "testbed", and the testbed has nothing for this field.
        """
        if name != TESTBED:
            return name
        if where not in self.embedded:
            raise InputError(f"{where}: the testbed has none for this family of metrics; give one (--{where} NAME).")
        return str(self.embedded[where])


@dataclass(frozen=True)
class FamilyRun:
    """What lies in a run's folder, and what the family was told: for reports and comparisons."""

    folder: Path
    config: Any = None

    @cached_property
    def scores(self) -> "list[BiasScore]":
        """All scores of the run, those of other families too."""
        from evenhand.evaluation.results import read_scores

        return read_scores(self.folder / "scores.json")

    def has(self, name: str) -> bool:
        """Return whether the run left the table `name`."""
        return (self.folder / f"{name}.parquet").exists()

    def table(self, name: str) -> "pd.DataFrame":
        """Return the rows of `name`.parquet."""
        from evenhand.evaluation.runs.tables import read_table

        return read_table(self.folder / f"{name}.parquet")

    def signature(self, *metrics: str) -> Mapping[str, Any]:
        """Return the signature of the first score of these metrics; {} where there is none."""
        return next((score.signature for score in self.scores if score.metric in metrics), {})

    def signature_lines(self, *metrics: str) -> list[str]:
        """Return the signature of the first score of these metrics in one line, to paste; [] where there is none."""
        from evenhand.evaluation.results import signature_line

        return [signature_line(score) for score in self.scores if score.metric in metrics][:1]


@dataclass(frozen=True)
class ReportContext:
    """What the caller knows of a measured model besides: its true scores, if they are, and notes to readers."""

    truth: "Sequence[BiasScore]" = ()
    notes: Sequence[str] = ()


class Family(Protocol):
    """What the modules of a family hold, taken together."""

    Settings: type

    def inputs(self, config: MeasureConfig) -> Mapping[str, Any]:
        """Return fingerprints of what is read, by name; raise InputError for what cannot be."""

    def measure(self, run: "Run", config: MeasureConfig) -> "list[BiasScore]":
        """Return the scores; what lies in the run's folder is not made again."""

    def page(self, measured: FamilyRun, known: ReportContext) -> "Page":
        """Return the report."""

    def differences(self, run: "Run", before: FamilyRun, after: FamilyRun, config: Any) -> "list[BiasScore]":
        """Return what changed between two runs, paired."""

    def comparison_page(self, before: FamilyRun, after: FamilyRun, changes: FamilyRun, known: ReportContext) -> "Page":
        """Return the report of two runs side by side."""


def names() -> list[str]:
    """Return the names of the families that there are."""
    return [module.name for module in iter_modules(__path__) if module.ispkg]


def module_of(name: str, part: str) -> ModuleType:
    """Return a module of a family: "settings", "measure", "compare" or "page".

    Raises:
        InputError: there is no such family.
    """
    if name not in names():
        raise unknown_name("metrics", name, names())
    return import_module(f"{__name__}.{name}.{part}")


def settings_of(name: str) -> ModuleType:
    """Return the family's module of settings, which imports nothing heavy."""
    return module_of(name, "settings")


def comparable(name: str) -> bool:
    """Return whether two runs can be compared by this family."""
    return name in names() and find_spec(f"{__name__}.{name}.compare") is not None
