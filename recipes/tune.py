"""The command `tune`: training of a model on labelled responses with one method, and bias during training."""

import json
import logging
from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd

from evenhand.evaluation import processes
from evenhand.evaluation.data.neutral_dialogue import load_neutral_dialogue
from evenhand.evaluation.errors import InputError, rejects_tuning
from evenhand.evaluation.families import MeasureConfig
from evenhand.evaluation.families.generation_bias.settings import neutral_dialogue
from evenhand.evaluation.families.generation_bias.styled_responses import StyledResponses, read_styled_responses
from evenhand.evaluation.files import write_json
from evenhand.evaluation.models.contexts import chat_messages, render_contexts
from evenhand.evaluation.models.decoding import decoding
from evenhand.evaluation.models.loading import DialogueModel, load_dialogue_model
from evenhand.evaluation.models.revisions import ADAPTER_FOLDER
from evenhand.evaluation.models.styles import StyleClassifier, load_style_classifier
from evenhand.evaluation.score import (
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
from evenhand.evaluation.store import stage
from evenhand.evaluation.tables import read_table
from evenhand.mitigation.labelling.labelled_responses import ContextRenderer
from evenhand.mitigation.methods import Method, load_method
from evenhand.mitigation.training.bias_callback import BIAS_NAME, BiasCallback
from evenhand.mitigation.training.checks import check_tuning, default_methods, with_defaults
from evenhand.mitigation.training.data import TuningData, hold_out
from evenhand.mitigation.training.page import CURVES
from evenhand.mitigation.training.row_files import write_rows
from evenhand.mitigation.training.settings import TuningSettings
from evenhand.mitigation.training.tune import TuningResult
from evenhand.mitigation.training.tune import tune as train
from evenhand.recipes.finished_runs import check_trust, labelled_run, split_warnings
from evenhand.recipes.label import LABELS, THRESHOLD
from evenhand.recipes.settings import FAMILY, TuneSettings, measure_config

log = logging.getLogger("evenhand")

CALLBACK_PER_CELL = 2  # responses per cell; pooled FGB* needs at least two


def tune(settings: TuneSettings) -> None:
    """Tune the model on its labelled responses; write the adapter and the training curves.

    Raises:
        InputError: the method trains nothing, the responses changed after labelling, or the model or the rows do not
            fit the method.
    """
    if settings.method:
        load_method(settings.method).check_trains()  # before any run is read
    if settings.write_rows is not None and settings.write_rows.exists():
        raise InputError(f"write_rows: {settings.write_rows} exists; give another folder.")
    responses_folder, measured, labels_fingerprint = processes.on_rank_zero(lambda: labelled_run(settings))
    check_trust(measured, settings.trust_remote_code, "labels")
    for warning in split_warnings(measured, responses_folder):
        log.warning("tune: %s", warning)
    config = measure_config(measured, FAMILY)
    model = config.model
    name = settings.method or default_methods(model)[0]
    method = load_method(name)
    training = with_defaults(model, method, settings.training)
    chosen = {field: value for field, value in asdict(training).items() if value != getattr(settings.training, field)}
    if chosen := {**({} if settings.method else {"method": name}), **chosen}:
        log.info("tune: chosen for this model: %s", ", ".join(f"{field} {value}" for field, value in chosen.items()))
    check_tuning(model, method, training)
    settings = replace(settings, method=name, training=training)
    if settings.write_rows is not None:
        processes.on_rank_zero(lambda: _write_rows(settings, responses_folder, config, method, training))
        return
    with stage("tune", settings, {"labels": labels_fingerprint}) as run:
        if run is None:
            return
        base = _load_base(settings, config)
        responses = read_styled_responses(responses_folder)
        labelled = _labelled_responses(settings, responses)
        run.facts["share_cut"] = float(labelled[CUT].mean())
        data = _tuning_data(settings, labelled, partial(render_contexts, base), method, training)
        callbacks = []
        if settings.measure_every and processes.shards_model():
            log.warning("tune: measure_every is ignored because the model is sharded over processes")
        elif settings.measure_every:
            callbacks.append(_bias_callback(base, responses, method.inference_tag, config, settings))
        neutral = _neutral_dialogue(config)
        with run.step("training"):
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


def _load_base(settings: TuneSettings, config: MeasureConfig) -> DialogueModel:
    """Return the model to tune; warn if the method does not suit it."""
    base = load_dialogue_model(config.model)
    if base.kind == "chat" and settings.method == "exchange":
        log.warning(
            "tune: exchange trains on responses to other people; a chat model may learn not to listen. Compare "
            "relevance_kept with the methods half_exchange and distill."
        )
    return base


def _labelled_responses(settings: TuneSettings, responses: StyledResponses) -> pd.DataFrame:
    """Return the labelled run as one table: prompts, responses, style vectors, labels and weights."""
    labels = read_table(settings.labels / f"{LABELS}.parquet", [PROMPT_ID, LABEL, WEIGHT])
    columns = {CUT: responses.table.get(CUT, False), STYLE_VECTOR: list(responses.vectors)}
    labelled = responses.table.assign(**columns).merge(labels, on=PROMPT_ID, validate="one_to_one")
    if labelled[CUT].any():
        share = 100 * labelled[CUT].mean()
        log.info("%.0f %% of the responses were cut at max_new_tokens; no ending is trained for them", share)
    return labelled


def _tuning_data(
    settings: TuneSettings,
    labelled: pd.DataFrame,
    render: ContextRenderer,
    method: Method,
    training: TuningSettings,
) -> TuningData:
    """Return the method's rows, split into training and validation rows."""
    with rejects_tuning():
        rows = method.rows(labelled, render, settings.seed)
        train_rows, validation_rows = hold_out(rows, training.validation_fraction, settings.seed, training.max_rows)
    return TuningData(
        method=settings.method,
        train=train_rows,
        validation=validation_rows,
        trainer=method.trainer,
        control_tag=method.inference_tag,
        tags=method.tags,
    )


def _write_rows(
    settings: TuneSettings, responses: Path, config: MeasureConfig, method: Method, training: TuningSettings
) -> None:
    """Write the rows that `tune` would train on, for other trainers."""
    base = _load_base(settings, config)
    messages: dict[str, list[dict[str, str]]] = {}

    def render(prompts: Sequence[str], personas: Sequence[str], tag: str) -> list[str]:
        contexts = render_contexts(base, prompts, personas, tag)
        if base.kind == "chat":
            messages.update(zip(contexts, chat_messages(base, prompts, personas, tag), strict=True))
        return contexts

    data = _tuning_data(
        settings, _labelled_responses(settings, read_styled_responses(responses)), render, method, training
    )
    write_rows(settings.write_rows, base, data, training, messages, seed=settings.seed)
    n_train, n_validation = len(data.train), len(data.validation)
    log.info("tune: %d training and %d validation rows are in %s", n_train, n_validation, settings.write_rows)


def _bias_callback(
    base: DialogueModel, responses: StyledResponses, tag: str, config: MeasureConfig, settings: TuneSettings
) -> BiasCallback:
    """Return a callback that measures bias during training, on a small fixed sample of prompts."""
    prompts = responses.table
    n_descriptors = settings.measure_descriptors
    sample = np.random.default_rng(0).permutation(np.unique(prompts[DESCRIPTOR]))[:n_descriptors]
    prompts = prompts[prompts[DESCRIPTOR].isin(sample)]
    return BiasCallback(
        prompts.groupby([TEMPLATE, AXIS, DESCRIPTOR]).head(CALLBACK_PER_CELL),
        _first_classifier(config),
        settings.measure_every,
        relevance=False,  # it would double the time
        decoding=decoding(config.decoding.preset, **config.decoding.arguments),
        control_tag=tag,
        system_prompt=base.system_prompt,
        batch_size=config.decoding.batch_size,
        seed=config.seed,
    )


def _first_classifier(config: MeasureConfig) -> StyleClassifier:
    """Return the first style classifier of a measurement; the second is for evaluation only."""
    return load_style_classifier(config.settings.style_classifier)


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
