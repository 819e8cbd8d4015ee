"""Checks of a tuning's configuration, and defaults for a model, before any weights are loaded."""

import os
from typing import Any, cast

import torch
from peft import LoraConfig, get_peft_model
from peft.tuners.lora import LoraLayer
from peft.tuners.trainable_tokens.layer import TrainableTokensLayer
from peft.utils import ModulesToSaveWrapper
from transformers import PreTrainedConfig, Trainer, TrainingArguments, get_scheduler

from evenhand.evaluation.compat import lora_layers
from evenhand.evaluation.doors import spelled
from evenhand.evaluation.errors import InputError, first_line
from evenhand.evaluation.model_settings import ModelSettings
from evenhand.evaluation.models.activation import invocation_in
from evenhand.evaluation.models.checkpoints import ignore_renamed_checkpointing, load_config, resolve_device
from evenhand.evaluation.models.loading import model_kind, network_without_weights
from evenhand.evaluation.models.revisions import (
    adapter_base,
    adapter_folder,
    load_control_tag,
)
from evenhand.mitigation.methods import TrainedMethod
from evenhand.mitigation.settings import OF_SIZE, TuningSettings
from evenhand.mitigation.trainer_configs import lora_config, trainer_config
from evenhand.mitigation.trainers import trainer_class

# Initial weights that need no data, and with which an adapter is loaded as it was trained.
INITIALIZATIONS = (True, False, "gaussian", "orthogonal", "pissa")
N_ROWS = 1000  # stands for the number of training rows, which are not labelled yet


@ignore_renamed_checkpointing()
def check_tuning(model: ModelSettings, method: TrainedMethod, settings: TuningSettings) -> None:
    """Raise InputError for a tuning that would fail with any rows. Only the model's config is read, no weights.

    `settings` is the result of `with_defaults`.
    """
    config, is_adapted = _load_base_config(model)
    is_quantized = model.quantization is not None or getattr(config, "quantization_config", None) is not None
    trainer = trainer_class(method.trainer, config.is_encoder_decoder)
    trainer_name = f"{method.trainer.upper()} trainer"
    if model.base is not None or model.adapter_strength is not None:
        raise InputError(
            "model.adapter_strength" if model.base is None else "model.base",
            "a model tuned from this adapter would be loaded on another base, or with all of the adapter; export "
            f"{model.name} (docs/mitigation.md), and tune the export.",
        )
    if config.is_encoder_decoder and not trainer.supports_encoder_decoder:
        raise InputError(
            "model",
            f"{model.name} is an encoder-decoder model, and the {trainer_name} supports none; give another method.",
        )
    _check_control_tag(model, method.control_tag)
    if (is_quantized or trainer.needs_base) and not settings.lora:
        raise InputError(
            "training.lora",
            f"false; quantized weights cannot be trained, and the {trainer_name} may need the model without the "
            "adapter: use LoRA.",
        )
    adapter = adapter_folder(model.name, model.revision)
    if adapter is not None and invocation_in(adapter) is not None:
        raise InputError(
            "model",
            f"{model.name} is an activated adapter, into whose base it cannot be merged to be tuned again; tune its "
            "base.",
        )
    if is_quantized and is_adapted:
        raise InputError(
            "model.quantization",
            f"{model.name} is an adapter on a quantized base, into which it cannot be merged to be tuned again; use no "
            "quantization.",
        )
    device = resolve_device(model.device)
    _check_one_gpu(model, device)
    arguments = trainer_config(method, settings, N_ROWS, device)
    _check_optimizer(arguments)
    if settings.lora:
        network = network_without_weights(model, config)
        invocation = [0] if method.is_activated else None  # stands for the tokens, which no context has given yet
        tag_ids = [0] if method.tags else []
        lora = lora_config(network, settings, tag_ids, invocation)
        if lora.alora_invocation_tokens is not None and arguments.gradient_checkpointing:
            raise InputError("training.gradient_checkpointing", "PEFT activates no adapter in it; give false.")
        _check_adapter(model, network, lora)


def _check_optimizer(arguments: TrainingArguments) -> None:
    """Raise InputError if a package of the optimizer or an argument of the learning rate's schedule is missing."""
    weight = torch.zeros(1, requires_grad=True)
    try:
        Trainer.get_optimizer_cls_and_kwargs(arguments)
        get_scheduler(
            arguments.lr_scheduler_type,
            optimizer=torch.optim.SGD([weight]),
            num_warmup_steps=arguments.get_warmup_steps(N_ROWS),
            num_training_steps=N_ROWS,
            scheduler_specific_kwargs=cast("dict[str, Any] | None", arguments.lr_scheduler_kwargs),
        )
    except (ValueError, TypeError, ImportError) as error:
        raise InputError("training.trainer", first_line(error)) from None


