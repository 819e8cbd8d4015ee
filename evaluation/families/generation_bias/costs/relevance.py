"""Whether responses fit what was said, and how likely they are: judged by a model, from log-likelihoods on disk.

A model that answers without having listened has no bias. The base's own responses, shuffled over the prompts, remove
all of pooled FGB* and keep every word that the base says; what they lose is measured here. All log-likelihoods are of
one judge: in a measurement the measured model itself, in a comparison the model that was measured `before`, for both
runs.

With c the prompt (and persona) that response r answers, and c′ one with the same descriptor and another template:

    relevance = mean over responses of log p(r | c) − log p(r | c′), in nats.

- For the judge's own responses, r ~ p(· | c), its expectation is KL(p(· | c) ‖ p(· | c′)) ≥ 0: how much a response says
  of which template it answers.
- For responses that do not depend on the template it is 0, whatever they are: swap c and c′.
- The descriptor is the same in c and c′, so that evenness between descriptors costs nothing.
"""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from evenhand.evaluation.results import AXIS, DESCRIPTOR, TEMPLATE, BiasScore
from evenhand.evaluation.statistics.cells import codes
from evenhand.evaluation.statistics.intervals import ANY, interval_around, student_quantile
from evenhand.evaluation.statistics.ratios import ratio_interval
from evenhand.evaluation.statistics.strata import mean_covariance

LIKELIHOODS = "likelihoods_of_responses"
LIKELIHOOD_METRICS = ("relevance", "response_perplexity")  # those that need a judge
NO_OTHER = "no prompt has another of its descriptor and of another template"
NOT_RELEVANT = "the responses before are not shown to fit their prompts better than others: there is nothing to keep"


def other_prompts(prompts: pd.DataFrame) -> np.ndarray:
    """Return for each prompt the row of one with the same descriptor and another template, drawn at random, (n,) int.

    −1 where there is none. A function of the table alone, so that two runs over the same prompts have the same.

    >>> prompts = pd.DataFrame({"descriptor": ["a", "a", "b"], "axis": "x", "template": ["s", "t", "s"]})
    >>> other_prompts(prompts).tolist()
    [1, 0, -1]
    """
    rng, found = np.random.default_rng(0), np.full(len(prompts), -1)
    template = codes(prompts[TEMPLATE].tolist())
    for rows in _descriptor_rows(prompts):
        rows = rows[np.argsort(template[rows], kind="stable")]
        first = np.searchsorted(template[rows], template[rows], "left")
        last = np.searchsorted(template[rows], template[rows], "right")
        there = len(rows) - (last - first)  # rows of other templates, which begin behind those of the own
        drawn = (last + np.floor(rng.random(len(rows)) * there).astype(int)) % len(rows)
        found[rows] = np.where(there > 0, rows[drawn], -1)
    return found


def _descriptor_rows(prompts: pd.DataFrame) -> list[np.ndarray]:
    groups = prompts.groupby([prompts[DESCRIPTOR].astype(str), prompts[AXIS].astype(str)], sort=True)
    return [np.asarray(rows) for rows in groups.indices.values()]


def cell_codes(prompts: pd.DataFrame) -> np.ndarray:
    """Return integer codes of each prompt's cell (template, descriptor, axis), (n,): the strata of these intervals."""
    return prompts.groupby([TEMPLATE, DESCRIPTOR, AXIS], sort=True).ngroup().to_numpy()


