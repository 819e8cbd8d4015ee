"""The command `measure`: one measurement, or one at each point of a grid with a page of all."""

import logging
import re
from collections.abc import Mapping
from typing import Any

from evenhand.evaluation import processes
from evenhand.evaluation.errors import InputError
from evenhand.evaluation.report.files import present
from evenhand.evaluation.score import display_name
from evenhand.evaluation.settings import as_settings, checked
from evenhand.evaluation.store import claim_pages, has_runs
from evenhand.recipes.measurement import measure_model
from evenhand.recipes.report import side_by_side
from evenhand.recipes.settings import MeasureSettings
from evenhand.recipes.sweep.grid import grid_points, set_point

log = logging.getLogger("evenhand")

MAX_NAME = 200  # characters of the name of a run's folder


def measure(settings: MeasureSettings) -> None:
    """Measure a model with each family of metrics, or each point of `settings.sweep`."""
    if settings.sweep:
        measure_sweep(settings)
    else:
        measure_model(settings)


def measure_sweep(settings: MeasureSettings) -> None:
    """Measure at each point of `settings.sweep` in a subfolder of output_dir, and write one page of all runs.

    Finished runs are not measured again.

    Raises:
        InputError: a setting is unknown, a value is invalid, or two points have one folder.
    """
    runs = [run_settings(settings, point) for point in grid_points(settings.sweep)]
    folders = [run.output_dir for run in runs]
    if len(set(folders)) < len(folders):
        raise InputError("sweep: two points have the same values; leave one of them out.")
    folder = settings.output_dir
    processes.on_rank_zero(lambda: claim_pages(folder, "measure --sweep", lambda: has_runs(folder)))
    for number, run in enumerate(runs, start=1):
        log.info("run %d of %d: %s", number, len(runs), run.output_dir)
        measure_model(run)
    if len(folders) > 1:
        page = processes.on_rank_zero(lambda: side_by_side(folders, settings.output_dir))
        processes.on_rank_zero(lambda: present(settings.output_dir, {"": page}, write=True, show=settings.show))


def run_settings(settings: MeasureSettings, point: Mapping[str, Any]) -> MeasureSettings:
    """Return the settings of the measurement at a point, in a folder named by the point's values."""
    values = as_settings(settings)
    set_point(values, point, "measure")
    texts = [
        display_name(value) if isinstance(value, str) else f"{name.rpartition('.')[2]}-{value}".lower()
        for name, value in point.items()
    ]
    names = (re.sub(r"[^\w.-]+", "-", text).strip("-.") for text in texts)
    folder = settings.output_dir / "_".join(names)[-MAX_NAME:]
    group = settings.group or settings.output_dir.name
    values |= {"sweep": [], "show": False, "group": group, "output_dir": str(folder)}
    return checked(MeasureSettings, values, "sweep")
