"""Findings about people, and the sections that name them: whose answers have a property, how many, with one interval.

A finding is a row of a table of effects: of `effects.parquet`, or of outcomes such as the language. Its interval is
the one that allows for the selection of the row among all rows of the page.
"""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import ndtri

from evenhand.evaluation import columns
from evenhand.evaluation.data.gendered_translations import language_name
from evenhand.evaluation.data.readers.response_files import UNSPECIFIED
from evenhand.evaluation.facts import Finding
from evenhand.evaluation.metrics import FamilyRun
from evenhand.evaluation.metrics.generation_bias.answers import PROMPTS
from evenhand.evaluation.metrics.generation_bias.engine.effects import EFFECT_KINDS, SHOWN, SMALLEST, is_named
from evenhand.evaluation.metrics.generation_bias.engine.values import OTHER, stored_names
from evenhand.evaluation.metrics.generation_bias.examples import ExampleOf, examples_of_comparison
from evenhand.evaluation.metrics.generation_bias.measures import ValueKind, find_measure, serious_measures
from evenhand.evaluation.metrics.generation_bias.measures.language import LANGUAGE, TOO_SHORT, request_languages
from evenhand.evaluation.metrics.generation_bias.measures.other_language import OTHER_LANGUAGE
from evenhand.evaluation.metrics.generation_bias.parts.effects import (
    EFFECT_CHANGES,
    all_changes_section,
    change_summary,
    detectable_finding,
    only_shifted,
    read_effects,
)
from evenhand.evaluation.metrics.generation_bias.parts.outcomes import (
    OUTCOME_EFFECTS,
    decimals_of,
    risen_outcomes,
    side_effects,
)
from evenhand.evaluation.metrics.generation_bias.people import AND, EffectRow
from evenhand.evaluation.metrics.generation_bias.words import words
from evenhand.evaluation.report.formats import find_format
from evenhand.evaluation.report.numbers import NONCE
from evenhand.evaluation.report.page import Example, Section
from evenhand.evaluation.score import BiasScore, Form, find_score
from evenhand.evaluation.statistics.intervals import CONFIDENCE, Z, share_interval
from evenhand.evaluation.statistics.person_effects import POWER, share_variance
from evenhand.evaluation.tables import table_rows

MAX_OF_EACH = 3  # people in sentences on a serious outcome
MAX_STYLES = 5  # people in sentences on styles
TITLE = "Who is treated how"
HOW_SURE = "How sure this is"


@dataclass(frozen=True)
class Who:
    """A person or a group: the name, and what the name is: "person", "made_up", "text" or "group"."""

    name: str
    form: str


@dataclass(frozen=True)
class Outcome:
    """What answers do, or have.

    Attributes:
        name, value: the outcome and its value, such as "language" and "Spanish"; a number has its name as value.
        predicate: what follows "of 52 answers" in a sentence; "" if the value does.
        scale: how a number of it is reported: as a share, a rank from the lowest, a ratio, or a number.
        factor, unit, decimals: how a number that is no share is written.
    """

    name: str
    value: str
    predicate: str
    scale: str
    factor: float = 1.0
    unit: str = ""
    decimals: int = 0


@dataclass(frozen=True)
class Level:
    """How many answers to somebody have an outcome.

    Attributes:
        n: number of answers.
        hits: number of those that have it; None if it is no count.
        mean, average: the mean of these answers, and the average of all people.
        estimate, interval: the estimated difference from the average, with its interval.
        certainty: whether the difference is shown.
    """

    n: int
    hits: int | None
    mean: float
    average: float
    estimate: float
    interval: tuple[float, float]
    certainty: str


@dataclass(frozen=True)
class Change:
    """The estimated change of a difference, with its interval and its certainty."""

    estimate: float
    interval: tuple[float, float]
    certainty: str


