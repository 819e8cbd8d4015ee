"""Run folders that come from somebody else: their files name no others, and nothing outside a folder is changed."""

import contextlib
import json
import shutil
from pathlib import Path

import pandas as pd
import pytest

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.manifest import read_record
from evenhand.evaluation.settings import as_settings, checked
from evenhand.evaluation.store import stage
from evenhand.recipes.cli import main
from evenhand.recipes.command_line import read_settings
from evenhand.recipes.loop import loop
from evenhand.recipes.settings import LabelSettings, LoopSettings
from tests.measured_runs import write_measured
from tests.recorded_runs import change_record
from tests.testbed_settings import MEASURE

VECTORS = [[0.9, 0.1, 0], [0.4, 0.6, 0], [0.1, 0.9, 0], [0.6, 0.4, 0]]


def contents(folder):
    """What a folder holds, by path."""
    return {path: path.read_bytes() for path in sorted(Path(folder).rglob("*")) if path.is_file()}


@pytest.fixture
def precious(tmp_path):
    """A file outside all runs."""
    path = tmp_path / "precious.txt"
    path.write_text("years of work")
    return path


@pytest.fixture
def command(tmp_path):
    """A finished labelling of a finished measurement, as the arguments that made it; its folder is `label`."""
    clusters = tmp_path / "clusters.json"
    clusters.write_text(json.dumps({"Z": ["z"]}))
    measured = write_measured(tmp_path / "train", VECTORS, ["yes", "no"] * 2, style_clusters=str(clusters))
    given = ["label", str(measured), "--output_dir", str(tmp_path / "label")]
    assert main([*given, "--report_to", "none", "--quantile", "0.5"]) == 0
    return [*given, "--report_to", "none", "--quantile", "0.5"]


@pytest.mark.parametrize(("run", "field"), [("label", "output_dir"), ("train", "run")])
def test_a_manifest_that_lists_a_file_outside_its_folder_deletes_nothing(
    command, precious, tmp_path, run, field, capsys
):
    files = read_record(tmp_path / run, "run")["files"]
    change_record(tmp_path / run, files={"../precious.txt": "0" * 64, **files})
    kept = contents(tmp_path)
    assert main(command) == 2
    assert f"{field}: {tmp_path / run / 'run.json'} lists the file '../precious.txt'" in capsys.readouterr().err
    assert contents(tmp_path) == kept


@pytest.mark.parametrize("damage", [Path.unlink, lambda path: path.write_bytes(b"")])
def test_a_run_that_is_read_is_never_changed(command, tmp_path, damage, capsys):
    shutil.rmtree(tmp_path / "label")
    damage(tmp_path / "train" / "styles.parquet")
    kept = contents(tmp_path / "train")
    assert main(command) == 2
    assert "styles.parquet is missing or damaged" in capsys.readouterr().err
    assert contents(tmp_path / "train") == kept


def test_damaged_parts_behind_a_link_are_not_deleted(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "mine.parquet").write_text("no Parquet of ours")
    settings = LabelSettings(output_dir=tmp_path / "run", report_to="none")
    with contextlib.suppress(KeyboardInterrupt), stage("label", settings):
        raise KeyboardInterrupt
    (tmp_path / "run" / "parts").mkdir()
    (tmp_path / "run" / "parts" / "rows").symlink_to(tmp_path / "elsewhere")
    refused = pytest.raises(InputError, match=r"^output_dir: \S+parts/rows ")
    with refused, stage("label", settings) as run:
        run.rows("rows", pd.DataFrame({"n": [1]}), lambda items: [items])
    assert (tmp_path / "elsewhere" / "mine.parquet").exists()


def test_a_lock_that_is_a_link_overwrites_nothing(tmp_path, precious):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / ".lock").symlink_to(precious)
    refused = pytest.raises(InputError, match=r"^output_dir: \S+\.lock ")
    with refused, stage("label", LabelSettings(output_dir=tmp_path / "run", report_to="none")):
        pass
    assert precious.read_text() == "years of work"


