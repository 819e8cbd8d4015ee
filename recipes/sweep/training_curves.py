"""The training curves of a tuning, for the tracker: loss, learning rate and validation, by step."""

import math
from pathlib import Path

from evenhand.evaluation.files import read_json

# Names in the log of transformers' trainer → names of the curves.
LOGGED = {
    "loss": "loss",
    "learning_rate": "learning rate",
    "grad_norm": "gradient norm",
    "eval_loss": "validation loss",
}
VALIDATION = "validation loss"
PERPLEXITY = "validation perplexity"
STATE = "checkpoints/checkpoint-*/trainer_state.json"


def training_curves(folder: Path) -> list[dict[str, float]]:
    """Return a row for each logged step of a tuning: "step", and the values that were logged there.

    They are the loss, the learning rate, the norm of the gradient, and the loss and the perplexity of the validation
    rows, e^loss. The log is in the last checkpoint, which a refused tuning has, too.

    Args:
        folder: the folder of a run of `tune`; [] if it has trained nothing.
    """
    states = [read_json(path, "checkpoints") for path in folder.glob(STATE)]
    if not states:
        return []
    last = max(states, key=lambda state: state["global_step"])
    rows: dict[int, dict[str, float]] = {}
    for entry in last["log_history"]:
        row = rows.setdefault(entry["step"], {"step": entry["step"]})
        row |= {name: float(entry[logged]) for logged, name in LOGGED.items() if logged in entry}
        if VALIDATION in row:
            row[PERPLEXITY] = math.exp(min(row[VALIDATION], 700.0))
    return [rows[step] for step in sorted(rows)]
