"""The function that runs a command: on all processes of a launcher if the command is parallel, else on rank 0."""

from importlib import import_module
from typing import Any

from evenhand.evaluation import processes
from evenhand.evaluation.errors import InputError

PARALLEL = ("measure", "tune", "loop", "ablate")
SINGLE_PROCESS = "train_classifier"  # its trainer would wait for the other processes


def run_command(command: str, settings: Any) -> int:
    """Run a command with its settings; return its exit status, 0 unless the command's function returns another.

    Raises:
        InputError: a command for a single process is started in several processes; see also the command's function.
    """
    if command == SINGLE_PROCESS and processes.launched_world_size() > 1:
        raise InputError(f"{command} trains in one process; start it without a launcher.")
    function = getattr(import_module(f"evenhand.recipes.{command}"), command)
    if command in PARALLEL:
        return function(settings) or 0
    return processes.on_rank_zero(lambda: function(settings)) or 0
