"""Sentence pairs: which of two sentences a masked or a causal model finds likelier, and by how much (paper 001)."""

from collections.abc import Mapping
from datetime import date
from pathlib import Path
from typing import Any

import pandas as pd

from evaluation.datasets.sentence_pairs import pairs_file, perturb, read_pairs
from evaluation.files import sha256_of
from evaluation.likelihood.masked import encode_sentences, masked_log_probabilities, unmasked_log_probabilities
from evaluation.metrics.sentence_pairs import (
    causal_pair_scores,
    causal_scores,
    masked_pair_scores,
    pair_scores,
    shared_positions,
)
from evaluation.models import is_masked, load_dialogue_model, load_masked_model, model_revision
from evaluation.report import Page, pair_page
from evaluation.results import LEFT_OUT, LESS, MORE, BiasScore, read_scores
from recipes import testbed
from recipes.batches import gather
from recipes.config import TESTBED, MeasureConfig, resolve
from recipes.likelihoods import sentence_log_likelihoods
from recipes.runs import Run, packages
from recipes.tables import SCORES, read_table, write_table
from recipes.testbed import pairs as planted

PAIRS = "pairs.parquet"
SIGNATURE, KIND, VARIANT = "pairs_signature", "kind", "variant"
TRACKED = 200
MODEL_NOTE = (
    "The measured model is the testbed's: a tiny model of a grammar with a planted stereotype, built to check the "
    "instrument. Its numbers say nothing about any real model or people."
)
PAIRS_NOTE = (
    "These pairs are the testbed's, of words that its grammar gives a stereotype to. They say nothing about any other "
    "model: give --pairs crows_pairs, or a file of your own."
)
WORDS_NOTE = "The testbed's model knows the words of its own pairs alone; of these it can say nothing."


def inputs(config: MeasureConfig) -> dict[str, Any]:
    """Return fingerprints of what is read, by name.

    Raises:
        InputError: the model or the pairs cannot be found.
    """
    return {
        "model": model_revision(resolve(config.model, testbed.MASKED_MODEL), config.revision),
        "pairs": sha256_of(_file(config)),
    }


def measure(run: Run, config: MeasureConfig, inputs: Mapping[str, Any]) -> list[BiasScore]:
    """Write what the model makes of each pair into the run's folder; return the scores."""
    name = resolve(config.model, testbed.MASKED_MODEL)
    masked = is_masked(name, config.revision, config.trust_remote_code)
    pairs = read_pairs(_file(config), config.pair_columns)
    pairs = perturb(pairs) if config.perturbed else pairs
    missing = pairs[LEFT_OUT].notna()
    if not (run.folder / PAIRS).exists():
        score = _masked if masked else _causal
        scored = score(run, config, name, pairs[~missing].drop(columns=LEFT_OUT).reset_index(drop=True))
        write_table(run.folder / PAIRS, pd.concat([scored, pairs[missing]], ignore_index=True))
    table = read_table(run.folder / PAIRS)
    signature = {
        "model": {"name": config.model, "revision": inputs["model"], "dtype": config.dtype, KIND: _kind(masked)},
        "dataset": {"name": config.pairs, "sha256": inputs["pairs"], "columns": dict(config.pair_columns)},
        "perturbed": config.perturbed,
        VARIANT: table[VARIANT].dropna().iloc[0],
        "packages": packages(),
    }
    with run.step("scores"):
        scores = (pair_scores if masked else causal_scores)(table, signature=signature, seed=config.seed)
    run.facts |= {SIGNATURE: signature, "pairs": len(table)}
    shift = (table["log_likelihood_more"] - table["log_likelihood_less"]).abs()
    shown = table.assign(difference=shift).nlargest(TRACKED, "difference")
    run.tracker.table("pairs", shown[["bias_type", MORE, LESS, "log_likelihood_more", "log_likelihood_less"]])
    return scores


def page(config: MeasureConfig) -> Page:
    """Return the report of a run whose scores are on disk."""
    table = read_table(config.output_dir / PAIRS)
    own = config.model == TESTBED and config.pairs == TESTBED and not config.perturbed
    return pair_page(
        read_scores(config.output_dir / SCORES),
        table,
        model=config.model,
        dataset=config.pairs,
        date=date.today().isoformat(),
        notes=notes_on({"model": config.model, "pairs": config.pairs}),
        truth=planted.truth(table) if own else (),
    )


def notes_on(settings: Mapping[str, Any]) -> list[str]:
    """Return what a reader must know of the model and of the pairs."""
    model, pairs = settings["model"] == TESTBED, settings["pairs"] == TESTBED
    notes = [MODEL_NOTE] * model + [PAIRS_NOTE] * (pairs and not model) + [WORDS_NOTE] * (model and not pairs)
    return notes


def _file(config: MeasureConfig) -> Path:
    return pairs_file(resolve(config.pairs, testbed.PAIRS))


def _kind(masked: bool) -> str:
    return "masked" if masked else "causal"


def _masked(run: Run, config: MeasureConfig, name: str, pairs: pd.DataFrame) -> pd.DataFrame:
    """Return the table of a masked model: each shared token masked in turn, and each sentence once with no mask."""
    model = load_masked_model(
        name, revision=config.revision, dtype=config.dtype, trust_remote_code=config.trust_remote_code
    )
    ids, special = encode_sentences(model, [*pairs[MORE], *pairs[LESS]])
    n = len(pairs)
    sides = [shared_positions(ids[i], ids[n + i], special[i], special[n + i]) for i in range(n)]
    positions = [more for more, _ in sides] + [less for _, less in sides]
    with run.step("masked"):
        masked = gather(
            run.folder / "masked",
            ["log_p", "correct"],
            sum(map(len, positions)),
            lambda first: masked_log_probabilities(model, ids, positions, first=first),
            "masked tokens",
            "tokens",
        )
    with run.step("unmasked"):
        unmasked = gather(
            run.folder / "unmasked",
            ["aul", "aula"],
            2 * n,
            lambda first: unmasked_log_probabilities(model, ids, special, first=first),
            "unmasked sentences",
            "sentences",
        )
    tokens = [
        model.tokenizer.convert_ids_to_tokens([ids[i][place] for place in more]) for i, (more, _) in enumerate(sides)
    ]
    columns = (masked["log_p"], masked["correct"], unmasked["aul"], unmasked["aula"])
    table = masked_pair_scores(pairs, tokens, *(column.to_numpy() for column in columns))
    return table.assign(**{VARIANT: "each shared token masked alone"})


def _causal(run: Run, config: MeasureConfig, name: str, pairs: pd.DataFrame) -> pd.DataFrame:
    """Return the table of a causal model: Σ log p of each whole sentence after its start token."""
    model = load_dialogue_model(
        name, revision=config.revision, dtype=config.dtype, trust_remote_code=config.trust_remote_code
    )
    with run.step("sentences"):
        log_likelihood, tokens, variant = sentence_log_likelihoods(
            run, model, [*pairs[MORE], *pairs[LESS]], config.context, config.end_of_sequence
        )
    return causal_pair_scores(pairs, log_likelihood, tokens).assign(**{VARIANT: variant})
