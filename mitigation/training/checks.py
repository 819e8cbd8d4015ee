"""Checks of a tuning's configuration before any weights are loaded."""

from dataclasses import replace

import torch
from datasets import Dataset
from peft import get_peft_model
from transformers import PreTrainedConfig

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.models.checkpoints import load_config, resolve_device
from evenhand.evaluation.models.loading import load_control_tag, model_kind, text_generation_class
from evenhand.evaluation.models.model_paths import is_gguf
from evenhand.evaluation.models.revisions import adapter_base, first_line, is_adapter, local_folder
from evenhand.evaluation.score import LABEL
from evenhand.evaluation.settings import ModelSettings
from evenhand.mitigation.methods import Method
from evenhand.mitigation.training.arguments import lora_config, trainer_arguments
from evenhand.mitigation.training.callbacks import suppress_warnings
from evenhand.mitigation.training.guards import check_single_gpu
from evenhand.mitigation.training.settings import OF_SIZE, TuningSettings
from evenhand.mitigation.training.trainers import load_trainer

# Stands for training rows, which are not labelled yet.
PLACEHOLDER_ROWS = Dataset.from_dict({LABEL: [True, False] * 500})


def check_tuning(model: ModelSettings, method: Method, settings: TuningSettings, rounds: int = 1) -> None:
    """Raise InputError for a tuning that would fail with any rows. Only the model's config is read, no weights.

    Args:
        model: the model to measure and tune; its name is resolved (not "testbed").
        settings: the result of `with_defaults`.
        rounds: the number of tunings; each starts from the model that the tuning before returned.

    Raises:
        InputError: the trainer does not support encoder-decoder models; the base has another control tag; `peft` is set
            without `lora`, or the trainer needs `lora`; quantized weights would have to change; PEFT cannot put the
            adapter onto the model; `model.base` or `model.adapter_strength` is set; see also `check_single_gpu`,
            `trainer_arguments` and `lora_config`.
    """
    if model.base is not None:
        raise InputError(
            f"model.base: {model.name} is an adapter that is measured on another base than it names, but a model tuned "
            f"from it would be loaded on the named base; write {model.base} into its adapter_config.json, and leave "
            "model.base out."
        )
    if model.adapter_strength is not None:
        raise InputError(
            f"model.adapter_strength: {model.adapter_strength:g} of {model.name}, but a model tuned from it would be "
            "loaded with all of it; export that strength (docs/mitigation.md), and tune the export."
        )
    config, is_adapted = _load_base_config(model)
    _check_trainable(model, config, method, settings, is_adapted or rounds > 1)
    device = resolve_device(model.device)
    has_device_map = model.device_map is not None or model.quantization is not None  # which is loaded by a device map
    check_single_gpu(device, has_device_map)
    trainer_arguments(load_trainer(method.trainer), settings, PLACEHOLDER_ROWS, device)
    if settings.lora:
        _check_adapter(model, config, settings)


def default_methods(model: ModelSettings) -> list[str]:
    """Return the methods of a loop without `methods`; `tune` uses the first one (docs/mitigation.md).

    A chat model loses relevance if it is trained only on responses to other people. TRL's DPO trainer does not support
    encoder-decoder models.

    Raises:
        InputError: the model's config or tokenizer cannot be read, or its chat template is broken.
    """
    kinds = {"chat": ["distill", "resample"], "encoder_decoder": ["exchange"], "dialogue": ["exchange", "dpo"]}
    return kinds[model_kind(model)]


def with_defaults(model: ModelSettings, method: Method, settings: TuningSettings) -> TuningSettings:
    """Return the settings, with defaults for the method and for the model's size in place of null.

    Raises:
        InputError: the model's config cannot be read, or is not of a model that generates text.
    """
    settings = settings.with_method_defaults(method, n_parameters=None)
    if all(getattr(settings, name) is not None for name in OF_SIZE):
        return settings
    network = _without_weights(model, _load_base_config(model)[0])
    return settings.with_method_defaults(method, sum(parameter.numel() for parameter in network.parameters()))


def _check_trainable(
    model: ModelSettings, config: PreTrainedConfig, method: Method, settings: TuningSettings, is_adapted: bool
) -> None:
    """Raise InputError for a model that the method cannot tune, and for contradictory settings.

    `is_adapted` is whether the model is an adapter, or becomes an adapter before it is tuned again.
    """
    name, trainer, module = model.name, method.trainer.upper(), load_trainer(method.trainer)
    base_tag, tag = load_control_tag(name), method.inference_tag
    is_quantized = model.quantization is not None or getattr(config, "quantization_config", None) is not None
    if config.is_encoder_decoder and not module.supports_encoder_decoder:
        raise InputError(
            f"model: {name} is an encoder-decoder model, which TRL's {trainer} trainer does not support; give "
            "another method."
        )
    if base_tag and base_tag != tag:
        raise InputError(
            f"model: {name} was tuned with the control tag {base_tag!r}, and the method uses {tag!r}; use the same "
            "method again, or tune the model's base."
        )
    if settings.peft and not settings.lora:
        raise InputError(
            f"training.peft: {settings.peft} needs training.lora, which is false; leave training.peft out."
        )
    if module.needs_lora and not settings.lora:
        raise InputError(
            f"training.lora: false; the {trainer} trainer compares the model with itself without the adapter: use "
            "LoRA, or another method."
        )
    if is_quantized and not settings.lora:
        raise InputError(f"training.lora: false; the weights of {name} are quantized and cannot be trained: use LoRA.")
    if is_quantized and is_adapted:
        raise InputError(
            f"model.quantization: {name} is or becomes an adapter on a quantized base, into which it cannot be merged "
            "to be tuned again; use rounds 1, or no quantization."
        )


def _load_base_config(model: ModelSettings) -> tuple[PreTrainedConfig, bool]:
    """Return the config of a model, or of an adapter's base, and whether the model is an adapter."""
    folder = None if is_gguf(model.name) else local_folder(model.name)
    if folder is None or not is_adapter(folder):
        return load_config(model), False
    base, revision = adapter_base(folder, None, model.revision)
    return _load_base_config(replace(model, name=base, revision=revision))[0], True


def _without_weights(model: ModelSettings, config: PreTrainedConfig) -> torch.nn.Module:
    """Return a network with this config and without weights, on the meta device."""
    with torch.device("meta"):
        return text_generation_class(model, config).from_config(config, trust_remote_code=model.trust_remote_code)


def _check_adapter(model: ModelSettings, config: PreTrainedConfig, settings: TuningSettings) -> None:
    """Raise InputError if PEFT cannot put the adapter onto a network of this config; the network has no weights."""
    network = _without_weights(model, config)
    adapter = lora_config(network, model.name, settings)
    try:
        with suppress_warnings():
            get_peft_model(network, adapter, low_cpu_mem_usage=True)
    except (ValueError, TypeError) as error:
        raise InputError(f"training.peft: PEFT rejects it for {model.name}: {first_line(error)}") from None
