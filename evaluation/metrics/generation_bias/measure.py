"""What a run of generation bias collects (responses, likelihoods, styles), and all scores, with their signature."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha256
from importlib.metadata import version
from typing import Any

import numpy as np
import pandas as pd
from accelerate.utils.memory import clear_device_cache

from evenhand.evaluation import processes
from evenhand.evaluation.data.mentions import FORMS, clean_responses
from evenhand.evaluation.data.neutral_dialogue import load_neutral_dialogue
from evenhand.evaluation.data.other_people import with_partners
from evenhand.evaluation.data.response_files import is_repeated
from evenhand.evaluation.data.style_clusters import default_clusters, load_style_clusters
from evenhand.evaluation.errors import InputError
from evenhand.evaluation.files import sha256_of
from evenhand.evaluation.manifest import package_versions
from evenhand.evaluation.metrics import MeasureConfig
from evenhand.evaluation.metrics.generation_bias.accepted import accepted_scores, read_accepted
from evenhand.evaluation.metrics.generation_bias.costs import relevance
from evenhand.evaluation.metrics.generation_bias.costs import scores as costs
from evenhand.evaluation.metrics.generation_bias.costs.relevance import (
    EVEN_LIKELIHOODS,
    LIKELIHOODS,
    TEMPLATE_LIKELIHOODS,
)
from evenhand.evaluation.metrics.generation_bias.costs.scores import CAPABILITIES
from evenhand.evaluation.metrics.generation_bias.effects import (
    EFFECTS,
    SHIFTS,
    difference_bound,
    effect_scores,
    effects,
    log_effects,
)
from evenhand.evaluation.metrics.generation_bias.frequencies import PROBABILITY, frequency_scores
from evenhand.evaluation.metrics.generation_bias.languages import (
    REQUESTED,
    REQUESTED_EFFECTS,
    check_responses_language,
    shown_in_another_language,
)
from evenhand.evaluation.metrics.generation_bias.metric import (
    REPEATED,
    cue_shares,
    is_headline,
    is_pooled_fgb,
    person_scores,
    scale_scores,
    spread_scores,
)
from evenhand.evaluation.metrics.generation_bias.page_tests import PageTests, page_tests
from evenhand.evaluation.metrics.generation_bias.parts.outcomes import (
    FLUENCY,
    LANGUAGE,
    OTHER_LANGUAGE,
    OUTCOME_EFFECTS,
    VALUES,
    measured_values,
    outcome_scores,
    without_person,
)
from evenhand.evaluation.metrics.generation_bias.prompts import (
    asked_prompts,
    check_repeated_prompts,
    dataset_signature,
)
from evenhand.evaluation.metrics.generation_bias.settings import (
    FIRST,
    OFFENSIVE,
    SECOND,
    classifiers,
    measured_model,
    neutral_dialogue,
)
from evenhand.evaluation.metrics.generation_bias.so_far import AnswersSoFar
from evenhand.evaluation.metrics.generation_bias.styled_responses import (
    ACCEPTED,
    BUCKET,
    PROMPTS,
    RESPONSES,
    SECOND_STYLES,
    STYLES,
    StyledResponses,
    read_styled_responses,
    style_table,
)
from evenhand.evaluation.metrics.offensiveness import THRESHOLD, offensive_share
from evenhand.evaluation.models.base import CANDIDATES, Model
from evenhand.evaluation.models.capabilities import capability_rows, load_tasks
from evenhand.evaluation.models.judges import classifier_styles, judge_facts
from evenhand.evaluation.models.revisions import find_label
from evenhand.evaluation.models.served import ANSWERED_BY
from evenhand.evaluation.models.styles import classify_rows, has_no_label, load_style_classifier, to_style_vectors
from evenhand.evaluation.score import (
    AXIS,
    CUE,
    CUT,
    DESCRIPTOR,
    LEFT_OUT,
    PERSONA,
    PROMPT_ID,
    RESPONSE,
    TEXT,
    UNTUNED,
    BiasScore,
    Caution,
    Form,
    Kind,
)
from evenhand.evaluation.settings import CheckpointSettings, ClassifierSettings, as_settings
from evenhand.evaluation.statistics.gender import NOUN_GENDER, gender_differences, gender_scores
from evenhand.evaluation.statistics.scores import share_score
from evenhand.evaluation.store import Store
from evenhand.evaluation.tables import join_batches

log = logging.getLogger("evenhand")

MAX_SAMPLES_TRACKED = 200
MODEL_FACTS = "model_facts"  # the file of the signature's entries on model and decoding
NEUTRAL = "neutral"  # the table of likelihoods of neutral dialogue
OFFENSIVENESS = "offensiveness"  # name of the table, and of its column, with probabilities of being offensive
Collected = tuple[Model, StyledResponses, Mapping[str, Any]]  # the last: the signature's entries on the responses


def collect(run: Store, config: MeasureConfig) -> Collected:
    """Write the tables of prompts, responses and style vectors; return the responses, and facts about them."""
    checkpoints, model = classifiers(config), measured_model(config)
    facts = _collect_responses(run, config, model)
    for name, table in ((FIRST, STYLES), (SECOND, SECOND_STYLES)):
        if name in checkpoints:
            _write_styles(run, checkpoints[name], name, table)
    if config.settings.accepted is not None:
        styles = read_styled_responses(run.folder, with_accepted=True).styles
        known = styles, load_style_clusters(config.settings.style_clusters, styles)
        run.ensure(ACCEPTED, lambda: read_accepted(config.settings.accepted, *known))
    measured = read_styled_responses(run.folder)
    if OFFENSIVE in checkpoints:
        _write_offensiveness(run, checkpoints[OFFENSIVE], measured)
    return model, measured, facts


def _collect_responses(run: Store, config: MeasureConfig, model: Model) -> dict[str, Any]:
    """Write the prompts, the responses and, of a model with weights, likelihoods and results on tasks.

    The return value is the signature's entries on model, dataset and decoding.
    """
    tasks = load_tasks(config.capabilities)  # raises for an unknown task before hours of generation
    run.ensure(PROMPTS, lambda: asked_prompts(config))
    prompts = run.read(PROMPTS)
    check_repeated_prompts(config, model, prompts)
    if config.prompts.cues and not model.is_chat:
        raise InputError("prompts.cues", f"{model.name} is no chat model; leave cues out, or give a chat model.")
    signature = processes.on_rank_zero(lambda: run.keep_facts(MODEL_FACTS, model.facts))
    run.ensure(RESPONSES, lambda: _responses(run, model, prompts), on_all_ranks=True)
    answered = run.read(RESPONSES)
    responses = answered[RESPONSE].tolist()
    check_nonempty(responses)
    if not model.without_weights:
        _write_likelihoods(run, config, model, prompts, responses)
        if tasks:
            run.ensure(CAPABILITIES, lambda: capability_rows(model.load(), tasks))
    model.close()
    left_out = answered[LEFT_OUT].dropna()
    if len(left_out):
        run.facts["left_out"] = left_out.value_counts(sort=False).to_dict()
    if ANSWERED_BY in answered:
        names = sorted(set(answered[ANSWERED_BY]))
        if names != [model.name]:
            signature["model"]["answered_by"] = names
            log.warning("%s: asked for %r, the answers name %s", config.model.server, model.name, ", ".join(names))
    return {**signature, "dataset": {**dataset_signature(config.prompts), **signature.get("dataset", {})}}


def _responses(run: Store, model: Model, prompts: pd.DataFrame) -> pd.DataFrame:
    """Return the response to each prompt, and write the table of candidates, if there are any."""
    asked = with_partners(prompts, model.seed) if model.needs_partners else prompts
    model.check(asked)
    so_far = AnswersSoFar(prompts, run.tracker)
    rows = run.rows(RESPONSES, asked, lambda missing: so_far.watch(model.respond(missing)), unit="responses")
    if CANDIDATES not in rows:
        return rows
    candidates = rows[[PROMPT_ID, CANDIDATES]].explode(CANDIDATES).rename(columns={CANDIDATES: RESPONSE})
    number = candidates.groupby(level=0).cumcount()
    run.write(CANDIDATES, candidates.assign(candidate=number).reset_index(drop=True))
    return rows.drop(columns=CANDIDATES)


def _write_likelihoods(
    run: Store, config: MeasureConfig, model: Model, prompts: pd.DataFrame, responses: list[str]
) -> None:
    """Write the likelihoods of the responses, and of neutral dialogue."""

    def score(name: str) -> relevance.Score:
        return partial(run.rows, name, compute=model.log_likelihood, unit="likelihoods")

    def likelihoods(name: str, scored: list[str]) -> pd.DataFrame:
        drawn = relevance.sample_prompts(
            prompts[PROMPT_ID].tolist(), config.settings.relevance_share, model.load().model.num_parameters()
        )
        return relevance.likelihoods_of_responses(score(name), prompts, scored, drawn)

    def within_template() -> pd.DataFrame:
        return relevance.likelihoods_within_template(score(TEMPLATE_LIKELIHOODS), prompts, responses)

    def neutral(pairs: pd.DataFrame) -> pd.DataFrame:
        scores = join_batches(model.log_likelihood(pairs.assign(**{PERSONA: ""})))
        if scores["log_likelihood"].isna().any():
            raise InputError("neutral_dialogue", f"a pair is too long for {model.name}; leave it out.")
        return pairs.join(scores)

    if FLUENCY in config.settings.outcomes:
        pairs = without_person(prompts)[[TEXT, PERSONA]].assign(**{RESPONSE: responses})
        run.ensure(FLUENCY, lambda: score(FLUENCY)(pairs), on_all_ranks=True)
    if config.settings.relevance:
        run.ensure(LIKELIHOODS, lambda: likelihoods(LIKELIHOODS, responses), on_all_ranks=True)
        if config.for_comparisons:
            even = relevance.even_responses(prompts, responses)
            run.ensure(EVEN_LIKELIHOODS, lambda: likelihoods(EVEN_LIKELIHOODS, even), on_all_ranks=True)
            run.ensure(TEMPLATE_LIKELIHOODS, within_template, on_all_ranks=True)
    if (path := neutral_dialogue(config)) is not None:
        run.ensure(NEUTRAL, lambda: neutral(load_neutral_dialogue(path)))


def check_nonempty(responses: Sequence[str]) -> None:
    """Raise InputError if no response has any text."""
    if not any(response.strip() for response in responses):
        raise InputError(
            "responses",
            f"all {len(responses)} are empty or end within the model's reasoning; check the model, its tag "
            "and decoding.arguments: a reasoning model needs a larger max_new_tokens.",
        )


def _write_styles(run: Store, checkpoint: CheckpointSettings, name: str, table: str) -> None:
    """Write the style vectors of all responses by the classifier `name`, unless their table is on disk."""
    if not run.has(table):
        with run.step(table):
            prompts, responses = run.read(PROMPTS), run.read(RESPONSES)
            check_responses_language(name, checkpoint.name, responses)
            classifier = load_style_classifier(checkpoint, name)
            texts = clean_responses(responses[RESPONSE], prompts)
            vectors, truncated = classify_rows(run, table, classifier, texts)
            unlabelled = has_no_label(classifier, vectors)
            vectors = to_style_vectors(classifier, vectors)
            run.write(table, style_table(prompts[PROMPT_ID], vectors, classifier.labels, truncated, unlabelled))
    clear_device_cache(garbage_collection=True)


def _write_offensiveness(run: Store, settings: ClassifierSettings, measured: StyledResponses) -> None:
    """Write prompt_id and the probability that the response is offensive, unless this table is on disk.

    As in Smith et al. 2022, descriptors are not removed from the responses.
    """
    if run.has(OFFENSIVENESS):
        return
    with run.step(OFFENSIVENESS):
        classifier = load_style_classifier(settings, OFFENSIVE)
        label = find_label(classifier.labels, settings.label, classifier.name, "offensiveness.label")
        probabilities, _ = classify_rows(run, OFFENSIVENESS, classifier, measured.table[RESPONSE].tolist())
        table = pd.DataFrame({PROMPT_ID: measured.table[PROMPT_ID], OFFENSIVENESS: probabilities[:, label]})
        run.write(OFFENSIVENESS, table)


@dataclass(frozen=True)
class Scoring:
    """What the scores of a run are computed from.

    Attributes:
        run, config: the run, and the settings of the measurement.
        model: the measured model, which is not loaded.
        measured: the responses with their style vectors.
        clusters: the columns of the styles of each cluster.
        values: the values of each outcome, by its name.
        tests: the tests of the page, which are corrected together.
        facts: the entries of the signature on each classifier, by its name.
        signature: the signature of the scores.
    """

    run: Store
    config: MeasureConfig
    model: Model
    measured: StyledResponses
    clusters: Mapping[str, Sequence[int]]
    values: Mapping[str, pd.DataFrame]
    tests: PageTests
    facts: Mapping[str, dict[str, Any]]
    signature: dict[str, Any]

    def p_value(self, test: str) -> float | None:
        """Return the p-value that people do not differ in something; None without permutations."""
        return self.tests.overall.get(test) if self.config.settings.permutations else None


def run_scores(
    run: Store, config: MeasureConfig, model: Model, measured: StyledResponses, collected: Mapping[str, Any]
) -> list[BiasScore]:
    """Return all scores of the run's tables.

    Groups: `tuned` is "yes" for prompts with values that tuning used, else "no"; `classifier` is "second" or absent.
    """
    settings = config.settings
    facts = {}
    for name, classifier in classifiers(config).items():
        facts[name] = classifier_signature(classifier, run.inputs[name])
    facts[FIRST]["clusters"] = settings.style_clusters or default_clusters(measured.styles)
    signature = {
        **collected,
        "dataset": {**collected["dataset"], "sha256": sha256_of(run.folder / f"{PROMPTS}.parquet")},
        FIRST: facts[FIRST],
        "inputs": dict(run.inputs),
        "seed": config.seed,
        "packages": package_versions(),
    }
    clusters = load_style_clusters(settings.style_clusters, measured.styles)
    values = _outcome_values(run, config, measured)
    tests = page_tests(measured, clusters, values, permutations=settings.permutations, seed=config.seed)
    scoring = Scoring(
        run=run,
        config=config,
        model=model,
        measured=measured,
        clusters=clusters,
        values=values,
        tests=tests,
        facts=facts,
        signature=signature,
    )
    scores = [
        *_style_scores(scoring),
        *_accepted_scores(scoring),
        *_outcome_scores(scoring),
        *_request_language_scores(scoring),
        *_scores_of_words(scoring),
        *_scores_of_parts(scoring),
        *_quality_scores(scoring),
    ]
    run.facts["rows"] = len(measured)
    sampled = np.random.default_rng(0).permutation(len(measured))[:MAX_SAMPLES_TRACKED]
    run.tracker.log_samples(measured.table.iloc[sampled][[DESCRIPTOR, TEXT, RESPONSE]])
    return scores


def _style_scores(scoring: Scoring) -> list[BiasScore]:
    """Return the spread of styles between people, its size, and the effects; write the tables of effects."""
    settings = scoring.config.settings
    measured = scoring.measured
    tests = scoring.tests
    signature = scoring.signature
    scores = spread_scores(measured, scoring.clusters, p_value=scoring.p_value("style"), signature=signature)
    scores += scale_scores(measured, signature)
    if tests.for_these_prompts_only:
        scores = [_for_these_prompts(score) if is_headline(score) else score for score in scores]
    file = scoring.config.response_file()
    if file is not None and file.has_prompts and settings.repeated_rows == "warn":
        repeated = is_repeated(measured.table).to_numpy()
        scores.append(share_score(REPEATED, repeated, None, reason="the file has no rows", signature=signature))
    if settings.permutations:
        scoring.run.write(EFFECTS, tests.effects)
        scoring.run.write(SHIFTS, tests.shifts)
        scores += effect_scores(tests.effects, signature)
        scores.append(difference_bound(tests.effects, signature))
        log_effects(scoring.run.tracker, EFFECTS, tests.effects)
    return scores


def _accepted_scores(scoring: Scoring) -> list[BiasScore]:
    """Return the effects that somebody has accepted, and add them to the signature."""
    settings = scoring.config.settings
    if settings.accepted is None:
        return []
    accepted = scoring.run.read(ACCEPTED)
    scoring.signature["accepted"] = accepted.drop(columns="styles").to_dict("records")
    raw = read_styled_responses(scoring.run.folder, with_accepted=True)
    found = effects(
        raw,
        scoring.clusters,
        groups=raw.groups(),
        permutations=settings.permutations,
        seed=scoring.config.seed,
    )
    return accepted_scores(accepted, found, Kind.LEVEL, scoring.signature)


def _outcome_scores(scoring: Scoring) -> list[BiasScore]:
    """Return the scores of all outcomes, and write the table of effects on them."""
    if not scoring.values:
        return []
    scores = []
    for name, of_outcome in scoring.values.items():
        p_value = scoring.p_value(LANGUAGE if name == OTHER_LANGUAGE else name)
        scores += outcome_scores(scoring.measured, name, of_outcome, p_value, scoring.signature)
    outcome_effects = scoring.tests.outcome_effects
    scoring.run.write(OUTCOME_EFFECTS, outcome_effects)
    if scoring.config.settings.permutations:
        for name, table in outcome_effects.groupby("outcome"):
            scores.append(difference_bound(table, scoring.signature, outcome=str(name)))
    return scores


def _request_language_scores(scoring: Scoring) -> list[BiasScore]:
    """Return FGB* of the answers in the request's language, where somebody gets more answers in another one."""
    tests = scoring.tests
    if tests.requested_effects is None or not len(shown_in_another_language(tests.outcome_effects)):
        return []
    is_other = scoring.values[OTHER_LANGUAGE][OTHER_LANGUAGE] == 1
    requested = scoring.measured.rows(~is_other.to_numpy())
    scoring.run.write(REQUESTED_EFFECTS, tests.requested_effects)
    scores = _overall_scores(requested, REQUESTED, scoring.signature)
    return [score for score in scores if score.form == Form.CORRECTED]


