"""Relevance of responses to their prompts, and perplexity of responses, from log-likelihoods under one model.

A model that ignores its prompts has no bias, so relevance is measured as well: if the base model's responses are
shuffled over the prompts, pooled FGB* and relevance are 0 except for noise. Log-likelihoods in a
measurement are under the measured model. Log-likelihoods in a comparison are, for both runs, under the model of the run
`before`.

Let c be the prompt (and persona) of response r, and c′ a prompt with the same descriptor and another template:

    relevance = mean over responses of log p(r | c) − log p(r | c′), in nats.

- For the model's responses, r ~ p(· | c), the expected relevance is KL(p(· | c) ‖ p(· | c′)) ≥ 0: how much a response
  reveals about its template.
- For responses that do not depend on the template, the expected relevance is 0, since c and c′ are exchangeable.
- The descriptor is the same in c and c′, so equal treatment of descriptors does not lower the relevance.
"""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from evenhand.evaluation.results import AXIS, DESCRIPTOR, TEMPLATE, BiasScore
from evenhand.evaluation.statistics.cells import to_codes
from evenhand.evaluation.statistics.intervals import ANY, interval_around, student_quantile
from evenhand.evaluation.statistics.ratios import ratio_interval
from evenhand.evaluation.statistics.strata import mean_covariance

LIKELIHOODS = "likelihoods_of_responses"
# Metrics computed from likelihoods under a model.
LIKELIHOOD_METRICS = ("relevance", "relevance_within_template", "response_perplexity")
NO_OTHER_PROMPT = "no prompt has another prompt with its descriptor and another template"
TOO_LONG = "every prompt with its response is too long for the model"
NOT_RELEVANT = "the relevance before is not significantly above 0"


def other_prompts(prompts: pd.DataFrame) -> np.ndarray:
    """Return, for each prompt, the row of a random prompt with the same descriptor and another template, (n,) int.

    The row is −1 if no such prompt exists. The result depends only on the table, so that two runs over the same prompts
    have equal results. In the example, descriptor b has only one template.

    >>> prompts = pd.DataFrame({"descriptor": ["a", "a", "b"], "axis": "x", "template": ["s", "t", "s"]})
    >>> other_prompts(prompts).tolist()
    [1, 0, -1]
    """
    rng, others = np.random.default_rng(0), np.full(len(prompts), -1)
    template = to_codes(prompts[TEMPLATE].tolist())
    for rows in _descriptor_rows(prompts):
        rows = rows[np.argsort(template[rows], kind="stable")]
        first = np.searchsorted(template[rows], template[rows], "left")
        last = np.searchsorted(template[rows], template[rows], "right")
        n_others = len(rows) - (last - first)  # rows of other templates, which start after the rows of this template
        sampled = (last + np.floor(rng.random(len(rows)) * n_others).astype(int)) % len(rows)
        others[rows] = np.where(n_others > 0, rows[sampled], -1)
    return others


def _descriptor_rows(prompts: pd.DataFrame) -> list[np.ndarray]:
    groups = prompts.groupby([prompts[DESCRIPTOR].astype(str), prompts[AXIS].astype(str)], sort=True)
    return [np.asarray(rows) for rows in groups.indices.values()]


def cell_codes(prompts: pd.DataFrame) -> np.ndarray:
    """Return an integer code of each prompt's cell (template, descriptor, axis), (n,), the stratum for intervals."""
    return prompts.groupby([TEMPLATE, DESCRIPTOR, AXIS], sort=True).ngroup().to_numpy()


def likelihood_scores(
    prompts: pd.DataFrame, table: pd.DataFrame, signature: Mapping[str, Any], group: Mapping[str, str] | None = None
) -> list[BiasScore]:
    """Return the scores `relevance` (nats, in (−∞, ∞)) and `response_perplexity` (in [1, ∞)) of one run's responses.

    Neither has an ideal. An empty response counts as its end-of-sequence token. Intervals: 95 %, over new responses in
    the same cells, by Student's t; for the perplexity by the delta method for the ratio of two means.

    Args:
        prompts: the prompts, in the order of the rows of `table`.
        table: the result of `likelihoods_of_responses`.
    """
    common = {"group": dict(group or {}), "signature": signature}
    rows = [_usable(table, both) for both in (True, False)]
    cells = cell_codes(prompts)
    scores = []
    for metric, bounds, usable in (("relevance", ANY, rows[0]), ("response_perplexity", (1.0, math.inf), rows[1])):
        n, part = int(usable.sum()), table[usable]
        common |= {"n": n, "n_left_out": len(table) - n}
        if not n:
            reason = NO_OTHER_PROMPT if metric == "relevance" else TOO_LONG
            scores.append(BiasScore(metric, math.nan, None, bounds, reason=reason, **common))
        elif metric == "relevance":
            gain = _gains(part)
            interval = _interval(float(gain.mean()), gain, cells[usable])
            scores.append(BiasScore(metric, float(gain.mean()), None, bounds, interval=interval, **common))
        else:
            rate, influence = _surprise(part)
            interval = _interval(rate, influence, cells[usable])
            ends = interval and tuple(max(1.0, _exp(end)) for end in interval)
            scores.append(BiasScore(metric, _exp(rate), None, bounds, interval=ends, **common))
    return scores


