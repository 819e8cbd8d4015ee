"""Where a model is and which one it is: paths, commits on the Hugging Face hub, hashes of files, labels, control tags.

A model's name is a Hugging Face id, the path of a folder or GGUF file, ORGANISATION/REPOSITORY/FILE.gguf on the hub, or
`package:NAME/PATH`, a folder in an installed Python package. The module does not import torch, so that inputs are
checked, and finished runs are recognized, within a fraction of a second.
"""

import json
import logging
import os
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from evenhand.evaluation.errors import InputError, first_line
from evenhand.evaluation.files import files_sha256, is_gguf, read_json, sha256_of
from evenhand.evaluation.hub import gated_message, hub, is_gated, not_here
from evenhand.evaluation.models.gguf_parts import part_names

log = logging.getLogger("evenhand")

COMMIT_DIGITS = 40  # of a commit on the hub; a hash of files has 64
PACKAGE = "package:"  # starts the name of a model in an installed Python package
CONFIG = "config.json"
ADAPTER_CONFIG = "adapter_config.json"
MODULES_FILE = "modules.json"
ADAPTER_FOLDER = "adapter"  # the folder of the tuned adapter in a tuning run
TUNING_FILE = "evenhand.json"  # written by tuning into the folder of the weights
# The field of each file that contains the base model, which changes when a folder is moved: a hub id or an absolute
# path in the first file, as other libraries expect, and a path relative to the adapter in the second.
BASE_FIELDS = {ADAPTER_CONFIG: "base_model_name_or_path", TUNING_FILE: "base"}
# Formats that may contain a pickle, which can run any code when it is read.
PICKLE_SUFFIXES = (".bin", ".pt", ".pth", ".pkl", ".pickle", ".ckpt")
# All that transformers, peft and sentence-transformers read besides the weights. Other files of a folder, such as logs
# and notes, do not count.
SETTINGS_FILES = (
    *("config*.json", "generation_config.json", "tokenizer_config.json", ADAPTER_CONFIG, TUNING_FILE, "*.index.json"),
    *("tokenizer.json", "special_tokens_map.json", "added_tokens.json", "normalizer.json", "*vocab*.json"),
    *("*vocab*.txt", "merges.txt", "dict.txt", "*.codes", "*.model", "*.spm", "*.tiktoken"),
    *("chat_template.json", "*.jinja", "additional_chat_templates/*.jinja"),
    *(MODULES_FILE, "sentence_*_config.json"),
)
MODEL_FILES = ("*model*.safetensors", *SETTINGS_FILES)


class BaseChanged(InputError):
    """The error that an adapter would be put on another base than the one that was tuned."""


def local_path(name: str, field: str = "model") -> Path:
    """Return the path of a local model or file; InputError if it is in a Python package that is not installed."""
    if not name.startswith(PACKAGE):
        return Path(name).expanduser()
    package, _, inside = name.removeprefix(PACKAGE).partition("/")
    found = find_spec(package) if package.isidentifier() else None  # does not run the package's code
    if found is None or found.origin is None:
        raise InputError(field, f"{name}: the Python package {package!r} is not installed.")
    return Path(found.origin).parent / inside


def looks_like_path(name: str) -> bool:
    """Return whether a model's name can only be a path, not an id on the hub."""
    return name.startswith((".", "/", "~", PACKAGE)) or "\\" in name


def is_local_path(name: str) -> bool:
    """Return whether a name is the path of a folder or GGUF file; False for ids on the hub and `package:` names."""
    path = Path(name).expanduser()
    return path.is_dir() or (is_gguf(name) and path.is_file())


def hub_repository(name: str) -> str | None:
    """Return the id of a model's repository on the hub; None for a local model.

    >>> hub_repository("org/model"), hub_repository("org/model-GGUF/model.Q8_0.gguf"), hub_repository("package:a/model")
    ('org/model', 'org/model-GGUF', None)
    """
    if looks_like_path(name) or is_local_path(name):
        return None
    return "/".join(name.split("/")[:2]) if is_gguf(name) else name


def gguf_path(name: str, revision: str | None = None) -> Path:
    """Return the path of a GGUF file, which is downloaded if it is on the hub; InputError if there is none."""
    path = local_path(name)
    if path.is_file():
        return path
    if looks_like_path(name) or name.count("/") < 2:
        raise InputError("model", f"no file {name}; give a GGUF file, or ORGANISATION/REPOSITORY/FILE.gguf.")
    organisation, repository, file = name.split("/", 2)
    return download(f"{organisation}/{repository}", file, revision)


def gguf_files(name: str, revision: str | None = None) -> list[Path]:
    """Return the paths of all files of a GGUF model, which may have several parts; InputError if one is missing."""
    return [gguf_path(part, revision) for part in part_names(name)]


