"""Code and pages are in plain technical English: words that a reader has to translate are absent."""

import ast
import io
import re
import tokenize
from functools import lru_cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
CODE = [
    file
    for folder in ("evaluation", "mitigation", "recipes", "evenhand", "tools", "benchmarks", "tests")
    for file in sorted((ROOT / folder).rglob("*.py"))
    if file != Path(__file__).resolve()  # which names the words
]
TEMPLATES = [file for folder in ("evaluation", "mitigation", "recipes") for file in (ROOT / folder).rglob("*.j2")]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
WORDS = "told|untold|beside|hearsay|thereof|kin|foretold|foreseen|as said|those of"
PROSE = re.compile(rf"\b({WORDS})\b", re.I)
CODE_PROSE = re.compile(rf"\b({WORDS}|what was|the one that)\b", re.I)
IDENTIFIER_PARTS = {"told", "untold", "said", "beside", "hearsay", "foreseen", "rehearse"}


@lru_cache(1)
def tokens_of(source: str) -> list[tokenize.TokenInfo]:
    """Return the tokens of Python code."""
    return list(tokenize.generate_tokens(io.StringIO(source).readline))


def prose_of(source: str) -> str:
    """Return the docstrings and comments of Python code."""
    nodes = (ast.Module, ast.ClassDef, ast.FunctionDef)
    texts = [ast.get_docstring(node) or "" for node in ast.walk(ast.parse(source)) if isinstance(node, nodes)]
    comments = (token.string for token in tokens_of(source) if token.type == tokenize.COMMENT)
    return "\n".join([*texts, *comments])


def identifiers(source: str) -> set[str]:
    """Return the parts of all names in Python code, in lower case."""
    names = {token.string for token in tokens_of(source) if token.type == tokenize.NAME}
    return {part for name in names for part in name.lower().split("_")}


def test_the_checks_find_what_they_look_for():
    source = 'def hearsay_all(told):\n    """Return those of the runs."""\n    return told  # what was said\n'
    assert [match[0] for match in CODE_PROSE.finditer(prose_of(source))] == ["those of", "what was"]
    assert identifiers(source) & IDENTIFIER_PARTS == {"hearsay", "told"}


@pytest.mark.parametrize("file", CODE, ids=lambda file: str(file.relative_to(ROOT)))
def test_code_is_in_plain_words(file):
    source = file.read_text(encoding="utf-8")
    assert [match[0] for match in CODE_PROSE.finditer(prose_of(source))] == []
    assert identifiers(source) & IDENTIFIER_PARTS == set()


@pytest.mark.parametrize("file", [*TEMPLATES, *PAGES], ids=lambda file: str(file.relative_to(ROOT)))
def test_pages_and_templates_are_in_plain_words(file):
    assert [match[0] for match in PROSE.finditer(file.read_text(encoding="utf-8"))] == []
