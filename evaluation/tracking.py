"""Tracking of stages with W&B.

Each stage is one W&B run, and all stages of an experiment are in one group. W&B is offline unless the user is logged
in, and reads WANDB_MODE, WANDB_PROJECT, WANDB_ENTITY, WANDB_TAGS and its other environment variables.
"""

import io
import logging
import math
import os
import re
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd

from evenhand.evaluation.errors import InputError, first_line
from evenhand.evaluation.files import write_text
from evenhand.evaluation.report.page import Page, Section
from evenhand.evaluation.score import BiasScore
from evenhand.evaluation.settings import as_settings

log = logging.getLogger("evenhand")

PROJECT = "evenhand"
MODES = ("online", "offline", "disabled", "shared", "dryrun", "run")
WAIT = 15  # time-out of W&B's server in seconds, after which this run and later runs stay offline
HEADLINES = 10  # maximum number of scores with a panel
TEXTS = ("system_prompt", "instruction")  # settings that W&B gets only with the responses


@dataclass(frozen=True)
class Tracker:
    """A logger of a stage's numbers to W&B (`wandb_run`), or to nothing.

    Without `logs_responses`, W&B gets no prompts and no responses.
    """

    wandb_run: Any = None
    keeps_files: bool = False
    logs_responses: bool = False

    def log_scores(self, scores: Sequence[BiasScore]) -> None:
        """Log all scores in a table, overall scores in the summary, and the first HEADLINES overall scores in panels.

        A score is overall if it has a value and no group.
        """
        overall = {each.name: each.value for each in scores if not each.group and not math.isnan(each.value)}
        self.log_values(dict(list(overall.items())[:HEADLINES]))
        self.log_summary(overall)
        self.log_table("scores", pd.DataFrame(map(_row, scores)))

    def log_values(self, values: Mapping[str, float]) -> None:
        """Log numbers by name, each in a separate panel."""
        if self.wandb_run:
            self.wandb_run.log(values)

    def log_summary(self, values: Mapping[str, float]) -> None:
        """Add numbers to the run's summary, which W&B shows as columns of the table of runs."""
        if self.wandb_run:
            self.wandb_run.summary.update(values)

    def log_curves(self, section: str, axis: str, rows: Sequence[Mapping[str, float]]) -> None:
        """Log numbers as one chart each over the column `axis`, in a section of W&B's page; a row is a step."""
        if not self.wandb_run:
            return
        axis_name = _metric_name(section, axis)
        self.wandb_run.define_metric(axis_name)
        for name in dict.fromkeys(name for row in rows for name in row if name != axis):
            self.wandb_run.define_metric(_metric_name(section, name), step_metric=axis_name)
        for row in rows:
            self.wandb_run.log({_metric_name(section, name): value for name, value in row.items()})

    def log_table(self, name: str, rows: pd.DataFrame) -> None:
        """Log rows as a table. W&B shows cells as text, so responses need no escaping."""
        if self.wandb_run:
            import wandb

            self.wandb_run.log({name: wandb.Table(dataframe=rows.reset_index(drop=True))})

    def log_samples(self, rows: pd.DataFrame) -> None:
        """Log a table of prompts and responses, if the settings ask for it."""
        if self.logs_responses:
            self.log_table("samples", rows)

    def log_figure(self, name: str, draw: Callable[[], Any]) -> None:
        """Log the matplotlib figure that `draw` returns as an image."""
        if self.wandb_run:
            import matplotlib.pyplot  # noqa: F401 (W&B looks for it, and would fail)
            import wandb

            self.wandb_run.log({name: wandb.Image(draw())})

    def log_report(self, files: Mapping[Path, Page]) -> None:
        """Log each page of a report as a panel, with prompts and responses if the settings ask for it."""
        for path, page in files.items() if self.wandb_run else ():
            import wandb

            from evenhand.evaluation.report.html import page_html

            html = page_html(page if self.logs_responses else _without_texts(page))
            self.wandb_run.log({path.stem: wandb.Html(io.StringIO(html), inject=False)})

    def log_artifact(self, name: str, kind: str, *paths: Path) -> None:
        """Upload files or folders as the artifact RUN-`name` of type `kind`, if the settings ask for it.

        Artifacts other than models contain responses.
        """
        if self.keeps_files and (self.logs_responses or kind == "model"):
            import wandb

            artifact = wandb.Artifact(f"{_plain(self.wandb_run.name)}-{name}", kind)
            for path in paths:
                artifact.add_dir(str(path), name=path.name) if path.is_dir() else artifact.add_file(str(path))
            self.wandb_run.log_artifact(artifact)


@contextmanager
def start_tracking(
    job: str, config: Any, *, group: str | None = None, name: str | None = None, settings: Any = None
) -> Iterator[Tracker]:
    """Yield the tracker that `config.report_to` selects; the W&B run ends with the block.

    A job that is started again in the same folder continues the W&B run of this folder.

    Args:
        job: the type of the job, usually the command.
        config: the settings, with `output_dir`, `report_to` and `upload`.
        group: W&B group; None: the config's group.
        name: name of the run; None: the path of the folder within the group (method and stage).
        settings: the recorded settings; None: the config.
    """
    report_to = getattr(config, "report_to", "none")  # configs without this field, such as an export's, are not tracked
    settings = settings or as_settings(config)
    if report_to == "wandb":
        group = group or getattr(config, "group", None)
        logs_responses = uploads_responses(config)
        if not logs_responses:
            settings = _omit(settings, TEXTS)
        run = _wandb_run(job, config.output_dir, group, name or _name(config.output_dir, group, job), settings)
        failed = True
        try:
            keeps_files = config.upload in ("adapters", "all") and not run.disabled
            yield Tracker(wandb_run=run, keeps_files=keeps_files, logs_responses=logs_responses)
            failed = False
        finally:
            run.finish(exit_code=int(failed))
            if run.offline:
                log.info("W&B: kept offline; `wandb sync %s` uploads it", Path(run.dir).parent)
            elif not run.disabled:
                log.info("W&B: %s", run.url)
    else:
        yield Tracker()


