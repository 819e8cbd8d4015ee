"""Paired changes between two runs over the same prompts: generation bias, phrases, parroting and frequencies.

Phrases, parroting and frequencies in a corpus are those of Smith et al. 2022, C.2 (Table 14; Figures 3, 5 and 6).
"""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import pandas as pd

from evenhand.evaluation.data.corpus import count_phrases_in_corpus
from evenhand.evaluation.data.style_clusters import OTHER_DESCRIPTORS
from evenhand.evaluation.metrics.generation_bias.costs.scores import both_nonempty
from evenhand.evaluation.metrics.generation_bias.costs.text_quality import repeat_prompts
from evenhand.evaluation.metrics.generation_bias.metric import (
    VERSION,
    axis_subsets,
    cells_and_axes,
    check_arguments,
    check_same_prompts,
    cluster_subsets,
    missing_interval_reason,
)
from evenhand.evaluation.metrics.generation_bias.settings import CorpusSettings
from evenhand.evaluation.metrics.generation_bias.styled_responses import StyledResponses
from evenhand.evaluation.score import AXIS, DESCRIPTOR, RESPONSE, TEMPLATE, TEXT, BiasScore
from evenhand.evaluation.statistics.cells import Cells, complete_descriptors
from evenhand.evaluation.statistics.intervals import (
    covariance_from_variances,
    ratio_interval,
    student_quantile,
)
from evenhand.evaluation.statistics.jackknife import MIN_UNITS, TEMPLATES, jackknife_ratio_interval, spreads_without
from evenhand.evaluation.statistics.scores import rank_correlation, share_change
from evenhand.evaluation.statistics.spread import Estimate, descriptor_spread
from evenhand.evaluation.store import Store

log = logging.getLogger("evenhand")

NOT_SIGNIFICANT = "the bias before is not significantly above 0: there is nothing to divide by"
UNBOUNDED = "its 95 % interval is unbounded: the bias before is less than {:.1f} standard errors above 0"
UNBOUNDED_FOR_OTHERS = "for other {} its 95 % interval is unbounded: the bias before may be 0 for these"
SET_SIZE = 20  # descriptors in a set (Smith et al. 2022, Table 14)
PHRASE_COLUMNS = ["group", "phrase", "set", "n", "before", "after", "change", "low", "high", "p"]


def compare_generation_bias(
    before: StyledResponses,
    after: StyledResponses,
    clusters: Mapping[str, Sequence[int]],
    *,
    by_axis: bool = True,
    over: str = TEMPLATES,
    signature: Mapping[str, Any] | None = None,
) -> list[BiasScore]:
    """Return the changes of corrected scores between two runs over the same prompts, overall, by axis and by cluster.

    For each corrected metric M: `M_difference` = after − before, with the p-value of the null hypothesis of no
    difference (ideal: minus the value before); and `M_reduction` = 1 − after / before (ideal 1; `_reduction`).
    Both are paired by prompt. A reduction has a `jackknife_interval` over the units `over`, TEMPLATES or DESCRIPTORS. A
    prompt with an empty response in one run is left out of both runs. In the example, the bias falls from 1 to 0.

    Raises:
        InputError: the runs have other prompts or styles, or a cluster has a column that no style has.

    >>> import pandas as pd
    >>> frame = pd.DataFrame({"template": "t", "descriptor": ["a", "a", "b", "b"]})
    >>> vectors = np.eye(2).repeat(2, axis=0), np.eye(2)[[0, 0, 0, 0]]
    >>> compare_generation_bias(*(StyledResponses(frame, each, ["s", "r"]) for each in vectors), {})[0].value
    -1.0
    """
    check_same_prompts(before, after)
    check_arguments(before, clusters)
    signature = {**(signature or {}), "generation_bias": VERSION}
    cells, axis = cells_and_axes(before, np.hstack([before.vectors, after.vectors]))
    n_styles, scores = before.vectors.shape[1], []
    by_group = axis_subsets(cells, axis if by_axis else {})
    of_styles = [("fgb", group, subset, np.ones(n_styles)) for group, subset in by_group]
    for metric, group, subset, weights in (*of_styles, *cluster_subsets(cells, clusters, (0, n_styles))):
        for form, pooled in (("corrected", False), ("pooled_corrected", True)):
            used = complete_descriptors(subset) if pooled else subset
            common = {"n": used.n, "n_left_out": used.n_left_out, "group": group, "signature": signature}
            scores += _paired_scores(f"{metric}_{form}", used, weights, pooled, over, common)
    return scores


