"""The sentences of the page of a loop or of an ablation, which words.j2 has."""

from pathlib import Path

from evenhand.evaluation.facts import Finding
from evenhand.evaluation.report.words import listed, sentence

WORDS = Path(__file__).with_name("words.j2")


def note(kind: str, /, **values: object) -> str:
    """Return the sentence of a kind."""
    return sentence(Finding(kind, values), WORDS)


def limits() -> list[str]:
    """Return what the numbers of a sweep do not show."""
    return listed("limits", WORDS)
