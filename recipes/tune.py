"""The command `tune`: training of a model on labelled responses with one method, and bias during training."""

import logging
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd

from evenhand.evaluation import columns
from evenhand.evaluation.data.neutral_dialogue import load_neutral_dialogue
from evenhand.evaluation.errors import rejects_tuning
from evenhand.evaluation.files import write_json
from evenhand.evaluation.json_values import Json
from evenhand.evaluation.metrics import FamilyConfig
from evenhand.evaluation.metrics.generation_bias.answers import Answers, read_answers
from evenhand.evaluation.metrics.generation_bias.parts.quality import neutral_dialogue_file
from evenhand.evaluation.models.classifier_kinds import load_style_classifier
from evenhand.evaluation.models.contexts import chat_messages, render_contexts
from evenhand.evaluation.models.decoding import decoding_arguments
from evenhand.evaluation.models.in_memory import weights_sha256
from evenhand.evaluation.models.loading import DialogueModel, load_dialogue_model, model_kind
from evenhand.evaluation.models.revisions import ADAPTER_FOLDER
from evenhand.evaluation.runs import processes
from evenhand.evaluation.runs.stage import stage
from evenhand.evaluation.tables import read_table
from evenhand.mitigation.bias_callback import BIAS_NAME, BiasCallback
from evenhand.mitigation.checks import check_tuning, default_methods, with_defaults
from evenhand.mitigation.labelled_responses import ContextRenderer
from evenhand.mitigation.labels import LABELS
from evenhand.mitigation.methods import TrainedMethod, trained_method
from evenhand.mitigation.page import CURVES
from evenhand.mitigation.row_files import check_rows, write_rows
from evenhand.mitigation.training import Dialogue, TuningResult
from evenhand.mitigation.training_rows import TrainingRows, training_rows
from evenhand.mitigation.tuners import TUNERS
from evenhand.recipes.finished_runs import labelled_run, warn_of_split
from evenhand.recipes.label import read_threshold
from evenhand.recipes.settings import GENERATION_BIAS, family_config, settings_of_methods
from evenhand.recipes.tuning_settings import TuneSettings

log = logging.getLogger("evenhand")

CALLBACK_PER_CELL = 2  # responses per cell; pooled FGB* needs at least two
CHAT_TEMPLATES = "*.jinja"  # files of a tokenizer
MIN_SHARE_CUT = 0.005  # a smaller share of cut responses is 0 % in the log, and is not logged


def tune(settings: TuneSettings, *, loaded: DialogueModel | None = None) -> None:
    """Tune the model on its labelled responses; write the adapter and the training curves.

    Args:
        loaded: the model, if it is loaded already; its name is where its files are, which the adapter needs.

    Raises:
        InputError: the method trains nothing, the responses changed after labelling, or the model or the rows do not
            fit the method.
    """
    if settings.method:
        trained_method(settings.method)  # an error before any run is read
    loaded_sha256 = None if loaded is None else weights_sha256(loaded.model)
    folder, measured, labels_sha256 = processes.on_rank_zero(lambda: labelled_run(settings, loaded_sha256))
    warn_of_split("tune", measured, folder)
    if loaded is not None:
        measured = measured.replaced(model=measured.model.replaced(name=loaded.name))
    config = family_config(measured, GENERATION_BIAS)
    settings, method = chosen_settings(settings, config)
    check_tuning(config.model, method, settings.training)
    if settings.write_rows is not None:
        check_rows(settings.write_rows, method, model_kind(config.model))
    method.check_decoding(decoding_arguments(config.decoding.preset, config.decoding.arguments))
    if settings.write_rows is not None:
        processes.on_rank_zero(lambda: _write_rows(settings, method, _load_base(method, config, loaded), folder))
        return
    with stage("tune", settings, {"labels": labels_sha256}) as store:
        if store is None:
            return
        base = _load_base(method, config, loaded)
        responses = read_answers(folder)
        rows, share_cut = _rows(settings, method, responses, partial(render_contexts, base))
        callbacks = _callbacks(base, responses.table, method.control_tag, config, settings)
        with store.step("training"):
            result = TUNERS[method.tuner](
                base,
                rows,
                settings.training,
                store.folder,
                seed=settings.seed,
                neutral=_neutral_dialogue(config),
                callbacks=callbacks,
                report_to=store.tracker.of_trainer(),
                card=read_threshold(settings.labels) if method.reads_labels else {},
            )
        curves = {
            "train_loss": result.train_losses,
            "validation_loss": result.validation_losses,
            "bias": result.measured.get(BIAS_NAME, ()),
        }
        processes.on_rank_zero(lambda: write_json(store.folder / CURVES, curves))
        store.record |= {"share_cut": share_cut, **_facts(result)}
        private = [] if config.model.chat_template is None else [CHAT_TEMPLATES]  # the user's own
        store.tracker.log_artifact("adapter", "model", store.folder / ADAPTER_FOLDER, private=private)


