"""The part of measures other than style, such as the language or the length of an answer.

What is measured stands in `measures`, one file each; how it is scored, tested and compared stands in `engine`.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace

import numpy as np
import pandas as pd
from pydantic import Field

from evenhand.evaluation import columns
from evenhand.evaluation.data.gendered_translations import language_name
from evenhand.evaluation.data.readers.cells import check_classes
from evenhand.evaluation.errors import InputError, unknown_name
from evenhand.evaluation.facts import Finding
from evenhand.evaluation.files import sha256_of
from evenhand.evaluation.json_values import Json
from evenhand.evaluation.metrics import FamilyConfig, FamilyRun
from evenhand.evaluation.metrics.generation_bias.answers import Answers
from evenhand.evaluation.metrics.generation_bias.compared_runs import compared_responses
from evenhand.evaluation.metrics.generation_bias.engine.changes import measure_changes, undefined_changes
from evenhand.evaluation.metrics.generation_bias.engine.comparable import on_common_terms
from evenhand.evaluation.metrics.generation_bias.engine.effects import (
    DIFFERENCE_BOUND,
    SHOWN,
    difference_bound,
)
from evenhand.evaluation.metrics.generation_bias.engine.levels import level_scores
from evenhand.evaluation.metrics.generation_bias.engine.measure_effects import (
    MEASURE_COLUMNS,
    MeasureTests,
    measure_table,
    measure_tests,
    tested_measures,
)
from evenhand.evaluation.metrics.generation_bias.engine.spread import FGB
from evenhand.evaluation.metrics.generation_bias.engine.values import (
    OTHER,
    VALUES,
    MeasureValues,
    join_rare,
    measured_values,
    stored_names,
    stored_values,
    values_table,
)
from evenhand.evaluation.metrics.generation_bias.measures import (
    ALWAYS,
    FIELD,
    OF_100,
    TAKEN,
    Context,
    Measure,
    Needs,
    ValueKind,
    all_measures,
    find_measure,
    measure_names,
    serious_measures,
    user_file,
)
from evenhand.evaluation.metrics.generation_bias.measures.decision import DECISION, JUDGED
from evenhand.evaluation.metrics.generation_bias.measures.language import LANGUAGE, TOO_SHORT
from evenhand.evaluation.metrics.generation_bias.measures.other_language import OTHER_LANGUAGE
from evenhand.evaluation.metrics.generation_bias.measures.undecided import UNDECIDED
from evenhand.evaluation.metrics.generation_bias.parts import (
    ClassifiedRun,
    Comparison,
    JointTests,
    Part,
    record_base_failure,
)
from evenhand.evaluation.metrics.generation_bias.parts.effects import effect_interval, read_effects
from evenhand.evaluation.metrics.generation_bias.parts.same_terms import (
    OTHER_CLASSIFIER,
    has_same_offensiveness_classifier,
    tables_under_base,
)
from evenhand.evaluation.metrics.generation_bias.people import EffectRow, People, unit_text
from evenhand.evaluation.metrics.generation_bias.words import note
from evenhand.evaluation.models.base import Model
from evenhand.evaluation.report.formats import COLUMN, find_format, format_of
from evenhand.evaluation.report.numbers import decimals_for, number, sanitize, value_or
from evenhand.evaluation.report.page import Cell, Row, Section, Table
from evenhand.evaluation.report.score_sections import ScoreChange, change_table, scores_table
from evenhand.evaluation.score import LEVEL, BiasScore, Form, Kind, find_score, signed
from evenhand.evaluation.settings import StrictSettings
from evenhand.evaluation.statistics.cell_table import SetOfTests
from evenhand.evaluation.statistics.hypothesis_tests import NEGLIGIBLE_SHARE, holm
from evenhand.evaluation.tables import table_rows

OUTCOME_EFFECTS = "outcome_effects"  # the table of effects on measures
MAX_ROWS = 20
NEGLIGIBLE = 100 * NEGLIGIBLE_SHARE  # of 100 answers
MIN_LISTED = 0.01  # share of the answers from which a class has a row in a comparison
ONE_RUN = "only one of the runs has measured “{}”"
OTHER_TERMS = "the runs read “{}” from answers in different ways; measure both with the same settings and files"
DEFAULT_OUTCOMES = ("language", "refusal", "length")


class Settings(StrictSettings):
    """The outcomes to measure."""

    outcomes: list[str] = Field(
        default_factory=lambda: list(DEFAULT_OUTCOMES),
        description="what else may depend on the descriptor, such as language, refusal or length, or a column of a "
        "file of responses (numbers or classes)",
    )


def check_outcomes(names: Sequence[str], columns: Mapping[str, list]) -> None:
    """Raise InputError unless each name is of a measure, or of a column with numbers or with classes.

    `columns` are the columns of the file of responses, if it has the prompts.
    """
    for name in names:
        if name in measure_names():
            if name in columns:
                raise InputError(FIELD, f"{name!r} is built in, and a column of the file, too; rename the column.")
            continue
        known = [*measure_names(), *(column for column in columns if column not in TAKEN)]
        if name in TAKEN:
            raise InputError(FIELD, f"{name!r} is the name of something else; rename the column.")
        if ": " in name:
            raise InputError(FIELD, f"{name!r} has a colon, which separates outcomes from classes; rename the column.")
        if name not in columns:
            raise unknown_name(FIELD, name, known)
        values = [value for value in columns[name] if value is not None]
        are_numbers = all(isinstance(value, int | float) for value in values)
        are_texts = all(isinstance(value, str) for value in values)
        if not values or not (are_numbers or are_texts):
            found = "other values than numbers or texts, or both" if values else "no values"
            raise InputError(FIELD, f"the column {name!r} has {found}; give numbers, or names of classes.")
        check_classes(FIELD, name, values)


def compared_values(
    before: FamilyRun, after: FamilyRun, old: Answers, new: Answers
) -> dict[str, tuple[MeasureValues, MeasureValues] | str]:
    """Return the values of each measure in two runs over the same prompts, or why they are not compared.

    What one run did not measure is measured now, from its answers, so that nothing counts as absent because nobody
    looked; only a column of a user's file, and what needs a model, cannot be. The values are not yet on common terms.

    Args:
        before, after: the two runs.
        old, new: their responses to the compared prompts, row by row.
    """
    sides = ((before, old, stored_names(before)), (after, new, stored_names(after)))
    found: dict[str, tuple[MeasureValues, MeasureValues] | str] = {}
    for name in dict.fromkeys([*sides[0][2], *sides[1][2]]):
        values = [_values_of_run(name, run, responses, names) for run, responses, names in sides]
        if values[0] is None or values[1] is None:
            found[name] = ONE_RUN.format(name)
        elif name in sides[0][2] and name in sides[1][2] and _terms(name, before) != _terms(name, after):
            found[name] = OTHER_TERMS.format(name)
        else:
            found[name] = (values[0], values[1])
    return found


def _terms(name: str, run: FamilyRun) -> list[Json]:
    """Return what the values of a measure depend on in a run: its own file, or the rule and judge of decisions."""
    inputs = run.signature(FGB).get("inputs", {})
    file = inputs.get(f"outcomes.{name}") if isinstance(inputs, Mapping) else None
    settings = run.config.settings
    measure = find_measure(name)
    if measure is None or not measure.reads_decisions:
        return [file]
    judge = None if settings.decision_judge is None else settings.decision_judge.model_dump(mode="json")
    return [file, asdict(settings.decision_rule), judge]


def _values_of_run(name: str, run: FamilyRun, responses: Answers, stored: Sequence[str]) -> MeasureValues | None:
    """Return the values of a measure in a run: as stored, or from the answers if it was not measured; else None."""
    if name in stored:
        return stored_values(run, name)
    measure = find_measure(name)
    if measure is None or (measure.table and not run.has(measure.table)):
        return None
    is_judged = name in (DECISION, UNDECIDED) and run.config.settings.decision_judge is not None
    if is_judged and not run.has(JUDGED):
        return None
    needed = JUDGED if is_judged else measure.table
    tables = {needed: run.table(needed)} if needed else {}
    context = Context(run.config.prompts.language, tables, run.config.settings.decision_rule)
    return measured_values(name, responses.table, context)


def with_absent_outcomes(runs: Mapping[str, FamilyRun]) -> dict[str, FamilyRun]:
    """Return the runs; a run without a score of one of the measures ALWAYS that another run has gets it.

    For example, in a run without empty answers, the share of empty answers is 0.
    """
    measured = {score.metric for run in runs.values() for score in run.scores}
    found = {}
    for name, run in runs.items():
        added: list[BiasScore] = []
        for absent in ALWAYS:
            if absent in measured and find_score(run.scores, absent, Form.MEAN) is None:
                responses = compared_responses(run)
                values = _values_of_run(absent, run, responses, stored_names(run))
                if values is not None:
                    added += signed(level_scores(responses, values), run.signature(FGB))
        found[name] = replace(run, common_scores=[*run.scores, *added]) if added else run
    return found


def risen_outcomes(changes: Sequence[BiasScore]) -> list[Finding]:
    """Return the shown rises of serious outcomes as findings of the kind "grown_outcome", the largest first.

    They are of the share of such answers, and of how much it differs between people, with Holm's correction over both
    of all serious outcomes. A rise by less than NEGLIGIBLE is none.

    Args:
        changes: the scores of `measure_changes`, or of a comparison.
    """
    serious = serious_measures()
    found = [each for each in changes if each.metric in serious and each.kind == Kind.DIFFERENCE and not each.group]
    p_values = [1.0 if change.p_value is None else change.p_value for change in found]
    risen = []
    for change, p in zip(found, holm(p_values), strict=True):
        if p <= LEVEL and 100 * change.value >= NEGLIGIBLE:
            risen.append(Finding("grown_outcome", {"change": change, "p": p}))
    return sorted(risen, key=lambda finding: -finding.values["change"].value)


def side_effects(side: str) -> str:
    """Return the name of a comparison's table of effects on measures in the run "before" or "after"."""
    return f"{OUTCOME_EFFECTS}_{side}"


