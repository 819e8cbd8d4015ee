"""A command runs: in one process, or in several, which share some commands and leave the others to the main one."""

from importlib import import_module
from typing import Any

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.runs import processes

SHARED = ("measure", "tune", "loop", "ablate")
ALONE = "train_classifier"  # its trainer would wait for the other processes


def run_command(command: str, settings: Any) -> None:
    """Run a command with its settings.

    Raises:
        InputError: as the command says; one that takes one process is started in several.
    """
    if command == ALONE and processes.launched_world_size() > 1:
        raise InputError(f"{command} trains in one process; start it without a launcher.")
    function = getattr(import_module(f"evenhand.recipes.{command}"), command)
    if command in SHARED:
        function(settings)
    else:
        processes.on_rank_zero(lambda: function(settings))
