"""Run folders: no repetition, other settings, interruptions, damage, and moved folders."""

import errno
import json
import logging
import os
import re
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pandas as pd
import pytest

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.model_settings import ModelSettings
from evenhand.evaluation.runs import results
from evenhand.evaluation.runs.pages import claim_pages
from evenhand.evaluation.runs.paths import with_relative_paths, with_resolved_paths
from evenhand.evaluation.runs.record import read_record, read_run, run_state
from evenhand.evaluation.runs.stage import stage
from evenhand.evaluation.tables import table_run, write_table
from evenhand.mitigation.adapter import atomic_write_folder
from evenhand.recipes.command_settings import CompareSettings
from evenhand.recipes.finished_runs import read_measurement
from evenhand.recipes.settings import MeasureSettings
from evenhand.recipes.tuning_settings import LabelSettings
from tests.recorded_runs import change_record

FULL = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.fixture
def settings(tmp_path):
    return LabelSettings(output_dir=tmp_path / "label", report_to="none")


def run_once(settings, inputs=None, command="label"):
    with stage(command, settings, inputs) as run:
        if run is None:
            return False
        with run.step("work"):
            run.record["threshold"] = 0.1
        return True


def test_a_finished_stage_is_not_repeated(settings):
    assert run_once(settings)
    before = (settings.output_dir / "run.json").read_bytes()
    assert not run_once(settings)
    assert not run_once(settings.replaced(group="another"))  # a setting of the tracker only
    manifest = json.loads(before)
    assert manifest["threshold"] == 0.1 and {"work", "total"} <= set(manifest["seconds"])
    assert manifest["packages"]["torch"].startswith("2.")
    with pytest.raises(InputError, match="`label`.*`measure`"):
        read_run(settings.output_dir, "measure", "responses")
    assert (settings.output_dir / "run.json").read_bytes() == before


def test_the_total_time_of_a_resumed_run_has_the_time_before(settings):
    folder = settings.output_dir
    for _ in range(2):  # a run that is killed twice, each time a minute after it began
        with pytest.raises(KeyboardInterrupt), stage("label", settings) as run:
            table = run.folder / "parts" / "table.parquet"
            table.parent.mkdir(exist_ok=True)
            table.write_bytes(b"")
            started = datetime.fromisoformat(json.loads((folder / "run.json").read_text())["started"]).timestamp()
            os.utime(table, (started + 60, started + 60))
            os.utime(folder / "run.json", (started + 900, started + 900))  # is written when nothing is done yet
            raise KeyboardInterrupt
    assert run_once(settings)
    assert 120 <= json.loads((folder / "run.json").read_text())["seconds"]["total"] < 900


def test_other_settings_or_inputs_raise_and_change_nothing(settings):
    run_once(settings, {"responses": "abc"})
    before = (settings.output_dir / "run.json").read_bytes()
    with pytest.raises(InputError, match=r"quantile was 0.9, now 0.5.*another --output_dir"):
        run_once(settings.replaced(quantile=0.5), {"responses": "abc"})
    with pytest.raises(InputError, match=r"inputs.responses was 'abc', now 'other'\)"):
        run_once(settings, {"responses": "other"})
    with pytest.raises(InputError, match=r"inputs.e was None, now 0; and 3 more"):
        run_once(settings, {"responses": "abc", **dict.fromkeys("abcdefgh", 0)})
    assert (settings.output_dir / "run.json").read_bytes() == before


def test_stages_resume_after_an_interrupt_or_an_error(settings):
    with pytest.raises(KeyboardInterrupt), stage("label", settings) as run:
        assert run is not None
        raise KeyboardInterrupt
    assert run_state(settings.output_dir) == "running"
    with pytest.raises(InputError, match=r"^labels: \S+/label .*`evenhand label`"):
        read_run(settings.output_dir, "label", "labels")
    assert run_once(settings)
    assert run_state(settings.output_dir) == "finished"
    with pytest.raises(InputError, match=f"give {re.escape(str(settings.output_dir))}.$"):  # the run in the folder
        read_run(settings.output_dir.parent, "label", "labels")
    settings = settings.replaced(output_dir=settings.output_dir / "another")
    with pytest.raises(InputError, match="^beta: "), stage("label", settings):
        raise InputError("beta", "labels nothing")
    assert run_once(settings.replaced(quantile=0.5))


def test_an_unfinished_run_takes_other_settings_until_rows_are_on_disk(settings):
    def fail(settings, table):
        with pytest.raises(KeyboardInterrupt), stage("label", settings) as run:
            assert not run.has(table)  # that of other settings is not taken for this run's
            run.write(table, pd.DataFrame({"x": [1]}))
            raise KeyboardInterrupt

    fail(settings, "prompts")
    other = settings.replaced(quantile=0.5)
    fail(other, "prompts")
    fail(other, "parts/translations/0")
    with pytest.raises(InputError, match="quantile was 0.5, now 0.9"):
        run_once(settings)
    assert run_once(other)


