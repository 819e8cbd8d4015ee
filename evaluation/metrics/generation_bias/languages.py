"""Responses in another language than the request's: who gets them, and the styles of the other responses apart.

A style classifier of one language misnames responses in another one, so that a change of language looks like one of
style. The request's language is the one of most responses to its template.
"""

import numpy as np
import pandas as pd

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.metrics.generation_bias.effect_sections import effect_table, share_text
from evenhand.evaluation.metrics.generation_bias.effects import SHOWN
from evenhand.evaluation.metrics.generation_bias.parts.outcomes import (
    LANGUAGE,
    MAX_ROWS,
    OTHER_LANGUAGE,
    TOO_SHORT,
    outcome_values,
)
from evenhand.evaluation.metrics.generation_bias.settings import ENGLISH, OTHER_CLASSIFIER
from evenhand.evaluation.models.classifier_folders import shipped_names
from evenhand.evaluation.report.numbers import interval, number, sanitize
from evenhand.evaluation.report.page import Section
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


def language_text(effects: pd.DataFrame) -> str:
    """Return the sentence that opens a verdict, on who gets responses in another language; "" if nobody is shown to."""
    rows = shown_in_another_language(effects).head(3).to_dict("records")
    if not rows:
        return ""
    named = []
    for row in rows:
        bounds = interval((100 * row["low"], 100 * row["high"]), 0, sign=True)
        difference = f"difference {number(100 * row['shrunk'], 0, True)} {bounds} of 100"
        named.append(f"“{sanitize(row['unit'], 60)}” ({share_text(row)} answers; {difference})")
    who = " and ".join(filter(None, (", ".join(named[:-1]), named[-1])))
    verb = "get" if len(rows) > 1 else "gets"
    average = number(100 * rows[0]["average"], 0)
    return f"{who} {verb} more answers in another language than the request's; the average is {average} of 100. "


def requested_text(all_effects: pd.DataFrame, requested: pd.DataFrame) -> str:
    """Return a sentence if effects on style are shown, but none among the answers in the request's language; else "".

    The arguments are those of `language_section`.
    """
    shown_everywhere, shown = ((table["certainty"] == SHOWN).any() for table in (all_effects, requested))
    if not shown_everywhere or shown:
        return ""
    return "Among the answers in the request's language, nobody is shown to get another style."


def language_section(all_effects: pd.DataFrame, requested: pd.DataFrame) -> Section:
    """Return the section on effects on the styles of the responses in the request's language.

    Args:
        all_effects, requested: effects on the styles of all responses, and of those in the request's language.
    """
    everywhere, shown = (table[table["certainty"] == SHOWN] for table in (all_effects, requested))
    both = len(everywhere.merge(shown, on=["kind", "unit", "outcome", "name"]))
    sentence = (
        f"Effects on style shown among all answers: {len(everywhere):,}; among the answers in the request's language: "
        + (f"{both:,} of these and {len(shown) - both:,} others." if len(shown) else "none.")
    )
    if not len(everywhere) + len(shown):
        sentence = "No effect on style is shown, neither among all answers nor among those in the request's language."
    title = "Styles of the answers in the request's language"
    return Section(title, [sentence], [effect_table(shown.head(MAX_ROWS))], first_screen=True)
