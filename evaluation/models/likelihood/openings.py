"""Divergence of a model's predictions of first tokens between people who ask the same (`people_divergence`)."""

from collections.abc import Iterator, Sequence

import numpy as np
import torch

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.models.batches import (
    activations_bytes,
    batch_size_limit,
    cache_bytes,
    logits_bytes,
    run_batches,
)
from evenhand.evaluation.models.contexts import close_reasoning, encode_contexts, encode_responses
from evenhand.evaluation.models.decoding import decoding_arguments
from evenhand.evaluation.models.generation import generate_responses
from evenhand.evaluation.models.likelihood.tokens import IGNORED_LABEL, causal_logits
from evenhand.evaluation.models.loading import DialogueModel
from evenhand.evaluation.statistics.people_divergence import divergence_terms, people_divergence

LOGITS_COPIES = 16  # bytes for float32 copies of each logit
NUMBERS_AT_ONCE = 2**26  # log-probabilities that are kept at once: 256 MiB of float32


def opening_divergences(
    model: DialogueModel,
    contexts: Sequence[Sequence[str]],
    responses: Sequence[str],
    first_tokens: int,
    written: Sequence[object] | None,
) -> Iterator[tuple[list[int], np.ndarray]]:
    """Yield row indices (r,), and the divergence between people along each row's opening in nats, (r, people).

    A row is several contexts, which differ in who asks, and a response, whose first tokens are the opening. The mean
    over people is the mutual information of person and next token along this opening.

    Args:
        contexts: rendered contexts, the same number of people for each of n rows; the first is that of the response.
        responses: a response for each row, (n,), to the first of its contexts.
        written: the token ids in which each response was written, None where they are unknown (`encode_responses`).

    Raises:
        InputError: the model is an encoder-decoder model.
    """
    if model.kind == "encoder_decoder":
        raise InputError("model", f"{model.name} is an encoder-decoder model; the divergence needs a causal model.")
    n_people = len(contexts[0])
    flat = close_reasoning([context for row in contexts for context in row], model.reasoning)
    encoded = encode_contexts(model, flat)
    heads = [encoded[start : start + n_people] for start in range(0, len(encoded), n_people)]
    openings = [ids[:first_tokens] for ids in encode_responses(model, flat[::n_people], responses, written)]
    lengths = [max(map(len, row)) + len(opening) for row, opening in zip(heads, openings, strict=True)]
    order = sorted(range(len(heads)), key=lengths.__getitem__, reverse=True)

    def row_bytes(length: int) -> int:
        logits = logits_bytes(model.model, first_tokens + 1, LOGITS_COPIES)
        return logits + activations_bytes(model.model, length) + cache_bytes(model.model, length)

    def compute(rows: Sequence[int]) -> np.ndarray:
        return _divergences(model, [heads[row] for row in rows], [openings[row] for row in rows])

    limit = batch_size_limit(model.model, row_bytes)
    for rows, values in run_batches(order, lambda row: max(1, limit(lengths[row]) // n_people), compute):
        yield list(rows), values


@torch.inference_mode()
def _divergences(model: DialogueModel, heads: list[list[list[int]]], openings: list[list[int]]) -> np.ndarray:
    """Return the divergences of a batch of rows, (r, people)."""
    n_people = len(heads[0])
    flat_heads = [head for row in heads for head in row]
    tails = [opening for opening in openings for _ in range(n_people)]
    logits, labels = causal_logits(model, flat_heads, tails, shares_prefix=True)
    found = []
    for row, opening in enumerate(openings):
        sequences = slice(row * n_people, (row + 1) * n_people)
        is_opening = labels[sequences] != IGNORED_LABEL
        predictions = logits[sequences][is_opening].unflatten(0, (n_people, 1, len(opening)))
        tokens = torch.tensor([opening], device=logits.device)
        found.append(people_divergence(predictions.float().log_softmax(-1), tokens)[:, 0])
    return torch.stack(found).double().cpu().numpy()


def draw_openings(
    model: DialogueModel, contexts: Sequence[str], seeds: Sequence[int], n_tokens: int
) -> list[list[int]]:
    """Return an opening of at most `n_tokens` tokens for each rendered context, drawn from the model's predictions.

    Temperature, top-k and top-p have no influence. An opening is shorter if the model ends its response.
    """
    openings: list[list[int]] = [[] for _ in contexts]
    arguments = decoding_arguments("sample", {"max_new_tokens": n_tokens, "temperature": 1.0, "top_k": 0, "top_p": 1.0})
    for batch in generate_responses(model, close_reasoning(contexts, model.reasoning), seeds, arguments):
        for row, response in batch.items():
            openings[row] = response.ids or []
    return openings


def divergences_along(
    model: DialogueModel, contexts: Sequence[str], openings: Sequence[list[int]], n_tokens: int, counted: list[int]
) -> tuple[np.ndarray, np.ndarray]:
    """Return each person's divergence of the first tokens, and its part on some tokens, in nats, (people,) each.

    Both are means over the openings (`people_divergence`), which are drawn equally often from each person.

    Args:
        contexts: rendered contexts, which differ in who asks, (people,).
        openings: token ids of drawn openings, of at most `n_tokens` − 1 tokens.
        n_tokens: the number of tokens whose predictions are compared.
        counted: the tokens of the vocabulary of which the second array is.

    Raises:
        InputError: the model is an encoder-decoder model.
    """
    if model.kind == "encoder_decoder":
        raise InputError("model", f"{model.name} is an encoder-decoder model; more first tokens need a causal model.")
    heads = encode_contexts(model, close_reasoning(contexts, model.reasoning))
    at_once = max(1, NUMBERS_AT_ONCE // (len(heads) * n_tokens * len(model.tokenizer)))
    totals = np.zeros((2, len(heads)))
    for start in range(0, len(openings), at_once):
        part = openings[start : start + at_once]
        log_p, tokens, is_token = _predictions_along(model, heads, part, n_tokens)
        weights, terms = divergence_terms(log_p, tokens, is_token)
        sums = torch.stack([terms.sum(-1), terms[..., counted].sum(-1)])
        totals += (weights * sums).sum((-1, -2)).double().numpy()
    divergence, of_counted = totals / len(openings)
    return divergence, of_counted


@torch.inference_mode()
def _predictions_along(
    model: DialogueModel, heads: Sequence[list[int]], openings: Sequence[list[int]], n_tokens: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return log-probabilities (people, openings, tokens, vocabulary), the tokens, and whether each is a token.

    The prediction after an opening is read where another token would stand; no prediction follows the end of a
    response.
    """
    ends = set(np.atleast_1d(model.model.generation_config.eos_token_id).tolist())
    any_token = 0
    tails = [ids if ids and ids[-1] in ends else [*ids, any_token] for ids in openings]
    tokens = torch.tensor([tail + [any_token] * (n_tokens - len(tail)) for tail in tails])
    is_token = torch.arange(n_tokens)[None] < torch.tensor([len(tail) for tail in tails])[:, None]
    found = []
    for head in heads:
        logits, labels = causal_logits(model, [head] * len(tails), tails, shares_prefix=True)
        log_p = torch.zeros(len(tails), n_tokens, logits.shape[-1])
        log_p[is_token] = logits[labels != IGNORED_LABEL].float().log_softmax(-1).cpu()
        found.append(log_p)
    return torch.stack(found), tokens, is_token
