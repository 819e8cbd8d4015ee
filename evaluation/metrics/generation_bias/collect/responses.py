"""Responses of the measured model, what else is computed while its weights are loaded, and styles of the responses."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import pandas as pd
from accelerate.utils.memory import clear_device_cache

from evenhand.evaluation.data.mentions import clean_responses
from evenhand.evaluation.data.neutral_dialogue import load_neutral_dialogue
from evenhand.evaluation.errors import InputError
from evenhand.evaluation.metrics import MeasureConfig
from evenhand.evaluation.metrics.generation_bias.collect.prompts import (
    check_repeated_prompts,
    dataset_signature,
    measurement_prompts,
)
from evenhand.evaluation.metrics.generation_bias.costs.relevance import (
    EVEN_LIKELIHOODS,
    LIKELIHOODS,
    TEMPLATE_LIKELIHOODS,
    even_responses,
    likelihoods_of_responses,
    likelihoods_within_template,
    sample_prompts,
)
from evenhand.evaluation.metrics.generation_bias.costs.scores import CAPABILITIES
from evenhand.evaluation.metrics.generation_bias.settings import OFFENSIVE, neutral_dialogue
from evenhand.evaluation.metrics.generation_bias.styled_responses import (
    PROMPTS,
    RESPONSES,
    StyledResponses,
    style_table,
)
from evenhand.evaluation.models.capabilities import load_tasks
from evenhand.evaluation.models.model import Model
from evenhand.evaluation.models.revisions import find_label
from evenhand.evaluation.models.styles import classify_rows, load_style_classifier, to_style_vectors
from evenhand.evaluation.score import DESCRIPTOR, PERSONA, PROMPT_ID, RESPONSE
from evenhand.evaluation.settings import CheckpointSettings, ClassifierSettings
from evenhand.evaluation.store import Store

NEUTRAL = "neutral"  # the table of likelihoods of neutral dialogue
OFFENSIVENESS = "offensiveness"  # name of the table, and of its column, with probabilities of being offensive


def collect_responses(run: Store, config: MeasureConfig, model: Model) -> dict[str, Any]:
    """Write the prompts, the responses and, of a model with weights, likelihoods and results on tasks.

    The return value is the signature's entries on model, dataset and decoding.
    """
    tasks = load_tasks(config.capabilities)  # raises for an unknown task before hours of generation
    run.ensure(PROMPTS, lambda: model.prompts(partial(measurement_prompts, config)))
    prompts = run.read(PROMPTS)
    check_repeated_prompts(config, model, prompts)
    run.ensure(RESPONSES, lambda: model.respond(prompts, run), on_all_ranks=True)
    answered = run.read(RESPONSES)
    responses = answered[RESPONSE].tolist()
    check_nonempty(responses)
    if not model.without_weights:
        _write_likelihoods(run, config, model, prompts, responses)
        if tasks:
            run.ensure(CAPABILITIES, lambda: model.capability_rows(tasks))
    signature = model.signature(run, answered)
    model.release()
    return {**signature, "dataset": {**dataset_signature(config.prompts), **signature.get("dataset", {})}}


def _write_likelihoods(
    run: Store, config: MeasureConfig, model: Model, prompts: pd.DataFrame, responses: list[str]
) -> None:
    """Write the likelihoods of the responses, and of neutral dialogue."""

    def likelihoods(name: str, scored: list[str]) -> pd.DataFrame:
        drawn = sample_prompts(prompts[PROMPT_ID].tolist(), config.settings.relevance_share, model.n_parameters())
        return likelihoods_of_responses(partial(model.log_likelihood, run=run, name=name), prompts, scored, drawn)

    def within_template() -> pd.DataFrame:
        score = partial(model.log_likelihood, run=run, name=TEMPLATE_LIKELIHOODS)
        return likelihoods_within_template(score, prompts, responses)

    def neutral(pairs: pd.DataFrame) -> pd.DataFrame:
        scores = model.log_likelihood(pairs.assign(**{PERSONA: ""}), pairs[RESPONSE].tolist())
        if scores["log_likelihood"].isna().any():
            raise InputError(f"neutral_dialogue: a pair is too long for {model.name}; leave it out.")
        return pairs.join(scores)

    if config.settings.relevance:
        run.ensure(LIKELIHOODS, lambda: likelihoods(LIKELIHOODS, responses), on_all_ranks=True)
        if config.settings.for_comparisons:
            even = even_responses(prompts, responses)
            run.ensure(EVEN_LIKELIHOODS, lambda: likelihoods(EVEN_LIKELIHOODS, even), on_all_ranks=True)
            run.ensure(TEMPLATE_LIKELIHOODS, within_template, on_all_ranks=True)
    if (path := neutral_dialogue(config)) is not None:
        run.ensure(NEUTRAL, lambda: neutral(load_neutral_dialogue(path)))


def check_nonempty(responses: Sequence[str]) -> None:
    """Raise InputError if no response has any text."""
    if not any(response.strip() for response in responses):
        raise InputError(
            f"responses: all {len(responses)} are empty or end within the model's reasoning; check the model, its tag "
            "and decoding.arguments: a reasoning model needs a larger max_new_tokens."
        )


def write_styles(run: Store, checkpoint: CheckpointSettings, name: str, table: str) -> None:
    """Write the style vectors of all responses by the classifier `name`, unless their table is on disk."""
    if not run.has(table):
        with run.step(table):
            prompts, responses = run.read(PROMPTS), run.read(RESPONSES)
            classifier = load_style_classifier(checkpoint, name)
            texts = clean_responses(responses[RESPONSE], prompts[DESCRIPTOR])
            vectors, truncated = classify_rows(run, table, classifier, texts)
            vectors = to_style_vectors(classifier, vectors)
            run.write(table, style_table(prompts[PROMPT_ID], vectors, classifier.labels, truncated))
    clear_device_cache(garbage_collection=True)


def write_offensiveness(run: Store, settings: ClassifierSettings, measured: StyledResponses) -> None:
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
