"""Revisions of models: the commit on the Hugging Face hub, or a hash over the files of a local folder.

The module does not import torch, so that inputs are checked, and finished runs are recognized, within a fraction of a
second.
"""

import json
import re
from hashlib import sha256
from pathlib import Path
from typing import Any

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.files import sha256_of
from evenhand.evaluation.models.model_paths import gguf_path, is_gguf, local_path, looks_like_path

ADAPTER_CONFIG, MODULES_FILE = "adapter_config.json", "modules.json"
ADAPTER_FOLDER = "adapter"  # the folder of the tuned adapter in a tuning run
TUNING_FILE = "evenhand.json"  # written by tuning into the folder of the weights
# The field of each file that contains the base model, which changes when a folder is moved: a hub id or an absolute
# path in the first file, as other libraries expect, and a path relative to the adapter in the second.
BASE_FIELDS = {ADAPTER_CONFIG: "base_model_name_or_path", TUNING_FILE: "base"}
# Formats that may contain a pickle, which can run any code when it is read.
PICKLE_SUFFIXES = (".bin", ".pt", ".pth", ".pkl", ".pickle", ".ckpt")
WEIGHTS = ("*model*.safetensors",)
# All that transformers, peft and sentence-transformers read besides the weights. Other files of a folder, such as logs
# and notes, do not count.
SETTINGS_FILES = (
    *("config*.json", "generation_config.json", "tokenizer_config.json", ADAPTER_CONFIG, TUNING_FILE, "*.index.json"),
    *("tokenizer.json", "special_tokens_map.json", "added_tokens.json", "normalizer.json", "*vocab*.json"),
    *("*vocab*.txt", "merges.txt", "dict.txt", "*.codes", "*.model", "*.spm", "*.tiktoken"),
    *("chat_template.json", "*.jinja", "additional_chat_templates/*.jinja"),
    *(MODULES_FILE, "sentence_*_config.json"),
)
MODEL_FILES = (*WEIGHTS, *SETTINGS_FILES)


def model_revision(name: str, revision: str | None = None, base: str | None = None) -> str:
    """Return a model's commit hash on the hub, or the SHA-256 of a local folder's model files or of a local GGUF file.

    The hash of an adapter covers the revision of its base model (`base`, if set). The hash of a sentence encoder covers
    the folders in its modules.json. The hash of a model with remote code covers its Python files. No weights are
    loaded.

    Raises:
        InputError: The name is not a model, its weights are not in safetensors, or `base` is set for a model that is
            not an adapter.
    """
    folder = None if is_gguf(name) else local_folder(name)
    if base is not None and (folder is None or not is_adapter(folder)):
        raise InputError(f"model.base: {base} is set, but {name} is not a folder of an adapter; leave it out.")
    if is_gguf(name):
        return _gguf_revision(name, revision)
    if folder is None:
        return _resolve_commit(name, revision)
    parts = [folder, *module_folders(folder)]
    files = sorted({file for part in parts for kind in MODEL_FILES for file in part.glob(kind)} | _code(folder))
    digest = sha256_of(*(file for file in files if file.name not in BASE_FIELDS))
    for file in files:
        if file.name in BASE_FIELDS:
            digest = sha256(f"{digest} {_read_without_base(file)}".encode()).hexdigest()
    if is_adapter(folder):
        digest = sha256(f"{digest} {model_revision(*adapter_base(folder, base, revision))}".encode()).hexdigest()
    return digest


def tokenizer_revision(name: str, revision: str | None = None) -> str:
    """Return a tokenizer's commit hash on the hub, or the SHA-256 of a local folder's model files without weights.

    A GGUF file contains its tokenizer, so the revision of the whole file is returned.

    Raises:
        InputError: The name is neither a model id on the hub nor a folder.
    """
    if is_gguf(name):
        return _gguf_revision(name, revision)
    folder = Path(name).expanduser()
    if not folder.is_dir():
        return _resolve_commit(name, revision)
    return sha256_of(*sorted({file for kind in SETTINGS_FILES for file in folder.glob(kind)} | _code(folder)))


def _code(folder: Path) -> set[Path]:
    """Return the Python files of a model with remote code, which its configs name; no file of another model."""
    configs = (folder / name for name in ("config.json", "tokenizer_config.json") if (folder / name).is_file())
    has_code = any('"auto_map"' in file.read_text(encoding="utf-8", errors="replace") for file in configs)
    has_code |= any(not str(module.get("type", "")).startswith("sentence_transformers.") for module in _modules(folder))
    return set(folder.rglob("*.py")) if has_code else set()


