"""Numbers are made in Python, and sentences about them in templates."""

import ast
import re
from pathlib import Path

import pytest

import evenhand

ROOT = Path(evenhand.__file__).parent
FOLDERS = ("evaluation/metrics", "evaluation/rating", "evaluation/report", "mitigation", "recipes")
SENTENCE = re.compile(r"\w+\W+\w+\W+\w+.*[.?!:]$", re.DOTALL)
# What declares a number with its definition; errors; the formats of the log.
DECLARES = re.compile(r"measure|Measure|\w*[Ff]ormat|COST|KEPT|POINTS|SHARE|of_bias|relative|Field|log|\w+Error")
# Sentences that are no findings: help and answers of the programs, texts that models read, and links and notes of
# tables that the templates themselves use.
OTHERS = {
    "recipes/cli.py",
    "recipes/command_line.py",
    "recipes/commands.py",
    "recipes/mention_check.py",
    "mitigation/methods/prompt.py",
    "evaluation/metrics/offensiveness.py",
    "evaluation/metrics/likelihood_bias/descriptor_pairs.py",
    "evaluation/rating/server.py",
    "evaluation/report/formats.py",
    "evaluation/report/score_sections.py",
    "evaluation/report/terminal.py",
}


def sentences(node):
    """Yield the sentences in Python code, apart from docstrings, errors, logs, and definitions of numbers."""
    if isinstance(node, ast.Raise) or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)):
        return
    if isinstance(node, ast.Call):
        name = getattr(node.func, "id", "") or getattr(getattr(node.func, "value", None), "id", "")
        if DECLARES.fullmatch(name):
            return
    if isinstance(node, ast.JoinedStr):
        text = "".join(part.value if isinstance(part, ast.Constant) else "0" for part in node.values)
    elif isinstance(node, ast.Constant) and isinstance(node.value, str):
        text = node.value
    else:
        for child in ast.iter_child_nodes(node):
            yield from sentences(child)
        return
    if SENTENCE.search(text):
        yield text


@pytest.mark.parametrize("folder", FOLDERS)
def test_sentences_are_in_templates(folder):
    found = {}
    for file in (ROOT / folder).rglob("*.py"):
        name = file.relative_to(ROOT).as_posix()
        texts = list(sentences(ast.parse(file.read_text(encoding="utf-8"))))
        if texts and name not in OTHERS:
            found[name] = texts
    assert found == {}


def test_a_sentence_is_found():
    code = 'page = [f"{n} of them differ by chance."]\nraise InputError("a", "give one of the two.")'
    assert list(sentences(ast.parse(code))) == ["0 of them differ by chance."]