def shown_findings(outcome_effects: pd.DataFrame, style_effects: pd.DataFrame) -> list[EffectRow]:
    """Return the rows of shown effects to name: another language and refusals, then styles, then other outcomes.

    Of each serious outcome, those who get more of it; of all styles together, the largest ones without their
    counterparts (`_are_counterparts`); of each other outcome, the largest one. A person or group occurs once in each; a
    group does not occur if one of its people does. Which language answers are in is a part of whether it is another one
    than the request's.
    """
    shown = outcome_effects[outcome_effects["certainty"] == SHOWN]
    rows = []
    serious = serious_measures()
    for name in serious:
        rows += _largest(shown[(shown["outcome"] == name) & (shown["shrunk"] > 0)], MAX_OF_EACH)
    is_counterpart = _are_counterparts(style_effects, style_effects["shrunk"])
    rows += _largest(style_effects[is_named(style_effects) & ~is_counterpart], MAX_STYLES)
    further = shown[~shown["outcome"].isin([*serious, LANGUAGE])]
    if OTHER_LANGUAGE not in set(outcome_effects["outcome"]):
        further = shown[~shown["outcome"].isin(serious)]
    for name in dict.fromkeys(further["outcome"]):
        rows += _largest(further[further["outcome"] == name], 1)
    return rows


def _largest(shown: pd.DataFrame, n: int) -> list[EffectRow]:
    """Return the largest effect of each unit, at most n.

    Groups of a person who is named are left out, and of an axis and its parts that differ in the same, what is smaller.
    """
    largest = shown.drop_duplicates(["kind", "unit"])
    is_person = largest["kind"] == columns.DESCRIPTOR
    of_people = largest.loc[is_person, columns.AXIS]
    axes_of_people = {*of_people, *of_people.str.split(AND).explode()}
    kinds = largest["kind"].where(~is_person)
    largest_kind = kinds.groupby([largest[name] for name in (columns.AXIS, "outcome", "name")]).transform("first")
    is_named = is_person | (~largest[columns.AXIS].isin(axes_of_people) & (kinds == largest_kind))
    return table_rows(largest[is_named].head(n))


def _are_counterparts(effects: pd.DataFrame, sizes: pd.Series) -> pd.Series:
    """Return whether each effect on a style only follows from larger, opposite effects of other people, (n,).

    The average is of all people: where some of D people differ by x in sum, everybody else is about x / D on the other
    side. An effect is a counterpart if it is at most twice as large as that, and at most half as large as the largest
    one on the other side of the same style.

    Args:
        effects: a table of all effects.
        sizes: the effects with their signs, (n,).
    """
    is_person = effects["kind"] == columns.DESCRIPTOR
    style = [effects["outcome"], effects["name"]]
    rises = sizes.clip(lower=0)
    falls = (-sizes).clip(lower=0)
    other_side = pd.DataFrame({"sum": 0.0, "largest": 0.0}, index=effects.index)
    for side, other in ((rises, falls), (falls, rises)):
        of_style = other.where(is_person, 0).groupby(style)
        other_side.loc[side > 0, "sum"] = of_style.transform("sum")
        other_side.loc[side > 0, "largest"] = other.groupby(style).transform("max")
    is_small = sizes.abs() * effects.loc[is_person, "unit"].nunique() <= 2 * other_side["sum"]
    return is_small & (2 * sizes.abs() <= other_side["largest"])


def changed_outcomes(before: pd.DataFrame, after: pd.DataFrame) -> list[tuple[EffectRow, EffectRow]]:
    """Return the rows before and after of each finding on an outcome that is shown before or after.

    They contain the largest rises of each serious outcome, even if the outcome is still more frequent for others.

    Args:
        before, after: the tables of effects on outcomes of both runs.
    """
    key = ["kind", "unit", "outcome", "name"]
    nothing = pd.DataFrame(columns=before.columns)
    rows_before = {tuple(row[name] for name in key): row for row in table_rows(before)}
    rows_after = {tuple(row[name] for name in key): row for row in table_rows(after)}
    rises = []
    for each, row in rows_after.items():
        if each in rows_before and is_serious_rise(outcome_change(rows_before[each], row)):
            rises.append(row)
    named = shown_findings(before, nothing) + shown_findings(after, nothing)
    if rises:
        named += shown_findings(pd.DataFrame(rises), nothing)
    found = dict.fromkeys(tuple(row[name] for name in key) for row in named)
    return [(rows_before[each], rows_after[each]) for each in found if each in rows_before and each in rows_after]


