"""GRPOTrainer on contexts: it draws responses from the model as it is, and learns from how they are rewarded."""

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
from evenhand.mitigation.training.arguments import rows_per_process
from evenhand.mitigation.training.callbacks import preserve_random_states
from evenhand.mitigation.training.passthrough import trainer_config
from evenhand.mitigation.training.settings import TuningSettings
from evenhand.mitigation.training.trainers.encoding import COMPLETION, PROMPT, check_columns, prompt_ids, response_ids

LOSS, NEEDS_REFERENCE, SUPPORTS_ENCODER_DECODER = "β × KL − reward, of a response", False, False
MAX_NEW_TOKENS = PRESETS["sample"]["max_new_tokens"]  # of the responses that are drawn: those that are measured


def encode_rows(base: DialogueModel, rows: Dataset, settings: TuningSettings, seed: int) -> Dataset:
    """Return the rows with `prompt` as token ids, in an order drawn by the seed; all else is what rewards are told.

    Raises:
        InputError: there are no rows, a column is missing, a row or a new response is too long for the model, two
            prompts that differ are the same to the tokenizer, or no adapter is trained.
    """
    check_columns(rows, PROMPT, COMPLETION)
    if not settings.lora:
        raise InputError(
            "lora: false; TRL's GRPO trainer holds the model against itself without the adapter, so one is needed."
        )
    rows = rows.select(np.random.default_rng(seed).permutation(len(rows)))
    prompts = prompt_ids(base, rows)
    response_ids(base, rows, COMPLETION, prompts)  # the recorded ones have room
    room, longest = getattr(base.model.config, "max_position_embeddings", None), max(map(len, prompts)) + MAX_NEW_TOKENS
    if room is not None and longest > room:
        raise InputError(
            f"rows: a prompt with a response of {MAX_NEW_TOKENS} tokens has {longest}, and the context of {base.name} "
            f"has {room}; leave out such rows."
        )
    return Dataset.from_dict({**rows.to_dict(), PROMPT: prompts})


def target_responses(rows: Dataset) -> tuple[list[str], list[str]]:
    """Return the contexts and recorded responses of all rows: none is wanted, but all are ordinary dialogue."""
    return list(rows[PROMPT]), list(rows[COMPLETION])


def arguments(common: dict[str, Any], settings: TuningSettings, train: Dataset) -> GRPOConfig:
    """Return the trainer's settings; `batch_size` counts contexts, each of which gets `num_generations` responses."""
    contexts = rows_per_process("batch_size", min(settings.batch_size, len(train)))
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
        # Rewards as they are: divided by their spread in a group, as in the paper, they would count as much for a
        # descriptor without bias, where that spread is noise, as for one with much (Liu et al. 2025, "Understanding
        # R1-Zero-Like Training", find the same for easy and hard questions).
        "scale_rewards": "none",
        "shuffle_dataset": False,
        "disable_dropout": True,  # it makes another model of each pass, and the distance between two passes is the KL
    }
    return trainer_config(GRPOConfig, fields, settings)


def data_collator(base: DialogueModel, pad_token_id: int) -> None:
    """Return None: TRL's own leaves rows as they are."""


class Trainer(GRPOTrainer):
    """GRPOTrainer on contexts that are encoded already, whose loss can be read.

    Its own loss has a gradient that means something and a value that does not, as rewards are centred in each group.
    What is logged, and what the best weights are chosen by, is β × KL − reward, whose expectation is minimised.
    """

    def __init__(self, model: Any, *, data_collator: None, **arguments: Any) -> None:
        takes_positions = "position_ids" in inspect.signature(model.forward).parameters
        super().__init__(model, **arguments)
        if takes_positions:
            self.model.register_forward_pre_hook(add_position_ids, with_kwargs=True)

    # Private hooks of TRL 1.16: rows are encoded, and it keeps what it measured in `_metrics`.
    def _tokenize_prompts(self, prompts: list[list[int]]) -> tuple[list[list[int]], None, dict[str, Any]]:
        return prompts, None, {}

    def _readable_loss(self, mode: str, last: int) -> float:
        """Return β × KL − reward of a response, on average over the last batches of a mode."""
        names = ("reward", "kl", "completions/mean_length")
        reward, kl, length = (float(np.mean(self._metrics[mode][name][-last:])) for name in names)
        return self.beta * kl * length - reward

    def prediction_step(self, *arguments: Any, **further: Any) -> tuple[torch.Tensor, None, None]:
        loss, *_ = super().prediction_step(*arguments, **further)
        return loss.new_tensor(self._readable_loss("eval", 1)), None, None

    def evaluate(self, *arguments: Any, **further: Any) -> dict[str, float]:
        """Draw with the same random numbers each time, so that two validations differ by the model alone."""
        with preserve_random_states():
            set_seed(self.args.seed)
            return super().evaluate(*arguments, **further)

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        if "loss" in logs:
            logs["loss"] = self._readable_loss("train", 0)
        elif "eval_loss" not in logs:  # a callback's, which must not take what was measured of the steps for its own
            return super(GRPOTrainer, self).log(logs, start_time)
        return super().log(logs, start_time)

    def create_model_card(self, *args: Any, **kwargs: Any) -> None:
        """Write none: every checkpoint would get one, and ours is written once, with what was measured."""


def add_position_ids(model: torch.nn.Module, inputs: tuple, fields: dict[str, Any]) -> tuple[tuple, dict[str, Any]]:
    """Give a forward pass over whole rows the position of each token in its row.

    Contexts are padded on the left, and the trainer leaves positions out: models that learned absolute positions
    (GPT-2) would score other tokens than were drawn.
    """
    if fields.get("fused_lm_head") and "position_ids" not in fields:  # what the trainer scores by; not generation
        fields["position_ids"] = (fields["attention_mask"].cumsum(1) - 1).clamp(min=0)
    return inputs, fields
