"""Configs of TRL trainers and LoRA adapters, from the settings of a tuning.

The settings `training.trainer` and `training.peft` contain further fields of the configs.
"""

import math
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import Field, fields
from pathlib import Path
from typing import Any, Literal

import torch
from datasets import Dataset
from peft import LoraConfig
from pydantic import ConfigDict, PydanticUserError, TypeAdapter, ValidationError
from transformers import TrainingArguments
from transformers.pytorch_utils import Conv1D

from evenhand.evaluation import processes
from evenhand.evaluation.errors import InputError, unknown_name
from evenhand.evaluation.models.revisions import first_line
from evenhand.mitigation.training.callbacks import suppress_warnings
from evenhand.mitigation.training.settings import TuningSettings
from evenhand.mitigation.training.trainers import TrainingMethod

LOGS_PER_EVALUATION = 5
# Fields of TRL's and PEFT's configs whose setting has another name.
SETTING_NAMES = {
    "num_train_epochs": "epochs",
    "per_device_train_batch_size": "batch_size",
    "per_device_eval_batch_size": "batch_size",
    "eval_steps": "evaluations_per_epoch",
    "save_steps": "evaluations_per_epoch",
    "warmup_steps": "warmup_ratio",
    "lr_scheduler_type": "scheduler",
    "optim": "optimizer",
    "bf16": "dtype",
    "activation_checkpointing": "gradient_checkpointing",
    "beta": "preference_beta",
    "r": "lora_rank",
}
# Fields of LoraConfig that would change how the saved adapter is loaded.
ADAPTER_FILE_FIELDS = ("base_model_name_or_path", "revision", "inference_mode", "peft_type", "auto_mapping")


def steps_per_epoch(settings: TuningSettings, n_train: int) -> int:
    """Return the number of optimizer steps in an epoch."""
    return math.ceil(math.ceil(n_train / settings.batch_size) / settings.gradient_accumulation_steps)


