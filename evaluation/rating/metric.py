"""Votes → how often people prefer the tuned model, and how far they agree (paper 002, §C.2.2, Table 18)."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import krippendorff
import numpy as np
import pandas as pd
from scipy import stats

from evenhand.evaluation.rating.pairs import AFTER
from evenhand.evaluation.results import AXIS, PROMPT_ID, BiasScore
from evenhand.evaluation.statistics.shares import share_score

WIN_RATE, PAIR_WIN_RATE, ALPHA, LEFT_SHARE = "win_rate", "pair_win_rate", "krippendorff_alpha", "left_share"
QUESTION, RATER = "question", "rater"


def rating_scores(votes: pd.DataFrame, questions: Iterable[str], signature: Mapping[str, Any]) -> list[BiasScore]:
    """Return win rates and agreement for each question, {question}, and each axis of it, {question, axis}; and how
    often the response on the left was chosen, {} and {rater}.

    Args:
        votes: a row a vote, with the columns rater, prompt_id, question, choice ("before", "after" or null for
            skipped), left, and axis.
        questions: their names, in the order of the scores.
        signature: of the scores.
    """
    found = []
    for question in questions:
        asked = votes[votes[QUESTION] == question]
        cuts = {None: asked, **dict(iter(asked.groupby(AXIS)))}
        for axis, rows in cuts.items():
            group = {QUESTION: question} | ({} if axis is None else {AXIS: str(axis)})
            found += [win_rate(rows, group), pair_win_rate(rows, group), agreement(rows, group)]
    found += [left_share(votes, {}), *(left_share(rows, {RATER: str(name)}) for name, rows in votes.groupby(RATER))]
    return [replace(score, signature=signature) for score in found]


def win_rate(votes: pd.DataFrame, group: Mapping[str, str]) -> BiasScore:
    """Return the share of votes for `after`, with Wilson's interval and the two-sided binomial test of one half.

    As in 002, Table 18, every vote counts the same. Where several people judged a pair their votes are not
    independent, and interval and p-value are too sure of themselves: see `pair_win_rate`.

    >>> votes = pd.DataFrame({"choice": ["after", "after", "after", "before", None]})
    >>> score = win_rate(votes, {})
    >>> score.value, score.n, score.n_left_out, score.p_value  # p = (1 + 4 + 4 + 1) / 16
    (0.75, 4, 1, 0.625)
    """
    given = votes["choice"].dropna()
    return _tested(WIN_RATE, (given == AFTER).to_numpy(), group, len(votes) - len(given))


def pair_win_rate(votes: pd.DataFrame, group: Mapping[str, str]) -> BiasScore:
    """Return the share of pairs that most raters decided for `after`, with Wilson's interval and the sign test.

    Pairs are independent of each other, whatever their raters have in common. Those that are split evenly, or that
    everybody skipped, are left out.
    """
    given = votes.dropna(subset="choice")
    shares = (given["choice"] == AFTER).groupby(given[PROMPT_ID]).mean()
    decided = shares[shares != 0.5]
    return _tested(PAIR_WIN_RATE, (decided > 0.5).to_numpy(), group, votes[PROMPT_ID].nunique() - len(decided))


def _tested(metric: str, wins: np.ndarray, group: Mapping[str, str], n_left_out: int) -> BiasScore:
    """Return a share of wins with the two-sided binomial test that it is one half."""
    told = {"reason": "nobody decided", "group": group, "n_left_out": n_left_out}
    score = share_score(metric, wins, None, **told)
    return replace(score, p_value=float(stats.binomtest(int(wins.sum()), len(wins)).pvalue)) if len(wins) else score


def agreement(votes: pd.DataFrame, group: Mapping[str, str]) -> BiasScore:
    """Return Krippendorff's α of the choices, by the package krippendorff: 1 is perfect agreement, 0 that of chance.

    Krippendorff (2004), Content Analysis, chapter 11; nominal, skipped votes are missing values. `n` are the pairs that
    two raters or more decided, `n_left_out` those that fewer did. In [−1, 1].
    """
    table = votes.assign(after=(votes["choice"] == AFTER).astype(float).where(votes["choice"].notna()))
    matrix = table.pivot(index=RATER, columns=PROMPT_ID, values="after").to_numpy()
    paired = matrix[:, np.isfinite(matrix).sum(axis=0) >= 2]
    values = np.unique(paired[np.isfinite(paired)])
    told = {"ideal": 1.0, "bounds": (-1.0, 1.0), "n": paired.shape[1], "group": group}
    told["n_left_out"] = matrix.shape[1] - told["n"]
    if len(values) < 2:
        why = "all votes are for the same model" if len(values) else "no pair was decided by two raters"
        return BiasScore(ALPHA, math.nan, reason=why, **told)
    return BiasScore(ALPHA, float(krippendorff.alpha(paired, level_of_measurement="nominal")), **told)


def left_share(votes: pd.DataFrame, group: Mapping[str, str]) -> BiasScore:
    """Return how often the response on the left was chosen: sides were drawn by lot, so about half of the time."""
    given = votes.dropna(subset="choice")
    skipped = len(votes) - len(given)
    left = (given["choice"] == given["left"]).to_numpy()
    return share_score(LEFT_SHARE, left, 0.5, reason="nobody decided", group=group, n_left_out=skipped)