def person_dependent(scores: Sequence[BiasScore], table: pd.DataFrame, without: Iterable[str] = ()) -> list[str]:
    """Return the names of the outcomes that depend on the person, except those in `without`.

    An outcome depends on the person if people are shown to differ at all in it, or an effect on it is shown. Both are
    adjusted for everything that the page tests.
    """
    spreads = [score for score in scores if score.form == Form.SPREAD]
    shown = {score.metric for score in spreads if score.p_value is not None and score.p_value <= LEVEL}
    shown |= set(table.loc[table["certainty"] == SHOWN, "outcome"])
    # `other_language` is computed from `language`; both appear as “language”.
    excluded = {LANGUAGE if name == OTHER_LANGUAGE else name for name in without}
    names = []
    for score in spreads:
        name = LANGUAGE if score.metric == OTHER_LANGUAGE else score.metric
        is_new = name not in excluded and name not in names
        if score.metric in shown and is_new and not (name == LANGUAGE and _are_only_short(table)):
            names.append(name)
    return names


def _are_only_short(table: pd.DataFrame) -> bool:
    """Return whether all that effects show of languages is whose answers are too short to tell theirs."""
    is_of_languages = table["outcome"].isin((LANGUAGE, OTHER_LANGUAGE))
    shown = table[is_of_languages & (table["certainty"] == SHOWN)]
    if TOO_SHORT not in set(shown["name"]):
        return False
    main = table.loc[is_of_languages & (table["name"] != TOO_SHORT)].groupby("name")["average"].mean().idxmax()
    return set(shown["name"]) <= {TOO_SHORT, main}


