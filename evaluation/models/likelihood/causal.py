"""The log-likelihood that a causal language model gives to whole sentences.

What is scored are the tokens of a sentence, each given all before it: the start token and a context are read and not
scored, the final end of sequence only if it is asked for. Perplexity is per token of that sum, exp(−Σ log p / tokens).
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from transformers import PreTrainedTokenizerBase

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.models.batches import tokenize_texts
from evenhand.evaluation.models.likelihood.tokens import conditional_log_likelihoods
from evenhand.evaluation.models.loading import DialogueModel
from evenhand.evaluation.runs.work_shards import ALL_ROWS, WorkShard


@dataclass(frozen=True)
class EncodedSentences:
    """Sentences as token ids; of each the first `begin`, (n,), are read and not scored. `start` is "bos" or "eos"."""

    ids: list[list[int]]
    begin: np.ndarray
    start: str


def start_token(tokenizer: PreTrainedTokenizerBase) -> tuple[int, str]:
    """Return the token that stands before a sentence and its name: BOS, or EOS where there is no BOS.

    Raises:
        InputError: there is neither.
    """
    if tokenizer.bos_token_id is not None:
        return tokenizer.bos_token_id, "bos"
    if tokenizer.eos_token_id is not None:
        return tokenizer.eos_token_id, "eos"
    raise InputError("model: its tokenizer has neither BOS nor EOS, so the first token has nothing to follow; add one.")


def encode_sentences(
    model: DialogueModel, sentences: Sequence[str], *, context: str = "", end_of_sequence: bool = False
) -> EncodedSentences:
    """Return sentences as `encode` does, for a model with its tokenizer and its room.

    Raises:
        InputError: as there.
    """
    room = getattr(model.model.config, "max_position_embeddings", None)
    how = {"context": context, "end_of_sequence": end_of_sequence}
    return encode(model.tokenizer, sentences, name=model.name, room=room, **how)


def encode(
    tokenizer: PreTrainedTokenizerBase,
    sentences: Sequence[str],
    *,
    name: str,
    room: int | None,
    context: str = "",
    end_of_sequence: bool = False,
) -> EncodedSentences:
    """Return the start token and the tokens of the context with each sentence behind it, encoded as one text.

    A blank stands between the two unless the context ends with one, or with a line end. A token that holds the end of
    the context and the beginning of the sentence is scored. `name` is the model's, and `room` the most tokens that it
    takes, None for any number.

    Raises:
        InputError: a sentence is empty or too long for the model; there is no start token.
    """
    start, kind = start_token(tokenizer)
    context += " " * (context[-1:].strip() != "")
    head = tokenizer(context, add_special_tokens=False)["input_ids"] if context else []
    texts = tokenize_texts(tokenizer, [context + sentence for sentence in sentences], add_special_tokens=False)
    end = [tokenizer.eos_token_id] if end_of_sequence else []
    room = room or math.inf
    begin = [1 + _common_prefix_length(head, text) for text in texts]
    for sentence, text, read in zip(sentences, texts, begin, strict=True):
        if 1 + len(text) == read:
            raise InputError(f"sentences: {sentence!r} has no tokens for {name}; give it some text.")
        if 1 + len(text) + len(end) > room:
            raise InputError(
                f"sentences: {sentence[:40]!r}… has {1 + len(text) + len(end)} tokens with what is before it, "
                f"{name} has room for {room:.0f}; shorten it or leave it out."
            )
    return EncodedSentences([[start, *text, *end] for text in texts], np.array(begin, dtype=np.int64), kind)


def _common_prefix_length(one: list[int], other: list[int]) -> int:
    """Return how many tokens two texts have in common at their beginning."""
    return next((place for place, pair in enumerate(zip(one, other, strict=False)) if pair[0] != pair[1]), len(one))


def sequence_log_likelihoods(
    model: DialogueModel, encoded: EncodedSentences, *, shard: WorkShard = ALL_ROWS
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Yield, batch by batch, rows (r,), Σ log p of each in nats, float64 (r,), and the number of tokens of that sum.

    Rows come out by length, the longest first; of a `shard` there are its rows alone.
    """
    lengths = np.array([len(ids) for ids in encoded.ids])
    pairs = list(zip(encoded.ids, encoded.begin, strict=True))
    heads, tails = [ids[:begin] for ids, begin in pairs], [ids[begin:] for ids, begin in pairs]
    order = np.argsort(-lengths, kind="stable")
    for rows, total in conditional_log_likelihoods(model, heads, tails, order, shard):
        yield rows, total, lengths[rows] - encoded.begin[rows]