def trainer_arguments(
    trainer: TrainingMethod,
    settings: TuningSettings,
    train: Dataset,
    device: torch.device,
    *,
    output_dir: Path = Path("checkpoints"),
    seed: int = 0,
    report_to: str = "none",
    run_name: str | None = None,
    **overrides: Any,
) -> TrainingArguments:
    """Return a trainer's config, which is the same for a new and a resumed training.

    Args:
        settings: `batch_size` counts the rows of all processes together.
        train: encoded training rows.
        device: the device of the base model, on which training runs.
        overrides: fields that replace the fields common to all trainers.

    Raises:
        InputError: TRL or transformers rejects a value; `batch_size` is not a multiple of the number of processes.
    """
    rows = rows_per_process(settings.batch_size)
    per_epoch = steps_per_epoch(settings, len(train))
    evaluate_every = max(1, per_epoch // settings.evaluations_per_epoch)
    # Every checkpoint is at a logged step, so that a resumed run logs the same losses.
    log_every = max(1, evaluate_every // LOGS_PER_EVALUATION)
    evaluate_every = evaluate_every // log_every * log_every
    common = {
        "output_dir": str(output_dir),
        "num_train_epochs": settings.epochs,
        "per_device_train_batch_size": rows,
        "per_device_eval_batch_size": 4 * rows,
        "learning_rate": settings.learning_rate,
        "weight_decay": settings.weight_decay,
        # The learning rate of the first warm-up step is 0: a single step would change nothing.
        "warmup_steps": settings.warmup_ratio if settings.epochs * per_epoch > 1 else 0,
        "lr_scheduler_type": settings.scheduler,
        **({"optim": settings.optimizer} if settings.optimizer else {}),
        "gradient_accumulation_steps": settings.gradient_accumulation_steps,
        "seed": seed,
        "bf16": settings.dtype == "bfloat16",
        "use_cpu": device.type == "cpu",
        "dataloader_pin_memory": device.type == "cuda",
        "gradient_checkpointing": settings.gradient_checkpointing,
        "logging_steps": log_every,
        "eval_strategy": "steps",
        "eval_steps": evaluate_every,
        "save_strategy": "steps",
        "save_steps": evaluate_every,
        "save_total_limit": 2,  # the last and the best checkpoint
        "load_best_model_at_end": True,
        "metric_for_best_model": "eval_loss",
        "greater_is_better": False,
        "restore_callback_states_from_checkpoint": True,  # the state of early stopping
        "disable_tqdm": True,
        "report_to": "wandb" if report_to == "wandb" else "none",  # `fit` adds TensorBoard's callback
        "run_name": run_name,
        **overrides,
    }
    with suppress_warnings():
        return trainer.build_config(common, settings, train)


def rows_per_process(batch_size: int) -> int:
    """Return the number of rows of a batch on each process.

    Raises:
        InputError: `batch_size` is not a multiple of the number of processes.
    """
    if batch_size % processes.world_size():
        raise InputError(
            f"training.batch_size: {batch_size} rows cannot be divided evenly among {processes.world_size()} "
            f"processes; give a multiple of {processes.world_size()}."
        )
    return batch_size // processes.world_size()


def lora_config(
    network: torch.nn.Module, name: str, settings: TuningSettings, token_ids: Collection[int] = ()
) -> LoraConfig:
    """Return the config of an adapter on all linear layers, or on the layers of `settings.peft`.

    Args:
        network: the base; it may be on the meta device, without weights.
        name: the name of the base in errors.
        token_ids: tokens whose embeddings are trained, too.

    Raises:
        InputError: the rank exceeds the full rank of every layer; PEFT rejects a field of `settings.peft`.
    """
    max_rank = max(map(_full_rank, network.modules()))
    if settings.lora_rank > max_rank:
        raise InputError(
            f"training.lora_rank: {settings.lora_rank} exceeds {max_rank}, the full rank of the layers of {name}; give "
            "a lower rank, or lora: false."
        )
    lora_fields = {
        "r": settings.lora_rank,
        "lora_alpha": settings.lora_alpha,
        # GPT-2's layers have transposed weights.
        "fan_in_fan_out": any(isinstance(module, Conv1D) for module in network.modules()),
        "trainable_token_indices": sorted(token_ids) or None,
        "task_type": "SEQ_2_SEQ_LM" if network.config.is_encoder_decoder else "CAUSAL_LM",
    }
    return adapter_config(lora_fields, settings)


def _full_rank(module: torch.nn.Module) -> int:
    """Return the full rank of a linear layer; 0 for other modules."""
    # The shape of a quantized layer's weight is its packed shape.
    if isinstance(module, torch.nn.Linear):
        return min(module.in_features, module.out_features)
    return min(module.weight.shape) if isinstance(module, Conv1D) else 0


def trainer_config(cls: type, arguments: Mapping[str, Any], settings: TuningSettings) -> TrainingArguments:
    """Return a config of TRL with the fields `arguments` and `settings.trainer`.

    Raises:
        InputError: a field of `settings.trainer` is unknown, is set by Evenhand or has a wrong type; `cls` rejects a
            value.
    """
    reserved = {*arguments, "optim", "activation_checkpointing"}
    return _build("training.trainer", cls, arguments, settings.trainer, reserved)


def adapter_config(arguments: Mapping[str, Any], settings: TuningSettings) -> LoraConfig:
    """Return a LoraConfig with the fields `arguments` and `settings.peft`; by default, on all linear layers.

    Raises:
        InputError: a field of `settings.peft` is unknown, is set by Evenhand or has a wrong type; PEFT rejects a value.
    """
    passed = {"target_modules": "all-linear", **settings.peft}
    return _build("training.peft", LoraConfig, arguments, passed, {*arguments, *ADAPTER_FILE_FIELDS})


def _build(
    group: str, cls: type, arguments: Mapping[str, Any], passed: Mapping[str, Any], reserved: Collection[str]
) -> Any:
    fields_by_name = {field.name: field for field in fields(cls) if field.init}
    settings = {setting.name for setting in fields(TuningSettings)}
    values = {}
    for name, value in passed.items():
        if name in reserved:
            setting = SETTING_NAMES.get(name, name)
            source = f"from training.{setting}" if setting in settings else "itself"
            raise InputError(f"{group}.{name}: Evenhand sets this field {source}; leave it out.")
        if name not in fields_by_name:
            raise unknown_name(f"{group}.{name}", name, fields_by_name)
        values[name] = _validate(f"{group}.{name}", fields_by_name[name], value)
    try:
        return cls(**arguments, **values)
    except (ValueError, TypeError, ImportError, NotImplementedError) as error:
        raise InputError(f"training: {cls.__name__} rejects a value: {first_line(error)}") from None


def _validate(name: str, field: Field, value: Any) -> Any:
    """Return a value converted to the type of a config's field, which the dataclasses of TRL and PEFT do not check.

    Types that pydantic does not support are left to the library.
    """
    choices = field.metadata.get("choices")  # transformers checks them only on its command line
    hint = Literal[tuple(choices)] if choices and isinstance(value, str) else field.type
    with suppress(PydanticUserError, NameError):
        try:
            return TypeAdapter(hint, config=ConfigDict(arbitrary_types_allowed=True)).validate_python(value)
        except ValidationError as error:
            raise InputError(f"{name}: {value!r} cannot be used: {error.errors()[0]['msg']}.") from None
    return value
