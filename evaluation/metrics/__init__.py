"""Families of metrics, each a class in a module of this package; a family's name is the name of its module."""

import inspect
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.facts import Facts, Finding
from evenhand.evaluation.json_values import Json
from evenhand.evaluation.model_settings import (
    DecodingSettings,
    ModelSettings,
    OffensiveClassifierSettings,
    ResponseFileSettings,
)
from evenhand.evaluation.models.kinds import has_weights, model_kind
from evenhand.evaluation.plugins import load_class, module_names, user_folders
from evenhand.evaluation.prompt_settings import PromptSettings, ReferenceSettings, SentenceSettings
from evenhand.evaluation.report.formats import Format, declare, format_of, glossary
from evenhand.evaluation.report.numbers import before_after
from evenhand.evaluation.report.page import Page, Row, Section, Table
from evenhand.evaluation.report.score_sections import (
    DETECTABLE,
    change_sections,
    group_label,
    score_cell,
    score_marks,
    score_sections,
)
from evenhand.evaluation.report.words import listed, sentence
from evenhand.evaluation.score import (
    SCORES,
    BiasScore,
    Signature,
    common_levels,
    display_name,
    find_score,
    read_scores,
    signature_line,
)
from evenhand.evaluation.settings import Access

if TYPE_CHECKING:  # imported at run time, these would delay the command line
    import pandas as pd

    from evenhand.evaluation.data.readers.response_files import ResponseFile
    from evenhand.evaluation.models.base import Model
    from evenhand.evaluation.runs.store import Store

__path__ += user_folders("metrics")


@dataclass(frozen=True)
class FamilyConfig:
    """The settings of one family's measurement.

    Attributes:
        model, prompts, decoding: settings that all families share.
        sentences, references, offensive_classifier: settings that some families share (`Family.SHARED`).
        settings: an instance of the family's `Settings`.
        seed: seed of prompts, responses and the bootstrap.
        split: the split of prompts: "measure", "train" or "all".
        responses: a file of responses to score; if it is given, no model is loaded.
        capabilities: names of tasks of lm-evaluation-harness.
        for_comparisons: also score what comparisons with this run need, once for all of them.
        wrap_model: makes the measured model of the model that the settings name; None: it is measured as it is.
        frame: the columns of responses in memory, which `responses` then only names.
    """

    model: ModelSettings = field(default_factory=ModelSettings)
    prompts: PromptSettings = field(default_factory=PromptSettings)
    decoding: DecodingSettings = field(default_factory=DecodingSettings)
    sentences: SentenceSettings = field(default_factory=SentenceSettings)
    references: ReferenceSettings = field(default_factory=ReferenceSettings)
    offensive_classifier: OffensiveClassifierSettings = field(default_factory=OffensiveClassifierSettings)
    settings: Any = None
    seed: int = 0
    split: str = "measure"
    responses: ResponseFileSettings = field(default_factory=ResponseFileSettings)
    capabilities: Sequence[str] = ()
    for_comparisons: bool = False
    wrap_model: Callable[["Model"], "Model"] | None = None
    frame: dict[str, list] | None = None

    @property
    def has_weights(self) -> bool:
        """Whether the weights of the measured model are loaded here."""
        return has_weights(self.model, has_file=self.responses.name is not None)

    def response_file(self) -> "ResponseFile | None":
        """Return the file of responses to score, None if a model is measured."""
        from evenhand.evaluation.data.readers.response_files import ResponseFile

        if self.responses.name is None:
            return None
        return ResponseFile(
            self.responses.name,
            descriptor_column=self.prompts.descriptor_column,
            named=self.responses.columns,
            since=self.responses.period[0],
            before=self.responses.period[1],
            reasoning=tuple(self.model.reasoning or ()),
            once=getattr(self.settings, "repeated_rows", "") == "once",
            has_ids=self.prompts.file is not None,
            frame=self.frame,
        )

    def open_model(self, *, scores_sentences: bool = False) -> "Model":
        """Return the measured model, not loaded, with the control tag of the family's settings if they have one.

        Args:
            scores_sentences: whether sentences are scored, for which a served model needs its tokenizer.
        """
        file = self.response_file()
        model = model_kind(self.model, has_file=file is not None)(
            self.model,
            self.decoding,
            tag=getattr(self.settings, "control_tag", None),
            seed=self.seed,
            file=file,
            scores_sentences=scores_sentences,
        )
        return model if self.wrap_model is None else self.wrap_model(model)