def changed_styles(changes: pd.DataFrame, without: Collection[str]) -> list[EffectRow]:
    """Return the largest effects on styles that are shown before or after, or changes that are shown, one of each unit.

    Counterparts (`_are_counterparts`) of larger ones are left out.

    Args:
        changes: a table of `effect_changes`.
        without: units that are left out, since their answers are in another language, which the classifier misreads.
    """
    is_listed = pd.Series(False, index=changes.index)
    for side in ("_before", "_after"):
        of_side = changes[[f"{name}{side}" for name in ("certainty", "mean", "average")]]
        is_shown = is_named(of_side.set_axis(["certainty", "mean", "average"], axis=1))
        is_listed |= is_shown & ~_are_counterparts(changes, changes[f"shrunk{side}"])
    is_changed = (changes["certainty"] == SHOWN) & (changes["change"].abs() >= SMALLEST)
    is_changed &= ~_are_counterparts(changes, changes["change"])
    # Of an axis whose change is shown, a person is named only for a larger one: what others changed may be chance.
    size = changes["change"].abs()
    of_axes = size[is_changed & (changes["kind"] == columns.AXIS)].groupby(changes[columns.AXIS]).max()
    shown_of_axis = changes[columns.AXIS].map(of_axes)
    is_instead = (changes["kind"] == columns.DESCRIPTOR) & shown_of_axis.notna()
    is_listed = (is_listed | is_changed) & ~(is_instead & ~(is_changed & (size >= shown_of_axis)))
    return _largest(changes[is_listed & ~changes["unit"].isin(without)], MAX_STYLES)


def person_finding(row: EffectRow, language: str | None = None) -> Finding:
    """Return what is shown of a person or a group, a row of a table of effects, as a finding of the kind "person".

    Its values are `who` it is, the `outcome`, and the `level`. `language` is the language of the requests, None if they
    are in several.
    """
    return Finding("person", {**_subject(row, language), "level": _level(row)})


def outcome_change(before: EffectRow, after: EffectRow, language: str | None = None) -> Finding:
    """Return a finding on an outcome before and after, of the kind "person_before_after".

    `before` and `after` are the rows of the same unit, outcome and name in both runs' tables of outcomes.
    """
    values = {"before": _level(before), "after": _level(after), "change": None}
    return Finding("person_before_after", {**_subject(before, language), **values})


def style_change(row: EffectRow) -> Finding:
    """Return a change of an effect on a style, a row of `effect_changes`, as a finding of "person_before_after".

    The value `change` has the estimated change, its interval and its certainty.
    """
    sides = {}
    for side in ("before", "after"):
        of_side = {name: row[f"{name}_{side}"] for name in ("mean", "average", "shrunk", "certainty")}
        sides[side] = _level({**of_side, "n": row["n"], "hits": np.nan, "low": np.nan, "high": np.nan})
    change = Change(row["shrunk"], (row["low"], row["high"]), row["certainty"])
    return Finding("person_before_after", {**_subject(row, None), **sides, "change": change})


def is_serious_rise(found: Finding) -> bool:
    """Return whether a serious outcome, such as a refusal, rose for a person who after the change gets more of it.

    The person is shown to get more of it than others after the change. If that was shown before, too, the interval
    after must lie above the interval before.
    """
    values = found.values
    before = values["before"]
    after = values["after"]
    if values["outcome"].name not in serious_measures() or not _gets_more(after):
        return False
    return not _gets_more(before) or after.interval[0] > before.interval[1]


def is_serious_fall(found: Finding) -> bool:
    """Return whether somebody was shown to get more of a serious outcome than others, and gets less more after.

    The interval of the difference after lies below the interval before.
    """
    values = found.values
    if values["outcome"].name not in serious_measures() or not _gets_more(values["before"]):
        return False
    return values["after"].interval[1] < values["before"].interval[0]


