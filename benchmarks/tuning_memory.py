"""A benchmark of the peak memory of tuning, against the expected memory of LoRA: weights + optimizer + activations.

    python -m benchmarks.tuning_memory [--dtype bfloat16] [--rows 2] [--bound 1.35]

A model of Qwen3-0.6B's shape with random weights is tuned for two steps by KTO with LoRA, on one CPU thread in a
separate process. The peak of resident memory is read after the second step, when the optimizer has its moments; later
checks need less. Another process computes the expected memory:

- weights: the bytes of all parameters, once;
- optimizer: the float32 value, the gradient and Adam's two moments of each trained parameter, 16 bytes;
- activations: the storages that autograd saves in a forward pass for the backward pass, without the parameters
  (`torch.autograd.graph.saved_tensors_hooks`), extrapolated from models of one and of two layers.

The memory of the libraries before the model is loaded is subtracted. Freed memory is returned to the system at once
(MALLOC_MMAP_THRESHOLD_), because memory that glibc keeps is not needed by the tuning. On CPUs without bfloat16, matrix
products are replaced by zeros, as the memory of a tensor does not depend on its values.
"""

import argparse
import json
import logging
import os
import subprocess
import sys
import tempfile
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import TrainerCallback, TrainerState

from benchmarks.measuring import parse_options, peak_memory
from benchmarks.random_models import STEPS, full_size, tuning_data
from evenhand.evaluation.models.loading import DialogueModel
from evenhand.mitigation.training.settings import TuningSettings
from evenhand.mitigation.training.trainers import load_trainer
from evenhand.mitigation.training.tune import tune

MODEL, METHOD = "qwen_chat", "kto"
WITHOUT_HOLES = {"MALLOC_MMAP_THRESHOLD_": "65536"}
SETTINGS = TuningSettings(learning_rate=2e-5, evaluations_per_epoch=1)


class Counted(Exception):
    """An exception that ends a tuning after enough steps were counted."""


class WithoutProducts(TorchDispatchMode):
    """A torch mode that replaces the product of two bfloat16 matrices by zeros."""

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        keywords = kwargs or {}
        if function is torch.ops.aten.mm.default and args[0].dtype == torch.bfloat16:
            return args[0].new_zeros(args[0].shape[0], args[1].shape[1])
        if function is torch.ops.aten.mm.out and args[0].dtype == torch.bfloat16:
            return keywords["out"].zero_()
        return function(*args, **keywords)


class LastStep(TrainerCallback):
    """A trainer callback that ends the tuning after the second step."""

    def on_step_end(self, args: Any, state: TrainerState, control: Any, **_: Any) -> None:
        if state.global_step == STEPS:
            raise Counted


class KeptForBackward(TrainerCallback):
    """A trainer callback that counts the bytes that autograd keeps of a forward pass, and of trained parameters."""

    def __init__(self) -> None:
        self.parameters: set[int] = set()
        self.storages: dict[int, int] = {}
        self.trained = 0
        self.hooks = torch.autograd.graph.saved_tensors_hooks(self.keep, lambda tensor: tensor)

    def keep(self, tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in self.parameters:
            self.storages[storage.data_ptr()] = storage.nbytes()
        return tensor

    def on_train_begin(self, *arguments: Any, model: torch.nn.Module, **_: Any) -> None:
        self.parameters = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
        self.trained = sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)

    def on_step_begin(self, *arguments: Any, **_: Any) -> None:
        self.hooks.__enter__()

    def on_step_end(self, *arguments: Any, **_: Any) -> None:
        self.hooks.__exit__()
        raise Counted


def tuned(model: DialogueModel, rows: int, *callbacks: TrainerCallback) -> None:
    """Tune a model for two steps of `rows` rows, by KTO with LoRA."""
    settings, data = tuning_data(MODEL, METHOD, SETTINGS, rows)
    products = nullcontext() if torch.cpu._is_avx512_bf16_supported() else WithoutProducts()
    with tempfile.TemporaryDirectory() as folder, suppress(Counted), products:
        tune(model, data, settings, Path(folder), callbacks=callbacks)


def plan(dtype: str, rows: int) -> dict[str, float]:
    """Return the expected memory of tuning in bytes, extrapolated from models of one and of two layers."""
    model, counts = full_size(MODEL, getattr(torch, dtype)), []
    network = model.model
    weights = sum(parameter.numel() * parameter.element_size() for parameter in network.parameters())
    layers = network.model.layers
    for n in (1, 2):
        network.model.layers, network.config.num_hidden_layers = layers[:n], n
        kept = KeptForBackward()
        tuned(model, rows, kept)
        counts.append((16 * kept.trained, sum(kept.storages.values())))
    optimizer, activations = (one + (two - one) * (len(layers) - 1) for one, two in zip(*counts, strict=True))
    return {"weights": weights, "optimizer": optimizer, "activations": activations}


def peak(dtype: str, rows: int) -> dict[str, float]:
    """Return the peak memory of tuning, and of the libraries before it, in bytes."""
    load_trainer(METHOD)  # else TRL is imported as the tuning begins
    libraries = peak_memory()
    tuned(full_size(MODEL, getattr(torch, dtype)), rows, LastStep())
    return {"libraries": libraries * 2**30, "peak": peak_memory() * 2**30}


def main() -> None:
    options = parse_options(
        __doc__,
        dtype=("bfloat16", "of the weights: bfloat16 or float32"),
        rows=(2, "rows of each of two steps"),
        bound=(1.35, "largest ratio of the peak to the plan"),
        part=(str, argparse.SUPPRESS),
    )
    logging.getLogger("transformers").setLevel(logging.ERROR)
    torch.set_num_threads(1)
    if options.part:
        found = {"plan": plan, "peak": peak}[options.part](options.dtype, options.rows)
        print(json.dumps({name: size / 2**30 for name, size in found.items()}))
        return
    command = [sys.executable, "-m", "benchmarks.tuning_memory", "--dtype", options.dtype, "--rows", str(options.rows)]
    expected, found = (
        json.loads(
            subprocess.run(
                [*command, "--part", part], check=True, capture_output=True, text=True, env=os.environ | WITHOUT_HOLES
            ).stdout.splitlines()[-1]
        )
        for part in ("plan", "peak")
    )
    planned, taken = sum(expected.values()), found["peak"] - found["libraries"]
    print(f"{METHOD} with LoRA, {options.dtype}, {options.rows} rows a step, rank {SETTINGS.lora_rank}; GiB:")
    print("  plan: " + " + ".join(f"{name} {size:.2f}" for name, size in expected.items()) + f" = {planned:.2f}")
    print(f"  peak: {found['peak']:.2f}, of it {found['libraries']:.2f} before there was a model; {taken:.2f} tuning")
    print(f"  tuning / plan: {taken / planned:.2f} (whole process / plan: {found['peak'] / planned:.2f})")
    if taken > options.bound * planned:
        sys.exit(f"more than {options.bound} × the plan")


if __name__ == "__main__":
    main()
