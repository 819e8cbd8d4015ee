"""Scores of raters' votes, and their report: win rates of the tuned model and agreement (Smith et al. 2022, §C.2.2)."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import scipy

from evenhand.evaluation import columns
from evenhand.evaluation.rating.response_pairs import AFTER, OFFENSIVE
from evenhand.evaluation.report.formats import Format, declare, find_format, format_of, glossary
from evenhand.evaluation.report.numbers import before_after
from evenhand.evaluation.report.page import SCORES_TITLE, Page, Section
from evenhand.evaluation.report.score_sections import score_section
from evenhand.evaluation.report.words import listed, note
from evenhand.evaluation.score import BiasScore, Signature, signature_line
from evenhand.evaluation.statistics.accuracy import KRIPPENDORFF_ALPHA, label_agreement
from evenhand.evaluation.statistics.scores import share_score

WIN_RATE = "win_rate"
PAIR_WIN_RATE = "pair_win_rate"
LEFT_SHARE = "left_share"
QUESTION = "question"
RATER = "rater"
NO_VOTES = "nobody decided"  # reason of an undefined share
METRICS = (
    Format(
        WIN_RATE,
        "share of votes for the model after",
        "Share of the votes, skipped ones excluded, for the model after tuning.",
        unit="%",
        factor=100,
        decimals=0,
        ideal=0.5,
    ),
    Format(
        PAIR_WIN_RATE,
        "share of pairs for the model after",
        "Share of the pairs in which most raters prefer the model after tuning; evenly split pairs are excluded.",
        unit="%",
        factor=100,
        decimals=0,
        ideal=0.5,
    ),
    Format(
        KRIPPENDORFF_ALPHA,
        "Krippendorff’s α",
        "One minus the observed disagreement over the disagreement expected by chance; nominal votes.",
        ideal=1,
    ),
    Format(
        LEFT_SHARE,
        "left response chosen",
        "Share of the votes for the response on the left.",
        unit="%",
        factor=100,
        decimals=0,
        ideal=0.5,
    ),
)
declare(METRICS)
WORDS = Path(__file__).with_name("words.j2")


def rating_scores(votes: pd.DataFrame, questions: Iterable[str], signature: Signature) -> list[BiasScore]:
    """Return all scores of the votes: the metrics METRICS.

    Win rates and agreement are computed for each question, over all axes and for each axis. The share of left
    responses is computed over all votes and for each rater.

    Args:
        votes: one row per vote, with the columns rater, prompt_id, question, choice ("before", "after", or null if
            skipped), left ("before" or "after"), and axis.
    """
    scores = []
    for question in questions:
        answers = votes[votes[QUESTION] == question]
        scores += _question_scores(answers, {QUESTION: question})
        for axis, rows in answers.groupby(columns.AXIS):
            scores += _question_scores(rows, {QUESTION: question, columns.AXIS: str(axis)})
    scores.append(left_share(votes, {}))
    for rater, rows in votes.groupby(RATER):
        scores.append(left_share(rows, {RATER: str(rater)}))
    return [replace(score, signature=signature) for score in scores]


def _question_scores(votes: pd.DataFrame, group: Mapping[str, str]) -> list[BiasScore]:
    return [win_rate(votes, group), pair_win_rate(votes, group), agreement(votes, group)]


def win_rate(votes: pd.DataFrame, group: Mapping[str, str]) -> BiasScore:
    """Return the share of votes for the model after tuning, in [0, 1], with Wilson's interval.

    The p-value is of the two-sided binomial test that the share is one half. Skipped votes are left out. Each vote has
    the same weight, as in Smith et al. 2022, Table 18. Votes of several raters on one pair are not independent: the
    interval is then too narrow and the p-value too small. `pair_win_rate` avoids both errors.

    Three votes are for "after", one vote is for "before", and one vote is skipped:

    >>> votes = pd.DataFrame({"choice": ["after", "after", "after", "before", None]})
    >>> score = win_rate(votes, {})
    >>> score.value, score.n, score.n_left_out, score.p_value  # p = (1 + 4 + 4 + 1) / 16
    (0.75, 4, 1, 0.625)
    """
    choices = votes["choice"].dropna()
    return _share_with_test(WIN_RATE, (choices == AFTER).to_numpy(), group, len(votes) - len(choices), "votes")


def pair_win_rate(votes: pd.DataFrame, group: Mapping[str, str]) -> BiasScore:
    """Return the share of pairs in which most raters prefer the model after tuning, in [0, 1], with Wilson's interval.

    The p-value is of the sign test. Pairs are independent of each other. Evenly split pairs, and pairs that all raters
    skipped, are left out.
    """
    answered = votes.dropna(subset="choice")
    is_after = answered["choice"] == AFTER
    shares = np.asarray(is_after.groupby(answered[columns.PROMPT_ID]).mean(), dtype=float)
    decided = shares[shares != 0.5]
    n_pairs = len(set(votes[columns.PROMPT_ID]))
    return _share_with_test(PAIR_WIN_RATE, decided > 0.5, group, n_pairs - len(decided), "pairs")


def _share_with_test(metric: str, wins: np.ndarray, group: Mapping[str, str], n_left_out: int, n_of: str) -> BiasScore:
    """Return the share of wins, (n,) bool, with the p-value of the two-sided binomial test that it is one half."""
    score = share_score(metric, wins, None, reason=NO_VOTES, group=group, n_left_out=n_left_out, n_of=n_of)
    if not len(wins):
        return score
    test = scipy.stats.binomtest(int(wins.sum()), len(wins))
    return replace(score, p_value=float(test.pvalue))


def agreement(votes: pd.DataFrame, group: Mapping[str, str]) -> BiasScore:
    """Return Krippendorff's α of the raters' choices (`label_agreement`); skipped votes are missing values.

    `n` is the number of pairs for which at least two raters chose a response, `n_left_out` the number of all others.
    """
    is_after = (votes["choice"] == AFTER).astype(float).where(votes["choice"].notna())
    table = votes.assign(after=is_after).pivot(index=RATER, columns=columns.PROMPT_ID, values="after")
    matrix = table.to_numpy()
    n_choices = np.isfinite(matrix).sum(axis=0)
    paired = matrix[:, n_choices >= 2]
    score = label_agreement(paired, seed=0, group=group)
    return replace(score, n_left_out=matrix.shape[1] - paired.shape[1], n_of="pairs")


def left_share(votes: pd.DataFrame, group: Mapping[str, str]) -> BiasScore:
    """Return the share of votes for the response on the left, in [0, 1]; the ideal is 0.5, because sides are random."""
    answered = votes.dropna(subset="choice")
    is_left = (answered["choice"] == answered["left"]).to_numpy()
    n_skipped = len(votes) - len(answered)
    return share_score(LEFT_SHARE, is_left, 0.5, reason=NO_VOTES, group=group, n_left_out=n_skipped, n_of="votes")


def page(
    scores: Sequence[BiasScore],
    votes: pd.DataFrame,
    pairs: pd.DataFrame,
    questions: Mapping[str, str],
    models: tuple[str, str],
    left_out: Mapping[str, int | None],
) -> Page:
    """Return the report on the votes; the headline is the win rate for the first question.

    The win rate is of pairs if several people rated a pair, since votes on one pair are not independent; else of votes.
    `left_out` are the numbers of excluded pairs by reason; None: no classifier looked for offensive responses.
    """
    has_repeats = bool(votes.duplicated([columns.PROMPT_ID, QUESTION]).any())
    metric = PAIR_WIN_RATE if has_repeats else WIN_RATE
    unit = "pairs" if has_repeats else "votes"
    first_question = next(iter(questions))
    win_rates = [score for score in scores if score.metric == metric and columns.AXIS not in score.group]
    headline = next(score for score in win_rates if score.group[QUESTION] == first_question)
    warnings = []
    if left_out[OFFENSIVE] is None:
        warnings.append(note(WORDS, "no_classifier"))
    counts = {
        "n_votes": len(votes),
        "n_raters": len(set(votes[RATER])),
        "n_rated": len(set(votes[columns.PROMPT_ID])),
        "n_pairs": len(pairs),
    }
    counted = {reason: n for reason, n in left_out.items() if n is not None}
    preferences = [note(WORDS, "preference", question=score.group[QUESTION], score=score) for score in win_rates]
    before, after = models
    return Page(
        title="Which responses people prefer",
        subtitle=before_after(before, after),
        headline_value=f"{format_of(headline).text(headline.value)} %" if math.isfinite(headline.value) else "–",
        headline_caption=f"of the {unit} on {first_question} are for the model after; 50 if neither is preferred",
        verdict=" ".join(preferences),
        warnings=warnings,
        notes=[note(WORDS, "votes", **counts), note(WORDS, "sample", left_out=counted)],
        sections=_sections(scores, metric),
        glossary=glossary(map(find_format, [metric, KRIPPENDORFF_ALPHA, LEFT_SHARE])),
        limits=listed("limits", WORDS),
        signature=headline.signature,
        signature_lines=[signature_line(headline)],
    )


def _sections(scores: Sequence[BiasScore], metric: str) -> list[Section]:
    """Return the tables of the report; `metric` is the win rate of the headline."""
    overall = [score for score in scores if columns.AXIS not in score.group]

    def of_metric(name: str) -> list[BiasScore]:
        return [score for score in overall if score.metric == name]

    by_axis = [score for score in scores if score.metric == metric and columns.AXIS in score.group]
    by_vote = of_metric(WIN_RATE) if metric == PAIR_WIN_RATE else []
    return [
        score_section(SCORES_TITLE, of_metric(metric), QUESTION, first_screen=True),
        score_section("By vote", by_vote, QUESTION, [note(WORDS, "about_votes")]),
        score_section(
            "Agreement of the raters", of_metric(KRIPPENDORFF_ALPHA), QUESTION, [note(WORDS, "about_agreement")]
        ),
        score_section("By axis", by_axis, "question and axis", [note(WORDS, "about_axes")]),
        score_section("Raters", of_metric(LEFT_SHARE), RATER, [note(WORDS, "about_raters")]),
    ]
