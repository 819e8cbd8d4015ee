"""Files of style clusters: which styles, labels of a classifier, are of one kind."""

import json
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from pathlib import Path

from evenhand.evaluation.errors import InputError, unknown_name

CLUSTERS = Path(__file__).resolve().parent / "data" / "style_clusters"


def load_style_clusters(name_or_path: str, labels: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """Return each cluster's members as indices into `labels`, from a shipped file's name or a JSON file's path.

    The file maps a cluster to the names of its styles. A style is the label of that name, or the label that has that
    name before a gloss in parentheses: "Compassionate" is "Compassionate (Sympathetic, Warm)".

    Raises:
        InputError: there is no such file, it is not of that form, or a style is not (or not uniquely) a label.

    >>> labels = [
    ...     "grief",
    ...     "caring",
    ...     "remorse",
    ...     "sadness",
    ...     "curiosity",
    ...     "confusion",
    ...     "surprise",
    ...     "anger",
    ...     "annoyance",
    ...     "disapproval",
    ...     "disgust",
    ...     "love",
    ...     "admiration",
    ...     "approval",
    ... ]
    >>> load_style_clusters("go_emotions", labels)["SYMPATHY"]  # sadness, grief, remorse
    (3, 0, 2)
    """
    path = Path(name_or_path)
    if path.suffix != ".json":
        path = CLUSTERS / f"{name_or_path}.json"
        if not path.exists():
            raise unknown_name("style_clusters", name_or_path, (file.stem for file in CLUSTERS.glob("*.json")))
    try:
        clusters = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"style_clusters: {path} cannot be read as JSON ({error}).") from None
    if not isinstance(clusters, dict) or not all(
        isinstance(styles, list) and styles and all(isinstance(style, str) for style in styles)
        for styles in clusters.values()
    ):
        raise InputError(f'style_clusters: {path} must map names to lists of styles, as in {{"ENVY": ["Envious"]}}.')
    return {
        cluster: tuple(dict.fromkeys(_label_index(cluster, style, labels) for style in styles))
        for cluster, styles in clusters.items()
    }


def _label_index(cluster: str, style: str, labels: Sequence[str]) -> int:
    if style in labels:
        return labels.index(style)
    found = [index for index, label in enumerate(labels) if label.partition(" (")[0] == style]
    if len(found) == 1:
        return found[0]
    if found:
        several = ", ".join(repr(labels[index]) for index in found)
        raise InputError(f"style_clusters: {style!r} in {cluster} could be {several}; write the whole label.")
    raise InputError(
        f"style_clusters: {style!r} in {cluster} is not a label of the style classifier{_closest(style, labels)}; "
        "give the clusters of this classifier's label set."
    )


def _closest(style: str, labels: Iterable[str]) -> str:
    close = get_close_matches(style, labels, n=1)
    return f"; did you mean {close[0]!r}?" if close else ""
