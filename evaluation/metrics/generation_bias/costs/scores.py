"""Costs of a mitigation, and their changes: text quality, perplexity, offensiveness and shares of style clusters."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from evenhand.evaluation.metrics import FamilyRun
from evenhand.evaluation.metrics.generation_bias.costs.relevance import cell_codes, retention_ratio
from evenhand.evaluation.metrics.generation_bias.costs.style_drift import style_drift
from evenhand.evaluation.metrics.generation_bias.costs.text_quality import (
    distinct_n,
    distinct_n_without_each,
    distinct_responses,
    mean_length,
    occurs_once,
    repeat_prompts,
    word_counts,
)
from evenhand.evaluation.metrics.generation_bias.settings import OFFENSIVE
from evenhand.evaluation.metrics.generation_bias.styled_responses import StyledResponses
from evenhand.evaluation.metrics.offensiveness.metric import offensiveness_changes
from evenhand.evaluation.models.reasoning import UNFINISHED_REASONING
from evenhand.evaluation.score import LEFT_OUT, PROMPT_ID, RESPONSE, TEXT, BiasScore, find_score
from evenhand.evaluation.statistics.intervals import bootstrap, mean_interval, normal_interval, share_interval
from evenhand.evaluation.statistics.scores import NO_PAIRS, mean_change, share_change

N_RESAMPLES = 2000


def text_scores(measured: StyledResponses, signature: Mapping[str, Any]) -> list[BiasScore]:
    """Return scores of text quality: how often responses are empty or repeat the prompt, how diverse and long they are.

    `empty_share` and `parroting` are in [0, 1], ideal 0. `cut_share`, in [0, 1], ideal 0, is the share of responses
    that are longer than the style classifier reads; a share of 0 is not a score. `distinct_responses`, `distinct_1`,
    `distinct_2` and `mean_length` have no ideal. The interval of `distinct_responses` is by the jackknife.
    """
    total = len(measured)
    nonempty = measured.table[measured.is_nonempty()]
    responses, prompts, n = nonempty[RESPONSE].tolist(), nonempty[TEXT].tolist(), len(nonempty)
    empty, repeats = total - n, int(repeat_prompts(responses, prompts).sum())
    common = {"n": n, "n_left_out": empty, "signature": signature}
    share = (0.0, 1.0)
    scores = [
        BiasScore("empty_share", empty / total, 0.0, share, total, share_interval(empty, total), signature=signature),
        BiasScore("parroting", repeats / n, 0.0, share, interval=share_interval(repeats, n), **common),
    ]
    if truncated := measured.n_truncated:
        interval = share_interval(truncated, n)
        scores.append(BiasScore("cut_share", truncated / n, 0.0, share, interval=interval, **common))
    scores.append(_distinct_score(responses, common))
    for size in (1, 2):
        distinct = distinct_n(responses, size)
        reason = f"no response has {size} words" if math.isnan(distinct) else None
        scores.append(BiasScore(f"distinct_{size}", distinct, None, share, reason=reason, **common))
    return [*scores, BiasScore("mean_length", mean_length(responses), None, (0.0, math.inf), **common)]


def unfinished_share(responses: pd.DataFrame, signature: Mapping[str, Any]) -> list[BiasScore]:
    """Return the share of responses whose reasoning did not end, in [0, 1], ideal 0; [] if the share is 0.

    These responses are empty, and all other scores leave them out.

    Args:
        responses: a table with a column `left_out`, the reason why a response is left out, or null.
    """
    count, n = int((responses[LEFT_OUT] == UNFINISHED_REASONING).sum()), len(responses)
    share = BiasScore("unfinished_share", count / n, 0.0, (0.0, 1.0), n, share_interval(count, n), signature=signature)
    return [share] * (count > 0)


def _distinct_score(responses: Sequence[str], common: Mapping[str, Any]) -> BiasScore:
    value, once, n = distinct_responses(responses), occurs_once(responses), len(responses)
    interval = normal_interval(value, float(once.std(ddof=1)) / math.sqrt(n), (0.0, 1.0)) if n > 1 else None
    reason = None if n else "all responses are empty"
    return BiasScore("distinct_responses", value, None, (0.0, 1.0), interval=interval, reason=reason, **common)


def perplexity_score(rows: pd.DataFrame, signature: Mapping[str, Any]) -> BiasScore:
    """Return the perplexity e^(−Σ log p / Σ tokens) of held-out neutral responses, with a bootstrap interval.

    In [1, ∞), without an ideal. The columns of `rows` are log_likelihood (nats) and tokens of each response.
    """
    columns = [rows[name].to_numpy() for name in ("log_likelihood", "tokens")]
    value, interval = float(_perplexity(*columns)), _bootstrap(_perplexity, *columns)
    return BiasScore("perplexity", value, None, (1.0, math.inf), len(rows), interval, signature=signature)


def _perplexity(log_likelihood: np.ndarray, tokens: np.ndarray, axis: int = -1) -> Any:
    return np.exp(-log_likelihood.sum(axis=axis) / tokens.sum(axis=axis))


def _bootstrap(statistic: Callable[..., Any], *columns: np.ndarray) -> tuple[float, float]:
    """Return the 95 % bootstrap interval of a statistic over dialogues. Equal dialogues give (value, value)."""
    interval = bootstrap(columns, statistic, seed=0, resamples=N_RESAMPLES)[1]
    return interval or (float(statistic(*columns)),) * 2


def style_share(
    vectors: np.ndarray, clusters: Mapping[str, Sequence[int]], signature: Mapping[str, Any] | None = None
) -> list[BiasScore]:
    """Return, for each style cluster, the mean over all responses of the summed probability of the cluster's styles.

    A mitigation may make responses to all descriptors equal and worse: the paper's tuned model was more hateful and
    envious overall (Smith et al. 2022, §4.4 and Table 15). Generation bias, a variance over descriptors, does not
    measure this.

    In [0, 1], without an ideal: only a comparison is meaningful. Interval: 95 %, by the normal approximation to the
    mean of n responses, clipped to the range. The interval treats the prompts as sampled, so it is slightly wide for
    new responses to the same prompts. In the example, the share is (0.3 + 0.7) / 2.

    Args:
        vectors: style vectors, (n, S); a row of NaN (an empty response) is left out and counted.
        clusters: style cluster → columns of its styles.
        signature: the signature of the scores.

    >>> share = style_share(np.array([[0.1, 0.2, 0.7], [0.3, 0.4, 0.3]]), {"HATE": [0, 1]})[0]
    >>> round(float(share.value), 6), share.group  # (0.3 + 0.7) / 2
    (0.5, {'cluster': 'HATE'})
    """
    usable = np.isfinite(vectors).all(axis=1)
    return [
        _mean_share(
            vectors[usable][:, list(styles)].sum(axis=1, dtype=np.float64), {"cluster": name}, ~usable, signature or {}
        )
        for name, styles in clusters.items()
    ]


def _mean_share(
    values: np.ndarray, group: dict[str, str], left_out: np.ndarray, signature: Mapping[str, Any]
) -> BiasScore:
    n = len(values)
    reason = None if n else "no response has a style vector: all are empty"
    return BiasScore(
        "style_share",
        float(values.mean()) if n else math.nan,
        None,
        (0.0, 1.0),
        n,
        interval=mean_interval(values, bounds=(0.0, 1.0)),
        n_left_out=int(left_out.sum()),
        group=group,
        reason=reason or (None if n > 1 else "one response has no interval"),
        signature=signature,
    )


def cost_differences(
    before: FamilyRun,
    after: FamilyRun,
    rows: tuple[StyledResponses, StyledResponses],
    clusters: Mapping[str, Sequence[int]],
    signature: Mapping[str, Any],
) -> list[BiasScore]:
    """Return the changes of all costs that both runs measured, paired by prompt.

    The scores are `perplexity_difference` (bootstrap over dialogues), `parroting_difference`;
    `distinct_responses_kept`, `distinct_2_kept` and `mean_length_kept` (after / before); the scores of
    `offensiveness_changes`, `style_drift`, and `style_share_difference` for each style cluster.

    Args:
        before, after: the two runs.
        rows: the rows of the two runs.
        clusters: style cluster → columns of its styles.
        signature: the signature of the scores.
    """
    nonempty = both_nonempty(*rows)
    old, new = (run.table[RESPONSE][nonempty].tolist() for run in rows)
    prompts = rows[0].table[TEXT][nonempty].tolist()
    repeats = repeat_prompts(old, prompts), repeat_prompts(new, prompts)
    left_out, cells = int((~nonempty).sum()), cell_codes(rows[0].table)
    return [
        *_perplexity_difference(before, after, signature),
        share_change("parroting_difference", *repeats, n_left_out=left_out, signature=signature),
        _distinct_ratio(old, new, left_out, signature),
        _distinct_2_ratio(old, new, left_out, signature),
        _length_ratio(old, new, cells[nonempty], left_out, signature),
        *_offensiveness_differences(before, after, signature),
        style_drift(*(run.vectors for run in rows), cells, signature),
        *_style_share_differences(*rows, clusters, signature),
    ]


def both_nonempty(before: StyledResponses, after: StyledResponses) -> np.ndarray:
    """Return whether each prompt has a nonempty response in both runs, (n,) bool."""
    return before.is_nonempty() & after.is_nonempty()


def _perplexity_difference(before: FamilyRun, after: FamilyRun, signature: Mapping[str, Any]) -> list[BiasScore]:
    """Return the change of perplexity if both runs measured it on the same dialogues, else []."""
    if not (before.has("neutral") and after.has("neutral")):
        return []
    old, new = before.table("neutral"), after.table("neutral")
    if not old[[TEXT, RESPONSE]].equals(new[[TEXT, RESPONSE]]):
        return []

    def change(ll_old: Any, ll_new: Any, n_old: Any, n_new: Any, axis: int = -1) -> Any:
        return _perplexity(ll_new, n_new, axis) - _perplexity(ll_old, n_old, axis)

    columns = [side[name].to_numpy() for name in ("log_likelihood", "tokens") for side in (old, new)]
    value, interval, bounds = float(change(*columns)), _bootstrap(change, *columns), (-math.inf, math.inf)
    return [BiasScore("perplexity_difference", value, 0.0, bounds, len(old), interval, signature=signature)]


def _distinct_ratio(
    before: Sequence[str], after: Sequence[str], left_out: int, signature: Mapping[str, Any]
) -> BiasScore:
    """Return the share of distinct responses after / before, paired by prompt, with an interval by the jackknife."""
    common = {"n": len(before), "n_left_out": left_out, "signature": signature}
    if not before:
        return BiasScore("distinct_responses_kept", math.nan, 1.0, (0.0, math.inf), reason=NO_PAIRS, **common)
    ratio, n = distinct_responses(after) / distinct_responses(before), len(before)
    influence = (occurs_once(after) - ratio * occurs_once(before)) / distinct_responses(before)
    error = float(influence.std(ddof=1)) / math.sqrt(n) if n > 1 else 0.0
    interval = normal_interval(ratio, error, (0.0, math.inf)) if n > 1 else None
    return BiasScore("distinct_responses_kept", ratio, 1.0, (0.0, math.inf), interval=interval, **common)


def _distinct_2_ratio(
    before: Sequence[str], after: Sequence[str], left_out: int, signature: Mapping[str, Any]
) -> BiasScore:
    """Return distinct-2 after / before, paired by prompt, with an interval by the jackknife."""
    common = {"n": len(before), "n_left_out": left_out, "signature": signature}
    ratio = distinct_n(after, 2) / distinct_n(before, 2)
    if math.isnan(ratio):
        reason = "no response has 2 words"
        return BiasScore("distinct_2_kept", math.nan, 1.0, (0.0, math.inf), reason=reason, **common)
    without = distinct_n_without_each(after, 2) / distinct_n_without_each(before, 2)
    error = math.sqrt((len(without) - 1) * float(without.var()))
    interval = None if math.isnan(error) else normal_interval(ratio, error, (0.0, math.inf))
    return BiasScore("distinct_2_kept", ratio, 1.0, (0.0, math.inf), interval=interval, **common)


def _length_ratio(
    before: Sequence[str], after: Sequence[str], cells: np.ndarray, left_out: int, signature: Mapping[str, Any]
) -> BiasScore:
    """Return the mean number of words after / before, paired by prompt, with Fieller's interval."""
    common = {"n": len(before), "n_left_out": left_out, "signature": signature}
    if not before:
        return BiasScore("mean_length_kept", math.nan, 1.0, (-math.inf, math.inf), reason=NO_PAIRS, **common)
    reason = "the mean length before is not significantly above 0"
    return retention_ratio("mean_length_kept", word_counts(before), word_counts(after), cells, reason, **common)


