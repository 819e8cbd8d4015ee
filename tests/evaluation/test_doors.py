"""Settings are named for their door by `doors.spelled`, and by nothing else."""

import ast
import re
from pathlib import Path

import pytest

import evenhand
from evenhand.evaluation import doors
from evenhand.evaluation.doors import python_door, spelled
from evenhand.evaluation.facts import Finding
from evenhand.evaluation.metrics.generation_bias.words import words
from evenhand.recipes.command_line import settings_in
from evenhand.recipes.command_settings import COMMANDS

ROOT = Path(evenhand.__file__).parent
FLAG = re.compile(r"(?<![\w-])--[a-z](?:[\w.-]*\w)?")
# Flags of the command line itself, which no function has, and of programs of others, whose names may have hyphens.
OTHERS = {"--help", "--config", "--revision", "--host", "--port", "--porcelain"}
SHELL = "evaluation/metrics/generation_bias/advice.py"  # makes commands for a shell
COMMAND = re.compile(r"`?(evenhand|check|pip|hf|torchrun|llama-server|git)\b[^`\n]*")  # a command to type


def texts(tree):
    """Yield the texts in Python code without docstrings; "0" stands for a value."""
    if isinstance(tree, ast.Expr) and isinstance(tree.value, ast.Constant):
        return
    if isinstance(tree, ast.JoinedStr):
        yield "".join(part.value if isinstance(part, ast.Constant) else "0" for part in tree.values)
    elif isinstance(tree, ast.Constant) and isinstance(tree.value, str):
        yield tree.value
    else:
        for child in ast.iter_child_nodes(tree):
            yield from texts(child)


def test_no_text_that_both_doors_share_has_a_flag():
    found = {}
    for folder in ("evaluation", "mitigation"):
        for file in sorted((ROOT / folder).rglob("*")):
            if file.suffix == ".py":
                given = list(texts(ast.parse(file.read_text(encoding="utf-8"))))
            elif file.suffix == ".j2" and not file.name.endswith((".md.j2", ".html.j2")):
                given = re.sub(r"\{#.*?#\}", "", file.read_text(encoding="utf-8"), flags=re.DOTALL).splitlines()
            else:
                continue
            flags = {flag for text in given for flag in FLAG.findall(COMMAND.sub("", text))} - OTHERS
            own = sorted(flag for flag in flags if "-" not in flag.removeprefix("--"))
            if own and file != ROOT / SHELL:
                found[file.relative_to(ROOT).as_posix()] = own
    assert found == {}


def spelled_names():
    """Return the names of settings that the code and the templates spell."""
    folders = [ROOT / name for name in ("evaluation", "mitigation", "recipes")]
    files = [file for folder in folders for file in folder.rglob("*") if file.suffix in (".py", ".j2")]
    code = [file.read_text(encoding="utf-8") for file in files]
    return {name for text in code for name in re.findall(r"""spelled\(["']([\w.]+)["'][,)]""", text)}


def test_what_is_spelled_is_a_setting():
    known = {setting.name for command in COMMANDS.values() for setting in settings_in(command)}
    assert {"output_dir", "model.server"} <= spelled_names()
    assert spelled_names() - known - {doors.MAX_NEW_TOKENS} == set()


@pytest.mark.parametrize(
    ("group", "expected"),
    [
        (None, "--generation_bias.repeated_rows once"),
        ("", 'generation_bias={"repeated_rows": "once"}'),
        ("generation_bias", 'repeated_rows="once"'),
    ],
)
def test_a_warning_names_the_argument_of_the_door(group, expected):
    finding = Finding("repeated_rows", {"share": 0.5})
    if group is None:
        assert expected in words(finding)
        return
    with python_door(group):
        assert expected in words(finding)
    assert "--" in words(finding)  # the door is left


def test_values_of_arguments_are_python():
    with python_door():
        assert spelled("model.strip", "[disclaimer]") == 'model={"name": …, "strip": ["disclaimer"]}'
        assert spelled("allow_no_bias", "true") == "allow_no_bias=True"
        assert spelled(doors.MAX_NEW_TOKENS, "200") == 'decoding={"arguments": {"max_new_tokens": 200}}'
    assert spelled(doors.MAX_NEW_TOKENS, "200") == "--max_new_tokens 200"
    assert spelled("generation_bias.style_clusters", "FILE") == "--style_clusters FILE"
