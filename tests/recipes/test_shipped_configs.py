"""The shipped configs: each is valid, described and found by its name."""

from pathlib import Path

import pytest

from evenhand.recipes.ablate import distinct_points, grid_points
from evenhand.recipes.cli import main
from evenhand.recipes.command_line import read_settings, settings_in
from evenhand.recipes.command_settings import COMMANDS
from tests.recipes.test_command_line import error_line

FOLDER = Path(__file__).resolve().parents[2] / "recipes" / "configs"
CONFIGS = sorted(file for file in FOLDER.rglob("*.yaml") if file.parent.name != "accelerate")
FLAGS = {setting.name for command in COMMANDS.values() for setting in settings_in(command)} | {"config"}


def command_of(file):
    return next(
        line.split()[3] for line in file.read_text(encoding="utf-8").splitlines() if line[:12] == "# $ evenhand"
    )


@pytest.mark.parametrize("file", CONFIGS, ids=lambda file: file.name)
def test_every_shipped_config_is_valid_and_what_its_comments_and_print_config_say(file, tmp_path, capsys):
    lines = file.read_text(encoding="utf-8").splitlines()
    command = command_of(file)
    assert f"--config {file.stem}\n" in "\n".join(lines[:8])
    assert lines[0][-1] in ".?)"  # `evenhand configs` shows it
    assert max(map(len, lines)) <= 120
    comments = " ".join(line.split("#", 1)[1] for line in lines if "#" in line)
    flags = {word[2:].rstrip(",") for word in comments.replace("(", " ").split() if word.startswith("--")}
    assert flags and flags <= FLAGS
    expected = read_settings(command, file, {"output_dir": "elsewhere"})
    assert main([command, "--config", str(file), "--output_dir", "elsewhere", "--print_config"]) == 0
    (tmp_path / "printed.yaml").write_text(capsys.readouterr().out, encoding="utf-8")
    assert read_settings(command, tmp_path / "printed.yaml") == expected


@pytest.mark.parametrize("file", sorted((FOLDER / "ablations").glob("*.yaml")), ids=lambda file: file.stem)
def test_every_value_of_a_shipped_sweep_is_a_point_of_its_own(file):
    settings = read_settings("ablate", file)
    assert len(distinct_points(settings)) == sum(len(grid_points(grid)) for grid in settings.sweep)


@pytest.mark.parametrize(
    ("name", "launched_by"), [("ddp", "multi_gpu"), ("fsdp", "use_fsdp"), ("deepspeed_zero3", "use_deepspeed")]
)
def test_accelerate_reads_the_configs_for_several_processes(name, launched_by):
    from accelerate.commands.launch import _validate_launch_command, launch_command_parser

    file = FOLDER / "accelerate" / f"{name}.yaml"
    text = file.read_text(encoding="utf-8")
    assert f"$ evenhand configs {name} > {name}.yaml\n" in text and f"--config_file {name}.yaml -m evenhand" in text
    settings = launch_command_parser().parse_args(
        ["--config_file", str(file), "--num_processes", "2", "-m", "evenhand"]
    )
    settings, *_ = _validate_launch_command(settings)
    launchers = ("multi_gpu", "use_fsdp", "use_deepspeed")
    assert [name for name in launchers if getattr(settings, name)] == [launched_by]
    assert settings.num_processes == 2


def test_shipped_configs_have_unique_names_and_a_description(capsys):
    assert main(["configs"]) == 0
    listed = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())
    files = list(FOLDER.rglob("*.yaml"))
    assert len(listed) == len(files)
    assert {f"# {listed[file.stem]}\n" == file.open(encoding="utf-8").readline() for file in files} == {True}


def test_a_shipped_config_is_printed_unchanged(capsys):
    assert main(["configs", "loop", "ddp"]) == 0
    expected = [(FOLDER / name).read_text(encoding="utf-8") for name in ("loop.yaml", "accelerate/ddp.yaml")]
    assert capsys.readouterr().out == "".join(expected)
    assert "names: 'lop' is unknown; did you mean 'loop'?" in error_line(capsys, "configs", "lop")


def test_a_shipped_config_is_found_by_name_after_files(calls, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "loop").mkdir()  # folders are ignored
    assert main(["loop", "--config", "loop"]) == 0
    assert calls == [read_settings("loop", FOLDER / "loop.yaml")]
    (tmp_path / "smollm2").write_text((FOLDER / "loop.yaml").read_text() + "seed: 3", encoding="utf-8")
    assert main(["loop", "--config", "smollm2"]) == 0 and calls[1].seed == 3
    assert "--config: 'zzz' is unknown. Known: " in error_line(capsys, "loop", "--config", "zzz")
    for path in ("zzz.yaml", "runs/zzz"):  # names with a suffix or folder are always files
        assert "is unknown" not in error_line(capsys, "loop", "--config", path)
