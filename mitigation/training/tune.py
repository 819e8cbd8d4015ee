"""Tuning: training on a method's rows with a TRL trainer, checks of the result, and the tuned model's folder.

`tune` trains on responses, not on contexts, and keeps the weights with the best validation loss. After a kill, training
resumes from the last checkpoint. Before the folder gets its final name, the saved files are loaded onto the base, and
`tune` checks that the outputs changed and that the perplexity of dialogue did not rise too much.
"""

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import TrainerCallback, TrainerState

from evenhand.evaluation import processes
from evenhand.evaluation.errors import InputError
from evenhand.evaluation.files import write_text
from evenhand.evaluation.models.checkpoints import is_quantized
from evenhand.evaluation.models.contexts import render_contexts
from evenhand.evaluation.models.loading import DialogueModel
from evenhand.evaluation.models.revisions import ADAPTER_FOLDER
from evenhand.mitigation.training.adapter import (
    atomic_write_folder,
    copy_weights,
    load_tuned,
    portable_name,
    write_metadata,
)
from evenhand.mitigation.training.arguments import lora_config, trainer_arguments
from evenhand.mitigation.training.callbacks import preserve_random_states
from evenhand.mitigation.training.card import model_card
from evenhand.mitigation.training.data import PROMPT, TuningData, rows_sha256, shared_tag_words, token_ids
from evenhand.mitigation.training.fit import (
    CHECKPOINTS,
    Training,
    best_checkpoint,
    check_same_inputs,
    curve,
    fit,
    logged_metric_names,
)
from evenhand.mitigation.training.guards import (
    OutputChange,
    check_base_unchanged,
    check_outputs_changed,
    check_perplexity,
    output_change,
    perplexity,
    weights_sha256,
)
from evenhand.mitigation.training.settings import TuningSettings
from evenhand.mitigation.training.trainers import TrainingMethod, load_trainer

log = logging.getLogger("evenhand")


@dataclass(frozen=True)
class TuningResult:
    """The result of a tuning.

    path: the folder of the tuned model.
    train_losses, validation_losses: (step, loss). The loss of SFT is the mean negative log-likelihood of a response
        token, in nats; KTO and DPO have other losses. The first validation loss is the base's, at step 0.
    measured: {metric: (step, value) pairs} that a `MeasureCallback` logged.
    best_step: the step of the saved weights.
    seconds: the duration of this call.
    n_train, n_validation: numbers of rows.
    perplexity: the perplexity of dialogue (see `tune`) by the base and by the tuned model.
    change: the comparison of the tuned model with its base.
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
    """Tune a copy of `base` on a method's rows and write the tuned model to `output_dir`/adapter, atomically.

    `evenhand.mitigation.training.checks.check_tuning` rejects unsuitable models and settings before the base is loaded.

    The folder contains the adapter's weights and config (or the whole model's, if `settings.lora` is false), the
    tokenizer, evenhand.json and a model card. `output_dir`/checkpoints contains checkpoints: after a kill, a call with
    the same arguments resumes from them and ends with the same weights. Several processes train together, each on its
    part of a batch; rank 0 writes the model.

    Args:
        settings: the result of `checks.with_defaults`.
        seed: the seed of the adapter's initial weights and of the order of rows.
        neutral: prompts and responses of neutral dialogue, whose perplexity may rise by `max_perplexity_increase` at
            most; by default, the contexts and target responses of the validation rows.
        report_to: "wandb" (the active run), "tensorboard" (`output_dir`/tensorboard) or "none".
        card: additional rows for the model card, such as α and β.

    Raises:
        InputError: the rows or the model cannot be used; `output_dir` has checkpoints of another tuning.
        TuningRejected: the tuned model's outputs equal the base's, or its perplexity rose too much.
    """
    start, base_sha256 = time.monotonic(), weights_sha256(base.model)
    training_method, checkpoints = load_trainer(data.trainer), output_dir / CHECKPOINTS
    if report_to == "wandb" and processes.is_rank_zero():
        _check_tracker()
    recorded = {**asdict(settings), "seed": seed}
    train, validation = (
        training_method.encode_rows(base, rows, settings, seed) for rows in (data.train, data.validation)
    )
    arguments = trainer_arguments(
        training_method,
        settings,
        train,
        base.model.device,
        output_dir=checkpoints,
        seed=seed,
        report_to=report_to,
        run_name=run_name,
    )
    lora = lora_config(base.model, base.name, settings, token_ids(base, data.tags)) if settings.lora else None
    inputs = {"settings": recorded, "rows": rows_sha256(train, validation), "model": base_sha256}
    processes.on_rank_zero(lambda: check_same_inputs(checkpoints, **inputs))
    check_same_inputs(checkpoints, **inputs)  # on every rank
    training = Training(base, training_method, train, validation, settings, arguments, lora)
    state = fit(training, callbacks, report_to)

    def save() -> TuningResult:
        with atomic_write_folder(output_dir / ADAPTER_FOLDER) as folder:
            trainable = copy_weights(best_checkpoint(checkpoints, state), folder, base)
            perplexities, change = _verify_saved_model(base, folder, training_method, data, settings, state, neutral)
            check_base_unchanged(base, base_sha256)
            checks = {"trainable_parameters": trainable, "perplexity": perplexities, "change": change}
            seconds = time.monotonic() - start
            result = TuningResult(
                path=output_dir / ADAPTER_FOLDER, seconds=seconds, **_training_history(state, data), **checks
            )
            facts = _metadata(base, data, recorded, result, folder)
            write_metadata(folder, facts)
            write_text(folder / "README.md", model_card(base, facts, card or {}, training_method.loss))
        return result

    result = processes.on_rank_zero(save)
    _log_result(result)
    return result


def _check_tracker() -> None:
    """Raise InputError without an active W&B run; the trainer would start one and prompt the user for an account."""
    import wandb

    if wandb.run is None:
        raise InputError("report_to: wandb needs an active W&B run; start a run before tuning, or give none.")


def _verify_saved_model(
    base: DialogueModel,
    folder: Path,
    training_method: TrainingMethod,
    data: TuningData,
    settings: TuningSettings,
    state: TrainerState,
    neutral: tuple[Sequence[str], Sequence[str]] | None,
) -> tuple[tuple[float, float], OutputChange]:
    """Load the saved model; return the perplexities of the base and of the saved model, and the change of outputs."""
    tuned = load_tuned(base, folder, settings.lora)
    merging_rounds = settings.lora and base.model.dtype != torch.float32 and not is_quantized(base.model)
    unmerged = load_tuned(base, folder, settings.lora, merged=False) if merging_rounds else tuned
    if neutral is None:
        pairs = [training_method.target_responses(data.validation)] * 2
    else:
        prompts, responses = neutral
        tags = base.control_tag, data.control_tag  # tags of the base and of the tuned model
        pairs = [(render_contexts(base, prompts, [""] * len(prompts), tag), responses) for tag in tags]
    models = {"perplexity of the base": base, "perplexity of the tuned model": tuned}
    before, after = (perplexity(model, *pair, name) for (name, model), pair in zip(models.items(), pairs, strict=True))
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
    """Return the content of the tuned model's evenhand.json."""
    return {
        "control_tag": data.control_tag,
        "method": data.method,
        "trainer": data.trainer,
        "base": portable_name(base.name, folder),
        "base_revision": base.revision,
        "system_prompt": base.system_prompt,
        "common_words": shared_tag_words(base, data.tags, data.train) if settings["lora"] else [],
        "settings": settings,
        # Without the duration, so that a resumed tuning writes the same bytes.
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