def download(repository: str, file: str, revision: str | None) -> Path:
    """Return the path of a file of the hub; InputError if it is neither on this machine nor on the hub."""
    try:
        return Path(hub().hf_hub_download(repository, file, revision=revision))
    except (OSError, ValueError) as error:  # the hub's errors are subclasses
        raise not_here(repository, error) from None


def model_revision(name: str, revision: str | None = None, base: str | None = None) -> str:
    """Return a model's commit hash on the hub, or the SHA-256 of a local folder's model files or of a local GGUF file.

    The hash covers an adapter's base model (`base`, if set), the folders in a sentence encoder's modules.json, and the
    Python files of a model with remote code. InputError if the name is not a model, its weights are not in safetensors,
    or `base` is set for a model that is not an adapter.
    """
    folder = None if is_gguf(name) else adapter_folder(name, revision, base) or local_folder(name)
    if base is not None and (folder is None or not is_adapter(folder)):
        raise InputError("model.base", f"{base} is set, but {name} is not an adapter; leave it out.")
    if folder is None:
        return _commit(name, revision)
    if is_adapter(folder):
        _check_base(folder, base, revision)
    return _folder_revision(folder, revision, base)


def _check_base(folder: Path, base: str | None, revision: str | None) -> None:
    """Raise BaseChanged if an adapter of `tune` would be put on another base than the one that was tuned."""
    tuned_on = _read_object(folder / TUNING_FILE).get("base_revision")
    if not isinstance(tuned_on, str) or not tuned_on:
        return  # another program made the adapter
    name, base_revision = adapter_base(folder, base, revision)
    if (len(tuned_on) == COMMIT_DIGITS) != (hub_repository(name) is not None):
        log.warning("%s was tuned on %s, which cannot be compared with the files of %s", folder, tuned_on, name)
        return
    if not is_revision(tuned_on, name, base_revision):
        raise BaseChanged(
            "model.base" if base else "model",
            f"{folder} was tuned on {name} at the revision {tuned_on[:12]}, which has "
            "other files now; give the base as it was (model.base), or tune again.",
        )


def is_revision(recorded: str, name: str, revision: str | None, base: str | None = None) -> bool:
    """Return whether a recorded revision is the model's."""
    return recorded == model_revision(name, revision, base)


def _folder_revision(folder: Path, revision: str | None, base: str | None) -> str:
    """Return the hash of the names and contents of a model's files.

    Names count: a chat template is read only if the file has the name of one.
    """
    parts = [folder, *module_folders(folder)]
    files = sorted({file for part in parts for kind in MODEL_FILES for file in part.glob(kind)} | _code(folder))
    names = {os.path.relpath(file, folder): file for file in files}
    hashed = {name: file for name, file in names.items() if file.name not in BASE_FIELDS}
    digest = files_sha256(hashed)
    for name, file in names.items():
        base_field = BASE_FIELDS.get(file.name)
        if base_field is not None:
            fields = {key: value for key, value in _read_object(file).items() if key != base_field}
            text = json.dumps(fields, sort_keys=True)
            digest = sha256(f"{digest} {name} {text}".encode()).hexdigest()
    if is_adapter(folder):
        base_name, base_commit = adapter_base(folder, base, revision)
        base_revision = model_revision(base_name, base_commit)
        digest = sha256(f"{digest} {base_revision}".encode()).hexdigest()
    return digest


def tokenizer_revision(name: str, revision: str | None = None) -> str:
    """Return a tokenizer's commit hash on the hub, or the SHA-256 of a local folder's model files without weights.

    A GGUF file contains its tokenizer, so the revision of the whole file is returned.
    """
    folder = Path(name).expanduser()
    if is_gguf(name) or not folder.is_dir():
        return _commit(name, revision)
    files = {file for kind in SETTINGS_FILES for file in folder.glob(kind)} | _code(folder)
    return files_sha256({os.path.relpath(file, folder): file for file in files})


def _commit(name: str, revision: str | None) -> str:
    """Return the commit in the path of a model's file in the hub's cache, or the SHA-256 of a file without a commit."""
    paths = gguf_files(name, revision) if is_gguf(name) else [download(name, CONFIG, revision)]
    commit = re.search(r"/snapshots/([0-9a-f]{40})/", paths[0].as_posix())
    if commit and not local_path(name).is_file():
        return commit[1]
    return sha256_of(paths[0]) if len(paths) == 1 else files_sha256({path.name: path for path in paths})


def _code(folder: Path) -> set[Path]:
    """Return the Python files of a model with remote code, which its configs name; no file of another model."""
    configs = (folder / name for name in (CONFIG, "tokenizer_config.json") if (folder / name).is_file())
    has_auto_map = any('"auto_map"' in file.read_text(encoding="utf-8", errors="replace") for file in configs)
    types = [str(module.get("type", "")) for module in _modules(folder)]
    has_own_module = not all(name.startswith("sentence_transformers.") for name in types)
    return set(folder.rglob("*.py")) if has_auto_map or has_own_module else set()


