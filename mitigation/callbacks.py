"""A trainer callback that measures during training, and context managers for global states."""

import logging
import random
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Self

import numpy as np
import torch
from huggingface_hub import constants
from transformers import Trainer, TrainerCallback, TrainerState

from evenhand.evaluation import processes
from evenhand.evaluation.errors import InputError

log = logging.getLogger("evenhand")


@contextmanager
def without_telemetry() -> Iterator[None]:
    """Turn off TRL's telemetry, and FutureWarnings about gradient checkpointing, inside the block."""
    disabled = constants.HF_HUB_DISABLE_TELEMETRY
    constants.HF_HUB_DISABLE_TELEMETRY = True
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", ".*gradient_checkpointing.*", FutureWarning)
            yield
    finally:
        constants.HF_HUB_DISABLE_TELEMETRY = disabled


@contextmanager
def preserve_random_states() -> Iterator[None]:
    """Restore the global random states of Python, NumPy and torch after the block."""
    python, numpy = random.getstate(), np.random.get_state()
    try:
        with torch.random.fork_rng():
            yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)


class MeasureCallback(TrainerCallback):
    """Measures the model before the first step, every k steps and after the last step, and logs the values.

    The callback does not affect training: it measures in evaluation mode without gradients, and restores all random
    states. Several processes wait while rank 0 measures. A model that is sharded over processes is not measured.
    """

    def __init__(self, measure: Callable[[torch.nn.Module], Mapping[str, float]], every: int) -> None:
        """Set `measure`, which returns values by names with a slash ("bias/fgb_pooled_corrected"), and k = `every`."""
        self.measure, self.every = measure, every
        self.trainer: Trainer | None = None
        self.measured_at = -1

    def attach(self, trainer: Trainer) -> Self:
        """Add this callback to a trainer, through which it logs; return the callback."""
        if self not in trainer.callback_handler.callbacks:
            trainer.add_callback(self)
        self.trainer = trainer
        return self

    def on_train_begin(self, args: Any, state: TrainerState, control: Any, **kwargs: Any) -> None:
        if self.trainer is None:
            raise InputError("callbacks: a callback that measures logs through its trainer; call attach(trainer).")
        if processes.shards_model():
            log.warning("the model is not measured during training, because it is sharded over processes")
        elif state.global_step == 0:
            self._measure(state, control)

    def on_step_end(self, args: Any, state: TrainerState, control: Any, **kwargs: Any) -> None:
        if state.global_step % self.every == 0 or control.should_training_stop:
            self._measure(state, control)

    def on_evaluate(self, args: Any, state: TrainerState, control: Any, **kwargs: Any) -> None:
        if control.should_training_stop and self.measured_at < state.global_step:  # stopped early
            self._measure(state, control)

    def _measure(self, state: TrainerState, control: Any) -> Mapping[str, float]:
        """Measure the model and log the values; return the values, {} for a sharded model."""
        if processes.shards_model():
            return {}
        self.measured_at = state.global_step
        model, was_training = self.trainer.model, self.trainer.model.training
        model.eval()
        with preserve_random_states(), torch.no_grad():
            values = processes.on_rank_zero(lambda: dict(self.measure(model)))
        model.train(was_training)
        log.info("step %d: %s", state.global_step, ", ".join(f"{name} {value:.4g}" for name, value in values.items()))
        should_log = control.should_log
        # `log` of a trainer of TRL would add and reset the metrics of the steps.
        Trainer.log(self.trainer, dict(values))
        control.should_log = should_log  # `log` resets it, but the loss of this step is not logged yet
        return values
