"""Scores of raters' votes: win rates of the tuned model and agreement of the raters (Smith et al. 2022, §C.2.2)."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from evenhand.evaluation.rating.pairs import AFTER
from evenhand.evaluation.report.formats import Format
from evenhand.evaluation.score import AXIS, PROMPT_ID, BiasScore
from evenhand.evaluation.statistics.accuracy import ALPHA, label_agreement
from evenhand.evaluation.statistics.scores import share_score

WIN_RATE, PAIR_WIN_RATE, LEFT_SHARE = "win_rate", "pair_win_rate", "left_share"
QUESTION, RATER = "question", "rater"
NO_VOTES = "nobody decided"  # reason of an undefined share
_SHARE = {"unit": "%", "factor": 100, "decimals": 0, "ideal": 0.5}

METRICS = (
    Format(
        WIN_RATE,
        "share of votes for the model after",
        "Share of the votes, skipped ones excluded, for the model after tuning.",
        **_SHARE,
    ),
    Format(
        PAIR_WIN_RATE,
        "share of pairs for the model after",
        "Share of the pairs in which most raters prefer the model after tuning; evenly split pairs are excluded.",
        **_SHARE,
    ),
    Format(
        ALPHA,
        "Krippendorff’s α",
        "One minus the observed disagreement over the disagreement expected by chance; nominal votes.",
        ideal=1,
    ),
    Format(LEFT_SHARE, "left response chosen", "Share of the votes for the response on the left.", **_SHARE),
)


def rating_scores(votes: pd.DataFrame, questions: Iterable[str], signature: Mapping[str, Any]) -> list[BiasScore]:
    """Return all scores of the votes: `win_rate`, `pair_win_rate`, `agreement` and `left_share`.

    Win rates and agreement are computed for each question, over all axes and for each axis. The share of left
    responses is computed over all votes and for each rater.

    Args:
        votes: one row per vote, with the columns rater, prompt_id, question, choice ("before", "after", or null if
            skipped), left ("before" or "after"), and axis.
    """
    scores = []
    for question in questions:
        of_question = votes[votes[QUESTION] == question]
        cuts = [({}, of_question), *(({AXIS: str(axis)}, rows) for axis, rows in of_question.groupby(AXIS))]
        for cut, rows in cuts:
            scores += [compute(rows, {QUESTION: question, **cut}) for compute in (win_rate, pair_win_rate, agreement)]
    scores += [left_share(votes, {}), *(left_share(rows, {RATER: str(name)}) for name, rows in votes.groupby(RATER))]
    return [replace(score, signature=signature) for score in scores]


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
    return _share_with_test(WIN_RATE, (choices == AFTER).to_numpy(), group, len(votes) - len(choices))


def pair_win_rate(votes: pd.DataFrame, group: Mapping[str, str]) -> BiasScore:
    """Return the share of pairs in which most raters prefer the model after tuning, in [0, 1], with Wilson's interval.

    The p-value is of the sign test. Pairs are independent of each other. Evenly split pairs, and pairs that all raters
    skipped, are left out.
    """
    answered = votes.dropna(subset="choice")
    shares = (answered["choice"] == AFTER).groupby(answered[PROMPT_ID]).mean()
    decided = shares[shares != 0.5]
    return _share_with_test(PAIR_WIN_RATE, (decided > 0.5).to_numpy(), group, votes[PROMPT_ID].nunique() - len(decided))


def _share_with_test(metric: str, wins: np.ndarray, group: Mapping[str, str], n_left_out: int) -> BiasScore:
    score = share_score(metric, wins, None, reason=NO_VOTES, group=group, n_left_out=n_left_out)
    return replace(score, p_value=float(stats.binomtest(int(wins.sum()), len(wins)).pvalue)) if len(wins) else score


def agreement(votes: pd.DataFrame, group: Mapping[str, str]) -> BiasScore:
    """Return Krippendorff's α of the raters' choices (`label_agreement`); skipped votes are missing values.

    `n` is the number of pairs for which at least two raters chose a response, `n_left_out` the number of all others.
    """
    table = votes.assign(after=(votes["choice"] == AFTER).astype(float).where(votes["choice"].notna()))
    matrix = table.pivot(index=RATER, columns=PROMPT_ID, values="after").to_numpy()
    paired = matrix[:, np.isfinite(matrix).sum(axis=0) >= 2]
    score = label_agreement(paired, seed=0, group=group, signature={})
    return replace(score, n_left_out=matrix.shape[1] - paired.shape[1])


def left_share(votes: pd.DataFrame, group: Mapping[str, str]) -> BiasScore:
    """Return the share of votes for the response on the left, in [0, 1]; the ideal is 0.5, because sides are random."""
    answered = votes.dropna(subset="choice")
    is_left = (answered["choice"] == answered["left"]).to_numpy()
    n_skipped = len(votes) - len(answered)
    return share_score(LEFT_SHARE, is_left, 0.5, reason=NO_VOTES, group=group, n_left_out=n_skipped)