def outcome_section(scores: Sequence[BiasScore], table: pd.DataFrame) -> Section:
    """Return the section of a report on outcomes: how far people are apart, and which effects are shown.

    The section has no content if no outcome was measured.
    """
    title = "Language and other outcomes"
    if not len(table):
        return Section(title)
    spreads = [score for score in scores if score.form == Form.SPREAD]
    shown = table[table["certainty"] == SHOWN].head(MAX_ROWS)
    rows = [effect_row(row) for row in table_rows(shown)]
    names = ("who: outcome", "answers", "average", "difference", "unit")
    is_tested = any(spread.p_value is not None for spread in spreads)
    about = "" if rows else note("no_outcome_shown", is_tested=is_tested)
    if (shown["scale"] == ValueKind.RATIO).any():
        about = note("about_typical")

    scale_of = dict(zip(table["outcome"], table["scale"], strict=True))

    def bound_cell(spread: BiasScore) -> Cell:
        bound = find_score(scores, DIFFERENCE_BOUND, outcome=spread.metric)
        if bound is None or math.isnan(bound.value):
            return Cell("")
        if scale_of.get(spread.metric) == ValueKind.NUMBER:
            return Cell(f"{number(100 * bound.value)} percentiles")
        value = format_of(spread).factor * bound.value
        decimals = decimals_for([value]) if format_of(spread).description == COLUMN else 0
        return Cell(number(value, max(decimals, format_of(spread).decimals)))

    return Section(
        title,
        tables=[
            scores_table(
                "How far people are apart: standard deviation over descriptors, without noise",
                spreads,
                "outcome",
                label=lambda score: format_of(score).title,
                further={"cannot rule out": bound_cell},
                note=note("about_bounds"),
            ),
            Table("Shown differences, the largest first", names, tuple(rows), about),
        ],
        first_screen=True,
    )