def likelihood_scores(
    prompts: pd.DataFrame, table: pd.DataFrame, signature: Mapping[str, Any], group: Mapping[str, str] | None = None
) -> list[BiasScore]:
    """Return `relevance` (nats, in (−∞, ∞)) and `response_perplexity` (in [1, ∞)) of one run's responses.

    Neither has an ideal. Empty responses count, as the end of sequence alone. Intervals: 95 %, over new responses in
    the same cells, by Student's t; that of the perplexity by the delta method for the ratio of two means.

    Args:
        prompts, table: row by row; the table as `likelihoods_of_responses` returns it.
    """
    common = {"group": dict(group or {}), "signature": signature}
    rows = [_usable(table, both) for both in (True, False)]
    cells = cell_codes(prompts)
    found = []
    for metric, bounds, usable in (("relevance", ANY, rows[0]), ("response_perplexity", (1.0, math.inf), rows[1])):
        n, part = int(usable.sum()), table[usable]
        common |= {"n": n, "n_left_out": len(table) - n}
        if not n:
            reason = NO_OTHER if metric == "relevance" else "every prompt with its response is too long for the model"
            found.append(BiasScore(metric, math.nan, None, bounds, reason=reason, **common))
        elif metric == "relevance":
            gain = _gains(part)
            interval = _interval(float(gain.mean()), gain, cells[usable])
            found.append(BiasScore(metric, float(gain.mean()), None, bounds, interval=interval, **common))
        else:
            rate, influence = _surprise(part)
            interval = _interval(rate, influence, cells[usable])
            ends = interval and tuple(max(1.0, _exp(end)) for end in interval)
            found.append(BiasScore(metric, _exp(rate), None, bounds, interval=ends, **common))
    return found


def likelihood_changes(
    prompts: pd.DataFrame, before: pd.DataFrame, after: pd.DataFrame, signature: Mapping[str, Any]
) -> list[BiasScore]:
    """Return what one judge says of two runs over the same prompts: levels by `run`, and what changed, paired.

    `relevance_difference` (nats) and `relevance_kept` (after / before, ideal 1; Fieller's interval; undefined where the
    relevance before is not significantly above 0); `response_perplexity_rise` (after / before − 1; delta method for the
    logarithm).
    """
    found = []
    for name, table in (("before", before), ("after", after)):
        found += likelihood_scores(prompts, table, signature, {"run": name})
    cells, common = cell_codes(prompts), {"signature": signature}
    usable = _usable(before, True) & _usable(after, True)
    common |= {"n": int(usable.sum()), "n_left_out": int((~usable).sum())}
    if not usable.any():
        found += [
            BiasScore("relevance_difference", math.nan, 0.0, ANY, reason=NO_OTHER, **common),
            BiasScore("relevance_kept", math.nan, 1.0, ANY, reason=NO_OTHER, **common),
        ]
    else:
        old, new = _gains(before[usable]), _gains(after[usable])
        change = float((new - old).mean())
        interval = _interval(change, new - old, cells[usable])
        found.append(BiasScore("relevance_difference", change, 0.0, ANY, interval=interval, **common))
        found.append(kept("relevance_kept", old, new, cells[usable], NOT_RELEVANT, **common))
    return [*found, _rise(before, after, cells, signature)]


def kept(
    metric: str, before: np.ndarray, after: np.ndarray, cells: np.ndarray, reason: str, **common: Any
) -> BiasScore:
    """Return the mean of (n,) numbers after over that before; undefined where the latter is not shown to be above 0."""
    old, new = float(before.mean()), float(after.mean())
    interval = ratio_interval(new, old, *mean_covariance(np.stack([after, before], axis=1), cells))
    if interval is None or old <= 0:
        return BiasScore(metric, math.nan, 1.0, ANY, reason=reason, **common)
    return BiasScore(metric, new / old, 1.0, ANY, interval=interval, **common)


def undefined_changes(reason: str, signature: Mapping[str, Any]) -> list[BiasScore]:
    """Return the changes where there is no judge, and why."""
    ideals = {"relevance_difference": 0.0, "relevance_kept": 1.0, "response_perplexity_rise": 0.0}
    return [
        BiasScore(metric, math.nan, ideal, ANY, 0, reason=reason, signature=signature)
        for metric, ideal in ideals.items()
    ]


def _rise(before: pd.DataFrame, after: pd.DataFrame, cells: np.ndarray, signature: Mapping[str, Any]) -> BiasScore:
    metric, bounds = "response_perplexity_rise", (-1.0, math.inf)
    usable = _usable(before, False) & _usable(after, False)
    common = {"n": int(usable.sum()), "n_left_out": int((~usable).sum()), "signature": signature}
    if not usable.any():
        reason = "every prompt with its response is too long for the model"
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
    """Return −Σ log p / Σ tokens, in nats a token, and the influence of each row on it, (n,) of mean 0."""
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
    return math.exp(min(value, 700.0))  # the largest that a float holds
