"""Settings are read strictly: one clear error, before any work starts."""

import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from evaluation.errors import InputError
from recipes.__main__ import main
from recipes.config import COMMANDS, LoopConfig, MeasureConfig, as_settings, checked, read_config

FOLDER = Path(__file__).resolve().parents[2] / "recipes" / "configs"
CONFIGS = sorted(FOLDER.rglob("*.yaml"))


def written(tmp_path, text):
    (tmp_path / "c.yaml").write_text(text, encoding="utf-8")
    return tmp_path / "c.yaml"


def test_flags_go_over_the_file_and_the_file_over_the_defaults(tmp_path):
    file = written(tmp_path, "per_cell: 7\nseed: 3\n")
    config = read_config("measure", file, {"seed": "5"})
    assert (config.per_cell, config.seed, config.batch_size) == (7, 5, MeasureConfig().batch_size)


def test_nested_fields_are_dotted(tmp_path):
    file = written(tmp_path, "measure: {per_cell: 7}\n")
    config = read_config("loop", file, {"measure.seed": "5", "tune.training.epochs": "2"})
    assert (config.measure.per_cell, config.measure.seed, config.tune.training.epochs) == (7, 5, 2)


def test_lists_mappings_and_null_are_understood_as_flags():
    flags = {"metrics": "generation_bias", "filters": "{axis: [ability]}", "descriptors": "null"}
    config = read_config("measure", None, flags)
    assert (config.metrics, config.filters, config.descriptors) == (["generation_bias"], {"axis": ["ability"]}, None)


@pytest.mark.parametrize(
    ("command", "text", "message"),
    [
        ("measure", "per_cel: 4", "'per_cel' is unknown; did you mean 'per_cell'"),
        ("loop", "measure: {sed: 4}", "'measure.sed' is unknown; did you mean 'measure.seed'"),
        ("label", "quantile: 1.5", "quantile: 1.5 cannot be used: Input should be less than 1"),
        ("label", "beta: high", "beta: 'high' cannot be used"),
        ("label", "alpha: 3", "alpha: 3 cannot be used: Input should be 0, 1 or 2"),
        ("measure", "per_cell: 0", "per_cell: 0 cannot be used: Input should be greater than or equal to 2"),
        ("measure", "seed: 1.5", "seed: 1.5 cannot be used"),
        ("measure", "seed: [1]", "seed: [1] cannot be used"),
        ("measure", "decoding: beam", "decoding: 'beam' cannot be used: Input should be 'sample' or 'paper'"),
        ("measure", "model: 5", "model: 5 cannot be used"),
        ("loop", "tune: {training: {learning_rate: -1}}", "learning_rate"),
        ("measure", "[1, 2]", "not `field: value` lines"),
        ("measure", "a: [", "is not YAML"),
        ("measure", "model: !!python/object:os.system {}", "is not YAML"),
    ],
)
def test_a_mistake_is_one_error_that_names_it(tmp_path, command, text, message):
    with pytest.raises(InputError) as error:
        read_config(command, written(tmp_path, text), {})
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(InputError, match="absent.yaml cannot be read"):
        read_config("measure", tmp_path / "absent.yaml", {})


def test_the_command_line_prints_one_line_and_exits_with_2(tmp_path, capsys):
    assert main(["label", "--quantile", "2"]) == 2
    assert (
        capsys.readouterr().err
        == "evenhand label: command line: quantile: '2' cannot be used: Input should be less than 1.\n"
    )
    with pytest.raises(SystemExit) as exit_:
        main(["label", "--quantil", "0.5"])
    assert exit_.value.code == 2


@pytest.mark.parametrize("command", COMMANDS)
def test_settings_survive_yaml(command):
    config = COMMANDS[command]()
    assert checked(COMMANDS[command], yaml.safe_load(yaml.safe_dump(as_settings(config))), "file") == config


@pytest.mark.parametrize("file", CONFIGS, ids=lambda file: file.name)
def test_every_shipped_config_is_valid_and_says_how_to_run_it(file):
    first = file.read_text(encoding="utf-8").splitlines()
    command = next(line.split()[3] for line in first if line.startswith("# $ evenhand"))
    assert f"--config recipes/configs/{file.relative_to(FOLDER)}" in "\n".join(first[:8])
    read_config(command, file, {})


def test_there_are_shipped_configs():
    assert CONFIGS
    assert isinstance(LoopConfig().measure, MeasureConfig)


def test_help_is_immediate():
    """Not a timed test: --help must not import what takes seconds."""
    code = (
        "import sys, recipes.__main__ as m; m.parser(); print({'torch', 'transformers', 'pandas'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
