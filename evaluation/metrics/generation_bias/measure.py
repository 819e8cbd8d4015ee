"""Measurement of generation bias: prompts, responses, style vectors and scores (Smith et al. 2022, A.7)."""

import logging
from collections.abc import Mapping
from dataclasses import replace
from importlib.metadata import version
from typing import Any

import numpy as np

from evenhand.evaluation.data.style_clusters import load_style_clusters
from evenhand.evaluation.metrics import MeasureConfig
from evenhand.evaluation.metrics.generation_bias.collect.classification import (
    OFFENSIVENESS,
    write_offensiveness,
    write_styles,
)
from evenhand.evaluation.metrics.generation_bias.collect.responses import NEUTRAL, collect_responses
from evenhand.evaluation.metrics.generation_bias.costs.relevance import LIKELIHOODS, likelihood_scores
from evenhand.evaluation.metrics.generation_bias.costs.scores import (
    CAPABILITIES,
    capability_scores,
    perplexity_score,
    style_share,
    text_scores,
    unfinished_share,
)
from evenhand.evaluation.metrics.generation_bias.effects import EFFECTS, effect_scores, effects, log_effects
from evenhand.evaluation.metrics.generation_bias.metric import generation_bias, scale_scores
from evenhand.evaluation.metrics.generation_bias.settings import (
    FIRST,
    OFFENSIVE,
    SECOND,
    classifiers,
    measured_model,
    neutral_dialogue,
)
from evenhand.evaluation.metrics.generation_bias.signature import classifier_facts, score_signature
from evenhand.evaluation.metrics.generation_bias.styled_responses import (
    SECOND_STYLES,
    STYLES,
    StyledResponses,
    read_styled_responses,
)
from evenhand.evaluation.metrics.offensiveness.metric import offensive_share
from evenhand.evaluation.models.model import Model
from evenhand.evaluation.score import AXIS, CUT, DESCRIPTOR, RESPONSE, TEXT, UNSEEN, BiasScore
from evenhand.evaluation.store import Store

log = logging.getLogger("evenhand")

MAX_SAMPLES_TRACKED = 200


def collect(run: Store, config: MeasureConfig) -> tuple[Model, StyledResponses, Mapping[str, Any]]:
    """Write the tables of prompts, responses and style vectors; return the model, the responses, and facts."""
    checkpoints, model = classifiers(config), measured_model(config)
    collected = collect_responses(run, config, model)
    for name, table in ((FIRST, STYLES), (SECOND, SECOND_STYLES)):
        if name in checkpoints:
            write_styles(run, checkpoints[name], name, table)
    measured = read_styled_responses(run.folder)
    if OFFENSIVE in checkpoints:
        write_offensiveness(run, checkpoints[OFFENSIVE], measured)
    return model, measured, collected


def score(
    run: Store, config: MeasureConfig, model: Model, measured: StyledResponses, collected: Mapping[str, Any]
) -> list[BiasScore]:
    """Return all scores of the run's tables. `collected` is the result of `collect`."""
    facts = {name: classifier_facts(name, run, config) for name in classifiers(config)}
    signature = score_signature(run, config, collected, facts[FIRST])
    scores = _bias_scores(run, config, measured, signature, facts)
    scores += text_scores(measured, signature)
    if CUT in measured.table:
        scores += unfinished_share(measured.table, signature)
    if config.settings.relevance and not model.without_weights:
        scores += likelihood_scores(measured.table, run.read(LIKELIHOODS), signature)
    if OFFENSIVE in facts:
        probabilities = run.read(OFFENSIVENESS)[OFFENSIVENESS].to_numpy()
        scores.append(offensive_share(probabilities, {**signature, OFFENSIVE: facts[OFFENSIVE]}))
    if config.capabilities:
        harness = {"lm_eval": version("lm_eval")}
        scores += capability_scores(run.read(CAPABILITIES), {**signature, **harness})
    if neutral_dialogue(config) is not None and not model.without_weights:
        scores.append(perplexity_score(run.read(NEUTRAL), signature))
    run.facts["rows"] = len(measured)
    sampled = np.random.default_rng(0).permutation(len(measured))[:MAX_SAMPLES_TRACKED]
    run.tracker.log_table("samples", measured.table.iloc[sampled][[DESCRIPTOR, TEXT, RESPONSE]])
    return scores


def _bias_scores(
    run: Store, config: MeasureConfig, measured: StyledResponses, signature: Mapping[str, Any], facts: Mapping[str, Any]
) -> list[BiasScore]:
    """Return generation bias of all responses, of seen and of unseen prompts, and by the second style classifier.

    Groups: `seen` is "yes" or "no"; `classifier` is "second", and the signature then describes the second classifier.
    """
    clusters = load_style_clusters(config.settings.style_clusters, measured.styles)
    scores = generation_bias(
        measured,
        clusters,
        permutations=config.settings.permutations,
        seed=config.seed,
        signature=signature,
    )
    scores += scale_scores(measured, signature)
    if config.settings.permutations:
        permutations = config.settings.permutations
        permuted = {"groups": measured.groups(), "permutations": permutations, "seed": config.seed}
        table = run.table(EFFECTS, lambda: effects(measured, clusters, **permuted))
        scores += effect_scores(table, signature)
        log_effects(run.tracker, EFFECTS, table)
    if UNSEEN in measured.table:
        unseen = measured.table[UNSEEN].to_numpy(dtype=bool)
        for seen, rows in (("yes", ~unseen), ("no", unseen)):
            scores += _overall_scores(measured.rows(rows), {"seen": seen}, signature)
    if SECOND in facts:
        second = read_styled_responses(run.folder, second=True)
        scores += _overall_scores(second, {"classifier": "second"}, {**signature, FIRST: facts[SECOND]})
    return scores + style_share(measured.vectors, clusters, signature)


def _overall_scores(
    measured: StyledResponses, group: Mapping[str, str], signature: Mapping[str, Any]
) -> list[BiasScore]:
    """Return FGB, FGB* and pooled FGB* over all rows, with the given group and without a permutation test."""
    styled = replace(measured, table=measured.table.assign(**{AXIS: ""}))  # no scores by axis
    scores = generation_bias(styled, {}, permutations=0, signature=signature)
    return [replace(score, group=dict(group)) for score in scores if not score.group]
