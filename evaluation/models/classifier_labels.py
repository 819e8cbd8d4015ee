"""The labels of a sequence classifier, from its config alone: checked before torch is imported."""

import json
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.models.revisions import adapter_base, first_line, is_adapter, local_folder

CONFIG = "config.json"


def classifier_labels(name: str, revision: str | None = None, base: str | None = None) -> tuple[str, ...]:
    """Return the labels of a classifier on the hub or in a folder, in the order of its outputs; `base` of an adapter.

    Raises:
        InputError: its config.json cannot be read.
    """
    folder = local_folder(name)
    if folder is not None and is_adapter(folder):
        return classifier_labels(*adapter_base(folder, base, revision))
    try:
        path = folder / CONFIG if folder is not None else _downloaded(name, revision)
        config = json.loads(path.read_text(encoding="utf-8"))
        names = {int(index): str(label) for index, label in (config.get("id2label") or {}).items()}
    except (OSError, ValueError, AttributeError) as error:
        raise InputError(f"model: the config of {name} cannot be read: {first_line(error)}") from None
    n = len(names) or config.get("num_labels") or 2  # what transformers writes for two labels without a name: nothing
    return tuple(names.get(index, f"LABEL_{index}") for index in range(n))


def labels_sha256(labels: Sequence[str]) -> str:
    """Return a hash of a classifier's labels in their order."""
    return sha256("\n".join(labels).encode()).hexdigest()


def place_of_label(labels: Sequence[str], label: str | None, classifier: str, field: str) -> int:
    """Return which of the labels this is; `classifier` is whose they are, `field` the setting that errors name.

    Raises:
        InputError: none is given, or it is not one of them; the message lists them.
    """
    if label in labels:
        return labels.index(label)
    listed = ", ".join(map(repr, labels))
    raise InputError(f"{field}: {label!r} is not a label of {classifier}; give one of {listed}.")


def _downloaded(name: str, revision: str | None) -> Path:
    from huggingface_hub import hf_hub_download  # takes a third of a second, which local models need not wait

    return Path(hf_hub_download(name, CONFIG, revision=revision))
