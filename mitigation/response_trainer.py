"""SFTTrainer on responses: rows encoded as generation encodes them, the loss at the responses alone, fixed row orders.

This is where TRL's own way is left, and why: tokens that are the very ones of generation, half the time on a CPU, and
an order of rows that a run resumed after a kill finds again.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from torch.nn.functional import cross_entropy
from torch.utils.data import Sampler
from trl import SFTTrainer

from evaluation.errors import InputError
from evaluation.generation import encode_contexts
from evaluation.models import DialogueModel

PROMPT, COMPLETION = "prompt", "completion"
IGNORED = -100  # the label of a token that carries no loss, as in torch's cross_entropy
POOL = 50  # batches whose rows are sorted by length together: enough to be alike, few enough to be drawn at random


def encode_rows(base: DialogueModel, rows: Dataset) -> Dataset:
    """Return the rows as `input_ids` (context, response, EOS) and `labels`, the same with the context ignored.

    The context is encoded as it is for generation and the response apart from it, as it comes about token by token,
    so that the model is tuned on the very tokens it will see. TRL would encode both as one string, with special
    tokens of its own (a second BOS after a chat template's), and takes ten times as long.

    Raises:
        InputError: there are no rows, a column is missing, a row is too long for the model, or two prompts that
            differ are the same to the tokenizer.
    """
    for name in (PROMPT, COMPLETION):
        if name not in rows.column_names:
            raise InputError(f"rows: no column {name!r}; there are {', '.join(rows.column_names) or 'none'}.")
    if not len(rows):
        raise InputError("rows: there are none to train or to validate on.")
    distinct = list(dict.fromkeys(rows[PROMPT]))
    tokens_of = dict(zip(distinct, encode_contexts(base, distinct), strict=True))
    if len({tuple(tokens) for tokens in tokens_of.values()}) < len(distinct):
        raise InputError(
            f"model: to the tokenizer of {base.name} some prompts that differ are the same, perhaps in their control "
            "tag; it has no tokens for them, so they cannot be told apart in tuning."
        )
    prompts = [tokens_of[prompt] for prompt in rows[PROMPT]]
    completions = base.tokenizer(list(rows[COMPLETION]), add_special_tokens=False)["input_ids"]
    end = [base.tokenizer.eos_token_id]
    pairs = list(zip(prompts, completions, strict=True))
    longest = 1 + max(len(prompt) + len(completion) for prompt, completion in pairs)
    room = getattr(base.model.config, "max_position_embeddings", None)
    if room is not None and longest > room:
        raise InputError(f"rows: one has {longest} tokens, {base.name} has room for {room}; leave such rows out.")
    return Dataset.from_dict(
        {
            "input_ids": [prompt + completion + end for prompt, completion in pairs],
            "labels": [[IGNORED] * len(prompt) + completion + end for prompt, completion in pairs],
        }
    )


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
        pools = [order[start : start + POOL * size] for start in range(0, len(order), POOL * size)]
        order = np.concatenate([pool[np.argsort(-self.lengths[pool], kind="stable")] for pool in pools])
        # Only the last batch may be short.
        starts = random_order.permutation(len(order) // size) * size
        batches = [order[start : start + size] for start in starts] + [order[len(order) // size * size :]]
        yield from np.concatenate(batches).tolist()


class ResponseTrainer(SFTTrainer):
    """SFTTrainer with the same loss, computed at the responses alone, and row orders that survive a kill.

    On CPUs, SFTTrainer runs the output layer at every position, the context's too, in tiles: half of a small model's
    time. Here responses stand at the right end of the batch and the model's own forward keeps the last positions.
    """

    def compute_loss(
        self, model: Any, inputs: dict[str, Any], return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> torch.Tensor:
        labels = inputs["labels"]
        inputs = {name: value for name, value in inputs.items() if name != "labels"}
        logits = model(**inputs, use_cache=False, logits_to_keep=labels.shape[1]).logits
        # The logits at a position are of the next token.
        loss = cross_entropy(logits[:, :-1].flatten(0, 1).float(), labels[:, 1:].flatten(), reduction="sum")
        return loss / ((labels[:, 1:] != IGNORED).sum() if num_items_in_batch is None else num_items_in_batch)

    def create_model_card(self, *args: Any, **kwargs: Any) -> None:
        """Write none: every checkpoint would get one, in a third of the time that a checkpoint takes."""

    def _get_train_sampler(self, train_dataset: Dataset | None = None) -> LengthGroupedSampler:
        rows = self.train_dataset if train_dataset is None else train_dataset
        lengths = [len(tokens) for tokens in rows["input_ids"]]
        return LengthGroupedSampler(lengths, self.args.train_batch_size, self.args.seed)


def collate(
    rows: Sequence[Mapping[str, list[int]]], pad_token_id: int, with_positions: bool
) -> dict[str, torch.Tensor]:
    """Return rows as a batch that ends on the right: input_ids and attention_mask (b, t), labels (b, k).

    The labels are of the last k positions: those of the longest response and the one before it.
    """
    width = max(len(row["input_ids"]) for row in rows)
    kept = 1 + max(sum(label != IGNORED for label in row["labels"]) for row in rows)

    def padded(name: str, value: int) -> torch.Tensor:
        return torch.tensor([[value] * (width - len(row[name])) + row[name] for row in rows])

    mask = torch.tensor([[0] * (width - len(row["input_ids"])) + [1] * len(row["input_ids"]) for row in rows])
    batch = {
        "input_ids": padded("input_ids", pad_token_id),
        "attention_mask": mask,
        "labels": padded("labels", IGNORED)[:, -kept:],
    }
    if with_positions:
        batch["position_ids"] = (mask.cumsum(1) - 1).clamp(min=0)
    return batch
