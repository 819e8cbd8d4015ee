"""The command `report`: a finished run's report, written again from the run's files, or one page of several runs."""

import logging
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.metrics import FamilyRun
from evenhand.evaluation.metrics.generation_bias.compared_runs import hardly_common
from evenhand.evaluation.report.output import REPORT, present, side_by_side_page
from evenhand.evaluation.report.page import Link, Page, Section
from evenhand.evaluation.runs.pages import claim_pages
from evenhand.evaluation.runs.record import FINISHED, read_record, read_run
from evenhand.evaluation.runs.results import RECORD
from evenhand.evaluation.settings import checked
from evenhand.recipes import compare, measure, rate
from evenhand.recipes.command_settings import CompareSettings, ReportSettings
from evenhand.recipes.commands import SWEEP
from evenhand.recipes.finished_runs import read_measurement
from evenhand.recipes.settings import FAMILIES, GENERATION_BIAS, MeasureSettings, family_config
from evenhand.recipes.sweep.page import page as sweep_page
from evenhand.recipes.sweep.points import read_sweep

log = logging.getLogger("evenhand")


def report(settings: ReportSettings) -> None:
    """Write the report of one run again, with the reports of a loop's stages; or write one page of several runs.

    Raises:
        InputError: a folder has no finished run with a report; no two of several runs have a family in common.
    """
    if not settings.runs:
        raise InputError("runs", "give the folders of finished runs, `evenhand report RUN …`.")
    if len(settings.runs) > 1:
        claim_pages(settings.output_dir, "report")
        present(settings.output_dir, {"": side_by_side(settings.runs, settings.output_dir)}, write=True, show=True)
        return
    (folder,) = settings.runs
    if "output_dir" in settings.model_fields_set:
        raise InputError(
            "output_dir",
            f"the report of one run is written in its folder, {folder}, whose files it links; leave it out.",
        )
    stages = sorted(path.parent for path in folder.rglob(RECORD)) if (folder / SWEEP).exists() else []
    if stages:
        for stage in stages:
            log.info("report: %s", stage)
            _rewrite_report(stage, show=False)
        present(folder, {GENERATION_BIAS: sweep_page(read_sweep(folder))}, write=True, show=True)
    elif not _rewrite_report(folder, show=True):
        raise InputError("runs", f"{folder} has no finished run of `measure`, `compare`, `loop`, `ablate` or `rate`.")


def _rewrite_report(folder: Path, show: bool) -> bool:
    """Write the report of the finished run in `folder` again; return False if the run's command writes no report."""
    command = _command(folder)
    if command == "measure":
        measure.report(_measured(folder), write=True, show=show)
    elif command == "compare":
        values = read_run(folder, "compare", "runs")[0] | {"output_dir": folder}
        compare.report(checked(CompareSettings, values, str(folder)), write=True, show=show)
    elif command == "rate":
        scores, page = rate.summary(folder, "runs")
        rate.write_summary(folder, scores, page, show=show)
    return command in ("measure", "compare", "rate")


def _command(folder: Path) -> str | None:
    """Return the command of the finished run in a folder; None without such a run."""
    record = read_record(folder, "runs")
    return record["command"] if record is not None and record["state"] == FINISHED else None


def _measured(folder: Path) -> MeasureSettings:
    return read_measurement(folder, "runs")[0].replaced(output_dir=folder)


def side_by_side(folders: Sequence[Path], output_dir: Path) -> Page:
    """Return one page of several runs: each family of metrics that at least two runs have, and the ratings."""
    resolved = [folder.resolve() for folder in folders]
    if len(set(resolved)) < len(resolved):
        raise InputError("runs", f"{', '.join(map(str, folders))}: a folder is repeated; leave it out.")
    common = Path(os.path.commonpath(resolved))
    named = {str(path.relative_to(common)): folder for path, folder in zip(resolved, folders, strict=True)}
    ratings = {name: folder for name, folder in named.items() if _command(folder) == "rate"}
    measured = {name: _measured(folder) for name, folder in named.items() if name not in ratings}
    pages = {name: measure.pages(settings) for name, settings in measured.items()}
    families: dict[str, Mapping[str, Page]] = {}
    sections: list[Section] = []
    are_paired = True
    for family in dict.fromkeys(family for run_pages in pages.values() for family in run_pages):
        with_family = {name: run_pages[family] for name, run_pages in pages.items() if family in run_pages}
        if len(with_family) > 1:
            families[family] = with_family
            runs = {name: FamilyRun(named[name], family_config(measured[name], family)) for name in with_family}
            sections += FAMILIES[family].side_by_side(runs)
            if family == GENERATION_BIAS:
                are_paired = hardly_common(list(runs.values())) is None
    if not families:
        raise InputError("runs", "no two of these are runs of `measure` with metrics in common.")
    rated = [rate.summary(folder, "runs")[1] for folder in ratings.values()]
    reports = {name: folder / rate.SUMMARY if name in ratings else folder for name, folder in named.items()}
    start = output_dir.resolve()
    paths = {name: os.path.relpath(folder.resolve() / f"{REPORT}.html", start) for name, folder in reports.items()}
    links = [Link(name, path) for name, path in paths.items()]
    return side_by_side_page(families, links, rated, sections, are_paired=are_paired)
