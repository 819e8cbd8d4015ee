"""Measures: numbers of a response other than its style, each declared once in a module of this package or of the user.

A module NAME has `MEASURE = Measure(NAME, …)`. `engine` makes everything else from the declaration: the mean with its
interval, the spread between people, the effects in the joint test, the paired changes, and the rows of tables. Modules
of the user are in the subfolder `outcomes` of a folder in EVENHAND_PATH (docs/extending.md).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache
from pathlib import Path

import pandas as pd

from evenhand.evaluation import columns
from evenhand.evaluation.data.language.decisions import DecisionRule
from evenhand.evaluation.errors import InputError
from evenhand.evaluation.plugins import load_module, module_names, user_folders
from evenhand.evaluation.report.formats import Format
from evenhand.evaluation.score import Form

OWN_FOLDER = Path(__file__).resolve().parent
__path__ += user_folders("outcomes")

FIELD = "generation_bias.outcomes"
OF_100 = "answers of 100"  # the unit of shares
# Tables of a run that measures read: likelihoods of responses after two prompts, after another person's prompt, and
# without the person; and the probabilities of the offensiveness classifier, with the column of the same name.
LIKELIHOODS = "likelihoods_of_responses"
TEMPLATE_LIKELIHOODS = "likelihoods_within_template"
FLUENCY = "fluency"
OFFENSIVENESS = "offensiveness"
TOO_SHORT = "too short"  # the class of texts that are too short for another one; it is never joined with rare classes
ALWAYS = ("filtered", "empty")  # measured without being asked for, if an answer is withheld or empty
OTHER_LOG_LIKELIHOOD = "other_log_likelihood"  # column of likelihoods: of a response after the other prompt
# Names of columns that are no measures: what an answer was given to, and by which rows are grouped.
TAKEN = (
    columns.PROMPT_ID,
    columns.TEXT,
    columns.PERSONA,
    columns.TEMPLATE,
    columns.AXIS,
    columns.DESCRIPTOR,
    columns.RESPONSE,
    columns.LEFT_OUT,
)


class ValueKind(StrEnum):
    """What the values of a measure are, which decides how they are averaged, compared and tested."""

    SHARE = "share"  # whether an answer has a property: 0 or 1
    CLASS = "class"  # one of several names
    PROBABILITY = "probability"  # a number from 0 to 1
    RATIO = "ratio"  # a number from 0, such as a length: the typical answer is compared, by logarithms
    NUMBER = "number"  # any number: ranks are compared

    @property
    def is_share(self) -> bool:
        """Whether values say what an answer has, a property or a class: their mean is reported in answers of 100."""
        return self in (ValueKind.SHARE, ValueKind.CLASS)


class Needs(StrEnum):
    """What an answer needs to have a value of a measure."""

    TEXT = "text"  # a text that is not empty
    ANSWER = "answer"  # an answer, which may be empty; what was withheld, failed or never ended is none
    NOTHING = "nothing"  # every prompt has a value
    CLASSIFIER = "classifier"  # a row in the table of the offensiveness classifier
    MODEL = "model"  # a row in a table of the likelihoods of choices after the prompts, under the measured model
    WEIGHTS = "weights"  # a row in a table of likelihoods: under the measured model; of two runs, under the first's


@dataclass(frozen=True)
class Context:
    """What measures may read, apart from the answers.

    Attributes:
        language: the language of all requests, if the settings of the prompts name it.
        tables: the tables of the run that measures read, such as likelihoods, by name.
        decision_rule: how a decision is read from an answer.
        each_alone: whether the value of an answer depends on no other row, as in a log that is read in parts.
    """

    language: str | None = None
    tables: Mapping[str, pd.DataFrame] = field(default_factory=dict)
    decision_rule: DecisionRule = field(default_factory=DecisionRule)
    each_alone: bool = False

    def rows(self, name: str, answers: pd.DataFrame) -> pd.DataFrame:
        """Return the rows of a table that belong to the answers, in their order."""
        return self.tables[name].set_index(columns.PROMPT_ID).loc[answers[columns.PROMPT_ID]]


@dataclass(frozen=True)
class Measure:
    """A number of a response that may depend on the person.

    Attributes:
        name: its name in `generation_bias.outcomes`, a noun: "The NAME of 52 answers is 8.7 words on average."
        values: a function of n answers, a table with the columns response, descriptor, text, … of the run, and of the
            `Context`. It returns n values: numbers, whether something holds, names of classes, or None for no value.
        kind: what the values are.
        description: a sentence on the mean, for the glossary.
        predicate: what an answer that has the property does, as a verb with its object, for findings: "12 of 52 answers
            to … decline the request".
        unit: the unit of reported numbers, such as "words"; of shares and classes it is "answers of 100".
        ideal: the mean of a model that has no fault; None if no mean is a fault.
        is_serious: whether more of it is hardly ever right, so that pages name it first and `check` compares it.
        decimals: the number of decimals of the mean.
        needs: what an answer needs to have a value; `values` gets such answers only.
        table: the table of the run that `values` reads (`Context.rows`); "": none.
        no_value: the reason why there is no mean if no answer has a value.
        column: the name of the values in tables; "": the name of the measure.
        cost: the metric of the mean in scores.json, such as the measure's name, if the mean stands in the table of the
            quality of responses, and its change in “What it cost”; "": it is in neither.
        noun: the label of the mean in these tables; "": the name of the measure.
        kept_ideal: the ideal of the mean after / before in “What it cost”; None if it has none.
        is_logarithm: whether the cost is e to the power of the mean, such as a perplexity; its change is relative.
        is_of_whole_answer: whether a cut answer has another value than the whole one. If most answers were cut, the
            verdict does not name it.
        reads_decisions: whether `values` depends on the settings by which a decision is read from an answer.
    """

    name: str
    values: Callable[[pd.DataFrame, Context], Sequence]
    kind: ValueKind
    description: str
    predicate: str = ""
    unit: str = ""
    ideal: float | None = None
    is_serious: bool = False
    decimals: int = 2
    needs: Needs = Needs.TEXT
    table: str = ""
    no_value: str = "no response has a value"
    column: str = ""
    cost: str = ""
    noun: str = ""
    kept_ideal: float | None = 1.0
    is_logarithm: bool = False
    is_of_whole_answer: bool = False
    reads_decisions: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "kind", ValueKind(self.kind))
        object.__setattr__(self, "needs", Needs(self.needs))
        if self.cost and not self.cost.isidentifier():
            raise ValueError(f"cost is {self.cost!r}; give the name of a metric, such as {self.name!r}")

    @property
    def label(self) -> str:
        """The name of the mean in tables, without the unit."""
        return self.noun or self.name.replace("_", " ")

    def format(self, form: Form) -> Format:
        """Return how reports show the spread between people, or the mean."""
        label = self.name.replace("_", " ")
        unit = OF_100 if self.kind.is_share else self.unit
        scale = {"unit": unit, "factor": 100.0 if self.kind.is_share else 1.0, "decimals": self.decimals}
        if form == Form.MEAN:
            return Format(self.name, f"{label}: mean", self.description, form=form, **scale)
        text = f"Standard deviation over descriptors, without noise. {self.description}"
        return Format(self.name, f"{label}: spread between people", text, ideal=0, form=form, **scale)


@cache
def find_measure(name: str) -> Measure | None:
    """Return the measure that the module `name` declares; None if there is no such module.

    Raises:
        InputError: the module has no MEASURE of its name, or something else has this name.
    """
    if name not in measure_names():
        return None
    module = load_module(__name__, name, FIELD)
    found = getattr(module, "MEASURE", None)
    if not isinstance(found, Measure) or found.name != name:
        raise InputError(FIELD, f"{module.__file__} must define MEASURE = Measure({name!r}, function, kind, …).")
    return found


def misread_in_cut_answers(name: str) -> bool:
    """Return whether an outcome, such as the length, has another value for an answer that was cut."""
    measure = find_measure(name)
    return measure is not None and measure.is_of_whole_answer


@cache
def measure_names() -> tuple[str, ...]:
    """Return the names of all measures, of Evenhand and of the user.

    Raises:
        InputError: a module of the user has the name of a column.
    """
    names = tuple(module_names(__name__))
    taken = [name for name in names if name in TAKEN]
    if taken:
        raise InputError(FIELD, f"{taken[0]!r} is the name of a column; rename the module and its measure.")
    return names


def all_measures() -> list[Measure]:
    """Return all measures, in alphabetical order.

    Raises:
        InputError: two measures have one cost, or as `find_measure`.
    """
    found = [measure for name in measure_names() if (measure := find_measure(name)) is not None]
    costs: dict[str, str] = {}
    for measure in found:
        if measure.cost and costs.setdefault(measure.cost, measure.name) != measure.name:
            names = f"{costs[measure.cost]} and {measure.name}"
            raise InputError(FIELD, f"{names} have the same cost, {measure.cost!r}; give yours another name.")
    return found


def serious_measures() -> list[str]:
    """Return the names of the measures of which more is hardly ever right, in the order in which pages name them.

    Another language comes first: what an answer says in it, the style classifier may misread.
    """
    names = [measure.name for measure in all_measures() if measure.is_serious]
    return sorted(names, key=lambda name: (name != "other_language", name))


def user_file(name: str) -> Path | None:
    """Return the file of a measure of the user; None for other names."""
    if name not in measure_names():
        return None
    file = Path(str(load_module(__name__, name, FIELD).__file__)).resolve()
    return None if file.parent == OWN_FOLDER else file
