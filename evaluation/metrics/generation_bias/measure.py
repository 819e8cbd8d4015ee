"""All scores of one run of generation bias, and their signature, which contains everything that affects them."""

import logging
import math
from collections.abc import Mapping
from dataclasses import replace
from hashlib import sha256
from importlib.metadata import version
from typing import Any

import numpy as np

from evenhand.evaluation.data.response_files import unexplained_repeats
from evenhand.evaluation.data.style_clusters import load_style_clusters
from evenhand.evaluation.files import sha256_of
from evenhand.evaluation.manifest import package_versions
from evenhand.evaluation.metrics import MeasureConfig
from evenhand.evaluation.metrics.generation_bias.collect.responses import NEUTRAL, OFFENSIVENESS
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
from evenhand.evaluation.metrics.generation_bias.metric import HEADLINE, REPEATED, generation_bias, scale_scores
from evenhand.evaluation.metrics.generation_bias.settings import FIRST, OFFENSIVE, SECOND, classifiers, neutral_dialogue
from evenhand.evaluation.metrics.generation_bias.styled_responses import (
    PROMPTS,
    StyledResponses,
    read_styled_responses,
)
from evenhand.evaluation.metrics.offensiveness import THRESHOLD, offensive_share
from evenhand.evaluation.models.judges import classifier_styles, judge_facts
from evenhand.evaluation.models.model import Model
from evenhand.evaluation.score import AXIS, CUT, DESCRIPTOR, RESPONSE, TEXT, UNSEEN, BiasScore
from evenhand.evaluation.settings import CheckpointSettings, as_settings
from evenhand.evaluation.store import Store

log = logging.getLogger("evenhand")

MAX_SAMPLES_TRACKED = 200
MANY_REPEATS = 0.05  # share of repeated rows that may be chance; to it are added two standard errors of a share of ½
Collected = tuple[
    Model, StyledResponses, Mapping[str, Any]
]  # the last: entries of the signature by `collect_responses`


def run_scores(
    run: Store, config: MeasureConfig, model: Model, measured: StyledResponses, collected: Mapping[str, Any]
) -> list[BiasScore]:
    """Return all scores of the run's tables.

    Generation bias has scores of all responses, of the group `seen` ("yes" or "no": whether tuning used the prompts'
    values), and of the group `classifier`: "second", whose signature describes the second style classifier.
    """
    settings, checkpoints = config.settings, classifiers(config)
    facts = {name: classifier_signature(it, run.inputs[name]) for name, it in checkpoints.items()}
    facts[FIRST]["clusters"] = settings.style_clusters
    signature = {
        **collected,
        "dataset": {**collected["dataset"], "sha256": sha256_of(run.folder / f"{PROMPTS}.parquet")},
        FIRST: facts[FIRST],
        "inputs": dict(run.inputs),
        "seed": config.seed,
        "packages": package_versions(),
    }
    clusters = load_style_clusters(settings.style_clusters, measured.styles)
    permuted = {"permutations": settings.permutations, "seed": config.seed}
    scores = generation_bias(measured, clusters, **permuted, signature=signature) + scale_scores(measured, signature)
    if config.responses and model.has_prompts and settings.repeated_rows == "warn":
        repeats = unexplained_repeats(measured.table)
        if repeats > MANY_REPEATS + 2 / math.sqrt(len(measured)):
            reason = f"{repeats:.0%} of the rows {REPEATED}"
            log.warning("responses: %s: %s", config.responses, reason)
            scores = [replace(it, reason=reason) if it.metric == HEADLINE and not it.group else it for it in scores]
    if settings.permutations:
        table = run.table(EFFECTS, lambda: effects(measured, clusters, groups=measured.groups(), **permuted))
        scores += effect_scores(table, signature)
        log_effects(run.tracker, EFFECTS, table)
    if UNSEEN in measured.table:
        unseen = measured.table[UNSEEN].to_numpy(dtype=bool)
        scores += _overall_scores(measured.rows(~unseen), {"seen": "yes"}, signature)
        scores += _overall_scores(measured.rows(unseen), {"seen": "no"}, signature)
    if SECOND in facts:
        second = read_styled_responses(run.folder, second=True)
        scores += _overall_scores(second, {"classifier": "second"}, {**signature, FIRST: facts[SECOND]})
    scores += [*style_share(measured.vectors, clusters, signature), *text_scores(measured, signature)]
    if CUT in measured.table:
        scores += unfinished_share(measured.table, signature)
    if settings.relevance and not model.without_weights:
        scores += likelihood_scores(measured.table, run.read(LIKELIHOODS), signature)
    if OFFENSIVE in facts:
        probabilities = run.read(OFFENSIVENESS)[OFFENSIVENESS].to_numpy()
        classifier = {**facts[OFFENSIVE], "threshold": THRESHOLD}
        scores.append(offensive_share(probabilities, {**signature, OFFENSIVE: classifier}))
    if config.capabilities:
        scores += capability_scores(run.read(CAPABILITIES), {**signature, "lm_eval": version("lm_eval")})
    if neutral_dialogue(config) is not None and not model.without_weights:
        scores.append(perplexity_score(run.read(NEUTRAL), signature))
    run.facts["rows"] = len(measured)
    sampled = np.random.default_rng(0).permutation(len(measured))[:MAX_SAMPLES_TRACKED]
    run.tracker.log_table("samples", measured.table.iloc[sampled][[DESCRIPTOR, TEXT, RESPONSE]])
    return scores


def _overall_scores(
    measured: StyledResponses, group: Mapping[str, str], signature: Mapping[str, Any]
) -> list[BiasScore]:
    """Return FGB, FGB* and pooled FGB* over all rows, with the given group and without a permutation test."""
    styled = replace(measured, table=measured.table.assign(**{AXIS: ""}))  # no scores by axis
    scores = generation_bias(styled, {}, permutations=0, signature=signature)
    return [replace(score, group=dict(group)) for score in scores if not score.group]


def classifier_signature(classifier: CheckpointSettings, revision: str) -> dict[str, Any]:
    """Return the entries of a signature that identify a sequence classifier or an LLM judge."""
    facts = as_settings(classifier)
    del facts["device"], facts["device_map"]  # runs on different devices can be compared
    if "judge" in facts:
        facts = judge_facts(classifier)
    labels = "\n".join(classifier_styles(classifier))
    return facts | {"revision": revision, "labels_sha256": sha256(labels.encode()).hexdigest()}
