"""The precision in which a model computes where the settings leave it open."""

import os
from typing import get_args

import torch

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.model_settings import Dtype
from evenhand.evaluation.settings import AUTO

DTYPE_VARIABLE = "EVENHAND_DTYPE"  # what `auto` means, for machines that shall measure alike


def fast_dtype(device: torch.device) -> Dtype:
    """Return bfloat16 if a device computes in it, else float32; the variable EVENHAND_DTYPE says another.

    Raises:
        InputError: the variable names no precision.
    """
    chosen = os.environ.get(DTYPE_VARIABLE)
    if chosen is None:
        return "bfloat16" if computes_in_bfloat16(device) else "float32"
    for dtype in get_args(Dtype):
        if dtype == chosen and dtype != AUTO:
            return dtype
    raise InputError(DTYPE_VARIABLE, f"{chosen!r} is no precision; set it to float32 or bfloat16, or unset it.")


def computes_in_bfloat16(device: torch.device) -> bool:
    """Return whether a device has instructions for bfloat16; others imitate it by float32, which is slower."""
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    if device.type == "cpu" and torch.cpu._is_avx512_supported():
        return torch.cpu._is_avx512_bf16_supported()  # the next test is true of all CPUs with AVX-512
    if device.type == "cpu":
        return torch.ops.mkldnn._is_mkldnn_bf16_supported()
    return False
