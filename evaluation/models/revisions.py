"""What pins a model's bytes: the hub's commit, or a hash over a local folder. Imports nothing heavy.

So that a run's inputs are checked, and a finished run is recognised, before torch is imported.
"""

import json
import re
from hashlib import sha256
from pathlib import Path
from typing import Any

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.runs.files import sha256_of

ADAPTER_CONFIG, MODULES_FILE = "adapter_config.json", "modules.json"
ADAPTER_FOLDER = "adapter"  # the folder in a tuning run that holds what was tuned
TUNING_FILE = "evenhand.json"  # what tuning leaves beside the weights
# The field of each file that holds the way to the base model, which changes when a folder is moved: in the first the id
# on the hub or the absolute path, as every library reads it, in the second the path from the adapter.
BASE_FIELDS = {ADAPTER_CONFIG: "base_model_name_or_path", TUNING_FILE: "base"}
# Formats that are, or may hold, a pickle, which can run any code when it is read.
PICKLE_SUFFIXES = (".bin", ".pt", ".pth", ".pkl", ".pickle", ".ckpt")
# Everything that a model is read from; a README or a training log beside it is not part of it.
MODEL_FILES = ("*.safetensors", "*.json", "*.jinja", "*.model", "*.txt")


def model_revision(name: str, revision: str | None = None, base: str | None = None) -> str:
    """Return what pins a model's bytes: the hub's commit hash, or a SHA-256 over a local folder's model files.

    The hash of an adapter covers the revision of its base model (`base`, if given), wherever that lies; that of a
    sentence encoder the folders that its modules.json names. No weights are loaded.

    Raises:
        InputError: the name is no model, its weights are not in safetensors, or a base is given for what is no adapter.
    """
    folder = local_folder(name)
    if base is not None and (folder is None or not is_adapter(folder)):
        raise InputError(f"model.base: {base} is given, but {name} is no folder of an adapter; leave it out.")
    if folder is None:
        return _resolve_commit(name, revision)
    parts = [folder, *module_folders(folder)]
    files = sorted({file for part in parts for kind in MODEL_FILES for file in part.glob(kind)})
    digest = sha256_of(*(file for file in files if file.name not in BASE_FIELDS))
    for file in files:
        if file.name in BASE_FIELDS:
            digest = sha256(f"{digest} {_read_without_base(file)}".encode()).hexdigest()
    if is_adapter(folder):
        digest = sha256(f"{digest} {model_revision(*adapter_base(folder, base, revision))}".encode()).hexdigest()
    return digest


def tokenizer_revision(name: str, revision: str | None = None) -> str:
    """Return what pins a tokenizer's bytes: the hub's commit hash, or a SHA-256 over all files of a folder but weights.

    Raises:
        InputError: the name is neither of the two.
    """
    folder = Path(name).expanduser()
    if not folder.is_dir():
        return _resolve_commit(name, revision)
    return sha256_of(*sorted(file for kind in MODEL_FILES[1:] for file in folder.glob(kind)))


def local_folder(name: str) -> Path | None:
    """Return the folder that `name` stands for, checked to hold safetensors; None if it is a model id on the hub.

    Raises:
        InputError: a path that is no folder, or a folder without weights that may be read.
    """
    path = Path(name).expanduser()
    if path.is_file():
        raise InputError(f"model: {name} is a file; give the folder that holds config.json and model.safetensors.")
    if not path.is_dir():
        if name.startswith((".", "/", "~")) or name.count("/") > 1 or "\\" in name:
            raise InputError(f"model: there is no folder {name}; give a model's folder or its id on the hub.")
        return None
    weights = next(iter(module_folders(path)), path)  # a sentence encoder's first module is the model itself
    if list(weights.glob("adapter_model*.safetensors" if is_adapter(path) else "model*.safetensors")):
        return path
    pickles = sorted(
        file.name for file in path.iterdir() if file.suffix in PICKLE_SUFFIXES and file.stem != "training_args"
    )
    if pickles:
        how = "peft.PeftModel.from_pretrained" if is_adapter(path) else "from_pretrained(..., use_safetensors=False)"
        raise InputError(
            f"model: {path / pickles[0]} may be a pickle, which can run any code when read, and is refused. If you "
            f"trust it, load it with {how} and write it with save_pretrained, which makes safetensors."
        )
    raise InputError(f"model: {name} is not a model: it holds no *.safetensors; give the folder of a saved model.")


def is_adapter(folder: Path) -> bool:
    """Say whether a folder holds a PEFT adapter."""
    return (folder / ADAPTER_CONFIG).exists()


def adapter_base(folder: Path, base: str | None = None, revision: str | None = None) -> tuple[str, str | None]:
    """Return the name and revision of an adapter's base model: those given, else those that the adapter names.

    A path that is one from the adapter's folder is that. Where it is gone, since both were moved, it is looked for on
    the way from the adapter that its evenhand.json tells.

    Raises:
        InputError: the adapter names no base model.
    """
    if base is not None:
        return base, revision
    field = BASE_FIELDS[ADAPTER_CONFIG]
    try:
        settings = json.loads((folder / ADAPTER_CONFIG).read_text(encoding="utf-8"))
        base = settings[field]
        if not isinstance(base, str) or not base:
            raise KeyError(field)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"model: {folder / ADAPTER_CONFIG} names no base model ({error!r}); save it again.") from None
    ways = [folder / Path(way).expanduser() for way in (base, *_relative_base_path(folder))]
    found = next((way.resolve() for way in ways if way.is_dir()), base)
    return str(found), settings.get("revision")


def _relative_base_path(folder: Path) -> list[str]:
    """Return the path of a local base model from its adapter's folder, as tuning left it; [] where nothing says it."""
    try:
        way = json.loads((folder / TUNING_FILE).read_text(encoding="utf-8"))[BASE_FIELDS[TUNING_FILE]]
    except (OSError, ValueError, KeyError, TypeError):
        return []
    return [way] if isinstance(way, str) else []


def _read_without_base(file: Path) -> str:
    """Return what a JSON file beside the weights says, but for the way to the base model."""
    text = file.read_text(encoding="utf-8", errors="replace")
    try:
        settings = json.loads(text)
        settings.pop(BASE_FIELDS[file.name], None)
        return json.dumps(settings, sort_keys=True)
    except (ValueError, AttributeError, TypeError):  # refused where it is read
        return text


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message; a library's error goes on over many."""
    return str(error).strip().split("\n")[0] or type(error).__name__


def _resolve_commit(name: str, revision: str | None) -> str:
    from huggingface_hub import hf_hub_download  # takes a third of a second, which local models need not wait

    try:
        file = hf_hub_download(name, "config.json", revision=revision)
    except (OSError, ValueError) as error:  # the hub's own are all one or the other
        raise InputError(
            f"model: {name!r} is neither a local folder nor a model id that can be reached ({first_line(error)}) "
            "Give a folder with config.json and model.safetensors, or go online."
        ) from None
    found = re.search(r"/snapshots/([0-9a-f]{40})/", Path(file).as_posix())
    return found[1] if found else sha256_of(Path(file))


def module_folders(folder: Path) -> list[Path]:
    """Return the folders of a sentence encoder's modules, the model itself first; [] for any other model."""
    path = folder / MODULES_FILE
    if not path.is_file():
        return []
    try:
        modules: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))
        return [folder / module["path"] for module in modules]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"model: {path} does not list modules ({error!r}); save the model again.") from None
