"""Activated LoRA: adapters that change a model's weights from certain tokens of the context on.

Before these invocation tokens, and without them, the model is its base: keys and values of a prompt may be shared with
the base. Such an adapter is never merged, so that its loaded model is PEFT's `PeftModel`.

Source: Greenewald et al. 2025, "Activated LoRA: Fine-tuned LLMs for Intrinsics".
"""

from collections.abc import Sequence
from pathlib import Path

import torch
from transformers import PreTrainedModel

from evenhand.evaluation.files import read_json
from evenhand.evaluation.models.revisions import ADAPTER_CONFIG

INVOCATION = "alora_invocation_tokens"  # the field of PEFT's LoraConfig
OFFSETS = "alora_offsets"  # PEFT's argument of `forward` and `generate`


def invocation_in(adapter: Path) -> list[int] | None:
    """Return the invocation tokens in the config of an adapter's folder; None if the adapter is no activated one."""
    config = read_json(adapter / ADAPTER_CONFIG, "model")
    return config.get(INVOCATION) if isinstance(config, dict) else None


def invocation_of(network: torch.nn.Module) -> list[int] | None:
    """Return the invocation tokens of a network's adapter; None if the network has no activated adapter."""
    return getattr(getattr(network, "active_peft_config", None), INVOCATION, None)


def without_adapter(network: PreTrainedModel) -> PreTrainedModel:
    """Return the network inside of PEFT's model, which has its layers, with the adapter; any other network itself."""
    get_base_model = getattr(network, "get_base_model", None)
    return network if get_base_model is None else get_base_model()


def last_occurrence(ids: Sequence[int], invocation: Sequence[int]) -> int | None:
    """Return the position of the last occurrence of the invocation tokens, which is where the adapter starts.

    >>> last_occurrence([5, 7, 8, 5, 7, 8, 9], [7, 8])
    4
    """
    length = len(invocation)
    for start in range(len(ids) - length, -1, -1):
        if list(ids[start : start + length]) == list(invocation):
            return start
    return None


def first_activated(network: torch.nn.Module, contexts: Sequence[Sequence[int]]) -> int | None:
    """Return the first position of any context that the adapter may change; None for other networks."""
    invocation = invocation_of(network)
    if invocation is None:
        return None
    starts = [last_occurrence(ids, invocation) for ids in contexts]
    return min((start for start in starts if start is not None), default=None)


def activation_arguments(
    network: torch.nn.Module, contexts: Sequence[Sequence[int]], ends: Sequence[int]
) -> dict[str, list[int | None]]:
    """Return the argument that tells a network where its adapter starts in each row; {} for other networks.

    PEFT would look for the invocation tokens in what it is given, which is not the context if the model reads a part of
    the context from a cache, or the response as well.

    Args:
        contexts: the token ids of each row's context, without the response.
        ends: for each row, the position in these ids of the end of the model's input, padding included.
    """
    invocation = invocation_of(network)
    if invocation is None:
        return {}
    offsets: list[int | None] = []  # PEFT counts from the end of the input
    for ids, end in zip(contexts, ends, strict=True):
        start = last_occurrence(ids, invocation)
        offsets.append(None if start is None else end - start)
    return {OFFSETS: offsets}
