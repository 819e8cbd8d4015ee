"""How long the unfinished points of an ablation take."""

import re
from types import SimpleNamespace

import pytest

from evenhand.evaluation.runs.record import write_record
from evenhand.recipes.remaining import remaining_text


def point(folder, name, *, is_trained=True):
    """A point whose base measurement and labels are shared with all others."""
    roles = {"before": "before", "tune": f"{name}-tune", "after": f"{name}-after", "compare": f"{name}-compare"}
    if not is_trained:
        del roles["tune"]
    stages = {role: SimpleNamespace(output_dir=folder / stage) for role, stage in roles.items()}
    return SimpleNamespace(stages_by_role=stages, comparison=folder / roles["compare"])


def finish(folder, stage, seconds):
    record = {"format": 5, "state": "finished", "command": "measure", "fingerprint": "", "seconds": {"total": seconds}}
    record |= {name: {} for name in ("settings", "identity", "inputs", "files", "versions")}
    (folder / stage).mkdir()
    write_record(folder / stage, record)


@pytest.fixture
def points(tmp_path):
    return [point(tmp_path, "a"), point(tmp_path, "b"), point(tmp_path, "c")]


def numbers(text):
    return [float(number) for number in re.findall(r"[\d.]+", text)]


def test_nothing_is_known_before_the_first_point(points):
    assert numbers(remaining_text(points)) == [0, 3]


def test_stages_take_the_mean_time_of_finished_stages_of_their_role(points, tmp_path):
    for stage, minutes in (("before", 50), ("a-tune", 10), ("a-after", 4), ("a-compare", 1)):
        finish(tmp_path, stage, 60 * minutes)
    text = remaining_text(points, [points[0].comparison])
    assert numbers(text) == [1, 3, 2 * (10 + 4 + 1)]  # the base is not measured again
    finish(tmp_path, "b-tune", 60 * 20)
    assert numbers(remaining_text(points, [points[0].comparison])) == [1, 3, 15 + 2 * (4 + 1)]
    # A guard refused the model of b: its other stages never run.
    assert numbers(remaining_text(points, [points[0].comparison, points[1].comparison])) == [2, 3, 15 + 4 + 1]


def test_a_role_without_a_finished_stage_is_named(points, tmp_path):
    untrained = point(tmp_path, "d", is_trained=False)
    for stage, minutes in (("before", 50), ("d-after", 4), ("d-compare", 1)):
        finish(tmp_path, stage, 60 * minutes)
    text = remaining_text([untrained, points[0]], [untrained.comparison])
    assert numbers(text) == [1, 2, 5] and "tune" in text
    assert "tune" not in remaining_text([untrained], [untrained.comparison])
