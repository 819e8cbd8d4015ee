"""Whether the weights of a model fit into memory, from the headers of its files, before anything is loaded."""

import json
import logging
import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import torch

from evenhand.evaluation.doors import spelled
from evenhand.evaluation.errors import InputError, require_extra
from evenhand.evaluation.hub import hub, offline_reason
from evenhand.evaluation.model_settings import CheckpointSettings
from evenhand.evaluation.models.checkpoints import resolve_device, split_adapter
from evenhand.evaluation.models.precision import fast_dtype
from evenhand.evaluation.models.revisions import gguf_files, hub_repository, is_gguf, local_path
from evenhand.evaluation.score import display_name
from evenhand.evaluation.settings import AUTO

log = logging.getLogger("evenhand")

GIB = 2**30
BYTES = {"float32": 4.0, "bfloat16": 2.0, "float16": 2.0}  # of a weight
QUANTIZED_BYTES = {"8bit": 1.0, "4bit": 0.5}
STORED_BYTES = {"I64": 8, "I32": 4, "I16": 2}  # of what is no weight, such as packed ones; all else counts one byte
WEIGHTS = ("F64", "F32", "F16", "BF16", "F8_E4M3", "F8_E5M2")  # are converted to the precision of the model
MIN_GGUF_BITS = 1.5  # a weight
INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"
CGROUP = Path("/sys/fs/cgroup")


def check_fits(model: CheckpointSettings) -> None:
    """Raise InputError if the weights of a model need more memory than its device has free.

    Nothing is checked if the files are not known yet, as of an adapter that is still to be tuned, or if the model is
    split over several devices.
    """
    if not model.name or model.device_map is not None:
        return
    device = resolve_device(model.device)
    dtype = fast_dtype(device) if model.dtype == AUTO else model.dtype
    try:
        base = split_adapter(model)[1]
        needed = weights_bytes(base, QUANTIZED_BYTES.get(model.quantization or "", BYTES[dtype]))
    except Exception:  # of any kind: without a network, those of the hub's HTTP client, which changes with its version
        log.debug("the size of %s is not known", model.name, exc_info=True)
        return
    for place in dict.fromkeys([torch.device("cpu"), device]):  # weights are read on the CPU, and then moved
        n_copies = int(os.environ.get("LOCAL_WORLD_SIZE", "1")) if place.type == "cpu" else 1
        free = free_bytes(place)
        if needed * n_copies > free:
            name = display_name(model.name)
            precision = model.quantization or dtype
            each = "" if n_copies == 1 else f" for each of {n_copies} processes"
            raise InputError(
                "model",
                f"the weights of {name} take {needed / GIB:.1f} GiB in {precision}{each}, and {place} has "
                f"{free / GIB:.1f} GiB free; {remedy(model, dtype)}.",
            )


def remedy(model: CheckpointSettings, dtype: str) -> str:
    """Return what to give for a model that does not fit into memory."""
    fixes = []
    if dtype == "float32":
        fixes.append(f"{spelled('model.dtype', 'bfloat16')} for half of it")
    if model.quantization is None and not is_gguf(model.name):
        fixes.append(f"{spelled('model.quantization', '4bit')} for an eighth of float32")
    fixes += ["a smaller model", f"another {spelled('model.device')}"]
    fixes.append(f"or serve it elsewhere and give {spelled('model.server')}")
    return f"give {', '.join(fixes)}"


def weights_bytes(model: CheckpointSettings, bytes_per_weight: float) -> float:
    """Return the memory of a model's weights, 0 if their files are neither here nor on a hub that can be reached.

    Raises:
        InputError: the model does not exist.
    """
    if is_gguf(model.name):
        return _gguf_bytes(gguf_files(model.name, model.revision), bytes_per_weight)
    folder = local_path(model.name)
    if folder.is_dir():
        return sum(_tensor_bytes(read_header(file), bytes_per_weight) for file in _weight_files(folder))
    repository = hub_repository(model.name)
    if repository is None:
        return 0.0
    for name in (INDEX, SINGLE):
        cached = hub().try_to_load_from_cache(repository, name, revision=model.revision)
        if isinstance(cached, str):
            folder = Path(cached).parent
            return sum(_tensor_bytes(read_header(file), bytes_per_weight) for file in _weight_files(folder))
    if offline_reason():
        return 0.0
    counts = hub().get_safetensors_metadata(repository, revision=model.revision).parameter_count
    return sum(count * _element_bytes(dtype, bytes_per_weight) for dtype, count in counts.items())


def _weight_files(folder: Path) -> Iterator[Path]:
    """Yield the files of the weights in a folder, each once."""
    if (folder / INDEX).exists():
        index = json.loads((folder / INDEX).read_text(encoding="utf-8"))
        names = sorted(set(index["weight_map"].values()))
    else:
        names = [SINGLE]
    for name in names:
        if (folder / name).exists():
            yield folder / name


def read_header(file: Path) -> dict[str, Any]:
    """Return the header of a safetensors file: dtype, shape and place of each tensor by its name.

    Source: https://huggingface.co/docs/safetensors: the first 8 bytes are the length of the header, which is JSON.
    """
    with file.open("rb") as opened:
        length = int.from_bytes(opened.read(8), "little")
        if length > file.stat().st_size:
            raise ValueError(f"{file} is no safetensors file")
        header = json.loads(opened.read(length))
    header.pop("__metadata__", None)
    return header


def _tensor_bytes(header: dict[str, Any], bytes_per_weight: float) -> float:
    """Return the memory of the tensors in a header."""
    return sum(
        math.prod(tensor["shape"]) * _element_bytes(tensor["dtype"], bytes_per_weight) for tensor in header.values()
    )


def _element_bytes(dtype: str, bytes_per_weight: float) -> float:
    return bytes_per_weight if dtype in WEIGHTS else STORED_BYTES.get(dtype, 1)


def _gguf_bytes(files: list[Path], bytes_per_weight: float) -> float:
    """Return the memory of the dequantized weights of GGUF files."""
    stored = sum(file.stat().st_size for file in files)
    at_most = stored * 8 / MIN_GGUF_BITS * bytes_per_weight
    if at_most < free_bytes(torch.device("cpu")) / 2:  # it fits; reading the list of tensors takes seconds
        return 0.0
    require_extra("gguf", "gguf", field="model")
    from gguf import GGUFReader

    n_weights = sum(int(tensor.n_elements) for file in files for tensor in GGUFReader(file).tensors)
    return n_weights * bytes_per_weight


def free_bytes(device: torch.device) -> float:
    """Return how many bytes are free on a device: infinity where it cannot be known."""
    if device.type == "cuda":
        return float(torch.cuda.mem_get_info(device)[0])
    if device.type != "cpu":
        return math.inf
    return min(float(psutil.virtual_memory().available), _free_in_container())


def _free_in_container(folder: Path = CGROUP) -> float:
    """Return how many bytes the limit of a container leaves (control groups, version 2); infinity without a limit."""
    try:
        limit = float((folder / "memory.max").read_text().replace("max", "inf"))
        used = int((folder / "memory.current").read_text())
        statistics = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
    except (OSError, ValueError):
        return math.inf
    cached = int(statistics.get("inactive_file", 0))  # pages of files, which are freed when memory is needed
    return limit - used + cached
