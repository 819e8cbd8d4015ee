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
from evenhand.evaluation.models.likelihood.tokens import IGNORED_LABEL, causal_logits
from evenhand.evaluation.models.loading import DialogueModel
from evenhand.evaluation.statistics.people_divergence import people_divergence

LOGITS_COPIES = 16  # bytes for float32 copies of each logit


def opening_divergences(
    model: DialogueModel,
    contexts: Sequence[Sequence[str]],
    responses: Sequence[str],
    first_tokens: int = 4,
    written: Sequence[object] | None = None,
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