def chosen_settings(settings: TuneSettings, config: FamilyConfig) -> tuple[TuneSettings, TrainedMethod]:
    """Return the settings with the method and the training that suit the model in place of null, and the method."""
    name = settings.method or default_methods(config.model)[0]
    method = trained_method(name, settings_of_methods(settings), seed=settings.seed)
    training = with_defaults(config.model, method, settings.training)
    given = vars(settings.training)
    chosen = {field: value for field, value in vars(training).items() if value != given[field]}
    if not settings.method:
        chosen = {"method": name, **chosen}
    if chosen:
        log.info("tune: chosen for this model: %s", ", ".join(f"{field} {value}" for field, value in chosen.items()))
    return settings.replaced(method=name, training=training), method


def _neutral_dialogue(config: FamilyConfig) -> Dialogue | None:
    """Return the prompts and the responses of the neutral dialogue; None if the settings turn it off."""
    path = neutral_dialogue_file(config)
    if path is None:
        return None
    pairs = load_neutral_dialogue(path)
    return pairs[columns.TEXT].tolist(), pairs[columns.RESPONSE].tolist()


def _facts(result: TuningResult) -> dict[str, Json]:
    """Return the facts of a tuning that are kept in the run's record."""
    return {
        "rows": {"train": result.n_train, "validation": result.n_validation},
        "outputs_changed": {
            "greedy_share": result.change.greedy_share,
            "max_logit_change": result.change.max_logit_change,
        },
        "trainable_parameters": result.trainable_parameters,
        "best_step": result.best_step,
        "stopped_early": result.stopped_early,
        "perplexity": result.perplexity,
    }


def _load_base(method: TrainedMethod, config: FamilyConfig, loaded: DialogueModel | None) -> DialogueModel:
    """Return the model to tune, which may be loaded already; warn if the method does not suit it."""
    if loaded is None:
        base = load_dialogue_model(config.model)
    else:  # it reads and is read as it was measured
        system_prompt = config.model.system_prompt or ""
        base = replace(loaded, system_prompt=system_prompt, reasoning=tuple(config.model.reasoning or ()))
    if base.kind == "chat" and method.name == "exchange":
        log.warning(
            "tune: exchange trains on responses to other people; a chat model may learn not to listen. Compare "
            "relevance_kept with the method distill."
        )
    return base


def _rows(
    settings: TuneSettings, method: TrainedMethod, responses: Answers, render: ContextRenderer
) -> tuple[TrainingRows, float]:
    """Return the rows of the method, and the share of the labelled responses that max_new_tokens ended."""
    labels = read_table(settings.labels / f"{LABELS}.parquet", [columns.PROMPT_ID, columns.LABEL, columns.BIAS_VALUE])
    table = responses.table.drop(
        columns=[columns.LABEL, columns.BIAS_VALUE], errors="ignore"
    )  # columns of the user's prompts
    if columns.CUT not in table:
        table[columns.CUT] = False
    labelled = table.merge(labels, on=columns.PROMPT_ID, validate="one_to_one")
    share_cut = float(labelled[columns.CUT].mean())
    if share_cut >= MIN_SHARE_CUT:
        log.info("%.0f %% of the responses were cut at max_new_tokens; no ending is trained for them", 100 * share_cut)
    training = settings.training
    with rejects_tuning():
        rows = training_rows(
            method,
            labelled,
            render,
            validation_fraction=training.validation_fraction,
            max_rows=training.max_rows,
            seed=settings.seed,
        )
    log.info("tune: %s makes %d training and %d validation rows", method.name, len(rows.train), len(rows.validation))
    return rows, share_cut


def _write_rows(settings: TuneSettings, method: TrainedMethod, base: DialogueModel, folder: Path) -> None:
    """Write the rows that `tune` would train on, for other trainers."""
    messages: dict[str, list[dict[str, str]]] = {}

    def render(prompts: Sequence[str], personas: Sequence[str], tag: str) -> list[str]:
        contexts = render_contexts(base, prompts, personas, tag)
        if base.kind == "chat":
            messages.update(zip(contexts, chat_messages(base, prompts, personas, tag), strict=True))
        return contexts

    rows, _ = _rows(settings, method, read_answers(folder), render)
    write_rows(settings.write_rows, base, rows, settings.training, messages, seed=settings.seed)
    log.info("tune: the rows are in %s; `python train.py` in this folder trains on them", settings.write_rows)


def _callbacks(
    base: DialogueModel, prompts: pd.DataFrame, tag: str, config: FamilyConfig, settings: TuneSettings
) -> list[BiasCallback]:
    """Return the callback that measures bias during training by the first classifier, on a small fixed sample."""
    if not settings.measure_every:
        return []
    if processes.shards_model():
        log.warning("tune: measure_every is ignored because the model is sharded over processes")
        return []
    descriptors = np.random.default_rng(0).permutation(np.unique(prompts[columns.DESCRIPTOR]))
    prompts = prompts[prompts[columns.DESCRIPTOR].isin(descriptors[: settings.measure_descriptors])]
    callback = BiasCallback(
        prompts.groupby([columns.TEMPLATE, columns.AXIS, columns.DESCRIPTOR]).head(CALLBACK_PER_CELL),
        load_style_classifier(config.settings.style_classifier),  # the second is for evaluation only
        settings.measure_every,
        relevance=False,  # it would double the time
        decoding=decoding_arguments(config.decoding.preset, config.decoding.arguments),
        control_tag=tag,
        system_prompt=base.system_prompt,
        reasoning=base.reasoning,
        batch_size=config.decoding.batch_size,
        seed=config.seed,
    )
    return [callback]
