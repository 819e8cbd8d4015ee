"""Measurement of generation bias: the responses and what classifiers say about them, and the joint tests of all parts.

At most 5 of 100 reports on even models show anything, since everything that a report calls shown is tested jointly
(`statistics.permutation`): whether people differ at all, and what each part tests.
"""

import logging
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from evenhand.evaluation import processes
from evenhand.evaluation.data.other_people import with_partners
from evenhand.evaluation.data.style_clusters import default_clusters, load_style_clusters
from evenhand.evaluation.errors import InputError
from evenhand.evaluation.files import sha256_of
from evenhand.evaluation.manifest import package_versions
from evenhand.evaluation.metrics import MeasureConfig
from evenhand.evaluation.metrics.generation_bias.accepted import configured_accepted
from evenhand.evaluation.metrics.generation_bias.classifiers import (
    STYLE_CLASSIFIER,
    classifier_signature,
    classifiers,
    classify,
)
from evenhand.evaluation.metrics.generation_bias.early_stop import read_stop
from evenhand.evaluation.metrics.generation_bias.interim_looks import (
    answer_until_decided,
    record_saved_requests,
    record_that_all_is_asked,
)
from evenhand.evaluation.metrics.generation_bias.parts import EVERYBODY, AnsweredRun, ClassifiedRun, JointTests, Part
from evenhand.evaluation.metrics.generation_bias.parts.outcomes import FILTERED, FLUENCY, measured_values
from evenhand.evaluation.metrics.generation_bias.people import compared_people
from evenhand.evaluation.metrics.generation_bias.prompts import asked_prompts, check_repeated_prompts, dataset_signature
from evenhand.evaluation.metrics.generation_bias.so_far import AnswersSoFar
from evenhand.evaluation.metrics.generation_bias.stopping_question import question_of
from evenhand.evaluation.metrics.generation_bias.styled_responses import (
    ACCEPTED,
    PROMPTS,
    RESPONSES,
    read_styled_responses,
)
from evenhand.evaluation.models.base import CANDIDATES, Model
from evenhand.evaluation.models.capabilities import load_tasks
from evenhand.evaluation.models.served import ANSWERED_BY
from evenhand.evaluation.score import DESCRIPTOR, LEFT_OUT, PROMPT_ID, RESPONSE, TEXT
from evenhand.evaluation.statistics.effects import family_effects
from evenhand.evaluation.statistics.permutation import FamilyOfTests
from evenhand.evaluation.store import Store
from evenhand.evaluation.tables import table_rows

log = logging.getLogger("evenhand")

MAX_SAMPLES_TRACKED = 200
MODEL_FACTS = "model_facts"  # the file of the signature's entries on model and decoding


def collect(store: Store, config: MeasureConfig, parts: Sequence[Part]) -> dict[str, Any]:
    """Write the tables of prompts, responses and style vectors, and the tables of the parts that need the model.

    Returns:
        The signature's entries on model, dataset and decoding.

    Raises:
        InputError: a setting does not fit the model or the prompts, or all responses are empty.
    """
    load_tasks(config.capabilities)  # raises for an unknown task before hours of generation
    model = config.open_model()
    question = question_of(config.settings)
    if question is None:
        record_that_all_is_asked(store)
        store.ensure(PROMPTS, lambda: asked_prompts(config))
        prompts = store.read(PROMPTS)
    else:
        prompts = asked_prompts(config)
    check_repeated_prompts(config, model, prompts)
    if config.prompts.cues and not model.is_chat:
        raise InputError("prompts.cues", f"{model.name} is no chat model; leave cues out, or give a chat model.")
    signature = processes.on_rank_zero(lambda: store.keep_facts(MODEL_FACTS, model.facts))
    numbers = None
    if question is None:
        store.ensure(RESPONSES, lambda: _responses(store, model, prompts), on_all_ranks=True)
    else:
        numbers = answer_until_decided(store, config, question, prompts, partial(_responses, store, model, prompts))
        prompts = store.read(PROMPTS)
    answered = store.read(RESPONSES)
    responses = answered[RESPONSE].tolist()
    check_nonempty(responses)
    if not model.without_weights:
        run = AnsweredRun(store, config, model, prompts, responses)
        for part in parts:
            part.collect(run)
    model.close()
    _note_left_out(store, answered)
    names = _names_in_answers(config, model, answered)
    if names:
        signature["model"]["answered_by"] = names
    classify(store, config, numbers)
    if question is not None:
        record_saved_requests(store, config)
    if config.settings.accepted is not None:
        store.ensure(ACCEPTED, lambda: configured_accepted(config))
    return {**signature, "dataset": {**dataset_signature(config.prompts), **signature.get("dataset", {})}}


def _note_left_out(store: Store, answered: pd.DataFrame) -> None:
    """Note in the record of the run how many answers are left out, by the reason."""
    left_out = answered[LEFT_OUT].dropna()
    if len(left_out):
        store.facts["left_out"] = left_out.value_counts(sort=False).to_dict()


