"""SFTTrainer on responses: rows encoded as generation encodes them, the loss at the responses alone, fixed row orders.

This is where TRL's own way is left, and why: tokens that are the very ones of generation, half the time on a CPU, an
order of rows that a run resumed after a kill finds again, and encoder-decoder models.
"""

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, Sampler
from trl import SFTConfig, SFTTrainer

from evenhand.evaluation.models.loading import DialogueModel
from evenhand.mitigation.training.passthrough import trainer_config
from evenhand.mitigation.training.settings import TuningSettings
from evenhand.mitigation.training.trainers.encoding import COMPLETION, PROMPT, check_columns, prompt_ids, response_ids

IGNORE_INDEX = -100  # the label of a token that carries no loss, as in torch's cross_entropy
LOSS, NEEDS_REFERENCE, SUPPORTS_ENCODER_DECODER = "nats per response token", False, True
BATCHES_PER_POOL = 50  # rows of a pool are sorted by length: larger pools pad less, smaller ones mix better


def encode_rows(base: DialogueModel, rows: Dataset, settings: TuningSettings, seed: int) -> Dataset:
    """Return the rows as `input_ids` (context, response, EOS) and `labels`, the same with the context ignored.

    For an encoder-decoder model, `input_ids` are the context's alone and `labels` the response's.

    Raises:
        InputError: there are no rows, a column is missing, a row is too long for the model, or two prompts that
            differ are the same to the tokenizer.
    """
    check_columns(rows, PROMPT, COMPLETION)
    prompts = prompt_ids(base, rows)
    completions = response_ids(base, rows, COMPLETION, prompts)
    if base.kind == "encoder_decoder":
        return Dataset.from_dict({"input_ids": prompts, "labels": completions})
    pairs = list(zip(prompts, completions, strict=True))
    return Dataset.from_dict(
        {
            "input_ids": [prompt + completion for prompt, completion in pairs],
            "labels": [[IGNORE_INDEX] * len(prompt) + completion for prompt, completion in pairs],
        }
    )


def target_responses(rows: Dataset) -> tuple[list[str], list[str]]:
    """Return the contexts and responses of all rows."""
    return list(rows[PROMPT]), list(rows[COMPLETION])


def arguments(common: dict[str, Any], settings: TuningSettings, train: Dataset) -> SFTConfig:
    """Return the trainer's settings."""
    # Rows are encoded already, and none may be cut short in silence; the loss is ours, whatever else is asked for.
    own_loss = {"loss_type": "nll", "label_smoothing_factor": 0.0}
    fields = {**common, **own_loss, "max_length": None, "dataset_kwargs": {"skip_prepare_dataset": True}}
    return trainer_config(SFTConfig, fields, settings)


def data_collator(base: DialogueModel, pad_token_id: int) -> Callable[[Sequence[Mapping[str, Any]]], dict[str, Any]]:
    """Return what makes a batch of rows."""
    if base.kind == "encoder_decoder":
        return partial(collate_encoder_decoder, pad_token_id=pad_token_id)
    with_positions = "position_ids" in inspect.signature(base.model.forward).parameters
    return partial(collate_causal, pad_token_id=pad_token_id, with_positions=with_positions)


