"""Log-likelihoods of many sentences by the fastest method that a model supports, with results saved in parts."""

import logging
from collections.abc import Sequence

import numpy as np

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.models.likelihood.causal import encode_sentences, sequence_log_likelihoods
from evenhand.evaluation.models.likelihood.perplexity import response_perplexity
from evenhand.evaluation.models.likelihood.prefix_tree import (
    node_log_probabilities,
    prefix_tree,
    sum_sequences,
    supports_prefix_trees,
)
from evenhand.evaluation.models.likelihood.served import served_log_likelihoods
from evenhand.evaluation.models.loading import DialogueModel, load_dialogue_model
from evenhand.evaluation.runs.run import Run
from evenhand.evaluation.settings import ModelSettings

log = logging.getLogger("evenhand")

SENTENCES_PER_PART = 1024  # part size for encoder-decoder models


def sentence_log_likelihoods(
    run: Run, model: DialogueModel, sentences: Sequence[str], context: str = "", end_of_sequence: bool = False
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
        parts = run.parts("sentences", ["log_likelihood"], len(sentences))
        for shard in parts.unfinished_shards():
            batches = (batch[:2] for batch in sequence_log_likelihoods(model, encoded, shard=shard))
            parts.save(shard, batches, "sentences", "sentences")
        return parts.read()["log_likelihood"].to_numpy(), tokens, f"{variant}, one by one"
    tree = prefix_tree(encoded.ids)
    parts = run.parts("beginnings", ["log_p"], len(tree.token) - 1)
    for shard in parts.unfinished_shards():
        parts.save(shard, node_log_probabilities(model, tree, shard=shard), "distinct beginnings", "tokens")
    log_p = parts.read()["log_p"].to_numpy()
    return sum_sequences(tree, log_p, encoded.begin), tokens, f"{variant}, over a prefix tree"


def score_sentences(
    run: Run, settings: ModelSettings, sentences: Sequence[str], context: str, end_of_sequence: bool
) -> tuple[np.ndarray, np.ndarray, str]:
    """Return Σ log p in nats and the number of tokens of each sentence, (n,) each, and a description of the scoring.

    A served model is scored by `served_log_likelihoods`, any other model is loaded and scored by
    `sentence_log_likelihoods`.

    Raises:
        InputError: The model cannot be loaded or queried, a sentence has no tokens or too many, or an encoder-decoder
            model has no context.
    """
    if settings.server is not None:
        return served_log_likelihoods(run, settings, sentences, context, end_of_sequence)
    return sentence_log_likelihoods(run, load_dialogue_model(settings), sentences, context, end_of_sequence)


def _score_given_context(
    run: Run, model: DialogueModel, sentences: Sequence[str], context: str
) -> tuple[np.ndarray, np.ndarray, str]:
    if not context:
        raise InputError(
            f"context: {model.name} is an encoder-decoder model and needs an input for its encoder; set a context."
        )
    parts = run.parts("sentences", ["log_likelihood", "tokens"], len(sentences))
    chunks = np.split(np.arange(len(sentences)), range(SENTENCES_PER_PART, len(sentences), SENTENCES_PER_PART))
    for shard in parts.unfinished_shards():
        batches = (
            (chunk, *response_perplexity(model, [context] * len(chunk), [sentences[row] for row in chunk]))
            for chunk in shard.unfinished_batches(chunks)
        )
        parts.save(shard, batches, "sentences", "sentences")
    rows = parts.read()
    return (
        rows["log_likelihood"].to_numpy(),
        rows["tokens"].to_numpy(),
        "Σ log p of the whole sentence and its end, given a context",
    )