def _check_adapter(model: ModelSettings, network: torch.nn.Module, lora: LoraConfig) -> None:
    """Raise InputError if PEFT or TRL would reject the adapter, or it could not be loaded as it was trained."""
    if lora.init_lora_weights not in INITIALIZATIONS:
        raise InputError(
            "training.peft.init_lora_weights",
            f"{lora.init_lora_weights!r} needs data, or changes the base in a way that loading the adapter does not "
            f"repeat; give one of {', '.join(map(str, INITIALIZATIONS))}.",
        )
    if lora.bias != "none":
        raise InputError(
            "training.peft.bias",
            f"{lora.bias!r} trains the base's own biases, which the adapter does not switch off; give lora_bias: true.",
        )
    try:
        adapted = get_peft_model(network, lora, low_cpu_mem_usage=True)
    except (ValueError, TypeError, NotImplementedError) as error:
        fix = "" if lora.alora_invocation_tokens is None else "; give control_tags.targets labels"
        raise InputError("training.peft", f"PEFT rejects it for {model.name}: {first_line(error)}{fix}") from None
    if lora.alora_invocation_tokens is None and model.quantization is None:  # otherwise it is never merged
        try:
            for layer in lora_layers(adapted):
                layer.merge()
        except (ValueError, TypeError, RuntimeError, NotImplementedError) as error:
            raise InputError("training.peft", f"PEFT cannot merge it into {model.name}: {first_line(error)}") from None
    if isinstance(adapted.get_output_embeddings(), LoraLayer):
        raise InputError("training.peft", "TRL trains no adapter of the output layer; leave it out of target_modules.")
    for module in adapted.modules():
        if isinstance(module, TrainableTokensLayer) and isinstance(module.base_layer, ModulesToSaveWrapper):
            raise InputError(
                "training.peft.modules_to_save",
                "the method trains the embeddings of its control tags already; leave embeddings and output layer out.",
            )


def _check_control_tag(model: ModelSettings, tag: str) -> None:
    """Raise InputError if the model was tuned with another control tag than the method's."""
    base_tag = load_control_tag(model.name, model.revision, model.base)
    if base_tag and base_tag != tag:
        raise InputError(
            "model",
            f"{model.name} was tuned with the control tag {base_tag!r}, and the method uses {tag!r}; use the same "
            "method again, or tune the model's base.",
        )


def _check_one_gpu(model: ModelSettings, device: torch.device) -> None:
    """Raise InputError if the trainer of transformers would split batches among several GPUs.

    It does so unless the model is split over devices, as a quantized model is, or a launcher starts a process for each
    GPU.
    """
    if device.type != "cuda" or "LOCAL_RANK" in os.environ:
        return
    if model.device_map is not None or model.quantization is not None:
        return
    n_gpus = torch.cuda.device_count()
    if n_gpus > 1:
        raise InputError(
            "model.device",
            f"{n_gpus} GPUs are visible, and the trainer would use all of them; set CUDA_VISIBLE_DEVICES to one GPU, "
            f"give {spelled('model.device', 'balanced')}, or start with `accelerate launch`.",
        )


def default_methods(model: ModelSettings) -> list[str]:
    """Return the methods of a loop without `methods`; `tune` uses the first one (docs/mitigation.md).

    A chat model loses relevance if it is trained only on responses to other people. `borrowed_opening` trains nothing.

    Raises:
        InputError: the model's config or tokenizer cannot be read, or its chat template is broken.
    """
    return ["distill" if model_kind(model) == "chat" else "exchange", "borrowed_opening"]


def with_defaults(model: ModelSettings, method: TrainedMethod, settings: TuningSettings) -> TuningSettings:
    """Return the settings, with defaults for the method and for the model's size in place of null.

    Raises:
        InputError: the model's config cannot be read, or is not of a model that generates text.
    """
    settings = settings.with_method_defaults(method, n_parameters=None)
    if all(getattr(settings, name) is not None for name in OF_SIZE):
        return settings
    network = network_without_weights(model, _load_base_config(model)[0])
    return settings.with_method_defaults(method, sum(parameter.numel() for parameter in network.parameters()))


def _load_base_config(model: ModelSettings) -> tuple[PreTrainedConfig, bool]:
    """Return the config of a model, or of an adapter's base, and whether the model is an adapter."""
    folder = adapter_folder(model.name, model.revision)
    if folder is None:
        return load_config(model), False
    base, revision = adapter_base(folder, None, model.revision)
    return _load_base_config(model.replaced(name=base, revision=revision))[0], True
