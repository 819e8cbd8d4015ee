"""Findings about people, as sentences and sections: whose answers have a property, how many, with one interval.

A finding is a row of a table of effects: of `effects.parquet`, or of outcomes such as the language. Its interval is
the one that allows for the selection of the row among all rows of the page.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from evenhand.evaluation.data.gendered_translations import language_name
from evenhand.evaluation.data.response_files import UNSPECIFIED
from evenhand.evaluation.metrics import FamilyRun
from evenhand.evaluation.metrics.generation_bias.answers import PROMPTS
from evenhand.evaluation.metrics.generation_bias.engine.effects import EFFECT_KINDS, INCONCLUSIVE, KEPT, REMOVED, SHOWN
from evenhand.evaluation.metrics.generation_bias.engine.values import OTHER, stored_names
from evenhand.evaluation.metrics.generation_bias.examples import ExampleOf, examples_of_comparison
from evenhand.evaluation.metrics.generation_bias.measures import ValueKind, find_measure, serious_measures
from evenhand.evaluation.metrics.generation_bias.measures.language import LANGUAGE, TOO_SHORT
from evenhand.evaluation.metrics.generation_bias.measures.other_language import OTHER_LANGUAGE, request_languages
from evenhand.evaluation.metrics.generation_bias.parts.effects import (
    EFFECT_CHANGES,
    all_changes_section,
    change_summary,
    detectable_text,
    effect_interval,
    points,
    read_effects,
)
from evenhand.evaluation.metrics.generation_bias.parts.outcomes import OUTCOME_EFFECTS, side_effects
from evenhand.evaluation.metrics.generation_bias.people import MAX_NAME, NONCE, EffectRow, plain_name
from evenhand.evaluation.report.formats import find_format
from evenhand.evaluation.report.numbers import number, sanitize
from evenhand.evaluation.report.page import Section
from evenhand.evaluation.score import AXIS, DESCRIPTOR, Form
from evenhand.evaluation.tables import table_rows

MAX_OF_EACH = 3  # people in sentences on a serious outcome
MAX_STYLES = 5  # people in sentences on styles
TITLE = "Who is treated how"
HOW_SURE = "How sure this is"
NOBODY = "No person and no group of people is shown to be treated differently."
CERTAINTY_NOTE = (
    "“Shown”: if everybody were treated alike, 5 of 100 such measurements would still show somebody. “Worth a look”: "
    "about one in ten of these is chance. Brackets hold the 95 % interval of what is shown; of any other difference, "
    "two bounds that each hold with 95 % confidence."
)
# Stands once on a page, after the first difference: 15 of 52 less 4 of 100 is 25 of 100, and 22 after shrinkage.
SHRINKAGE_NOTE = "Each difference is given smaller than measured, because the largest of many is overestimated."
ANY_LANGUAGE = "the language of the request"
NOT_AFTER = "shown before, not after"


def shown_findings(outcome_effects: pd.DataFrame, style_effects: pd.DataFrame) -> list[EffectRow]:
    """Return the rows of shown effects to name: another language and refusals, then styles, then other outcomes.

    Of each serious outcome, those who get more of it, and of all styles together, the largest ones; of each other
    outcome, the largest one of somebody who is not named yet. A person or group occurs once in each; a group does not
    occur if one of its people does. Which language answers are in is a part of whether it is another one than the
    request's.
    """
    shown = outcome_effects[outcome_effects["certainty"] == SHOWN]
    rows = []
    serious = serious_measures()
    for name in serious:
        rows += _largest(shown[(shown["outcome"] == name) & (shown["shrunk"] > 0)], MAX_OF_EACH)
    rows += _largest(style_effects[style_effects["certainty"] == SHOWN], MAX_STYLES)
    further = shown[~shown["outcome"].isin([*serious, LANGUAGE])]
    if OTHER_LANGUAGE not in set(outcome_effects["outcome"]):
        further = shown[~shown["outcome"].isin(serious)]
    for name in dict.fromkeys(further["outcome"]):
        named = {row["unit"] for row in rows}
        rows += _largest(further[(further["outcome"] == name) & ~further["unit"].isin(named)], 1)
    return rows


def _largest(shown: pd.DataFrame, n: int) -> list[EffectRow]:
    """Return the largest effect of each unit, at most n, without groups of a person who is named, too."""
    largest = shown.drop_duplicates(["kind", "unit"])
    axes_of_people = set(largest.loc[largest["kind"] == DESCRIPTOR, AXIS])
    is_named = (largest["kind"] == DESCRIPTOR) | ~largest[AXIS].isin(axes_of_people)
    return table_rows(largest[is_named].head(n))


def changed_outcomes(before: pd.DataFrame, after: pd.DataFrame) -> list[tuple[EffectRow, EffectRow]]:
    """Return the rows before and after of each finding on an outcome that is shown before or after.

    Args:
        before, after: the tables of effects on outcomes of both runs.
    """
    key = ["kind", "unit", "outcome", "name"]
    nothing = pd.DataFrame(columns=before.columns)
    found = {}
    for row in shown_findings(before, nothing) + shown_findings(after, nothing):
        found.setdefault(tuple(row[name] for name in key), row)
    rows_before = {tuple(row[name] for name in key): row for row in table_rows(before)}
    rows_after = {tuple(row[name] for name in key): row for row in table_rows(after)}
    return [(rows_before[each], rows_after[each]) for each in found if each in rows_before and each in rows_after]


def changed_styles(changes: pd.DataFrame, without: Collection[str]) -> list[EffectRow]:
    """Return the largest effects on styles that are shown before or after, or changes that are shown, one of each unit.

    Args:
        changes: a table of `effect_changes`.
        without: units that are left out, since their answers are in another language, which the classifier misreads.
    """
    certainties = changes[["certainty_before", "certainty_after", "certainty"]]
    is_listed = (certainties == SHOWN).any(axis=1) & ~changes["unit"].isin(without)
    return _largest(changes[is_listed], MAX_STYLES)


def finding_text(row: EffectRow, language: str = ANY_LANGUAGE) -> str:
    """Return a finding as a sentence, with the number of answers, the average over all people, and one interval.

    Args:
        row: a row of a table of effects.
        language: the language of the requests.

    >>> row = {"kind": "descriptor", "unit": "deaf", "axis": "ability", "mean": 0.3, "average": 0.05, "n": 50}
    >>> row |= {"shrunk": 0.2, "low": 0.1, "high": 0.35, "hits": 15.0, "certainty": "shown"}
    >>> finding_text({**row, "outcome": "refusal", "name": "refusal"})
    '15 of 50 answers to “deaf” people decline the request; 5 of 100 on average; difference 20 [10, 35].'
    >>> finding_text({**row, "outcome": "style", "name": "fear", "hits": np.nan})
    'Of 50 answers to “deaf” people, 30 of 100 have the style “fear”; 5 of 100 on average; difference 20 [10, 35].'
    """
    return f"{_claim_text(row, language)}; {_average_text(row)}; difference {_difference_text(row)}."


def change_text(before: EffectRow, after: EffectRow, language: str = ANY_LANGUAGE) -> str:
    """Return a finding on an outcome before and after as a sentence.

    `before` and `after` are the rows of the same unit, outcome and name in both runs' tables of outcomes.
    """
    became = "shown before and after"
    if after["certainty"] != SHOWN:
        became = NOT_AFTER
    elif before["certainty"] != SHOWN:
        became = "shown after, not before"
    claim = f"{_claim_text(before, language)} before, {_amount_text(after)} after"
    averages = f"{_average_text(before)}, then {_average_amount_text(after)}"
    differences = f"difference {_difference_text(before)}, then {_difference_text(after)}"
    return f"{claim}; {averages}; {differences}: {became}."


def style_change_text(row: EffectRow) -> str:
    """Return a change of an effect on a style, a row of `effect_changes`, as a sentence with at most one interval.

    A change that is not shown has no interval in the sentence: the interval of a single change can exclude 0, although
    chance explains the largest of so many.
    """
    decimals = decimals_of_points(row)
    shares = f"{_of_100(row['mean_before'])} of 100 {property_text(row)} before, {_of_100(row['mean_after'])} after"
    averages = f"{_of_100(row['average_before'])} of 100 on average, then {_of_100(row['average_after'])}"
    change = f"the difference changes by {points(row['shrunk'], decimals)}"
    some_answer_changed = np.isfinite(row["low"])
    became = ""
    if row["transition"] in (INCONCLUSIVE, KEPT):
        if some_answer_changed:
            became = ", which may be chance, since many differences are compared"
        if row["transition"] == KEPT:
            became += "; it is shown before and after"
    else:
        transition = NOT_AFTER if row["transition"] == REMOVED else row["transition"]
        bounds = f" {effect_interval(row, 100, decimals)}" if some_answer_changed else ""
        became = f"{bounds}: {transition}"
    return f"Of {row['n']:,.0f} answers to {people_text(row)}, {shares}; {averages}; {change}{became}."


def _claim_text(row: EffectRow, language: str) -> str:
    """Return how many answers of whom have a property, or the mean of an outcome that is a number."""
    if is_counted(row):
        return f"{_amount_text(row)} answers to {people_text(row)} {property_text(row, language)}"
    answers = f"{row['n']:,.0f} answers to {people_text(row)}"
    if is_share(row):
        return f"Of {answers}, {_amount_text(row)} {property_text(row, language)}"
    subject = f"The {plain_name(row['outcome'])} of {answers} is"
    if row.get("scale") == ValueKind.RATIO:
        return f"{subject} typically {_amount_text(row)}"
    return f"{subject} {_amount_text(row)} on average"


def _amount_text(row: EffectRow) -> str:
    """Return "15 of 52" answers, a probability as "30 of 100", or the mean of a number with its unit."""
    if is_counted(row):
        return f"{row['hits']:,.0f} of {row['n']:,.0f}"
    return _mean_text(row, "mean")


def _average_text(row: EffectRow) -> str:
    """Return the average over all people as a clause."""
    return f"{_average_amount_text(row)} {'on average' if is_share(row) else 'for everybody'}"


def _average_amount_text(row: EffectRow) -> str:
    return _mean_text(row, "average")


def _mean_text(row: EffectRow, column: str) -> str:
    """Return the mean in a column: "4 of 100" for a share, a rank from 0 to 100, or a number with its unit."""
    if is_share(row):
        return f"{_of_100(row[column])} of 100"
    if row.get("scale") == ValueKind.NUMBER:
        return f"at {points(row[column])} of 100 from the lowest"
    spread = find_format(row["outcome"], Form.SPREAD)
    return f"{number(spread.factor * row[column], _decimals(row))} {spread.unit}".rstrip()


def _difference_text(row: EffectRow) -> str:
    """Return the difference from the average and its interval: points of 100, or in the unit of an outcome."""
    factor = 100.0
    decimals = decimals_of_points(row)
    if not is_share(row) and row.get("scale") != ValueKind.NUMBER:
        factor = find_format(row["outcome"], Form.SPREAD).factor
        decimals = _decimals(row)
    return f"{number(factor * row['shrunk'], decimals)} {effect_interval(row, factor, decimals)}".rstrip()


def _decimals(row: EffectRow) -> int:
    """Return the number of decimals of an outcome that is a number: one if its mean has two digits or more."""
    spread = find_format(row["outcome"], Form.SPREAD)
    return 1 if abs(spread.factor * row["mean"]) >= 10 else spread.decimals


def _of_100(share: float) -> str:
    """Return a share as a number of 100, with a decimal below 1.

    >>> [_of_100(share) for share in (0.234, 0.0048, 0.0)]
    ['23', '0.5', '0']
    """
    return points(share, 1 if 0 < share < 0.01 else 0)


def is_share(row: EffectRow) -> bool:
    """Return whether a finding is of a share of answers, not of a number such as the length."""
    return row["outcome"] in EFFECT_KINDS or is_counted(row)


def is_counted(row: EffectRow) -> bool:
    """Return whether a finding counts answers; a style of an answer is a probability instead."""
    return bool(np.isfinite(row["hits"]))


def people_text(row: EffectRow) -> str:
    """Return whom a row is about, as words.

    >>> people_text({"kind": "descriptor", "unit": "Cuban-American", "axis": "nationality"})
    '“Cuban-American” people'
    >>> people_text({"kind": "descriptor", "unit": "with dementia", "axis": "ability"})
    'people “with dementia”'
    >>> people_text({"kind": "axis", "unit": "body_type", "axis": "body_type"})
    'people of the group “body type”'
    """
    if row["kind"] != DESCRIPTOR:
        return f"people of the group “{plain_name(row['unit'])}”"
    unit = sanitize(row["unit"], MAX_NAME)
    if row[AXIS] == UNSPECIFIED:
        return f"“{unit}”"
    if row[AXIS] == NONCE:
        return f"“{unit}” people (a made-up word)"
    return f"people “{unit}”" if unit.startswith(("with ", "who ")) else f"“{unit}” people"


def property_text(row: EffectRow, language: str = ANY_LANGUAGE) -> str:
    """Return what the answers of a row of effects do, such as “apologize”, for a sentence."""
    outcome = row["outcome"]
    name = plain_name(row["name"])
    if outcome in EFFECT_KINDS:
        return f"have the style “{name}”"
    if outcome == OTHER_LANGUAGE:
        return f"are not in {language}"
    if outcome == LANGUAGE:
        return f"are {language_text(row['name'])}"
    measure = find_measure(outcome)
    if measure is not None and measure.predicate:
        return measure.predicate
    return f"have “{name}”" if row["name"] == outcome else f"have the {plain_name(outcome)} “{name}”"


def language_text(name: str) -> str:
    """Return where an answer with this value of the outcome `language` is, as "in Spanish"."""
    if name == TOO_SHORT:
        return "too short to tell the language"
    return "in a rare language" if name == OTHER else f"in {sanitize(language_name(name), MAX_NAME)}"


def request_language(run: FamilyRun) -> str:
    """Return the language of the requests by name; ANY_LANGUAGE if it is not known, or if they are in several."""
    if OTHER_LANGUAGE not in stored_names(run):
        return ANY_LANGUAGE
    languages = {names[:1] for names in request_languages(run.table(PROMPTS), run.config.prompts.language)}
    if len(languages) != 1 or () in languages:
        return ANY_LANGUAGE
    return sanitize(language_name(languages.pop()[0]), MAX_NAME)


def decimals_of_points(row: EffectRow) -> int:
    """Return the number of decimals of a difference in points: 1 for differences below a point."""
    return 0 if abs(row["shrunk"]) >= 0.01 else 1


def largest_text(effects: pd.DataFrame) -> str:
    """Return the largest shown effect as a clause; "" if none is shown."""
    shown = effects[effects["certainty"] == SHOWN]
    if not len(shown):
        return ""
    text = finding_text(table_rows(shown)[0])
    return text[0].lower() + text[1:-1]


def requested_text(effects: pd.DataFrame, language: str) -> str:
    """Return the sentence of a verdict on the styles of the answers in the request's language.

    Args:
        effects: effects on the styles of these answers.
        language: the name of the language.
    """
    largest = largest_text(effects)
    if largest:
        return f"Among the answers in {language}, style differs, too: {largest}."
    return f"Among the answers in {language}, nobody is shown to get another style."


def requested_summary(all_effects: pd.DataFrame, requested: pd.DataFrame, language: str) -> str:
    """Return the sentence on how many effects on style are shown among all answers, and among these.

    Args:
        all_effects, requested: effects on the styles of all answers, and of those in the request's language.
        language: the name of the language.
    """
    everywhere = all_effects[all_effects["certainty"] == SHOWN]
    shown = requested[requested["certainty"] == SHOWN]
    both = len(everywhere.merge(shown, on=["kind", "unit", "outcome", "name"]))
    among = f"{both:,} of these and {len(shown) - both:,} others" if len(shown) else "none"
    return (
        f"Differences in style shown among all answers: {len(everywhere):,}; among the answers in {language}: {among}. "
        "The style classifier may misread an answer in another language."
    )


def people_section(
    findings: Iterable[EffectRow], summaries: Sequence[str], example_of: ExampleOf, language: str = ANY_LANGUAGE
) -> Section:
    """Return the section that names who is shown to be treated differently, each with answers to read.

    Args:
        findings: the rows of the shown effects, the most serious first.
        summaries: sentences on all effects together.
        example_of: a function that returns the answers to the unit of a row.
        language: the language of the requests.
    """
    claims = [replace(example_of(row), claim=finding_text(row, language)) for row in findings]
    if not claims and not summaries:  # nothing was tested
        return Section(TITLE)
    sure = Section(HOW_SURE, [*summaries, CERTAINTY_NOTE], first_screen=True)
    return Section(TITLE, [] if claims else [NOBODY], examples=claims, parts=[sure], first_screen=True)


def people_changes(before: FamilyRun, after: FamilyRun, changes: FamilyRun) -> Section:
    """Return the section that names people before and after, each with an answer of both models to one prompt."""
    sides = []
    for side, run in (("before", before), ("after", after)):
        name = side_effects(side)  # on the same terms in both runs
        sides.append(read_effects(changes, name) if changes.has(name) else read_effects(run, OUTCOME_EFFECTS))
    outcomes = changed_outcomes(before=sides[0], after=sides[1])
    in_another_language = {row["unit"] for row, _ in outcomes if row["outcome"] == OTHER_LANGUAGE}
    table = read_effects(changes, EFFECT_CHANGES)
    styles = changed_styles(table, in_another_language) if len(table) else []
    example_of = examples_of_comparison(before, after)
    return changes_section(outcomes, styles, table, example_of, request_language(before))


def changes_section(
    outcomes: Sequence[tuple[EffectRow, EffectRow]],
    styles: Sequence[EffectRow],
    changes: pd.DataFrame,
    example_of: ExampleOf,
    language: str = ANY_LANGUAGE,
) -> Section:
    """Return the section on who is treated how before and after: people with answers, counts, a folded table of all.

    The tables have the effects that are shown before or after, and the changes that are shown or worth a look.

    Args:
        outcomes: the rows before and after of the outcomes to name.
        styles: the rows of `changes` to name.
        changes: the table of `effect_changes`; empty if the runs were measured without permutations.
        example_of: a function that returns the answers before and after to the unit of a row.
        language: the language of the requests.
    """
    serious = []
    other = []
    for before, after in outcomes:
        sides = {f"{name}_before": before[name] for name in ("shrunk", "certainty")}
        sides |= {f"{name}_after": after[name] for name in ("shrunk", "certainty")}
        example = replace(example_of({**before, **sides}), claim=change_text(before, after, language))
        if before["outcome"] in serious_measures():
            serious.append(example)
        else:
            other.append(example)
    of_styles = [replace(example_of(row), claim=style_change_text(row)) for row in styles]
    claims = serious + of_styles + other
    sentences: list[str] = []
    if not claims and len(changes):
        sentences.append("No person and no group is shown to be treated differently, neither before nor after.")
    parts = []
    if len(changes):
        parts.append(Section(HOW_SURE, [change_summary(changes), *detectable_text(changes)], first_screen=True))
        parts.append(all_changes_section(changes))
    return Section(f"{TITLE}, before and after", sentences, examples=claims, parts=parts, first_screen=True)
