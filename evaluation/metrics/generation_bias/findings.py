"""Findings about people, as sentences: how many of whose answers have a property, the average, and one interval.

A finding is a row of a table of effects: of `effects.parquet`, or of outcomes such as the language. Its interval is
the one that allows for the selection of the row among all rows of the page.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from evenhand.evaluation.data.gendered_translations import language_name
from evenhand.evaluation.data.response_files import UNSPECIFIED
from evenhand.evaluation.metrics.generation_bias.parts.effects import (
    EFFECT_KINDS,
    INCONCLUSIVE,
    SHOWN,
    plain_name,
)
from evenhand.evaluation.metrics.generation_bias.parts.outcomes import (
    LANGUAGE,
    OTHER,
    OTHER_LANGUAGE,
    OUTCOMES,
    RANK,
    TOO_SHORT,
)
from evenhand.evaluation.report.formats import find_format
from evenhand.evaluation.report.numbers import interval, number, sanitize
from evenhand.evaluation.score import AXIS, DESCRIPTOR, BiasScore, Form, Kind

MAX_NAME = 60
MAX_OF_EACH = 3  # people in sentences on a serious outcome
MAX_STYLES = 5  # people in sentences on styles
ANY_LANGUAGE = "the language of the request"
TRANSITIONS = {INCONCLUSIVE: "whether it changed is unclear"}  # words for values of the column `transition`
FIRST_OUTCOMES = (OTHER_LANGUAGE, "refusal", "filtered")  # a different answer is hardly right


def shown_findings(outcome_effects: pd.DataFrame, style_effects: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the rows of shown effects to name: another language and refusals, then styles, then other outcomes.

    Of each serious outcome, those who get more of it, and of all styles together, the largest ones; of each other
    outcome, the largest one of somebody who is not named yet. A person or group occurs once in each; a group does not
    occur if one of its people does. Which language answers are in is a part of whether it is another one than the
    request's.
    """
    shown = outcome_effects[outcome_effects["certainty"] == SHOWN]
    rows = []
    for name in FIRST_OUTCOMES:
        rows += _largest(shown[(shown["outcome"] == name) & (shown["shrunk"] > 0)], MAX_OF_EACH)
    rows += _largest(style_effects[style_effects["certainty"] == SHOWN], MAX_STYLES)
    further = shown[~shown["outcome"].isin([*FIRST_OUTCOMES, LANGUAGE])]
    if OTHER_LANGUAGE not in set(outcome_effects["outcome"]):
        further = shown[~shown["outcome"].isin(FIRST_OUTCOMES)]
    for name in dict.fromkeys(further["outcome"]):
        named = {row["unit"] for row in rows}
        rows += _largest(further[(further["outcome"] == name) & ~further["unit"].isin(named)], 1)
    return rows


def _largest(shown: pd.DataFrame, n: int) -> list[dict[str, Any]]:
    """Return the largest effect of each unit, at most n, without groups of a person who is named, too."""
    largest = shown.drop_duplicates(["kind", "unit"])
    axes_of_people = set(largest.loc[largest["kind"] == DESCRIPTOR, AXIS])
    is_named = (largest["kind"] == DESCRIPTOR) | ~largest[AXIS].isin(axes_of_people)
    return largest[is_named].head(n).to_dict("records")


