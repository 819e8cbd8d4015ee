"""GRPOTrainer on encoded contexts, which samples responses in training and learns from their rewards."""

import inspect
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from transformers import set_seed
from trl import GRPOConfig, GRPOTrainer

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.models.decoding import PRESETS
from evenhand.evaluation.models.loading import DialogueModel
from evenhand.mitigation.training.arguments import rows_per_process, trainer_config
from evenhand.mitigation.training.callbacks import preserve_random_states
from evenhand.mitigation.training.data import (
    COMPLETION,
    PROMPT,
    check_columns,
    max_positions,
    prompt_ids,
    response_ids,
)
from evenhand.mitigation.training.settings import TuningSettings

LOSS, NEEDS_LORA = "β × KL − reward, of a response", True
MAX_NEW_TOKENS = PRESETS["sample"]["max_new_tokens"]  # the same limit as in `evenhand measure`


def encode_rows(base: DialogueModel, rows: Dataset, settings: TuningSettings, seed: int) -> Dataset:
    """Return the rows with `prompt` as token ids, shuffled by `seed`; reward functions get the other columns.

    Raises:
        InputError: see `TrainerModule`; a sampled response may be too long for the model.
    """
    check_columns(rows, PROMPT, COMPLETION)
    rows = rows.select(np.random.default_rng(seed).permutation(len(rows)))
    prompts = prompt_ids(base, rows)
    response_ids(base, rows, COMPLETION, prompts)  # raises if a recorded response is too long
    limit, longest = max_positions(base), max(map(len, prompts)) + MAX_NEW_TOKENS
    if longest > limit:
        raise InputError(
            f"rows: a prompt with a response of {MAX_NEW_TOKENS} tokens has {longest}, and the context of {base.name} "
            f"has {limit}; leave out such rows."
        )
    return Dataset.from_dict({**rows.to_dict(), PROMPT: prompts})


def target_responses(rows: Dataset) -> tuple[list[str], list[str]]:
    """Return the contexts and recorded responses of all rows, which are dialogue but no targets of the rewards."""
    return list(rows[PROMPT]), list(rows[COMPLETION])


def build_config(common: dict[str, Any], settings: TuningSettings, train: Dataset) -> GRPOConfig:
    """Return the trainer's config. `batch_size` counts contexts, each with `num_generations` sampled responses."""
    contexts = rows_per_process(min(settings.batch_size, len(train)))
    sizes = {
        "per_device_train_batch_size": contexts * settings.num_generations,
        "per_device_eval_batch_size": 4 * contexts * settings.num_generations,
    }
    fields = {
        **common,
        **sizes,
        "num_generations": settings.num_generations,
        "max_completion_length": MAX_NEW_TOKENS,
        "beta": settings.preference_beta,
        # Not divided by their standard deviation in a group, as in the paper: rewards of a descriptor without bias,
        # whose standard deviation is noise, would have the same weight as rewards of a biased descriptor (Liu et al.
        # 2025, "Understanding R1-Zero-Like Training", show the same for easy and hard questions).
        "scale_rewards": "none",
        "shuffle_dataset": False,
        "disable_dropout": True,  # with dropout, two passes of the same model have a KL above 0
    }
    return trainer_config(GRPOConfig, fields, settings)


class Trainer(GRPOTrainer):
    """GRPOTrainer on encoded contexts that logs β × KL − reward, the minimised objective, as its loss.

    The value of TRL's loss is not meaningful, only its gradient, because rewards are centred in each group. The best
    checkpoint is chosen by the logged value.
    """

    def __init__(self, model: Any, *, data_collator: None, **arguments: Any) -> None:  # GRPOTrainer has no collator
        takes_positions = "position_ids" in inspect.signature(model.forward).parameters
        super().__init__(model, **arguments)
        if takes_positions:
            self.model.register_forward_pre_hook(add_position_ids, with_kwargs=True)

    # A private hook of TRL 1.16, which has no public argument for encoded prompts.
    def _tokenize_prompts(self, prompts: list[list[int]]) -> tuple[list[list[int]], None, dict[str, Any]]:
        return prompts, None, {}

    def _readable_loss(self, mode: str, last: int) -> float:
        """Return the mean of β × KL − reward per response over the `last` batches of a mode, or over all for 0."""
        # `_metrics` is private; TRL 1.16 publishes these values only when it logs the loss that they replace.
        names = ("reward", "kl", "completions/mean_length")
        reward, kl, length = (float(np.mean(self._metrics[mode][name][-last:])) for name in names)
        return self.beta * kl * length - reward

    def prediction_step(self, *arguments: Any, **keywords: Any) -> tuple[torch.Tensor, None, None]:
        loss, *_ = super().prediction_step(*arguments, **keywords)
        return loss.new_tensor(self._readable_loss("eval", 1)), None, None

    def evaluate(self, *arguments: Any, **keywords: Any) -> dict[str, float]:
        """Sample with the same random numbers in each validation, so that validations differ only by the model."""
        with preserve_random_states():
            set_seed(self.args.seed)
            return super().evaluate(*arguments, **keywords)

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        if "loss" in logs:
            logs["loss"] = self._readable_loss("train", 0)
        elif "eval_loss" not in logs:  # values of a callback: TRL's `log` would add the metrics of the steps
            return super(GRPOTrainer, self).log(logs, start_time)
        return super().log(logs, start_time)


def add_position_ids(model: torch.nn.Module, inputs: tuple, fields: dict[str, Any]) -> tuple[tuple, dict[str, Any]]:
    """Add `position_ids` to the inputs of a forward pass that scores sampled responses.

    TRL pads contexts on the left and passes no positions: models with learned absolute positions (GPT-2) would compute
    other probabilities than in generation.
    """
    if fields.get("fused_lm_head") and "position_ids" not in fields:  # TRL sets it for scoring, not in generation
        fields["position_ids"] = (fields["attention_mask"].cumsum(1) - 1).clamp(min=0)
    return inputs, fields