def local_folder(name: str) -> Path | None:
    """Return the folder of a local model with safetensors; None for a model id on the hub.

    InputError if the path is not a folder with safetensors. Only the measured model can be a GGUF file.
    """
    path = local_path(name)
    if is_gguf(name) or path.is_file():
        raise InputError("model", f"{name} is a file; give a folder with config.json and model.safetensors.")
    if not path.is_dir():
        if looks_like_path(name) or name.count("/") > 1:
            raise InputError("model", f"the folder {name} does not exist; give a model's folder or its id on the hub.")
        return None
    weights = next(iter(module_folders(path)), path)  # a sentence encoder's first module is the model itself
    if is_adapter(path) and list(path.glob("model*.safetensors")) and not list(path.glob("adapter_model*")):
        raise InputError(
            "model",
            f"{path / ADAPTER_CONFIG} says that the folder is an adapter, but its weights are a whole model; delete "
            "that file if the adapter is merged into the model.",
        )
    if list(weights.glob("adapter_model*.safetensors" if is_adapter(path) else "model*.safetensors")):
        return path
    pickles = (file for file in path.iterdir() if file.suffix in PICKLE_SUFFIXES and file.stem != "training_args")
    found = sorted(pickles)
    if found:
        how = "peft.PeftModel.from_pretrained" if is_adapter(path) else "from_pretrained(..., use_safetensors=False)"
        why = f"may be a pickle, which can run any code; if you trust it, load it with {how}"
        raise InputError("model", f"{found[0]} {why} and save it with save_pretrained, which writes safetensors.")
    inside = [file for depth in ("*", "*/*", "*/*/*") for file in sorted(path.glob(f"{depth}/*.safetensors"))]
    example = f", such as {inside[0].parent}" if inside else ""
    raise InputError("model", f"{name} contains no *.safetensors; give the folder of a saved model{example}.")


def adapter_folder(name: str, revision: str | None = None, base: str | None = None) -> Path | None:
    """Return the local folder of an adapter, which is downloaded if it is on the hub; None if the model is no adapter.

    `revision` is the adapter's on the hub, unless `base` is set: then it is the base's.
    """
    if is_gguf(name):
        return None
    folder = local_folder(name)
    if folder is not None:
        return folder if is_adapter(folder) else None
    try:
        return _hub_adapter(name, None if base is not None else revision)
    except InputError:
        raise
    except (OSError, ValueError) as error:  # the hub's errors are subclasses
        if is_gated(error):
            raise InputError("model", gated_message(name)) from None
        return None  # the hub cannot be reached: the model's own config says so


@lru_cache(maxsize=64)  # one answer for all stages of a loop; an error, such as of a connection, is none
def _hub_adapter(name: str, revision: str | None) -> Path | None:
    """Return the folder, in the hub's cache, of an adapter on the hub, which is downloaded; None for another model."""
    from huggingface_hub.errors import RemoteEntryNotFoundError  # slow to import

    try:
        hub().hf_hub_download(name, ADAPTER_CONFIG, revision=revision)
    except RemoteEntryNotFoundError:
        return None
    try:
        files = hub().snapshot_download(
            name, revision=revision, allow_patterns=["adapter_model*.safetensors", *SETTINGS_FILES]
        )
    except (OSError, ValueError) as error:
        raise InputError("model", f"the adapter {name!r} of the hub cannot be read ({first_line(error)}).") from None
    return local_folder(files)


def is_adapter(folder: Path) -> bool:
    """Return whether a folder contains a PEFT adapter."""
    return (folder / ADAPTER_CONFIG).exists()


def adapter_base(folder: Path, base: str | None = None, revision: str | None = None) -> tuple[str, str | None]:
    """Return the name and revision of an adapter's base model, from the arguments if `base` is set, else its config.

    A relative path starts at the adapter's folder. If the path does not exist because both folders were moved, the
    relative path in the adapter's evenhand.json is used.
    """
    if base is not None:
        return base, revision
    settings = _read_object(folder / ADAPTER_CONFIG)
    tuned = _read_object(folder / TUNING_FILE)
    base = settings.get(BASE_FIELDS[ADAPTER_CONFIG])
    relative = tuned.get(BASE_FIELDS[TUNING_FILE])
    if not isinstance(base, str) or not base:
        raise InputError("model", f"{folder / ADAPTER_CONFIG} names no base model; save it again.")
    paths = (folder / local_path(path) for path in (base, relative) if isinstance(path, str))
    found = (path.resolve() for path in paths if path.is_dir() or (is_gguf(path.name) and path.is_file()))
    return str(next(found, base)), settings.get("revision")


