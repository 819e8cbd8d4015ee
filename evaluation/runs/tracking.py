"""One W&B run per stage, all stages of an experiment in one group; offline unless the user is logged in."""

import logging
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.results import BiasScore
from evenhand.evaluation.settings import as_settings

log = logging.getLogger("evenhand")

PROJECT = "evenhand"


@dataclass(frozen=True)
class Tracker:
    """Where a stage's numbers go besides its folder: a W&B run, a TensorBoard writer, or nowhere."""

    wandb_run: Any = None
    writer: Any = None

    def scores(self, scores: Sequence[BiasScore]) -> None:
        """Log every defined score with the ends of its interval, and its standard error where it has one."""
        values = {}
        for score in scores:
            if not math.isnan(score.value):
                name = "/".join([score.metric, *map(str, score.group.values())])
                values[name] = score.value
                if score.interval:
                    values[f"{name}/low"], values[f"{name}/high"] = score.interval
                if score.standard_error is not None:
                    values[f"{name}/standard_error"] = score.standard_error
        self.values(values)

    def values(self, values: Mapping[str, float]) -> None:
        """Log numbers by name, and put them into the run's summary."""
        if self.wandb_run:
            self.wandb_run.log(values)
            self.wandb_run.summary.update(values)
        if self.writer:
            for name, value in values.items():
                self.writer.add_scalar(name, value)

    def table(self, name: str, rows: pd.DataFrame) -> None:
        """Log rows as a table (W&B only); W&B shows cells as text, so responses need no escaping here."""
        if self.wandb_run:
            import wandb

            self.wandb_run.log({name: wandb.Table(dataframe=rows.reset_index(drop=True))})

    def artifact(self, name: str, kind: str, *paths: Path) -> None:
        """Keep files or whole folders with the run (W&B only)."""
        if self.wandb_run:
            import wandb

            artifact = wandb.Artifact(name, kind)
            for path in paths:
                if path.is_dir():
                    artifact.add_dir(str(path), name=path.name)
                else:
                    artifact.add_file(str(path))
            self.wandb_run.log_artifact(artifact)


@contextmanager
def tracked(
    job: str, config: Any, *, group: str | None = None, name: str | None = None, settings: Any = None
) -> Iterator[Tracker]:
    """Yield the tracker that `config.report_to` asks for; the run ends with the block.

    By default a run is in the config's group, is called by the group and the job, and holds the config.

    Raises:
        InputError: TensorBoard is asked for and not installed.
    """
    if config.report_to == "wandb":
        # Neither a prompt nor a report about the user's machine, whatever their settings.
        os.environ.update(WANDB_SILENT="true", WANDB_ERROR_REPORTING="false")
        import wandb

        online = wandb.login(prompt=False, verify=False)
        group = group or getattr(config, "group", None)
        arguments = {
            "project": PROJECT,
            "job_type": job,
            "group": group,
            "name": name or (f"{group}-{job}" if group else job),
            "config": settings or as_settings(config),
            "dir": str(config.output_dir),
            "settings": wandb.Settings(console="off", x_disable_stats=True),
        }
        try:
            run = wandb.init(mode=os.environ.get("WANDB_MODE") or ("online" if online else "offline"), **arguments)
        except wandb.errors.Error as error:
            log.warning("W&B cannot be reached (%s); this run is kept offline", error)
            run = wandb.init(mode="offline", **arguments)
        failed = True
        try:
            yield Tracker(wandb_run=run)
            failed = False
        finally:
            run.finish(exit_code=int(failed))
    elif config.report_to == "tensorboard":
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise InputError("report_to: tensorboard is not installed; `pip install tensorboard`.") from None
        with SummaryWriter(str(config.output_dir / "tensorboard")) as writer:
            yield Tracker(writer=writer)
    else:
        yield Tracker()
