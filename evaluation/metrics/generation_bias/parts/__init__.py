"""The parts of generation bias, one file each; `PARTS` of the family lists them.

A part does everything for its scores: it checks its inputs, writes its tables, says what is tested, scores one run,
compares two, and writes its sections of the reports. The family (`GenerationBias`) tests all parts jointly, and owns
what changes the responses (accepted differences) and what cuts them (cues, people who were never tuned on, another
language, the second classifier).
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.json_values import Json
from evenhand.evaluation.metrics import FamilyConfig, FamilyRun
from evenhand.evaluation.metrics.generation_bias.answers import Answers
from evenhand.evaluation.metrics.generation_bias.early_stop import Stop
from evenhand.evaluation.metrics.generation_bias.engine.estimates import EVERYBODY
from evenhand.evaluation.metrics.generation_bias.engine.values import MeasureValues
from evenhand.evaluation.metrics.generation_bias.measures import Context
from evenhand.evaluation.metrics.generation_bias.people import People
from evenhand.evaluation.models.base import Model
from evenhand.evaluation.report.formats import Format
from evenhand.evaluation.report.page import Section
from evenhand.evaluation.runs.store import Store
from evenhand.evaluation.score import BiasScore, Signature
from evenhand.evaluation.statistics.cell_table import ANSWERS, SetOfTests
from evenhand.evaluation.statistics.person_effects import Effects

if TYPE_CHECKING:
    from evenhand.evaluation.metrics.generation_bias.parts.corpus import CorpusSettings


@dataclass(frozen=True)
class AnsweredRun:
    """A run whose responses are written, with its model, which parts can still ask.

    Attributes:
        answers: the responses, and what a model that scores them reads of them (`answers_of`).
    """

    store: Store
    config: FamilyConfig
    model: Model
    prompts: pd.DataFrame
    answers: pd.DataFrame


@dataclass(frozen=True)
class ClassifiedRun:
    """A run whose responses are classified, with everything that the parts score.

    Attributes:
        responses: all responses with their style vectors.
        clusters: style cluster → columns of its styles.
        outcomes: the values of each measure other than style, by name.
        context: what measures read in addition to the responses.
        signature: the signature of the run, to which parts add what is of their scores only.
        classifiers: the entries of the signature on each classifier, by its name.
        stop: how the run ended, if it had looks before its end.
    """

    store: Store
    config: FamilyConfig
    responses: Answers
    clusters: Mapping[str, Sequence[int]]
    outcomes: Mapping[str, MeasureValues]
    context: Context
    signature: Signature
    classifiers: Mapping[str, Signature]
    stop: Stop | None = None


@dataclass(frozen=True)
class JointTests:
    """The joint tests of everything that the report on one run calls shown; p-values are adjusted for all tests.

    Attributes:
        people: the people who can be compared; None if nobody can.
        test_sets: what is tested, by name.
        found: the effects and p-values of each set of tests.
        has_permutations: whether p-values were computed.
    """

    people: People | None
    test_sets: Mapping[str, SetOfTests]
    found: Mapping[str, Effects]
    has_permutations: bool

    def p_value(self, name: str) -> float | None:
        """Return the p-value that people do not differ at all in a set of tests; None if it was not tested."""
        if name not in self.found or not self.has_permutations:
            return None
        return self.found[name].overall_joint

    @property
    def for_these_prompts_only(self) -> bool:
        """Whether single answers, not cells, are the unit of chance: somebody has few templates in common."""
        return EVERYBODY in self.found and self.found[EVERYBODY].unit == ANSWERS


@dataclass(frozen=True)
class Comparison:
    """Two runs over the same prompts.

    Attributes:
        old, new: the responses of the two runs, in the same order, with the level of the comparison.
        clusters: style cluster → columns of its styles.
        corpus: texts in which descriptors are counted.
        phrases: the name or file of the phrases to count; None: those of the clusters.
        base: the model of the first run, not loaded, which scores the responses of both runs.
        without_base: why it cannot score responses; "" if it can.
        signature: the signature of the comparison, to which parts add what is of their scores only.
        in_language: old and new without the vectors of pairs of which one is in another language than the request; None
            if nobody is shown to get more of these (`requested_language`).
        score_all: whether the base scores all responses, not a sample.
    """

    store: Store
    before: FamilyRun
    after: FamilyRun
    old: Answers
    new: Answers
    clusters: Mapping[str, Sequence[int]]
    corpus: "CorpusSettings"
    phrases: str | None
    base: Model
    without_base: str
    signature: Signature
    in_language: tuple[Answers, Answers] | None = None
    score_all: bool = False

    @property
    def permutations(self) -> int:
        """The number of permutations: that of the run before, or, if it was measured without, of the run after."""
        return self.before.config.settings.permutations or self.after.config.settings.permutations


@dataclass(frozen=True)
class ComparedSide:
    """One of two compared runs.

    Attributes:
        name: "before" or "after".
        run: the run; its tables have the rows of the prompts that are compared.
        responses: its responses to these prompts, as far as both runs have one.
        is_compared: whether each of the compared prompts has a response in both runs, (n,) bool.
    """

    name: str
    run: FamilyRun
    responses: Answers
    is_compared: np.ndarray


@contextmanager
def record_base_failure(store: Store, metric: str, base: Model) -> Iterator[None]:
    """Leave the body if the base model cannot be loaded, and record why as `store.failures[metric]`."""
    try:
        yield
    except InputError as error:  # perhaps a disk or a server that is away: the same command then tries again
        store.failures[metric] = f"{base.name} cannot be loaded: {error}"


class Part:
    """One part of the family; a method that a part does not need does nothing.

    Attributes:
        FORMATS: label, unit and ideal of each metric of the part.
    """

    FORMATS: Sequence[Format] = ()

    def inputs(self, config: FamilyConfig, model: Model) -> dict[str, Json]:
        """Return fingerprints of what the part reads, by name, before any slow work; InputError if it is unusable."""
        return {}

    def collect(self, run: AnsweredRun) -> None:
        """Write the tables that need the measured model's likelihoods to the run's folder; on all ranks."""

    def test_sets(self, run: ClassifiedRun, people: People) -> list[SetOfTests]:
        """Return what the part tests, for the joint test of all parts."""
        return []

    def score(self, run: ClassifiedRun, tests: JointTests) -> list[BiasScore]:
        """Return the part's scores, and write the tables that its sections show; on rank 0 only.

        The signature of a score has what the run's lacks, such as a version; the family adds the run's (`signed`).
        """
        return []

    def compare(self, comparison: Comparison) -> list[BiasScore]:
        """Return the changes between two runs, and write the tables that its sections show."""
        return []

    def common_levels(self, comparison: Comparison, side: ComparedSide) -> list[BiasScore]:
        """Return the part's scores of one of two compared runs, and write their tables, on the answers that both have.

        It is called only if the runs have different prompts, or answers to different prompts. Scores of all answers of
        each run would not be of the same answers as the changes.
        """
        return []

    def sections(self, run: FamilyRun) -> list[Section]:
        """Return the part's sections of the report on one run."""
        return []

    def change_sections(self, before: FamilyRun, after: FamilyRun, changes: FamilyRun) -> list[Section]:
        """Return the part's sections of the report on two runs."""
        return []