def effect_row(row: EffectRow) -> Row:
    """Return a table row for a person or group whose answers are shown to differ in an outcome.

    It has the number of such answers, or their mean or typical value; the average over all people; and the difference
    with its interval.
    """
    spread = find_format(row["outcome"], Form.SPREAD)
    factor = spread.factor
    unit = spread.unit
    if row["scale"] == ValueKind.NUMBER:
        factor = 100
        unit = "percentiles"
    elif row["scale"] == ValueKind.SHARE:  # also of a column, whose format does not know it
        factor = 100
        unit = OF_100
    kind = "typical" if row["scale"] == ValueKind.RATIO else "mean"
    decimals = decimals_of(row)
    answers = f"{kind} {number(factor * row['mean'], decimals)} (n = {row['n']:,.0f})"
    if np.isfinite(row["hits"]):
        answers = f"{row['hits']:,.0f} of {row['n']:,.0f}"
    bounds = effect_interval(row, factor, decimals, sign=True)
    difference = Cell(number(factor * row["shrunk"], decimals, sign=True), bounds)
    average = Cell(number(factor * row["average"], decimals))
    is_group = row["kind"] in (columns.AXIS, columns.BUCKET)  # others are people, or levels of attributes
    who = unit_text(row) if is_group else row["unit"]
    return Row(sanitize(f"{who}: {_outcome_label(row)}", 80), (Cell(answers), average, difference, Cell(unit)))


def decimals_of(row: EffectRow) -> int:
    """Return the number of decimals of the means of an outcome.

    Those of a column in a small unit, such as a price per token, are as many as its means need.
    """
    spread = find_format(row["outcome"], Form.SPREAD)
    if spread.description != COLUMN or row["scale"] == ValueKind.NUMBER:
        return spread.decimals
    return max(spread.decimals, decimals_for((spread.factor * row["mean"], spread.factor * row["average"])))


def _outcome_label(row: EffectRow) -> str:
    outcome = row["outcome"].replace("_", " ")
    if row["outcome"] == LANGUAGE and row["name"] not in (TOO_SHORT, OTHER):
        return f"{outcome}: {language_name(row['name'])}"
    measure = find_measure(row["outcome"])
    is_number = measure is not None and row["name"] == measure.column
    return outcome if is_number or row["name"] == row["outcome"] else f"{outcome}: {row['name'].replace('_', ' ')}"