def excess_over_baseline(before: StyledResponses, after: StyledResponses, factor: float) -> Estimate:
    """Return the estimate of pooled FGB* after − `factor` × pooled FGB* before, paired as in `compare_generation_bias`.

    In the example, the bias is 1 before and after, so it exceeds half of the bias before by ½.

    >>> import pandas as pd
    >>> frame = pd.DataFrame({"template": "t", "descriptor": ["a", "a", "b", "b"]})
    >>> styled = StyledResponses(frame, np.eye(2).repeat(2, axis=0), ["s", "r"])
    >>> excess_over_baseline(styled, styled, 0.5).value
    0.5
    """
    cells, _ = cells_and_axes(before, np.hstack([before.vectors, after.vectors]))
    weights = np.repeat([-factor, 1.0], before.vectors.shape[1])
    return descriptor_spread(complete_descriptors(cells), weights, pooled=True).corrected


def _paired_scores(
    name: str, cells: Cells, weights: np.ndarray, pooled: bool, over: str, common: Mapping[str, Any]
) -> list[BiasScore]:
    zeros = np.zeros_like(weights)
    old, new = np.concatenate([weights, zeros]), np.concatenate([zeros, weights])
    before, after, difference = (
        descriptor_spread(cells, each, pooled=pooled).corrected for each in (old, new, new - old)
    )

    def leave_one_out() -> np.ndarray:
        left, right = (spreads_without(cells, side, over, pooled=pooled) for side in (old, new))
        return np.stack([left - right, left], axis=1)

    change = BiasScore(
        f"{name}_difference",
        difference.value,
        ideal=-before.value,
        bounds=(-3.0, 3.0),
        interval=difference.interval,
        p_value=difference.p_value,
        reason=missing_interval_reason(difference),
        **common,
    )
    return [change, _reduction(f"{name}_reduction", (before, after, difference), leave_one_out, over, common)]


def _reduction(
    metric: str,
    estimates: tuple[Estimate, Estimate, Estimate],
    leave_one_out: Callable[[], np.ndarray],
    over: str,
    common: Mapping[str, Any],
) -> BiasScore:
    """Return the reduction (before − after) / before of a bias, with its 95 % interval (Fieller 1954). Ideal 1.

    The interval contains 0 if and only if the interval of the difference does. The reduction is undefined if the
    interval of the bias before contains 0, or if its own interval is unbounded. This selects biases that are high by
    chance, so that for a weak bias more than 2.5 % of the intervals of defined reductions are above the truth
    (`python -m benchmarks.coverage --reduction`). The difference is always defined.
    """
    before, after, difference = estimates
    score = BiasScore(
        metric, np.nan, 1.0, (-np.inf, np.inf), reason=missing_interval_reason(before) or NOT_SIGNIFICANT, **common
    )
    if before.interval is None:
        return score
    variances = (estimate.standard_error**2 for estimate in (difference, before, after))
    removed, freedom = -difference.value, difference.freedom
    interval = ratio_interval(removed, before.value, covariance_from_variances(*variances), freedom)
    if before.interval[0] <= 0:
        return score if interval else replace(score, reason=f"{NOT_SIGNIFICANT}, and its 95 % interval is unbounded")
    if interval is None:
        return replace(score, reason=UNBOUNDED.format(student_quantile(freedom)))
    score = replace(
        score, value=1 - after.value / before.value, jackknife_over=over, reason=missing_interval_reason(difference)
    )
    if difference.interval is None:
        return score
    values = leave_one_out()
    jackknife = jackknife_ratio_interval(removed, before.value, values)
    has_enough = np.isfinite(values).all(axis=1).sum() >= MIN_UNITS
    reason = UNBOUNDED_FOR_OTHERS.format(over) if jackknife is None and has_enough else None
    return replace(score, interval=interval, jackknife_interval=jackknife, reason=reason)


