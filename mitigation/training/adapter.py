"""The tuned model's folder: writing it atomically, and loading it onto the base."""

import json
import math
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from peft import PeftModel
from safetensors import safe_open
from transformers import AutoModelForCausalLM, AutoModelForSeq2SeqLM

from evenhand.evaluation.models.checkpoints import is_quantized
from evenhand.evaluation.models.loading import DialogueModel
from evenhand.evaluation.models.revisions import TUNING_FILE
from evenhand.evaluation.runs.files import write_json
from evenhand.mitigation.training.networks import merge_in_forward, share_weights
from evenhand.mitigation.training.suppress_warnings import suppress_warnings

WEIGHTS = ("*.safetensors*", "config.json", "generation_config.json", "adapter_config.json")


@contextmanager
def atomic_write_folder(path: Path) -> Iterator[Path]:
    """Yield an empty folder next to `path` that replaces `path` if the block ends without an error."""
    folder = path.with_name(f".{path.name}.part")
    shutil.rmtree(folder, ignore_errors=True)  # left by a killed process
    folder.mkdir()
    try:
        yield folder
        shutil.rmtree(path, ignore_errors=True)
        folder.replace(path)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def copy_weights(checkpoint: Path, folder: Path, base: DialogueModel) -> int:
    """Copy a checkpoint's model, with the base's tokenizer, into `folder`; return the number of trained parameters."""
    for pattern in WEIGHTS:
        for file in checkpoint.glob(pattern):
            shutil.copy2(file, folder)
    config = folder / "adapter_config.json"
    if config.exists():
        settings = json.loads(config.read_text(encoding="utf-8"))
        if isinstance(settings["target_modules"], list):  # PEFT writes a set in random order
            settings["target_modules"].sort()
        is_local = Path(base.name).is_dir()
        name, revision = (str(Path(base.name).resolve()), None) if is_local else (base.name, base.revision)
        write_json(config, {**settings, "base_model_name_or_path": name, "revision": revision})
    base.tokenizer.save_pretrained(str(folder))
    return sum(_count_parameters(file) for file in folder.glob("*.safetensors"))


def _count_parameters(file: Path) -> int:
    """Return the total size of the tensors in a file, from its header."""
    with safe_open(file, "pt") as tensors:
        return sum(math.prod(tensors.get_slice(name).get_shape()) for name in tensors.keys())  # noqa: SIM118


def load_tuned(base: DialogueModel, folder: Path, lora: bool, merged: bool = True) -> DialogueModel:
    """Load a folder of `copy_weights`: the whole model, or the base with its adapter.

    Args:
        merged: compute with merged weights, as the exported model does. The adapter of a quantized base is never
            merged, because the merge would round most of it away.
    """
    with suppress_warnings():
        if lora:
            model = PeftModel.from_pretrained(share_weights(base.model), str(folder))
            if merged and not is_quantized(base.model):
                merge_in_forward(model)
        else:
            auto_class = AutoModelForSeq2SeqLM if base.kind == "encoder_decoder" else AutoModelForCausalLM
            model = auto_class.from_pretrained(str(folder), dtype=base.model.dtype).to(base.model.device)
    return replace(base, model=model.eval())


def write_metadata(folder: Path, metadata: Mapping[str, Any]) -> None:
    """Write evenhand.json, which marks a tuned model and has its control tag; NaN becomes null."""
    write_json(folder / TUNING_FILE, _without_nan(dict(metadata)))


def portable_name(name: str, folder: Path) -> str:
    """Return a model's name; a local path becomes relative to `folder`, so that both folders can be moved together."""
    return os.path.relpath(Path(name).resolve(), folder.resolve()) if Path(name).is_dir() else name


def _without_nan(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nan(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_without_nan(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