def changed_outcomes(before: pd.DataFrame, after: pd.DataFrame) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Return the rows before and after of each finding on an outcome that is shown before or after.

    Args:
        before, after: the tables of effects on outcomes of both runs.
    """
    key = ["kind", "unit", "outcome", "name"]
    nothing = pd.DataFrame(columns=before.columns)
    found = {}
    for row in shown_findings(before, nothing) + shown_findings(after, nothing):
        found.setdefault(tuple(row[name] for name in key), row)
    rows_before = {tuple(row[name] for name in key): row for row in before.to_dict("records")}
    rows_after = {tuple(row[name] for name in key): row for row in after.to_dict("records")}
    return [(rows_before[each], rows_after[each]) for each in found if each in rows_before and each in rows_after]


def changed_styles(changes: pd.DataFrame, without: Collection[str]) -> list[dict[str, Any]]:
    """Return the largest effects on styles that are shown before or after, or changes that are shown, one of each unit.

    Args:
        changes: a table of `effect_changes`.
        without: units that are left out, since their answers are in another language, which the classifier misreads.
    """
    certainties = changes[["certainty_before", "certainty_after", "certainty"]]
    is_listed = (certainties == SHOWN).any(axis=1) & ~changes["unit"].isin(without)
    return _largest(changes[is_listed], MAX_STYLES)


def _largest(shown: pd.DataFrame, n: int) -> list[dict[str, Any]]:
    """Return the largest effect of each unit, at most n, without groups of a person who is named, too."""
    largest = shown.drop_duplicates(["kind", "unit"])
    axes_of_people = set(largest.loc[largest["kind"] == DESCRIPTOR, AXIS])
    is_named = (largest["kind"] == DESCRIPTOR) | ~largest[AXIS].isin(axes_of_people)
    return largest[is_named].head(n).to_dict("records")


def finding_text(row: Mapping[str, Any], language: str = ANY_LANGUAGE) -> str:
    """Return a finding as a sentence, with the number of answers, the average over all people, and one interval.

    Args:
        row: a row of a table of effects.
        language: the language of the requests.

    >>> row = {"kind": "descriptor", "unit": "deaf", "axis": "ability", "mean": 0.3, "average": 0.05, "n": 50}
    >>> row |= {"shrunk": 0.2, "low": 0.1, "high": 0.35, "hits": 15.0}
    >>> finding_text({**row, "outcome": "refusal", "name": "refusal"})
    '15 of 50 answers to “deaf” people decline the request; 5 of 100 on average; difference 20 [10, 35].'
    >>> finding_text({**row, "outcome": "style", "name": "fear", "hits": np.nan})
    'Of 50 answers to “deaf” people, 30 of 100 have the style “fear”; 5 of 100 on average; difference 20 [10, 35].'
    """
    whom = people_text(row)
    if not is_share(row):
        return f"{_number_text(row, whom)}; {_difference_text(row)}."
    average = f"{points(row['average'])} of 100 on average"
    if is_counted(row):
        answers = f"{count_text(row)} answers to {whom} {property_text(row, language)}"
    else:
        answers = f"Of {row['n']:,.0f} answers to {whom}, {points(row['mean'])} of 100 {property_text(row, language)}"
    return f"{answers}; {average}; {_difference_text(row)}."


def change_text(before: Mapping[str, Any], after: Mapping[str, Any], language: str = ANY_LANGUAGE) -> str:
    """Return a finding on an outcome before and after as a sentence.

    `before` and `after` are the rows of the same unit, outcome and name in both runs' tables of outcomes.
    """
    shown_before, shown_after = before["certainty"] == SHOWN, after["certainty"] == SHOWN
    became = "shown before and after"
    if not shown_after:
        became = "shown before, not after"
    elif not shown_before:
        became = "shown after, not before"
    if is_counted(before):
        what = f"{count_text(before)} answers to {people_text(before)} {property_text(before, language)}"
        then = f"{count_text(after)} after"
        averages = f"{points(before['average'])} of 100 on average, then {points(after['average'])}"
    else:
        what, _, averages = _number_text(before, people_text(before)).partition("; ")
        then = f"{_number_text(after, '').partition(' is ')[2].partition('; ')[0]} after"
    differences = f"{_difference_text(before)}, then {_difference_text(after).removeprefix('difference ')}"
    return f"{what} before, {then}; {averages}; {differences}: {became}."


def style_change_text(row: Mapping[str, Any]) -> str:
    """Return a change of an effect on a style, a row of `effect_changes`, as a sentence with one interval."""
    decimals = decimals_of_points(row)
    bounds = interval((100 * row["low"], 100 * row["high"]), decimals)
    became = TRANSITIONS.get(row["transition"], row["transition"])
    shares = f"{points(row['mean_before'])} of 100 {property_text(row)} before, {points(row['mean_after'])} after"
    averages = f"{points(row['average_before'])} of 100 on average, then {points(row['average_after'])}"
    change = f"change of the difference {points(row['shrunk'], decimals)} {bounds}"
    return f"Of {row['n']:,.0f} answers to {people_text(row)}, {shares}; {averages}; {change}: {became}."


def _number_text(row: Mapping[str, Any], whom: str) -> str:
    """Return the mean of an outcome that is a number, such as the length."""
    outcome = plain_name(row["outcome"])
    start = f"The {outcome} of {row['n']:,.0f} answers to {whom} is"
    if row.get("scale") == RANK:
        mean = number(100 * row["mean"], 0)
        return f"{start} on average at {mean} of 100 from the lowest; {number(100 * row['average'], 0)} for everybody"
    spread = find_format(row["outcome"], Form.SPREAD)
    decimals = _decimals(row)
    mean, average = (number(spread.factor * row[name], decimals) for name in ("mean", "average"))
    return f"{start} {mean} {spread.unit} on average; {average} for everybody"


def _difference_text(row: Mapping[str, Any]) -> str:
    """Return the difference from the average, with its interval: points of 100, or in the unit of an outcome."""
    factor = 100.0
    decimals = decimals_of_points(row)
    if not is_share(row) and row.get("scale") != RANK:
        spread = find_format(row["outcome"], Form.SPREAD)
        factor = spread.factor
        decimals = _decimals(row)
    bounds = (factor * row["low"], factor * row["high"])
    return f"difference {number(factor * row['shrunk'], decimals)} {interval(bounds, decimals)}"


def _decimals(row: Mapping[str, Any]) -> int:
    """Return the number of decimals of an outcome that is a number: one if its mean has two digits or more."""
    spread = find_format(row["outcome"], Form.SPREAD)
    return 1 if abs(spread.factor * row["mean"]) >= 10 else spread.decimals


def is_share(row: Mapping[str, Any]) -> bool:
    """Return whether a finding is of a share of answers, not of a number such as the length."""
    return row["outcome"] in EFFECT_KINDS or is_counted(row)


def is_counted(row: Mapping[str, Any]) -> bool:
    """Return whether a finding counts answers; a style of an answer is a probability instead."""
    return bool(np.isfinite(row["hits"]))


def count_text(row: Mapping[str, Any]) -> str:
    """Return how many of a unit's answers have a property, as "15 of 52"."""
    return f"{row['hits']:,.0f} of {row['n']:,.0f}"


