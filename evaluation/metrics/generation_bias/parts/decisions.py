"""The part of decisions: how they are read, how likely each choice is, and the rate of the first choice by person."""

import re
from collections.abc import Mapping
from typing import Annotated, Self

import numpy as np
import pandas as pd
from pydantic import Field, model_validator

from evenhand.evaluation import columns
from evenhand.evaluation.data.language.decisions import (
    YES_OR_NO,
    DecisionRule,
    RuleAccuracy,
    labelled_kinds,
    plain_choice,
    rule_accuracy,
)
from evenhand.evaluation.data.language.mentions import clean_responses
from evenhand.evaluation.data.language.refusals import is_failure
from evenhand.evaluation.errors import InputError
from evenhand.evaluation.json_values import Json
from evenhand.evaluation.metrics import FamilyConfig, FamilyRun
from evenhand.evaluation.metrics.generation_bias.answers import PROMPTS, RESPONSES
from evenhand.evaluation.metrics.generation_bias.engine.values import VALUES
from evenhand.evaluation.metrics.generation_bias.likelihoods import scored_pairs
from evenhand.evaluation.metrics.generation_bias.measures.decision import DECISION, JUDGED
from evenhand.evaluation.metrics.generation_bias.measures.likely_decision import CHOICES, LIKELY_DECISION, MASS
from evenhand.evaluation.metrics.generation_bias.measures.undecided import UNDECIDED
from evenhand.evaluation.metrics.generation_bias.parts import AnsweredRun, Part
from evenhand.evaluation.metrics.generation_bias.words import note
from evenhand.evaluation.model_settings import NO_CHOICE, DecisionJudgeSettings
from evenhand.evaluation.models.base import Model
from evenhand.evaluation.models.server_client import check_client
from evenhand.evaluation.report.numbers import NO_NUMBER, interval, number, sanitize
from evenhand.evaluation.report.page import Cell, Row, Section, Table
from evenhand.evaluation.report.score_sections import count_cells
from evenhand.evaluation.runs.store import Store
from evenhand.evaluation.settings import WITHOUT_FLAG, StrictSettings
from evenhand.evaluation.statistics.group_rates import group_rates
from evenhand.evaluation.tables import table_rows

VALUE = f"{DECISION}: {DECISION}"  # the column of the values of the measure
JUDGE_ACCURACY = "judge_accuracy"  # the table of how well a judge reads labelled answers
MAX_OPTIONS = 36  # of a judge (`judges.OPTIONS`)
MAX_PEOPLE = 60  # rows of the table by person


class DecisionSettings(StrictSettings):
    """How the outcomes decision, undecided, decided_number and likely_decision read an answer."""

    choices: Annotated[list[str], Field(min_length=2)] = Field(
        default_factory=lambda: list(YES_OR_NO),
        description="texts that are decisions; the rate is of the first",
        json_schema_extra=WITHOUT_FLAG,
    )
    pattern: str | None = Field(
        None,
        description="regular expression: its first group, or its match, is the decision; null: a general rule",
        json_schema_extra=WITHOUT_FLAG,
    )
    field: str | None = Field(
        None, description="field of a JSON object in the answer that has the decision", json_schema_extra=WITHOUT_FLAG
    )
    judge: DecisionJudgeSettings | None = Field(
        None,
        description="an LLM on a server that reads the decision",
        json_schema_extra=WITHOUT_FLAG,
    )

    @property
    def rule(self) -> DecisionRule:
        """The rule that these settings describe."""
        return DecisionRule(choices=tuple(self.choices), pattern=self.pattern, field=self.field)

    @model_validator(mode="after")
    def _check_rule(self) -> Self:
        given = [name for name in ("pattern", "field", "judge") if getattr(self, name) is not None]
        if len(given) > 1:
            raise InputError(given[0], f"a decision is read in one way; leave out {' and '.join(given[1:])}.")
        names = [plain_choice(choice) for choice in self.choices]
        if self.judge is not None and (NO_CHOICE in names or len(names) >= MAX_OPTIONS):
            raise InputError(
                "choices", f"{self.choices}: a judge reads up to {MAX_OPTIONS - 1}, not {NO_CHOICE!r}; give others."
            )
        if len(set(names)) < len(names) or "" in names:
            raise InputError("choices", f"{self.choices} has an empty or a repeated text; give others.")
        failures = [choice for choice in self.choices if is_failure(choice)]
        if failures:
            raise InputError(
                "choices",
                f"{failures[0]!r} is what programs write where no answer came, so that it would be left out; ask for "
                "another word.",
            )
        try:
            re.compile(self.pattern or "")
        except re.error as error:
            raise InputError("pattern", f"{self.pattern!r} is no regular expression ({error}); give another.") from None
        return self


