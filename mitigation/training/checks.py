"""What cannot be tuned, or not in this way: told before any weights are read, so that nothing is measured in vain."""

from dataclasses import replace
from pathlib import Path

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
from evenhand.mitigation.methods import Method
from evenhand.mitigation.training.arguments import adapter_of, training_arguments
from evenhand.mitigation.training.dry_run import dry_run
from evenhand.mitigation.training.guards import check_single_gpu
from evenhand.mitigation.training.settings import TuningSettings
from evenhand.mitigation.training.suppress_warnings import suppress_warnings
from evenhand.mitigation.training.trainers import TrainerModule, load_trainer

ROWS = 1000  # that arguments are made for, where none are labelled yet


def check_tuning(model: ModelSettings, method: Method, settings: TuningSettings, rounds: int = 1) -> None:
    """Refuse a tuning that must fail whatever rows it gets; the model's config is read, and no weights.

    Args:
        model: that is measured, labelled and tuned; "testbed" is resolved.
        settings: as `TuningSettings.with_method_defaults` returns them.
        rounds: how often it is tuned, each time on what the last one left.

    Raises:
        InputError: see `refuse_impossible` and `rehearse`; a field of TRL's or PEFT's is unknown, is set already or
            cannot be used; an adapter's base is another than it names.
    """
    if model.base is not None:
        raise InputError(
            f"model.base: {model.name} is measured on another base than it names, and what is tuned on it would be "
            f"loaded on that one; write {model.base} into its adapter_config.json, and leave model.base out."
        )
    trainer_module, config, adapted = load_trainer(method.TRAINER), *_config(model)
    check_trainable(
        model.name,
        load_control_tag(model.name),
        method.INFERENCE_TAG,
        trainer_module,
        settings,
        encoder_decoder=bool(config.is_encoder_decoder),
        quantized=model.quantization is not None or getattr(config, "quantization_config", None) is not None,
        adapted=adapted or rounds > 1,
    )
    device, packed = resolve_device(model.device), model.quantization is not None  # which are placed by a map, too
    check_single_gpu(device, placed=packed or model.device_map is not None)
    common = training_arguments(settings, 0, ROWS, Path("checkpoints"), "none", None, device)
    with suppress_warnings():
        trainer_module.arguments(common, settings, Dataset.from_dict({LABEL: [True, False] * (ROWS // 2)}))
        if settings.lora:
            _check_adapter(model, config, settings)
    dry_run(method, settings, device)


def check_trainable(
    name: str,
    tag_of_base: str,
    tag: str,
    trainer_module: TrainerModule,
    settings: TuningSettings,
    *,
    encoder_decoder: bool,
    quantized: bool,
    adapted: bool,
) -> None:
    """Refuse what no trainer can do with a model.

    Args:
        name: the model's.
        tag_of_base: the control tag that it was tuned to be asked with, "" for none.
        tag: the one that it is to be asked with after this tuning.
        quantized: its weights are packed; `adapted`: it is an adapter on them, or will be when it is tuned again.

    Raises:
        InputError: the trainer does not take such a model; it was tuned with another tag; settings of an adapter
            without one; packed weights that would have to change.
    """
    if encoder_decoder and not trainer_module.SUPPORTS_ENCODER_DECODER:
        trainer = trainer_module.__name__.rpartition(".")[2].upper()
        raise InputError(
            f"model: {name} is an encoder-decoder model, which TRL's {trainer} trainer does not take; give another "
            "method."
        )
    if tag_of_base and tag_of_base != tag:
        raise InputError(
            f"model: {name} was tuned to be asked with {tag_of_base!r}, this method asks with {tag!r}; go on with the "
            "same method, or tune the model it was made from."
        )
    if settings.peft and not settings.lora:
        raise InputError(f"training.peft: {settings.peft} is of an adapter, and training.lora is false; leave it out.")
    if quantized and not settings.lora:
        raise InputError(f"training.lora: false; {name} is quantized, and its weights stay as they are: use LoRA.")
    if quantized and adapted:
        raise InputError(
            f"model.quantization: {name} would be tuned as an adapter on a quantized base, into which it cannot be "
            "merged to be tuned on; use rounds 1, or no quantization."
        )


def _config(model: ModelSettings) -> tuple[PreTrainedConfig, bool]:
    """Return the config of a model, or of an adapter's base, and whether it is an adapter."""
    folder = local_folder(model.name)
    if folder is None or not is_adapter(folder):
        return load_config(model), False
    base, revision = adapter_base(folder, None, model.revision)
    return _config(replace(model, name=base, revision=revision))[0], True


def _check_adapter(model: ModelSettings, config: PreTrainedConfig, settings: TuningSettings) -> None:
    """Put the adapter onto a network of the config's shape that has no weights."""
    with torch.device("meta"):
        network = text_generation_class(model, config).from_config(config, trust_remote_code=model.trust_remote_code)
    adapter = adapter_of(network, model.name, (), settings)
    try:
        get_peft_model(network, adapter, low_cpu_mem_usage=True)
    except (ValueError, TypeError) as error:
        raise InputError(f"training.peft: PEFT refuses it for {model.name}: {first_line(error)}") from None
