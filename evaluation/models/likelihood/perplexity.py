"""The likelihood of given responses to given contexts, and with it the perplexity of a dialogue model."""

from collections.abc import Callable, Sequence

import numpy as np

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.models.generation import encode_contexts, encode_responses
from evenhand.evaluation.models.likelihood.tokens import log_likelihoods
from evenhand.evaluation.models.loading import DialogueModel


def response_perplexity(
    dialogue_model: DialogueModel,
    contexts: Sequence[str],
    responses: Sequence[str],
    batch_size: int = 64,
    on_progress: Callable[[int], None] = lambda rows: None,
) -> tuple[np.ndarray, np.ndarray]:
    """Return Σ log p and the number of tokens of each response followed by the end of sequence, given its context.

    Natural logarithms, float64 of shape (n,), and int64 of shape (n,). The perplexity of a corpus is
    e^(−Σ Σ log p / Σ tokens), the sums being over all its responses: a mean per token, and so in [1, ∞). The context
    is rendered (`render_contexts`) and is not scored; the response is encoded apart from it, as it comes about when it
    is generated. `on_progress` is called with the number of rows done since its last call.

    Raises:
        InputError: the lists differ in length, or a context with its response is too long for the model.
    """
    if len(contexts) != len(responses):
        raise InputError(f"responses: {len(responses)} for {len(contexts)} contexts; give one each.")
    heads = encode_contexts(dialogue_model, contexts)
    tails = encode_responses(dialogue_model, responses)
    _check_lengths(dialogue_model, heads, tails)
    log_likelihood = np.zeros(len(contexts))
    order = sorted(range(len(contexts)), key=lambda row: (len(heads[row]) + len(tails[row]), len(tails[row])))
    batches = (order[start : start + batch_size] for start in range(0, len(order), batch_size))
    for rows, total in log_likelihoods(dialogue_model, heads, tails, batches):
        log_likelihood[rows] = total
        on_progress(len(rows))
    return log_likelihood, np.array([len(ids) for ids in tails], dtype=np.int64)


def _check_lengths(dialogue_model: DialogueModel, heads: list[list[int]], tails: list[list[int]]) -> None:
    room = getattr(dialogue_model.model.config, "max_position_embeddings", None) or np.inf
    for head, tail in zip(heads, tails, strict=True):
        longest = max(len(head), len(tail)) if dialogue_model.kind == "encoder_decoder" else len(head) + len(tail)
        if longest > room:
            raise InputError(
                f"responses: a context with its response has {longest} tokens, {dialogue_model.name} has room for "
                f"{room:.0f}; leave out long dialogues."
            )
