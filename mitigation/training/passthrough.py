"""Configs of TRL and PEFT with the fields that a user passes through in `training.trainer` and `training.peft`."""

from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import Field, fields
from typing import Any, Literal

from peft import LoraConfig
from pydantic import ConfigDict, PydanticUserError, TypeAdapter, ValidationError
from transformers import TrainingArguments

from evenhand.evaluation.errors import InputError, unknown_name
from evenhand.evaluation.models.revisions import first_line
from evenhand.mitigation.training.settings import TuningSettings

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
    """Return a value, converted to the type of the field, which the dataclasses of TRL and PEFT do not check.

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