def _names_in_answers(config: MeasureConfig, model: Model, answered: pd.DataFrame) -> list[str]:
    """Return, with a warning, the models that a server's answers name; [] if they name the one that was asked."""
    if ANSWERED_BY not in answered:
        return []
    names = sorted(set(answered[ANSWERED_BY]))
    if names == [model.name]:
        return []
    log.warning("%s: asked for %r, the answers name %s", config.model.server, model.name, ", ".join(names))
    return names


def _responses(store: Store, model: Model, prompts: pd.DataFrame, numbers: np.ndarray | None = None) -> pd.DataFrame:
    """Return the response to each prompt, or to the ones with these numbers; write candidates, if there are any."""
    asked = with_partners(prompts, model.seed) if model.needs_partners else prompts
    model.check(asked)
    if numbers is not None:
        asked = asked.iloc[numbers]
    so_far = AnswersSoFar(prompts, store.tracker)
    rows = store.rows(RESPONSES, asked, model.respond, unit="responses", numbers=numbers, watch=so_far.add)
    if CANDIDATES not in rows:
        return rows
    candidates = rows[[PROMPT_ID, CANDIDATES]].explode(CANDIDATES).rename(columns={CANDIDATES: RESPONSE})
    number = candidates.groupby(level=0).cumcount()
    store.write(CANDIDATES, candidates.assign(candidate=number).reset_index(drop=True))
    return rows.drop(columns=CANDIDATES)


def check_nonempty(responses: Sequence[str]) -> None:
    """Raise InputError if no response has any text."""
    if not any(response.strip() for response in responses):
        raise InputError(
            "responses",
            f"all {len(responses)} are empty or end within the model's reasoning; check the model, its tag "
            "and decoding.arguments: a reasoning model needs a larger max_new_tokens.",
        )


def read_classified_run(store: Store, config: MeasureConfig, collected: Mapping[str, Any]) -> ClassifiedRun:
    """Return the responses of a measurement with all that the parts score; `collected` is the result of `collect`."""
    settings = config.settings
    responses = read_styled_responses(store.folder)
    facts = {}
    for name, classifier in classifiers(config).items():
        facts[name] = classifier_signature(classifier, str(store.inputs[name]))
    facts[STYLE_CLASSIFIER]["clusters"] = settings.style_clusters or default_clusters(responses.styles)
    signature = {
        **collected,
        "dataset": {**collected["dataset"], "sha256": sha256_of(store.folder / f"{PROMPTS}.parquet")},
        STYLE_CLASSIFIER: facts[STYLE_CLASSIFIER],
        "inputs": dict(store.inputs),
        "seed": config.seed,
        "packages": package_versions(),
    }
    if settings.accepted is not None:
        signature[ACCEPTED] = table_rows(store.read(ACCEPTED).drop(columns="styles"))
    likelihoods = store.read(FLUENCY) if FLUENCY in settings.outcomes else None
    return ClassifiedRun(
        store=store,
        config=config,
        responses=responses,
        clusters=load_style_clusters(settings.style_clusters, responses.styles),
        outcomes=measured_values(settings.outcomes, responses.table, likelihoods),
        signature=signature,
        classifiers=facts,
        stop=read_stop(store),
    )


def joint_tests(run: ClassifiedRun, parts: Sequence[Part]) -> JointTests:
    """Return the tests of all parts, adjusted for each other, and the test that people differ in style at all."""
    permutations = run.allowed_error.draws(run.config.settings.permutations)
    has_value = run.responses.has_vector()
    if FILTERED in run.outcomes:  # whoever is always filtered has no style
        has_value = np.ones(len(run.responses), dtype=bool)
    elif not has_value.any():  # the classifier reads another language than the responses have
        has_value = run.responses.is_nonempty()
    people = compared_people(run.responses, run.responses.groups(), has_value)
    if people is None:
        return JointTests(None, {}, {}, has_permutations=permutations > 0)
    families = [FamilyOfTests(EVERYBODY, people.responses.vectors, has_effects=False)]
    for part in parts:
        families += part.families(run, people)
    rng = np.random.default_rng(run.config.seed)
    found = family_effects(people.design, families, permutations, rng, run.allowed_error)
    names = [family.name for family in families]
    return JointTests(
        people=people,
        families=dict(zip(names, families, strict=True)),
        found=dict(zip(names, found, strict=True)),
        has_permutations=permutations > 0,
    )


def track_samples(run: ClassifiedRun) -> None:
    """Send some responses to the tracker."""
    sampled = np.random.default_rng(0).permutation(len(run.responses))[:MAX_SAMPLES_TRACKED]
    run.store.tracker.log_samples(run.responses.table.iloc[sampled][[DESCRIPTOR, TEXT, RESPONSE]])
