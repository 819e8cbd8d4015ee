"""A run directory runs once, refuses other settings, and goes on after an interruption."""

import json
from dataclasses import replace

import pytest
import yaml

from evaluation.errors import InputError
from recipes.config import LabelConfig
from recipes.runs import read_run, stage


@pytest.fixture
def config(tmp_path):
    return LabelConfig(output_dir=tmp_path / "label", report_to="none")


def run_once(config, inputs=None):
    with stage("label", config, inputs) as run:
        if run is None:
            return False
        with run.step("work"):
            run.facts["threshold"] = 0.1
        return True


def test_a_finished_stage_does_nothing_again(config):
    assert run_once(config)
    before = (config.output_dir / "run.json").read_bytes()
    assert not run_once(config)
    assert not run_once(replace(config, group="another"))  # who is told about it does not matter
    assert (config.output_dir / "run.json").read_bytes() == before


def test_the_manifest_says_how_it_was_made(config):
    run_once(config, {"responses": "abc"})
    manifest = json.loads((config.output_dir / "run.json").read_text())
    assert manifest["command"] == "label"
    assert manifest["inputs"] == {"responses": "abc"}
    assert manifest["threshold"] == 0.1
    assert {"work", "total"} <= set(manifest["seconds"])
    assert manifest["packages"]["torch"].startswith("2.")
    assert yaml.safe_load((config.output_dir / "config.yaml").read_text())["quantile"] == 0.9


def test_other_settings_or_inputs_are_refused_and_nothing_is_lost(config):
    run_once(config, {"responses": "abc"})
    kept = (config.output_dir / "run.json").read_bytes()
    with pytest.raises(InputError, match=r"quantile was 0.9, now 0.5.*another --output_dir"):
        run_once(replace(config, quantile=0.5), {"responses": "abc"})
    with pytest.raises(InputError, match=r"inputs.responses was 'abc', now 'other'\)"):
        run_once(config, {"responses": "other"})
    with pytest.raises(InputError, match=r"inputs.e was None, now 0; and 3 more"):
        run_once(config, {"responses": "abc", **dict.fromkeys("abcdefgh", 0)})
    assert (config.output_dir / "run.json").read_bytes() == kept


def test_an_interrupted_stage_is_entered_again(config):
    with pytest.raises(KeyboardInterrupt), stage("label", config) as run:
        assert run is not None
        raise KeyboardInterrupt
    assert not (config.output_dir / "run.json").exists()
    assert run_once(config)


def test_the_fingerprint_follows_what_shapes_the_numbers(config, tmp_path):
    prints = []
    for changed in ({}, {"group": "g"}, {"quantile": 0.8}):
        with stage("label", replace(config, output_dir=tmp_path / str(len(prints)), **changed)) as run:
            prints.append(run.fingerprint)
    assert prints[0] == prints[1] != prints[2]


def test_a_folder_that_is_no_such_run_is_named(config):
    with pytest.raises(InputError, match="labels: .*holds no finished run; run `evenhand label`"):
        read_run(config.output_dir, "label", "labels")
    run_once(config)
    with pytest.raises(InputError, match="is a run of `label`, not of `measure`"):
        read_run(config.output_dir, "measure", "responses")


def test_a_place_that_cannot_be_written_is_one_error(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(InputError, match="output_dir"):
        run_once(LabelConfig(output_dir=tmp_path / "file" / "run", report_to="none"))
