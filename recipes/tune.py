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
from evenhand.evaluation.files import write_json
from evenhand.evaluation.metrics import MeasureConfig
from evenhand.evaluation.metrics.generation_bias.settings import neutral_dialogue
from evenhand.evaluation.metrics.generation_bias.styled_responses import StyledResponses, read_styled_responses
from evenhand.evaluation.models.contexts import chat_messages, render_contexts
from evenhand.evaluation.models.decoding import decoding
from evenhand.evaluation.models.loading import DialogueModel, load_dialogue_model
from evenhand.evaluation.models.revisions import ADAPTER_FOLDER
from evenhand.evaluation.models.styles import load_style_classifier
from evenhand.evaluation.score import (
    AXIS,
    CUT,
    DESCRIPTOR,
    LABEL,
    PROMPT_ID,
    RESPONSE,
    TEMPLATE,
    TEXT,
)
from evenhand.evaluation.store import stage
from evenhand.evaluation.tables import read_table
from evenhand.mitigation.bias_callback import BIAS_NAME, BiasCallback
from evenhand.mitigation.checks import check_tuning, default_methods, with_defaults
from evenhand.mitigation.labelled_responses import ContextRenderer
from evenhand.mitigation.methods import load_method
from evenhand.mitigation.page import CURVES
from evenhand.mitigation.row_files import write_rows
from evenhand.mitigation.training_rows import TrainingRows, training_rows
from evenhand.mitigation.tune import tune as train
from evenhand.recipes.finished_runs import check_trust, labelled_run, warn_of_split
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
    if settings.method and load_method(settings.method).trainer is None:  # an error before any run is read
        raise InputError("method", f"{settings.method} trains nothing; give it to `evenhand loop`.")
    folder, measured, labels_sha256 = processes.on_rank_zero(lambda: labelled_run(settings))
    check_trust(measured, settings.trust_remote_code, "labels")
    warn_of_split("tune", measured, folder)
    config = measure_config(measured, FAMILY)
    name = settings.method or default_methods(config.model)[0]
    method = load_method(name)
    training = with_defaults(config.model, method, settings.training)
    chosen = {field: value for field, value in asdict(training).items() if value != getattr(settings.training, field)}
    if chosen := {**({} if settings.method else {"method": name}), **chosen}:
        log.info("tune: chosen for this model: %s", ", ".join(f"{field} {value}" for field, value in chosen.items()))
    check_tuning(config.model, method, training)
    settings = replace(settings, method=name, training=training)
    if settings.write_rows is not None:
        processes.on_rank_zero(lambda: _write_rows(settings, _load_base(name, config), folder))
        return
    with stage("tune", settings, {"labels": labels_sha256}) as run:
        if run is None:
            return
        base, responses = _load_base(name, config), read_styled_responses(folder)
        rows, share_cut = _rows(settings, responses, partial(render_contexts, base))
        run.facts["share_cut"] = share_cut
        callbacks = []
        if settings.measure_every and processes.shards_model():
            log.warning("tune: measure_every is ignored because the model is sharded over processes")
        elif settings.measure_every:
            callbacks.append(_bias_callback(base, responses.table, method.inference_tag, config, settings))
        neutral, path = None, neutral_dialogue(config)
        if path is not None:
            pairs = load_neutral_dialogue(path)
            neutral = pairs[TEXT].tolist(), pairs[RESPONSE].tolist()
        with run.step("training"):
            result = train(
                base,
                rows,
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
        change = {name: getattr(result.change, name) for name in ("greedy_share", "max_logit_change")}
        run.facts |= {"rows": {"train": result.n_train, "validation": result.n_validation}, "outputs_changed": change}
        for fact in ("trainable_parameters", "best_step", "stopped_early", "perplexity"):
            run.facts[fact] = getattr(result, fact)
        run.tracker.log_artifact("adapter", "model", run.folder / ADAPTER_FOLDER)


def _load_base(method: str, config: MeasureConfig) -> DialogueModel:
    """Return the model to tune; warn if the method does not suit it."""
    base = load_dialogue_model(config.model)
    if base.kind == "chat" and method == "exchange":
        log.warning(
            "tune: exchange trains on responses to other people; a chat model may learn not to listen. Compare "
            "relevance_kept with the method distill."
        )
    return base


def _rows(settings: TuneSettings, responses: StyledResponses, render: ContextRenderer) -> tuple[TrainingRows, float]:
    """Return the rows of the method, and the share of the labelled responses that max_new_tokens ended."""
    labels = read_table(settings.labels / f"{LABELS}.parquet", [PROMPT_ID, LABEL])
    table = responses.table.assign(**{CUT: responses.table.get(CUT, False)})
    table = table.drop(columns=LABEL, errors="ignore")  # a column of the user's prompts
    labelled = table.merge(labels, on=PROMPT_ID, validate="one_to_one")
    share_cut = float(labelled[CUT].mean())
    if share_cut:
        log.info("%.0f %% of the responses were cut at max_new_tokens; no ending is trained for them", 100 * share_cut)
    training = settings.training
    how = {"validation_fraction": training.validation_fraction, "max_rows": training.max_rows, "seed": settings.seed}
    with rejects_tuning():
        return training_rows(settings.method, labelled, render, **how), share_cut


def _write_rows(settings: TuneSettings, base: DialogueModel, folder: Path) -> None:
    """Write the rows that `tune` would train on, for other trainers."""
    messages: dict[str, list[dict[str, str]]] = {}

    def render(prompts: Sequence[str], personas: Sequence[str], tag: str) -> list[str]:
        contexts = render_contexts(base, prompts, personas, tag)
        if base.kind == "chat":
            messages.update(zip(contexts, chat_messages(base, prompts, personas, tag), strict=True))
        return contexts

    rows, _ = _rows(settings, read_styled_responses(folder), render)
    write_rows(settings.write_rows, base, rows, settings.training, messages, seed=settings.seed)
    n_train, n_validation = len(rows.train), len(rows.validation)
    log.info("tune: %d training and %d validation rows are in %s", n_train, n_validation, settings.write_rows)


def _bias_callback(
    base: DialogueModel, prompts: pd.DataFrame, tag: str, config: MeasureConfig, settings: TuneSettings
) -> BiasCallback:
    """Return a callback that measures bias during training by the first classifier, on a small fixed sample."""
    n_descriptors = settings.measure_descriptors
    sample = np.random.default_rng(0).permutation(np.unique(prompts[DESCRIPTOR]))[:n_descriptors]
    prompts = prompts[prompts[DESCRIPTOR].isin(sample)]
    return BiasCallback(
        prompts.groupby([TEMPLATE, AXIS, DESCRIPTOR]).head(CALLBACK_PER_CELL),
        load_style_classifier(config.settings.style_classifier),  # the second is for evaluation only
        settings.measure_every,
        relevance=False,  # it would double the time
        decoding=decoding(config.decoding.preset, **config.decoding.arguments),
        control_tag=tag,
        system_prompt=base.system_prompt,
        batch_size=config.decoding.batch_size,
        seed=config.seed,
    )