class Settings(StrictSettings):
    """How decisions are read."""

    decision: DecisionSettings | None = Field(
        None,
        description="how decisions are read from answers; null: yes or no, by a general rule",
    )

    @property
    def decision_rule(self) -> DecisionRule:
        """How a decision is read from an answer."""
        return DecisionRule() if self.decision is None else self.decision.rule

    @property
    def decision_judge(self) -> DecisionJudgeSettings | None:
        """The judge that reads decisions; None: the rule does."""
        return None if self.decision is None else self.decision.judge


def judge_decisions(store: Store, config: FamilyConfig) -> None:
    """Write what a judge reads from the answers, and how well it reads labelled ones; on all ranks.

    Mentions of people are replaced, so that the judge cannot decide by them. Nothing is written without a judge, or if
    no decision is measured.
    """
    settings = config.settings
    judge = settings.decision_judge
    if judge is None or not {DECISION, UNDECIDED}.intersection(settings.outcomes):
        return
    from evenhand.evaluation.models.decision_judges import judge_accuracy, judged_decisions  # imports torch

    def read() -> pd.DataFrame:
        ids = store.read(PROMPTS)[columns.PROMPT_ID]
        texts = clean_responses(store.read(RESPONSES)[columns.RESPONSE], store.read(PROMPTS))
        decisions = judged_decisions(store, JUDGED, judge, settings.decision_rule.choices, texts, ids)
        return pd.DataFrame({columns.PROMPT_ID: ids, DECISION: pd.Series(decisions, dtype=object)})

    store.ensure(JUDGED, read, on_all_ranks=True)
    store.ensure(JUDGE_ACCURACY, lambda: judge_accuracy(judge))


def spellings(choice: str) -> list[str]:
    """Return a choice as it is written and with a capital letter at its start.

    >>> spellings("option A"), spellings("USA")
    (['option A', 'Option A'], ['USA'])
    """
    return list(dict.fromkeys((choice, choice[:1].upper() + choice[1:])))


def choice_probabilities(store: Store, model: Model, prompts: pd.DataFrame, choices: tuple[str, ...]) -> pd.DataFrame:
    """Return the probability that the answer to each prompt begins with each choice, with prompt_id.

    A choice is counted as it is written and with a capital letter. Equal prompts are scored once. NaN: a prompt is too
    long for the model.

    Args:
        prompts: rows with the columns prompt_id, text and persona.
    """
    contexts = prompts[[columns.TEXT, columns.PERSONA]].reset_index(drop=True)
    unique = contexts.drop_duplicates().reset_index(drop=True)
    names = {}
    for number_of_choice, choice in enumerate(choices):
        total = np.zeros(len(unique))
        for variant in spellings(choice):
            pairs = unique.assign(
                **{columns.RESPONSE: variant, columns.CUT: True}
            )  # the end of the answer does not count
            name = f"{LIKELY_DECISION}/{number_of_choice}-{int(variant != choice)}"
            total += np.exp(scored_pairs(store, name, model, pairs)[columns.LOG_LIKELIHOOD].to_numpy(dtype=np.float64))
        names[f"{CHOICES}{choice}"] = total
    found = contexts.merge(unique.assign(**names), how="left", on=[columns.TEXT, columns.PERSONA])[list(names)]
    return found.assign(**{columns.PROMPT_ID: prompts[columns.PROMPT_ID].to_numpy()})