def outcome_change_section(changes: Sequence[BiasScore]) -> Section:
    """Return the section of a comparison on outcomes: means and spreads before and after, with paired changes.

    Classes of fewer than MIN_LISTED of the answers before and after have no row.
    """
    rows = []
    for change in changes:
        if change.kind == Kind.DIFFERENCE and change.form in (Form.SPREAD, Form.MEAN):
            before = find_score(changes, change.metric, change.form, **change.group, run="before")
            after = find_score(changes, change.metric, change.form, **change.group, run="after")
            if change.group and max(value_or(before, 0.0), value_or(after, 0.0)) < MIN_LISTED:
                continue
            rows.append(ScoreChange(_change_label(change), before, after, change))
    title = "Language and other outcomes, before and after"
    table = change_table("Means, and how far people are apart", "outcome", rows, with_n=True, is_plotted=False)
    return Section(title, tables=[table] if rows else [], first_screen=True)


def _change_label(change: BiasScore) -> str:
    title = find_format(change.metric, change.form).title
    value = change.group.get("value")
    if value is None:
        return title
    is_language = change.metric == LANGUAGE and value not in (TOO_SHORT, OTHER)
    return f"{title}: {language_name(value) if is_language else value}"


def all_values(names: Sequence[str], answers: pd.DataFrame, context: Context) -> dict[str, MeasureValues]:
    """Return the values of the measures of a run, by name.

    They are the given ones; with the language, whether it is another one than the request's; and whether answers are
    withheld or empty, if one is.
    """
    chosen = []
    for name in names:
        chosen.append(name)
        if name == LANGUAGE:
            chosen.append(OTHER_LANGUAGE)
    found = {name: measured_values(name, answers, context) for name in dict.fromkeys(chosen)}
    for name in ALWAYS:
        values = measured_values(name, answers, context)
        if (values.numbers == 1).any():
            found.setdefault(name, values)
    return found


class OutcomesPart(Part):
    """What else than style depends on the person."""

    FORMATS = tuple(measure.format(form) for form in (Form.SPREAD, Form.MEAN) for measure in all_measures())

    def inputs(self, config: FamilyConfig, model: Model) -> dict[str, Json]:
        names = config.settings.outcomes
        file = config.response_file()
        check_outcomes(names, file.columns if file is not None and file.has_prompts else {})
        for measure in filter(None, map(find_measure, names)):
            if measure.needs in (Needs.WEIGHTS, Needs.MODEL) and model.without_likelihoods:
                raise InputError(FIELD, f"{measure.name}: {model.without_likelihoods}; leave it out.")
            if measure.needs == Needs.CLASSIFIER and config.offensive_classifier.name is None:
                raise InputError(FIELD, f"{measure.name}: give offensive_classifier and its label, or leave it out.")
        files = {name: user_file(name) for name in names}
        return {f"outcomes.{name}": sha256_of(file) for name, file in files.items() if file is not None}

    def test_sets(self, run: ClassifiedRun, people: People) -> list[SetOfTests]:
        test_sets = []
        for name, values in run.outcomes.items():
            if name == OTHER_LANGUAGE and LANGUAGE in run.outcomes:  # one set of tests with the language
                continue
            parts = [values]
            if name == LANGUAGE and OTHER_LANGUAGE in run.outcomes:
                parts.append(run.outcomes[OTHER_LANGUAGE])
            test_sets.append(measure_tests([join_rare(part.rows(people.is_compared)) for part in parts]))
        return test_sets

    def score(self, run: ClassifiedRun, tests: JointTests) -> list[BiasScore]:
        if not run.outcomes:
            return []
        run.store.write(VALUES, values_table(run.responses.table[columns.PROMPT_ID], run.outcomes))
        tables = []
        for name, test_set in tests.test_sets.items():
            if isinstance(test_set, MeasureTests):
                tables.append(measure_table(tests.people, test_set, tests.found[name]))
        table = pd.concat(tables, ignore_index=True) if tables else pd.DataFrame(columns=MEASURE_COLUMNS)
        run.store.write(OUTCOME_EFFECTS, table)
        scores = []
        for name, values in run.outcomes.items():
            p_value = tests.p_value(name)
            if name not in tests.found and tests.has_permutations:  # tested with another outcome, the language
                p_value = float(table.loc[table["outcome"] == name, "p_joint"].min()) if len(table) else None
            scores += level_scores(run.responses, join_rare(values), p_value)
        if tests.has_permutations:
            for name, of_outcome in table.groupby("outcome"):
                scores.append(difference_bound(of_outcome, outcome=str(name)))
        return scores

    def compare(self, comparison: Comparison) -> list[BiasScore]:
        """Return the changes of all measures, and write the effects in both runs on common terms."""
        scores = []
        tables: dict[str, list[pd.DataFrame]] = {"before": [], "after": []}
        again: dict[str, dict[str, MeasureValues]] = {"before": {}, "after": {}}
        found = compared_values(comparison.before, comparison.after, comparison.old, comparison.new)
        for name, pair in found.items():
            measure = find_measure(name)
            if measure is not None and not isinstance(pair, str):
                pair = _on_same_terms(comparison, measure, pair)
            if isinstance(pair, str):
                scores += undefined_changes(name, pair)
                continue
            scores += measure_changes(comparison.old, *pair)
            if _has_common_terms(comparison, name, pair):
                tables["before"].append(_stored_effects(comparison.before, name))
                tables["after"].append(_stored_effects(comparison.after, name))
                continue
            common = on_common_terms(*pair)
            if not isinstance(common, str):
                again["before"][name], again["after"][name] = common
        if found:
            _write_effects(comparison, tables, again)
        return scores

    def sections(self, run: FamilyRun) -> list[Section]:
        return [outcome_section(run.scores, read_effects(run, OUTCOME_EFFECTS))]

    def change_sections(self, before: FamilyRun, after: FamilyRun, changes: FamilyRun) -> list[Section]:
        return [outcome_change_section(changes.scores)]


