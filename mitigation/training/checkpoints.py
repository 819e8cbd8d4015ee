"""Checkpoints of a training: their inputs, the last and the best checkpoint, and the curves in their logs."""

import json
import shutil
from pathlib import Path
from typing import Any

from transformers import TrainerState

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.runs.files import write_json

CHECKPOINTS, STATE = "checkpoints", "trainer_state.json"


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
    """Return the (step, value) pairs that are logged under a name."""
    return tuple((entry["step"], entry[name]) for entry in state.log_history if name in entry)


def logged_metric_names(state: TrainerState) -> list[str]:
    """Return the names of values that callbacks logged: unlike the trainer's, they have a slash."""
    return list(dict.fromkeys(name for entry in state.log_history for name in entry if "/" in name))
