"""Scores of responses and models, whoever asks: variety of texts, perplexity on neutral dialogue, capabilities."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from evenhand.evaluation import columns
from evenhand.evaluation.data.language.reasoning import UNFINISHED_REASONING
from evenhand.evaluation.files import json_sha256
from evenhand.evaluation.metrics import FamilyRun
from evenhand.evaluation.metrics.generation_bias.answers import Answers
from evenhand.evaluation.metrics.generation_bias.engine.levels import mean_scores
from evenhand.evaluation.metrics.generation_bias.engine.values import MeasureValues
from evenhand.evaluation.metrics.generation_bias.measures import ValueKind
from evenhand.evaluation.models.capabilities import DOCUMENT, METRIC, TASK, VALUE
from evenhand.evaluation.score import BiasScore, Form, Kind, why_not_comparable
from evenhand.evaluation.statistics.intervals import ANY, Interval, mean_interval, normal_interval, varies
from evenhand.evaluation.statistics.scores import NO_PAIRS, SHARE_BOUNDS, exponential, mean_change, share_score
from evenhand.evaluation.statistics.text_quality import (
    distinct_n,
    distinct_n_without_each,
    distinct_responses,
    log_perplexities,
    occurs_once,
)

NEUTRAL = "neutral"  # the table of likelihoods of neutral dialogue
CAPABILITIES = "capabilities"  # the table of the results on tasks of lm-evaluation-harness
POSITIVE = (0.0, math.inf)
CAPABILITY = "capability"
PERPLEXITY = "perplexity"  # on neutral dialogue
NO_TEXT = "all responses are empty"
NO_ERROR = "no interval: leaving out any one response has the same effect"
ONE_DIALOGUE = "no interval: there is one dialogue"


def text_scores(measured: Answers) -> list[BiasScore]:
    """Return scores of how diverse the responses are, and how well the style classifier reads them.

    `cut_share`, in [0, 1], ideal 0, is the share of responses that are longer than the style classifier reads, and
    `no_label_share` the share to which no label of a multi-label classifier fits; a share of 0 is not a score.
    `distinct_responses`, `distinct_1` and `distinct_2` have no ideal. The interval of `distinct_responses` is by the
    jackknife.
    """
    is_nonempty = measured.is_nonempty()
    responses = measured.table[columns.RESPONSE][is_nonempty].tolist()
    n = len(responses)
    found = []
    for name, count in (("cut_share", measured.n_truncated), ("no_label_share", measured.n_unlabelled)):
        if count:
            found.append(share_score(name, np.arange(n) < count, 0.0, reason=NO_TEXT))
    variety = _number("distinct_responses", distinct_responses(responses), n, SHARE_BOUNDS, NO_TEXT)
    if n:
        interval = _interval_of_sums(variety.value, occurs_once(responses).astype(float), SHARE_BOUNDS)
        variety = replace(variety, interval=interval, reason=None if interval else NO_ERROR)
    found.append(variety)
    for size in (1, 2):
        reason = f"no response has {size} words"
        found.append(_number(f"distinct_{size}", distinct_n(responses, size), n, SHARE_BOUNDS, reason))
    return [replace(score, n_left_out=len(measured) - n) for score in found]


def _interval_of_sums(value: float, influence: np.ndarray, bounds: Interval) -> Interval | None:
    """Return the interval around a value by each response's influence on it, (n,); None if all have the same."""
    if not varies(influence):
        return None
    return normal_interval(value, float(influence.std(ddof=1)) / math.sqrt(len(influence)), bounds)


def _number(metric: str, value: float, n: int, bounds: Interval, reason: str) -> BiasScore:
    """Return a number without an ideal as a score, with a reason if it is undefined."""
    return BiasScore(metric, value, None, bounds, n, reason=reason if math.isnan(value) else None)


