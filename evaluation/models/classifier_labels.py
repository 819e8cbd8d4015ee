"""Labels of sequence classifiers, read from the classifier's config without importing torch."""

import json
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.models.revisions import adapter_base, first_line, is_adapter, local_folder

CONFIG_FILE = "config.json"


def classifier_labels(name: str, revision: str | None = None, base: str | None = None) -> tuple[str, ...]:
    """Return the labels of a classifier on the Hugging Face hub or in a folder, in the order of the model's outputs.

    An adapter has the labels of its base model: `base` if set, else the base model in the adapter's config.

    Raises:
        InputError: The config.json cannot be read, or `check_labels` rejects it.
    """
    folder = local_folder(name)
    if folder is not None and is_adapter(folder):
        return classifier_labels(*adapter_base(folder, base, revision))
    try:
        path = folder / CONFIG_FILE if folder is not None else _download_config(name, revision)
        config = json.loads(path.read_text(encoding="utf-8"))
        names = {int(index): str(label) for index, label in (config.get("id2label") or {}).items()}
    except (OSError, ValueError, AttributeError) as error:
        raise InputError(f"model: the config of {name} cannot be read: {first_line(error)}") from None
    if not names:  # transformers writes no id2label for two labels without names
        names = {index: f"LABEL_{index}" for index in range(config.get("num_labels") or 2)}
    return check_labels(name, names, config.get("problem_type"))


def check_labels(name: str, names: Mapping[int, str], problem_type: str | None) -> tuple[str, ...]:
    """Return a classifier's labels in the order of its outputs, after a check of its config.

    `names` and `problem_type` are the fields id2label and problem_type of the config.

    Raises:
        InputError: An output has no label, or the model is a regression, which has no probabilities.
    """
    if problem_type == "regression":
        raise InputError(f"model: {name} is a regression (problem_type in its config); give a classifier.")
    if sorted(names) != list(range(len(names))):
        listed = ", ".join(map(str, sorted(names)))
        raise InputError(
            f"model: id2label in the config of {name} has the outputs {listed}; name all from 0 to {len(names) - 1}."
        )
    return tuple(str(names[index]) for index in range(len(names)))


def labels_sha256(labels: Sequence[str]) -> str:
    """Return the SHA-256 of a classifier's labels, which depends on their order."""
    return sha256("\n".join(labels).encode()).hexdigest()


def find_label(labels: Sequence[str], label: str | None, classifier: str, field: str) -> int:
    """Return the index of `label` in a classifier's labels.

    `classifier` and `field` are the names of the classifier and of the setting in the error message.

    Raises:
        InputError: The classifier does not have the label; the error lists its labels.
    """
    if label in labels:
        return labels.index(label)
    listed = ", ".join(map(repr, labels))
    raise InputError(f"{field}: {label!r} is not a label of {classifier}; give one of {listed}.")


def _download_config(name: str, revision: str | None) -> Path:
    from huggingface_hub import hf_hub_download  # takes a third of a second, and local models do not need it

    return Path(hf_hub_download(name, CONFIG_FILE, revision=revision))