def answers_to_show(found: Finding) -> int | None:
    """Return how many answers of each run show a fall of a serious outcome as large as it seems, with 80 % power.

    None if the fall is shown, or none from a shown difference. A fall is shown if the interval of the difference after
    ends below the one before (`is_serious_fall`): if d > z (s₁ + s₂) for a fall d with the standard errors s₁ and s₂,
    z = 1.96. With f times as many answers they are s / √f, and d varies by √(s₁² + s₂²) / √f. So 80 % need
    √f = (z (s₁ + s₂) + 0.84 √(s₁² + s₂²)) / d. The difference before has to be shown again, with the correction for
    all tests: one at the threshold t · s₁ is, with 80 %, if √f = 1 + 0.84 / t, and so with f = 2, since t > 1.96.
    """
    before = found.values["before"]
    after = found.values["after"]
    effects = before.mean - before.average, after.mean - after.average  # around which the intervals are
    fall = effects[0] - effects[1]
    is_open = found.values["outcome"].name in serious_measures() and _gets_more(before) and not is_serious_fall(found)
    if not is_open or fall <= 0:
        return None
    # The upper end of a shown difference is two-sided, that of another one is one-sided (`Effects.high`).
    quantile = Z if after.certainty == SHOWN else float(ndtri(CONFIDENCE))
    errors = []
    for side, effect, z in ((before, effects[0], Z), (after, effects[1], quantile)):
        high = side.interval[1]  # its error is that of the share there, √(p (1 − p)), and not of the one that is seen
        at_seen = share_variance(np.array(side.mean)) / share_variance(np.array(side.average + high))
        errors.append((high - effect) / z * math.sqrt(at_seen))
    needed = Z * sum(errors) + float(ndtri(POWER)) * math.hypot(*errors)
    return math.ceil(max(2.0, (needed / fall) ** 2) * before.n)


def overall_rises(changes: Sequence[BiasScore], named: Sequence[Finding], language: str | None) -> list[Finding]:
    """Return the serious outcomes that more answers of all people have than before, as `check` finds them.

    The kinds are "outcome_rose" and, if only its spread between people rose, "outcome_apart".

    Args:
        changes: the scores of a comparison.
        named: findings on people whose rises are on the page (`is_serious_rise`): their outcomes are left out.
        language: the language of the requests.
    """
    shown = {found.values["outcome"].name for found in named}
    risen = [found.values["change"] for found in risen_outcomes(changes)]
    rises = []
    for metric in dict.fromkeys(change.metric for change in risen if change.metric not in shown):
        measure = find_measure(metric)
        levels = [find_score(changes, metric, Form.MEAN, run=side) for side in ("before", "after")]
        assert measure and levels[0] and levels[1]  # it is serious, and was compared
        outcome = Outcome(metric, metric, measure.predicate, ValueKind.SHARE)
        if not any(change.metric == metric and change.form == Form.MEAN for change in risen):
            rises.append(Finding("outcome_apart", {"outcome": outcome}))
            continue
        sides = {"before": levels[0].value, "after": levels[1].value}
        rises.append(Finding("outcome_rose", {"outcome": outcome, **sides, "language": language}))
    return rises


def _gets_more(level: Level) -> bool:
    """Return whether somebody is shown to get more of an outcome than others."""
    return level.certainty == SHOWN and level.estimate > 0


def _subject(row: EffectRow, language: str | None) -> dict[str, Any]:
    """Return whom a row of effects is about, and what their answers do."""
    return {"who": _who(row), "outcome": _outcome(row), "language": language}


def _who(row: EffectRow) -> Who:
    """Return whom a row of effects is about."""
    form = "person"
    if row["kind"] != columns.DESCRIPTOR:
        form = "group"
    elif row[columns.AXIS] == UNSPECIFIED:
        form = "text"
    elif row[columns.AXIS] == NONCE:
        form = "made_up"
    return Who(row["unit"], form)


def _outcome(row: EffectRow) -> Outcome:
    """Return what a row of effects is about."""
    outcome = row["outcome"]
    name = row["name"]
    if outcome == LANGUAGE and name not in (TOO_SHORT, OTHER):
        name = language_name(name)
    measure = find_measure(outcome)
    predicate = measure.predicate if measure else ""
    if is_share(row):
        return Outcome(outcome, name, predicate, ValueKind.SHARE)
    spread = find_format(outcome, Form.SPREAD)
    return Outcome(outcome, name, predicate, row["scale"], spread.factor, spread.unit, _decimals(row))


