"""Checks of a tuning's configuration, and defaults for a model, before any weights are loaded."""

import os
from dataclasses import replace

import torch
from peft import get_peft_model
from transformers import PreTrainedConfig

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.models.checkpoints import load_config, resolve_device
from evenhand.evaluation.models.loading import model_kind, text_generation_class
from evenhand.evaluation.models.revisions import (
    adapter_base,
    adapter_folder,
    first_line,
    load_control_tag,
)
from evenhand.evaluation.settings import ModelSettings
from evenhand.mitigation.methods import Method
from evenhand.mitigation.settings import OF_SIZE, TuningSettings
from evenhand.mitigation.trainer_configs import lora_config, trainer_config, without_telemetry
from evenhand.mitigation.trainers import TRAINERS

N_ROWS = 1000  # stands for the number of training rows, which are not labelled yet


def check_tuning(model: ModelSettings, method: type[Method], settings: TuningSettings) -> None:
    """Raise InputError for a tuning that would fail with any rows. Only the model's config is read, no weights.

    `settings` is the result of `with_defaults`.
    """
    trainer, name, (config, is_adapted) = TRAINERS[method.trainer], model.name, _load_base_config(model)
    base_tag, tag = load_control_tag(name), method.inference_tag
    is_quantized = model.quantization is not None or getattr(config, "quantization_config", None) is not None
    device = resolve_device(model.device)
    # Trainers of transformers split batches among GPUs unless the model has a device map, or a launcher starts one
    # process for each GPU. A quantized model is loaded by a device map.
    uses_all_gpus = "LOCAL_RANK" not in os.environ and model.device_map is None and model.quantization is None
    n_gpus = torch.cuda.device_count() if device.type == "cuda" and uses_all_gpus else 1
    faults = {
        "model.base, model.adapter_strength: a model tuned from this adapter would be loaded on another base, or with "
        f"all of the adapter; export {name} (docs/mitigation.md), and tune the export.": (
            model.base is not None or model.adapter_strength is not None
        ),
        f"model: {name} is an encoder-decoder model, which the {method.trainer.upper()} trainer does not support; give "
        "another method.": config.is_encoder_decoder and not trainer.supports_encoder_decoder,
        f"model: {name} was tuned with the control tag {base_tag!r}, and the method uses {tag!r}; use the same method "
        "again, or tune the model's base.": base_tag and base_tag != tag,
        f"training.lora: false; quantized weights cannot be trained, and the {method.trainer.upper()} trainer may need "
        "the model without the adapter: use LoRA.": (is_quantized or trainer.only_lora) and not settings.lora,
        f"model.quantization: {name} is an adapter on a quantized base, into which it cannot be merged to be tuned "
        "again; use no quantization.": is_quantized and is_adapted,
        f"model.device: {n_gpus} GPUs are visible, and the trainer would use all of them; set CUDA_VISIBLE_DEVICES to "
        "one GPU, set model.device_map, or start with `accelerate launch`.": n_gpus > 1,
    }
    for message, is_fault in faults.items():
        if is_fault:
            field, problem = message.split(": ", 1)
            raise InputError(field, problem)
    with without_telemetry():
        trainer_config(trainer, settings, N_ROWS, device)
        if settings.lora:
            network = _without_weights(model, config)
            try:
                get_peft_model(network, lora_config(network, settings), low_cpu_mem_usage=True)
            except (ValueError, TypeError) as error:
                raise InputError("training.peft", f"PEFT rejects it for {name}: {first_line(error)}") from None


def default_methods(model: ModelSettings) -> list[str]:
    """Return the methods of a loop without `methods`; `tune` uses the first one (docs/mitigation.md).

    A chat model loses relevance if it is trained only on responses to other people. `borrowed_opening` trains nothing.

    Raises:
        InputError: the model's config or tokenizer cannot be read, or its chat template is broken.
    """
    return ["distill" if model_kind(model) == "chat" else "exchange", "borrowed_opening"]


def with_defaults(model: ModelSettings, method: type[Method], settings: TuningSettings) -> TuningSettings:
    """Return the settings, with defaults for the method and for the model's size in place of null.

    Raises:
        InputError: the model's config cannot be read, or is not of a model that generates text.
    """
    settings = settings.with_method_defaults(method, n_parameters=None)
    if all(getattr(settings, name) is not None for name in OF_SIZE):
        return settings
    network = _without_weights(model, _load_base_config(model)[0])
    return settings.with_method_defaults(method, sum(parameter.numel() for parameter in network.parameters()))


def _load_base_config(model: ModelSettings) -> tuple[PreTrainedConfig, bool]:
    """Return the config of a model, or of an adapter's base, and whether the model is an adapter."""
    folder = adapter_folder(model.name, model.revision)
    if folder is None:
        return load_config(model), False
    base, revision = adapter_base(folder, None, model.revision)
    return _load_base_config(replace(model, name=base, revision=revision))[0], True


def _without_weights(model: ModelSettings, config: PreTrainedConfig) -> torch.nn.Module:
    """Return a network with this config and without weights, on the meta device."""
    with torch.device("meta"):
        return text_generation_class(model, config).from_config(config, trust_remote_code=model.trust_remote_code)
