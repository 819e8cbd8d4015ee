"""Arguments of transformers' trainer and configs of LoRA adapters, from the settings of a tuning.

The settings `training.trainer` and `training.peft` contain further fields of the configs.
"""

import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig
from pydantic import ConfigDict, PydanticUserError, TypeAdapter, ValidationError
from transformers import TrainingArguments
from transformers.integrations.integration_utils import get_available_reporting_integrations
from transformers.pytorch_utils import Conv1D

from evenhand.evaluation.errors import InputError, first_line, unknown_name
from evenhand.evaluation.models.activation import INVOCATION
from evenhand.evaluation.runs import processes
from evenhand.mitigation.methods import TrainedMethod
from evenhand.mitigation.settings import TuningSettings
from evenhand.mitigation.trainers import TRAINERS

LOGS_PER_EVALUATION = 5
UPLOADS = re.compile("push_to_hub|hub_.*")  # arguments of transformers' trainer by which it uploads checkpoints
# Names of the parts of a model that read images or sounds, and that turn what they read into embeddings.
TOWER = re.compile(
    r"vision|visual|image|audio|speech|acoustic|video|multi_?modal|mm_projector|connector|aligner|embed_(?:vision|audio)"
)


def steps_per_epoch(settings: TuningSettings, n_train: int) -> int:
    """Return the number of optimizer steps in an epoch."""
    return math.ceil(math.ceil(n_train / settings.batch_size) / settings.gradient_accumulation_steps)


def trainer_config(
    method: TrainedMethod,
    settings: TuningSettings,
    n_train: int,
    device: torch.device,
    *,
    output_dir: Path = Path("checkpoints"),
    seed: int = 0,
    report_to: str = "none",
) -> TrainingArguments:
    """Return the arguments of a method's trainer, which are the same for a new and a resumed training.

    `settings.batch_size` counts the rows of all processes together; `n_train` is the number of training rows.

    Raises:
        InputError: transformers rejects a value.
    """
    for name in settings.trainer:
        if UPLOADS.fullmatch(name):
            raise InputError(
                f"training.trainer.{name}",
                "no checkpoint is uploaded; give push_to_hub to `evenhand export`.",
            )
        if name == "dataloader_drop_last":
            raise InputError(f"training.trainer.{name}", "it would drop validation rows, too; leave it out.")
    arguments = trainer_fields(settings, n_train, seed) | method.trainer_arguments()
    arguments |= {
        "output_dir": str(output_dir),
        "per_device_eval_batch_size": 4 * settings.batch_size // processes.world_size(),
        "use_cpu": device.type == "cpu",
        "dataloader_pin_memory": device.type == "cuda",
        "metric_for_best_model": "eval_loss",
        "greater_is_better": False,
        "restore_callback_states_from_checkpoint": True,  # the state of early stopping
        "disable_tqdm": True,
    }
    if "report_to" not in settings.trainer:  # another tracker of transformers, such as TensorBoard
        arguments["report_to"] = report_to
    for name in ("warmup_steps", "eval_delay"):  # of ours, which the user may replace: the share `warmup_ratio`, …
        if name in settings.trainer:
            del arguments[name]
    trainer = TRAINERS[method.trainer]
    arguments |= trainer.config_fields
    config = _build_config("training.trainer", trainer.config_class, arguments, settings.trainer, TrainingArguments)
    if "report_to" in settings.trainer:
        installed = get_available_reporting_integrations()
        unknown = [name for name in config.report_to if name not in installed]
        if unknown:
            raise InputError(
                "training.trainer.report_to",
                f"transformers knows no tracker {unknown[0]!r} that is installed here (there are "
                f"{', '.join(installed)}); install it, or give another.",
            )
    return config