class LengthGroupedSampler(Sampler):
    """Row order of an epoch: batches of near-equal length, drawn anew each epoch from the seed and its number alone.

    The one of transformers draws from the global generator, which a resumed run finds in another state.
    """

    def __init__(self, lengths: Sequence[int], batch_size: int, seed: int) -> None:
        self.lengths, self.batch_size, self.seed, self.epoch = np.asarray(lengths), batch_size, seed, 0

    def __len__(self) -> int:
        return len(self.lengths)

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __iter__(self) -> Iterator[int]:
        random_order = np.random.default_rng([self.seed, self.epoch])
        order, size = random_order.permutation(len(self.lengths)), self.batch_size
        pool_size = BATCHES_PER_POOL * size
        pools = [order[start : start + pool_size] for start in range(0, len(order), pool_size)]
        order = np.concatenate([pool[np.argsort(-self.lengths[pool], kind="stable")] for pool in pools])
        # Only the last batch may be short.
        starts = random_order.permutation(len(order) // size) * size
        batches = [order[start : start + size] for start in starts] + [order[len(order) // size * size :]]
        yield from np.concatenate(batches).tolist()


class Trainer(SFTTrainer):
    """SFTTrainer with the same loss, computed at the responses alone, and row orders that survive a kill.

    On CPUs, SFTTrainer runs the output layer at every position, the context's too, in tiles: half of a small model's
    time. Here responses stand at the right end of the batch and the model's own forward keeps the last positions.
    """

    def compute_loss(
        self, model: Any, inputs: dict[str, Any], return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> torch.Tensor:
        labels = inputs["labels"]
        if self.model.config.is_encoder_decoder:
            logits = model(**inputs, use_cache=False).logits  # the model shifts the labels to the right itself
        else:
            inputs = {name: value for name, value in inputs.items() if name != "labels"}
            logits = model(**inputs, use_cache=False, logits_to_keep=labels.shape[1]).logits[:, :-1]
            labels = labels[:, 1:]  # the logits at a position are of the next token
        loss = cross_entropy(logits.flatten(0, 1).float(), labels.flatten(), reduction="sum")
        if num_items_in_batch is None:
            return loss / (labels != IGNORE_INDEX).sum()
        # Those of all processes, whose gradients are averaged.
        return loss * self.accelerator.num_processes / num_items_in_batch

    def create_model_card(self, *args: Any, **kwargs: Any) -> None:
        """Write none: every checkpoint would get one, and ours is written once, with what was measured."""

    def get_train_dataloader(self) -> DataLoader:
        lengths = [len(tokens) for tokens in self.train_dataset["input_ids"]]
        rows = self.args.train_batch_size * self.accelerator.num_processes  # a batch of theirs is dealt out in turns
        loader = DataLoader(
            self.train_dataset,
            batch_size=self.args.train_batch_size,
            sampler=LengthGroupedSampler(lengths, rows, self.args.seed),
            collate_fn=self.data_collator,
            pin_memory=self.args.dataloader_pin_memory,
        )
        return self.accelerator.prepare(loader)


def collate_causal(
    rows: Sequence[Mapping[str, list[int]]], pad_token_id: int, with_positions: bool
) -> dict[str, torch.Tensor]:
    """Return rows as a batch that ends on the right: input_ids and attention_mask (b, t), labels (b, k).

    The labels are of the last k positions: those of the longest response and the one before it.
    """
    width = max(len(row["input_ids"]) for row in rows)
    kept = 1 + max(sum(label != IGNORE_INDEX for label in row["labels"]) for row in rows)

    def padded(name: str, value: int) -> torch.Tensor:
        return torch.tensor([[value] * (width - len(row[name])) + row[name] for row in rows])

    mask = torch.tensor([[0] * (width - len(row["input_ids"])) + [1] * len(row["input_ids"]) for row in rows])
    batch = {
        "input_ids": padded("input_ids", pad_token_id),
        "attention_mask": mask,
        "labels": padded("labels", IGNORE_INDEX)[:, -kept:],
    }
    if with_positions:
        batch["position_ids"] = (mask.cumsum(1) - 1).clamp(min=0)
    return batch


def collate_encoder_decoder(rows: Sequence[Mapping[str, list[int]]], pad_token_id: int) -> dict[str, torch.Tensor]:
    """Return rows of an encoder-decoder model as a batch: input_ids and attention_mask (b, t), labels (b, k)."""

    def padded(name: str, value: int) -> torch.Tensor:
        width = max(len(row[name]) for row in rows)
        return torch.tensor([row[name] + [value] * (width - len(row[name])) for row in rows])

    lengths = torch.tensor([len(row["input_ids"]) for row in rows])
    ids = padded("input_ids", pad_token_id)
    mask = (torch.arange(ids.shape[1])[None] < lengths[:, None]).long()
    return {"input_ids": ids, "attention_mask": mask, "labels": padded("labels", IGNORE_INDEX)}