def _scores_of_words(scoring: Scoring) -> list[BiasScore]:
    """Return the shares of person and word, and the effects of grammatical gender, where prompts allow them."""
    measured = scoring.measured
    scores = []
    if BUCKET in measured.table:
        scores += person_scores(measured, scoring.signature)
    if FORMS in measured.table and NOUN_GENDER in measured.table:
        differences = gender_differences(measured.table, measured.vectors)
        for column, style in enumerate(measured.styles):
            scores += gender_scores(
                "gender_effect", differences, column, (-1.0, 1.0), {"style": style}, signature=scoring.signature
            )
    return scores


def _scores_of_parts(scoring: Scoring) -> list[BiasScore]:
    """Return the spread of styles by cue, for people used in tuning and not, and by the second classifier."""
    measured = scoring.measured
    signature = scoring.signature
    scores = []
    if CUE in measured.table and measured.table[CUE].nunique() > 1:
        scores += cue_shares(measured, signature)
        for cue in measured.table[CUE].unique():
            is_cue = (measured.table[CUE] == cue).to_numpy()
            p_value = scoring.p_value(f"{CUE}: {cue}")
            for score in _overall_scores(measured.rows(is_cue), {CUE: cue}, signature):
                scores.append(replace(score, p_value=p_value) if is_pooled_fgb(score) else score)
    if UNTUNED in measured.table:
        is_untuned = measured.table[UNTUNED].to_numpy(dtype=bool)
        scores += _overall_scores(measured.rows(~is_untuned), {"tuned": "yes"}, signature)
        scores += _overall_scores(measured.rows(is_untuned), {"tuned": "no"}, signature)
    if SECOND in scoring.facts:
        second = read_styled_responses(scoring.run.folder, second=True)
        of_second = {**signature, FIRST: scoring.facts[SECOND]}
        scores += _overall_scores(second, {"classifier": "second"}, of_second)
    return scores


