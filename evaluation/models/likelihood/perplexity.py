"""Log-likelihoods of responses given their contexts, for the perplexity of a dialogue model."""

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.models.contexts import close_reasoning, encode_contexts, encode_responses
from evenhand.evaluation.models.input_lengths import max_positions
from evenhand.evaluation.models.likelihood.tokens import conditional_log_likelihoods
from evenhand.evaluation.models.loading import DialogueModel


def response_perplexity(
    dialogue_model: DialogueModel,
    contexts: Sequence[str],
    responses: Sequence[str],
    on_progress: Callable[[int], None] = lambda rows: None,
) -> tuple[np.ndarray, np.ndarray]:
    """Return Σ log p in nats, float64 (n,), and the number of tokens, int64 (n,), of each response given its context.

    The end of sequence counts as the last token of a response. The perplexity of a corpus is e^(−Σ Σ log p / Σ tokens),
    summed over all responses; its range is [1, ∞).

    Args:
        contexts: rendered contexts (`render_contexts`), which are not scored.
        responses: the texts to score, encoded separately from their contexts, as in generation.
        on_progress: called with the number of rows done since its last call.

    Raises:
        InputError: The lists differ in length, or a context with its response is too long for the model.
    """
    if len(contexts) != len(responses):
        raise InputError(f"responses: {len(responses)} for {len(contexts)} contexts; give one each.")
    heads, tails = _encode(dialogue_model, contexts, responses)
    _check_lengths(dialogue_model, heads, tails)
    log_likelihood = np.zeros(len(contexts))
    for rows, sums in conditional_log_likelihoods(dialogue_model, heads, tails, _longest_pairs_first(heads, tails)):
        log_likelihood[rows] = sums
        on_progress(len(rows))
    return log_likelihood, np.array([len(ids) for ids in tails], dtype=np.int64)


def response_log_likelihoods(
    dialogue_model: DialogueModel, contexts: Sequence[str], responses: Sequence[str]
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Yield row indices (r,), Σ log p of each response given its context (r,), and the numbers of tokens (r,).

    The scores, in nats, equal the results of `response_perplexity`. A row that is
    too long for the model has NaN and comes last. An empty response consists of the end of sequence only.
    """
    heads, tails = _encode(dialogue_model, contexts, responses)
    tokens = np.array([len(ids) for ids in tails], dtype=np.int64)
    order, limit = _longest_pairs_first(heads, tails), max_positions(dialogue_model.model.config)
    fits = np.array([_length(dialogue_model, heads[row], tails[row]) <= limit for row in order], dtype=bool)
    for rows, sums in conditional_log_likelihoods(dialogue_model, heads, tails, order[fits]):
        yield rows, sums, tokens[rows]
    if len(too_long := order[~fits]):
        yield too_long, np.full(len(too_long), np.nan), tokens[too_long]


def _longest_pairs_first(heads: Sequence[list[int]], tails: Sequence[list[int]]) -> np.ndarray:
    """Return the row indices by descending length of head and tail together, then by descending length of the tail."""
    tokens = np.array([len(tail) for tail in tails], dtype=np.int64)
    return np.lexsort((tokens, tokens + [len(head) for head in heads]))[::-1]


def _encode(
    dialogue_model: DialogueModel, contexts: Sequence[str], responses: Sequence[str]
) -> tuple[list[list[int]], list[list[int]]]:
    """Return the token ids of the contexts, with any reasoning closed, and the token ids of the responses."""
    return encode_contexts(dialogue_model, close_reasoning(contexts)), encode_responses(dialogue_model, responses)


def _length(dialogue_model: DialogueModel, head: list[int], tail: list[int]) -> int:
    """Return how many positions of the model a context and its response occupy."""
    return max(len(head), len(tail)) if dialogue_model.kind == "encoder_decoder" else len(head) + len(tail)


def _check_lengths(dialogue_model: DialogueModel, heads: list[list[int]], tails: list[list[int]]) -> None:
    limit = max_positions(dialogue_model.model.config)
    lengths = (_length(dialogue_model, head, tail) for head, tail in zip(heads, tails, strict=True))
    if (longest := max(lengths, default=0)) > limit:
        raise InputError(
            f"responses: a context with its response has {longest} tokens; {dialogue_model.name} has {limit:.0f} "
            "positions. Leave out long dialogues."
        )