@dataclass(frozen=True)
class FamilyRun:
    """A finished measurement or comparison by one family.

    Attributes:
        folder: the run's folder.
        config: the run's settings.
        only: the prompts that another run has too, if this one has more; tables then have only their rows.
        common_scores: the scores on these prompts, if they were computed.
        marks_untuned: whether the model was really never tuned on the people whom its prompts mark so.
    """

    folder: Path
    config: Any = None
    only: frozenset[str] | None = None
    common_scores: list[BiasScore] | None = None
    marks_untuned: bool = True

    @cached_property
    def scores(self) -> list[BiasScore]:
        """All scores in the folder, or those on the prompts that another run has too."""
        return read_scores(self.folder / SCORES) if self.common_scores is None else self.common_scores

    @property
    def model_name(self) -> str:
        """The displayed name of the measured model. An absolute path is shortened to its last three parts."""
        return display_name(self.config.model.name)

    def has(self, name: str) -> bool:
        """Return whether the folder contains the table `name`."""
        return (self.folder / f"{name}.parquet").exists()

    def table(self, name: str) -> "pd.DataFrame":
        """Return the table in the file `name`.parquet."""
        from evenhand.evaluation.tables import only_prompts, read_table

        return only_prompts(read_table(self.folder / f"{name}.parquet"), self.only)

    def signature(self, *metrics: str) -> Signature:
        """Return the signature of the first score of all rows whose metric is in `metrics`.

        The scores of a subset can have another one, such as those by the second style classifier. If every score is of
        a subset, the signature is the first one's; if there is no score, it is {}.
        """
        named = [score for score in self.scores if score.metric in metrics]
        overall = [score for score in named if not score.group]
        return next((score.signature for score in [*overall, *named]), {})


def compared_models(before: FamilyRun, after: FamilyRun) -> str:
    """Return the names of both models as one text; if they are equal, with the folders of the runs."""
    names = [before.model_name, after.model_name]
    if names[0] == names[1]:
        names = [f"{run.model_name} ({run.folder.name})" for run in (before, after)]
    return before_after(*names)


