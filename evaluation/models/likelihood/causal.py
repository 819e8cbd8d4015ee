"""The log-likelihood that a causal language model gives to whole sentences.

What is scored are the tokens of a sentence, each given all before it: the start token and a context are read and not
scored, the final end of sequence only if it is asked for. Perplexity is per token of that sum, exp(−Σ log p / tokens).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from transformers import PreTrainedTokenizerBase

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.models.likelihood.tokens import log_likelihoods
from evenhand.evaluation.models.loading import DialogueModel

ENCODED_AT_ONCE = 10_000  # sentences


@dataclass(frozen=True)
class Encoded:
    """Sentences as token ids; the first `begin` of each are read and not scored. `start` is "bos" or "eos"."""

    ids: list[list[int]]
    begin: int
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
) -> Encoded:
    """Return the start token, the context's tokens and each sentence's, encoded apart from the context.

    Raises:
        InputError: a sentence is empty or too long for the model; there is no start token.
    """
    start, name = start_token(model.tokenizer)
    head = [start, *model.tokenizer(context, add_special_tokens=False)["input_ids"]] if context else [start]
    tails: list[list[int]] = []
    for first in range(0, len(sentences), ENCODED_AT_ONCE):  # what a tokenizer returns besides ids takes gigabytes
        some = list(sentences[first : first + ENCODED_AT_ONCE])
        tails += model.tokenizer(some, add_special_tokens=False, return_attention_mask=False)["input_ids"]
    end = [model.tokenizer.eos_token_id] if end_of_sequence else []
    room = getattr(model.model.config, "max_position_embeddings", None) or np.inf
    for sentence, tail in zip(sentences, tails, strict=True):
        if not tail:
            raise InputError(f"sentences: {sentence!r} has no tokens for {model.name}; give it some text.")
        if len(head) + len(tail) + len(end) > room:
            raise InputError(
                f"sentences: {sentence[:40]!r}… has {len(head) + len(tail) + len(end)} tokens with what is before it, "
                f"{model.name} has room for {room:.0f}; shorten it or leave it out."
            )
    return Encoded([[*head, *tail, *end] for tail in tails], len(head), name)


def plain_log_likelihoods(
    model: DialogueModel, encoded: Encoded, *, first: int = 0
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Yield, batch by batch, rows (r,), Σ log p of each in nats, float64 (r,), and the number of tokens of that sum.

    Rows come out by length, the longest first; the first `first` are left out, as a run does that goes on after a kill.
    """
    lengths = np.array([len(ids) for ids in encoded.ids])
    heads = [ids[: encoded.begin] for ids in encoded.ids]
    tails = [ids[encoded.begin :] for ids in encoded.ids]
    order = np.argsort(-lengths, kind="stable")[first:]
    for rows, total in log_likelihoods(model, heads, tails, order):
        yield rows, total, lengths[rows] - encoded.begin
