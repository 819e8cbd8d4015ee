"""Styles of the answers in the language of the request, for runs in which somebody gets more answers in another one.

A style classifier of one language misreads answers in another one, so that a difference in language looks like one in
style. The size, the verdict, the effects and the changes of styles are therefore of the answers in the request's
language; scores as published are of all answers.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd

from evenhand.evaluation.metrics import FamilyRun
from evenhand.evaluation.metrics.generation_bias.answers import ACCEPTED, Answers, read_answers, without_accepted
from evenhand.evaluation.metrics.generation_bias.engine.effects import REQUESTED_EFFECTS, SHOWN
from evenhand.evaluation.metrics.generation_bias.engine.measure_effects import MeasureTests, measure_table
from evenhand.evaluation.metrics.generation_bias.engine.spread import find_headline
from evenhand.evaluation.metrics.generation_bias.engine.values import (
    MeasureValues,
    measured_values,
    stored_names,
    stored_values,
)
from evenhand.evaluation.metrics.generation_bias.measures import Context
from evenhand.evaluation.metrics.generation_bias.measures.language import LANGUAGE
from evenhand.evaluation.metrics.generation_bias.measures.other_language import OTHER_LANGUAGE
from evenhand.evaluation.metrics.generation_bias.people import People
from evenhand.evaluation.score import BiasScore, Kind
from evenhand.evaluation.statistics.permutation import SetOfTests
from evenhand.evaluation.statistics.person_effects import Effects
from evenhand.evaluation.tables import read_table

REQUESTED = "requested"  # the set of tests of the styles of the responses in the request's language
IN_REQUESTED = {"language": "the request's"}  # the group of their scores


def in_another_language(values: MeasureValues) -> np.ndarray:
    """Return whether each answer is in another language than its request, (n,) bool; `values` are of OTHER_LANGUAGE."""
    return np.asarray(values.numbers[:, 0] == 1)


def is_language_shown(people: People | None, test_sets: Mapping[str, SetOfTests], found: Mapping[str, Effects]) -> bool:
    """Return whether somebody is shown to get more responses in another language, so that their styles are left out.

    The arguments are those of `JointTests`.
    """
    name = LANGUAGE if LANGUAGE in test_sets else OTHER_LANGUAGE  # which is tested with the language, if it is
    test_set = test_sets.get(name)
    if REQUESTED not in found or people is None or not isinstance(test_set, MeasureTests):
        return False
    return len(shown_in_another_language(measure_table(people, test_set, found[name]))) > 0


def shown_in_another_language(effects: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of outcome effects on people and groups that are shown to get more responses in another language.

    Where no single person is shown to, a group may be, and a classifier then misreads a difference in its style.
    """
    of_outcome = effects[effects["outcome"] == OTHER_LANGUAGE]
    return of_outcome[(of_outcome["certainty"] == SHOWN) & (of_outcome["effect"] > 0)]


def compared_in_language(
    before: FamilyRun, after: FamilyRun, old: Answers, new: Answers
) -> tuple[Answers, Answers] | None:
    """Return the responses of two runs without the style vectors of pairs in which one is in another language.

    None if neither run shows that somebody gets more answers in another language.

    Args:
        before, after: the two runs.
        old, new: their responses to the compared prompts, row by row.
    """
    if not (before.has(REQUESTED_EFFECTS) or after.has(REQUESTED_EFFECTS)):
        return None
    is_other = np.zeros(len(old), dtype=bool)
    for run, responses in ((before, old), (after, new)):
        if OTHER_LANGUAGE in stored_names(run):
            values = stored_values(run, OTHER_LANGUAGE)
        else:
            values = measured_values(OTHER_LANGUAGE, responses.table, Context(run.config.prompts.language))
        is_other |= in_another_language(values)
    old = styles_without(old, is_other, before.folder, only=before.only)
    new = styles_without(new, is_other, after.folder, only=after.only)
    return old, new


def styled_answers(run: FamilyRun) -> Answers:
    """Return the answers of a run; without the style vectors of those in another language, if pages leave these out."""
    responses = read_answers(run.folder)
    if not run.has(REQUESTED_EFFECTS):
        return responses
    return styles_without(responses, in_another_language(stored_values(run, OTHER_LANGUAGE)), run.folder)


def styles_without(
    responses: Answers,
    is_other: np.ndarray,
    folder: Path,
    *,
    only: frozenset[str] | None = None,
    second: bool = False,
) -> Answers:
    """Return the responses without the style vectors of those in another language, (n,) bool.

    What a run accepts is taken out again: it has the mean of other people's answers that still have a vector.

    Args:
        responses: the responses of the run in `folder`, to the prompts `only` if they are given.
        is_other: whether each is in another language than its request.
        second: whether the vectors are by the second style classifier.
    """
    path = folder / f"{ACCEPTED}.parquet"
    if not path.exists():
        return without_vectors(responses, is_other)
    as_measured = read_answers(folder, second=second, with_accepted=True, only=only)
    left = without_accepted(without_vectors(as_measured, is_other), read_table(path))
    return replace(responses, values=left.values)


def without_vectors(responses: Answers, mask: np.ndarray) -> Answers:
    """Return the responses without the vectors of those for which the mask, (n,) bool, is true."""
    return replace(responses, values=np.where(mask[:, None], np.nan, responses.values))


def style_group(scores: Iterable[BiasScore], kind: Kind = Kind.LEVEL) -> dict[str, str]:
    """Return the group of the scores of styles that a page shows first: IN_REQUESTED if there are some, else {}."""
    return {} if find_headline(scores, kind, IN_REQUESTED) is None else IN_REQUESTED


def style_headline(scores: Iterable[BiasScore]) -> BiasScore | None:
    """Return the overall pooled FGB* of the answers whose styles a page shows first; None if there is none."""
    return find_headline(scores, Kind.LEVEL, style_group(scores))
