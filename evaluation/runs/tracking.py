"""Tracking of stages with W&B.

Each stage is one W&B run, and all stages of an experiment are in one group. W&B is offline unless the user is logged
in, and reads WANDB_MODE, WANDB_PROJECT, WANDB_ENTITY, WANDB_TAGS and its other environment variables.
"""

import io
import logging
import math
import os
import re
import shlex
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol

import pandas as pd

from evenhand.evaluation.doors import spelled
from evenhand.evaluation.errors import InputError, first_line
from evenhand.evaluation.facts import Facts
from evenhand.evaluation.files import write_text
from evenhand.evaluation.model_settings import LOCAL_SOURCES
from evenhand.evaluation.report.page import Page, Section
from evenhand.evaluation.report.words import COMMON, note
from evenhand.evaluation.runs.private_texts import is_private_group, public_files, public_values, without_folders
from evenhand.evaluation.score import BiasScore
from evenhand.evaluation.settings import as_settings

if TYPE_CHECKING:  # slow to import
    import wandb
    from matplotlib.figure import Figure

log = logging.getLogger("evenhand")

PROJECT = "evenhand"
Mode = Literal["online", "offline", "disabled", "shared"]
MODES: tuple[Mode, ...] = ("online", "offline", "disabled", "shared")
OLD_MODES = {"dryrun": "offline", "run": "online"}
WAIT = 15  # time-out of W&B's server in seconds, after which this run and later runs stay offline
OFFLINE_WAIT = 600  # seconds for W&B's own process, which a busy machine starts slowly
DIGITS = 6  # of a hash that keeps similar names apart
HEADLINES = 10  # maximum number of scores with a panel
WITH_RESPONSES = ("responses", "all")  # values of `upload` with which W&B gets prompts and responses
NAME_CHARACTERS = 40  # of the name of a run that the name of its id file has


class TrackedSettings(Protocol):
    """The settings that tracking reads. A command whose settings lack `report_to`, such as `export`, is not tracked."""

    @property
    def output_dir(self) -> Path: ...

    @property
    def report_to(self) -> str: ...

    @property
    def upload(self) -> str: ...

    @property
    def group(self) -> str | None: ...