def test_a_killed_process_releases_the_lock(settings):
    program = """
import sys, time
from pathlib import Path
from evenhand.evaluation.runs.lock import run_lock
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
        (run.folder / ".x.part").write_bytes(b"of somebody else")
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
    with pytest.raises(InputError, match=r"responses: \S+labels.parquet .*`evenhand label`"):
        read_run(folder, "label", "responses")
    with caplog.at_level(logging.WARNING, "evenhand"), stage("label", finished) as run:
        run.table("labels", lambda: calls.append(1) or pd.DataFrame({"n": range(100)}))
    assert calls and "labels.parquet missing or damaged; computed again" in caplog.text
    assert (folder / "labels.parquet").read_bytes() == table
    assert not run_once(finished)
    assert [path.name for path in folder.glob(".*.part")] == [".x.part"]  # those of killed processes are removed


def test_disks_that_are_full(settings, monkeypatch):
    torch_error = RuntimeError("[enforce fail at inline_container.cc:672] . unexpected pos 392768 vs 392660")
    for error in (FULL, torch_error):
        with pytest.raises(InputError, match="no space"), stage("label", settings):
            raise error
    assert run_once(settings)
    settings = settings.replaced(output_dir=settings.output_dir / "lock")
    with monkeypatch.context() as full:
        full.setattr(Path, "write_text", Mock(side_effect=FULL))
        with pytest.raises(InputError, match="no space"):
            run_once(settings)
    assert run_once(settings)
    settings = settings.replaced(output_dir=settings.output_dir / "first_write")
    settings.output_dir.mkdir()
    (settings.output_dir / ".run.json.123.part").write_text('{"format": ')
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


def test_a_file_that_begins_with_dots_is_found_from_another_folder(tmp_path, monkeypatch):
    given = {"references": {"name": "../given/r.csv"}, "model": {"name": "org/model"}}
    run = tmp_path / "runs" / "run"
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    stored = with_relative_paths(given, run)
    monkeypatch.chdir(tmp_path)
    read = with_resolved_paths(stored, Path("runs/run"))
    assert Path(read["references"]["name"]) == Path("given/r.csv") and read["model"] == given["model"]


def test_names_of_models_are_no_paths_where_the_working_directory_is_a_run(settings, monkeypatch):
    run_once(settings)
    (settings.output_dir / "adapter").mkdir()
    monkeypatch.chdir(settings.output_dir)
    names = {"model": {"name": "gpt2"}, "style_classifier": {"name": "go_emotions"}, "offensive": {"name": ""}}
    assert with_relative_paths(names, settings.output_dir.parent / "other") == names
    in_run = with_relative_paths({"model": {"name": "adapter"}}, settings.output_dir.parent / "other")
    assert in_run == {"model": {"name": "../label/adapter"}}


def test_paths_of_other_runs_are_relative_and_valid_after_a_move(tmp_path, monkeypatch):
    run_once(LabelSettings(output_dir=tmp_path / "first" / "tune", report_to="none"))
    (tmp_path / "first" / "tune" / "adapter").mkdir()
    runs, comparison = make_settings(tmp_path / "first")
    assert [run_once(run, command="measure") for run in runs] == [True, True]
    assert run_once(comparison, command="compare")
    config = read_record(tmp_path / "first" / "deep" / "compare", "comparison")["settings"]
    assert (config["before"], config["after"]) == ("../../before", "../../after")
    config = read_record(tmp_path / "first" / "after", "after")["settings"]
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
        assert Path(read_measurement(folder / "after", "after")[0].model.name).resolve() == moved / "tune" / "adapter"


def test_a_run_of_another_format_raises_and_is_unchanged(settings):
    run_once(settings)
    folder = settings.output_dir
    change_record(folder, format=6)
    before = {path: path.read_bytes() for path in folder.iterdir()}
    with pytest.raises(InputError, match=r"^output_dir: \S+ .*version.*`evenhand label`"):
        run_once(settings)
    with pytest.raises(InputError, match=r"^labels: \S+ .*version.*`evenhand label`"):
        read_run(folder, "label", "labels")
    assert {path: path.read_bytes() for path in folder.iterdir()} == before


def test_a_run_has_one_record(finished):
    assert sorted(path.name for path in finished.output_dir.iterdir() if path.suffix != ".part") == [
        ".lock",
        "labels.parquet",
        "run.json",
    ]
    record = read_record(finished.output_dir, "run")
    assert record["state"] == "finished" and record["settings"]["quantile"] == 0.9
    assert record["identity"]["quantile"] == 0.9 and record["files"].keys() == {"labels.parquet"}


def test_a_finished_run_is_not_hashed_again(finished, monkeypatch):
    monkeypatch.setattr(results, "sha256_of", Mock(side_effect=AssertionError))
    assert not run_once(finished)
    assert read_run(finished.output_dir, "label", "labels")


def test_a_record_that_was_changed_by_hand_is_refused(finished):
    path = finished.output_dir / "run.json"
    path.write_text(path.read_text().replace('"quantile": 0.9', '"quantile": 0.5'))
    with pytest.raises(InputError, match=r"^labels: \S+run\.json .*\bdelete\b"):
        read_run(finished.output_dir, "label", "labels")
    with pytest.raises(
        InputError, match=r"^output_dir: \S+run\.json .*\bdelete\b"
    ):  # the same advice: it is not finished
        run_once(finished)


def contents(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_parts_without_a_run_are_refused(settings):
    """The folder of a run was deleted while it worked, and its next write left a part behind."""
    write_table(settings.output_dir / "parts" / "rows" / "0.parquet", pd.DataFrame({"key": [0, 1], "n": [7, 7]}))
    kept = contents(settings.output_dir)
    with pytest.raises(InputError, match=r"^output_dir: \S+/label .*\bparts\)"):
        run_once(settings)
    assert contents(settings.output_dir) == kept


@pytest.mark.parametrize("owner", ["", "another run"])
def test_parts_of_another_run_are_not_adopted(settings, owner):
    with pytest.raises(InputError, match=r"^output_dir: \S+/rows/00000000\.parquet "), stage("label", settings) as run:
        part = run.folder / "parts" / "rows" / "00000000.parquet"
        write_table(part, pd.DataFrame({"key": [0, 1], "n": [7, 7]}), owner)
        run.rows("rows", pd.DataFrame({"n": [1, 2]}), lambda items: [items])
    assert part.exists()


def test_rows_and_tables_have_the_fingerprint_of_their_run(settings):
    with stage("label", settings) as run:
        run.rows("rows", pd.DataFrame({"n": [1, 2]}), lambda items: [items])
        run.write("labels", pd.DataFrame({"n": [1]}))
        (part,) = run.folder.glob("parts/rows/*.parquet")
        assert table_run(part) == table_run(run.folder / "labels.parquet") == run.fingerprint


def test_a_family_discards_no_table_of_another_family(settings):
    with stage("label", settings) as run:
        pairs = replace(run, family="sentence_pairs")
        pairs.write("pairs", pd.DataFrame({"n": [1]}))
        styles = replace(run, family="generation_bias")
        styles.write("effects", pd.DataFrame({"n": [2]}))
        styles.write_facts("stopped", {"look": 1})
        styles.discard_results(but_rows=())
        assert pairs.has("pairs")
        assert not styles.has("effects")
        assert styles.read_facts("stopped") is None


def put_other_files(folder):
    """Write files of the user and another run into a run's folder; return the contents by path."""
    names = ("label/run.json", "label/labels.parquet", "label/.lock", "label/.labels.parquet.123.part", "notes.csv")
    names += ("loop/distill/tune/adapter/adapter_model.safetensors", "my.parquet", "mine/scores.json")
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("days of work")
    return {path: path.read_bytes() for path in map(folder.joinpath, names)}