def _level(row: EffectRow) -> Level:
    """Return how many answers do it, the average of all people, and the estimated difference with its interval."""
    return Level(
        n=int(row["n"]),
        hits=int(row["hits"]) if is_counted(row) else None,
        mean=row["mean"],
        average=row["average"],
        estimate=row["shrunk"],
        interval=_difference_interval(row),
        certainty=row["certainty"],
    )


def _difference_interval(row: EffectRow) -> tuple[float, float]:
    """Return the interval of the difference of a row of effects.

    Where everybody's answers have an outcome, or nobody's, the difference is 0 and has no interval in the table. Then
    it is as far from 0 as the interval of the share of this person's answers reaches.

    >>> nobody = {"low": np.nan, "high": np.nan, "hits": 0.0, "n": 24.0}
    >>> [round(end, 3) for end in _difference_interval(nobody)]  # Wilson's interval of 0 of 24 ends at 0.138
    [-0.138, 0.138]
    """
    bounds = (row["low"], row["high"])
    if np.isfinite(bounds).all() or not is_counted(row):
        return bounds
    share = share_interval(row["hits"], int(row["n"]))
    if share is None:
        return bounds
    reach = share[1] - share[0]
    return (-reach, reach)


def _decimals(row: EffectRow) -> int:
    """Return the number of decimals of an outcome that is a number: one if its mean has two digits or more."""
    spread = find_format(row["outcome"], Form.SPREAD)
    return 1 if abs(spread.factor * row["mean"]) >= 10 else decimals_of(row)


def is_share(row: EffectRow) -> bool:
    """Return whether a finding is of a share of answers, not of a number such as the length."""
    return row["outcome"] in EFFECT_KINDS or is_counted(row)


def is_counted(row: EffectRow) -> bool:
    """Return whether a finding counts answers; a style of an answer is a probability instead."""
    return bool(np.isfinite(row["hits"]))


def request_language(run: FamilyRun) -> str | None:
    """Return the language of the requests by name; None if it is not known, or if they are in several."""
    if OTHER_LANGUAGE not in stored_names(run):
        return None
    languages = {names[:1] for names in request_languages(run.table(PROMPTS), run.config.prompts.language)}
    if len(languages) != 1 or () in languages:
        return None
    return language_name(languages.pop()[0])


def style_finding(
    effects: pd.DataFrame,
    overall: str,
    shifts: pd.DataFrame | None = None,
    *,
    in_language: bool = False,
    language: str | None = None,
) -> Finding:
    """Return what is shown of styles: over all people, of single people, and of whole mixes of styles.

    Args:
        effects: the effects on styles.
        overall: the `bias_verdict` on all people and all answers.
        shifts: the table of people whose whole mix of styles is tested.
        in_language: whether `effects` are of the answers in the language of the requests only.
        language: the name of this language; None if it is not known, or if there are several.
    """
    shown = effects[is_named(effects)]
    largest = person_finding(table_rows(shown)[0]) if len(shown) else None
    values = {"overall": overall, "n_tested": len(effects), "n_shown": len(shown), "largest": largest}
    values |= {"mixes": only_shifted(effects, shifts), "in_language": in_language, "language": language}
    return Finding("style", values)


def requested_summary(all_effects: pd.DataFrame, requested: pd.DataFrame, language: str | None) -> Finding:
    """Return how many effects on style are shown among all answers, and among those in the request's language.

    Args:
        all_effects, requested: effects on the styles of all answers, and of those in the request's language.
        language: the name of the language.
    """
    everywhere = all_effects[all_effects["certainty"] == SHOWN]
    shown = requested[requested["certainty"] == SHOWN]
    n_both = len(everywhere.merge(shown, on=["kind", "unit", "outcome", "name"]))
    counts = {"n_all": len(everywhere), "n_both": n_both, "n_others": len(shown) - n_both}
    return Finding("style_summary_in_language", {**counts, "language": language})


