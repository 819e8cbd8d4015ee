"""Distillation: the model learns the mean of its base's predictions for several prompts, after each of the prompts."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from datasets import Dataset
from torch.nn.functional import kl_div, log_softmax
from trl import SFTConfig
from trl.trainer.utils import disable_dropout_in_model

from evenhand.evaluation.models.loading import DialogueModel
from evenhand.mitigation.settings import TuningSettings
from evenhand.mitigation.trainers.sft import IGNORE_INDEX, SFT
from evenhand.mitigation.training_rows import COMPLETION, PROMPT, prompt_ids, response_ids

OTHERS = "others"


@dataclass
class DistillConfig(SFTConfig):
    """TRL's config, and the number of first tokens of a response that learn the mean; None: all of its tokens."""

    opening: int | None = None


class Distill(SFT):
    """Trainer that minimises the KL divergence of the model's predictions from the mean of the base's predictions.

    The mean of log-probabilities, normalised, is the distribution with the smallest mean KL divergence from the
    predictions for the single prompts. With an `opening` of m tokens, it is the target of the first m tokens of a
    response; the target of every later token is the base's own prediction after the same prompt.
    """

    config_class = DistillConfig
    loss_name = "KL from the mean of the base's predictions, in nats per response token"
    needs_lora, supports_encoder_decoder = True, False

    def __init__(self, model: Any, **arguments: Any) -> None:
        super().__init__(model, **arguments)
        disable_dropout_in_model(self.model)  # with dropout, two passes of the same model have a KL above 0

    @staticmethod
    def encode_rows(base: DialogueModel, rows: Dataset, settings: TuningSettings, seed: int) -> Dataset:
        """Return the rows as `input_ids`, lists of ids: each prompt of the row with the response, and `labels`."""
        groups = [[prompt, *others] for prompt, others in zip(rows[PROMPT], rows[OTHERS], strict=True)]
        flat = iter(prompt_ids(base, Dataset.from_dict({PROMPT: [prompt for group in groups for prompt in group]})))
        prompts = [[next(flat) for _ in group] for group in groups]
        completions = response_ids(base, rows, COMPLETION, [max(group, key=len) for group in prompts])
        pairs = list(zip(prompts, completions, strict=True))
        ids = [[prompt + response for prompt in group] for group, response in pairs]
        labels = [[[IGNORE_INDEX] * len(prompt) + response for prompt in group] for group, response in pairs]
        return Dataset.from_dict({"input_ids": ids, "labels": labels})

    @staticmethod
    def config_fields(settings: TuningSettings, train: Dataset) -> dict[str, Any]:
        return {**SFT.config_fields(settings, train), "opening": settings.opening}

    @staticmethod
    def collator(base: DialogueModel, pad_token_id: int) -> Callable[[Sequence[Mapping[str, Any]]], dict[str, Any]]:
        """Return the function that collates b rows of n prompts into b · n sequences; `labels` are (b, n, length)."""
        collate = SFT.collator(base, pad_token_id)

        def collate_rows(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
            sequences = [
                {"input_ids": ids, "labels": labels}
                for row in rows
                for ids, labels in zip(row["input_ids"], row["labels"], strict=True)
            ]
            batch = collate(sequences)
            return {**batch, "labels": batch["labels"].unflatten(0, (len(rows), -1))}

        return collate_rows

    def compute_loss(
        self, model: Any, inputs: dict[str, Any], return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> torch.Tensor:
        labels = inputs["labels"]
        is_trained = labels[:, 0, 1:] != IGNORE_INDEX  # the prompts of a row have the same response
        inputs = {name: value for name, value in inputs.items() if name != "labels"}

        def log_probabilities() -> torch.Tensor:
            """Return the log-probabilities of all tokens at the trained positions, (prompts, positions, vocabulary)."""
            logits = model(**inputs, use_cache=False, logits_to_keep=labels.shape[2]).logits[:, :-1]
            logits = logits.unflatten(0, labels.shape[:2]).transpose(0, 1)[:, is_trained]
            return log_softmax(logits.float(), -1)

        with torch.no_grad(), self.accelerator.unwrap_model(model).disable_adapter():
            own = log_probabilities()
            target = log_softmax(own.mean(0), -1).expand_as(own)
            if self.args.opening is not None:
                is_opening = is_trained.cumsum(1)[is_trained] <= self.args.opening
                target = torch.where(is_opening[:, None], target, own)
        loss = kl_div(log_probabilities(), target, reduction="sum", log_target=True)
        n_tokens = is_trained.sum() * labels.shape[1] if num_items_in_batch is None else num_items_in_batch
        return loss * (1 if num_items_in_batch is None else self.accelerator.num_processes) / n_tokens