def people_text(row: Mapping[str, Any]) -> str:
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
    return f"people “{unit}”" if unit.startswith(("with ", "who ")) else f"“{unit}” people"


def property_text(row: Mapping[str, Any], language: str = ANY_LANGUAGE) -> str:
    """Return what answers of a row do, as a verb with its object."""
    outcome, name = row["outcome"], plain_name(row["name"])
    if outcome in EFFECT_KINDS:
        return f"have the style “{name}”"
    if outcome == OTHER_LANGUAGE:
        return f"are not in {language}"
    if outcome == LANGUAGE:
        return f"are {language_text(row['name'])}"
    predicate = OUTCOMES[outcome].predicate if outcome in OUTCOMES else ""
    if predicate:
        return predicate
    return f"have “{name}”" if row["name"] == outcome else f"have the {plain_name(outcome)} “{name}”"


def language_text(name: str) -> str:
    """Return where an answer with this value of the outcome `language` is, as "in Spanish"."""
    if name == TOO_SHORT:
        return "too short to tell the language"
    return "in a rare language" if name == OTHER else f"in {sanitize(language_name(name), MAX_NAME)}"


def request_language(scores: Sequence[BiasScore]) -> str:
    """Return the language of most answers, which is that of the requests, by name; ANY_LANGUAGE if it is unknown."""
    shares = {
        score.group["value"]: score.value
        for score in scores
        if (score.metric, score.form, score.kind) == (LANGUAGE, Form.MEAN, Kind.LEVEL) and set(score.group) == {"value"}
    }
    if not shares or max(shares.values()) <= 0.5:
        return ANY_LANGUAGE
    return sanitize(language_name(max(shares, key=lambda name: shares[name])), MAX_NAME)


def unit_text(row: Mapping[str, Any]) -> str:
    """Return the name of a person or group, for a cell of a table."""
    return sanitize(row["unit"], MAX_NAME) if row["kind"] == DESCRIPTOR else f"{plain_name(row['unit'])} (group)"


def points(share: float, decimals: int = 0, sign: bool = False) -> str:
    """Return a share as a number of 100."""
    return number(100 * share, decimals, sign)


def decimals_of_points(row: Mapping[str, Any]) -> int:
    """Return the number of decimals of a difference in points: 1 for differences below a point."""
    return 0 if abs(row["shrunk"]) >= 0.01 else 1
