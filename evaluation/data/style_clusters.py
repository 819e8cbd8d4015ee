"""Files of style clusters, which are named sets of similar styles, and of phrases to count in responses."""

from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated

from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass

from evenhand.evaluation.errors import InputError, unknown_name
from evenhand.evaluation.files import read_json, read_yaml
from evenhand.evaluation.settings import NonBlank, checked

CLUSTERS = Path(__file__).resolve().parent / "files" / "style_clusters"
PHRASES = Path(__file__).resolve().parent / "files" / "phrases"
OTHER_DESCRIPTORS = "all others"  # name in reports for descriptors whose axis is in no group
# The number of labels of the label sets for which clusters ship.
N_LABELS = {"go_emotions": 28, "image_chat": 217, "testbed": 26}


def default_clusters(labels: Sequence[str]) -> str | None:
    """Return the name of the shipped clusters of a classifier's labels; None if no clusters ship for these labels.

    >>> default_clusters(["offensive", "not offensive"]) is None
    True
    """
    for name, n_labels in N_LABELS.items():
        if len(labels) == n_labels:
            with suppress(InputError):  # the same number of other labels
                load_style_clusters(name, labels)
                return name
    return None


def load_style_clusters(name_or_path: str | Path | None, labels: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """Return the style clusters in a file, cluster name → indices of the cluster's styles in `labels`.

    The argument is the path of a JSON file or the name of a shipped file; without one, the clusters are those of
    `default_clusters`, or none. The file maps clusters to names of styles. A style matches a label with the same name,
    or with the same name up to a gloss in parentheses: "Compassionate" matches "Compassionate (Sympathetic, Warm)".

    Raises:
        InputError: the file does not exist or is not of this format, or a style matches no label or several labels.

    Of these 14 labels, the cluster SYMPATHY contains sadness, grief and remorse:

    >>> labels = "grief caring remorse sadness curiosity confusion surprise anger annoyance disapproval disgust love"
    >>> labels = [*labels.split(), "admiration", "approval"]
    >>> load_style_clusters("go_emotions", labels)["SYMPATHY"]  # sadness, grief, remorse
    (3, 0, 2)
    """
    name_or_path = name_or_path or default_clusters(labels)
    if name_or_path is None:
        return {}
    path = Path(name_or_path)
    if path.suffix != ".json":
        path = CLUSTERS / f"{name_or_path}.json"
        if not path.exists():
            raise unknown_name("style_clusters", str(name_or_path), (file.stem for file in CLUSTERS.glob("*.json")))
    content = read_json(path, "style_clusters")
    clusters = checked(dict[str, Annotated[list[str], Field(min_length=1)]], content, f"style_clusters: {path}")
    return {
        cluster: tuple(dict.fromkeys(_label_index(cluster, style, labels) for style in styles))
        for cluster, styles in clusters.items()
    }


def _label_index(cluster: str, style: str, labels: Sequence[str]) -> int:
    if style in labels:
        return labels.index(style)
    matches = [index for index, label in enumerate(labels) if label.partition(" (")[0] == style]
    if len(matches) > 1:
        listed = ", ".join(repr(labels[index]) for index in matches)
        raise InputError("style_clusters", f"{style!r} in {cluster} could be {listed}; write the whole label.")
    if not matches:
        error = unknown_name("style_clusters", style, labels)
        raise InputError(
            error.field,
            f"the classifier has no such label in {cluster}: {error.problem} Give clusters of its labels, or null.",
        )
    return matches[0]


@dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class PhraseGroup:
    """Phrases of one kind, and the axes whose descriptors may provoke them (Smith et al. 2022, Table 14)."""

    axes: Annotated[tuple[NonBlank, ...], Field(min_length=1)]
    phrases: Annotated[tuple[NonBlank, ...], Field(min_length=1)]


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
            "phrases",
            f"{path} needs a group such as `sympathy: {{axes: [ability], phrases: [...]}}`, and none called "
            f"{OTHER_DESCRIPTORS!r}.",
        )
    phrases = Counter(phrase.casefold() for group in groups.values() for phrase in group.phrases)
    if repeated := [phrase for phrase, count in phrases.items() if count > 1]:
        raise InputError("phrases", f"{path}: {repeated[0]!r} occurs twice; leave one out.")
    return groups


def phrases_for(style_clusters: str | None) -> str:
    """Return the name of the shipped phrases for responses with these style clusters, by default "paper"."""
    return style_clusters if style_clusters is not None and (PHRASES / f"{style_clusters}.yaml").exists() else "paper"
