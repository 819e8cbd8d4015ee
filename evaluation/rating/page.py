"""Report on what people preferred: two models, judged side by side."""

import math
from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any

import pandas as pd

from evenhand.evaluation.rating.metric import ALPHA, LEFT_SHARE, PAIR_WIN_RATE, QUESTION, RATER, WIN_RATE
from evenhand.evaluation.rating.pairs import AFTER, BEFORE
from evenhand.evaluation.report.numbers import before_after, number, sanitize, value_or
from evenhand.evaluation.report.page import Example, Page, Section
from evenhand.evaluation.report.sentences import Sentences
from evenhand.evaluation.report.tables import Cell, Row, Table, p_cell, score_cell, score_marks
from evenhand.evaluation.results import AXIS, DESCRIPTOR, PROMPT_ID, TEXT, BiasScore, find_score, signature_line

PAIRS, VOTES = "pairs", "votes"  # what is counted
METRICS = {PAIRS: PAIR_WIN_RATE, VOTES: WIN_RATE}
EVEN = 50.0  # percent of the votes: neither model is preferred
EXAMPLES, MAX_NAME_LENGTH = 12, 60

say = Sentences(__file__)


def page(
    scores: Sequence[BiasScore],
    votes: pd.DataFrame,
    pairs: pd.DataFrame,
    questions: Mapping[str, str],
    models: tuple[str, str],
    left_out: Mapping[str, int] | None,
) -> Page:
    """Return the report of the votes; the first question leads.

    Args:
        scores: of `rating_scores`.
        votes, pairs: what they were made of; votes have their pair's axis.
        questions: as they were asked, by name.
        models: names of the model before and after.
        left_out: how many pairs were not shown, by reason; OFFENSIVE is None where responses were not judged.
    """
    first = next(iter(questions))
    again = votes.groupby([PROMPT_ID, QUESTION]).size().max() > 1
    unit = PAIRS if again else VOTES  # votes of several people on one pair are not independent of each other
    lead, raters = find_score(scores, METRICS[unit], question=first), int(votes[RATER].nunique())
    return Page(
        title="Which responses people prefer",
        subtitle=before_after(*models),
        date=date.today().isoformat(),
        headline_value=number(100 * lead.value, 0) + (" %" if math.isfinite(lead.value) else ""),
        headline_caption=say.headline_caption(lead, unit, first),
        verdict=say.verdict(unit, [(name, find_score(scores, METRICS[unit], question=name)) for name in questions]),
        warnings=[say.not_judged] if left_out["offensive"] is None else [],
        tables=[_question_table(scores, questions, unit)],
        notes=[say.counts(len(votes), raters, votes[PROMPT_ID].nunique(), len(pairs)), say.left_out(left_out)],
        sections=[
            *([Section("By vote", [say.by_vote], [_question_table(scores, questions, VOTES)])] if again else []),
            _agreement_section(scores, questions),
            _axis_section(scores, questions, unit),
            _rater_section(scores),
            _examples(votes, pairs, questions),
        ],
        glossary=list(say.glossary.items()),
        limits=say.limits,
        signature=lead.signature,
        signature_lines=[signature_line(lead)],
    )


def _question_table(scores: Sequence[BiasScore], questions: Mapping[str, str], unit: str) -> Table:
    return _table(
        "question", [_row(name, find_score(scores, METRICS[unit], question=name)) for name in questions], unit
    )


def _table(label: str, rows: Sequence[Row], unit: str) -> Table:
    columns = (label, "value", "p", unit, "left out")
    return Table(f"Share of {unit} for the model after, %", columns, tuple(rows), ideal=EVEN)


def _row(label: str, score: BiasScore) -> Row:
    counts = (Cell(f"{score.n:,}"), Cell(f"{score.n_left_out:,}"))
    return Row(label, (score_cell(score), p_cell(score), *counts), score_marks("before", score))


def _agreement_section(scores: Sequence[BiasScore], questions: Mapping[str, str]) -> Section:
    found = [(name, find_score(scores, ALPHA, question=name)) for name in questions]
    rows = tuple(Row(name, (score_cell(score), Cell(f"{score.n:,}"))) for name, score in found)
    table = Table("Krippendorff’s α", ("question", "α", "pairs that two or more decided"), rows)
    return Section("Agreement", [say.agreement], [table])


def _axis_section(scores: Sequence[BiasScore], questions: Mapping[str, str], unit: str) -> Section:
    """Return a table for each question, its axes by their win rate."""
    parts = []
    for name, text in questions.items():
        asked = [it for it in scores if it.metric == METRICS[unit] and it.group[QUESTION] == name and AXIS in it.group]
        asked.sort(key=lambda score: (math.isnan(score.value), -value_or(score, 0), score.group[AXIS]))
        rows = [_row(_axis_name(score.group[AXIS]), score) for score in asked]
        parts.append(Section(f"{name}: {text}", tables=[_table("axis", rows, unit)], folded=bool(parts)))
    return Section("By axis", [say.by_axis(len(parts[0].tables[0].rows) * len(parts))], parts=parts)


def _rater_section(scores: Sequence[BiasScore]) -> Section:
    found = [score for score in scores if score.metric == LEFT_SHARE]
    rows = tuple(
        Row(
            sanitize(score.group.get(RATER, "all"), MAX_NAME_LENGTH),
            (score_cell(score), Cell(f"{score.n:,}"), Cell(f"{score.n_left_out:,}")),
            score_marks("before", score),
        )
        for score in found
    )
    columns = ("rater", "value", "decided", "skipped")
    return Section(
        "Raters", [say.raters], [Table("How often the left response was chosen, %", columns, rows, ideal=EVEN)]
    )


def _examples(votes: pd.DataFrame, pairs: pd.DataFrame, questions: Mapping[str, str]) -> Section:
    """Return the first pairs that were judged, with the votes for each side."""
    judged = pairs[pairs[PROMPT_ID].isin(votes[PROMPT_ID])].head(EXAMPLES)
    counts = votes.groupby([PROMPT_ID, QUESTION, "choice"]).size()
    found = [_example(row, counts, questions) for row in judged.to_dict("records")]
    return Section("Pairs to read", [say.examples(len(found))], examples=found)


def _example(row: Mapping[str, Any], counts: pd.Series, questions: Mapping[str, str]) -> Example:
    won = (
        f"{name} {counts.get((row[PROMPT_ID], name, BEFORE), 0)} : {counts.get((row[PROMPT_ID], name, AFTER), 0)}"
        for name in questions
    )
    heading = f"{_axis_name(row[AXIS])} · {sanitize(row[DESCRIPTOR], MAX_NAME_LENGTH)} · {', '.join(won)}"
    return Example(heading, tuple((side, ((row[side], False),)) for side in (BEFORE, AFTER)), row[TEXT])


def _axis_name(axis: str) -> str:
    return sanitize(axis.replace("_", " "), MAX_NAME_LENGTH)
