"""Checkpoints: what a tuning goes on from after a kill, whose they are, and the curves in their logs."""

import json
import shutil
from pathlib import Path
from typing import Any

from transformers import TrainerState

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.runs.files import write_json

CHECKPOINTS, STATE = "checkpoints", "trainer_state.json"


def check_same_inputs(checkpoints: Path, **inputs: Any) -> None:
    """Write down what is tuned on what, or find it written.

    Raises:
        InputError: the folder holds checkpoints of another tuning.
    """
    file = checkpoints / "inputs.json"
    if not file.exists():
        write_json(file, inputs)
        return
    earlier = json.loads(file.read_text(encoding="utf-8"))
    changed = [name for name, value in inputs.items() if earlier.get(name) != value]
    if changed:
        raise InputError(
            f"output_dir: {checkpoints} holds a tuning with other {' and '.join(changed)}; "
            "give another --output_dir, or delete the folder."
        )


def last_checkpoint(checkpoints: Path) -> Path | None:
    """Return the newest checkpoint; one that was being written when the process was killed is removed."""
    whole = []
    for folder in checkpoints.glob("checkpoint-*"):
        try:
            json.loads((folder / STATE).read_text(encoding="utf-8"))  # the file written last
            whole.append(folder)
        except (OSError, ValueError):
            shutil.rmtree(folder)
    return max(whole, key=lambda folder: int(folder.name.rpartition("-")[2]), default=None)


def best_checkpoint(checkpoints: Path, state: TrainerState) -> Path:
    """Return the checkpoint with the best validation loss."""
    return checkpoints / f"checkpoint-{state.best_global_step}"


def is_finished(state: TrainerState, patience: int) -> bool:
    """Return whether all steps are done, or so many validations brought no new best loss."""
    later = sum(step > state.best_global_step for step, _ in curve(state, "eval_loss"))
    return state.global_step >= state.max_steps or later >= patience


def curve(state: TrainerState, name: str) -> tuple[tuple[int, float], ...]:
    """Return (step, value) of everything logged under a name."""
    return tuple((entry["step"], entry[name]) for entry in state.log_history if name in entry)


def logged_metric_names(state: TrainerState) -> list[str]:
    """Return the names of the values that callbacks logged: those with a slash, which the trainer's own have not."""
    return list(dict.fromkeys(name for entry in state.log_history for name in entry if "/" in name))