@dataclass(frozen=True)
class Tracker:
    """A logger of a stage's numbers to W&B, or to nothing.

    The W&B run is opened by `start`, or by what is logged first, so that a stage whose settings are refused opens none.
    Without `logs_responses`, W&B gets no prompts and no responses.

    Attributes:
        open_run: returns a new W&B run, or the continued one; None: nothing is logged.
    """

    open_run: "Callable[[], wandb.Run] | None" = None
    keeps_files: bool = False
    logs_responses: bool = False

    @cached_property
    def wandb_run(self) -> "wandb.Run | None":
        """The W&B run, which is opened; None: nothing is logged."""
        return None if self.open_run is None else self.open_run()

    def start(self) -> None:
        """Open the W&B run: all settings are checked, and long work begins."""
        _ = self.wandb_run

    def of_trainer(self) -> str:
        """Open the W&B run, and return `report_to` for a trainer of transformers, which then logs to this run.

        Without an open run, such a trainer would open another one, outside the group and with the command's arguments.
        """
        return "none" if self.wandb_run is None else "wandb"

    def log_scores(self, scores: Sequence[BiasScore]) -> None:
        """Log all scores in a table, overall scores in the summary, and the first HEADLINES overall scores in panels.

        A score is overall if it has a value and no group.
        """
        overall = {}
        for score in scores:
            if not score.group and not math.isnan(score.value):
                overall[score.name] = score.value
        headlines = list(overall)[:HEADLINES]
        self.log_values({name: overall[name] for name in headlines})
        self.log_summary(overall)
        self.log_score_table(scores)

    def log_score_table(self, scores: Sequence[BiasScore]) -> None:
        """Log all scores in a table; those of single templates and raters are left out without `logs_responses`."""
        public = [score for score in scores if self.logs_responses or not is_private_group(score.group)]
        self.log_table("scores", pd.DataFrame([_row(score) for score in public]))

    def log_facts(self, facts: Mapping[str, Facts]) -> None:
        """Add what each family found to the summary: its headline, verdict, advice, and how many people are named."""
        for family, found in facts.items():
            summary: dict[str, float | str] = {"verdict": found.verdict.kind, "people named": len(found.people)}
            if found.headline is not None and not math.isnan(found.headline.value):
                summary["headline"] = found.headline.value
            if found.decision is not None:
                summary["advice"] = found.decision.values["advice"]
            self.log_summary({f"{family}/{name}": value for name, value in summary.items()})

    def log_values(self, values: Mapping[str, float]) -> None:
        """Log numbers by name, each in a separate panel."""
        if self.wandb_run:
            self.wandb_run.log(dict(values))

    def log_summary(self, values: Mapping[str, float | str]) -> None:
        """Add numbers, or texts, to the run's summary, which W&B shows as columns of the table of runs."""
        if self.wandb_run:
            self.wandb_run.summary.update(dict(values))

    def log_curves(self, section: str, axis: str, rows: Sequence[Mapping[str, float]]) -> None:
        """Log numbers as one chart each over the column `axis`, in a section of W&B's page; a row is a step."""
        if not self.wandb_run or not rows:
            return
        names = dict.fromkeys([axis, *(name for row in rows for name in row)])
        metrics = metric_names(section, list(names))
        axis_name = metrics.pop(axis)
        self.wandb_run.define_metric(axis_name)
        for metric in metrics.values():
            self.wandb_run.define_metric(metric, step_metric=axis_name)
        metrics[axis] = axis_name
        for row in rows:
            self.wandb_run.log({metrics[name]: value for name, value in row.items()})

    def log_table(self, name: str, rows: pd.DataFrame) -> None:
        """Log rows as a table. W&B shows cells as text, so responses need no escaping."""
        if self.wandb_run:
            import wandb

            self.wandb_run.log({name: wandb.Table(dataframe=rows.reset_index(drop=True))})

    def log_samples(self, rows: pd.DataFrame) -> None:
        """Log a table of prompts and responses, if the settings ask for it."""
        if self.logs_responses:
            self.log_table("samples", rows)

    def log_figure(self, name: str, draw: Callable[[], "Figure"]) -> None:
        """Log the matplotlib figure that `draw` returns as an image."""
        if self.wandb_run:
            import matplotlib.pyplot  # noqa: F401 (W&B looks for it, and would fail)
            import wandb

            self.wandb_run.log({name: wandb.Image(draw())})

    def log_report(self, files: Mapping[Path, Page]) -> None:
        """Log each page of a report as a panel, with prompts and responses if the settings ask for it."""
        if not self.wandb_run:
            return
        import wandb

        from evenhand.evaluation.report.html import page_html

        for path, page in files.items():
            logged = page if self.logs_responses else _without_texts(page)
            html = io.StringIO(page_html(logged))
            self.wandb_run.log({path.stem: wandb.Html(html, inject=False)})

    def log_artifact(self, name: str, kind: str, *paths: Path, private: Sequence[str] = ()) -> None:
        """Upload files or folders as the artifact RUN-`name` of type `kind`, if the settings ask for it.

        Artifacts other than models contain responses. Without `logs_responses`, a model's folder is uploaded without
        private texts, and without the files whose names match a pattern in `private`.
        """
        may_be_kept = self.logs_responses or kind == "model"
        if not (self.wandb_run and self.keeps_files and may_be_kept):
            return
        import wandb

        artifact = wandb.Artifact(f"{_plain(self.wandb_run.name or '')}-{name}", kind)
        for path in paths:
            if path.is_dir() and self.logs_responses:
                artifact.add_dir(str(path), name=path.name)
            elif path.is_dir():
                _add_public_files(artifact, path, private)
            else:
                artifact.add_file(str(path))
        self.wandb_run.log_artifact(artifact)


def _add_public_files(artifact: "wandb.Artifact", folder: Path, private: Sequence[str]) -> None:
    """Add the files of a tuned model to an artifact, without private texts."""
    for name, content in public_files(folder, private).items():
        if isinstance(content, Path):
            artifact.add_file(str(content), name=f"{folder.name}/{name}")
        else:
            with artifact.new_file(f"{folder.name}/{name}", encoding="utf-8") as file:
                file.write(content)


_offline_runs: list[Path] = []  # the folders of this process's runs that W&B has kept offline


