"""Phrase files: phrases to count in responses, and the axes whose descriptors are expected to provoke them."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evenhand.evaluation.errors import InputError, format_value, unknown_name
from evenhand.evaluation.files import read_yaml

PHRASES = Path(__file__).resolve().parent / "files" / "phrases"
OTHER_DESCRIPTORS = "all others"  # name in reports for descriptors whose axis is in no group


@dataclass(frozen=True)
class PhraseGroup:
    """Phrases of one kind, and the axes whose descriptors may provoke them (Smith et al. 2022, Table 14)."""

    axes: tuple[str, ...]
    phrases: tuple[str, ...]


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
    content = read_yaml(path, "phrases")
    if not isinstance(content, dict) or not content:
        raise InputError(f"phrases: {path} has no group; write `sympathy: {{axes: [ability], phrases: [...]}}`.")
    if OTHER_DESCRIPTORS in content:
        raise InputError(f"phrases: {path}: the group {OTHER_DESCRIPTORS!r} has a reserved name; rename it.")
    groups = {str(name): _parse_group(path, str(name), group) for name, group in content.items()}
    group_names: dict[str, str] = {}
    for name, group in groups.items():
        for phrase in group.phrases:
            if group_names.setdefault(phrase.casefold(), name) != name or group.phrases.count(phrase) > 1:
                raise InputError(f"phrases: {path}: {phrase!r} occurs twice; leave one out.")
    return groups


def phrases_for(style_clusters: str) -> str:
    """Return the name of the shipped phrases for responses with these style clusters, by default "paper"."""
    return style_clusters if (PHRASES / f"{style_clusters}.yaml").exists() else "paper"


def _parse_group(path: Path, name: str, group: Any) -> PhraseGroup:
    if not isinstance(group, dict) or set(group) != {"axes", "phrases"}:
        keys = ", ".join(map(repr, group)) if isinstance(group, dict) else format_value(group)
        raise InputError(f"phrases: {path}: {name} has {keys}; give it only `axes` and `phrases`.")
    return PhraseGroup(*(_parse_texts(path, f"{name}.{field}", group[field]) for field in ("axes", "phrases")))


def _parse_texts(path: Path, field: str, values: Any) -> tuple[str, ...]:
    if not isinstance(values, Sequence) or isinstance(values, str) or not values:
        raise InputError(f"phrases: {path}: {field} is {format_value(values)}; write a list of texts.")
    for value in values:
        if not isinstance(value, str) or not value.strip():
            raise InputError(
                f"phrases: {path}: {field} has {format_value(value)}, which is not a text; put it in quotes."
            )
    return tuple(values)
