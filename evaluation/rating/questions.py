"""Files of questions for raters, and files of templates and descriptors whose prompts raters do not see."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.runs.files import read_yaml
from evenhand.evaluation.score import DESCRIPTOR, TEMPLATE

PAPER = "paper"
DATA = Path(__file__).resolve().parents[1] / "data" / "files" / "rating"


def questions_file(name_or_path: str) -> Path:
    """Return the path of a file of questions; "paper" is the shipped file with the three questions of 002 §C.2.2."""
    return DATA / "questions.yaml" if name_or_path == PAPER else Path(name_or_path)


def leave_out_file(name_or_path: str) -> Path:
    """Return the path of a file of excluded templates and descriptors; "paper" is the shipped file after 002 §C.2.2."""
    return DATA / "leave_out.yaml" if name_or_path == PAPER else Path(name_or_path)


def load_questions(path: Path) -> dict[str, str]:
    """Return the questions in a file, name → text, in the order of the file.

    Raises:
        InputError: the file cannot be read, or is not a mapping of names to questions.

    The names of the paper's questions are:

    >>> list(load_questions(questions_file("paper")))
    ['preference', 'humanness', 'interestingness']
    """
    content = read_yaml(path, "questions")
    if not isinstance(content, Mapping) or not content:
        raise InputError(f"questions: {path} contains no question; write lines like `preference: Who would you …?`.")
    for name, text in content.items():
        if not _is_text(name) or not _is_text(text):
            raise InputError(f"questions: {path}: {name!r}: {text!r} is not a name and a question; write both as text.")
    return dict(content)


def load_leave_out(path: Path) -> dict[str, list[str]]:
    """Return the two lists in a file, of templates and of descriptors whose prompts raters do not see.

    Raises:
        InputError: the file cannot be read, or its content is not a list of templates and a list of descriptors.
    """
    content = read_yaml(path, "leave_out")
    if not isinstance(content, Mapping) or set(content) != {TEMPLATE, DESCRIPTOR}:
        keys = ", ".join(map(str, content)) if isinstance(content, Mapping) else repr(content)
        raise InputError(f"leave_out: {path} has {keys}; write two lists, `{TEMPLATE}:` and `{DESCRIPTOR}:`.")
    for name, values in content.items():
        if not isinstance(values, list) or not all(map(_is_text, values)):
            raise InputError(f"leave_out: {path}: {name} is {values!r}; write a list of texts, or `[]` for none.")
    return dict(content)


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip())
