"""Networks that share the weights of the base, for training and for the checks of the saved adapter.

An adapter and its optimizer state are small (Hu et al. 2021, "LoRA", §4.2). Sharing weights avoids a second and a third
copy of the base in memory.
"""

import copy
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from peft import PeftModel, prepare_model_for_kbit_training
from peft.tuners.lora import LoraLayer
from transformers import PreTrainedModel

from evenhand.evaluation.models.checkpoints import is_quantized
from evenhand.evaluation.runs import processes
from evenhand.mitigation.training.settings import TuningSettings


def prepare_network(network: PreTrainedModel, settings: TuningSettings) -> PreTrainedModel:
    """Return the network to train: for an adapter, one that shares the base's weights; else a copy in float32.

    PEFT prepares a quantized network: its unquantized parts are in float32.
    """
    if not settings.lora:
        return copy.deepcopy(network).float()
    shared = share_weights(network)
    if not is_quantized(network):
        return shared
    return prepare_model_for_kbit_training(shared, use_gradient_checkpointing=settings.gradient_checkpointing)


def share_weights(network: PreTrainedModel) -> PreTrainedModel:
    """Return a copy of a network that shares its weight tensors.

    Modules, hooks, config and parameters are copied: adapters, another forward function, gradients or another precision
    of the copy do not affect the network, but writing into a weight does. If weights are sharded over processes, which
    writes into them, they are copied, too.
    """
    if processes.shards_model():
        return copy.deepcopy(network)
    memo: dict[int, Any] = {id(buffer): buffer for buffer in network.buffers()}
    for parameter in network.parameters():
        # Quantized parameters are packed and never written into.
        is_plain = type(parameter) is torch.nn.Parameter
        memo[id(parameter)] = torch.nn.Parameter(parameter.data, requires_grad=False) if is_plain else parameter
    for module in network.modules():
        if (state := getattr(module, "state", None)) is not None:  # bitsandbytes' 8-bit weights
            memo[id(state)] = state
    return copy.deepcopy(network, memo)


def merge_in_forward(network: PeftModel) -> None:
    """Let each adapted layer compute with its merged weight, in the precision of the base, as an exported model does.

    A layer is merged in its forward pass and restored afterwards, which needs the memory of one layer.
    """
    for layer in network.modules():
        if isinstance(layer, LoraLayer):
            layer.forward = partial(_forward_merged, layer, layer.forward)


def _forward_merged(
    layer: LoraLayer, forward: Callable[..., torch.Tensor], *inputs: Any, **options: Any
) -> torch.Tensor:
    weights = [(parameter, parameter.data) for parameter in layer.get_base_layer().parameters(recurse=False)]
    layer.merge(safe_merge=True)  # writes a new tensor
    try:
        return forward(*inputs, **options)
    finally:
        for parameter, data in weights:
            parameter.data = data
        layer.merged_adapters.clear()