def kill(settings, *, family=""):
    """Begin a run, and end it as a kill does, with a table, facts, a folder of results and files of others."""
    with pytest.raises(KeyboardInterrupt), stage("label", settings) as run:
        run = replace(run, family=family)
        run.write("effects", pd.DataFrame({"n": [1]}))
        run.write_facts("facts", {"n": 1})
        with atomic_write_folder(run.folder / "adapter") as folder:
            (folder / "adapter_model.safetensors").write_text("weights")
        raise KeyboardInterrupt


RESULTS = {"effects.parquet", "facts.json", "adapter/adapter_model.safetensors"}


def test_a_run_touches_only_the_files_that_its_record_lists(settings):
    folder = settings.output_dir
    kill(settings)
    assert set(read_record(folder, "run")["written"]) == {"effects.parquet", "facts.json", "adapter"}
    others = put_other_files(folder)
    assert run_once(settings)  # goes on
    record = read_record(folder, "run")
    assert record["files"].keys() == RESULTS and "written" not in record
    for path in others:
        path.write_text("more work")  # which is no damage of the outer run
    assert not run_once(settings)
    with stage("label", settings, suffices=lambda record: False) as run:  # all is computed again
        assert not run.has("effects")
    assert {path: path.read_text() for path in others} == dict.fromkeys(others, "more work")