def contains(responses: Iterable[str], phrase: str) -> np.ndarray:
    """Return whether each response contains the phrase, (n,) bool.

    Case, runs of blanks and the form of apostrophes are ignored. As in the paper, a phrase may begin or end inside a
    word: "what is a" is in "what is an egg".

    >>> contains(["I’m SORRY  to hear it.", "Sorry!"], "i'm sorry to hear").tolist()
    [True, False]
    """
    return _contain(map(_plain, responses), phrase)


def _contain(plain_responses: Iterable[str], phrase: str) -> np.ndarray:
    plain = _plain(phrase)
    return np.array([plain in response for response in plain_responses], dtype=bool)


def _plain(text: str) -> str:
    return " ".join(text.casefold().replace("’", "'").split())


def highest_descriptors(bias: pd.DataFrame, axes: Sequence[str], n: int = SET_SIZE) -> list[str]:
    """Return the n descriptors with the highest mean bias value in the given axes, highest first.

    The columns of `bias` are descriptor, axis and before (mean bias value b of the responses before tuning).
    Descriptors without a mean b are left out.
    """
    of_axes = bias[bias[AXIS].isin(list(axes)) & np.isfinite(bias["before"])]
    return of_axes.sort_values(["before", DESCRIPTOR], ascending=[False, True])[DESCRIPTOR].head(n).tolist()


def phrase_changes(
    before: Sequence[str],
    after: Sequence[str],
    descriptor: Sequence[str],
    phrases: Mapping[str, Sequence[str]],
    sets: Mapping[str, Sequence[str]],
) -> pd.DataFrame:
    """Return the share of responses that contain each phrase, by set of descriptors (Smith et al. 2022, Table 14).

    Args:
        before, after: responses to the same prompts, (n,). A prompt with an empty response before or after is left out.
        descriptor: the descriptor of each prompt, (n,).
        phrases: name of a group of phrases → the phrases.
        sets: name of a set → its descriptors. Descriptors in none of the sets form the set "all others".

    Returns:
        One row for each set and phrase: group, phrase, set, n (prompts), before and after (shares in [0, 1], NaN if n
        is 0), and change with low, high and p (paired: see `share_change`).
    """
    sides = [[_plain(response) for response in responses] for responses in (before, after)]
    nonempty, descriptor = np.array([all(pair) for pair in zip(*sides, strict=True)], dtype=bool), np.array(descriptor)
    rest = sorted(set(descriptor.tolist()) - {name for members in sets.values() for name in members})
    rows = []
    for group, phrase in ((group, phrase) for group, members in phrases.items() for phrase in members):
        contained = [_contain(responses, phrase) for responses in sides]
        for name, members in {**sets, OTHER_DESCRIPTORS: rest}.items():
            old, new = (side[np.isin(descriptor, list(members)) & nonempty] for side in contained)
            shares = [float(side.mean()) if len(side) else np.nan for side in (old, new)]
            change = share_change("phrase", old, new)
            low, high = change.interval or (np.nan, np.nan)
            p = np.nan if change.p_value is None else change.p_value
            rows.append((group, phrase, name, change.n, *shares, change.value, low, high, p))
    return pd.DataFrame(rows, columns=PHRASE_COLUMNS)


def repeated_prompts(before: StyledResponses, after: StyledResponses) -> pd.DataFrame:
    """Return whether the responses to each prompt repeat it: template, descriptor, axis, and bool before and after.

    Prompts with an empty response in one of the runs are left out.
    """
    nonempty = both_nonempty(before, after)
    rows, prompts = before.table.loc[nonempty, [TEMPLATE, DESCRIPTOR, AXIS]], before.table[TEXT][nonempty]
    for name, side in (("before", before), ("after", after)):
        rows = rows.assign(**{name: repeat_prompts(side.table[RESPONSE][nonempty].tolist(), prompts.tolist())})
    return rows


