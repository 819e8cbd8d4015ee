"""The sentences of generation bias, which the templates have: no other file of the family has a sentence."""

from collections.abc import Sequence
from pathlib import Path

from evenhand.evaluation.facts import Finding
from evenhand.evaluation.report.words import sentence

TEMPLATES = ("words.j2", "notes.j2", "looks.j2", "published.j2", "limits.j2")
FILES = tuple(map(Path(__file__).with_name, TEMPLATES))


def words(finding: Finding) -> str:
    """Return the sentence about a finding."""
    return sentence(finding, *FILES)


def note(kind: str, **values: object) -> str:
    """Return a sentence of a page that tells how to read it, or counts what a table has."""
    return words(Finding(kind, values))


def advice_text(decision: Finding, people: Sequence[Finding]) -> str:
    """Return what a comparison advises, and what became of the first of the people whom it names."""
    return note("comparison_advice", decision=decision.values, people=[found.values for found in people[:1]])


def caution_text(finding: Finding) -> str:
    """Return the sentence about a caution; of a comparison, with the side that it is about if it is one of the two."""
    side = finding.values.get("side")
    return f"{side.capitalize()}: {words(finding)}" if side else words(finding)
