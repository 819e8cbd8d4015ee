"""Checks of a tuning's configuration before any weights are loaded."""

from dataclasses import replace

import torch
from datasets import Dataset
from peft import get_peft_model
from transformers import PreTrainedConfig

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.models.checkpoints import load_config, resolve_device
from evenhand.evaluation.models.loading import load_control_tag, text_generation_class
from evenhand.evaluation.models.revisions import adapter_base, first_line, is_adapter, local_folder
from evenhand.evaluation.results import LABEL
from evenhand.evaluation.settings import ModelSettings
from evenhand.mitigation.methods import TrainedMethod
from evenhand.mitigation.training.arguments import lora_config, trainer_arguments
from evenhand.mitigation.training.dry_run import dry_run
from evenhand.mitigation.training.guards import check_single_gpu
from evenhand.mitigation.training.settings import TuningSettings
from evenhand.mitigation.training.suppress_warnings import suppress_warnings
from evenhand.mitigation.training.trainers import load_trainer

# Stands for training rows, which are not labelled yet.
PLACEHOLDER_ROWS = Dataset.from_dict({LABEL: [True, False] * 500})


def check_tuning(model: ModelSettings, method: TrainedMethod, settings: TuningSettings, rounds: int = 1) -> None:
    """Reject a tuning that would fail with any rows. Reads the model's config, but no weights.

    Args:
        model: the model to measure and tune; its name is resolved (not "testbed").
        settings: as `TuningSettings.with_method_defaults` returns them.
        rounds: the number of tunings, each of which starts from the result of the last.

    Raises:
        InputError: see `check_trainable`, `check_single_gpu`, `trainer_arguments`, `lora_config` and `dry_run`; PEFT
            cannot put the adapter onto the model; `model.base` is set.
    """
    if model.base is not None:
        raise InputError(
            f"model.base: {model.name} is an adapter that is measured on another base than it names, but a model tuned "
            f"from it would be loaded on the named base; write {model.base} into its adapter_config.json, and leave "
            "model.base out."
        )
    config, is_adapter_of_base = _load_base_config(model)
    check_trainable(
        model.name,
        load_control_tag(model.name),
        method.INFERENCE_TAG,
        method.TRAINER,
        settings,
        encoder_decoder=bool(config.is_encoder_decoder),
        quantized=model.quantization is not None or getattr(config, "quantization_config", None) is not None,
        adapted=is_adapter_of_base or rounds > 1,
    )
    device = resolve_device(model.device)
    has_device_map = model.device_map is not None or model.quantization is not None  # which is loaded by a device map
    check_single_gpu(device, has_device_map)
    trainer_arguments(load_trainer(method.TRAINER), settings, PLACEHOLDER_ROWS, device)
    if settings.lora:
        _check_adapter(model, config, settings)
    dry_run(method, settings, device)


def check_trainable(
    name: str,
    tag_of_base: str,
    tag: str,
    trainer: str,
    settings: TuningSettings,
    *,
    encoder_decoder: bool,
    quantized: bool,
    adapted: bool,
) -> None:
    """Reject models that a trainer does not support, and contradictory settings.

    Args:
        name: the model's name.
        tag_of_base: the control tag that the model was tuned with; "" for none.
        tag: the control tag of the tuned model; "" for none.
        trainer: a module of `evenhand.mitigation.training.trainers`.
        quantized: whether the model's weights are packed.
        adapted: whether the model is an adapter on its base, or will be when it is tuned again.

    Raises:
        InputError: the trainer does not support encoder-decoder models; the base has another control tag; `peft` is set
            without `lora`; quantized weights would have to change.
    """
    if encoder_decoder and not load_trainer(trainer).SUPPORTS_ENCODER_DECODER:
        raise InputError(
            f"model: {name} is an encoder-decoder model, which TRL's {trainer.upper()} trainer does not support; give "
            "another method."
        )
    if tag_of_base and tag_of_base != tag:
        raise InputError(
            f"model: {name} was tuned with the control tag {tag_of_base!r}, and the method uses {tag!r}; use the same "
            "method again, or tune the model's base."
        )
    if settings.peft and not settings.lora:
        raise InputError(
            f"training.peft: {settings.peft} needs training.lora, which is false; leave training.peft out."
        )
    if quantized and not settings.lora:
        raise InputError(f"training.lora: false; the weights of {name} are quantized and cannot be trained: use LoRA.")
    if quantized and adapted:
        raise InputError(
            f"model.quantization: {name} is or becomes an adapter on a quantized base, into which it cannot be merged "
            "to be tuned again; use rounds 1, or no quantization."
        )


def _load_base_config(model: ModelSettings) -> tuple[PreTrainedConfig, bool]:
    """Return the config of a model, or of an adapter's base, and whether the model is an adapter."""
    folder = local_folder(model.name)
    if folder is None or not is_adapter(folder):
        return load_config(model), False
    base, revision = adapter_base(folder, None, model.revision)
    return _load_base_config(replace(model, name=base, revision=revision))[0], True


def _check_adapter(model: ModelSettings, config: PreTrainedConfig, settings: TuningSettings) -> None:
    """Raise InputError if PEFT cannot put the adapter onto a network of this config; the network has no weights."""
    with torch.device("meta"):
        network = text_generation_class(model, config).from_config(config, trust_remote_code=model.trust_remote_code)
    adapter = lora_config(network, model.name, settings)
    try:
        with suppress_warnings():
            get_peft_model(network, adapter, low_cpu_mem_usage=True)
    except (ValueError, TypeError) as error:
        raise InputError(f"training.peft: PEFT rejects it for {model.name}: {first_line(error)}") from None