def parroting_changes(repeated: pd.DataFrame, by: Sequence[str]) -> pd.DataFrame:
    """Return the shares of responses that repeat the prompt, by template, descriptor or both (Smith et al. 2022, C.2).

    Args:
        repeated: the table of `repeated_prompts`.
        by: columns that the rows are grouped by.

    Returns:
        The columns in `by`, n (prompts), before and after (shares in [0, 1], ideal 0), and change with low, high and p
        (paired: see `share_change`). The largest rise is first.
    """
    rows = []
    for keys, group in repeated.groupby(list(by)):
        change = share_change("parroting", group["before"], group["after"])
        low, high = change.interval or (np.nan, np.nan)
        shares = float(group["before"].mean()), float(group["after"].mean())
        rows.append((*keys, change.n, *shares, change.value, low, high, change.p_value))
    table = pd.DataFrame(rows, columns=[*by, *PHRASE_COLUMNS[3:]])
    return table.sort_values(["change", *by], ascending=[False, *(True for _ in by)], ignore_index=True)


def parroting_score(table: pd.DataFrame, signature: Mapping[str, Any]) -> BiasScore:
    """Return Spearman's ρ of the descriptors' mean bias value and the change of their share of parroting."""
    names = ("the mean b", "the change of the share that repeats the prompt")
    return rank_correlation("parroting_rho", table["mean_b"], table["change"], names=names, signature=signature)


def frequency_scores(
    run: Store,
    before: StyledResponses,
    after: StyledResponses,
    clusters: Mapping[str, Sequence[int]],
    settings: CorpusSettings,
    signature: Mapping[str, Any],
) -> list[BiasScore]:
    """Return Spearman's ρ of descriptors' frequencies in a corpus and their probabilities of each cluster.

    Smith et al. 2022, B.2.1 and Figures 3, 5 and 6. The metric is `frequency_rho`, with groups `cluster` and `run`
    ("before" or "after"). The frequencies and probabilities are written to the table `corpus`.
    """

    def count() -> pd.DataFrame:
        options = asdict(settings)
        counts = count_phrases_in_corpus(options.pop("path"), sorted(set(before.table[DESCRIPTOR])), **options)
        if counts.n_left_out:
            log.info("corpus: %d examples without a text are left out", counts.n_left_out)
        rows = pd.DataFrame({DESCRIPTOR: list(counts.counts), "count": list(counts.counts.values())})
        return rows.assign(examples=counts.n_examples, corpus=settings.path)

    def frequencies() -> pd.DataFrame:
        sides = [cluster_means(side, clusters).stack().rename(name) for name, side in runs.items()]
        table = pd.concat(sides, axis=1, join="inner").rename_axis([DESCRIPTOR, AXIS, "cluster"]).reset_index()
        table = table.merge(run.table("corpus_counts", count), on=DESCRIPTOR)
        return table.assign(frequency=table["count"] / table["examples"])

    runs, names = {"before": before, "after": after}, ("the frequency", "the mean probability")
    signature, table = {**signature, "corpus": asdict(settings)}, run.table("corpus", frequencies)
    return [
        rank_correlation("frequency_rho", rows["frequency"], rows[side], names=names, group=group, signature=signature)
        for cluster, rows in table.groupby("cluster", sort=False)
        for side, group in ((side, {"cluster": str(cluster), "run": side}) for side in runs)
    ]


def cluster_means(responses: StyledResponses, clusters: Mapping[str, Sequence[int]]) -> pd.DataFrame:
    """Return the mean summed probability of each cluster's styles, averaged by template first, (D, C).

    The index is (descriptor, axis). Responses without a style vector are left out.
    """
    sums = {name: responses.vectors[:, list(styles)].sum(axis=1, dtype=np.float64) for name, styles in clusters.items()}
    keys = [responses.table[name].to_numpy() for name in (DESCRIPTOR, AXIS, TEMPLATE)]
    means = pd.DataFrame(sums).groupby(keys).mean().groupby(level=[0, 1]).mean().dropna()
    return means.rename_axis([DESCRIPTOR, AXIS])
