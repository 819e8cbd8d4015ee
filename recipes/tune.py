"""Tune: labelled responses → rows of a method → TRL trainer → adapter, measured on the way."""

import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from types import ModuleType

import numpy as np
import torch

import mitigation.methods
from evaluation.errors import InputError
from evaluation.files import write_json
from evaluation.generation import decoding, render_contexts
from evaluation.models import DialogueModel, load_dialogue_model
from evaluation.results import AXIS, DESCRIPTOR, LABEL, PROMPT_ID, RESPONSE, TEMPLATE, TEXT
from evaluation.statistics import arrange_cells, descriptor_spread
from evaluation.styles import load_style_classifier
from mitigation.training import ADAPTER, BiasCallback, hold_out
from mitigation.training import tune as train
from recipes import testbed
from recipes.config import MeasureConfig, TuneConfig, checked, resolve
from recipes.costs import neutral_pairs
from recipes.label import LABELS, THRESHOLD
from recipes.measuring.generation_bias import classify, respond
from recipes.rooms import module_named
from recipes.runs import read_run, stage
from recipes.tables import StyledRun, read_styled_run, read_table

log = logging.getLogger("evenhand")

CURVES = "curves.json"
BIAS_NAME = "bias/fgb_pooled_corrected"
CALLBACK_PER_CELL = 2  # pooled FGB* needs two responses to a cell; a trend does not need more


def tune(config: TuneConfig) -> None:
    """Tune the model whose responses were labelled; write the adapter and the curves."""
    method = load_method(config.method)
    _, label_manifest = read_run(config.labels, "label", "labels")
    responses_folder = Path(label_manifest["responses"])
    measure_settings, measure_manifest = read_run(responses_folder, "measure", "labels")
    if measure_manifest["fingerprint"] != label_manifest["inputs"]["responses"]:
        raise InputError(f"labels: {responses_folder} was measured anew since; label it again.")
    measured = checked(
        MeasureConfig,
        {key: value for key, value in measure_settings.items() if key not in ("command", "inputs")},
        str(responses_folder),
    )
    settings = config.training.filled_in(method)
    with stage("tune", config, {"labels": label_manifest["fingerprint"], "settings": asdict(settings)}) as run:
        if run is None:
            return
        base = load_dialogue_model(
            resolve(measured.model, testbed.DIALOGUE_MODEL),
            revision=measured.revision,
            trust_remote_code=measured.trust_remote_code,
        )
        responses = read_styled_run(responses_folder)
        labelled = responses.prompts.assign(response=responses.responses).merge(
            read_table(config.labels / LABELS)[[PROMPT_ID, LABEL]], on=PROMPT_ID, validate="one_to_one"
        )
        rows = method.rows(labelled, partial(render_contexts, base), settings.seed)
        train_rows, validation_rows = hold_out(rows, settings.validation_fraction, settings.seed, settings.max_rows)
        neutral = None
        if measured.neutral_dialogue is not None:
            pairs = neutral_pairs(measured.neutral_dialogue)
            neutral = pairs[TEXT].tolist(), pairs[RESPONSE].tolist()
        callbacks = []
        if config.measure_every:
            measure = bias_during_training(base, responses, method.INFERENCE_TAG, measured, config.measure_descriptors)
            callbacks.append(BiasCallback(measure, config.measure_every))
        with run.step("training"):
            result = train(
                base,
                train_rows,
                validation_rows,
                settings,
                config.output_dir,
                method=config.method,
                trainer=method.TRAINER,
                control_tag=method.INFERENCE_TAG,
                tags=method.TAGS,
                neutral=neutral,
                callbacks=callbacks,
                report_to=config.report_to,
                run_name=config.group,
                card=json.loads((config.labels / THRESHOLD).read_text(encoding="utf-8")),
            )
        curves = {
            "train_loss": result.train_losses,
            "validation_loss": result.validation_losses,
            "bias": result.measured.get(BIAS_NAME, ()),
        }
        write_json(config.output_dir / CURVES, curves)
        run.facts |= {
            "signature": label_manifest["signature"],
            "rows": {"train": result.n_train, "validation": result.n_validation},
            "trainable_parameters": result.trainable_parameters,
            "best_step": result.best_step,
            "stopped_early": result.stopped_early,
            "perplexity": result.perplexity,
            "outputs_changed": {
                "greedy_share": result.change.greedy_share,
                "max_logit_change": result.change.max_logit_change,
            },
        }
        run.tracker.artifact("adapter", "model", config.output_dir / ADAPTER)


def load_method(name: str) -> ModuleType:
    """Return the module of mitigation/methods with this name.

    Raises:
        InputError: there is none.
    """
    return module_named(mitigation.methods, name, "method")


def bias_during_training(
    base: DialogueModel, responses: StyledRun, tag: str, measured: MeasureConfig, n_descriptors: int
) -> Callable[[torch.nn.Module], Mapping[str, float]]:
    """Return what measures pooled FGB* of the model in training, on a small fixed part of the train prompts."""
    names = np.unique(responses.prompts[DESCRIPTOR])
    chosen = np.random.default_rng(0).permutation(names)[:n_descriptors]
    prompts = responses.prompts[responses.prompts[DESCRIPTOR].isin(chosen)]
    prompts = prompts.groupby([TEMPLATE, AXIS, DESCRIPTOR]).head(CALLBACK_PER_CELL).reset_index(drop=True)
    template, descriptor = (np.unique(prompts[name], return_inverse=True)[1] for name in (TEMPLATE, DESCRIPTOR))
    classifier = load_style_classifier(resolve(measured.style_classifier, testbed.STYLE_CLASSIFIER))
    arguments = decoding(measured.decoding, **measured.decoding_arguments)

    def measure(model: torch.nn.Module) -> dict[str, float]:
        model_now = replace(base, model=model)
        texts = respond(model_now, prompts, tag, arguments, measured.seed, measured.batch_size)
        vectors = classify(classifier, texts, prompts[DESCRIPTOR].tolist(), quiet=True)
        cells = arrange_cells(vectors, template, descriptor)
        return {BIAS_NAME: descriptor_spread(cells, pooled=True).corrected.value}

    return measure