class Family(ABC):
    """A family of metrics: what it reads, how it scores a model, and how it reports the scores.

    `--help` imports the class, so its module imports slow libraries only in functions.

    Attributes:
        Settings: a `StrictSettings`; the first line of its docstring is "Name: a question that the scores answer".
        SHARED: the groups of settings that the family shares with others, by their names in `FamilyConfig`.
        ComparisonSettings: settings of `compare`, or None.
        FORMATS: label, unit and ideal of each metric.
        NEEDS: what the family needs of the measured model.
        USES_MODEL: whether the family measures a model; without one, it measures texts or a classifier.
        NEEDS_FLOAT32: whether the rounding of bfloat16 would change the scores; `auto` is float32 then.
        USES_SYSTEM_PROMPT: whether the family sends `model.system_prompt`.
        READS_RESPONSES: whether the family samples responses, so that it can score a file of responses; it then has
            `write_prompts(path, config)`, which writes the prompts and returns their number.
        TITLE: the title of the report.
        WORDS: the files of the family's sentences, in the folder of its module: a Jinja macro for each kind of finding,
            which takes the finding's values; the kinds that families share are in report/words.j2. They may set two
            lists: `notes`, how to read the numbers, and `limits`, what these do not show.
        compare: optional; `compare(store, before, after, settings)` returns the differences of the scores, after minus
            before, of two runs (`FamilyRun`) over the same rows.
    """

    Settings: ClassVar[type]
    SHARED: ClassVar[Sequence[str]] = ()
    ComparisonSettings: ClassVar[type | None] = None
    FORMATS: ClassVar[Sequence[Format]]
    NEEDS: ClassVar[Access] = Access.WEIGHTS
    USES_MODEL: ClassVar[bool] = True
    NEEDS_FLOAT32: ClassVar[bool] = False
    USES_SYSTEM_PROMPT: ClassVar[bool] = False
    READS_RESPONSES: ClassVar[bool] = False
    TITLE: ClassVar[str] = "Scores"
    WORDS: ClassVar[Sequence[str]] = ()
    compare: Callable[..., list[BiasScore]] | None = None

    def __init_subclass__(cls, **options: object) -> None:
        """Declare the formats of the family's metrics when the family is loaded."""
        super().__init_subclass__(**options)
        declare(getattr(cls, "FORMATS", ()))

    @abstractmethod
    def inputs(self, config: FamilyConfig) -> dict[str, Json]:
        """Return fingerprints of all inputs, by name, before any slow work.

        Raises:
            InputError: an input cannot be used.
        """

    def loads_model(self, config: FamilyConfig) -> bool:
        """Return whether the family needs the model itself; False if files have all that the model made."""
        return self.USES_MODEL

    @abstractmethod
    def collect(self, store: "Store", config: FamilyConfig) -> Any:
        """Write the tables of the measured rows to the run's folder, on all ranks, and return what `score` reads."""

    @abstractmethod
    def score(self, store: "Store", config: FamilyConfig, collected: Any) -> list[BiasScore]:
        """Return the scores of the rows; called on rank 0 only."""

    def comparison_inputs(self, settings: Any) -> dict[str, Json]:
        """Return fingerprints, by name, of the inputs of a comparison other than the two runs."""
        return {}

    def headline(self, scores: Sequence[BiasScore]) -> BiasScore | None:
        """Return the score at the top of the report: the first of all rows, else of the first metric, with a value."""
        of_all = [score for score in scores if not score.group]
        defined = [score for score in scores if score.metric == scores[0].metric and math.isfinite(score.value)]
        return next(iter([*of_all, *defined, *scores]), None)

    def find_verdict(self, run: FamilyRun) -> Finding:
        """Return what the scores of one model show."""
        score = self.headline(run.scores)
        return Finding("no_scores") if score is None else Finding("value", {"score": score})

    def find_cautions(self, run: FamilyRun) -> list[Finding]:
        """Return what a reader must know before using the scores, the most important first."""
        return []

    def find_left_out(self, run: FamilyRun) -> list[Finding]:
        """Return what the scores leave out, or of which part of the data they are."""
        return []

    def facts(self, run: FamilyRun) -> Facts:
        """Return what was found in one model, as data."""
        run = self._with_family_scores(run)
        return Facts(
            headline=self.headline(run.scores),
            verdict=self.find_verdict(run),
            cautions=self.find_cautions(run),
            left_out=self.find_left_out(run),
        )

    def sentence(self, finding: Finding) -> str:
        """Return the sentence about a finding, from the family's templates."""
        return sentence(finding, *self.templates())

    @classmethod
    def templates(cls) -> list[Path]:
        """Return the files of the family's sentences."""
        return [Path(inspect.getfile(cls)).with_name(name) for name in cls.WORDS]

    def sections(self, run: FamilyRun) -> list[Section]:
        """Return the sections of the report: tables of the scores, as dots and intervals."""
        return score_sections(run.scores, label=self.label)

    def label(self, score: BiasScore) -> str:
        """Return the label of a group of rows in the tables."""
        return group_label(score)

    def page(self, run: FamilyRun) -> Page:
        """Return the report on one model."""
        run = self._with_family_scores(run)
        facts = self.facts(run)
        score = facts.headline
        return Page(
            title=self.TITLE,
            subtitle=self.subtitle(run),
            headline_value=format_of(score).full_text(score.value) if score else "–",
            headline_caption=self._caption(score) if score else "",
            verdict=self.sentence(facts.verdict),
            warnings=[self.sentence(finding) for finding in facts.cautions],
            notes=listed("notes", *self.templates()),
            sections=self.sections(run),
            glossary=glossary(map(format_of, run.scores)),
            limits=listed("limits", *self.templates()),
            signature=score.signature if score else {},
            signature_lines=[signature_line(score)] if score else [],
            facts=facts,
        )

    def further_metrics(self, run: FamilyRun) -> Sequence[str]:
        """Return the names of the run's metrics that are not in FORMATS, such as outcomes from the user's columns."""
        return ()

    def _with_family_scores(self, run: FamilyRun) -> FamilyRun:
        """Return the run with the scores of this family only."""
        names = {metric.name for metric in self.FORMATS} | set(self.further_metrics(run))
        family_run = copy(run)
        vars(family_run)["scores"] = [score for score in run.scores if score.metric in names]
        return family_run

    def _headline_of(self, run: FamilyRun) -> BiasScore:
        """Return the headline of a run that has scores."""
        score = self.headline(run.scores)
        if score is None:
            raise LookupError(f"{run.folder} has no scores of this family")
        return score

    def _caption(self, score: BiasScore) -> str:
        form = format_of(score)
        group = f" ({self.label(score)})" if score.group else ""
        return f"{form.label}{group}: {form.description}"

    def subtitle(self, run: FamilyRun) -> str:
        """Return the name of the model, if one is measured, and of the dataset in the signature."""
        names = [run.model_name] if self.USES_MODEL else []
        dataset = next((score.signature.get("dataset") for score in run.scores), None)
        if isinstance(dataset, Mapping) and dataset.get("name"):
            names.append(display_name(str(dataset["name"])))
        return " · ".join(names) or run.model_name

    def side_by_side(self, runs: Mapping[str, FamilyRun]) -> list[Section]:
        """Return the first sections of a page of several runs: a row for each run, with its headline drawn."""
        scores_by_run: dict[str, dict[str, BiasScore]] = {}
        for name, run in runs.items():
            scores = self._with_family_scores(run).scores
            chosen = [score for score in scores if not score.group and score.kind not in DETECTABLE]
            headline = self.headline(scores)
            if headline is not None:
                chosen.insert(0, headline)
            scores_by_run[name] = {
                ", ".join([format_of(score).title, *score.group.values()]): score for score in chosen
            }
        columns = list(dict.fromkeys(title for by_title in scores_by_run.values() for title in by_title))
        if not columns:
            return []
        drawn = columns[0]
        rows = []
        for name, by_title in scores_by_run.items():
            cells = tuple(score_cell(by_title.get(title)) for title in columns)
            rows.append(Row(name, cells, score_marks("before", by_title.get(drawn))))
        ideal = next(format_of(shown[drawn]).reported_ideal for shown in scores_by_run.values() if drawn in shown)
        table = Table(f"All runs; drawn: {drawn}", ("run", *columns), tuple(rows), ideal=ideal)
        return [Section(f"{self.TITLE} of all runs", tables=[table], first_screen=True)]

    def comparison_facts(self, before: FamilyRun, after: FamilyRun, changes: FamilyRun) -> Facts:
        """Return what a comparison of two models found, as data; levels are of the rows that both have."""
        old, new, compared = self._compared(before, after, changes)
        change = self._headline_of(compared)
        levels = {
            name: find_score(run.scores, change.metric, change.form, **change.group)
            for name, run in (("before", old), ("after", new))
        }
        left_out = []
        if common_levels(changes.scores, "before"):
            counts = {"n": change.n, "n_of": change.n_of, "n_left_out": change.n_left_out}
            left_out.append(Finding("common_rows", counts))
        cautions = []
        for run in (old, new):
            for caution in self.find_cautions(run):
                cautions.append(Finding(caution.kind, {**caution.values, "model": run.model_name}))
        return Facts(
            headline=change,
            verdict=Finding("change", {**levels, "change": change}),
            cautions=cautions,
            left_out=left_out,
        )

    def _warning(self, finding: Finding) -> str:
        """Return the sentence about a caution of a comparison, with the model's name if it is of one of the two."""
        model = finding.values.get("model")
        return f"{model}: {self.sentence(finding)}" if model else self.sentence(finding)

    def _compared(self, before: FamilyRun, after: FamilyRun, changes: FamilyRun) -> tuple[FamilyRun, ...]:
        """Return both runs with the family's scores on their common rows, and the comparison with the family's."""
        old = with_common_levels(before, changes.scores, "before")
        new = with_common_levels(after, changes.scores, "after")
        return self._with_family_scores(old), self._with_family_scores(new), self._with_family_scores(changes)

    def comparison_page(self, before: FamilyRun, after: FamilyRun, changes: FamilyRun) -> Page:
        """Return the report that compares two models: scores before and after, and the paired changes."""
        facts = self.comparison_facts(before, after, changes)
        before, after, changes = self._compared(before, after, changes)
        change = self._headline_of(changes)
        form = format_of(change)
        group = f" ({self.label(change)})" if change.group else ""
        return Page(
            title=f"{self.TITLE}, compared",
            subtitle=before_after(self.subtitle(before), self.subtitle(after)),
            headline_value=form.full_text(change.value),
            headline_caption=f"{form.label}{group}, after minus before",
            verdict=self.sentence(facts.verdict),
            warnings=[self._warning(finding) for finding in facts.cautions],
            explanations=[self.sentence(finding) for finding in facts.left_out],
            notes=listed("notes", *self.templates()),
            sections=change_sections((before.scores, after.scores, changes.scores), label=self.label),
            glossary=glossary(map(format_of, before.scores)),
            limits=listed("limits", *self.templates()),
            signature=change.signature,
            signature_lines=[signature_line(self._headline_of(run)) for run in (before, after)],
            sides=("before", "after"),
            facts=facts,
        )