@pytest.mark.parametrize("name", ["labels.parquet", "facts.json", "adapter/notes.json"])
def test_a_run_replaces_no_file_that_it_did_not_write(settings, name):
    path = settings.output_dir / name
    with pytest.raises(InputError, match=r"^output_dir: .*no file of this run"), stage("label", settings) as run:
        path.parent.mkdir(exist_ok=True)
        path.write_text("days of work")
        run.write("labels", pd.DataFrame({"n": [1]}))
        run.write_facts("facts", {"n": 1})
        with atomic_write_folder(run.folder / "adapter"):
            pass
    assert path.read_text() == "days of work"


def test_results_are_discarded_and_no_other_files(settings):
    kill(settings, family="generation_bias")
    others = put_other_files(settings.output_dir)
    with stage("label", settings) as run:
        run = replace(run, family="generation_bias")
        run.discard_results(but_rows=())
        assert not run.has("effects") and run.read_facts("facts") is None
    assert {path: path.read_bytes() for path in others} == others


def test_a_run_whose_folder_was_deleted_writes_nothing_more(settings):
    with pytest.raises(InputError, match=r"^output_dir: \S+/label .*\bdeleted\b"), stage("label", settings) as run:
        shutil.rmtree(run.folder)
        run.write("labels", pd.DataFrame({"n": [1]}))
    assert not settings.output_dir.exists()


def test_two_runs_never_share_a_folder(settings):
    other = settings.replaced(quantile=0.5)
    with pytest.raises(InputError, match=r"^output_dir: \S+/label .*\bdeleted\b"), stage("label", settings) as run:
        shutil.rmtree(run.folder)
        with stage("label", other) as second:
            second.write("labels", pd.DataFrame({"n": [2]}))
        run.write("labels", pd.DataFrame({"n": [1]}))
    assert second.read("labels")["n"].tolist() == [2]
    assert not run_once(other)


def test_a_table_that_cannot_be_read_is_computed_again(settings):
    with pytest.raises(KeyboardInterrupt), stage("label", settings) as run:
        run.write("labels", pd.DataFrame({"n": np.random.default_rng(0).normal(size=5000)}))
        raise KeyboardInterrupt
    flip_bit(settings.output_dir / "labels.parquet")
    with stage("label", settings) as run:
        assert run.table("labels", lambda: pd.DataFrame({"n": [5]}))["n"].tolist() == [5]


def test_what_failed_for_a_passing_reason_is_tried_again(settings):
    with stage("label", settings) as run:
        run.failures["relevance"] = "the disk is away"
    assert read_run(settings.output_dir, "label", "labels")  # what was computed can be read
    assert run_once(settings)
    assert not run_once(settings)


@pytest.mark.parametrize("name", ["report.html", "scores.csv", ".x.part", ".git.part/HEAD", "parts/x"])
def test_a_folder_with_files_of_the_user_is_refused(settings, name):
    path = settings.output_dir / name
    path.parent.mkdir(parents=True)
    path.write_text("precious")
    with pytest.raises(InputError, match=rf"^output_dir: \S+/label .* {re.escape(name.split('/')[0])}\)"):
        run_once(settings)
    assert contents(settings.output_dir) == {path: b"precious"}


def test_a_table_of_the_user_in_a_run_folder_is_kept(settings):
    with pytest.raises(InputError, match=r"^output_dir: \S+/labels\.parquet "), stage("label", settings) as run:
        pd.DataFrame({"n": [1]}).to_parquet(run.folder / "labels.parquet")
        run.table("labels", lambda: pd.DataFrame({"n": [2]}))
    assert pd.read_parquet(settings.output_dir / "labels.parquet")["n"].tolist() == [1]


def test_pages_go_to_a_folder_of_their_own(tmp_path):
    claim_pages(tmp_path / "check", "check")
    (tmp_path / "check" / "summary.md").write_text("of the last check")
    claim_pages(tmp_path / "check", "check")
    with pytest.raises(InputError, match="^output_dir: .*`check`"):
        claim_pages(tmp_path / "check", "report")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "summary.md").write_text("precious")
    with pytest.raises(InputError, match=r"^output_dir: \S+/mine .* summary\.md\)"):
        claim_pages(tmp_path / "mine", "check")
    assert contents(tmp_path / "mine") == {tmp_path / "mine" / "summary.md": b"precious"}


def test_a_tracker_folder_that_is_a_link_is_refused(settings, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    with stage("label", settings):
        pass
    change_record(settings.output_dir, state="running")
    (settings.output_dir / "wandb").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(InputError, match=r"^output_dir: \S+/wandb "):
        run_once(settings)
