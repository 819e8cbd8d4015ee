"""Log-likelihoods of whole sentences by the fastest method that a model supports, with results saved in parts.

The tokens of a sentence are scored, each given all previous tokens. The start token and a context are not scored; the
end of sequence is scored only on request. The perplexity of a sentence is exp(−Σ log p / tokens).
"""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from transformers import PreTrainedTokenizerBase

from evenhand.evaluation import columns
from evenhand.evaluation.errors import InputError
from evenhand.evaluation.models.batches import common_prefix_length, longest_first, max_positions, tokenize_texts
from evenhand.evaluation.models.likelihood.prefix_tree import prefix_tree, sequence_log_probabilities
from evenhand.evaluation.models.likelihood.tokens import conditional_log_likelihoods, response_log_likelihoods
from evenhand.evaluation.models.loading import DialogueModel
from evenhand.evaluation.tables import label_batches

log = logging.getLogger("evenhand")

PROBE_SENTENCES = 8
MAX_PROBE_ERROR = {torch.float32: 1e-2, torch.float16: 0.2, torch.bfloat16: 1.0}  # nats per sentence


@dataclass(frozen=True)
class EncodedSentences:
    """Token ids of n sentences with the number of leading tokens that are not scored, `begin`, (n,).

    The first token of each sentence is `start`, "bos" or "eos".
    """

    ids: list[list[int]]
    begin: np.ndarray
    start: str

    @property
    def n_scored(self) -> np.ndarray:
        """The number of scored tokens of each sentence, (n,)."""
        return np.array([len(ids) for ids in self.ids]) - self.begin


def start_token(tokenizer: PreTrainedTokenizerBase) -> tuple[int, str]:
    """Return the id and the name of the token before a sentence: BOS, or EOS if the tokenizer has no BOS."""
    if tokenizer.bos_token_id is not None:
        return tokenizer.bos_token_id, "bos"
    if tokenizer.eos_token_id is not None:
        return tokenizer.eos_token_id, "eos"
    raise InputError("model", "the tokenizer has neither BOS nor EOS, but a sentence needs a start token.")


def encode_sentences(
    model: DialogueModel, sentences: Sequence[str], *, context: str = "", end_of_sequence: bool = False
) -> EncodedSentences:
    """Return the token ids of sentences for a loaded model: `encode` with the model's tokenizer and input length."""
    return encode(
        model.tokenizer,
        sentences,
        name=model.name,
        max_tokens=max_positions(model.model.config),
        context=context,
        end_of_sequence=end_of_sequence,
    )


def encode(
    tokenizer: PreTrainedTokenizerBase,
    sentences: Sequence[str],
    *,
    name: str,
    max_tokens: float,
    context: str = "",
    end_of_sequence: bool = False,
) -> EncodedSentences:
    """Return the token ids of each sentence, after the ids of the start token and the context.

    Context and sentence are encoded as one text, with a space between them unless the context ends with white space. A
    token that contains both the end of the context and the start of the sentence is scored. InputError if a sentence is
    empty or has more than `max_tokens` tokens; `name` is the model's name in errors.
    """
    start, kind = start_token(tokenizer)
    ends_in_word = context[-1:].strip() != ""
    if ends_in_word:
        context += " "
    head = tokenizer(context, add_special_tokens=False)["input_ids"] if context else []
    texts = tokenize_texts(tokenizer, [context + sentence for sentence in sentences], add_special_tokens=False)
    end = [tokenizer.eos_token_id] if end_of_sequence else []
    begin = [1 + common_prefix_length(head, text) for text in texts]
    for sentence, text, n_unscored in zip(sentences, texts, begin, strict=True):
        if 1 + len(text) == n_unscored or 1 + len(text) + len(end) > max_tokens:
            n = f"{1 + len(text)} tokens with the context"
            raise InputError("sentences", f"{sentence[:40]!r}: {n}; {name} reads {n_unscored + 1} to {max_tokens:.0f}.")
    return EncodedSentences([[start, *text, *end] for text in texts], np.array(begin, dtype=np.int64), kind)


