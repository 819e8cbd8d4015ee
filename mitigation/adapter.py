"""Functions that create, save and load a tuned model, which shares the weights of its base.

An adapter and its optimizer state are small (Hu et al. 2021, "LoRA", §4.2). Sharing weights avoids a second and a third
copy of the base in memory.
"""

import copy
import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import parse_local_safetensors_file_metadata
from peft import LoraConfig, PeftModel, get_peft_model
from peft.tuners.lora import LoraLayer
from transformers import PreTrainedModel

from evenhand.evaluation.compat import lora_layers
from evenhand.evaluation.errors import InputError, first_line
from evenhand.evaluation.files import check_owner, temporary_path, write_json
from evenhand.evaluation.models.activation import OFFSETS, invocation_of
from evenhand.evaluation.models.checkpoints import is_quantized
from evenhand.evaluation.models.loading import DialogueModel
from evenhand.evaluation.models.revisions import hub_repository, is_local_path, local_path
from evenhand.evaluation.runs import processes

# The files of a model in a checkpoint: its weights, its configs, and the code that comes with some models.
MODEL_FILES = ("*.safetensors*", "config.json", "generation_config.json", "adapter_config.json", "*.py")


def share_weights(network: PreTrainedModel) -> PreTrainedModel:
    """Return a copy of a network that shares its weight tensors.

    Adapters, another forward function, gradients or another precision of the copy do not affect the network, but
    writing into a weight does. Weights that are sharded over processes are copied, because sharding writes into
    weights.
    """
    if processes.shards_model():
        return copy.deepcopy(network)
    memo: dict[int, object] = {id(buffer): buffer for buffer in network.buffers()}
    for parameter in network.parameters():
        # Quantized parameters are packed and never written into.
        is_plain = type(parameter) is torch.nn.Parameter
        memo[id(parameter)] = torch.nn.Parameter(parameter.data, requires_grad=False) if is_plain else parameter
    for module in network.modules():
        state = getattr(module, "state", None)  # bitsandbytes' 8-bit weights
        if state is not None:
            memo[id(state)] = state
    return copy.deepcopy(network, memo)


def merge_in_forward(network: PeftModel) -> None:
    """Make each adapted layer compute with its merged weight, in the base's precision, as an exported model does.

    A layer is merged in its forward pass and restored afterwards, which needs the memory of one layer.
    """
    for layer in lora_layers(network):
        layer.forward = partial(_forward_merged, layer, layer.forward)


def _forward_merged(
    layer: LoraLayer, forward: Callable[..., torch.Tensor], *inputs: object, **options: object
) -> torch.Tensor:
    weights = [(parameter, parameter.data) for parameter in layer.get_base_layer().parameters(recurse=False)]
    layer.merge(safe_merge=True)  # writes a new tensor
    try:
        return forward(*inputs, **options)
    finally:
        for parameter, data in weights:
            parameter.data = data
        layer.merged_adapters.clear()


@torch.no_grad()
def check_layers(base: DialogueModel, lora: LoraConfig) -> None:
    """Try a new adapter on two rows of three tokens; an activated one acts on the last ones of each.

    Raises:
        InputError: a layer fails with the adapter, such as one that gets tokens without their rows (OPT), or returns
            more than a tensor (routers of experts).
    """
    tried = copy.deepcopy(lora)
    tried.init_lora_weights = True  # others may take long
    adapted = get_peft_model(share_weights(base.model), tried).eval()
    entered = [""]

    def enter(name: str, *_: object) -> None:
        entered.append(name)

    for name, layer in adapted.named_modules():
        if isinstance(layer, LoraLayer) and isinstance(layer, torch.nn.Module):
            layer.register_forward_pre_hook(partial(enter, name.rpartition(".")[2]))
    ids = torch.zeros(2, 3, dtype=torch.long, device=base.model.device)
    inputs: dict[str, Any] = {"input_ids": ids}
    if base.kind == "encoder_decoder":
        inputs["decoder_input_ids"] = ids
    fix = 'give training.peft.exclude_modules ["{}"]'
    if lora.alora_invocation_tokens is not None:
        inputs[OFFSETS] = [2, 1]
        fix += ", or control_tags.targets labels"
    try:
        adapted(**inputs)
    except (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
        name = entered[-1]
        raise InputError(
            "training.peft",
            f"an adapter on the layers {name} of {base.name} does not work ({first_line(error)}); {fix.format(name)}.",
        ) from None


@contextmanager
def atomic_write_folder(path: Path) -> Iterator[Path]:
    """Yield an empty folder next to `path` that replaces `path` if the block ends without an error."""
    check_owner(path)
    folder = temporary_path(path)
    folder.mkdir()
    try:
        yield folder
        _make_readable(folder)
        check_owner(path)
        shutil.rmtree(path, ignore_errors=True)
        folder.replace(path)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _make_readable(folder: Path) -> None:
    """Give all files of a folder the default permissions; safetensors writes weights that only the owner can read."""
    umask = os.umask(0)
    os.umask(umask)
    for file in folder.rglob("*"):
        if file.is_file():
            file.chmod(0o666 & ~umask)


def copy_weights(checkpoint: Path, folder: Path, base: DialogueModel) -> int:
    """Copy a checkpoint's model, with the base's tokenizer, into `folder`; return the number of trained parameters."""
    for pattern in MODEL_FILES:
        for file in checkpoint.glob(pattern):
            shutil.copy2(file, folder)
    config = folder / "adapter_config.json"
    if config.exists():
        settings = json.loads(config.read_text(encoding="utf-8"))
        if isinstance(settings["target_modules"], list):  # PEFT writes a set in random order
            settings["target_modules"].sort()
        settings["base_model_name_or_path"] = loadable_name(base.name)
        settings["revision"] = base.revision if hub_repository(base.name) else None
        write_json(config, settings)
    base.tokenizer.save_pretrained(str(folder))
    headers = map(parse_local_safetensors_file_metadata, folder.glob("*.safetensors"))
    return sum(sum(header.parameter_count.values()) for header in headers)


def load_tuned(base: DialogueModel, folder: Path, lora: bool) -> DialogueModel:
    """Return the tuned model in a folder that `copy_weights` wrote: the whole model, or the base with its adapter.

    It computes with merged weights, as the exported model does. The adapter of a quantized base is not merged, because
    the merge would round most of it away, nor is an activated adapter.
    """
    if lora:
        model = PeftModel.from_pretrained(share_weights(base.model), str(folder))
        if not is_quantized(base.model) and invocation_of(model) is None:
            merge_in_forward(model)
    else:
        # The base's class may be code that came with it, which an auto class would ask to execute.
        network_class: Any = type(base.model)
        model = network_class.from_pretrained(str(folder), dtype=base.model.dtype).to(base.model.device)
    return replace(base, model=model.eval())


def loadable_name(name: str) -> str:
    """Return the name by which other libraries load a model: an id on the hub, or the absolute path of a local model.

    A model `package:NAME/PATH` in an installed Python package is local, too.
    """
    path = local_path(name)
    return str(path.resolve()) if path.exists() else name


def portable_name(name: str, folder: Path) -> str:
    """Return a model's name; a local path becomes relative to `folder`, so that both folders can be moved together."""
    return os.path.relpath(Path(name).resolve(), folder.resolve()) if is_local_path(name) else name
