"""The command `tune`: training of a model on labelled responses with one method, and bias during training."""

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial

import numpy as np
import torch

from evenhand.evaluation.datasets.neutral_dialogue import load_neutral_dialogue
from evenhand.evaluation.errors import rejects_tuning
from evenhand.evaluation.families import MeasureConfig
from evenhand.evaluation.families.generation_bias.collect.classification import classify_responses
from evenhand.evaluation.families.generation_bias.collect.expected_work import LIKELIHOOD_COST, TRAINING_COST
from evenhand.evaluation.families.generation_bias.collect.responses import respond
from evenhand.evaluation.families.generation_bias.collect.rows import StyledRun, read_styled_run
from evenhand.evaluation.families.generation_bias.settings import neutral_dialogue
from evenhand.evaluation.models.contexts import render_contexts
from evenhand.evaluation.models.decoding import decoding
from evenhand.evaluation.models.loading import DialogueModel, load_dialogue_model
from evenhand.evaluation.models.revisions import ADAPTER_FOLDER
from evenhand.evaluation.models.styles import StyleClassifier, load_style_classifier
from evenhand.evaluation.results import (
    AXIS,
    CUT,
    DESCRIPTOR,
    LABEL,
    PROMPT_ID,
    RESPONSE,
    STYLE_VECTOR,
    TEMPLATE,
    TEXT,
    WEIGHT,
)
from evenhand.evaluation.runs import processes
from evenhand.evaluation.runs.files import write_json
from evenhand.evaluation.runs.progress import planned_work, progress
from evenhand.evaluation.runs.stage import stage
from evenhand.evaluation.runs.tables import read_table
from evenhand.evaluation.statistics.cells import arrange_cells, to_codes
from evenhand.evaluation.statistics.u_statistics import descriptor_spread
from evenhand.mitigation.labelling.page import THRESHOLD
from evenhand.mitigation.methods import RewardFunction, load_trained_method
from evenhand.mitigation.training.callbacks import BiasCallback
from evenhand.mitigation.training.checks import check_tuning, with_defaults
from evenhand.mitigation.training.data import TuningData, hold_out
from evenhand.mitigation.training.page import CURVES
from evenhand.mitigation.training.tune import TuningResult
from evenhand.mitigation.training.tune import tune as train
from evenhand.recipes.finished_runs import check_trust, labelled_run
from evenhand.recipes.label import LABELS
from evenhand.recipes.settings import FAMILY, TuneSettings, measure_config

log = logging.getLogger("evenhand")

BIAS_NAME = "bias/fgb_pooled_corrected"
CALLBACK_PER_CELL = 2  # responses per cell; pooled FGB* needs at least two


