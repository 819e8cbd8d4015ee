"""Tracking of stages with W&B or TensorBoard.

Each stage is one W&B run, and all stages of an experiment are in one group. W&B is offline unless the user is logged
in.
"""

import io
import json
import logging
import math
import os
import re
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.files import check_links_inside, write_json, write_text
from evenhand.evaluation.score import BiasScore
from evenhand.evaluation.settings import as_settings

log = logging.getLogger("evenhand")

PROJECT = "evenhand"
WAIT = 30  # time-out of W&B's server in seconds, after which this run and later runs stay offline
HEADLINES = 10  # maximum number of scores with a panel
KEPT = "wandb/artifacts.json"  # file in a stage's folder that lists the artifacts which the stage uploaded
REPORT = "report"  # the kind of artifact that no stage reads


@dataclass(frozen=True)
class Tracker:
    """A logger of a stage's numbers to W&B or TensorBoard, or to nothing.

    Attributes:
        wandb_run: the W&B run, or None.
        writer: the TensorBoard writer, or None.
        folder: the folder of the stage.
        keeps_files: whether files of the folder are uploaded as W&B artifacts.
    """

    wandb_run: Any = None
    writer: Any = None
    folder: Path = Path()
    keeps_files: bool = False

    def log_scores(self, scores: Sequence[BiasScore]) -> None:
        """Log all scores in a table, overall scores in the summary, and the first HEADLINES overall scores in panels.

        A score is overall if it has a value and no group.
        """
        overall = {each.metric: each.value for each in scores if not each.group and not math.isnan(each.value)}
        self.log_values(dict(list(overall.items())[:HEADLINES]))
        self.log_summary(overall)
        self.log_table("scores", pd.DataFrame(map(_row, scores)))

    def log_values(self, values: Mapping[str, float]) -> None:
        """Log numbers by name, each in a separate panel."""
        if self.wandb_run:
            self.wandb_run.log(values)
        if self.writer:
            for name, value in values.items():
                self.writer.add_scalar(name, value)

    def log_summary(self, values: Mapping[str, float]) -> None:
        """Add numbers to the run's summary, which W&B shows as columns of the table of runs (W&B only)."""
        if self.wandb_run:
            self.wandb_run.summary.update(values)

    def log_table(self, name: str, rows: pd.DataFrame) -> None:
        """Log rows as a table (W&B only). W&B shows cells as text, so responses need no escaping."""
        if self.wandb_run:
            import wandb

            self.wandb_run.log({name: wandb.Table(dataframe=rows.reset_index(drop=True))})

    def log_figure(self, name: str, draw: Callable[[], Any]) -> None:
        """Log an image of the matplotlib figure that `draw` returns (W&B only)."""
        if self.wandb_run:
            import wandb
            from PIL import Image

            picture = io.BytesIO()
            draw().savefig(picture, dpi=100)
            self.wandb_run.log({name: wandb.Image(Image.open(picture))})

    def log_report(self, files: Sequence[Path]) -> None:
        """Log each HTML page among the files of a report as a panel (W&B only)."""
        if self.wandb_run:
            import wandb

            for path in (path for path in files if path.suffix == ".html"):
                self.wandb_run.log({path.stem: wandb.Html(path, inject=False)})

    def log_artifact(self, name: str, kind: str, *paths: Path) -> None:
        """Upload files or folders of the stage as the artifact RUN-`name` if `keeps_files` is true (W&B only).

        RUN is the name of the W&B run, and `kind` is the type of the artifact.
        """
        if self.keeps_files:
            name = f"{_plain(self.wandb_run.name)}-{name}"
            self.wandb_run.log_artifact(_artifact(name, kind, paths))
            if kind != REPORT:
                record = {"kind": kind, "paths": [path.name for path in paths]}
                write_json(self.folder / KEPT, {**_kept(self.folder), name: record})

    def link_inputs(self, folder: Path) -> None:
        """Record each artifact that another stage uploaded from `folder` as an input of this run (W&B only).

        The artifact is declared again with the same name and content. Nothing is uploaded, because the server already
        has the content.

        Raises:
            InputError: a symbolic link among the files leads out of the folder, so that a file of another folder would
                be uploaded.
        """
        for name, record in _kept(folder).items() if self.keeps_files else ():
            # Only files in the folder are selected, by name, so that an edited record cannot select files elsewhere.
            paths = [path for path in sorted(folder.iterdir()) if path.name in record["paths"]]
            for path in paths:
                check_links_inside(path, "log_artifacts", within=folder)
            # `use_artifact` does the same, but fails offline, although `wandb sync` can upload the link later.
            used = {"is_user_created": True, "use_after_commit": True}
            self.wandb_run._log_artifact(_artifact(name, record["kind"], paths), **used)