def test_a_loop_works_in_no_folder_that_a_link_leads_to(tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / ".draft.part").write_text("of another program")
    (tmp_path / "loop").mkdir()
    (tmp_path / "loop" / "before").symlink_to(tmp_path / "mine")
    with pytest.raises(InputError, match=r"^output_dir: \S+before "):
        loop(LoopSettings(measure=MEASURE, output_dir=tmp_path / "loop", report_to="none"))
    assert [path.name for path in (tmp_path / "mine").iterdir()] == [".draft.part"]


@pytest.fixture
def with_code(command, tmp_path):
    """A labelling of a measurement of a model whose code writes the file `ran`, which the measurement says to trust."""
    folder = tmp_path / "train"
    (folder / "model").mkdir()
    config = {"model_type": "own", "auto_map": {"AutoConfig": "code.Config"}, "architectures": ["Own"]}
    (folder / "model" / "config.json").write_text(json.dumps(config))
    (folder / "model" / "model.safetensors").touch()
    code = f"open({str(tmp_path / 'ran')!r}, 'w')\nfrom transformers import PretrainedConfig\n"
    (folder / "model" / "code.py").write_text(f"{code}class Config(PretrainedConfig):\n    model_type = 'own'\n")
    settings = read_record(folder, "run")["settings"]
    settings["model"] |= {"name": "./model", "trust_remote_code": True}
    change_record(folder, settings=settings)
    shutil.rmtree(tmp_path / "label")
    assert main(command) == 0
    return tmp_path


@pytest.mark.parametrize(
    ("command_of", "text", "name"),
    [
        ("measure", "model: {name: ./model, trust_remote_code: true}", "model.trust_remote_code"),
        ("measure", "model: {name: ./model, trust_remote_code: 1}", "model.trust_remote_code"),
        ("measure", "sweep: [{model.trust_remote_code: [true]}]", "model.trust_remote_code"),
        (
            "loop",
            "measure: {model: {name: a, trust_remote_code: 'yes'}}",
            "measure.model.trust_remote_code",
        ),
        ("tune", "trust_remote_code: true", "trust_remote_code"),
    ],
)
def test_a_file_of_settings_cannot_allow_code(tmp_path, command_of, text, name):
    (tmp_path / "received.yaml").write_text(text)
    with pytest.raises(InputError, match=f"^{name}: .*--{name} true"):
        read_settings(command_of, tmp_path / "received.yaml")
    if "sweep" not in text:
        allowed = read_settings(command_of, tmp_path / "received.yaml", {name: "true"})
        assert checked(type(allowed), as_settings(allowed), "test") == allowed


def test_a_run_cannot_allow_code_by_its_record(with_code, monkeypatch, capsys):
    monkeypatch.chdir(with_code)
    assert main(["measure", "--config", "train", "--output_dir", "next", "--report_to", "none"]) == 2
    assert "model.trust_remote_code: train asks to execute code" in capsys.readouterr().err
    assert not (with_code / "ran").exists()


@pytest.mark.parametrize(
    ("stage_of", "field", "named"),
    [("tune", "labels", ["label"]), ("compare", "before", ["train", "train"])],
)
def test_a_run_that_is_read_has_no_code_run(with_code, stage_of, field, named, monkeypatch, capsys):
    monkeypatch.chdir(with_code)
    assert main([stage_of, *named, "--output_dir", "next", "--report_to", "none"]) == 2
    assert f"{field}: the run was measured with trust_remote_code" in capsys.readouterr().err
    assert not (with_code / "ran").exists()


def test_code_of_a_model_is_run_where_it_is_trusted(with_code, monkeypatch):
    monkeypatch.chdir(with_code)
    flags = ["label", "--output_dir", "next", "--report_to", "none", "--trust_remote_code", "true"]
    with contextlib.suppress(ValueError):  # the code has a config and no network
        main(["tune", *flags])
    assert (with_code / "ran").exists()
