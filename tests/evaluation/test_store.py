"""Run folders: no repetition, other settings, interruptions, damage, and moved folders."""

import errno
import json
import logging
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import pandas as pd
import pytest
import yaml

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.manifest import read_run
from evenhand.evaluation.settings import ModelSettings
from evenhand.evaluation.store import stage
from evenhand.evaluation.tables import write_table
from evenhand.recipes.finished_runs import read_settings
from evenhand.recipes.settings import CompareSettings, LabelSettings, MeasureSettings

FULL = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.fixture
def settings(tmp_path):
    return LabelSettings(output_dir=tmp_path / "label", report_to="none")


def run_once(settings, inputs=None, command="label"):
    with stage(command, settings, inputs) as run:
        if run is None:
            return False
        with run.step("work"):
            run.facts["threshold"] = 0.1
        return True


def test_a_finished_stage_is_not_repeated(settings):
    assert run_once(settings)
    before = (settings.output_dir / "run.json").read_bytes()
    assert not run_once(settings)
    assert not run_once(replace(settings, group="another"))  # a setting of the tracker only
    manifest = json.loads(before)
    assert manifest["threshold"] == 0.1 and {"work", "total"} <= set(manifest["seconds"])
    assert manifest["packages"]["torch"].startswith("2.")
    with pytest.raises(InputError, match="is a run of `label`, not of `measure`"):
        read_run(settings.output_dir, "measure", "responses")
    assert (settings.output_dir / "run.json").read_bytes() == before


def test_other_settings_or_inputs_raise_and_change_nothing(settings):
    run_once(settings, {"responses": "abc"})
    before = (settings.output_dir / "run.json").read_bytes()
    with pytest.raises(InputError, match=r"quantile was 0.9, now 0.5.*another --output_dir"):
        run_once(replace(settings, quantile=0.5), {"responses": "abc"})
    with pytest.raises(InputError, match=r"inputs.responses was 'abc', now 'other'\)"):
        run_once(settings, {"responses": "other"})
    with pytest.raises(InputError, match=r"inputs.e was None, now 0; and 3 more"):
        run_once(settings, {"responses": "abc", **dict.fromkeys("abcdefgh", 0)})
    assert (settings.output_dir / "run.json").read_bytes() == before


def test_stages_resume_after_an_interrupt_or_an_error(settings):
    with pytest.raises(KeyboardInterrupt), stage("label", settings) as run:
        assert run is not None
        raise KeyboardInterrupt
    assert not (settings.output_dir / "run.json").exists()
    assert run_once(settings)
    settings = replace(settings, output_dir=settings.output_dir / "another")
    with pytest.raises(InputError), stage("label", settings):
        raise InputError("beta: labels nothing")
    assert run_once(replace(settings, quantile=0.5))


def test_an_unfinished_run_takes_other_settings_until_rows_are_on_disk(settings):
    def fail(settings, table):
        with pytest.raises(KeyboardInterrupt), stage("label", settings) as run:
            write_table(run.folder / table, pd.DataFrame({"x": [1]}))
            raise KeyboardInterrupt

    fail(settings, "prompts.parquet")
    other = replace(settings, quantile=0.5)
    fail(other, "parts/translations/0.parquet")
    assert not (settings.output_dir / "prompts.parquet").exists()
    with pytest.raises(InputError, match="quantile was 0.5, now 0.9"):
        run_once(settings)
    assert run_once(other)


