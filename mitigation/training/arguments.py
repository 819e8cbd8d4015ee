"""What a trainer is told: settings → the arguments that all of TRL's trainers share, and PEFT's of the adapter."""

import math
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig
from transformers import SchedulerType
from transformers.pytorch_utils import Conv1D
from transformers.training_args import OptimizerNames

from evenhand.evaluation.errors import InputError, unknown_name
from evenhand.evaluation.models.loading import DialogueModel
from evenhand.evaluation.runs import processes
from evenhand.mitigation.training.passthrough import adapter_config
from evenhand.mitigation.training.settings import TuningSettings

LOGS_PER_EVALUATION = 5


def steps_per_epoch(settings: TuningSettings, n_train: int) -> int:
    """Return how many steps a pass over the rows takes."""
    return math.ceil(math.ceil(n_train / settings.batch_size) / settings.gradient_accumulation_steps)


def training_arguments(
    settings: TuningSettings,
    seed: int,
    n_train: int,
    checkpoints: Path,
    report_to: str,
    run_name: str | None,
    device: torch.device,
) -> dict[str, Any]:
    """Return what all trainers are told, whether they start or go on; they train on the device of the base.

    A batch is that of all processes together.

    Raises:
        InputError: there is no such optimizer or scheduler; the rows of a batch are no multiple of the processes.
    """
    for name, kinds in (("optimizer", OptimizerNames), ("scheduler", SchedulerType)):
        if (value := getattr(settings, name)) is not None and value not in (allowed := [kind.value for kind in kinds]):
            raise unknown_name(f"training.{name}", value, allowed)
    rows = rows_per_process("batch_size", settings.batch_size)
    per_epoch = steps_per_epoch(settings, n_train)
    evaluate_every = max(1, per_epoch // settings.evaluations_per_epoch)
    # Every checkpoint is at a logged step, so that a resumed run logs the same losses.
    log_every = max(1, evaluate_every // LOGS_PER_EVALUATION)
    evaluate_every = evaluate_every // log_every * log_every
    return {
        "output_dir": str(checkpoints),
        "num_train_epochs": settings.epochs,
        "per_device_train_batch_size": rows,
        "per_device_eval_batch_size": 4 * rows,
        "learning_rate": settings.learning_rate,
        "weight_decay": settings.weight_decay,
        # The first step of a warm-up is at a rate of 0; where there is one step alone, nothing would be learned.
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
        "save_total_limit": 2,  # the last and the best
        "load_best_model_at_end": True,
        "metric_for_best_model": "eval_loss",
        "greater_is_better": False,
        "restore_callback_states_from_checkpoint": True,  # the patience that is left
        "disable_tqdm": True,
        "report_to": "wandb" if report_to == "wandb" else "none",  # TensorBoard's callback is ours
        "run_name": run_name,
    }


def rows_per_process(setting: str, rows: int) -> int:
    """Return how many rows of a batch each process has.

    Raises:
        InputError: they cannot be dealt out evenly.
    """
    if rows % processes.world_size():
        raise InputError(
            f"training.{setting}: {rows} rows cannot be dealt out evenly to {processes.world_size()} processes; give a "
            f"multiple of {processes.world_size()}."
        )
    return rows // processes.world_size()


def lora_config(base: DialogueModel, tags: Sequence[str], settings: TuningSettings) -> LoraConfig:
    """Return the adapter: on all linear layers, or on those of `settings.peft`, and on the embeddings of `tags`.

    Raises:
        InputError: its rank is above that of any layer; `settings.peft` has what PEFT's config has not.
    """
    tokens = {token for tag in tags for token in base.tokenizer(tag, add_special_tokens=False)["input_ids"]}
    return adapter_of(base.model, base.name, tokens, settings)


def adapter_of(network: torch.nn.Module, name: str, tokens: Collection[int], settings: TuningSettings) -> LoraConfig:
    """Return the adapter of a network that is called `name`, which need have no weights; `tokens` are embedded anew.

    Raises:
        InputError: see `lora_config`.
    """
    full = max(map(_rank, network.modules()))
    if settings.lora_rank > full:
        raise InputError(
            f"training.lora_rank: {settings.lora_rank} is more than {full}, the full rank of the layers of "
            f"{name}; give a lower one, or lora: false."
        )
    lora_fields = {
        "r": settings.lora_rank,
        "lora_alpha": settings.lora_alpha,
        # GPT-2's layers hold their weights transposed.
        "fan_in_fan_out": any(isinstance(module, Conv1D) for module in network.modules()),
        "trainable_token_indices": sorted(tokens) or None,
        "task_type": "SEQ_2_SEQ_LM" if network.config.is_encoder_decoder else "CAUSAL_LM",
    }
    return adapter_config(lora_fields, settings)


def _rank(module: torch.nn.Module) -> int:
    """Return the full rank of a layer that an adapter goes onto; 0 for any other. Quantized weights are packed."""
    if isinstance(module, torch.nn.Linear):
        return min(module.in_features, module.out_features)
    return min(module.weight.shape) if isinstance(module, Conv1D) else 0