def _on_same_terms(
    comparison: Comparison, measure: Measure, pair: tuple[MeasureValues, MeasureValues]
) -> tuple[MeasureValues, MeasureValues] | str:
    """Return the values of both runs by the same classifier or under the first run's model, or why there are none."""
    if measure.needs == Needs.CLASSIFIER and not has_same_offensiveness_classifier(comparison):
        return OTHER_CLASSIFIER
    if measure.needs != Needs.WEIGHTS:
        return pair
    if comparison.without_base:
        return comparison.without_base
    with record_base_failure(comparison.store, measure.name, comparison.base):
        tables = tables_under_base(comparison, measure.table)
        values = []
        for answers, table in zip((comparison.old, comparison.new), tables, strict=True):
            values.append(measured_values(measure.name, answers.table, Context(tables={measure.table: table})))
        return values[0], values[1]
    return comparison.store.failures[measure.name]


def _has_common_terms(comparison: Comparison, name: str, pair: tuple[MeasureValues, MeasureValues]) -> bool:
    """Return whether the effects of both runs on a measure are of the values that are compared.

    They are not if the runs have other prompts, kinds or classes, if an answer has a value in one run only, if the
    values were computed for the comparison, or if only one run was tested by permutations.
    """
    before, after = pair
    measure = find_measure(name)
    is_new = measure is not None and measure.needs == Needs.WEIGHTS
    are_tested = {run.config.settings.permutations > 0 for run in (comparison.before, comparison.after)}
    if comparison.before.only is not None or is_new or len(are_tested) > 1:
        return False
    is_same = before.kind == after.kind and set(join_rare(before).table) == set(join_rare(after).table)
    is_stored = name in stored_names(comparison.before) and name in stored_names(comparison.after)
    return is_same and is_stored and bool((before.has_value == after.has_value).all())


def _stored_effects(run: FamilyRun, name: str) -> pd.DataFrame:
    effects = read_effects(run, OUTCOME_EFFECTS)
    return effects[effects["outcome"] == name]


def _write_effects(
    comparison: Comparison, tables: Mapping[str, list[pd.DataFrame]], again: Mapping[str, Mapping[str, MeasureValues]]
) -> None:
    """Write the effects of both runs: those of their own tables, and those that are tested again on common terms."""
    config = comparison.before.config
    permutations = comparison.old.level.draws(comparison.permutations)
    for side, responses in (("before", comparison.old), ("after", comparison.new)):
        tested = tested_measures(responses, again[side], permutations, config.seed)[1]
        parts = [part for part in (*tables[side], tested) if len(part)]
        table = pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=MEASURE_COLUMNS)
        comparison.store.write(side_effects(side), table)
