"""The network in training and as it will be served: other modules on the base's own tensors, of which one copy is.

An adapter is small, and so is what an optimizer keeps of it (Hu et al. 2021, "LoRA", §4.2): what is left to save is the
second and the third copy of the base.
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
    """Return what a trainer is given: the base's tensors to put an adapter onto, or a copy of them all in float32.

    A quantized network is prepared as PEFT has it: what is not quantized is in float32.
    """
    if not settings.lora:
        return copy.deepcopy(network).float()
    shared = share_weights(network)
    if not is_quantized(network):
        return shared
    return prepare_model_for_kbit_training(shared, use_gradient_checkpointing=settings.gradient_checkpointing)


def share_weights(network: PreTrainedModel) -> PreTrainedModel:
    """Return a copy of a network that has the same tensors for weights.

    Modules, hooks, config and parameters are its own: adapters, another forward, other gradients or another precision
    do not touch the network. What writes into a weight would, and what takes weights apart, to spread them over
    processes: then the copy has its own.
    """
    if processes.shards_model():
        return copy.deepcopy(network)
    memo: dict[int, Any] = {id(buffer): buffer for buffer in network.buffers()}
    for parameter in network.parameters():
        plain = type(parameter) is torch.nn.Parameter  # a quantized one is packed, and nothing writes into it
        memo[id(parameter)] = torch.nn.Parameter(parameter.data, requires_grad=False) if plain else parameter
    for module in network.modules():
        if (state := getattr(module, "state", None)) is not None:  # where bitsandbytes keeps a layer's 8-bit weights
            memo[id(state)] = state
    return copy.deepcopy(network, memo)


def merge_in_forward(network: PeftModel) -> None:
    """Have each adapted layer compute with its merged weight, in the precision of the base, as a loaded adapter does.

    A layer's merged weight is made as it is called and dropped after, which takes the memory of one layer.
    """
    for layer in network.modules():
        if isinstance(layer, LoraLayer):
            layer.forward = partial(_merged, layer, layer.forward)


def _merged(layer: LoraLayer, forward: Callable[..., torch.Tensor], *inputs: Any, **options: Any) -> torch.Tensor:
    weights = [(parameter, parameter.data) for parameter in layer.get_base_layer().parameters(recurse=False)]
    layer.merge(safe_merge=True)  # into a copy
    try:
        return forward(*inputs, **options)
    finally:
        for parameter, data in weights:
            parameter.data = data
        layer.merged_adapters.clear()