def people_section(
    findings: Sequence[Finding],
    examples: Sequence[Example],
    summaries: Sequence[Finding],
    attributes: Sequence[Finding] = (),
) -> Section:
    """Return the section that names who is shown to be treated differently, each with answers to read.

    Args:
        findings: findings on people, the most serious first.
        examples: the answers to each of them.
        summaries: findings on all effects together.
        attributes: findings on attributes of people, if differences of some are shown.
    """
    if not findings and not summaries:  # nothing was tested
        return Section(TITLE)
    claims = [replace(example, claim=words(found)) for example, found in zip(examples, findings, strict=True)]
    sentences = [words(found) for found in attributes]
    if not claims and not sentences:
        sentences.append(words(Finding("nobody")))
    sure = [*map(words, summaries), words(Finding("certainty"))]
    parts = [Section(HOW_SURE, sure, first_screen=True)]
    return Section(TITLE, sentences, examples=claims, parts=parts, first_screen=True)


def people_changes(before: FamilyRun, after: FamilyRun, changes: FamilyRun) -> list[tuple[Finding, Example]]:
    """Return whom to name before and after, each with an answer of both models to one prompt."""
    sides = []
    for side, run in (("before", before), ("after", after)):
        name = side_effects(side)  # on the same terms in both runs
        sides.append(read_effects(changes, name) if changes.has(name) else read_effects(run, OUTCOME_EFFECTS))
    outcomes = changed_outcomes(before=sides[0], after=sides[1])
    in_another_language = {row["unit"] for row, _ in outcomes if row["outcome"] == OTHER_LANGUAGE}
    table = read_effects(changes, EFFECT_CHANGES)
    styles = changed_styles(table, in_another_language) if len(table) else []
    language = request_language(before) or request_language(after)  # of the same prompts
    return named_changes(outcomes, styles, examples_of_comparison(before, after), language)


def named_changes(
    outcomes: Sequence[tuple[EffectRow, EffectRow]],
    styles: Sequence[EffectRow],
    example_of: ExampleOf,
    language: str | None = None,
) -> list[tuple[Finding, Example]]:
    """Return findings before and after with examples: serious outcomes, then styles, then other outcomes.

    Args:
        outcomes: the rows before and after of the outcomes to name.
        styles: the rows of the table of `effect_changes` to name.
        example_of: a function that returns the answers before and after to the unit of a row.
        language: the language of the requests.
    """
    serious = []
    other = []
    for before, after in outcomes:
        sides = {f"{name}_before": before[name] for name in ("shrunk", "certainty")}
        sides |= {f"{name}_after": after[name] for name in ("shrunk", "certainty")}
        named = (outcome_change(before, after, language), example_of({**before, **sides}))
        if before["outcome"] in serious_measures():
            serious.append(named)
        else:
            other.append(named)
    return serious + [(style_change(row), example_of(row)) for row in styles] + other


def changes_section(
    named: Sequence[tuple[Finding, Example]],
    changes: pd.DataFrame,
    *,
    in_language: bool = False,
    language: str | None = None,
) -> Section:
    """Return the section on who is treated how before and after: people with answers, counts, a folded table of all.

    The folded table has the effects that are shown before or after, and the changes that are shown or worth a look.

    Args:
        named: findings before and after, and answers.
        changes: the table of `effect_changes`; empty if the runs were measured without permutations.
        in_language: whether it is of the answers in the language of the requests only.
        language: the name of this language; None if it is not known, or if there are several.
    """
    claims = [replace(example, claim=words(found)) for found, example in named]
    sentences = []
    if not claims and len(changes):
        sentences.append(words(Finding("nobody_before_after")))
    parts = []
    if len(changes):
        sure = [change_summary(changes), *detectable_finding(changes)]
        if in_language:
            sure.append(Finding("changes_in_language", {"language": language}))
        parts.append(Section(HOW_SURE, list(map(words, sure)), first_screen=True))
        parts.append(all_changes_section(changes))
    return Section(f"{TITLE}, before and after", sentences, examples=claims, parts=parts, first_screen=True)
