"""Log-likelihoods of whole sentences under a causal language model.

The tokens of a sentence are scored, each given all previous tokens. The start token and a context are not scored; the
end of sequence is scored only on request. The perplexity of a sentence is exp(−Σ log p / tokens).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from transformers import PreTrainedTokenizerBase

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.models.batches import longest_first, tokenize_texts
from evenhand.evaluation.models.common_prefix import common_prefix_length
from evenhand.evaluation.models.input_lengths import max_positions
from evenhand.evaluation.models.likelihood.tokens import conditional_log_likelihoods
from evenhand.evaluation.models.loading import DialogueModel


@dataclass(frozen=True)
class EncodedSentences:
    """Token ids of n sentences with the number of leading tokens that are not scored, `begin`, (n,).

    The first token of each sentence is `start`, "bos" or "eos".
    """

    ids: list[list[int]]
    begin: np.ndarray
    start: str


def start_token(tokenizer: PreTrainedTokenizerBase) -> tuple[int, str]:
    """Return the id and the name of the token before a sentence: BOS, or EOS if the tokenizer has no BOS.

    Raises:
        InputError: The tokenizer has neither BOS nor EOS.
    """
    if tokenizer.bos_token_id is not None:
        return tokenizer.bos_token_id, "bos"
    if tokenizer.eos_token_id is not None:
        return tokenizer.eos_token_id, "eos"
    raise InputError("model: the tokenizer has neither BOS nor EOS, but a sentence needs a start token.")


def encode_sentences(
    model: DialogueModel, sentences: Sequence[str], *, context: str = "", end_of_sequence: bool = False
) -> EncodedSentences:
    """Return the token ids of sentences for a loaded model: `encode` with the model's tokenizer and input length.

    Raises:
        InputError: A sentence is empty or too long for the model, or the tokenizer has no start token.
    """
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
    token that contains both the end of the context and the start of the sentence is scored.

    Args:
        name: the model's name in errors.
        max_tokens: the largest number of tokens that the model reads.
        end_of_sequence: whether an EOS is appended and scored.

    Raises:
        InputError: A sentence is empty or too long for the model, or the tokenizer has no start token.
    """
    start, kind = start_token(tokenizer)
    context += " " * (context[-1:].strip() != "")
    head = tokenizer(context, add_special_tokens=False)["input_ids"] if context else []
    texts = tokenize_texts(tokenizer, [context + sentence for sentence in sentences], add_special_tokens=False)
    end = [tokenizer.eos_token_id] if end_of_sequence else []
    begin = [1 + common_prefix_length(head, text) for text in texts]
    for sentence, text, n_unscored in zip(sentences, texts, begin, strict=True):
        if 1 + len(text) == n_unscored:
            raise InputError(f"sentences: {sentence!r} has no tokens for {name}; leave it out.")
        if (n_tokens := 1 + len(text) + len(end)) > max_tokens:
            raise InputError(
                f"sentences: {sentence[:40]!r}… has {n_tokens} tokens with the context; {name} reads at most "
                f"{max_tokens:.0f}. Shorten it or leave it out."
            )
    return EncodedSentences([[start, *text, *end] for text in texts], np.array(begin, dtype=np.int64), kind)


def sequence_log_likelihoods(
    model: DialogueModel, encoded: EncodedSentences
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Yield, for each batch of sentences, row indices, log-likelihoods in nats and numbers of scored tokens.

    The longest sentences come first.
    """
    lengths = np.array([len(ids) for ids in encoded.ids])
    pairs = list(zip(encoded.ids, encoded.begin, strict=True))
    heads, tails = [ids[:begin] for ids, begin in pairs], [ids[begin:] for ids, begin in pairs]
    for rows, sums in conditional_log_likelihoods(model, heads, tails, longest_first(lengths)):
        yield rows, sums, lengths[rows] - encoded.begin[rows]