def log_offline_runs() -> None:
    """Log once, at the end of a command, how the runs that W&B has kept offline are uploaded."""
    if len(_offline_runs) == 1:
        log.info("W&B: kept offline; `wandb sync %s` uploads it", shlex.quote(str(_offline_runs[0])))
    elif _offline_runs:
        folder = os.path.commonpath(_offline_runs)
        command = f"find {shlex.quote(folder)} -name 'offline-run-*' -type d -exec wandb sync {{}} +"
        log.info("W&B: kept %d runs offline; `%s` uploads them", len(_offline_runs), command)
    _offline_runs.clear()


@contextmanager
def start_tracking(
    job: str,
    config: TrackedSettings,
    *,
    group: str | None = None,
    name: str | None = None,
    settings: Mapping[str, object] | None = None,
) -> Iterator[Tracker]:
    """Yield the tracker that `config.report_to` selects; the W&B run, if the tracker opened one, ends with the block.

    A job that is started again in the same folder continues the W&B run of this folder.

    Args:
        job: the type of the job, usually the command.
        config: the settings, with `output_dir`, `report_to` and `upload`.
        group: W&B group; None: the config's group.
        name: name of the run; None: the path of the folder within the group (method and stage).
        settings: the recorded settings; None: the config.
    """
    if getattr(config, "report_to", "none") != "wandb":
        yield Tracker()
        return
    group = group or config.group
    recorded = as_settings(config) if settings is None else dict(settings)
    logs_responses = config.upload in WITH_RESPONSES
    if not logs_responses:
        recorded = public_values(recorded)
    opened: list[wandb.Run] = []

    def open_run() -> "wandb.Run":
        run_name = name or _name(config.output_dir, group, job)
        opened.append(_wandb_run(job, config.output_dir, group, run_name, without_folders(recorded)))
        return opened[0]

    keeps_files = config.upload in ("adapters", "all") and _wandb_mode() != "disabled"
    failed = True
    try:
        yield Tracker(open_run, keeps_files=keeps_files, logs_responses=logs_responses)
        failed = False
    finally:
        for run in opened:
            run.finish(exit_code=int(failed))
            if run.offline:
                _offline_runs.append(Path(run.dir).parent)
            elif not run.disabled:
                log.info("W&B: %s", run.url)


def group_name(config: TrackedSettings) -> str:
    """Return the W&B group of a loop or an ablation, by default the name of its folder."""
    return config.group or config.output_dir.resolve().name


def destinations(config: TrackedSettings) -> str:
    """Return where the results of a run go, and whether prompts and responses leave this machine, as one line."""
    receivers = list(dict.fromkeys(_servers(as_settings(config))))
    written = getattr(config, "write_rows", None) or getattr(config, "write_prompts", None)
    if written is not None:  # no run follows
        return f"writes {written}; prompts and responses stay on this machine"
    tracker = "no tracker"
    if getattr(config, "report_to", "none") == "wandb":
        mode = _wandb_mode()
        tracker = f"W&B {mode}"
        if mode in ("online", "shared") and config.upload in WITH_RESPONSES:
            receivers.append("W&B")
    texts = f"go to {' and '.join(receivers)}" if receivers else "stay on this machine"
    return f"results in {config.output_dir}; {tracker}; prompts and responses {texts}"


def _servers(settings: object) -> Iterator[str]:
    """Yield the addresses of the servers, and the providers without an address, in nested settings."""
    if not isinstance(settings, Mapping):
        return
    for name, value in settings.items():
        if name == "server" and value:
            yield str(value)
        elif name == "source" and value not in LOCAL_SOURCES and not settings.get("server"):
            yield f"the provider of {settings.get('name')}"
        elif name == "servers":
            yield from value or ()
        else:
            yield from _servers(value)


def _without_texts(page: Page) -> Page:
    return replace(
        page,
        sections=_sections_without_texts(page.sections),
        signature=public_values(page.signature),
        notes=[*page.notes, note(COMMON, "without_texts")],
        private_notes=(),
        steps=[step for step in page.steps if not step.is_private],
    )


def _sections_without_texts(sections: Sequence[Section]) -> list[Section]:
    """Return the sections that are not private, without their examples and their tables by template or rater."""
    public = []
    for section in sections:
        if section.is_private:
            continue
        examples = [replace(example, texts=(), prompt="") for example in section.examples]
        parts = _sections_without_texts(section.parts)
        tables = []
        for table in section.tables:
            if not is_private_group(word for name in table.columns for word in name.split()):
                tables.append(table)
        public.append(replace(section, examples=examples, parts=parts, tables=tables))
    return public


