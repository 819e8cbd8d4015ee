"""The trainers, by the names in `Method.trainer`: fine-tuning on responses, and distillation.

Unlike TRL's SFTTrainer, they use the same tokens as generation, are twice as fast on a CPU, repeat the order of rows in
a resumed training, and support encoder-decoder models.
"""

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from torch.nn.functional import cross_entropy, kl_div, log_softmax
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Sampler
from trl import SFTConfig, SFTTrainer
from trl.trainer.utils import disable_dropout_in_model

from evenhand.evaluation.models.loading import DialogueModel
from evenhand.mitigation.labelled_responses import PROMPT
from evenhand.mitigation.settings import TuningSettings
from evenhand.mitigation.training_rows import prompt_ids, response_ids

N_LEARNERS = 2  # the prompts of a row of `distill` that the model is trained on; more take longer and teach hardly more
IGNORE_INDEX = -100  # the label of tokens without loss, the default of torch's cross_entropy
BATCHES_PER_POOL = 50  # rows of a pool are sorted by length: larger pools pad less, smaller ones mix better


class LengthGroupedSampler(Sampler):
    """Row order of an epoch: batches of rows of similar length, shuffled by the seed and the number of the epoch.

    The sampler of transformers depends on the global random state, which differs in a resumed training.
    """

    def __init__(self, lengths: Sequence[int], batch_size: int, seed: int) -> None:
        self.lengths, self.batch_size, self.seed, self.epoch = np.asarray(lengths), batch_size, seed, 0

    def __len__(self) -> int:
        return len(self.lengths)

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __iter__(self) -> Iterator[int]:
        rng = np.random.default_rng([self.seed, self.epoch])
        order, size = rng.permutation(len(self.lengths)), self.batch_size
        pool_size = BATCHES_PER_POOL * size
        pools = [order[start : start + pool_size] for start in range(0, len(order), pool_size)]
        order = np.concatenate([pool[np.argsort(-self.lengths[pool], kind="stable")] for pool in pools])
        # Only the last batch may be short.
        starts = rng.permutation(len(order) // size) * size
        batches = [order[start : start + size] for start in starts] + [order[len(order) // size * size :]]
        yield from np.concatenate(batches).tolist()


class SFT(SFTTrainer):
    """TRL's SFTTrainer that computes logits only at the responses, and repeats the row order when training resumes.

    On CPUs, SFTTrainer computes the output layer at every position, which takes half of a small model's time. Here,
    rows are padded on the left, and `logits_to_keep` limits the output layer to the last positions.

    Attributes:
        config_class, loss_name: the trainer's config in TRL, and the unit of its loss.
        only_lora: whether training needs the model without its adapter, so that not all weights can be trained.
        supports_encoder_decoder: whether the trainer supports encoder-decoder models.
    """

    config_class: type[SFTConfig] = SFTConfig
    loss_name = "nats per response token"
    only_lora, supports_encoder_decoder = False, True

    @staticmethod
    def encode_rows(base: DialogueModel, rows: Dataset) -> Dataset:
        """Return the rows as `input_ids` (context, response, EOS) and `labels`, which are IGNORE_INDEX in the context.

        For an encoder-decoder model, `input_ids` come from the context, and `labels` from the response.

        Raises:
            InputError: a row is too long for the model, or the tokenizer encodes different prompts as the same tokens.
        """
        prompts = prompt_ids(base, rows[PROMPT])
        completions = response_ids(base, rows, prompts)
        if base.kind == "encoder_decoder":
            return Dataset.from_dict({"input_ids": prompts, "labels": completions})
        pairs = list(zip(prompts, completions, strict=True))
        ids = [prompt + completion for prompt, completion in pairs]
        labels = [[IGNORE_INDEX] * len(prompt) + completion for prompt, completion in pairs]
        return Dataset.from_dict({"input_ids": ids, "labels": labels})

    @staticmethod
    def config_fields(settings: TuningSettings) -> dict[str, Any]:
        """Return the fields of the config that only this trainer has."""
        loss = {"loss_type": "nll", "label_smoothing_factor": 0.0}  # `compute_loss` has no other loss
        return {**loss, "max_length": None, "dataset_kwargs": {"skip_prepare_dataset": True}}

    @staticmethod
    def collator(base: DialogueModel, pad_token_id: int) -> Callable[[Sequence[Mapping[str, Any]]], dict[str, Any]]:
        """Return the function that collates encoded rows into a batch."""
        if base.kind == "encoder_decoder":
            return partial(collate_encoder_decoder, pad_token_id=pad_token_id)
        with_positions = "position_ids" in inspect.signature(base.model.forward).parameters
        return partial(collate_causal, pad_token_id=pad_token_id, with_positions=with_positions)

    def compute_loss(
        self, model: Any, inputs: dict[str, Any], return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> torch.Tensor:
        labels = inputs["labels"]
        if self.model.config.is_encoder_decoder:
            logits = model(**inputs, use_cache=False).logits  # the model shifts the labels to the right itself
        else:
            inputs = {name: value for name, value in inputs.items() if name != "labels"}
            logits = model(**inputs, use_cache=False, logits_to_keep=labels.shape[1]).logits[:, :-1]
            labels = labels[:, 1:]  # logits predict the next token
        loss = cross_entropy(logits.flatten(0, 1).float(), labels.flatten(), reduction="sum")
        if num_items_in_batch is None:
            return loss / (labels != IGNORE_INDEX).sum()
        # num_items_in_batch counts the tokens of all processes, whose gradients are averaged.
        return loss * self.accelerator.num_processes / num_items_in_batch

    def get_train_dataloader(self) -> DataLoader:
        lengths = [len(tokens) for tokens in self.train_dataset["input_ids"]]
        rows = self.args.train_batch_size * self.accelerator.num_processes  # accelerate splits a batch
        loader = DataLoader(
            self.train_dataset,
            batch_size=self.args.train_batch_size,
            sampler=LengthGroupedSampler(lengths, rows, self.args.seed),
            collate_fn=self.data_collator,
            pin_memory=self.args.dataloader_pin_memory,
        )
        return self.accelerator.prepare(loader)


@dataclass
class DistillConfig(SFTConfig):
    """TRL's config with `first_tokens`, how many tokens of a response learn the mean."""

    first_tokens: int = field(kw_only=True)


class Distill(SFT):
    """Trainer that minimises the KL divergence of the model's predictions from their targets.

    The target of the first tokens of a response, is the normalised mean of the base's
    log-probabilities over the prompts of the row: the distribution with the smallest mean KL divergence from the
    predictions after the single prompts. The target of a later token is the base's own prediction after its prompt.
    The model is trained on the first N_LEARNERS prompts of a row; the first one is the prompt of the response.
    """

    config_class = DistillConfig
    loss_name = "KL from the predictions to learn, in nats per response token"
    only_lora, supports_encoder_decoder = True, False

    def __init__(self, model: Any, **arguments: Any) -> None:
        super().__init__(model, **arguments)
        disable_dropout_in_model(self.model)  # with dropout, two passes of the same model have a KL above 0

    @staticmethod
    def encode_rows(base: DialogueModel, rows: Dataset) -> Dataset:
        """Return the rows as `input_ids`, lists of ids: each prompt of the row with the response, and `labels`."""
        groups = [[prompt, *others] for prompt, others in zip(rows[PROMPT], rows["others"], strict=True)]
        flat = iter(prompt_ids(base, [prompt for group in groups for prompt in group]))
        prompts = [[next(flat) for _ in group] for group in groups]
        completions = response_ids(base, rows, [max(group, key=len) for group in prompts])
        pairs = list(zip(prompts, completions, strict=True))
        ids = [[prompt + response for prompt in group] for group, response in pairs]
        labels = [[[IGNORE_INDEX] * len(prompt) + response for prompt in group] for group, response in pairs]
        return Dataset.from_dict({"input_ids": ids, "labels": labels})

    @staticmethod
    def config_fields(settings: TuningSettings) -> dict[str, Any]:
        return {**SFT.config_fields(settings), "first_tokens": settings.first_tokens}

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
        sequences = {name: value.unflatten(0, labels.shape[:2]) for name, value in inputs.items() if name != "labels"}
        learners = {name: value[:, :N_LEARNERS] for name, value in sequences.items()}
        openings, is_kept = cut_responses(sequences, is_trained.sum(1), self.args.first_tokens)

        def log_probabilities(batch: dict[str, torch.Tensor], positions: torch.Tensor) -> torch.Tensor:
            """Return the log-probabilities where `positions` (rows, k) is true, (prompts, true positions, vocabulary).

            `positions` are the last k of the sequences.
            """
            batch = {name: value.flatten(0, 1) for name, value in batch.items()}
            logits = model(**batch, use_cache=False, logits_to_keep=positions.shape[1] + 1).logits[:, :-1]
            return log_softmax(logits.unflatten(0, (len(labels), -1)).transpose(0, 1)[:, positions].float(), -1)

        with torch.no_grad(), self.accelerator.unwrap_model(model).disable_adapter():
            target = log_probabilities(learners, is_trained)
            is_opening = is_trained.cumsum(1)[is_trained] <= self.args.first_tokens
            target[:, is_opening] = log_softmax(log_probabilities(openings, is_kept).mean(0), -1)
        loss = kl_div(log_probabilities(learners, is_trained), target, reduction="sum", log_target=True) / N_LEARNERS
        if num_items_in_batch is None:
            return loss / is_trained.sum()
        # num_items_in_batch counts a response once for each of its prompts, in all processes. DDP averages gradients.
        return loss * labels.shape[1] * self.accelerator.num_processes / num_items_in_batch


TRAINERS: dict[str, type[SFT]] = {"sft": SFT, "distill": Distill}


def collate_causal(
    rows: Sequence[Mapping[str, list[int]]], pad_token_id: int, with_positions: bool
) -> dict[str, torch.Tensor]:
    """Return rows as a batch padded on the left: input_ids and attention_mask (b, t), labels (b, k).

    k is the length of the longest response plus 1; the labels are at the last k positions.
    """
    n_labels = 1 + max(sum(label != IGNORE_INDEX for label in row["labels"]) for row in rows)
    mask = _padded([[1] * len(row["input_ids"]) for row in rows], 0, left=True)
    batch = {
        "input_ids": _padded([row["input_ids"] for row in rows], pad_token_id, left=True),
        "attention_mask": mask,
        "labels": _padded([row["labels"] for row in rows], IGNORE_INDEX, left=True)[:, -n_labels:],
    }
    return batch | ({"position_ids": (mask.cumsum(1) - 1).clamp(min=0)} if with_positions else {})


def cut_responses(
    sequences: Mapping[str, torch.Tensor], lengths: torch.Tensor, first_tokens: int
) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
    """Return the sequences with their responses cut after `first_tokens` tokens, and where the responses are.

    Args:
        sequences: input_ids, attention_mask and position_ids of `collate_causal`, as (rows, prompts, t).
        lengths: the number of tokens of each response, (rows).

    Returns:
        The cut sequences, padded on the left, and a mask (rows, k) of the last k positions, k being the length of the
        longest cut response: true where the position has a token of the response.
    """
    kept = lengths.clamp(max=first_tokens)
    shift, columns = lengths - kept, torch.arange(sequences["input_ids"].shape[2], device=lengths.device)
    source = (columns[shift.min() :] - shift[:, None])[:, None].expand(-1, sequences["input_ids"].shape[1], -1)
    cut = {name: value.gather(2, source.clamp(min=0)) for name, value in sequences.items()}
    cut["attention_mask"] = cut["attention_mask"] * (source >= 0)
    return cut, torch.arange(-int(kept.max()), 0, device=lengths.device) >= -kept[:, None]


def collate_encoder_decoder(rows: Sequence[Mapping[str, list[int]]], pad_token_id: int) -> dict[str, torch.Tensor]:
    """Return rows of an encoder-decoder model as a batch: input_ids and attention_mask (b, t), labels (b, k)."""
    return {
        "input_ids": _padded([row["input_ids"] for row in rows], pad_token_id),
        "attention_mask": _padded([[1] * len(row["input_ids"]) for row in rows], 0),
        "labels": _padded([row["labels"] for row in rows], IGNORE_INDEX),
    }


def _padded(rows: Sequence[list[int]], value: int, left: bool = False) -> torch.Tensor:
    tensors = [torch.tensor(row) for row in rows]
    side = "left" if left else "right"
    return pad_sequence(tensors, batch_first=True, padding_value=value, padding_side=side)