def test_a_killed_process_releases_the_lock(settings):
    program = """
import sys, time
from pathlib import Path
from evenhand.evaluation.store import run_lock
with run_lock(Path(sys.argv[1])):
    print("locked", flush=True)
    time.sleep(3600)
"""
    command = [sys.executable, "-c", program, str(settings.output_dir)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "locked\n"
        with pytest.raises(InputError, match=f"process {process.pid} on"):
            run_once(settings)
        process.send_signal(signal.SIGKILL)
    assert run_once(settings)


@pytest.fixture
def finished(settings):
    with stage("label", settings) as run:
        run.table("labels", lambda: pd.DataFrame({"n": range(100)}))
        (run.folder / ".labels.parquet.123.part").write_bytes(b"of a killed write")
    return settings


def flip_bit(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 3] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("damage", [flip_bit, Path.unlink])
def test_a_damaged_table_is_reported_and_computed_again(finished, damage, caplog):
    folder, calls = finished.output_dir, []
    table = (folder / "labels.parquet").read_bytes()
    damage(folder / "labels.parquet")
    with pytest.raises(InputError, match=r"responses: \S+labels.parquet is missing or damaged .* run `evenhand label`"):
        read_run(folder, "label", "responses")
    with caplog.at_level(logging.WARNING, "evenhand"), stage("label", finished) as run:
        run.table("labels", lambda: calls.append(1) or pd.DataFrame({"n": range(100)}))
    assert calls and "labels.parquet missing or damaged; computed again" in caplog.text
    assert (folder / "labels.parquet").read_bytes() == table
    assert not run_once(finished)
    assert not list(folder.glob(".*.part"))  # temporary files of killed processes are removed


def test_disks_that_are_full(settings, monkeypatch):
    torch_error = RuntimeError("[enforce fail at inline_container.cc:672] . unexpected pos 392768 vs 392660")
    for error in (FULL, torch_error):
        with pytest.raises(InputError, match="no space"), stage("label", settings):
            raise error
    assert run_once(settings)
    settings = replace(settings, output_dir=settings.output_dir / "lock")
    with monkeypatch.context() as full:
        full.setattr(Path, "write_text", Mock(side_effect=FULL))
        with pytest.raises(InputError, match="no space"):
            run_once(settings)
    assert run_once(settings)
    settings = replace(settings, output_dir=settings.output_dir / "first_write")
    settings.output_dir.mkdir()
    (settings.output_dir / ".config.yaml.123.part").write_text("format: ")
    assert run_once(settings)
    assert not list(settings.output_dir.glob(".*.part"))


def make_settings(folder):
    """Return the settings of two measured runs, the second of an adapter in a third run, and of their comparison."""
    model = folder / "tune" / "adapter"
    runs = [
        MeasureSettings(output_dir=folder / "before", report_to="none"),
        MeasureSettings(output_dir=folder / "after", report_to="none", model=ModelSettings(name=str(model))),
    ]
    paths = {"before": folder / "before", "after": folder / "after"}
    return runs, CompareSettings(**paths, output_dir=folder / "deep" / "compare", report_to="none")


def test_paths_of_other_runs_are_relative_and_valid_after_a_move(tmp_path, monkeypatch):
    (tmp_path / "first" / "tune" / "adapter").mkdir(parents=True)
    run_once(LabelSettings(output_dir=tmp_path / "first" / "tune", report_to="none"))
    runs, comparison = make_settings(tmp_path / "first")
    assert [run_once(run, command="measure") for run in runs] == [True, True]
    assert run_once(comparison, command="compare")
    config = yaml.safe_load((tmp_path / "first" / "deep" / "compare" / "config.yaml").read_text())
    assert (config["before"], config["after"]) == ("../../before", "../../after")
    config = yaml.safe_load((tmp_path / "first" / "after" / "config.yaml").read_text())
    assert config["model"]["name"] == "../tune/adapter"

    moved = tmp_path / "elsewhere" / "second"
    moved.parent.mkdir()
    (tmp_path / "first").rename(moved)
    for working_directory, folder in ((tmp_path, moved), (moved / "deep", Path(".."))):
        monkeypatch.chdir(working_directory)
        runs, comparison = make_settings(folder)
        assert [run_once(run, command="measure") for run in runs] == [False, False]
        assert not run_once(comparison, command="compare")
        settings, _ = read_run(folder / "deep" / "compare", "compare", "comparison")
        assert Path(settings["before"]).resolve() == moved / "before"
        assert Path(read_settings(folder / "after", "after")[0].model.name).resolve() == moved / "tune" / "adapter"


def test_a_run_of_another_format_raises_and_is_unchanged(settings):
    run_once(settings)
    folder = settings.output_dir
    config = yaml.safe_load((folder / "config.yaml").read_text())
    (folder / "config.yaml").write_text(yaml.safe_dump({**config, "format": 2}))
    before = {path: path.read_bytes() for path in folder.iterdir()}
    with pytest.raises(InputError, match=r"^output_dir: \S+ .*version.*`evenhand label`"):
        run_once(settings)
    with pytest.raises(InputError, match=r"^labels: \S+ .*version.*`evenhand label`"):
        read_run(folder, "label", "labels")
    assert {path: path.read_bytes() for path in folder.iterdir()} == before
