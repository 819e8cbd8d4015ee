"""Report on raters' votes between the responses of a model before and after tuning."""

import math
from collections.abc import Mapping, Sequence

import pandas as pd

from evenhand.evaluation.rating.metrics import LEFT_SHARE, PAIR_WIN_RATE, QUESTION, RATER, WIN_RATE
from evenhand.evaluation.report.formats import format_of, glossary
from evenhand.evaluation.report.numbers import before_after
from evenhand.evaluation.report.page import SCORES, Page
from evenhand.evaluation.report.tables import score_section, value_text
from evenhand.evaluation.score import AXIS, PROMPT_ID, BiasScore, find_score, signature_line
from evenhand.evaluation.statistics.accuracy import ALPHA

LIMITS = [
    "A preferred response is not a fair response: raters see one pair at a time, and no responses to other people.",
    "The votes represent these raters only. Prompts that may inflame are excluded, so the result does not cover them.",
    "A share that does not differ significantly from 50 % does not show that both models are equal. The width of the "
    "interval shows which differences remain possible.",
]


def page(
    scores: Sequence[BiasScore],
    votes: pd.DataFrame,
    pairs: pd.DataFrame,
    questions: Mapping[str, str],
    models: tuple[str, str],
    left_out: Mapping[str, int] | None,
) -> Page:
    """Return the report on the votes; the headline is the win rate for the first question.

    The win rate is of pairs if several people rated a pair, since votes on one pair are not independent; else of votes.

    Args:
        models: names of the model before and after tuning.
        left_out: number of excluded pairs by reason. The number of offensive pairs is None if neither run has an
            offensiveness classifier.
    """
    has_repeats = votes.groupby([PROMPT_ID, QUESTION]).size().max() > 1
    metric, unit = (PAIR_WIN_RATE, "pairs") if has_repeats else (WIN_RATE, "votes")
    first = next(iter(questions))
    headline, n_raters = find_score(scores, metric, question=first), int(votes[RATER].nunique())
    excluded = ", ".join(f"{n:,} ({reason})" for reason, n in left_out.items() if n is not None)
    overall = [score for score in scores if AXIS not in score.group]
    of_metric = [score for score in overall if score.metric == metric]
    by_axis = [score for score in scores if score.metric == metric and AXIS in score.group]
    by_vote = [it for it in overall if it.metric == WIN_RATE and has_repeats]
    not_independent = (
        "Votes on one pair are not independent, so these intervals are too narrow; those by pair are valid."
    )
    sides = (
        "Sides are random; who chooses the left response much more or less often than half of the time may not read."
    )
    agreement, lefts = ([it for it in overall if it.metric == name] for name in (ALPHA, LEFT_SHARE))
    of_alpha = "1 is perfect, 0 is chance. n counts pairs that two or more raters decided."
    chance = "About one in twenty of these intervals excludes 50 by chance."
    return Page(
        title="Which responses people prefer",
        subtitle=before_after(*models),
        headline_value=f"{format_of(headline).text(headline.value)} %" if math.isfinite(headline.value) else "–",
        headline_caption=f"of the {unit} on {first} are for the model after; 50 if neither is preferred",
        verdict=" ".join(f"{score.group[QUESTION].capitalize()}: {value_text(score)}." for score in of_metric),
        warnings=["Neither run has an offensiveness classifier, so pairs with offensive responses are included."]
        if left_out["offensive"] is None
        else [],
        notes=[
            f"{len(votes):,} answers by {n_raters} raters to {votes[PROMPT_ID].nunique():,} of {len(pairs):,} pairs. "
            "All raters saw the pairs in the same order, with random sides and without the names of the models.",
            f"Pairs are a random sample of all prompts. Excluded: {excluded}.",
        ],
        sections=[
            score_section(SCORES, of_metric, QUESTION, counted=unit, first_screen=True),
            score_section("By vote", by_vote, QUESTION, [not_independent], counted="votes"),
            score_section("Agreement of the raters", agreement, QUESTION, [of_alpha]),
            score_section("By axis", by_axis, "question and axis", [chance], counted=unit),
            score_section("Raters", lefts, RATER, [sides], counted="votes"),
        ],
        glossary=glossary([metric, ALPHA, LEFT_SHARE]),
        limits=LIMITS,
        signature=headline.signature,
        signature_lines=[signature_line(headline)],
    )
