"""Measurement of Likelihood Bias: likelihoods of sentences, compared between descriptors (Smith et al. 2022).

A causal model, or an encoder-decoder model with a context, scores the sentences of HolisticBias (§2.3.2, §3.1). A
masked model scores noun phrases in SEAT's templates (B.1).
"""

from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from evenhand.evaluation import processes
from evenhand.evaluation.data.holistic_bias import load_taxonomy
from evenhand.evaluation.data.phrase_templates import SPAN_END, SPAN_START, make_phrase_sentences
from evenhand.evaluation.data.prompts import dataset_prompts
from evenhand.evaluation.errors import InputError
from evenhand.evaluation.manifest import package_versions
from evenhand.evaluation.metrics import MeasureConfig
from evenhand.evaluation.metrics.likelihood_bias.metric import likelihood_bias
from evenhand.evaluation.metrics.likelihood_bias.pairs import descriptors_by_axis
from evenhand.evaluation.metrics.likelihood_bias.rows import (
    LOG_LIKELIHOOD,
    MASKED_VARIANT,
    N_TOKENS,
    VARIANT,
    limit_sentences,
    select_scored_prompts,
)
from evenhand.evaluation.models.likelihood.masked import encode_sentences, span_positions
from evenhand.evaluation.models.likelihood.sentences import masked_token_table
from evenhand.evaluation.models.loading import MaskedModel, load_masked_model
from evenhand.evaluation.score import TEXT, BiasScore
from evenhand.evaluation.settings import as_settings, model_signature
from evenhand.evaluation.store import Store


def measure(run: Store, config: MeasureConfig) -> list[BiasScore]:
    """Write the likelihood of each sentence to the run's folder, and return the scores."""
    table = run.table("likelihoods", lambda: _likelihoods(run, config), on_all_ranks=True)
    run.facts["sentences"] = len(table)
    with run.step("scores"):
        signature = _signature(run, config, table[VARIANT].iloc[0])
        return processes.on_rank_zero(lambda: likelihood_bias(table, signature))


def _signature(run: Store, config: MeasureConfig, variant: str) -> dict[str, Any]:
    return {
        "model": model_signature(config.model, run.inputs),
        "dataset": config.prompts.signature(run.inputs["dataset"]),
        **{name: value for name, value in as_settings(config.settings).items() if (name, value) != ("limit", None)},
        VARIANT: variant,
        "seed": config.seed,
        "packages": package_versions(),
    }


def _likelihoods(run: Store, config: MeasureConfig) -> pd.DataFrame:
    model, phrases = config.open_model(), None
    if model.is_masked:
        if config.prompts.variations:
            raise InputError("variations: a masked model scores phrases in fixed sentences; turn the variations off.")
        sentences = make_phrase_sentences(load_taxonomy(config.prompts.dataset))
        phrases = pa.Table.from_pandas(sentences, preserve_index=False)
    prompts = dataset_prompts(config.prompts, config.seed, phrases)
    sentences = limit_sentences(select_scored_prompts(prompts.to_pandas()), config.settings.limit, config.seed)
    descriptors_by_axis(sentences)  # raises before a model is loaded
    if model.is_masked:
        columns = (*_phrase_log_likelihoods(run, load_masked_model(config.model), sentences), MASKED_VARIANT)
    else:
        settings = config.settings
        texts = sentences[TEXT].tolist()
        columns = model.score_sentences(run, texts, settings.context, settings.end_of_sequence)
    return sentences.assign(**dict(zip((LOG_LIKELIHOOD, N_TOKENS, VARIANT), columns, strict=True)))


def _phrase_log_likelihoods(run: Store, model: MaskedModel, phrases: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    """Return Σ log p of each phrase's tokens, each masked alone (pseudo-log-likelihood, B.1), and the token count."""
    texts = phrases[TEXT].tolist()
    ids, _ = encode_sentences(model, texts)
    positions = span_positions(model, texts, phrases[SPAN_START], phrases[SPAN_END])
    n_tokens = np.array([len(indices) for indices in positions])
    table = masked_token_table(run, model, ids, positions)
    phrase = np.repeat(np.arange(len(n_tokens)), n_tokens)
    return np.bincount(phrase, table["log_p"], minlength=len(n_tokens)), n_tokens
