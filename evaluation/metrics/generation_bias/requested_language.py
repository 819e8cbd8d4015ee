"""Styles of the answers in the language of the request, for runs in which somebody gets more answers in another one.

A style classifier of one language misreads answers in another one, so that a difference in language looks like one in
style. Pages therefore show the scores and effects of the answers in the request's language before those of all answers.
"""

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from evenhand.evaluation.metrics import FamilyRun
from evenhand.evaluation.metrics.generation_bias.answers import Answers
from evenhand.evaluation.metrics.generation_bias.engine.effects import REQUESTED_EFFECTS
from evenhand.evaluation.metrics.generation_bias.engine.spread import find_headline
from evenhand.evaluation.metrics.generation_bias.engine.values import (
    MeasureValues,
    measured_values,
    stored_names,
    stored_values,
)
from evenhand.evaluation.metrics.generation_bias.measures import Context
from evenhand.evaluation.metrics.generation_bias.measures.other_language import OTHER_LANGUAGE
from evenhand.evaluation.score import BiasScore, Kind

IN_REQUESTED = {"language": "the request's"}  # the group of their scores


def in_another_language(values: MeasureValues) -> np.ndarray:
    """Return whether each answer is in another language than its request, (n,) bool; `values` are of OTHER_LANGUAGE."""
    return np.asarray(values.numbers[:, 0] == 1)


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
    return _without_vectors(old, is_other), _without_vectors(new, is_other)


def _without_vectors(responses: Answers, mask: np.ndarray) -> Answers:
    return replace(responses, values=np.where(mask[:, None], np.nan, responses.values))


def style_group(scores: Iterable[BiasScore], kind: Kind = Kind.LEVEL) -> dict[str, str]:
    """Return the group of the scores of styles that a page shows first: IN_REQUESTED if there are some, else {}."""
    return {} if find_headline(scores, kind, IN_REQUESTED) is None else IN_REQUESTED
