"""Report on raters' votes between the responses of a model before and after tuning."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from evenhand.evaluation.rating.metric import ALPHA, LEFT_SHARE, PAIR_WIN_RATE, QUESTION, RATER, WIN_RATE
from evenhand.evaluation.rating.pairs import AFTER, BEFORE
from evenhand.evaluation.report.formats import format_of, glossary
from evenhand.evaluation.report.numbers import before_after, p_value, sanitize
from evenhand.evaluation.report.page import Example, Page, Section
from evenhand.evaluation.report.tables import LEVEL, score_section, scores_table, value_text
from evenhand.evaluation.score import AXIS, DESCRIPTOR, PROMPT_ID, TEXT, BiasScore, find_score, signature_line

PAIRS, VOTES = "pairs", "votes"  # units of a share
METRICS = {PAIRS: PAIR_WIN_RATE, VOTES: WIN_RATE}
REASONS = {
    "template": "for their template",
    "descriptor": "for their descriptor",
    "offensive": "for an offensive response",
    "alike": "for identical responses",
}
N_EXAMPLES = 12
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

    Args:
        models: names of the model before and after tuning.
        left_out: number of excluded pairs by reason. The number of offensive pairs is None if neither run has an
            offensiveness classifier.
    """
    first = next(iter(questions))
    has_repeats = votes.groupby([PROMPT_ID, QUESTION]).size().max() > 1
    unit = PAIRS if has_repeats else VOTES  # several votes on one pair are not independent
    headline, n_raters = find_score(scores, METRICS[unit], question=first), int(votes[RATER].nunique())
    excluded = ", ".join(f"{n:,} {REASONS[reason]}" for reason, n in left_out.items() if n is not None)

    def shares(of_unit: str) -> list[BiasScore]:
        return [score for score in scores if score.metric == METRICS[of_unit] and AXIS not in score.group]

    def section(title: str, of: list[BiasScore], sentence: str, column: str = QUESTION, counted: str = unit) -> Section:
        return score_section(title, of, column, [sentence], label=_label, counted=counted)

    return Page(
        title="Which responses people prefer",
        subtitle=before_after(*models),
        headline_value=f"{format_of(headline).text(headline.value)} %" if math.isfinite(headline.value) else "–",
        headline_caption=f"of the {unit} on {first} are for the model after; 50 if neither is preferred",
        verdict=" ".join(_verdict(score, unit) for score in shares(unit)),
        warnings=["Neither run has an offensiveness classifier, so pairs with offensive responses are included."]
        if left_out["offensive"] is None
        else [],
        tables=[
            scores_table(f"Share of {unit} for the model after, %", shares(unit), QUESTION, label=_label, counted=unit)
        ],
        notes=[
            f"{len(votes):,} answers by {n_raters} raters to {votes[PROMPT_ID].nunique():,} of {len(pairs):,} pairs. "
            f"All raters "
            "saw the pairs in the same order, with random sides and without the names of the models.",
            f"Pairs are a random sample of all prompts, except: {excluded}.",
        ],
        sections=[
            *(
                [
                    section(
                        "By vote",
                        shares(VOTES),
                        "Votes of several raters on one pair are not independent, so these intervals "
                        "are too narrow; the values by pair are valid.",
                        counted=VOTES,
                    )
                ]
                if has_repeats
                else []
            ),
            section(
                "Agreement of the raters",
                [it for it in scores if it.metric == ALPHA and AXIS not in it.group],
                "1 is perfect, 0 is chance. n counts pairs that two or more raters decided.",
                counted="n",
            ),
            section(
                "By axis",
                [it for it in scores if it.metric == METRICS[unit] and AXIS in it.group],
                "About one in twenty of these intervals excludes 50 by chance.",
                "question and axis",
            ),
            section(
                "Raters",
                [it for it in scores if it.metric == LEFT_SHARE],
                "Sides are random. A rater who chooses the left "
                "response much more or less often than half of the time may not have read the responses.",
                RATER,
                VOTES,
            ),
            _examples(votes, pairs, questions),
        ],
        glossary=glossary([METRICS[unit], ALPHA, LEFT_SHARE]),
        limits=LIMITS,
        signature=headline.signature,
        signature_lines=[signature_line(headline)],
    )


def _label(score: BiasScore) -> str:
    return ", ".join(sanitize(str(value).replace("_", " "), 60) for value in score.group.values()) or "all"


def _verdict(score: BiasScore, unit: str) -> str:
    question = sanitize(score.group[QUESTION]).capitalize()
    if math.isnan(score.value):
        return f"{question}: {value_text(score)}."
    p = f"p {p_value(score.p_value)}" if score.p_value < 1e-4 else f"p = {p_value(score.p_value)}"
    side, share = ("after", score.value) if score.value > 0.5 else ("before", 1 - score.value)
    if score.p_value < LEVEL:
        return f"{question}: the model {side} is preferred ({100 * share:.0f} % of {unit}, {p})."
    return f"{question}: no significant preference ({100 * score.value:.0f} % of {unit} for the model after, {p})."


def _examples(votes: pd.DataFrame, pairs: pd.DataFrame, questions: Mapping[str, str]) -> Section:
    rated = pairs[pairs[PROMPT_ID].isin(votes[PROMPT_ID])].head(N_EXAMPLES)
    counts = votes.groupby([PROMPT_ID, QUESTION, "choice"]).size()
    note = "The first rated pairs, with the number of votes for the model before : after."
    return Section(
        "Pairs to read", [note], examples=[_example(row, counts, questions) for row in rated.to_dict("records")]
    )


def _example(row: Mapping[str, Any], counts: pd.Series, questions: Mapping[str, str]) -> Example:
    results = (
        f"{name} {counts.get((row[PROMPT_ID], name, BEFORE), 0)} : {counts.get((row[PROMPT_ID], name, AFTER), 0)}"
        for name in questions
    )
    names = (sanitize(str(row[name]).replace("_", " "), 60) for name in (AXIS, DESCRIPTOR))
    return Example(" · ".join([*names, *results]), tuple((side, row[side]) for side in (BEFORE, AFTER)), row[TEXT])