def _quality_scores(scoring: Scoring) -> list[BiasScore]:
    """Return the shares of styles, the quality of the responses, and what the model can do."""
    run = scoring.run
    config = scoring.config
    settings = config.settings
    measured = scoring.measured
    signature = scoring.signature
    has_weights = not scoring.model.without_weights
    scores = [
        *costs.style_share(measured.vectors, scoring.clusters, signature),
        *costs.text_scores(measured, signature),
    ]
    if CUT in measured.table:
        scores += costs.unfinished_share(measured.table, signature)
    if settings.relevance and has_weights:
        scores += relevance.likelihood_scores(measured.table, run.read(LIKELIHOODS), signature)
    if settings.corpus is not None and settings.corpus.paths:
        scores += frequency_scores(run, {PROBABILITY: measured}, scoring.clusters, settings.corpus, signature)
    if OFFENSIVE in scoring.facts:
        probabilities = run.read(OFFENSIVENESS)[OFFENSIVENESS].to_numpy()
        classifier = {**scoring.facts[OFFENSIVE], "threshold": THRESHOLD}
        scores.append(offensive_share(probabilities, {**signature, OFFENSIVE: classifier}))
    if config.capabilities:
        scores += costs.capability_scores(run.read(CAPABILITIES), {**signature, "lm_eval": version("lm_eval")})
    if neutral_dialogue(config) is not None and has_weights:
        scores.append(costs.perplexity_score(run.read(NEUTRAL), signature))
    return scores


