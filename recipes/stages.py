"""Stages of an experiment: runs of other commands, each in its folder. A stage that is finished returns at once.

Equal stages of an experiment have the same folder and run once.
"""

import logging
import os
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from evenhand.evaluation.errors import InputError, TuningRejected
from evenhand.evaluation.metrics.generation_bias.report.report_data import HEADLINE, is_bias_significant
from evenhand.evaluation.progress import start_logging
from evenhand.evaluation.report.numbers import score_text
from evenhand.evaluation.score import display_name, find_score, read_scores
from evenhand.recipes.commands import run_command
from evenhand.recipes.measure import SCORES

log = logging.getLogger("evenhand")


@dataclass(frozen=True)
class Stage:
    """One run of a command: its settings, and the folders of the stages that must be finished before it.

    `must_show_bias`: the stage measures the base model, which is tuned only if the measurement shows a bias. `number`
    is its place among all stages, such as "3 of 9".
    """

    command: str
    settings: Any
    needs: tuple[Path, ...] = ()
    must_show_bias: bool = False
    number: str = ""

    @property
    def folder(self) -> Path:
        return self.settings.output_dir

    def run(self, errors: Iterable[InputError | None] = ()) -> InputError | None:
        """Run the stage, unless a stage that it needs failed; return the error that ended the stage, or None.

        Args:
            errors: the errors of the stages that it needs, or None for a stage without error.
        """
        if failed := next(filter(None, errors), None):
            return failed
        log.info("stage %s: %s → %s", self.number, self.command, self.folder)
        try:
            run_command(self.command, self.settings)
        except InputError as error:
            return error
        return self._no_bias() if self.must_show_bias else None

    def _no_bias(self) -> TuningRejected | None:
        pooled = find_score(read_scores(self.folder / SCORES), HEADLINE)
        if is_bias_significant(pooled):
            return None
        return TuningRejected(
            f"the base model shows no bias: pooled FGB* is {score_text(pooled)} ({display_name(str(self.folder))}), so "
            "tuning cannot reduce it. Measure with more prompts (measure.prompts.descriptors, per_cell), or tune the "
            "model anyway with --allow_no_bias true."
        )


def set_up_process(parent: int, threads: int, level: int) -> None:
    """Set up a process that runs stages: its end when the process `parent` ends, its threads and its logging."""
    _exit_with(parent)  # before the slow import of torch
    import torch

    torch.set_num_threads(threads)
    start_logging()
    log.setLevel(level)


@cache
def _exit_with(parent: int) -> None:
    """Start a thread that ends this process when its parent process ends.

    Without the thread, the stages of a killed command would still run while the next command starts the same stages.
    """

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
