"""Phrase files: phrases to count in responses, and the axes whose descriptors are expected to provoke them."""

from collections import Counter
from pathlib import Path
from typing import Annotated

from pydantic import ConfigDict, Field, StringConstraints
from pydantic.dataclasses import dataclass

from evenhand.evaluation.errors import InputError, unknown_name
from evenhand.evaluation.files import read_yaml
from evenhand.evaluation.settings import checked

PHRASES = Path(__file__).resolve().parent / "files" / "phrases"
OTHER_DESCRIPTORS = "all others"  # name in reports for descriptors whose axis is in no group


Text = Annotated[str, StringConstraints(pattern=r"\S")]


@dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class PhraseGroup:
    """Phrases of one kind, and the axes whose descriptors may provoke them (Smith et al. 2022, Table 14)."""

    axes: Annotated[tuple[Text, ...], Field(min_length=1)]
    phrases: Annotated[tuple[Text, ...], Field(min_length=1)]


def load_phrases(name_or_path: str) -> dict[str, PhraseGroup]:
    """Return the phrase groups, group name → group, in a shipped file ("paper", "testbed") or in a YAML file.

    Raises:
        InputError: the file does not exist, lacks the format of data/files/phrases/paper.yaml, or repeats a phrase.
    """
    path = Path(name_or_path)
    if path.suffix not in (".yaml", ".yml"):
        path = PHRASES / f"{name_or_path}.yaml"
        if not path.exists():
            raise unknown_name("phrases", name_or_path, (file.stem for file in PHRASES.glob("*.yaml")))
    groups = checked(dict[str, PhraseGroup], read_yaml(path, "phrases"), f"phrases: {path}")
    if not groups or OTHER_DESCRIPTORS in groups:
        raise InputError(
            f"phrases: {path} needs a group such as `sympathy: {{axes: [ability], phrases: [...]}}`, and none called "
            f"{OTHER_DESCRIPTORS!r}."
        )
    phrases = Counter(phrase.casefold() for group in groups.values() for phrase in group.phrases)
    if repeated := [phrase for phrase, count in phrases.items() if count > 1]:
        raise InputError(f"phrases: {path}: {repeated[0]!r} occurs twice; leave one out.")
    return groups


def phrases_for(style_clusters: str) -> str:
    """Return the name of the shipped phrases for responses with these style clusters, by default "paper"."""
    return style_clusters if (PHRASES / f"{style_clusters}.yaml").exists() else "paper"
