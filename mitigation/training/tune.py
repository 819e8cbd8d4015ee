"""Tuning: a method's rows → one of TRL's trainers with a PEFT adapter → a folder that holds the tuned model.

`tune` trains on the response alone, keeps the weights with the best validation loss, goes on from its last checkpoint
after a kill, and hands nothing out before the saved files, loaded onto the base again, have been seen to change what
the model says, and not to have spoiled it.
"""

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from peft.tuners.lora import LoraLayer
from transformers import TrainerCallback, TrainerState

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.models.checkpoints import is_quantized
from evenhand.evaluation.models.contexts import render_contexts
from evenhand.evaluation.models.loading import DialogueModel
from evenhand.evaluation.models.revisions import ADAPTER_FOLDER
from evenhand.evaluation.runs import processes
from evenhand.evaluation.runs.files import write_text
from evenhand.mitigation.training.adapter import (
    atomic_write_folder,
    copy_weights,
    load_tuned,
    portable_name,
    write_metadata,
)
from evenhand.mitigation.training.arguments import lora_config, training_arguments
from evenhand.mitigation.training.callbacks import preserve_random_states
from evenhand.mitigation.training.card import model_card
from evenhand.mitigation.training.checkpoints import (
    CHECKPOINTS,
    best_checkpoint,
    check_same_inputs,
    curve,
    logged_metric_names,
)
from evenhand.mitigation.training.checks import check_trainable
from evenhand.mitigation.training.data import TuningData, rows_sha256
from evenhand.mitigation.training.fit import fit
from evenhand.mitigation.training.guards import (
    OutputChange,
    check_base_unchanged,
    check_outputs_changed,
    check_perplexity,
    check_single_gpu,
    output_change,
    perplexity,
    weights_sha256,
)
from evenhand.mitigation.training.settings import TuningSettings
from evenhand.mitigation.training.suppress_warnings import suppress_warnings
from evenhand.mitigation.training.trainers import TrainerModule, load_trainer
from evenhand.mitigation.training.trainers.encoding import PROMPT, shared_tag_words

log = logging.getLogger("evenhand")


@dataclass(frozen=True)
class TuningResult:
    """What a tuning left: the tuned model's folder, its curves and the proof that it differs from its base.

    Losses are (step, the trainer's loss): for SFT the mean negative log-likelihood of a response token in nats, for
    KTO, DPO and GRPO their own; the validation losses begin with the base at step 0. `measured` has the curve of each
    value that a `BiasCallback` logged, by its name. `perplexity` is that of ordinary dialogue (see `tune`), the base's
    and the tuned model's. `seconds` are those of this call; `n_train` and `n_validation` count rows.
    """

    path: Path
    train_losses: tuple[tuple[int, float], ...]
    validation_losses: tuple[tuple[int, float], ...]
    measured: Mapping[str, tuple[tuple[int, float], ...]]
    best_step: int
    stopped_early: bool
    seconds: float
    n_train: int
    n_validation: int
    trainable_parameters: int
    perplexity: tuple[float, float]
    change: OutputChange


@preserve_random_states()
def tune(
    base: DialogueModel,
    data: TuningData,
    settings: TuningSettings,
    output_dir: Path,
    *,
    seed: int = 0,
    neutral: tuple[Sequence[str], Sequence[str]] | None = None,
    callbacks: Sequence[TrainerCallback] = (),
    report_to: str = "none",
    run_name: str | None = None,
    card: Mapping[str, Any] | None = None,
) -> TuningResult:
    """Tune a copy of `base` on a method's rows and write it to `output_dir`/adapter, whole or not at all.

    The folder holds the adapter's weights and config (the whole model's, if `settings.lora` is false), the tokenizer,
    evenhand.json and a model card; `output_dir`/checkpoints what a call with the same arguments goes on from after a
    kill, to the same weights. Several processes train together, each on its share of a batch; one keeps the model.

    Args:
        settings: as `TuningSettings.with_method_defaults` returns them.
        seed: of the adapter's first weights and the order of rows.
        neutral: prompts and responses of ordinary dialogue, whose perplexity must not rise by a larger share than
            `max_perplexity_increase`; by default the contexts and wanted responses of the validation rows.
        report_to: "wandb" (into the run at hand), "tensorboard" (into `output_dir`/tensorboard) or "none".
        card: further facts for the model card, such as α and β.

    Raises:
        InputError: the rows or the model cannot be used; `output_dir` holds checkpoints of another tuning; the tuned
            model answers as its base does, or its perplexity rose too much.
    """
    start, untouched = time.monotonic(), weights_sha256(base.model)
    trainer_module, checkpoints = load_trainer(data.trainer), output_dir / CHECKPOINTS
    _check(base, data, trainer_module, settings, report_to)
    recorded = {**asdict(settings), "seed": seed}
    train, validation = (
        trainer_module.encode_rows(base, rows, settings, seed) for rows in (data.train, data.validation)
    )
    common = training_arguments(settings, seed, len(train), checkpoints, report_to, run_name, base.model.device)
    with suppress_warnings():
        arguments = trainer_module.arguments(common, settings, train)
    lora = lora_config(base, data.tags, settings) if settings.lora else None
    mine = {"settings": recorded, "rows": rows_sha256(train, validation), "model": untouched}
    processes.on_rank_zero(lambda: check_same_inputs(checkpoints, **mine))
    check_same_inputs(checkpoints, **mine)  # all processes train on the same
    state = fit(
        base, trainer_module, (train, validation), settings, arguments, lora, data.rewards, callbacks, report_to
    )

    def kept() -> TuningResult:
        with atomic_write_folder(output_dir / ADAPTER_FOLDER) as folder:
            trainable = copy_weights(best_checkpoint(checkpoints, state), folder, base)
            perplexities, change = _verify_saved_model(base, folder, trainer_module, data, settings, state, neutral)
            check_base_unchanged(base, untouched)
            proof = {"trainable_parameters": trainable, "perplexity": perplexities, "change": change}
            seconds = time.monotonic() - start
            result = TuningResult(
                path=output_dir / ADAPTER_FOLDER, seconds=seconds, **_training_history(state, data), **proof
            )
            facts = _metadata(base, data, recorded, result, folder)
            write_metadata(folder, facts)
            write_text(folder / "README.md", model_card(base, facts, card or {}, trainer_module.LOSS))
        return result

    result = processes.on_rank_zero(kept)
    _log_result(result)
    return result