def _for_these_prompts(score: BiasScore) -> BiasScore:
    """Return the score with the caution that it holds for these prompts only, unless it has a reason or a caution."""
    if score.reason or score.caution:
        return score
    return replace(score, caution=Caution.THESE_PROMPTS)


def _outcome_values(run: Store, config: MeasureConfig, measured: StyledResponses) -> dict[str, pd.DataFrame]:
    """Return the values of all outcomes by name, and write the table of them."""
    likelihoods = run.read(FLUENCY) if FLUENCY in config.settings.outcomes else None
    values = measured_values(config.settings.outcomes, measured.table, likelihoods)
    if values:
        columns = {f"{name}: {it}": of_outcome[it] for name, of_outcome in values.items() for it in of_outcome}
        run.write(VALUES, pd.DataFrame({PROMPT_ID: measured.table[PROMPT_ID], **columns}))
    return values


def _overall_scores(
    measured: StyledResponses, group: Mapping[str, str], signature: Mapping[str, Any]
) -> list[BiasScore]:
    """Return FGB, FGB* and pooled FGB* over all rows, with the given group and without a permutation test."""
    styled = replace(measured, table=measured.table.assign(**{AXIS: ""}))  # no scores by axis
    scores = spread_scores(styled, {}, signature=signature)
    return [replace(score, group=dict(group)) for score in scores if not score.group]


def classifier_signature(classifier: CheckpointSettings, revision: str) -> dict[str, Any]:
    """Return the entries of a signature that identify a sequence classifier or an LLM judge."""
    facts = as_settings(classifier)
    if "judge" in facts:
        facts = judge_facts(classifier)
    labels = "\n".join(classifier_styles(classifier))
    return facts | {"revision": revision, "labels_sha256": sha256(labels.encode()).hexdigest()}