def likelihood_changes(
    prompts: pd.DataFrame, before: pd.DataFrame, after: pd.DataFrame, signature: Mapping[str, Any]
) -> list[BiasScore]:
    """Return likelihood scores of two runs over the same prompts, by group `run`, and the paired changes.

    All likelihoods are under one model. The changes are `relevance_difference` (nats); `relevance_kept` (after /
    before, ideal 1; Fieller's interval; undefined if the relevance before is not significantly above 0); and
    `response_perplexity_rise` (after / before − 1; interval by the delta method for the logarithm).
    """
    scores = []
    for name, table in (("before", before), ("after", after)):
        scores += likelihood_scores(prompts, table, signature, {"run": name})
    cells, common = cell_codes(prompts), {"signature": signature}
    usable = _usable(before, True) & _usable(after, True)
    common |= {"n": int(usable.sum()), "n_left_out": int((~usable).sum())}
    if not usable.any():
        scores += [
            BiasScore("relevance_difference", math.nan, 0.0, ANY, reason=NO_OTHER_PROMPT, **common),
            BiasScore("relevance_kept", math.nan, 1.0, ANY, reason=NO_OTHER_PROMPT, **common),
        ]
    else:
        old, new = _gains(before[usable]), _gains(after[usable])
        change = float((new - old).mean())
        interval = _interval(change, new - old, cells[usable])
        scores.append(BiasScore("relevance_difference", change, 0.0, ANY, interval=interval, **common))
        scores.append(retention_ratio("relevance_kept", old, new, cells[usable], NOT_RELEVANT, **common))
    return [*scores, _perplexity_rise(before, after, cells, signature)]


def retention_ratio(
    metric: str, before: np.ndarray, after: np.ndarray, cells: np.ndarray, reason: str, **common: Any
) -> BiasScore:
    """Return the score mean(after) / mean(before) of paired numbers, (n,), with its interval (ideal 1).

    The score is undefined, with `reason`, if mean(before) is not significantly above 0.
    """
    old, new = float(before.mean()), float(after.mean())
    interval = ratio_interval(new, old, *mean_covariance(np.stack([after, before], axis=1), cells))
    if interval is None or old <= 0:
        return BiasScore(metric, math.nan, 1.0, ANY, reason=reason, **common)
    return BiasScore(metric, new / old, 1.0, ANY, interval=interval, **common)


def undefined_changes(reason: str, signature: Mapping[str, Any]) -> list[BiasScore]:
    """Return the changes of `likelihood_changes` as undefined scores with the reason why a model is missing."""
    ideals = {"relevance_difference": 0.0, "relevance_kept": 1.0, "response_perplexity_rise": 0.0}
    return [
        BiasScore(metric, math.nan, ideal, ANY, 0, reason=reason, signature=signature)
        for metric, ideal in ideals.items()
    ]


def _perplexity_rise(
    before: pd.DataFrame, after: pd.DataFrame, cells: np.ndarray, signature: Mapping[str, Any]
) -> BiasScore:
    metric, bounds = "response_perplexity_rise", (-1.0, math.inf)
    usable = _usable(before, False) & _usable(after, False)
    common = {"n": int(usable.sum()), "n_left_out": int((~usable).sum()), "signature": signature}
    if not usable.any():
        reason = TOO_LONG
        return BiasScore(metric, math.nan, 0.0, bounds, reason=reason, **common)
    (old, of_old), (new, of_new) = _surprise(before[usable]), _surprise(after[usable])
    interval = _interval(new - old, of_new - of_old, cells[usable])
    ends = interval and tuple(_exp(end) - 1 for end in interval)
    return BiasScore(metric, _exp(new - old) - 1, 0.0, bounds, interval=ends, **common)


def _usable(table: pd.DataFrame, both: bool) -> np.ndarray:
    names = ["log_likelihood", *(["other_log_likelihood"] if both else [])]
    return np.isfinite(table[names].to_numpy(dtype=np.float64)).all(axis=1)


def _gains(table: pd.DataFrame) -> np.ndarray:
    return (table["log_likelihood"] - table["other_log_likelihood"]).to_numpy(dtype=np.float64)


def _surprise(table: pd.DataFrame) -> tuple[float, np.ndarray]:
    """Return −Σ log p / Σ tokens, in nats per token, and each row's influence on this ratio, (n,), with mean 0."""
    surprise = -table["log_likelihood"].to_numpy(dtype=np.float64)
    tokens = table["tokens"].to_numpy(dtype=np.float64)
    rate = float(surprise.sum() / tokens.sum())
    return rate, (surprise - rate * tokens) / tokens.mean()


def _interval(value: float, numbers: np.ndarray, cells: np.ndarray) -> tuple[float, float] | None:
    covariance, freedom = mean_covariance(numbers[:, None], cells)
    if not freedom:
        return None
    return interval_around(value, float(student_quantile(freedom)) * math.sqrt(covariance[0, 0]))


def _exp(value: float) -> float:
    return math.exp(min(value, 700.0))  # e^700 is near the largest float