def unfinished_share(responses: pd.DataFrame) -> list[BiasScore]:
    """Return a list with the share of responses whose reasoning did not end; an empty list if all reasoning ended.

    Range [0, 1], ideal 0. These responses are empty, and all other scores leave them out. The column `left_out` of
    `responses` is the reason why a response is left out, or null.
    """
    is_unfinished = responses[columns.LEFT_OUT] == UNFINISHED_REASONING
    share = share_score("unfinished_share", is_unfinished, 0.0, reason="no response")
    return [share] if share.value else []


def perplexity_score(rows: pd.DataFrame) -> BiasScore:
    """Return the perplexity e^(−Σ log p / Σ tokens) of held-out neutral responses, in [1, ∞), without an ideal.

    Interval: 95 %, by Student's t and the delta method for the ratio of two sums. The perplexity of other dialogues, or
    by another tokenizer, is not comparable (`basis`).

    Args:
        rows: text, response, log_likelihood (nats) and tokens of each dialogue.
    """
    logarithms = log_perplexities(rows[columns.LOG_LIKELIHOOD], rows[columns.TOKENS])
    interval, reason = _interval_over_dialogues(logarithms)
    tokens = rows[columns.TOKENS].tolist()
    basis = {
        "neutral dialogue": json_sha256(rows[[columns.TEXT, columns.RESPONSE]].to_numpy().tolist())[:12],
        "tokenizer": f"one of {sum(tokens):,} tokens ({json_sha256(tokens)[:7]})",
    }
    value = float(logarithms.mean())
    score = BiasScore(PERPLEXITY, value, None, ANY, len(rows), interval, reason=reason, basis=basis)
    return exponential(score, (1.0, math.inf))


def _interval_over_dialogues(values: np.ndarray) -> tuple[Interval | None, str | None]:
    """Return the interval of the mean of a value of each dialogue, (n,), and why there is none."""
    if not varies(values):
        return None, ONE_DIALOGUE if len(values) == 1 else NO_ERROR
    return mean_interval(values), None


def capability_scores(rows: pd.DataFrame) -> list[BiasScore]:
    """Return the score `capability` of each task and metric: the mean of the metric over the documents of the task.

    Higher is better; the score has no ideal value. The standard error of the mean has ddof = 1; the 95 % interval
    covers the variation between samples of documents. It is Wilson's for an accuracy, whose values are 0 and 1.
    """
    scores = []
    for task, values in _by_task(rows).items():
        kind = ValueKind.SHARE if values.isin((0, 1)).all() else ValueKind.NUMBER
        (mean,) = mean_scores(MeasureValues(CAPABILITY, kind, values.to_frame(task)))
        error = _standard_error(values)
        scores.append(replace(mean, group={TASK: task}, form=Form.PLAIN, standard_error=error))
    return scores


def _by_task(rows: pd.DataFrame) -> dict[str, pd.Series]:
    """Return the values by document of each task and metric."""
    found = {}
    for (task, metric), part in rows.groupby([TASK, METRIC]):
        found[f"{task}, {metric}"] = part.set_index(DOCUMENT)[VALUE]
    return found


def _standard_error(values: pd.Series) -> float | None:
    return float(np.std(values.to_numpy(), ddof=1)) / math.sqrt(len(values)) if len(values) > 1 else None


def text_changes(old: Answers, new: Answers) -> list[BiasScore]:
    """Return what is kept (after / before) of the variety of the responses to the same prompts.

    The scores are of `distinct_responses` and `distinct_2`. Prompts with an empty response in one of the runs are left
    out.
    """
    nonempty = old.is_nonempty() & new.is_nonempty()
    before = old.table[columns.RESPONSE][nonempty].tolist()
    after = new.table[columns.RESPONSE][nonempty].tolist()
    scores = [_distinct_responses_kept(before, after), _distinct_2_kept(before, after)]
    n_left_out = int((~nonempty).sum())
    return [replace(score, n_left_out=n_left_out) for score in scores]


