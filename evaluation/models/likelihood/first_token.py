"""A model's prediction of the first token of its response."""

from collections.abc import Sequence

import numpy as np
import torch

from evenhand.evaluation.models.batches import activations_bytes, batch_size_limit, logits_bytes, run_batches
from evenhand.evaluation.models.contexts import close_reasoning, encode_contexts
from evenhand.evaluation.models.likelihood.tokens import (
    IGNORED_LABEL,
    causal_logits,
    check_not_nan,
    encoder_decoder_logits,
)
from evenhand.evaluation.models.loading import DialogueModel

LOGITS_COPIES = 8  # bytes for float32 copies of each logit


def first_token_log_probabilities(model: DialogueModel, contexts: Sequence[str]) -> np.ndarray:
    """Return log p of each token as the first one of the response to each rendered context, float32 (n, vocabulary).

    Temperature, top-k and top-p have no influence. Reasoning that the chat template opens is closed, as where responses
    are scored.
    """
    heads = encode_contexts(model, close_reasoning(contexts, model.reasoning))
    order = sorted(range(len(heads)), key=lambda row: len(heads[row]), reverse=True)
    found: list[np.ndarray] = [np.empty(0)] * len(heads)

    def row_bytes(length: int) -> int:
        return logits_bytes(model.model, 2, LOGITS_COPIES) + activations_bytes(model.model, length + 1)

    limit = batch_size_limit(model.model, row_bytes)

    def compute(rows: Sequence[int]) -> np.ndarray:
        return check_not_nan(_predictions(model, [heads[row] for row in rows]), model.name)

    for rows, values in run_batches(order, lambda row: limit(len(heads[row])), compute):
        for row, value in zip(rows, values, strict=True):
            found[row] = value
    return np.stack(found)


@torch.inference_mode()
def _predictions(model: DialogueModel, heads: list[list[int]]) -> np.ndarray:
    """Return the predictions of a batch, (r, vocabulary). Any token stands where the prediction is read."""
    tails = [[0]] * len(heads)
    if model.kind == "encoder_decoder":
        logits, labels = encoder_decoder_logits(model, heads, tails)
    else:
        logits, labels = causal_logits(model, heads, tails, shares_prefix=True)
    return logits[labels != IGNORED_LABEL].float().log_softmax(-1).cpu().numpy()
