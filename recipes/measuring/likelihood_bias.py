"""Likelihood Bias: is a sentence about some people likelier to a model than the same sentence about others? (002)

A causal model, or an encoder-decoder one given a context, scores the sentences of HolisticBias (§2.3.2, §3.1); a masked
model the noun phrases in SEAT's templates (B.1).
"""

from collections.abc import Mapping
from datetime import date
from typing import Any

import numpy as np
import pandas as pd
from datasets import Dataset

from evaluation.datasets.holistic_bias import generate, load_taxonomy
from evaluation.datasets.phrase_templates import SPAN_END, SPAN_START, phrase_sentences
from evaluation.datasets.prompts import of_descriptors, select
from evaluation.likelihood.masked import encode_sentences, masked_log_probabilities, span_positions
from evaluation.metrics.likelihood_bias import LOG_LIKELIHOOD, N_TOKENS, likelihood_bias, scored_prompts
from evaluation.models import is_masked, load_dialogue_model, load_masked_model, model_revision
from evaluation.report import Page, likelihood_page
from evaluation.results import TEXT, BiasScore, read_scores
from recipes import testbed
from recipes.batches import gather
from recipes.config import TESTBED, MeasureConfig, resolve
from recipes.likelihoods import sentence_log_likelihoods
from recipes.runs import Run, packages
from recipes.tables import SCORES, read_table, write_table
from recipes.testbed import frequencies

PLANTED_DATASET = "paper"  # whose sentences the testbed's grammar has
LIKELIHOODS, VARIANT, SIGNATURE = "likelihoods.parquet", "variant", "likelihood_signature"
MASKED = "each token of the phrase masked alone"  # the variant
MODEL_NOTE = (
    "The measured model is the testbed's: a tiny model of a grammar in which some descriptors are rarer than others of "
    "their axis, built to check the instrument. Its numbers say nothing about any real model or people."
)


def inputs(config: MeasureConfig) -> dict[str, Any]:
    """Return fingerprints of what is read, by name.

    Raises:
        InputError: the model or the dataset cannot be found.
    """
    return {
        "model": model_revision(resolve(config.model, testbed.LANGUAGE_MODEL), config.revision),
        "dataset": load_taxonomy(config.dataset).sha256,
    }


def measure(run: Run, config: MeasureConfig, inputs: Mapping[str, Any]) -> list[BiasScore]:
    """Write the likelihood of each sentence into the run's folder; return the scores."""
    name = resolve(config.model, testbed.LANGUAGE_MODEL)
    masked = is_masked(name, config.revision, config.trust_remote_code)
    path = run.folder / LIKELIHOODS
    if not path.exists():
        score = _masked if masked else _causal
        write_table(path, score(run, config, name))
    table = read_table(path)
    signature = {
        "model": {"name": config.model, "revision": inputs["model"], "dtype": config.dtype},
        "dataset": {
            "name": config.dataset,
            "sha256": inputs["dataset"],
            "descriptors": config.descriptors,
            "filters": config.filters,
        },
        VARIANT: table[VARIANT].iloc[0],
        "seed": config.seed,
        "packages": packages(),
    }
    with run.step("scores"):
        scores = likelihood_bias(table, signature)
    run.facts |= {SIGNATURE: signature, "sentences": len(table)}
    return scores


def page(config: MeasureConfig) -> Page:
    """Return the report of a run whose scores are on disk."""
    table = read_table(config.output_dir / LIKELIHOODS)
    planted = config.model == TESTBED and config.dataset == PLANTED_DATASET
    return likelihood_page(
        read_scores(config.output_dir / SCORES),
        table,
        model=config.model,
        dataset=config.dataset,
        date=date.today().isoformat(),
        notes=[MODEL_NOTE] * (config.model == TESTBED),
        truth=frequencies.truth(table) if planted else (),
        masked=SPAN_START in table,
    )


def _causal(run: Run, config: MeasureConfig, name: str) -> pd.DataFrame:
    """Return the sentences of HolisticBias with Σ log p of each (§2.3.2)."""
    sentences = scored_prompts(_sampled(config, generate(load_taxonomy(config.dataset))).to_pandas())
    sentences = sentences.reset_index(drop=True)
    model = load_dialogue_model(
        name, revision=config.revision, dtype=config.dtype, trust_remote_code=config.trust_remote_code
    )
    with run.step("likelihoods"):
        log_likelihood, tokens, variant = sentence_log_likelihoods(
            run, model, sentences[TEXT].tolist(), config.context, config.end_of_sequence
        )
    return _table(sentences, log_likelihood, tokens, variant)


def _masked(run: Run, config: MeasureConfig, name: str) -> pd.DataFrame:
    """Return noun phrases in SEAT's templates with the pseudo-log-likelihood of each phrase: Σ log p of its tokens,
    each masked alone (B.1).
    """
    phrases = Dataset.from_pandas(phrase_sentences(load_taxonomy(config.dataset)), preserve_index=False)
    phrases = scored_prompts(_sampled(config, phrases).to_pandas()).reset_index(drop=True)
    model = load_masked_model(
        name, revision=config.revision, dtype=config.dtype, trust_remote_code=config.trust_remote_code
    )
    ids, _ = encode_sentences(model, phrases[TEXT].tolist())
    positions = span_positions(model, phrases[TEXT].tolist(), phrases[SPAN_START], phrases[SPAN_END])
    tokens = np.array([len(places) for places in positions])
    with run.step("likelihoods"):
        found = gather(
            run.folder / "masked",
            ["log_p", "correct"],
            int(tokens.sum()),
            lambda first: masked_log_probabilities(model, ids, positions, first=first),
            "masked tokens",
            "tokens",
        )
    sums = np.bincount(np.repeat(np.arange(len(tokens)), tokens), found["log_p"], minlength=len(tokens))
    return _table(phrases, sums, tokens, MASKED)


def _sampled(config: MeasureConfig, prompts: Dataset) -> Dataset:
    """Return the prompts that the filters keep, of the descriptors that are sampled."""
    chosen = select(prompts, **config.filters)
    return chosen if config.descriptors is None else of_descriptors(chosen, config.descriptors, config.seed)


def _table(sentences: pd.DataFrame, log_likelihood: np.ndarray, tokens: np.ndarray, variant: str) -> pd.DataFrame:
    return sentences.assign(**{LOG_LIKELIHOOD: log_likelihood, N_TOKENS: tokens, VARIANT: variant})