def _read_object(file: Path) -> dict[str, Any]:
    """Return the object in a JSON file; {} if the file has none."""
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


def load_control_tag(name: str, revision: str | None = None, base: str | None = None) -> str:
    """Return the control tag in the evenhand.json of a model's folder or repository; "" if there is none.

    The arguments are those of `adapter_folder`.
    """
    path = local_path(name) / TUNING_FILE
    if hub_repository(name) is not None and not is_gguf(name):
        path = _hub_tuning_file(name, None if base is not None else revision)
    if path is None or not path.is_file():
        return ""
    facts = _read_object(path)
    tag = facts.get("control_tag", "")
    if not facts or not isinstance(tag, str):
        raise InputError("model", f"{path} is damaged: its control tag cannot be read; repair or remove it.")
    return tag


def _hub_tuning_file(name: str, revision: str | None) -> Path | None:
    """Return the path, in the hub's cache, of the evenhand.json of a model on the hub; None if it has none."""
    try:
        return Path(hub().hf_hub_download(name, TUNING_FILE, revision=revision))
    except (OSError, ValueError):  # the hub's errors are subclasses; whether the model can be reached is said elsewhere
        return None


def module_folders(folder: Path) -> list[Path]:
    """Return the folders of a sentence encoder's modules, starting with the transformer; [] for other models."""
    return [folder / module["path"] for module in _modules(folder)]


def _modules(folder: Path) -> list[dict[str, Any]]:
    path = folder / MODULES_FILE
    modules = read_json(path, "model") if path.is_file() else []
    is_list = isinstance(modules, list) and all(isinstance(module, dict) for module in modules)
    if not is_list or not all(isinstance(module.get("path"), str) for module in modules):
        raise InputError("model", f"{path} does not list modules with their paths; save the encoder again.")
    return modules


def checkpoint_labels(
    name: str,
    revision: str | None = None,
    head: str | None = None,
    label_names: Path | None = None,
) -> tuple[str, ...]:
    """Return the labels of a classifier on the hub or in a folder, in the order of the model's outputs.

    An adapter has the labels of its base model. `head` and `label_names` are as in `check_labels`.
    """
    adapter = adapter_folder(name, revision)
    if adapter is not None:
        base_name, base_commit = adapter_base(adapter)
        return checkpoint_labels(base_name, base_commit, head, label_names)
    folder = local_folder(name)
    config = _read_object(download(name, CONFIG, revision) if folder is None else folder / CONFIG)
    names = {int(index): label for index, label in (config.get("id2label") or {}).items()}
    if not names:  # transformers writes no id2label for two labels without names
        names = {index: f"LABEL_{index}" for index in range(config.get("num_labels") or 2)}
    return check_labels(name, names, config.get("problem_type"), head, label_names)


def check_labels(
    name: str,
    names: Mapping[int, str],
    problem_type: str | None,
    head: str | None,
    label_names: Path | None,
) -> tuple[str, ...]:
    """Return a classifier's labels in the order of its outputs, from id2label and problem_type of its config.

    A head of one logit has two labels, of which the second is "not" and the first. `head` is the setting of that name;
    `label_names` is a file of names that replace those of the config.

    InputError if an output has no label, the file has another number of names, or the model is a regression, which has
    no probabilities.
    """
    if problem_type == "regression" and head != "sigmoid":
        raise InputError(
            "model",
            f"{name} is a regression (problem_type in its config); give a classifier, or `head: sigmoid` if its "
            "output is the logit of a label.",
        )
    if sorted(names) != list(range(len(names))):
        raise InputError("model", f"id2label in the config of {name} has the outputs {sorted(names)}; name all.")
    labels = [str(names[index]) for index in range(len(names))]
    if label_names is not None:
        labels = _read_names(label_names, len(labels))
    return (labels[0], f"not {labels[0]}") if len(labels) == 1 else tuple(labels)


def _read_names(path: Path, n: int) -> list[str]:
    """Return the n different names in a text file, one a line."""
    try:
        lines = [line.strip() for line in path.read_text(encoding="utf-8-sig").splitlines() if line.strip()]
    except (OSError, ValueError) as error:
        raise InputError("label_names", f"{path} cannot be read ({error}); give a text file in UTF-8.") from None
    if len(lines) != n or len(set(lines)) != n:
        raise InputError("label_names", f"{path} has {len(lines)} names; give {n}, all different, one a line.")
    return lines


def find_label(labels: Sequence[str], label: str | None, classifier: str, field: str) -> int:
    """Return the index of a label of a classifier; InputError, about the setting `field`, if it has no such label."""
    if label in labels:
        return labels.index(label)
    raise InputError(field, f"{label!r} is not a label of {classifier}; give one of {', '.join(map(repr, labels))}.")