def with_common_levels(run: FamilyRun, changes: Sequence[BiasScore], side: str) -> FamilyRun:
    """Return a compared run with its scores on the common rows, if the comparison has them; else the run as it is.

    `side` is "before" or "after". A comparison has these scores if the two runs differ in their rows, so that every
    level beside a change is of the same rows as the change.
    """
    levels = common_levels(changes, side)
    return replace(run, common_scores=levels) if levels else run


def names() -> list[str]:
    """Return the names of the families."""
    return module_names(__name__)


def check_scored_alike(before: Signature, after: Signature, names: Iterable[str]) -> None:
    """Raise InputError if the signatures of two compared runs differ in one of the named entries."""
    for name in names:
        if before.get(name) != after.get(name):
            raise InputError(
                "after",
                f"its {name} is {after.get(name)!r}, but the {name} of before is {before.get(name)!r}; measure both "
                "with the same.",
            )


def load_family(name: str) -> type[Family]:
    """Return a family's class.

    Raises:
        InputError: the family is unknown, or lacks an attribute that each family has.
    """
    family = load_class(__name__, name, Family, "metrics")
    missing = [attribute for attribute in ("Settings", "FORMATS") if not hasattr(family, attribute)]
    if missing:
        raise InputError("metrics", f"the family {name} has no {missing[0]}; give it one (docs/extending.md).")
    return family


def check_declared(name: str, scores: Iterable[BiasScore]) -> None:
    """Raise InputError if a family returned a score that no FORMATS declares: pages would leave it out."""
    for score in scores:
        try:
            format_of(score)
        except KeyError:
            raise InputError(
                "metrics", f"the family {name} has a score {score.metric!r}, which is not in its FORMATS; add it."
            ) from None
