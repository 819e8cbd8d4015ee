"""Report: finished runs → their reports, made again from what is on disk; several runs → one page of all."""

import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.report.files import REPORT, present
from evenhand.evaluation.report.page import Link, Page
from evenhand.evaluation.report.side_by_side import side_by_side_page
from evenhand.evaluation.runs.files import read_yaml
from evenhand.evaluation.runs.manifest import read_run
from evenhand.evaluation.runs.run_paths import CONFIG, MANIFEST
from evenhand.recipes import compare, measure, rate
from evenhand.recipes.checking import checked, settings_of_run
from evenhand.recipes.settings import FAMILY, CompareSettings, MeasureSettings, ReportSettings
from evenhand.recipes.sweep.page import page as sweep_page
from evenhand.recipes.sweep.present import SWEEP, read_sweep

log = logging.getLogger("evenhand")


def report(settings: ReportSettings) -> None:
    """Write the reports of one folder again, of a loop or an ablation those of its stages too; or one page of several.

    Raises:
        InputError: a folder holds no finished run that has a report; of several no two are measuring runs of one
            family.
    """
    if not settings.folders:
        raise InputError("folders: none is given; give those of finished runs, `evenhand report FOLDER …`.")
    if len(settings.folders) > 1:
        present(settings.output_dir, {"": _side_by_side(settings.folders, settings.output_dir)}, write=True, show=True)
        return
    (folder,) = settings.folders
    stages = sorted(path.parent for path in folder.rglob(MANIFEST)) if (folder / SWEEP).exists() else []
    if stages:
        for stage in stages:
            log.info("report: %s", stage)
            _written_again(stage, show=False)
        present(folder, {FAMILY: sweep_page(read_sweep(folder))}, write=True, show=True)
    elif not _written_again(folder, show=True):
        raise InputError(
            f"folders: {folder} holds no finished run that has a report; those of `measure`, `compare`, `loop`, "
            "`ablate` and `rate` have one."
        )


def _written_again(folder: Path, show: bool) -> bool:
    """Write the pages of a finished run, which may have been moved since; return whether its command makes any."""
    command = _command(folder)
    if command == "measure":
        module, settings = measure, _measured(folder)
    elif command == "compare":
        config = read_run(folder, "compare", "folders")[0] | {"output_dir": folder}
        module, settings = compare, checked(CompareSettings, settings_of_run(config), str(folder))
    elif command == "rate":
        rate.write_summary(folder, *rate.summary(folder, "folders"), show)
        return True
    else:
        return False
    present(folder, module.pages(settings), write=True, show=show)
    module.show_responses(settings)
    return True


def _command(folder: Path) -> str | None:
    """Return which command the folder holds a finished run of; None if it holds none."""
    told = read_yaml(folder / CONFIG, "folders") if (folder / MANIFEST).exists() else None
    return told.get("command") if isinstance(told, Mapping) else None


def _measured(folder: Path) -> MeasureSettings:
    """Return the settings of a measuring run as it lies now."""
    return replace(measure.read_settings(folder, "folders")[0], output_dir=folder)


def _side_by_side(folders: Sequence[Path], output_dir: Path) -> Page:
    """Return the page of several measuring runs, of each family that two of them have, and of ratings beside them."""
    named = dict(_named(folders))
    ratings = {name: folder for name, folder in named.items() if _command(folder) == "rate"}
    pages = {name: measure.pages(_measured(folder)) for name, folder in named.items() if name not in ratings}
    families: dict[str, Mapping[str, Page]] = {}
    for family in dict.fromkeys(family for found in pages.values() for family in found):
        having = {name: found[family] for name, found in pages.items() if family in found}
        if len(having) > 1:
            families[family] = having
    if not families:
        raise InputError(
            "folders: no two of these are runs of `measure` with metrics in common; nothing can stand side by side."
        )
    rated = [rate.summary(folder, "folders")[1] for folder in ratings.values()]
    reports = {name: folder / rate.SUMMARY if name in ratings else folder for name, folder in named.items()}
    return side_by_side_page(
        families, [Link(name, _way(folder, output_dir)) for name, folder in reports.items()], rated
    )


def _named(folders: Sequence[Path]) -> Iterator[tuple[str, Path]]:
    """Yield each folder with the shortest end of its path that tells it from the others."""
    parts = [folder.resolve().parts for folder in folders]
    if len(set(parts)) < len(parts):
        raise InputError(f"folders: {', '.join(map(str, folders))}: one of them is there twice; leave it out.")
    for folder, own in zip(folders, parts, strict=True):
        others = [other for other in parts if other != own]
        length = next(n for n in range(1, len(own) + 1) if all(other[-n:] != own[-n:] for other in others))
        yield "/".join(own[-length:]), folder


def _way(folder: Path, output_dir: Path) -> str:
    return os.path.relpath(folder.resolve() / f"{REPORT}.html", output_dir.resolve())