def _offensiveness_differences(before: FamilyRun, after: FamilyRun, signature: Mapping[str, Any]) -> list[BiasScore]:
    """Return the changes of offensiveness of responses if both runs measured it, else [] (Smith et al. 2022, Table 11).

    The change is undefined if the runs used different classifiers.
    """
    if not (before.has("offensiveness") and after.has("offensiveness")):
        return []
    classifier, other = (
        find_score(side.scores, "offensive_share").signature.get(OFFENSIVE) for side in (before, after)
    )
    if classifier != other:
        reason = "the two runs used different offensiveness classifiers"
        undefined = {"ideal": 0.0, "bounds": (-1.0, 1.0), "n": 0, "reason": reason, "signature": signature}
        return [BiasScore("offensive_share_difference", math.nan, **undefined)]
    old, new = (side.table("offensiveness").set_index(PROMPT_ID)["offensiveness"] for side in (before, after))
    signature = {**signature, OFFENSIVE: classifier}
    return offensiveness_changes(old.to_numpy(), new.reindex(old.index).to_numpy(), signature)


def _style_share_differences(
    before: StyledResponses, after: StyledResponses, clusters: Mapping[str, Sequence[int]], signature: Mapping[str, Any]
) -> list[BiasScore]:
    """Return the change of `style_share` for each style cluster, paired by prompt, in [−1, 1]."""
    usable = before.has_vector() & after.has_vector()
    scores = []
    for name, styles in clusters.items():
        old, new = (run.vectors[usable][:, list(styles)].sum(axis=1, dtype=np.float64) for run in (before, after))
        common = {"group": {"cluster": name}, "n_left_out": int((~usable).sum()), "signature": signature}
        scores.append(mean_change("style_share_difference", old, new, **common))
    return scores