def trainer_fields(settings: TuningSettings, n_train: int, seed: int) -> dict[str, Any]:
    """Return the arguments of a trainer that shape the trained weights, without those of `settings.trainer`.

    Raises:
        InputError: `batch_size` is not a multiple of the number of processes.
    """
    rows, remainder = divmod(settings.batch_size, processes.world_size())
    if remainder:
        raise InputError(
            "training.batch_size", f"{settings.batch_size} is not a multiple of {processes.world_size()} processes."
        )
    per_epoch = steps_per_epoch(settings, n_train)
    evaluate_every = max(1, per_epoch // settings.evaluations_per_epoch)
    # Every checkpoint is at a logged step, so that a resumed run logs the same losses.
    log_every = max(1, evaluate_every // LOGS_PER_EVALUATION)
    evaluate_every = evaluate_every // log_every * log_every
    warms_up = settings.warmup_ratio > 0 and (settings.epochs or 1) * per_epoch > 1
    return {
        "num_train_epochs": settings.epochs,
        "per_device_train_batch_size": rows,
        "learning_rate": settings.learning_rate,
        # The learning rate of the first warm-up step is 0: a single step would change nothing, and the weights after
        # the first of several are the base's, which must not be the best.
        "warmup_steps": settings.warmup_ratio if warms_up else 0,
        "eval_delay": 2 if warms_up else 0,
        "gradient_accumulation_steps": settings.gradient_accumulation_steps,
        "seed": seed,
        "bf16": settings.dtype == "bfloat16",
        "gradient_checkpointing": settings.gradient_checkpointing,
        "ddp_find_unused_parameters": False if settings.lora else None,  # an adapter is used in every step
        "logging_steps": log_every,
        "eval_strategy": "steps",
        "eval_steps": evaluate_every,
        "save_strategy": "steps",
        "save_steps": evaluate_every,
        "save_total_limit": 2,  # the last and the best checkpoint
        "load_best_model_at_end": True,
    }


def excluded_modules(network: torch.nn.Module) -> str | None:
    """Return a pattern of the modules that an adapter leaves alone by default; None if there are none.

    These are towers for images and sounds, which no text reaches, and the output projections of Mamba's layers, whose
    weights their kernels read past an adapter (PEFT refuses them).

    >>> excluded_modules(torch.nn.ModuleDict({"vision_tower": torch.nn.Linear(2, 2), "mlp": torch.nn.Linear(2, 2)}))
    '(.*\\\\.)?(vision_tower)(\\\\..*)?'
    """
    towers: set[str] = set()
    mixers: set[str] = set()
    for name, module in network.named_modules():
        last = name.rpartition(".")[2]
        if TOWER.search(last):
            towers.add(last)
        if hasattr(module, "A_log") and hasattr(module, "out_proj") and "Delta" not in type(module).__name__:
            mixers.add(last)
    patterns = []
    if towers:
        patterns.append(rf"(.*\.)?({any_name(towers)})(\..*)?")
    if mixers:
        patterns.append(rf"(.*\.)?({any_name(mixers)})\.(out_proj|conv1d)")
    return "|".join(patterns) or None


def any_name(names: Collection[str]) -> str:
    """Return a regular expression that matches any of the names."""
    return "|".join(re.escape(name) for name in sorted(names))


def lora_config(
    network: torch.nn.Module,
    settings: TuningSettings,
    token_ids: Collection[int] = (),
    invocation: Sequence[int] | None = None,
) -> LoraConfig:
    """Return the config of an adapter on all linear layers, or on the layers of `settings.peft`.

    The network may be on the meta device. The embeddings of `token_ids` are trained, too. With `invocation`, the
    adapter acts from these tokens of a context on.

    Raises:
        InputError: PEFT rejects a field of `settings.peft`.
    """
    ours = lora_fields(network, settings, token_ids)
    if invocation is not None:
        ours[INVOCATION] = list(invocation)
    return _build_config("training.peft", LoraConfig, ours, settings.peft, LoraConfig)


def lora_fields(network: torch.nn.Module, settings: TuningSettings, token_ids: Collection[int]) -> dict[str, Any]:
    """Return the fields of `lora_config` without those of `settings.peft`."""
    lora = {
        "r": settings.lora_rank,
        "lora_alpha": settings.lora_alpha,
        # GPT-2's layers have transposed weights.
        "fan_in_fan_out": any(isinstance(module, Conv1D) for module in network.modules()),
        "trainable_token_indices": sorted(token_ids) or None,
        "task_type": "SEQ_2_SEQ_LM" if network.config.is_encoder_decoder else "CAUSAL_LM",
    }
    if "target_modules" not in settings.peft:
        lora["target_modules"] = "all-linear"
    if "exclude_modules" not in settings.peft:
        excluded = excluded_modules(network)
        if excluded is not None:
            lora["exclude_modules"] = excluded
    return lora


def _build_config(group: str, cls: type, ours: Mapping[str, Any], theirs: Mapping[str, Any], known: type) -> Any:
    """Return a config with our fields and the user's, which are fields of `known`, a class from which `cls` derives.

    The dataclasses of transformers and PEFT check no types.
    """
    by_name = {field.name: field for field in fields(known) if field.init}
    values = dict(theirs)
    for name, value in theirs.items():
        if name not in by_name:
            raise unknown_name(f"{group}.{name}", name, by_name)
        if name in ours:
            raise InputError(f"{group}.{name}", f"Evenhand sets it ({ours[name]!r}); leave it out.")
        try:
            adapter = TypeAdapter(by_name[name].type, config=ConfigDict(arbitrary_types_allowed=True))
            values[name] = adapter.validate_python(value)
        except ValidationError as error:
            raise InputError(f"{group}.{name}", f"{value!r} cannot be used: {error.errors()[0]['msg']}.") from None
        except (PydanticUserError, NameError):  # a type that pydantic does not support
            pass
    try:
        return cls(**ours, **values)
    except (ValueError, TypeError, ImportError, NotImplementedError) as error:
        raise InputError(group, f"{first_line(error)}") from None
