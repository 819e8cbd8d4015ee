"""Training with a TRL trainer on encoded rows, with checkpoints from which an interrupted training resumes."""

import copy
import gc
import json
import logging
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from datasets import Dataset
from peft import LoraConfig
from transformers import (
    EarlyStoppingCallback,
    PrinterCallback,
    Trainer,
    TrainerCallback,
    TrainerState,
    TrainingArguments,
)

from evenhand.evaluation import processes
from evenhand.evaluation.errors import InputError
from evenhand.evaluation.files import write_json
from evenhand.evaluation.models.loading import DialogueModel
from evenhand.evaluation.progress import progress
from evenhand.mitigation.training.adapter import prepare_network, share_weights
from evenhand.mitigation.training.arguments import steps_per_epoch
from evenhand.mitigation.training.callbacks import (
    MeasureCallback,
    StepCallback,
    suppress_warnings,
    tensorboard_callback,
)
from evenhand.mitigation.training.settings import TuningSettings
from evenhand.mitigation.training.trainers import TrainingMethod

log = logging.getLogger("evenhand")
CHECKPOINTS, STATE = "checkpoints", "trainer_state.json"


@dataclass(frozen=True)
class Training:
    """The arguments of `build_trainer`.

    trainer: the module of `evenhand.mitigation.training.trainers`.
    train, validation: rows that the trainer's `encode_rows` returned.
    arguments: the trainer's config.
    lora: the adapter's config; None trains all weights.
    """

    base: DialogueModel
    trainer: TrainingMethod
    train: Dataset
    validation: Dataset
    settings: TuningSettings
    arguments: TrainingArguments
    lora: LoraConfig | None = None


def fit(training: Training, callbacks: Sequence[TrainerCallback], report_to: str) -> TrainerState:
    """Train, or resume training from the last checkpoint; return the trainer's state. The best checkpoint is on disk.

    `report_to` "tensorboard" writes curves next to the checkpoints; "wandb" is already set in the trainer's config.
    """
    settings, arguments = training.settings, training.arguments
    checkpoints = Path(arguments.output_dir)
    last, done = processes.on_rank_zero(lambda: last_checkpoint(checkpoints)), 0
    if last is not None:
        state = TrainerState.load_from_json(str(last / STATE))
        if is_finished(state, settings.patience):
            return state
        done = state.global_step
        log.info("tuning: resuming from step %d", done)
    arguments.eval_on_start = last is None
    steps = settings.epochs * steps_per_epoch(settings, len(training.train))
    with progress(steps, "tuning", "steps", done) as advance, suppress_warnings():
        all_callbacks = [EarlyStoppingCallback(settings.patience), StepCallback(advance), *callbacks]
        trainer = build_trainer(training, all_callbacks)
        if report_to == "tensorboard" and processes.is_rank_zero():
            trainer.add_callback(tensorboard_callback(checkpoints.with_name("tensorboard")))
        try:
            trainer.train(resume_from_checkpoint=str(last) if last else None)
        finally:
            for callback in callbacks:
                if isinstance(callback, MeasureCallback):
                    callback.trainer = None
    state = trainer.state
    del trainer, all_callbacks
    gc.collect()  # frees the memory of the trainer, which is in reference cycles, for the checks
    return state


def build_trainer(training: Training, callbacks: Sequence[TrainerCallback] = ()) -> Trainer:
    """Return a TRL trainer of the base model."""
    base = training.base
    model = prepare_network(base.model, training.settings)
    # With an adapter, the reference is the model without it.
    needs_reference = training.trainer.needs_reference and training.lora is None
    optional = {"ref_model": share_weights(base.model).float()} if needs_reference else {}
    tokenizer = copy.deepcopy(base.tokenizer)
    pad_token_id = tokenizer.eos_token_id if tokenizer.pad_token_id is None else tokenizer.pad_token_id
    model.config.pad_token_id = model.generation_config.pad_token_id = tokenizer.pad_token_id  # avoids a warning
    trainer = training.trainer.trainer(
        model,
        args=training.arguments,
        data_collator=training.trainer.data_collator(base, pad_token_id),
        train_dataset=training.train,
        eval_dataset=training.validation,
        processing_class=tokenizer,
        callbacks=list(callbacks),
        peft_config=training.lora,
        **optional,
    )
    trainer.remove_callback(PrinterCallback)
    trainer.create_model_card = lambda *arguments, **options: None  # `tune` writes a card; checkpoints need none
    for callback in callbacks:
        if isinstance(callback, MeasureCallback):
            callback.attach(trainer)
    return trainer


def check_same_inputs(checkpoints: Path, **inputs: Any) -> None:
    """Record the inputs of a tuning, or compare them with the recorded inputs.

    Raises:
        InputError: the folder has checkpoints of a tuning with other inputs.
    """
    file = checkpoints / "inputs.json"
    if not file.exists():
        write_json(file, inputs)
        return
    recorded = json.loads(file.read_text(encoding="utf-8"))
    changed = [name for name, value in inputs.items() if recorded.get(name) != value]
    if changed:
        raise InputError(
            f"output_dir: {checkpoints} has checkpoints of a tuning with other {' and '.join(changed)}; "
            "give another --output_dir, or delete the folder."
        )


def last_checkpoint(checkpoints: Path) -> Path | None:
    """Return the last checkpoint, None if none exists. Deletes checkpoints whose writing was interrupted."""
    complete = []
    for folder in checkpoints.glob("checkpoint-*"):
        try:
            json.loads((folder / STATE).read_text(encoding="utf-8"))  # the last file of a checkpoint
            complete.append(folder)
        except (OSError, ValueError):
            shutil.rmtree(folder)
    return max(complete, key=lambda folder: int(folder.name.rpartition("-")[2]), default=None)


def best_checkpoint(checkpoints: Path, state: TrainerState) -> Path:
    """Return the checkpoint with the best validation loss."""
    return checkpoints / f"checkpoint-{state.best_global_step}"


def is_finished(state: TrainerState, patience: int) -> bool:
    """Return whether all steps are done, or the last `patience` validations have no new best loss."""
    n_later = sum(step > state.best_global_step for step, _ in curve(state, "eval_loss"))
    return state.global_step >= state.max_steps or n_later >= patience


def curve(state: TrainerState, name: str) -> tuple[tuple[int, float], ...]:
    """Return the logged (step, value) pairs of a metric."""
    return tuple((entry["step"], entry[name]) for entry in state.log_history if name in entry)


def logged_metric_names(state: TrainerState) -> list[str]:
    """Return the names of the metrics that callbacks logged; they contain a slash, the trainer's names do not."""
    return list(dict.fromkeys(name for entry in state.log_history for name in entry if "/" in name))
