"""Log-likelihoods of many sentences by the fastest method that a model supports, with results saved in parts."""

import logging
from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np
import pandas as pd

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.models.likelihood.causal import EncodedSentences, encode_sentences, sequence_log_likelihoods
from evenhand.evaluation.models.likelihood.masked import masked_log_probabilities
from evenhand.evaluation.models.likelihood.perplexity import response_perplexity
from evenhand.evaluation.models.likelihood.prefix_tree import (
    node_log_probabilities,
    prefix_tree,
    sum_sequences,
    supports_prefix_trees,
)
from evenhand.evaluation.models.loading import DialogueModel, MaskedModel
from evenhand.evaluation.store import Store

log = logging.getLogger("evenhand")

SENTENCES_PER_PART = 1024  # part size for encoder-decoder models


def sentence_log_likelihoods(
    run: Store, model: DialogueModel, sentences: Sequence[str], context: str = "", end_of_sequence: bool = False
) -> tuple[np.ndarray, np.ndarray, str]:
    """Return Σ log p in nats and the number of tokens of each sentence, (n,) each, and a description of the scoring.

    A causal model reads its start token and the context before the sentence. An encoder-decoder model encodes the
    context, and its scores include the end of the sentence.

    Raises:
        InputError: A sentence has no tokens or too many, or an encoder-decoder model has no context.
    """
    if model.kind == "encoder_decoder":
        return _score_given_context(run, model, sentences, context)
    encoded = encode_sentences(model, sentences, context=context, end_of_sequence=end_of_sequence)
    tokens = np.array([len(ids) for ids in encoded.ids]) - encoded.begin
    variant = f"Σ log p of the whole sentence after {encoded.start.upper()}" + " and a context" * bool(context)
    if not supports_prefix_trees(model, encoded):
        log.warning("model: %s does not support prefix trees; scoring sentence by sentence is slower", model.name)

        table = run.rows(
            "sentences",
            ["log_likelihood", "tokens"],
            lambda ids, begin: sequence_log_likelihoods(model, EncodedSentences(ids, begin, encoded.start)),
            *(encoded.ids, encoded.begin),
            unit="sentences",
        )
        return table["log_likelihood"].to_numpy(), tokens, f"{variant}, one by one"
    tree = prefix_tree(encoded.ids)
    compute = partial(node_log_probabilities, model, tree)
    log_p = run.rows("beginnings", ["log_p"], compute, np.arange(len(tree.child)), unit="tokens")["log_p"].to_numpy()
    return sum_sequences(tree, log_p, encoded.begin), tokens, f"{variant}, over a prefix tree"


def masked_token_table(
    run: Store, model: MaskedModel, sentences: Sequence[Sequence[int]], positions: Sequence[Sequence[int]]
) -> pd.DataFrame:
    """Return log p of each token at `positions` of its sentence, masked alone, and whether the model ranks it first.

    The columns are log_p and correct, the rows in the order of `masked_log_probabilities`, whose arguments these are.
    """
    ids = [sentences[sentence] for sentence, masked in enumerate(positions) for _ in masked]
    masked = [[position] for masked in positions for position in masked]
    compute = partial(masked_log_probabilities, model)
    return run.rows("masked", ["log_p", "correct"], compute, ids, masked, unit="tokens")


def _score_given_context(
    run: Store, model: DialogueModel, sentences: Sequence[str], context: str
) -> tuple[np.ndarray, np.ndarray, str]:
    if not context:
        raise InputError(
            f"context: {model.name} is an encoder-decoder model and needs an input for its encoder; set a context."
        )

    def compute(texts: Sequence[str]) -> Iterator[tuple[range, np.ndarray, np.ndarray]]:
        for start in range(0, len(texts), SENTENCES_PER_PART):
            part = texts[start : start + SENTENCES_PER_PART]
            yield range(start, start + len(part)), *response_perplexity(model, [context] * len(part), part)

    table = run.rows("sentences", ["log_likelihood", "tokens"], compute, sentences, unit="sentences")
    return (
        table["log_likelihood"].to_numpy(),
        table["tokens"].to_numpy(),
        "Σ log p of the whole sentence and its end, given a context",
    )