def uploads_responses(config: Any) -> bool:
    """Return whether W&B gets prompts and responses by these settings."""
    return config.upload in ("responses", "all")


def destinations(config: Any) -> str:
    """Return where the results of a run go, and whether prompts and responses leave this machine, as one line."""
    servers = dict.fromkeys(_servers(as_settings(config)))
    tracker = "no tracker"
    if getattr(config, "report_to", "none") == "wandb":
        mode = _wandb_mode()
        tracker = f"W&B {mode}"
        if mode == "online" and uploads_responses(config):
            servers["W&B"] = None
    texts = f"go to {' and '.join(servers)}" if servers else "stay on this machine"
    return f"results in {config.output_dir}; {tracker}; prompts and responses {texts}"


def _servers(settings: Any) -> Iterator[str]:
    """Yield the addresses of the servers in nested settings."""
    for name, value in settings.items() if isinstance(settings, Mapping) else ():
        yield from [value] if name == "server" and value else _servers(value)


def _omit(settings: Any, names: Sequence[str]) -> Any:
    """Return nested settings without the settings `names`."""
    if isinstance(settings, list):
        return [_omit(value, names) for value in settings]
    if not isinstance(settings, Mapping):
        return settings
    return {name: _omit(value, names) for name, value in settings.items() if name not in names}


def _without_texts(page: Page) -> Page:
    def section(part: Section) -> Section:
        examples = [replace(it, texts=(), prompt="") for it in part.examples]
        return replace(part, examples=examples, parts=[*map(section, part.parts)])

    notes = [it for it in page.notes if not it.startswith("System prompt")]
    kept = {"sections": [*map(section, page.sections)], "signature": _omit(page.signature, TEXTS)}
    return replace(page, **kept, notes=[*notes, "Prompts and responses are left out (see the setting upload)."])


def _wandb_mode() -> str:
    # W&B prints nothing and sends no reports of errors, regardless of the user's settings.
    os.environ.update(WANDB_SILENT="true", WANDB_ERROR_REPORTING="false")
    import wandb

    # The mode is an argument of `init`, because W&B has already read the environment variables.
    if mode := os.environ.get("WANDB_MODE"):
        if mode not in MODES:
            raise InputError("WANDB_MODE", f"{mode!r} is none of {', '.join(MODES)}; set it again.")
        return mode
    try:
        return "online" if wandb.login(prompt=False, verify=False) else "offline"
    except (ValueError, wandb.errors.Error) as error:
        raise InputError(
            "report_to",
            f"W&B cannot use the key in WANDB_API_KEY ({first_line(error)}); set it again, or give --report_to none.",
        ) from None


def _wandb_run(job: str, folder: Path, group: str | None, name: str, settings: Any) -> Any:
    """Return a new W&B run, or the continued W&B run whose id is in the folder."""
    mode = _wandb_mode()
    import wandb

    id_file = folder / "wandb" / f"{_plain(name)}.id"
    if not id_file.exists():
        write_text(id_file, uuid.uuid4().hex)
    arguments = {
        **{"project": os.environ.get("WANDB_PROJECT") or PROJECT, "job_type": job, "group": group, "name": name},
        **{"id": id_file.read_text(encoding="utf-8"), "resume": "allow", "config": settings, "dir": str(folder)},
        # The metadata have the command's arguments, and so a system prompt.
        "settings": wandb.Settings(console="off", x_disable_stats=True, x_disable_meta=True, init_timeout=WAIT),
    }
    try:
        return wandb.init(mode=mode, **arguments)
    except wandb.errors.Error as error:
        reason = first_line(error)
        log.warning("W&B cannot be reached (%s); this run and those that follow are kept offline", reason)
        os.environ["WANDB_MODE"] = "offline"
        arguments["id"] = uuid.uuid4().hex  # W&B's process still holds the other id
        write_text(id_file, arguments["id"])
        return wandb.init(mode="offline", **arguments)


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


def _metric_name(section: str, name: str) -> str:
    """Return the name of a metric in a section of W&B's page, of letters, digits and "_", which W&B can sort by.

    >>> _metric_name("thresholds", "alpha 0 scgb: CARE")
    'thresholds/alpha_0_scgb_CARE'
    """
    return f"{section}/{re.sub(r'[^A-Za-z0-9]+', '_', name).strip('_')}"


def _plain(name: str) -> str:
    """Return a name in which "-" replaces characters that are not allowed in the names of files and artifacts."""
    return re.sub(r"[^\w.-]+", "-", name)


def _row(score: BiasScore) -> dict[str, Any]:
    cut = ", ".join(f"{name} {value}" for name, value in score.group.items())
    names = ("value", "low", "high", "standard_error", "ideal", "p_value")
    values = (score.value, *(score.interval or (None, None)), score.standard_error, score.ideal, score.p_value)
    numbers = {name: math.nan if it is None else float(it) for name, it in zip(names, values, strict=True)}
    return {"metric": score.name, "cut": cut, **numbers, "n": score.n}
