"""The likelihood of given responses to given contexts, and with it the perplexity of a dialogue model."""

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.models.generation import encode_contexts, encode_responses
from evenhand.evaluation.models.likelihood.tokens import log_likelihoods
from evenhand.evaluation.models.loading import DialogueModel

ROWS_AT_ONCE = 64
NUMBERS_AT_ONCE = 1 << 27  # of the logits of one batch: 512 MiB in float32


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


def response_log_likelihoods(
    dialogue_model: DialogueModel, contexts: Sequence[str], responses: Sequence[str], *, first: int = 0
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Yield, batch by batch, rows (r,), Σ log p of each one's response given its context, and its tokens, (r,) each.

    As `response_perplexity`, for long work that is kept as it goes: the first `first` batches are left out. A row that
    is too long for the model has NaN, in the last batch. An empty response is the end of sequence alone.
    """
    heads, tails = encode_contexts(dialogue_model, contexts), encode_responses(dialogue_model, responses)
    lengths = np.array([_length(dialogue_model, *pair) for pair in zip(heads, tails, strict=True)], dtype=np.int64)
    tokens = np.array([len(ids) for ids in tails], dtype=np.int64)
    fits = lengths <= _room(dialogue_model)
    order = np.flatnonzero(fits)[np.lexsort((tokens[fits], lengths[fits]))][::-1]  # too little memory shows at once
    batches, start = [], 0
    vocabulary = dialogue_model.model.config.get_text_config().vocab_size
    while start < len(order):
        longest = int(lengths[order[start]])
        size = max(1, min(ROWS_AT_ONCE, NUMBERS_AT_ONCE // (longest * vocabulary)))
        batches.append(order[start : start + size])
        start += size
    for rows, total in log_likelihoods(dialogue_model, heads, tails, batches[first:]):
        yield rows, total, tokens[rows]
    if not fits.all() and first <= len(batches):
        rows = np.flatnonzero(~fits)
        yield rows, np.full(len(rows), np.nan), tokens[rows]


def _length(dialogue_model: DialogueModel, head: list[int], tail: list[int]) -> int:
    """Return how many positions of the model a context and its response take."""
    return max(len(head), len(tail)) if dialogue_model.kind == "encoder_decoder" else len(head) + len(tail)


def _room(dialogue_model: DialogueModel) -> float:
    return getattr(dialogue_model.model.config, "max_position_embeddings", None) or np.inf


def _check_lengths(dialogue_model: DialogueModel, heads: list[list[int]], tails: list[list[int]]) -> None:
    room = _room(dialogue_model)
    for head, tail in zip(heads, tails, strict=True):
        longest = _length(dialogue_model, head, tail)
        if longest > room:
            raise InputError(
                f"responses: a context with its response has {longest} tokens, {dialogue_model.name} has room for "
                f"{room:.0f}; leave out long dialogues."
            )
