"""Help texts, output and log levels of the command line."""

import logging
import re
import shlex
import subprocess
import sys

import pytest

from evenhand.recipes import commands
from evenhand.recipes.cli import main
from evenhand.recipes.command_line import parse, settings_in
from evenhand.recipes.command_settings import COMMANDS
from evenhand.recipes.settings import FAMILIES, MethodGroups


def printed(capsys, *arguments):
    with pytest.raises(SystemExit) as exit_:
        main(arguments)
    assert exit_.value.code == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_every_setting_with_its_text(capsys, monkeypatch, command):
    monkeypatch.setenv("COLUMNS", "300")
    groups = {"measure": "", "screen": "", "loop": "measure.", "ablate": "loop.measure."}
    flags = [f"--{groups[command]}metrics={','.join(FAMILIES)}"] if command in groups else []
    if command in ("measure", "screen", "tune"):
        flags.append(f"--method={'+'.join(MethodGroups.model_fields)}")
    text = printed(capsys, command, *flags, "--help").lower()
    assert COMMANDS[command].__doc__.splitlines()[0][:40].lower() in text
    settings = [setting for setting in settings_in(COMMANDS[command]) if setting.has_flag]
    assert all(setting.name.removesuffix(".name") in text and setting.text[:30].lower() in text for setting in settings)
    assert all(setting.text for setting in settings)


def test_the_first_help_has_the_commands_and_the_version_is_printed(capsys):
    help_text = printed(capsys, "--help")
    assert all(command in help_text for command in COMMANDS)
    assert main([]) == 0 and capsys.readouterr().out == help_text
    assert main(["--version"]) == 0 and capsys.readouterr().out.startswith("evenhand ")


@pytest.mark.parametrize(
    ("flags", "level", "logs_loading"),
    [([], logging.INFO, True), (["-v"], logging.DEBUG, True), (["--quiet"], logging.WARNING, False)],
)
def test_log_levels(calls, caplog, flags, level, logs_loading):
    assert main(["label", *flags]) == 0
    assert len(calls) == 1 and logging.getLogger("evenhand").level == level
    assert any("evenhand label: loading" in message for message in caplog.messages) is logs_loading


def test_a_shell_can_complete_flags_and_values(capsys):
    script = printed(capsys, "--print_completion", "bash")
    assert "--prompts.answers_per_cell" in script and "bfloat16" in script and "train_classifier" in script


def test_help_is_immediate():
    """--help must not import slow packages."""
    code = (
        "import sys, evenhand.recipes.cli as c\n"
        "try: c.main(['measure', '--help'])\n"
        "except SystemExit: sys.exit(str({'torch', 'transformers', 'trl', 'wandb', 'matplotlib'} & set(sys.modules)))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.stderr == "set()\n"


def test_a_closed_pipe_ends_the_command_silently():
    code = "import sys; from evenhand.recipes.cli import main; sys.exit(main())"
    command = subprocess.Popen(
        [sys.executable, "-c", code, "configs"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    command.stdout.close()
    assert command.stderr.read() == "" and command.wait() == 141


def test_help_has_the_settings_of_the_measured_families_only(capsys):
    text = printed(capsys, "measure", "--help")
    assert "--generation_bias.permutations" in text and "--sentence_pairs.pairs" not in text
    text = printed(capsys, "measure", "--metrics", "sentence_pairs", "--help")
    assert "--generation_bias.permutations" not in text and "--sentence_pairs.pairs" in text


@pytest.mark.parametrize(
    ("command", "metrics", "at_most"),
    [
        *(("measure", family, 74) for family in FAMILIES),
        ("measure", ",".join(FAMILIES), 97),
        ("loop", "generation_bias", 111),
    ],
)
def test_help_does_not_grow(capsys, command, metrics, at_most):
    flag = {"measure": "--metrics", "loop": "--measure.metrics"}[command]
    text = printed(capsys, command, flag, metrics, "--help")
    assert len(set(re.findall(r"^ +(?:-[a-z], )?--([a-z][a-z0-9_.]*)", text, re.M))) - len({"help"}) <= at_most


def test_the_purpose_of_a_command_is_the_first_sentence_of_its_settings():
    assert {name: cls.__doc__.splitlines()[0] for name, cls in COMMANDS.items()} == commands.COMMANDS


@pytest.mark.parametrize("command", COMMANDS)
def test_the_example_of_a_command_can_be_typed(command):
    words = shlex.split(commands.EXAMPLES[command])
    assert words[:2] == ["evenhand", command] and parse(words[1:]) is not None


@pytest.mark.parametrize("command", ["measure", "loop", "ablate"])
def test_help_lists_model_server_and_size_first(capsys, command):
    text = printed(capsys, command, "--help")
    places = {name: text.index(f" --{name}") for name in ("model", "server", "dtype", "size", "report_to", "seed")}
    if command != "measure":  # a loop refuses a model on a server
        assert places.pop("server") > places["report_to"]  # not among the first
    assert list(places.values()) == sorted(places.values())


def test_ablate_has_the_short_names_of_a_measurement():
    settings = parse(["ablate", "some/model", "--config", "testbed_alpha", "--dtype", "float32", "--size", "full"])
    measured = settings.loop.measure
    assert (measured.model.name, measured.model.dtype, measured.prompts.descriptors) == ("some/model", "float32", 200)
