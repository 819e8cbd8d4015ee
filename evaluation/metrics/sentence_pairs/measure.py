"""Measurement of sentence pairs: likelihoods by a masked or a causal model (Steinborn et al. 2022)."""

from functools import partial
from typing import Any

import pandas as pd

from evenhand.evaluation import processes
from evenhand.evaluation.data.sentence_pairs import perturb, read_pairs
from evenhand.evaluation.data.strata import stratified_rows
from evenhand.evaluation.manifest import package_versions
from evenhand.evaluation.metrics import MeasureConfig
from evenhand.evaluation.metrics.sentence_pairs.metric import causal_scores, masked_scores
from evenhand.evaluation.metrics.sentence_pairs.rows import (
    find_shared_positions,
    make_causal_pair_table,
    make_masked_pair_table,
)
from evenhand.evaluation.metrics.sentence_pairs.settings import pairs_path
from evenhand.evaluation.models.likelihood.masked import (
    encode_sentences,
    unmasked_log_probabilities,
)
from evenhand.evaluation.models.likelihood.sentences import masked_token_table
from evenhand.evaluation.models.loading import load_masked_model
from evenhand.evaluation.models.model import Model
from evenhand.evaluation.score import BIAS_TYPE, LEFT_OUT, LESS, MORE, PAIR_ID, BiasScore
from evenhand.evaluation.settings import model_signature
from evenhand.evaluation.store import Store

VARIANT = "variant"  # column: how the sentences were scored
MAX_TRACKED_PAIRS = 200


def measure(run: Store, config: MeasureConfig) -> list[BiasScore]:
    """Write the likelihoods of both sentences of each pair to pairs.parquet; return the scores.

    Raises:
        InputError: the model cannot score sentences, or a sentence has no tokens or too many.
    """
    model = config.open_model()
    masked = model.is_masked
    table = run.table("pairs", lambda: _pairs(run, config, model), on_all_ranks=True)
    with run.step("scores"):
        compute_scores, signature = masked_scores if masked else causal_scores, _signature(run, config, masked, table)
        scores = processes.on_rank_zero(lambda: compute_scores(table, signature=signature, seed=config.seed))
    run.facts["pairs"] = len(table)
    difference = (table["log_likelihood_more"] - table["log_likelihood_less"]).abs()
    tracked = table.assign(difference=difference).nlargest(MAX_TRACKED_PAIRS, "difference")
    run.tracker.log_table("pairs", tracked[["bias_type", MORE, LESS, "log_likelihood_more", "log_likelihood_less"]])
    return scores


def _signature(run: Store, config: MeasureConfig, masked: bool, table: pd.DataFrame) -> dict[str, Any]:
    model = model_signature(config.model, run.inputs) | {"kind": "masked" if masked else "causal"}
    settings = config.settings
    return {
        "model": model,
        "dataset": {"name": settings.pairs, "sha256": run.inputs["pairs"], "columns": dict(settings.columns)},
        "perturbed": settings.perturbed,
        **({} if settings.limit is None else {"limit": settings.limit, "seed": config.seed}),
        **({} if masked else {"context": settings.context, "end_of_sequence": settings.end_of_sequence}),
        VARIANT: table[VARIANT].dropna().iloc[0],
        "packages": package_versions(),
    }


def _pairs(run: Store, config: MeasureConfig, model: Model) -> pd.DataFrame:
    """Return the table of all pairs. Pairs that lack a sentence are at the end and have no scores.

    With `limit`, the table has a sample of the pairs that have both sentences, and no others.
    """
    pairs = read_pairs(pairs_path(config), config.settings.columns)
    if config.settings.limit is not None:
        pairs = pairs[pairs[LEFT_OUT].isna()]
        strata, ids = pairs[BIAS_TYPE].tolist(), pairs[PAIR_ID].tolist()
        pairs = pairs.iloc[stratified_rows(strata, ids, config.settings.limit, config.seed)].reset_index(drop=True)
    pairs = perturb(pairs) if config.settings.perturbed else pairs
    incomplete = pairs[LEFT_OUT].notna()
    complete = pairs[~incomplete].drop(columns=LEFT_OUT).reset_index(drop=True)
    score = _score_masked if model.is_masked else _score_causal
    scored = score(run, config, model, complete)
    return pd.concat([scored, pairs[incomplete]], ignore_index=True)


def _score_masked(run: Store, config: MeasureConfig, _: Model, pairs: pd.DataFrame) -> pd.DataFrame:
    """Return the pairs scored by a masked model: with each shared token masked in turn, and once without a mask."""
    model, n = load_masked_model(config.model), len(pairs)
    ids, special = encode_sentences(model, [*pairs[MORE], *pairs[LESS]])
    sides = [find_shared_positions(ids[i], ids[n + i], special[i], special[n + i]) for i in range(n)]
    positions = [more for more, _ in sides] + [less for _, less in sides]
    masked = masked_token_table(run, model, ids, positions)
    compute = partial(unmasked_log_probabilities, model)
    unmasked = run.rows("unmasked", ["aul", "aula"], compute, ids, special, unit="sentences")
    tokens = [
        model.tokenizer.convert_ids_to_tokens([ids[i][index] for index in more]) for i, (more, _) in enumerate(sides)
    ]
    columns = (masked["log_p"], masked["correct"], unmasked["aul"], unmasked["aula"])
    table = make_masked_pair_table(pairs, tokens, *(column.to_numpy() for column in columns))
    return table.assign(**{VARIANT: "each shared token masked alone"})


def _score_causal(run: Store, config: MeasureConfig, model: Model, pairs: pd.DataFrame) -> pd.DataFrame:
    settings, sentences = config.settings, [*pairs[MORE], *pairs[LESS]]
    log_likelihood, tokens, variant = model.score_sentences(run, sentences, settings.context, settings.end_of_sequence)
    return make_causal_pair_table(pairs, log_likelihood, tokens).assign(**{VARIANT: variant})