def rates_table(values: pd.DataFrame, prompts: pd.DataFrame, probabilities: pd.DataFrame | None, choice: str) -> Table:
    """Return the table of the rate of the first choice by person, the lowest first.

    Args:
        values: the run's table of values, with prompt_id and the column of the measure `decision`.
        prompts: the prompts, with descriptor and template.
        probabilities: the result of `choice_probabilities`; None if they were not computed.
        choice: the first choice.
    """
    table = values[[columns.PROMPT_ID, VALUE]].merge(prompts, on=columns.PROMPT_ID, how="left", validate="one_to_one")
    decided = table[VALUE].to_numpy(dtype=np.float64)
    people = table[columns.DESCRIPTOR].astype(str)
    rates = {}
    if not np.isnan(decided).all():
        found = group_rates(decided, people.to_numpy(), table[columns.TEMPLATE].to_numpy()).sort_values(
            "rate", kind="stable"
        )
        rates = {row["group"]: row for row in table_rows(found)}
    names = ["person", "asked", "no decision", f"{choice}, %", "difference to the average", "ratio to the highest"]
    means = pd.DataFrame(index=people.unique())
    if probabilities is not None:
        of_choices = probabilities.set_index(columns.PROMPT_ID).loc[table[columns.PROMPT_ID]]
        means = of_choices.assign(**{MASS: of_choices.sum(axis=1)}).groupby(people.to_numpy()).mean()
        names += [f"P({str(name).removeprefix(CHOICES)}), %" for name in means]
    rows = []
    listed = [*rates, *sorted(set(people) - set(rates))]
    n_more = len(listed) - MAX_PEOPLE
    if n_more > 0:  # without those in the middle
        listed = listed[: MAX_PEOPLE // 2] + listed[-MAX_PEOPLE // 2 :]
    for person in listed:
        rate = rates.get(person)
        n = int((people == person).sum())
        cells = count_cells(n, n if rate is None else n - rate["n"])
        cells += [Cell(NO_NUMBER)] * 3 if rate is None else _rate_cells(rate)
        cells += [Cell(number(100 * value, 1)) for value in means.loc[person]]
        rows.append(Row(sanitize(person, 60), tuple(cells)))
    caption = f"Answers that decide {sanitize(choice, 40)}, by person, the lowest first"
    return Table(caption, tuple(map(sanitize, names)), tuple(rows), note("about_rates", n_more=max(0, n_more)))


def _rate_cells(rate: Mapping[str, float]) -> list[Cell]:
    """Return the cells of a rate, its difference to the average and its ratio to the highest, with their intervals."""
    difference = (100 * rate["difference_low"], 100 * rate["difference_high"])
    ratio = (rate["ratio_to_highest_low"], rate["ratio_to_highest_high"])
    return [
        Cell(number(100 * rate["rate"], 1)),
        Cell(number(100 * rate["difference"], 1, True), interval(difference, 1, True)),
        Cell(number(rate["ratio_to_highest"], 2), interval(ratio, 2)),
    ]


def accuracy_table(judged: pd.DataFrame | None = None, judge: str = "") -> Table:
    """Return how often the general rule, or a judge, reads the decision of labelled answers, by what was asked.

    Args:
        judged: the result of `judge_accuracy`; None: the general rule.
        judge: the name of the judge.
    """
    if judged is None:
        found = {asked: rule_accuracy(asked) for asked in labelled_kinds()}
        caption = "The general rule on 200 labelled answers"
        about = note("about_decision_rule")
    else:
        records = [dict(row) for row in table_rows(judged)]
        found = {row.pop("asked"): RuleAccuracy(**row) for row in records}
        n = sum(each.n_decided + each.n_undecided for each in found.values())
        caption = f"The judge {sanitize(judge, 60)} on {n} labelled answers"
        about = note("about_decision_judge")
    rows = []
    for asked, each in found.items():
        counts = (each.n_decided, each.n_right, each.n_wrong, each.n_undecided, each.n_false)
        rows.append(Row(asked, tuple(count_cells(*counts))))
    names = ("asked for", "with a decision", "read rightly", "read wrongly", "without", "false alarms")
    return Table(caption, names, tuple(rows), about)


class DecisionsPart(Part):
    """What the answers decide, by person."""

    def inputs(self, config: FamilyConfig, model: Model) -> dict[str, Json]:
        if config.settings.decision_judge is not None:
            check_client()
        return {}

    def collect(self, run: AnsweredRun) -> None:
        settings = run.config.settings
        if LIKELY_DECISION in settings.outcomes:
            choices = settings.decision_rule.choices
            run.store.ensure(
                LIKELY_DECISION,
                lambda: choice_probabilities(run.store, run.model, run.prompts, choices),
                on_all_ranks=True,
            )

    def sections(self, run: FamilyRun) -> list[Section]:
        if not run.has(VALUES) or VALUE not in run.table(VALUES):
            return []
        probabilities = run.table(LIKELY_DECISION) if run.has(LIKELY_DECISION) else None
        settings = run.config.settings
        choice = settings.decision_rule.choices[0]
        rates = rates_table(run.table(VALUES), run.table(PROMPTS), probabilities, choice)
        judge = settings.decision_judge
        accuracy = accuracy_table() if judge is None else accuracy_table(run.table(JUDGE_ACCURACY), judge.name)
        return [Section("Decisions", tables=[rates, accuracy])]
