"""Batches of training rows: the order of rows, which is repeated when training resumes, and the collators.

The collator of a causal model asks the model for logits at the responses alone. TRL's collator pads on the right, and
the output layer of a small model would take half of the time at positions without a loss.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Sampler
from transformers import Trainer

Batch = dict[str, torch.Tensor]

IGNORE_INDEX = -100  # the label of tokens without loss, the default of torch's cross_entropy
BATCHES_PER_POOL = 50  # rows of a pool are sorted by length: larger pools pad less, smaller ones mix better
LOGITS_TO_KEEP = "logits_to_keep"  # the argument of models: how many of the last positions have logits
NO_CACHE = {"use_cache": False}  # the argument of models: training generates nothing


class LengthGroupedSampler(Sampler):
    """Row order of an epoch: batches of rows of similar length, shuffled by the seed and the number of the epoch.

    The sampler of transformers depends on the global random state, which differs in a resumed training.
    """

    def __init__(self, lengths: Sequence[int], batch_size: int, seed: int) -> None:
        self.lengths = np.asarray(lengths)
        self.batch_size = batch_size
        self.seed = seed
        self.epoch = 0

    def __len__(self) -> int:
        return len(self.lengths)

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __iter__(self) -> Iterator[int]:
        rng = np.random.default_rng([self.seed, self.epoch])
        order = rng.permutation(len(self.lengths))
        size = self.batch_size
        pool_size = BATCHES_PER_POOL * size
        pools = [order[start : start + pool_size] for start in range(0, len(order), pool_size)]
        order = np.concatenate([pool[np.argsort(-self.lengths[pool], kind="stable")] for pool in pools])
        # Only the last batch may be short.
        n_whole = len(order) // size
        batches = [order[start : start + size] for start in rng.permutation(n_whole) * size]
        batches.append(order[n_whole * size :])
        yield from np.concatenate(batches).tolist()


def length_grouped_batches(trainer: Trainer, column: str = "input_ids") -> DataLoader:
    """Return the batches of a trainer's rows in the order of `LengthGroupedSampler`, also when training resumes.

    Rows are as long as their list in `column`.
    """
    arguments = trainer.args
    dataset: Any = trainer.train_dataset  # of the library `datasets`, whose class is none of torch
    lengths = [len(tokens) for tokens in dataset[column]]
    rows = arguments.train_batch_size * trainer.accelerator.num_processes  # accelerate splits a batch
    loader = DataLoader(
        dataset,
        batch_size=arguments.train_batch_size,
        sampler=LengthGroupedSampler(lengths, rows, arguments.seed),
        collate_fn=trainer.data_collator,
        pin_memory=arguments.dataloader_pin_memory,
    )
    return trainer.accelerator.prepare(loader)


def collate_causal(
    rows: Sequence[Mapping[str, list[int]]], pad_token_id: int, with_positions: bool
) -> dict[str, torch.Tensor | int]:
    """Return rows as a batch padded on the left: input_ids and attention_mask (b, t), labels (b, k).

    k is the length of the longest response plus 1; labels and logits are at the last k positions.
    """
    n_labels = 1 + max(sum(label != IGNORE_INDEX for label in row["labels"]) for row in rows)
    mask = padded([[1] * len(row["input_ids"]) for row in rows], 0, left=True)
    batch: dict[str, torch.Tensor | int] = {
        "input_ids": padded([row["input_ids"] for row in rows], pad_token_id, left=True),
        "attention_mask": mask,
        "labels": padded([row["labels"] for row in rows], IGNORE_INDEX, left=True)[:, -n_labels:],
        LOGITS_TO_KEEP: n_labels,
        **NO_CACHE,
    }
    if with_positions:
        batch["position_ids"] = (mask.cumsum(1) - 1).clamp(min=0)
    return batch


def collate_right(rows: Sequence[Mapping[str, list[int]]], pad_token_id: int) -> dict[str, torch.Tensor | int]:
    """Return rows as a batch padded on the right: input_ids and attention_mask (b, t), labels (b, k).

    For encoder-decoder models, and for recurrent models, whose k is t: they would read padding on the left.
    """
    return {
        "input_ids": padded([row["input_ids"] for row in rows], pad_token_id),
        "attention_mask": padded([[1] * len(row["input_ids"]) for row in rows], 0),
        "labels": padded([row["labels"] for row in rows], IGNORE_INDEX),
        **NO_CACHE,
    }


def cut_responses(
    sequences: Mapping[str, torch.Tensor], lengths: torch.Tensor, first_tokens: int
) -> tuple[Batch, torch.Tensor]:
    """Return the sequences with their responses cut after `first_tokens` tokens, and where the responses are.

    Args:
        sequences: input_ids, attention_mask and position_ids of `collate_causal`, as (rows, prompts, t).
        lengths: the number of tokens of each response, (rows).

    Returns:
        The cut sequences, padded on the left, and a mask (rows, k) of the last k positions, k being the length of the
        longest cut response: true where the position has a token of the response.
    """
    _, n_prompts, length = sequences["input_ids"].shape
    kept = lengths.clamp(max=first_tokens)
    n_cut = lengths - kept
    columns = torch.arange(length, device=lengths.device)
    # What remains of a sequence moves right by the tokens that are cut: the sequences still end together.
    source_column = (columns[n_cut.min() :] - n_cut[:, None])[:, None].expand(-1, n_prompts, -1)
    cut = {name: value.gather(2, source_column.clamp(min=0)) for name, value in sequences.items()}
    cut["attention_mask"] = cut["attention_mask"] * (source_column >= 0)
    is_kept = torch.arange(-int(kept.max()), 0, device=lengths.device) >= -kept[:, None]
    return cut, is_kept


def padded(rows: Sequence[list[int]], value: int, left: bool = False) -> torch.Tensor:
    """Return rows of different lengths as a tensor (rows, longest), padded with `value` on the right or on the left."""
    tensors = [torch.tensor(row) for row in rows]
    side = "left" if left else "right"
    return pad_sequence(tensors, batch_first=True, padding_value=value, padding_side=side)