def _wandb_mode() -> Mode:
    # W&B prints nothing and sends no reports of errors, regardless of the user's settings, and the trainer of
    # transformers uploads no checkpoints: `upload` says what W&B gets.
    os.environ.update(WANDB_SILENT="true", WANDB_ERROR_REPORTING="false", WANDB_LOG_MODEL="false")
    import wandb
    from wandb.errors import Error

    # The mode is an argument of `init`, because W&B has already read the environment variables.
    mode = os.environ.get("WANDB_MODE")
    if mode:
        mode = OLD_MODES.get(mode, mode)
        if mode not in MODES:
            raise InputError("WANDB_MODE", f"{mode!r} is none of {', '.join(MODES)}; set it again.")
        return mode
    try:
        return "online" if wandb.login(prompt=False, verify=False) else "offline"
    except (ValueError, Error) as error:
        raise InputError(
            "report_to",
            f"W&B cannot use the key in WANDB_API_KEY ({first_line(error)}); set it again, or give "
            f"{spelled('report_to', 'none')}.",
        ) from None


def _wandb_run(job: str, folder: Path, group: str | None, name: str, settings: dict[str, object]) -> "wandb.Run":
    """Return a new W&B run, or the continued W&B run whose id is in the folder."""
    mode = _wandb_mode()
    import wandb
    from wandb.errors import Error

    # Two names of runs may have the same plain form, and the name of a file must not be long.
    id_file = folder / "wandb" / f"{_plain(name)[:NAME_CHARACTERS]}-{sha256(name.encode()).hexdigest()[:DIGITS]}.id"
    if not id_file.exists():
        write_text(id_file, uuid.uuid4().hex)

    def start(mode: Mode) -> "wandb.Run":
        wait = WAIT if mode == "online" else OFFLINE_WAIT
        return wandb.init(
            mode=mode,
            project=os.environ.get("WANDB_PROJECT") or PROJECT,
            job_type=job,
            group=group,
            name=name,
            id=id_file.read_text(encoding="utf-8"),
            resume="allow",
            config=settings,
            dir=str(folder),
            # The metadata have the command's arguments, and so a system prompt.
            settings=wandb.Settings(console="off", x_disable_stats=True, x_disable_meta=True, init_timeout=wait),
        )

    try:
        return start(mode)
    except Error as error:
        log.warning("W&B cannot be reached (%s); this run and those that follow are kept offline", first_line(error))
        os.environ["WANDB_MODE"] = "offline"
        write_text(id_file, uuid.uuid4().hex)  # W&B's process still holds the other id
        return start("offline")


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


def metric_names(section: str, names: Sequence[str]) -> dict[str, str]:
    """Return a metric for each name, in a section of W&B's page: letters, digits and "_", which W&B can sort by.

    Different names have different metrics. A name that loses more than blanks, colons and the like, or whose metric
    another name has, too, ends with digits of its hash.

    >>> metric_names("thresholds", ["alpha 0 scgb: CARE", "scgb: 喜び"])
    {'alpha 0 scgb: CARE': 'thresholds/alpha_0_scgb_CARE', 'scgb: 喜び': 'thresholds/scgb_4c4211'}
    """
    plain = {name: re.sub(r"[^A-Za-z0-9]+", "_", name).strip("_") for name in names}
    uses = Counter(plain.values())
    metrics = {}
    for name, metric in plain.items():
        is_unclear = metric == "" or uses[metric] > 1 or re.search(r"[^A-Za-z0-9 _:,.·-]", name) is not None
        digits = f"_{sha256(name.encode()).hexdigest()[:DIGITS]}" if is_unclear else ""
        metrics[name] = f"{section}/{metric}{digits}"
    return metrics


def _plain(name: str) -> str:
    """Return a name in which "-" replaces characters that are not allowed in the names of files and artifacts."""
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", name)


def _row(score: BiasScore) -> dict[str, object]:
    """Return the row of a score in W&B's table of scores; an undefined number is NaN."""
    low, high = score.interval or (math.nan, math.nan)
    return {
        "metric": score.name,
        "cut": ", ".join(f"{name} {value}" for name, value in score.group.items()),
        "value": float(score.value),
        "low": float(low),
        "high": float(high),
        "standard_error": _or_nan(score.standard_error),
        "ideal": _or_nan(score.ideal),
        "p_value": _or_nan(score.p_value),
        "n": score.n,
    }


def _or_nan(value: float | None) -> float:
    return math.nan if value is None else float(value)
