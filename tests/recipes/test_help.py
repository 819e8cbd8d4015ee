"""Help texts, output and log levels of the command line."""

import logging
import subprocess
import sys

import pytest

from evenhand.evaluation import families
from evenhand.recipes import command_line
from evenhand.recipes.command_line import main
from evenhand.recipes.settings import COMMANDS


def printed(capsys, monkeypatch, *arguments):
    monkeypatch.setenv("COLUMNS", "100")
    assert main(arguments) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("command", [None, *COMMANDS])
def test_help_fits_the_terminal(capsys, monkeypatch, command, width):
    monkeypatch.setenv("COLUMNS", str(width))
    assert main([*([command] if command else []), "--help"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(len(line) for line in lines if not line.startswith("usage: ")) <= width


@pytest.mark.parametrize("command", COMMANDS)
def test_help_fits_on_a_screen(capsys, monkeypatch, command):
    text = printed(capsys, monkeypatch, command, "--help")
    assert text.count("\n") <= 66 and COMMANDS[command].__doc__.splitlines()[0][:40] in text


def test_help_has_the_settings_of_named_families(capsys, monkeypatch, written):
    plain = printed(capsys, monkeypatch, "measure", "--help")
    assert "--prompts.per_cell" in plain and "permutations" not in plain and "sentence_pairs.pairs" not in plain
    assert "--metrics FAMILY --help" in plain and all(name in plain for name in families.names())
    for arguments in (("--metrics", "sentence_pairs"), ("--config", str(written("metrics: [sentence_pairs]")))):
        named = printed(capsys, monkeypatch, "measure", *arguments, "--help")
        assert "--sentence_pairs.pairs" in named and "permutations" not in named
    group = printed(capsys, monkeypatch, "measure", "--help", "sentence_pairs")
    assert "--sentence_pairs.pairs" in group and "--prompts" not in group


def test_help_of_groups_commands_and_version(capsys, monkeypatch):
    text = printed(capsys, monkeypatch, "loop", "--help")
    assert all(f"--{group}.…" in text for group in ("measure", "label", "tune")) and "per_cell" in text
    assert "--measure.prompts.per_cell" not in text
    assert "--measure.prompts.per_cell" in printed(capsys, monkeypatch, "loop", "--help", "measure.prompts")
    for arguments in ([], ["--help"]):
        assert all(command in printed(capsys, monkeypatch, *arguments) for command in COMMANDS)
    assert printed(capsys, monkeypatch, "--version").startswith("evenhand ")


@pytest.mark.parametrize(
    ("arguments", "level", "logs_loading"),
    [
        (["label"], logging.INFO, True),
        (["label", "-v"], logging.DEBUG, True),
        (["-v", "label"], logging.DEBUG, True),
        (["label", "--quiet"], logging.WARNING, False),
    ],
)
def test_log_levels(calls, caplog, monkeypatch, arguments, level, logs_loading):
    monkeypatch.setattr(command_line, "check_before_loading", lambda *settings: None)  # no run to label
    assert main(arguments) == 0
    assert len(calls) == 1 and logging.getLogger("evenhand").level == level
    assert any("evenhand label: loading" in message for message in caplog.messages) is logs_loading


def test_a_shell_can_complete_flags_and_values(capsys):
    with pytest.raises(SystemExit) as exit_:
        main(["--print_completion", "shtab-bash"])
    assert exit_.value.code == 0
    script = capsys.readouterr().out
    assert "--prompts.per_cell" in script and "bfloat16" in script and "train_classifier" in script


def test_help_is_immediate():
    """--help must not import slow packages."""
    code = (
        "import sys, evenhand.recipes.command_line as c; c.main(['measure', '--help']); "
        "sys.exit(str({'torch', 'transformers', 'pandas', 'numpy'} & set(sys.modules)))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.stderr == "set()\n"


@pytest.mark.parametrize("arguments", [("configs",), ("measure", "--print_config")])
def test_a_closed_pipe_ends_the_command_silently(arguments):
    code = "import sys; from evenhand.recipes.command_line import main; sys.exit(main())"
    command = subprocess.Popen(
        [sys.executable, "-c", code, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    command.stdout.close()
    assert command.stderr.read() == "" and command.wait() == 141
