"""Training itself: encoded rows → one of TRL's trainers → checkpoints, gone on with where a kill left them."""

import copy
import gc
import logging
from collections.abc import Sequence
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

from evenhand.evaluation.models.loading import DialogueModel
from evenhand.evaluation.runs import processes
from evenhand.evaluation.runs.progress import progress
from evenhand.mitigation.training.arguments import steps_per_epoch
from evenhand.mitigation.training.callbacks import BiasCallback, StepCallback, tensorboard_callback
from evenhand.mitigation.training.checkpoints import STATE, is_finished, last_checkpoint
from evenhand.mitigation.training.data import RewardFunction
from evenhand.mitigation.training.networks import prepare_network, share_weights
from evenhand.mitigation.training.settings import TuningSettings
from evenhand.mitigation.training.suppress_warnings import suppress_warnings
from evenhand.mitigation.training.trainers import TrainerModule

log = logging.getLogger("evenhand")


def fit(
    base: DialogueModel,
    trainer_module: TrainerModule,
    rows: tuple[Dataset, Dataset],
    settings: TuningSettings,
    arguments: TrainingArguments,
    lora: LoraConfig | None,
    rewards: Sequence[RewardFunction],
    callbacks: Sequence[TrainerCallback],
    report_to: str,
) -> TrainerState:
    """Train on the base's tensors, or go on training, and return the state; its best checkpoint is on disk.

    Args:
        rows: to train and to validate on, encoded by `trainer_module`.
        arguments: what the trainer is told.
        lora: the adapter; None trains all weights.
        rewards: what responses are worth to a trainer that draws them; none for all others.
        report_to: "tensorboard" writes curves beside the checkpoints; "wandb" is in `arguments`.
    """
    checkpoints = Path(arguments.output_dir)
    last, done = processes.on_rank_zero(lambda: last_checkpoint(checkpoints)), 0
    if last is not None:
        state = TrainerState.load_from_json(str(last / STATE))
        if is_finished(state, settings.patience):
            return state
        done = state.global_step
        log.info("tuning: going on from step %d", done)
    arguments.eval_on_start = last is None
    steps = settings.epochs * steps_per_epoch(settings, len(rows[0]))
    with progress(steps, "tuning", "steps", done) as advance, suppress_warnings():
        all_callbacks = [EarlyStoppingCallback(settings.patience), StepCallback(advance), *callbacks]
        trainer = make_trainer(base, trainer_module, rows, settings, arguments, lora, rewards, all_callbacks)
        if report_to == "tensorboard" and processes.is_rank_zero():
            trainer.add_callback(tensorboard_callback(checkpoints.with_name("tensorboard")))
        try:
            trainer.train(resume_from_checkpoint=str(last) if last else None)
        finally:
            for callback in callbacks:
                if isinstance(callback, BiasCallback):
                    callback.trainer = None
    state = trainer.state
    del trainer, all_callbacks
    gc.collect()  # a trainer and what it holds refer to each other; its memory is wanted for the checks
    return state


def make_trainer(
    base: DialogueModel,
    trainer_module: TrainerModule,
    rows: tuple[Dataset, Dataset],
    settings: TuningSettings,
    arguments: TrainingArguments,
    lora: LoraConfig | None,
    rewards: Sequence[RewardFunction],
    callbacks: Sequence[TrainerCallback],
) -> Trainer:
    train, validation = rows
    model = prepare_network(base.model, settings)
    further: dict[str, Any] = {"reward_funcs": list(rewards)} if rewards else {}
    if trainer_module.NEEDS_REFERENCE and lora is None:  # with an adapter, the model without it
        further["ref_model"] = share_weights(base.model).float()
    tokenizer = copy.deepcopy(base.tokenizer)
    pad_token_id = tokenizer.eos_token_id if tokenizer.pad_token_id is None else tokenizer.pad_token_id
    model.config.pad_token_id = model.generation_config.pad_token_id = tokenizer.pad_token_id  # or the trainer warns
    trainer = trainer_module.Trainer(
        model,
        args=arguments,
        data_collator=trainer_module.data_collator(base, pad_token_id),
        train_dataset=train,
        eval_dataset=validation,
        processing_class=tokenizer,
        callbacks=list(callbacks),
        peft_config=lora,
        **further,
    )
    trainer.remove_callback(PrinterCallback)
    for callback in callbacks:
        if isinstance(callback, BiasCallback):
            callback.trainer = trainer
    return trainer