def local_folder(name: str) -> Path | None:
    """Return the folder of a local model with safetensors; None for a model id on the hub.

    Raises:
        InputError: The path is not a folder; the folder has no safetensors; a file of the model is a folder, a pipe or
            a broken link; or the path is a GGUF file, which is supported only for the measured model.
    """
    path = local_path(name)
    if is_gguf(name):
        raise InputError(f"model: {name} is a GGUF file, which only a measured model can be; give safetensors.")
    if path.is_file():
        raise InputError(f"model: {name} is a file; give the folder with config.json and model.safetensors.")
    if not path.is_dir():
        if looks_like_path(name) or name.count("/") > 1:
            raise InputError(f"model: the folder {name} does not exist; give a model's folder or its id on the hub.")
        return None
    for file in (file for kind in MODEL_FILES for file in path.glob(kind) if not file.is_file()):
        raise InputError(f"model: {file} is a folder, a pipe or a broken link; put the model's file in its place.")
    weights = next(iter(module_folders(path)), path)  # a sentence encoder's first module is the model itself
    if list(weights.glob("adapter_model*.safetensors" if is_adapter(path) else "model*.safetensors")):
        return path
    pickles = sorted(
        file.name for file in path.iterdir() if file.suffix in PICKLE_SUFFIXES and file.stem != "training_args"
    )
    if pickles:
        how = "peft.PeftModel.from_pretrained" if is_adapter(path) else "from_pretrained(..., use_safetensors=False)"
        raise InputError(
            f"model: {path / pickles[0]} may be a pickle, which can run any code when it is read. If you trust it, "
            f"load it with {how} and save it with save_pretrained, which writes safetensors."
        )
    raise InputError(f"model: {name} contains no *.safetensors; give the folder of a saved model.")


def is_adapter(folder: Path) -> bool:
    """Return whether a folder contains a PEFT adapter."""
    return (folder / ADAPTER_CONFIG).exists()


def adapter_base(folder: Path, base: str | None = None, revision: str | None = None) -> tuple[str, str | None]:
    """Return the name and revision of an adapter's base model, from the arguments if `base` is set, else its config.

    A relative path starts at the adapter's folder. If the path does not exist because both folders were moved, the
    relative path in the adapter's evenhand.json is used.

    Raises:
        InputError: The adapter's config contains no base model, or the adapter is its own base model.
    """
    if base is not None:
        return base, revision
    base, revision = _configured_base(folder)
    adapters = [folder.resolve()]
    while is_adapter(path := Path(_configured_base(adapters[-1])[0])):
        if path.resolve() in adapters:
            raise InputError(f"model: the adapter {folder} has itself as its base; name a model in {ADAPTER_CONFIG}.")
        adapters.append(path.resolve())
    return base, revision


def _configured_base(folder: Path) -> tuple[str, str | None]:
    field = BASE_FIELDS[ADAPTER_CONFIG]
    try:
        settings = json.loads((folder / ADAPTER_CONFIG).read_text(encoding="utf-8"))
        base = settings[field]
        if not isinstance(base, str) or not base:
            raise KeyError(field)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"model: {folder / ADAPTER_CONFIG} names no base model ({error!r}); save it again.") from None
    paths = (folder / Path(path).expanduser() for path in (base, *_relative_base_path(folder)))
    found = (path.resolve() for path in paths if path.is_dir() or (is_gguf(path.name) and path.is_file()))
    return str(next(found, base)), settings.get("revision")


def _relative_base_path(folder: Path) -> list[str]:
    """Return a list with the base model's path relative to the adapter's folder; [] if evenhand.json has no path."""
    try:
        path = json.loads((folder / TUNING_FILE).read_text(encoding="utf-8"))[BASE_FIELDS[TUNING_FILE]]
    except (OSError, ValueError, KeyError, TypeError):
        return []
    return [path] if isinstance(path, str) else []


def _read_without_base(file: Path) -> str:
    """Return the content of a JSON file as text, without the field that contains the name or path of the base model.

    `BASE_FIELDS` has the name of the field for each file name. The text of an invalid file is returned unchanged.
    """
    text = file.read_text(encoding="utf-8", errors="replace")
    try:
        settings = json.loads(text)
        settings.pop(BASE_FIELDS[file.name], None)
        return json.dumps(settings, sort_keys=True)
    except (ValueError, AttributeError, TypeError):  # the functions that use the file raise the error
        return text


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message, or the error's class if it has no message."""
    return str(error).strip().split("\n")[0] or type(error).__name__


def _resolve_commit(name: str, revision: str | None) -> str:
    from huggingface_hub import hf_hub_download  # takes a third of a second, and local models do not need it

    try:
        file = hf_hub_download(name, "config.json", revision=revision)
    except (OSError, ValueError) as error:  # all errors of the hub are subclasses
        raise InputError(
            f"model: {name!r} is neither a local folder nor a model id that can be reached ({first_line(error)}); "
            "give a folder with config.json and model.safetensors, or go online."
        ) from None
    return _commit_or_hash(Path(file))


def _gguf_revision(name: str, revision: str | None) -> str:
    path = gguf_path(name, revision)
    return sha256_of(path) if local_path(name).is_file() else _commit_or_hash(path)


def _commit_or_hash(file: Path) -> str:
    """Return the commit in the path of a file in the hub's cache, or the SHA-256 of a file whose path has no commit."""
    commit = re.search(r"/snapshots/([0-9a-f]{40})/", file.as_posix())
    return commit[1] if commit else sha256_of(file)


def module_folders(folder: Path) -> list[Path]:
    """Return the folders of a sentence encoder's modules, starting with the transformer; [] for other models.

    Raises:
        InputError: The model's modules.json is not a list of modules.
    """
    return [folder / module["path"] for module in _modules(folder)]


def _modules(folder: Path) -> list[dict[str, Any]]:
    path = folder / MODULES_FILE
    if not path.is_file():
        return []
    try:
        modules: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))
        return [{**module, "path": str(module["path"])} for module in modules]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"model: {path} does not list modules ({error!r}); save the model again.") from None
