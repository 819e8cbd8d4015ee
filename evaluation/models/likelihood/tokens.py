"""Log-likelihoods of token sequences, and of responses given their contexts, under a dialogue model."""

import inspect
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch
from transformers import PreTrainedModel

from evenhand.evaluation import columns
from evenhand.evaluation.compat import cache_argument
from evenhand.evaluation.errors import InputError
from evenhand.evaluation.models.activation import activation_arguments, without_adapter
from evenhand.evaluation.models.batches import (
    activations_bytes,
    batch_size_limit,
    cache_bytes,
    logits_bytes,
    max_positions,
    run_batches,
    shared_tokens,
)
from evenhand.evaluation.models.checkpoints import BROKEN_WEIGHTS
from evenhand.evaluation.models.contexts import close_reasoning, encode_contexts, encode_responses
from evenhand.evaluation.models.loading import DialogueModel
from evenhand.evaluation.models.padding import prefix_cache

IGNORED_LABEL = -100  # labels a position that is not scored, as in torch's cross_entropy
CACHED_NUMBERS = 2**18  # 1 MiB of float32


def response_log_likelihoods(
    model: DialogueModel,
    contexts: Sequence[str],
    responses: Sequence[str],
    written: Sequence[object] | None = None,
    is_cut: Sequence[bool] | None = None,
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Yield row indices (r,), Σ log p of each response given its context in nats (r,), and the numbers of tokens (r,).

    The responses are encoded by `encode_pairs`, and scored by `pair_log_likelihoods`. The perplexity of a corpus is
    e^(−Σ Σ log p / Σ tokens); its range is [1, ∞).
    """
    return pair_log_likelihoods(model, *encode_pairs(model, contexts, responses, written, is_cut))


def pair_log_likelihoods(
    model: DialogueModel, heads: Sequence[list[int]], tails: Sequence[list[int]]
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Yield row indices (r,), log p(tail | head) in nats (r,), and the numbers of tokens of the tails (r,).

    A row that is too long for the model has NaN and comes last.
    """
    tokens = np.array([len(ids) for ids in tails], dtype=np.int64)
    lengths = np.array([len(head) for head in heads], dtype=np.int64)
    positions = np.maximum(lengths, tokens) if model.kind == "encoder_decoder" else lengths + tokens
    order = np.lexsort((tokens, lengths + tokens))[::-1]  # the longest pairs first, then the longest responses
    fits = positions[order] <= max_positions(model.model.config)
    for rows, sums in conditional_log_likelihoods(model, heads, tails, order[fits].tolist()):
        yield rows, sums, tokens[rows]
    too_long = order[~fits]
    if len(too_long) or not len(order):
        yield too_long, np.full(len(too_long), np.nan), tokens[too_long]


def encode_pairs(
    model: DialogueModel,
    contexts: Sequence[str],
    responses: Sequence[str],
    written: Sequence[object] | None = None,
    is_cut: Sequence[bool] | None = None,
) -> tuple[list[list[int]], list[list[int]]]:
    """Return the token ids of the contexts, and those of the responses.

    Contexts are rendered (`render_contexts`), and any reasoning is closed. Responses have the ids in which they were
    `written`, if these are given (`encode_responses`). The end of sequence counts as the last token of a response that
    is not cut, so that an empty response is the end only.
    """
    contexts = close_reasoning(contexts, model.reasoning)
    return encode_contexts(model, contexts), encode_responses(model, contexts, responses, written, is_cut)


def encode_rows(
    model: DialogueModel, contexts: Sequence[str], pairs: pd.DataFrame
) -> tuple[list[list[int]], list[list[int]]]:
    """Return the token ids of contexts and of the responses in the rows of `pairs` (`Model.log_likelihood`)."""
    return encode_pairs(
        model,
        contexts,
        pairs[columns.RESPONSE].tolist(),
        written=pairs[columns.RESPONSE_IDS].tolist() if columns.RESPONSE_IDS in pairs else None,
        is_cut=pairs[columns.CUT].tolist() if columns.CUT in pairs else None,
    )


def response_perplexity(
    model: DialogueModel,
    contexts: Sequence[str],
    responses: Sequence[str],
    on_progress: Callable[[int], object] = lambda rows: None,
    written: Sequence[object] | None = None,
    is_cut: Sequence[bool] | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Return the log-likelihoods, float64 (n,), and numbers of tokens, int64 (n,), of `response_log_likelihoods`.

    InputError if a row is too long for the model. `on_progress` is called with the number of rows done; `written` and
    `is_cut` are as in `response_log_likelihoods`.
    """
    log_likelihood = np.zeros(len(contexts))
    n_tokens = np.zeros(len(contexts), dtype=np.int64)
    for rows, sums, tokens in response_log_likelihoods(model, contexts, responses, written, is_cut):
        log_likelihood[rows] = sums
        n_tokens[rows] = tokens
        on_progress(len(rows))
    if np.isnan(log_likelihood).any():
        raise InputError("responses", f"a context with its response is too long for {model.name}; leave it out.")
    return log_likelihood, n_tokens


def conditional_log_likelihoods(
    dialogue_model: DialogueModel,
    heads: Sequence[list[int]],
    tails: Sequence[list[int]],
    order: Sequence[int],
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield row indices (r,) and log p(tail | head) of r rows in nats, float64 (r,), batch by batch.

    An encoder-decoder model encodes the head and scores the tail. A causal model reads head and tail as one sequence
    and scores the tail. Each token is scored given all previous tokens. If all heads have a common prefix, such as a
    system prompt and the beginning of a chat template, each batch reads its common prefix once.

    `order` are the rows, sorted by descending length.
    """
    network = dialogue_model.model
    is_causal = dialogue_model.kind != "encoder_decoder"
    unscored = min(map(len, heads), default=0) - 1 if is_causal and _keeps_last_logits(network) else 0
    shares = is_causal and len(heads) > 1 and shared_tokens(network, heads) > 0

    def row_bytes(length: int) -> int:
        cache = cache_bytes(network, length) if shares else 0
        return logits_bytes(network, length - unscored) + activations_bytes(network, length) + cache

    def compute(rows: Sequence[int]) -> np.ndarray:
        sums = _score_batch(dialogue_model, [heads[row] for row in rows], [tails[row] for row in rows], shares)
        return check_not_nan(sums, dialogue_model.name)

    limit = batch_size_limit(network, row_bytes)
    for rows, sums in run_batches(order, lambda row: limit(len(heads[row]) + len(tails[row])), compute):
        yield np.array(rows, dtype=np.int64), sums


def _keeps_last_logits(network: PreTrainedModel) -> bool:
    return "logits_to_keep" in inspect.signature(without_adapter(network).forward).parameters


def check_not_nan(values: np.ndarray, name: str) -> np.ndarray:
    """Return the log-probabilities of the model `name` unchanged, or raise an InputError if a value is NaN."""
    if np.isnan(values).any():
        raise InputError("model", f"{name} returns NaN as a log-probability; {BROKEN_WEIGHTS}")
    return values


@torch.inference_mode()
def _score_batch(
    dialogue_model: DialogueModel, heads: list[list[int]], tails: list[list[int]], shares_prefix: bool
) -> np.ndarray:
    """Return log p(tail | head) of each row in nats, float64 (r,)."""
    if dialogue_model.kind == "encoder_decoder":
        logits, labels = encoder_decoder_logits(dialogue_model, heads, tails)
    else:
        logits, labels = causal_logits(dialogue_model, heads, tails, shares_prefix)
    is_scored = labels != IGNORED_LABEL
    logits = logits[is_scored]
    log_p = torch.zeros(labels.shape, dtype=torch.float64, device=labels.device)
    log_p[is_scored] = logits.gather(1, labels[is_scored][:, None])[:, 0].double() - log_normalizers(logits)
    return log_p.sum(1).cpu().numpy()


def encoder_decoder_logits(
    dialogue_model: DialogueModel, heads: list[list[int]], tails: list[list[int]]
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the logits of the tails' positions, (r, length, vocabulary), and the tokens there, (r, length)."""
    model = dialogue_model.model
    labels = _pad_right(tails, IGNORED_LABEL).to(model.device)
    output = model(
        input_ids=_pad_right(heads, dialogue_model.tokenizer.pad_token_id).to(model.device),
        attention_mask=_pad_right([[1] * len(ids) for ids in heads], 0).to(model.device),
        labels=labels,  # which the model shifts to the right
    )
    return output.logits, labels


def causal_logits(
    dialogue_model: DialogueModel, heads: list[list[int]], tails: list[list[int]], shares_prefix: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the logits of all scored positions, (r, length, vocabulary), and the tokens there, (r, length).

    A position that is not scored has IGNORED_LABEL as its token.
    """
    model = dialogue_model.model
    inputs = [head + tail for head, tail in zip(heads, tails, strict=True)]
    shared = shared_tokens(model, heads) if shares_prefix else 0
    labels = [[IGNORED_LABEL] * len(head) + tail for head, tail in zip(heads, tails, strict=True)]
    first = max(1, min(map(len, heads)))  # no row scores an earlier position
    labels = _pad_right(labels, IGNORED_LABEL)[:, first:].to(model.device)
    arguments: dict[str, Any] = {"use_cache": shared > 0}
    if shared:
        arguments[cache_argument(model)] = prefix_cache(model, heads[0][:shared], len(inputs))
    if _keeps_last_logits(model):
        arguments["logits_to_keep"] = labels.shape[1] + 1
    arguments |= activation_arguments(model, heads, [max(map(len, inputs))] * len(inputs))
    # With padding on the right, no scored token of a causal model attends to it.
    rest = [ids[shared:] for ids in inputs]
    output = model(
        input_ids=_pad_right(rest, dialogue_model.tokenizer.pad_token_id).to(model.device),
        attention_mask=_pad_right([[1] * len(ids) for ids in inputs], 0).to(model.device),
        **arguments,
    )
    return output.logits[:, -1 - labels.shape[1] : -1], labels


def log_normalizers(logits: torch.Tensor) -> torch.Tensor:
    """Return log Σ exp of each row of logits (r, vocabulary), float64 (r,), computed in float32.

    On a CPU, few rows are computed at once: temporary arrays then fit in the cache, which quarters the time.
    """
    rows = max(1, CACHED_NUMBERS // logits.shape[1]) if logits.device.type == "cpu" else max(1, len(logits))
    return torch.cat([part.float().logsumexp(-1) for part in logits.split(rows)]).double()


def _pad_right(rows: Sequence[list[int]], filler: int) -> torch.Tensor:
    width = max(map(len, rows))
    return torch.tensor([row + [filler] * (width - len(row)) for row in rows])
