"""The likelihood of given responses to given contexts, and with it the perplexity of a dialogue model."""

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.models.contexts import close_reasoning, encode_contexts, encode_responses
from evenhand.evaluation.models.likelihood.tokens import conditional_log_likelihoods
from evenhand.evaluation.models.loading import DialogueModel
from evenhand.evaluation.runs.work_shards import ALL_ROWS, WorkShard


def response_perplexity(
    dialogue_model: DialogueModel,
    contexts: Sequence[str],
    responses: Sequence[str],
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
    heads, tails = _encode(dialogue_model, contexts, responses)
    _check_lengths(dialogue_model, heads, tails)
    log_likelihood = np.zeros(len(contexts))
    for rows, total in conditional_log_likelihoods(dialogue_model, heads, tails, _longest_first(heads, tails)):
        log_likelihood[rows] = total
        on_progress(len(rows))
    return log_likelihood, np.array([len(ids) for ids in tails], dtype=np.int64)


def response_log_likelihoods(
    dialogue_model: DialogueModel, contexts: Sequence[str], responses: Sequence[str], *, shard: WorkShard = ALL_ROWS
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Yield, batch by batch, rows (r,), Σ log p of each one's response given its context, and its tokens, (r,) each.

    As `response_perplexity`, for long work that is kept as it goes: of a `shard` there are its rows alone. A row that
    is too long for the model has NaN, and stands last. An empty response is the end of sequence alone.
    """
    heads, tails = _encode(dialogue_model, contexts, responses)
    tokens = np.array([len(ids) for ids in tails], dtype=np.int64)
    order, room = _longest_first(heads, tails), _room(dialogue_model)
    fits = np.array([_length(dialogue_model, heads[row], tails[row]) <= room for row in order], dtype=bool)
    for rows, total in conditional_log_likelihoods(dialogue_model, heads, tails, order[fits], shard):
        yield rows, total, tokens[rows]
    for too_long in shard.unfinished_batches([order[~fits]]):
        yield too_long, np.full(len(too_long), np.nan), tokens[too_long]


def _longest_first(heads: Sequence[list[int]], tails: Sequence[list[int]]) -> np.ndarray:
    """Return the rows by length, the longest first: too little memory shows at once."""
    tokens = np.array([len(tail) for tail in tails], dtype=np.int64)
    return np.lexsort((tokens, tokens + [len(head) for head in heads]))[::-1]


def _encode(
    dialogue_model: DialogueModel, contexts: Sequence[str], responses: Sequence[str]
) -> tuple[list[list[int]], list[list[int]]]:
    """Return the token ids of contexts, where a model thinks with no thought, and those of responses."""
    return encode_contexts(dialogue_model, close_reasoning(contexts)), encode_responses(dialogue_model, responses)


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
