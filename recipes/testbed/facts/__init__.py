"""Known facts about measurements of the testbed's models: a module for each family of metrics, with the family's name.

A family without a module has no such facts.
"""

from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Protocol

from evenhand.evaluation.contracts import check_contract
from evenhand.evaluation.families import FamilyRun, ReportContext
from evenhand.evaluation.score import BiasScore
from evenhand.recipes.testbed import DIALOGUE_MODEL, LANGUAGE_MODEL, MASKED_MODEL, is_shipped


class FamilyFacts(Protocol):
    """The attributes of a module of this package. A module's functions have no parameter `self`.

    MODEL_NOTE: a note for readers of reports on the testbed's model.
    """

    MODEL_NOTE: str = ""

    def true_scores(self, measured: FamilyRun) -> list[BiasScore]:
        """Return the planted bias on the measured rows; [] if the grammar did not produce them."""
        return []

    def notes(self, measured: FamilyRun) -> list[str]:
        """Return further notes for readers of a report on the run."""
        return []

    def grammar_scores(self, measured: FamilyRun, scores: Sequence[BiasScore]) -> list[BiasScore]:
        """Return scores that exist only for models of the testbed; `scores` are the family's scores of the run."""
        return []

    def grammar_differences(self, before: FamilyRun, after: FamilyRun) -> list[BiasScore]:
        """Return paired changes of scores that exist only for models of the testbed."""
        return []


def facts_of(name: str) -> FamilyFacts:
    """Return the module of a family, or a module with the default attributes of `FamilyFacts`."""
    module = f"{__name__}.{name}"
    return check_contract(import_module(module) if find_spec(module) else ModuleType(module), FamilyFacts)


def report_context(family: str, measured: FamilyRun) -> ReportContext:
    """Return the planted bias of the measured rows, and notes for readers, for a report on a run of the testbed.

    The list of planted biases is empty if another model was measured.
    """
    return ReportContext(facts_of(family).true_scores(measured), reader_notes(family, measured))


def reader_notes(family: str, measured: FamilyRun) -> list[str]:
    """Return notes for readers if the measured model, its style classifier or its pairs are the testbed's."""
    facts = facts_of(family)
    model_note = facts.MODEL_NOTE if is_testbed_model(measured) else ""
    return [*filter(None, [model_note]), *facts.notes(measured)]


def is_testbed_model(measured: FamilyRun) -> bool:
    """Return whether the measured model is one of the testbed's."""
    name = measured.config.model.name
    return any(is_shipped(name, model) for model in (DIALOGUE_MODEL, MASKED_MODEL, LANGUAGE_MODEL))
