"""How long the unfinished points of a loop or of an ablation take, by what finished stages took."""

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import cast

from evenhand.evaluation.report.numbers import duration
from evenhand.evaluation.runs.record import FINISHED, FinishedRecord, read_record
from evenhand.recipes.point import Point


def remaining_text(points: Sequence[Point], ended: Collection[Path] = ()) -> str:
    """Return how many points are finished, and about how long the others take, as a clause.

    A stage is expected to take as long as the finished stages with the same role, such as the tuning, on average.

    Args:
        points: all points.
        ended: folders of the comparisons of points that ended, finished or not.
    """
    seconds: dict[str, list[float]] = {}
    unfinished: dict[Path, str] = {}
    n_left = 0
    for point in points:
        roles = {stage.output_dir: role for role, stage in point.stages_by_role.items()}
        is_open = False
        for folder, role in roles.items():
            record = read_record(folder, "output_dir")
            if record is not None and record["state"] == FINISHED:
                seconds.setdefault(role, []).append(cast(FinishedRecord, record)["seconds"]["total"])
            elif point.comparison not in ended:
                unfinished[folder] = role
                is_open = True
        n_left += is_open
    text = f"{len(points) - n_left} of {len(points)} points done"
    if not unfinished:
        return text
    means = {role: sum(times) / len(times) for role, times in seconds.items()}
    known = sum(means[role] for role in unfinished.values() if role in means)
    unknown = sorted({role for role in unfinished.values() if role not in means})
    if not known:
        return f"{text}; how long the others take is said when the first is done"
    if unknown:
        return f"{text}; the others take more than {duration(known)}: no {', '.join(unknown)} is finished yet"
    return f"{text}; the others take about {duration(known)}, one after the other"
