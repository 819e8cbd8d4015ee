"""Report on raters' votes between the responses of a model before and after tuning."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from evenhand.evaluation.rating.metric import ALPHA, LEFT_SHARE, PAIR_WIN_RATE, QUESTION, RATER, WIN_RATE
from evenhand.evaluation.rating.pairs import AFTER, BEFORE
from evenhand.evaluation.report.numbers import before_after, number, sanitize, value_or
from evenhand.evaluation.report.page import Example, Page, Section
from evenhand.evaluation.report.sentences import Sentences
from evenhand.evaluation.report.tables import Cell, Row, Table, count_cells, p_cell, score_cell, score_row
from evenhand.evaluation.score import AXIS, DESCRIPTOR, PROMPT_ID, TEXT, BiasScore, find_score, signature_line

PAIRS, VOTES = "pairs", "votes"  # units of a share
METRICS = {PAIRS: PAIR_WIN_RATE, VOTES: WIN_RATE}
NO_PREFERENCE = 50.0  # percent of the votes
N_EXAMPLES, MAX_NAME_LENGTH = 12, 60

text = Sentences(__file__)


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
    return Page(
        title="Which responses people prefer",
        subtitle=before_after(*models),
        headline_value=number(100 * headline.value, 0) + (" %" if math.isfinite(headline.value) else ""),
        headline_caption=text.headline_caption(headline, unit, first),
        verdict=text.verdict(unit, [(name, find_score(scores, METRICS[unit], question=name)) for name in questions]),
        warnings=[text.not_classified] if left_out["offensive"] is None else [],
        tables=[_question_table(scores, questions, unit)],
        notes=[text.counts(len(votes), n_raters, votes[PROMPT_ID].nunique(), len(pairs)), text.left_out(left_out)],
        sections=[
            *([Section("By vote", [text.by_vote], [_question_table(scores, questions, VOTES)])] if has_repeats else []),
            _agreement_section(scores, questions),
            _axis_section(scores, questions, unit),
            _rater_section(scores),
            _examples(votes, pairs, questions),
        ],
        glossary=list(text.glossary.items()),
        limits=text.limits,
        signature=headline.signature,
        signature_lines=[signature_line(headline)],
    )


def _question_table(scores: Sequence[BiasScore], questions: Mapping[str, str], unit: str) -> Table:
    return _table(
        "question", [_row(name, find_score(scores, METRICS[unit], question=name)) for name in questions], unit
    )


def _table(label: str, rows: Sequence[Row], unit: str) -> Table:
    columns = (label, "value", "p", unit, "left out")
    return Table(f"Share of {unit} for the model after, %", columns, tuple(rows), ideal=NO_PREFERENCE)


def _row(label: str, score: BiasScore) -> Row:
    return score_row(label, score, p_cell(score), *count_cells(score.n, score.n_left_out))


def _agreement_section(scores: Sequence[BiasScore], questions: Mapping[str, str]) -> Section:
    scores_by_name = {name: find_score(scores, ALPHA, question=name) for name in questions}
    rows = tuple(Row(name, (score_cell(score), Cell(f"{score.n:,}"))) for name, score in scores_by_name.items())
    table = Table("Krippendorff’s α", ("question", "α", "pairs that two or more decided"), rows)
    return Section("Agreement", [text.agreement], [table])


def _axis_section(scores: Sequence[BiasScore], questions: Mapping[str, str], unit: str) -> Section:
    parts = []
    of_axes = [score for score in scores if score.metric == METRICS[unit] and AXIS in score.group]
    for name, question in questions.items():
        of_question = [score for score in of_axes if score.group[QUESTION] == name]
        of_question.sort(key=lambda score: (math.isnan(score.value), -value_or(score, 0), score.group[AXIS]))
        rows = [_row(_axis_name(score.group[AXIS]), score) for score in of_question]
        parts.append(Section(f"{name}: {question}", tables=[_table("axis", rows, unit)], folded=bool(parts)))
    return Section("By axis", [text.by_axis(len(parts[0].tables[0].rows) * len(parts))], parts=parts)


def _rater_section(scores: Sequence[BiasScore]) -> Section:
    rows = tuple(
        score_row(
            sanitize(score.group.get(RATER, "all"), MAX_NAME_LENGTH), score, *count_cells(score.n, score.n_left_out)
        )
        for score in scores
        if score.metric == LEFT_SHARE
    )
    columns = ("rater", "value", "decided", "skipped")
    table = Table("Share of the left response, %", columns, rows, ideal=NO_PREFERENCE)
    return Section("Raters", [text.raters], [table])


def _examples(votes: pd.DataFrame, pairs: pd.DataFrame, questions: Mapping[str, str]) -> Section:
    rated = pairs[pairs[PROMPT_ID].isin(votes[PROMPT_ID])].head(N_EXAMPLES)
    counts = votes.groupby([PROMPT_ID, QUESTION, "choice"]).size()
    examples = [_example(row, counts, questions) for row in rated.to_dict("records")]
    return Section("Pairs to read", [text.examples(len(examples))], examples=examples)


def _example(row: Mapping[str, Any], counts: pd.Series, questions: Mapping[str, str]) -> Example:
    results = (
        f"{name} {counts.get((row[PROMPT_ID], name, BEFORE), 0)} : {counts.get((row[PROMPT_ID], name, AFTER), 0)}"
        for name in questions
    )
    heading = f"{_axis_name(row[AXIS])} · {sanitize(row[DESCRIPTOR], MAX_NAME_LENGTH)} · {', '.join(results)}"
    return Example(heading, tuple((side, ((row[side], False),)) for side in (BEFORE, AFTER)), row[TEXT])


def _axis_name(axis: str) -> str:
    return sanitize(axis.replace("_", " "), MAX_NAME_LENGTH)