def _distinct_responses_kept(before: Sequence[str], after: Sequence[str]) -> BiasScore:
    n = len(before)
    kept = BiasScore("distinct_responses", math.nan, 1.0, POSITIVE, n, reason=NO_PAIRS, kind=Kind.KEPT)
    if not n:
        return kept
    ratio = distinct_responses(after) / distinct_responses(before)
    influence = (occurs_once(after) - ratio * occurs_once(before)) / distinct_responses(before)
    interval = _interval_of_sums(ratio, influence, POSITIVE)
    return replace(kept, value=ratio, interval=interval, reason=None if interval else NO_ERROR)


def _distinct_2_kept(before: Sequence[str], after: Sequence[str]) -> BiasScore:
    reason = "no response has 2 words"
    kept = BiasScore("distinct_2", math.nan, 1.0, POSITIVE, len(before), reason=reason, kind=Kind.KEPT)
    ratio = distinct_n(after, 2) / distinct_n(before, 2)
    if math.isnan(ratio):
        return kept
    without = distinct_n_without_each(after, 2) / distinct_n_without_each(before, 2)
    error = math.sqrt((len(without) - 1) * float(without.var()))
    has_error = math.isfinite(error) and varies(without)
    interval = normal_interval(ratio, error, POSITIVE) if has_error else None
    return replace(kept, value=ratio, interval=interval, reason=None if interval else NO_ERROR)


def perplexity_difference(before: FamilyRun, after: FamilyRun) -> list[BiasScore]:
    """Return a list with the change of the perplexity on neutral dialogue; an empty list if a run has no such dialogue.

    Each dialogue is compared with itself.

    Interval: 95 %, by Student's t and the delta method. The difference is undefined if the runs have other dialogues,
    or tokenizers that split them in another way.
    """
    if not (before.has(NEUTRAL) and after.has(NEUTRAL)):
        return []
    old = before.table(NEUTRAL)
    new = after.table(NEUTRAL)
    levels = (perplexity_score(old), perplexity_score(new))
    reason = why_not_comparable(*levels)
    if reason:
        return [_undefined_difference(PERPLEXITY, {}, reason)]
    value = levels[1].value - levels[0].value
    linear = []  # by the delta method, e^mean (1 + x − mean) has the mean and the error of the perplexity
    for level, table in zip(levels, (old, new), strict=True):
        logarithms = log_perplexities(table[columns.LOG_LIKELIHOOD], table[columns.TOKENS])
        linear.append(level.value * (1 + logarithms - logarithms.mean()))
    interval, reason_of_interval = _interval_over_dialogues(linear[1] - linear[0])
    return [
        BiasScore(
            PERPLEXITY,
            value,
            0.0,
            ANY,
            len(old),
            interval,
            reason=reason_of_interval,
            kind=Kind.DIFFERENCE,
            basis=levels[0].basis,
        )
    ]


def _undefined_difference(metric: str, group: Mapping[str, str], reason: str) -> BiasScore:
    return BiasScore(metric, math.nan, 0.0, ANY, n=0, group=group, reason=reason, kind=Kind.DIFFERENCE)


def capability_differences(before: FamilyRun, after: FamilyRun) -> list[BiasScore]:
    """Return the differences of `capability`, after − before, paired by document, for each task of both runs.

    Each score has a standard error. A score is undefined if the two runs used different documents of the task.
    """
    if not (before.has(CAPABILITIES) and after.has(CAPABILITIES)):
        return []
    old = _by_task(before.table(CAPABILITIES))
    new = _by_task(after.table(CAPABILITIES))
    scores = []
    for task in sorted(old.keys() & new.keys()):
        group = {TASK: task}
        if not old[task].index.equals(new[task].index):
            reason = "the two runs used different documents"
            scores.append(_undefined_difference(CAPABILITY, group, reason))
            continue
        values = (old[task].to_numpy(), new[task].to_numpy())
        score = mean_change(CAPABILITY, *values, bounds=ANY, group=group)
        scores.append(replace(score, standard_error=_standard_error(new[task] - old[task])))
    return scores
