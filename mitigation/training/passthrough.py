"""What is passed through to the libraries: any field of TRL's and PEFT's configs that Evenhand does not set itself."""

from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import fields
from difflib import get_close_matches
from typing import Any

from peft import LoraConfig
from pydantic import ConfigDict, PydanticUserError, TypeAdapter, ValidationError
from transformers import TrainingArguments

from evenhand.evaluation.errors import InputError, unknown_name
from evenhand.evaluation.models.revisions import first_line
from evenhand.mitigation.training.settings import TuningSettings

# The setting here for a field there, where it has another name.
SETTINGS = {
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
DEFAULTS = TuningSettings()
# What no setting is for, and would make another file of the adapter than it is taken for.
ADAPTER_FILE_FIELDS = ("base_model_name_or_path", "revision", "inference_mode", "peft_type", "auto_mapping")


def trainer_config(cls: type, arguments: Mapping[str, Any], settings: TuningSettings) -> TrainingArguments:
    """Return a trainer's config: what it is told, and `settings.trainer`.

    Raises:
        InputError: a field is unknown, is set already or cannot be used.
    """
    return _config("trainer", cls, arguments, settings.trainer, {*arguments, "optim", "activation_checkpointing"})


def adapter_config(arguments: Mapping[str, Any], settings: TuningSettings) -> LoraConfig:
    """Return the adapter's config: what it is told, and `settings.peft`; the layers are all linear ones if none are.

    Raises:
        InputError: a field is unknown, is set already or cannot be used.
    """
    passed = {"target_modules": "all-linear", **settings.peft}
    return _config("peft", LoraConfig, arguments, passed, {*arguments, *ADAPTER_FILE_FIELDS})


def _config(
    field: str, cls: type, arguments: Mapping[str, Any], passed: Mapping[str, Any], taken: Collection[str]
) -> Any:
    types = {each.name: each.type for each in fields(cls) if each.init}
    choices = {each.name: each.metadata.get("choices") for each in fields(cls)}  # which transformers' parser holds to
    checked = {}
    for name, value in passed.items():
        place = f"training.{field}.{name}"
        if name in taken:
            setting = SETTINGS.get(name, name)
            by = f"by training.{setting}" if hasattr(DEFAULTS, setting) else "by itself"
            raise InputError(f"{place}: Evenhand sets it {by}; leave it out.")
        if name not in types:
            close = get_close_matches(name, types)
            hint = (
                f"did you mean {' or '.join(map(repr, close))}?"
                if close
                else f"see its documentation in {cls.__name__}."
            )
            raise InputError(f"{place}: {cls.__name__} has no such field; {hint}")
        checked[name] = _of_its_type(place, types[name], value)
        if choices[name] and isinstance(checked[name], str) and checked[name] not in choices[name]:
            raise unknown_name(place, checked[name], choices[name])
    try:
        return cls(**arguments, **checked)
    except (ValueError, TypeError, ImportError, NotImplementedError) as error:
        raise InputError(f"training.{field}: {cls.__name__} refuses it: {first_line(error)}") from None


def _of_its_type(place: str, kind: Any, value: Any) -> Any:
    """Return a value as the field's type has it; types that pydantic cannot read are the library's to check."""
    with suppress(PydanticUserError, NameError):
        try:
            return TypeAdapter(kind, config=ConfigDict(arbitrary_types_allowed=True)).validate_python(value)
        except ValidationError as error:
            raise InputError(f"{place}: {value!r} cannot be used: {error.errors()[0]['msg']}.") from None
    return value