@contextmanager
def start_tracking(
    job: str, config: Any, *, group: str | None = None, name: str | None = None, settings: Any = None
) -> Iterator[Tracker]:
    """Yield the tracker that `config.report_to` selects; the W&B run ends with the block.

    A job that is started again in the same folder continues the W&B run of this folder.

    Args:
        job: the type of the job, usually the command.
        config: the settings, with `output_dir`, `report_to` and `log_artifacts`.
        group: W&B group; None: the config's group.
        name: name of the run; None: the path of the folder within the group (method and stage).
        settings: the recorded settings; None: the config.

    Raises:
        InputError: TensorBoard is not installed.
    """
    report_to = getattr(config, "report_to", "none")  # configs without this field, such as an export's, are not tracked
    settings = settings or as_settings(config)
    if report_to == "wandb":
        group = group or getattr(config, "group", None)
        run = _wandb_run(job, config.output_dir, group, name or _name(config.output_dir, group, job), settings)
        failed = True
        try:
            keeps_files = config.log_artifacts and not run.disabled
            yield Tracker(wandb_run=run, folder=config.output_dir, keeps_files=keeps_files)
            failed = False
        finally:
            run.finish(exit_code=int(failed))
            if run.offline:
                log.info("W&B: kept offline; `wandb sync %s` uploads it", Path(run.dir).parent)
            elif not run.disabled:
                log.info("W&B: %s", run.url)
    elif report_to == "tensorboard":
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise InputError("report_to: tensorboard is not installed; `pip install tensorboard`.") from None
        with SummaryWriter(str(config.output_dir / "tensorboard")) as writer:
            record = json.dumps(settings, indent=1, ensure_ascii=False, default=str)
            writer.add_text("config", f"```json\n{record}\n```")
            yield Tracker(writer=writer)
    else:
        yield Tracker()


def _wandb_run(job: str, folder: Path, group: str | None, name: str, settings: Any) -> Any:
    """Return a new W&B run, or the continued W&B run whose id is in the folder.

    The run is offline if the W&B server cannot be reached, and so are later runs of this process. W&B reads
    WANDB_ENTITY, WANDB_TAGS and other environment variables.
    """
    # W&B prints nothing and sends no reports of errors, regardless of the user's settings.
    os.environ.update(WANDB_SILENT="true", WANDB_ERROR_REPORTING="false")
    import wandb

    # The mode is an argument of `init`, because W&B has already read the environment variables.
    mode = os.environ.get("WANDB_MODE") or ("online" if wandb.login(prompt=False, verify=False) else "offline")
    arguments = {
        "project": os.environ.get("WANDB_PROJECT") or PROJECT,
        "job_type": job,
        "group": group,
        "name": name,
        "id": _id(folder / "wandb" / f"{_plain(name)}.id"),
        "resume": "allow",
        "config": settings,
        "dir": str(folder),
        "settings": wandb.Settings(console="off", x_disable_stats=True, init_timeout=WAIT),
    }
    try:
        return wandb.init(mode=mode, **arguments)
    except wandb.errors.Error as error:
        log.warning("W&B cannot be reached (%s); this run and those that follow are kept offline", error)
        os.environ["WANDB_MODE"] = "offline"
        return wandb.init(mode="offline", **arguments)


def _artifact(name: str, kind: str, paths: Sequence[Path]) -> Any:
    """Return a W&B artifact of files and folders.

    Only reports are copied, because other files do not change after the upload.
    """
    import wandb

    artifact, policy = wandb.Artifact(name, kind), "mutable" if kind == REPORT else "immutable"
    for path in paths:
        if path.is_dir():
            artifact.add_dir(str(path), name=path.name, policy=policy)
        else:
            artifact.add_file(str(path), policy=policy)
    return artifact


def _kept(folder: Path) -> dict[str, dict[str, Any]]:
    try:
        return json.loads((folder / KEPT).read_text(encoding="utf-8"))
    except (OSError, ValueError):  # the file is absent or damaged; neither may stop a stage
        return {}


def _id(path: Path) -> str:
    """Return the id of a W&B run from the file `path`; create and save a new id if the file does not exist."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, uuid.uuid4().hex)
    return path.read_text(encoding="utf-8").strip()


def _name(folder: Path, group: str | None, job: str) -> str:
    """Return the default name of a run: the path of its folder within the group's folder (method and stage).

    If the folder is not inside a folder with the group's name, the name is the job and the name of the folder.

    >>> _name(Path("/runs/loop/exchange/tune"), "loop", "tune"), _name(Path("/runs/dialogpt"), None, "measure")
    ('exchange/tune', 'measure dialogpt')
    """
    parts = folder.resolve().parts
    if group in parts[:-1]:
        return "/".join(parts[len(parts) - parts[::-1].index(group) :]) or job
    return f"{job} {folder.resolve().name}"


def _plain(name: str) -> str:
    """Return a name in which "-" replaces characters that are not allowed in the names of files and artifacts.

    >>> _plain("exchange/tune, seed 0")
    'exchange-tune-seed-0'
    """
    return re.sub(r"[^\w.-]+", "-", name)


def _row(score: BiasScore) -> dict[str, Any]:
    low, high = score.interval or (math.nan, math.nan)
    cut = ", ".join(f"{name} {value}" for name, value in score.group.items())
    numbers = {"value": score.value, "low": low, "high": high, "standard_error": score.standard_error}
    numbers |= {"ideal": score.ideal, "p_value": score.p_value}
    numbers = {name: math.nan if number is None else float(number) for name, number in numbers.items()}
    return {"metric": score.metric, "cut": cut, **numbers, "n": score.n}