def sequence_log_likelihoods(
    model: DialogueModel, encoded: EncodedSentences
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Yield row indices, log-likelihoods in nats and numbers of scored tokens of sentences, the longest first."""
    heads = [ids[:begin] for ids, begin in zip(encoded.ids, encoded.begin, strict=True)]
    tails = [ids[begin:] for ids, begin in zip(encoded.ids, encoded.begin, strict=True)]
    order = longest_first([len(ids) for ids in encoded.ids])
    counts = encoded.n_scored
    for rows, sums in conditional_log_likelihoods(model, heads, tails, order):
        yield rows, sums, counts[rows]


def supports_prefix_trees(model: DialogueModel, encoded: EncodedSentences) -> bool:
    """Return whether scores of sample sentences in a prefix tree and one by one differ by MAX_PROBE_ERROR at most."""
    chosen = np.unique(np.linspace(0, len(encoded.ids) - 1, PROBE_SENTENCES).astype(int))
    probes = EncodedSentences([encoded.ids[row] for row in chosen], encoded.begin[chosen], encoded.start)
    in_a_tree = np.full(len(chosen), np.nan)
    expected = np.full(len(chosen), np.nan)
    try:
        for rows, sums in sequence_log_probabilities(model, prefix_tree(probes.ids), probes.begin):
            in_a_tree[rows] = sums
    except InputError:
        raise  # broken weights or too little memory, which do not depend on the tree
    except (TypeError, ValueError, RuntimeError, IndexError, AttributeError):
        return False
    for rows, sums, _ in sequence_log_likelihoods(model, probes):
        expected[rows] = sums
    return bool(np.abs(in_a_tree - expected).max() <= MAX_PROBE_ERROR[model.model.dtype])


def describe(encoded: EncodedSentences, context: str) -> str:
    """Return in words which log-likelihood is computed; prefix trees, single sentences and servers give equal ones."""
    variant = f"Σ log p of the whole sentence after {encoded.start.upper()}"
    return f"{variant} and a context" if context else variant


def sentence_log_likelihoods(
    model: DialogueModel, sentences: pd.DataFrame, context: str = "", end_of_sequence: bool = False
) -> Iterator[pd.DataFrame]:
    """Yield Σ log p in nats, the number of tokens and a description (`describe`), for each sentence (`text`).

    A causal model reads its start token and the context before the sentence. An encoder-decoder model encodes the
    context, and its scores include the end of the sentence.
    """
    if model.kind == "encoder_decoder":
        batches, variant = _score_after_input(model, sentences[columns.TEXT].tolist(), context)
    else:
        batches, variant = _score_sequences(model, sentences[columns.TEXT].tolist(), context, end_of_sequence)
    for batch in label_batches(batches, (columns.LOG_LIKELIHOOD, columns.TOKENS), sentences.index):
        if batch[columns.LOG_LIKELIHOOD].isna().any():
            raise InputError("sentences", f"one is too long for {model.name} with the context; leave it out.")
        batch[columns.VARIANT] = variant
        yield batch


def _score_after_input(
    model: DialogueModel, sentences: Sequence[str], context: str
) -> tuple[Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]], str]:
    """Return the scores of sentences that an encoder-decoder model writes after the context, and their description."""
    if not context:
        problem = f"{model.name} is an encoder-decoder model, which needs an input; set a context."
        raise InputError("context", problem)
    batches = response_log_likelihoods(model, [context] * len(sentences), sentences)
    return batches, "Σ log p of the whole sentence and its end, given a context"


def _score_sequences(
    model: DialogueModel, sentences: Sequence[str], context: str, end_of_sequence: bool
) -> tuple[Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]], str]:
    """Return the scores of sentences by a causal model, over a prefix tree if it supports one, and a description."""
    encoded = encode_sentences(model, sentences, context=context, end_of_sequence=end_of_sequence)
    variant = describe(encoded, context)
    if not supports_prefix_trees(model, encoded):
        log.warning("model: %s does not support prefix trees; scoring sentence by sentence is slower", model.name)
        return sequence_log_likelihoods(model, encoded), variant
    sums = sequence_log_probabilities(model, prefix_tree(encoded.ids), encoded.begin)
    counts = encoded.n_scored
    return ((rows, values, counts[rows]) for rows, values in sums), variant
