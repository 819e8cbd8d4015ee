"""The sentences of generation bias, which words.j2 has."""

from pathlib import Path

from evenhand.evaluation.facts import Finding
from evenhand.evaluation.report.words import sentence

WORDS = Path(__file__).with_name("words.j2")


def words(finding: Finding) -> str:
    """Return the sentence about a finding."""
    return sentence(finding, WORDS)


def caution_text(finding: Finding) -> str:
    """Return the sentence about a caution; of a comparison, with the side that it is about if it is one of the two."""
    side = finding.values.get("side")
    return f"{side.capitalize()}: {words(finding)}" if side else words(finding)
