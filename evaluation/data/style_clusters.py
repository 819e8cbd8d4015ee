"""Files of style clusters: named sets of similar styles, which are labels of the style classifier."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from pydantic import Field

from evenhand.evaluation.errors import InputError, unknown_name
from evenhand.evaluation.settings import checked

CLUSTERS = Path(__file__).resolve().parent / "files" / "style_clusters"


def load_style_clusters(name_or_path: str | Path, labels: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """Return the style clusters in a file, cluster name → indices of the cluster's styles in `labels`.

    The argument is the path of a JSON file or the name of a shipped file. The file maps clusters to names of styles. A
    style matches a label with the same name, or with the same name up to a gloss in parentheses: "Compassionate"
    matches "Compassionate (Sympathetic, Warm)".

    Raises:
        InputError: the file does not exist or is not of this format, or a style matches no label or several labels.

    Of these 14 labels, the cluster SYMPATHY contains sadness, grief and remorse:

    >>> labels = "grief caring remorse sadness curiosity confusion surprise anger annoyance disapproval disgust love"
    >>> labels = [*labels.split(), "admiration", "approval"]
    >>> load_style_clusters("go_emotions", labels)["SYMPATHY"]  # sadness, grief, remorse
    (3, 0, 2)
    """
    path = Path(name_or_path)
    if path.suffix != ".json":
        path = CLUSTERS / f"{name_or_path}.json"
        if not path.exists():
            raise unknown_name("style_clusters", str(name_or_path), (file.stem for file in CLUSTERS.glob("*.json")))
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"style_clusters: {path} cannot be read as JSON ({error}).") from None
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
        raise InputError(f"style_clusters: {style!r} in {cluster} could be {listed}; write the whole label.")
    if not matches:
        raise unknown_name(f"style_clusters: a label of the style classifier in {cluster}", style, labels)
    return matches[0]