def tune(settings: TuneSettings) -> None:
    """Tune the model on its labelled responses; write the adapter and the training curves.

    Raises:
        InputError: the method trains nothing, the responses changed after labelling, or the model or the rows do not
            fit the method.
    """
    method = load_trained_method(settings.method)
    responses_folder, measured, labels_fingerprint = processes.on_rank_zero(lambda: labelled_run(settings))
    check_trust(measured, settings.trust_remote_code, "labels")
    config = measure_config(measured, FAMILY)
    model = config.resolved_model
    training = with_defaults(model, method, settings.training)
    if None in (settings.training.learning_rate, settings.training.preference_learning_rate):
        log.info("tune: learning rate %.3g", training.learning_rate)
    check_tuning(model, method, training)
    inputs = {"labels": labels_fingerprint, "settings": asdict(training)}
    with stage("tune", settings, inputs) as run:
        if run is None:
            return
        base = load_dialogue_model(model)
        if base.kind == "chat" and settings.method == "exchange":
            log.warning(
                "tune: exchange trains on responses to other people; a chat model may learn not to listen. Compare "
                "relevance_kept with the method balance."
            )
        responses = read_styled_run(responses_folder)
        labels = read_table(settings.labels / f"{LABELS}.parquet", [PROMPT_ID, LABEL, WEIGHT])
        columns = {RESPONSE: responses.responses, CUT: responses.is_cut, STYLE_VECTOR: list(responses.vectors[:])}
        labelled = responses.prompts.assign(**columns).merge(labels, on=PROMPT_ID, validate="one_to_one")
        run.facts["share_cut"] = float(labelled[CUT].mean())
        if labelled[CUT].any():
            share = 100 * run.facts["share_cut"]
            log.info("%.0f %% of the responses were cut at max_new_tokens; no ending is trained for them", share)
        with rejects_tuning():
            rows = method.rows(labelled, partial(render_contexts, base), settings.seed)
            fraction, max_rows = training.validation_fraction, training.max_rows
            train_rows, validation_rows = hold_out(rows, fraction, settings.seed, max_rows)
        rewards: Sequence[RewardFunction] = ()
        if method.rewards is not None:
            rewards = method.rewards(base, _first_classifier(config), training.relevance_weight)
        data = TuningData(
            method=settings.method,
            train=train_rows,
            validation=validation_rows,
            trainer=method.TRAINER,
            control_tag=method.INFERENCE_TAG,
            tags=method.TAGS,
            rewards=rewards,
        )
        callbacks = []
        if settings.measure_every and processes.shards_model():
            log.warning("tune: measure_every is ignored because the model is sharded over processes")
        elif settings.measure_every:
            measure = bias_during_training(base, responses, method.INFERENCE_TAG, config, settings.measure_descriptors)
            callbacks.append(BiasCallback(measure, settings.measure_every))
        neutral = _neutral_dialogue(config)
        n_checked = len(validation_rows if neutral is None else neutral[0])
        costs = {"tuning": TRAINING_COST * len(train_rows) * training.epochs}
        costs |= {f"perplexity of the {model}": LIKELIHOOD_COST * n_checked for model in ("base", "tuned model")}
        with run.step("training"), planned_work(costs):
            result = train(
                base,
                data,
                training,
                run.folder,
                seed=settings.seed,
                neutral=neutral,
                callbacks=callbacks,
                report_to=settings.report_to,
                run_name=settings.group,
                card=json.loads((settings.labels / THRESHOLD).read_text(encoding="utf-8")),
            )
        bias = result.measured.get(BIAS_NAME, ())
        curves = {"train_loss": result.train_losses, "validation_loss": result.validation_losses, "bias": bias}
        processes.on_rank_zero(lambda: write_json(run.folder / CURVES, curves))
        run.facts |= _facts(result)
        run.tracker.log_artifact("adapter", "model", run.folder / ADAPTER_FOLDER)


def bias_during_training(
    base: DialogueModel, responses: StyledRun, tag: str, config: MeasureConfig, n_descriptors: int
) -> Callable[[torch.nn.Module], Mapping[str, float]]:
    """Return a function that measures pooled FGB* of a model during training, on a small fixed sample of prompts."""
    prompts = responses.prompts
    sample = np.random.default_rng(0).permutation(np.unique(prompts[DESCRIPTOR]))[:n_descriptors]
    prompts = prompts[prompts[DESCRIPTOR].isin(sample)]
    prompts = prompts.groupby([TEMPLATE, AXIS, DESCRIPTOR]).head(CALLBACK_PER_CELL).reset_index(drop=True)
    template, descriptor = to_codes(prompts[TEMPLATE]), to_codes(prompts[DESCRIPTOR])
    classifier = _first_classifier(config)
    arguments = decoding(config.decoding.preset, **config.decoding.arguments)

    def measure(model: torch.nn.Module) -> dict[str, float]:
        current = replace(base, model=model)
        batch_size = config.decoding.batch_size
        with progress(len(prompts), "bias during training", "responses"):
            answered = respond(current, prompts, tag, arguments, seed=config.seed, batch_size=batch_size)
        vectors = classify_responses(classifier, answered[RESPONSE].tolist(), prompts[DESCRIPTOR].tolist())
        return {BIAS_NAME: descriptor_spread(arrange_cells(vectors, template, descriptor), pooled=True).corrected.value}

    return measure


def _first_classifier(config: MeasureConfig) -> StyleClassifier:
    """Return the first style classifier of a measurement; the second is for evaluation only."""
    first = config.settings.style_classifier
    return load_style_classifier(replace(first, name=config.resolve_name(first.name, "style_classifier")))


def _neutral_dialogue(config: MeasureConfig) -> tuple[list[str], list[str]] | None:
    """Return the prompts and the responses of the neutral dialogue; None if no file is configured."""
    path = neutral_dialogue(config)
    if path is None:
        return None
    pairs = load_neutral_dialogue(path)
    return pairs[TEXT].tolist(), pairs[RESPONSE].tolist()


def _facts(result: TuningResult) -> dict[str, object]:
    """Return the facts about a training that the run's manifest records."""
    return {
        "rows": {"train": result.n_train, "validation": result.n_validation},
        "trainable_parameters": result.trainable_parameters,
        "best_step": result.best_step,
        "stopped_early": result.stopped_early,
        "perplexity": result.perplexity,
        "outputs_changed": {name: getattr(result.change, name) for name in ("greedy_share", "max_logit_change")},
    }
