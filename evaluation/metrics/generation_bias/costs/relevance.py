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

Reading a response after two prompts takes as long as generating it, or longer, and the mean over a part of the
responses is precise enough. `sample_prompts` draws this part.
"""

import hashlib
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from evenhand.evaluation.score import AXIS, DESCRIPTOR, TEMPLATE, BiasScore
from evenhand.evaluation.statistics.cells import to_codes
from evenhand.evaluation.statistics.intervals import (
    ANY,
    interval_around,
    mean_covariance,
    ratio_interval,
    student_quantile,
)

LIKELIHOODS = "likelihoods_of_responses"
# Metrics computed from likelihoods under a model.
LIKELIHOOD_METRICS = ("relevance", "relevance_within_template", "response_perplexity")
NO_OTHER_PROMPT = "no prompt has another prompt with its descriptor and another template"
TOO_LONG = "every prompt with its response is too long for the model"
NOT_RELEVANT = "the relevance before is not significantly above 0"
# With SmolLM2-135M-Instruct, the 95 % interval of the relevance of 300 responses is ±8 % of its value.
SHARE, MIN_RESPONSES = 0.1, 300
SMALL_MODEL = 10_000_000  # parameters; scoring all responses by a smaller model takes seconds


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


def sample_size(n: int, share: float | None, n_parameters: int) -> int:
    """Return how many of n responses are scored: round(share · n), and at least 1.

    Args:
        share: the share of prompts that are drawn, in (0, 1]. None: a tenth, but at least MIN_RESPONSES prompts; all
            for a model with fewer than SMALL_MODEL parameters.
        n_parameters: number of parameters of the model that scores the responses.
    """
    if share is None:
        return n if n_parameters < SMALL_MODEL else min(n, max(MIN_RESPONSES, round(SHARE * n)))
    return max(1, round(share * n))


def sample_prompts(prompt_ids: Sequence[str], share: float | None, n_parameters: int) -> np.ndarray:
    """Return whether the response to each prompt is scored, (n,) bool.

    The `sample_size` prompts with the smallest hashes of their prompt_id are drawn. Runs over the same prompts, such as
    before and after tuning, thus score the responses to the same prompts.
    """
    n = len(prompt_ids)
    drawn = sample_size(n, share, n_parameters)
    if drawn == n:
        return np.ones(n, dtype=bool)
    hashes = [hashlib.blake2b(f"relevance:{prompt_id}".encode(), digest_size=8).digest() for prompt_id in prompt_ids]
    is_drawn = np.zeros(n, dtype=bool)
    is_drawn[sorted(range(n), key=hashes.__getitem__)[:drawn]] = True
    return is_drawn


def _descriptor_rows(prompts: pd.DataFrame) -> list[np.ndarray]:
    groups = prompts.groupby([prompts[DESCRIPTOR].astype(str), prompts[AXIS].astype(str)], sort=True)
    return [np.asarray(rows) for rows in groups.indices.values()]


def cell_codes(prompts: pd.DataFrame) -> np.ndarray:
    """Return an integer code of each prompt's cell (template, descriptor, axis), (n,), the stratum for intervals."""
    return prompts.groupby([TEMPLATE, DESCRIPTOR, AXIS], sort=True).ngroup().to_numpy()


def _strata(prompts: pd.DataFrame, table: pd.DataFrame) -> np.ndarray:
    """Return the strata for intervals, (r,): the cells if all prompts are scored, one stratum for r drawn prompts.

    The interval of a random sample includes the differences between cells, because the sample does not fix how many
    prompts are drawn from each cell.
    """
    return cell_codes(prompts) if len(table) == len(prompts) else np.zeros(len(table), dtype=int)


def _with_sample(signature: Mapping[str, Any], prompts: pd.DataFrame, table: pd.DataFrame) -> Mapping[str, Any]:
    """Return the signature; if only a part of the prompts was drawn, with their number and the rule in `scored`."""
    if len(table) == len(prompts):
        return signature
    rule = {"responses": len(table), "of": len(prompts), "drawn": "the smallest blake2b hashes of prompt_id"}
    return {**signature, "scored": rule}


def likelihood_scores(
    prompts: pd.DataFrame, table: pd.DataFrame, signature: Mapping[str, Any], group: Mapping[str, str] | None = None
) -> list[BiasScore]:
    """Return the scores `relevance` (nats, in (−∞, ∞)) and `response_perplexity` (in [1, ∞)) of one run's responses.

    Neither has an ideal. An empty response counts as its end-of-sequence token. Intervals: 95 %, by Student's t, over
    new responses in the same cells, or over new samples of prompts and responses if the table has only a part of the
    prompts; for the perplexity by the delta method for the ratio of two means. `n` counts the drawn responses that have
    a score, `n_left_out` the drawn responses without a score.

    Args:
        prompts: all prompts.
        table: the result of `likelihoods_of_responses`, with a row for each prompt, or for each drawn prompt.
    """
    common = {"group": dict(group or {}), "signature": _with_sample(signature, prompts, table)}
    rows = [_usable(table, both) for both in (True, False)]
    cells = _strata(prompts, table)
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

    All likelihoods are under one model, of responses to the same prompts. The changes are `relevance_difference`
    (nats); `relevance_kept` (after / before, ideal 1; Fieller's interval; undefined if the relevance before is not
    significantly above 0); and `response_perplexity_rise` (after / before − 1; interval by the delta method for the
    logarithm).
    """
    scores = []
    for name, table in (("before", before), ("after", after)):
        scores += likelihood_scores(prompts, table, signature, {"run": name})
    cells, signature = _strata(prompts, before), _with_sample(signature, prompts, before)
    common = {"signature": signature}
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