def _check(
    base: DialogueModel, data: TuningData, trainer_module: TrainerModule, settings: TuningSettings, report_to: str
) -> None:
    check_trainable(
        base.name,
        base.control_tag,
        data.control_tag,
        trainer_module,
        settings,
        encoder_decoder=base.kind == "encoder_decoder",
        quantized=is_quantized(base.model),
        adapted=any(isinstance(module, LoraLayer) for module in base.model.modules()),
    )
    check_single_gpu(base.model.device, bool(getattr(base.model, "hf_device_map", None)))
    if report_to == "wandb" and processes.is_rank_zero():
        import wandb

        if wandb.run is None:  # the trainer would start one by itself, and ask the user for an account
            raise InputError("report_to: there is no W&B run at hand; start one before tuning, or give none.")


def _verify_saved_model(
    base: DialogueModel,
    folder: Path,
    trainer_module: TrainerModule,
    data: TuningData,
    settings: TuningSettings,
    state: TrainerState,
    neutral: tuple[Sequence[str], Sequence[str]] | None,
) -> tuple[tuple[float, float], OutputChange]:
    """Load what was saved; return its perplexity after the base's, and what it changed, or refuse it."""
    tuned = load_tuned(base, folder, settings.lora)
    rounds = settings.lora and base.model.dtype != torch.float32 and not is_quantized(base.model)
    unmerged = load_tuned(base, folder, settings.lora, merged=False) if rounds else tuned
    if neutral is None:
        pairs = [trainer_module.target_responses(data.validation)] * 2
    else:
        prompts, responses = neutral
        tags = base.control_tag, data.control_tag  # each model is asked with its own
        pairs = [(render_contexts(base, prompts, [""] * len(prompts), tag), responses) for tag in tags]
    before, after = (perplexity(model, *pair) for model, pair in zip((base, tuned), pairs, strict=True))
    check_perplexity(before, after, settings)
    change = output_change(base, tuned, unmerged, data.validation[PROMPT])
    check_outputs_changed(change, base, settings, state.best_global_step, state.max_steps)
    return (before, after), change


def _training_history(state: TrainerState, data: TuningData) -> dict[str, Any]:
    return {
        "n_train": len(data.train),
        "n_validation": len(data.validation),
        "train_losses": curve(state, "loss"),
        "validation_losses": curve(state, "eval_loss"),
        "measured": {name: curve(state, name) for name in logged_metric_names(state)},
        "best_step": state.best_global_step,
        "stopped_early": state.global_step < state.max_steps,
    }


def _metadata(
    base: DialogueModel, data: TuningData, settings: Mapping[str, Any], result: TuningResult, folder: Path
) -> dict[str, Any]:
    """Return what evenhand.json holds."""
    return {
        "control_tag": data.control_tag,
        "method": data.method,
        "trainer": data.trainer,
        "base": portable_name(base.name, folder),
        "base_revision": base.revision,
        "system_prompt": base.system_prompt,
        "common_words": shared_tag_words(base, data.tags, data.train) if settings["lora"] else [],
        "settings": settings,
        # Without the seconds: after a kill, the same call leaves the same bytes.
        "training": {key: value for key, value in asdict(result).items() if key not in ("path", "seconds")},
    }


def _log_result(result: TuningResult) -> None:
    log.info(
        "tuning: validation loss %.4f → %.4f (step %d), perplexity %.3f → %.3f; %.0f %% of %d greedy responses changed",
        result.validation_losses[0][1],
        dict(result.validation_losses)[result.best_step],
        result.best_step,
        *result.perplexity,
        100 * result.change.greedy_share,
        result.change.n,
    )
