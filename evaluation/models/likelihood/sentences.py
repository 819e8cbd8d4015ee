"""Log-likelihoods of whole sentences by the fastest method that a model supports, with results saved in parts.

The tokens of a sentence are scored, each given all previous tokens. The start token and a context are not scored; the
end of sequence is scored only on request. The perplexity of a sentence is exp(−Σ log p / tokens).
"""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pandas as pd
import torch
from transformers import PreTrainedTokenizerBase

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.models.batches import common_prefix_length, longest_first, max_positions, tokenize_texts
from evenhand.evaluation.models.likelihood.masked import masked_log_probabilities
from evenhand.evaluation.models.likelihood.prefix_tree import node_log_probabilities, prefix_tree, sum_sequences
from evenhand.evaluation.models.likelihood.tokens import conditional_log_likelihoods, response_log_likelihoods
from evenhand.evaluation.models.loading import DialogueModel, MaskedModel
from evenhand.evaluation.store import Store

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
    options = {"name": model.name, "max_tokens": max_positions(model.model.config), "context": context}
    return encode(model.tokenizer, sentences, **options, end_of_sequence=end_of_sequence)


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
    context += " " * (context[-1:].strip() != "")
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
    pairs = list(zip(encoded.ids, encoded.begin, strict=True))
    heads, tails = [ids[:begin] for ids, begin in pairs], [ids[begin:] for ids, begin in pairs]
    order, counts = longest_first(list(map(len, encoded.ids))), encoded.n_scored
    for rows, sums in conditional_log_likelihoods(model, heads, tails, order):
        yield rows, sums, counts[rows]


def supports_prefix_trees(model: DialogueModel, encoded: EncodedSentences) -> bool:
    """Return whether scores of sample sentences in a prefix tree and one by one differ by MAX_PROBE_ERROR at most."""
    chosen = np.unique(np.linspace(0, len(encoded.ids) - 1, PROBE_SENTENCES).astype(int))
    probes = EncodedSentences([encoded.ids[row] for row in chosen], encoded.begin[chosen], encoded.start)
    tree = prefix_tree(probes.ids)
    log_p, expected = np.full(len(tree.token) - 1, np.nan), np.empty(len(chosen))
    try:
        for rows, values in node_log_probabilities(model, tree):
            log_p[rows] = values
    except InputError:
        raise  # broken weights or too little memory, which do not depend on the tree
    except (TypeError, ValueError, RuntimeError, IndexError, AttributeError):
        return False
    for rows, values, _ in sequence_log_likelihoods(model, probes):
        expected[rows] = values
    return bool(np.abs(sum_sequences(tree, log_p, probes.begin) - expected).max() <= MAX_PROBE_ERROR[model.model.dtype])


def describe(encoded: EncodedSentences, context: str) -> str:
    """Return how sentences are scored, in words."""
    return f"Σ log p of the whole sentence after {encoded.start.upper()}" + " and a context" * bool(context)


def sentence_log_likelihoods(
    run: Store, model: DialogueModel, sentences: Sequence[str], context: str = "", end_of_sequence: bool = False
) -> tuple[np.ndarray, np.ndarray, str]:
    """Return Σ log p in nats and the number of tokens of each sentence, (n,) each, and a description of the scoring.

    A causal model reads its start token and the context before the sentence. An encoder-decoder model encodes the
    context, and its scores include the end of the sentence.
    """
    if model.kind == "encoder_decoder":
        if not context:
            raise InputError(
                "context", f"{model.name} is an encoder-decoder model, which needs an input; set a context."
            )
        columns, contexts = ["log_likelihood", "tokens"], [context] * len(sentences)
        table = run.rows("sentences", columns, partial(response_log_likelihoods, model), contexts, sentences)
        if table["log_likelihood"].isna().any():
            raise InputError("sentences", f"one is too long for {model.name} with the context; leave it out.")
        how = "Σ log p of the whole sentence and its end, given a context"
        return table["log_likelihood"].to_numpy(), table["tokens"].to_numpy(), how
    encoded = encode_sentences(model, sentences, context=context, end_of_sequence=end_of_sequence)
    variant = describe(encoded, context)
    if not supports_prefix_trees(model, encoded):
        log.warning("model: %s does not support prefix trees; scoring sentence by sentence is slower", model.name)
        table = run.rows(
            "sentences",
            ["log_likelihood", "tokens"],
            lambda ids, begin: sequence_log_likelihoods(model, EncodedSentences(ids, begin, encoded.start)),
            *(encoded.ids, encoded.begin),
            unit="sentences",
        )
        return table["log_likelihood"].to_numpy(), encoded.n_scored, f"{variant}, one by one"
    tree = prefix_tree(encoded.ids)
    compute = partial(node_log_probabilities, model, tree)
    log_p = run.rows("beginnings", ["log_p"], compute, np.arange(len(tree.child)), unit="tokens")["log_p"].to_numpy()
    return sum_sequences(tree, log_p, encoded.begin), encoded.n_scored, f"{variant}, over a prefix tree"


def masked_token_table(
    run: Store,
    model: MaskedModel,
    sentences: Sequence[Sequence[int]],
    positions: Sequence[Sequence[int]],
    words: Sequence[Sequence[int | None]] | None = None,
) -> pd.DataFrame:
    """Return the results of `masked_log_probabilities`: log_p, and correct, whether the token ranks first."""
    ids = [sentences[sentence] for sentence, masked in enumerate(positions) for _ in masked]
    masked = [[position] for masked in positions for position in masked]
    of_words = [] if words is None else [[words[sentence] for sentence, it in enumerate(positions) for _ in it]]
    compute = partial(masked_log_probabilities, model)
    return run.rows("masked", ["log_p", "correct"], compute, ids, masked, *of_words, unit="tokens")
