"""Responses in another language than the request's: who gets them, and the styles of the other responses apart.

A style classifier of one language misnames responses in another one, so that a change of language looks like one of
style. The request's language is the one of most responses to its template.
"""

import numpy as np
import pandas as pd

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.metrics.generation_bias.effect_sections import largest_text
from evenhand.evaluation.metrics.generation_bias.effects import SHOWN
from evenhand.evaluation.metrics.generation_bias.parts.outcomes import (
    LANGUAGE,
    OTHER_LANGUAGE,
    TOO_SHORT,
    outcome_values,
)
from evenhand.evaluation.metrics.generation_bias.settings import ENGLISH, OTHER_CLASSIFIER
from evenhand.evaluation.models.classifier_folders import shipped_names
from evenhand.evaluation.score import DESCRIPTOR

REQUESTED = {LANGUAGE: "the request's"}  # the group of scores of responses that are not in another language
REQUESTED_EFFECTS = "effects_in_the_requests_language"  # the table of effects on their styles

MAX_CHECKED = 500  # responses whose language is enough to say what most are in


def check_responses_language(field: str, classifier: str, responses: pd.DataFrame) -> None:
    """Raise InputError, about `field`, if a shipped classifier would read responses most of which are not English.

    Of many responses, a part is checked; texts that are too short to tell their language do not count.
    """
    if classifier not in shipped_names():
        return
    rows = np.unique(np.linspace(0, len(responses) - 1, MAX_CHECKED).astype(int))
    languages = outcome_values(LANGUAGE, responses.iloc[rows].reset_index(drop=True))
    languages = languages.drop(columns=TOO_SHORT, errors="ignore")
    known = languages[languages.sum(axis=1) > 0]
    in_english = known[ENGLISH].sum() if ENGLISH in known else 0
    if in_english < len(known) / 2:
        share = 1 - in_english / len(known)
        raise InputError(
            field,
            f"{classifier} reads English, and {share:.0%} of the answers are in another language; {OTHER_CLASSIFIER}.",
        )


def shown_in_another_language(effects: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of outcome effects on descriptors that are shown to get more responses in another language."""
    of_outcome = effects[(effects["outcome"] == OTHER_LANGUAGE) & (effects["kind"] == DESCRIPTOR)]
    return of_outcome[(of_outcome["certainty"] == SHOWN) & (of_outcome["effect"] > 0)]


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
    everywhere, shown = (table[table["certainty"] == SHOWN] for table in (all_effects, requested))
    both = len(everywhere.merge(shown, on=["kind", "unit", "outcome", "name"]))
    among = f"{both:,} of these and {len(shown) - both:,} others" if len(shown) else "none"
    return (
        f"Differences in style shown among all answers: {len(everywhere):,}; among the answers in {language}: {among}. "
        "The style classifier may misread an answer in another language."
    )
