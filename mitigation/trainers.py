"""The trainers, by the names in `TrainedMethod.trainer`: fine-tuning on responses, and distillation.

Both are transformers' `Trainer`, with two changes: an epoch's order of rows is repeated when training resumes, and the
collator asks the model for logits at the responses alone. TRL's `SFTTrainer` computes the output layer at every
position, which takes twice the time and 1.3 times the memory of a small model on a CPU, and supports no encoder-decoder
models.
"""

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from torch.nn.functional import kl_div, log_softmax
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Sampler
from transformers import Trainer, TrainingArguments

from evenhand.evaluation.models.loading import DialogueModel
from evenhand.evaluation.models.modes import turn_off_dropout
from evenhand.mitigation.even_targets import even_targets, own_word_ids
from evenhand.mitigation.labelled_responses import IS_EVEN, MAX_TOKENS, OTHERS, PROMPT, SPARES_OWN_WORDS
from evenhand.mitigation.training_rows import prompt_ids, response_ids

Batch = dict[str, torch.Tensor]
Collator = Callable[[Sequence[Mapping[str, list]]], dict[str, Any]]

IGNORE_INDEX = -100  # the label of tokens without loss, the default of torch's cross_entropy
BATCHES_PER_POOL = 50  # rows of a pool are sorted by length: larger pools pad less, smaller ones mix better
OWN_WORDS = "own_words"  # the column of encoded rows of `distill` with the tokens that keep each person's prediction
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


def length_grouped_batches(trainer: Trainer) -> DataLoader:
    """Return the batches of a trainer's rows in the order of `LengthGroupedSampler`, also when training resumes."""
    arguments = trainer.args
    lengths = [len(tokens) for tokens in trainer.train_dataset["input_ids"]]
    rows = arguments.train_batch_size * trainer.accelerator.num_processes  # accelerate splits a batch
    loader = DataLoader(
        trainer.train_dataset,
        batch_size=arguments.train_batch_size,
        sampler=LengthGroupedSampler(lengths, rows, arguments.seed),
        collate_fn=trainer.data_collator,
        pin_memory=arguments.dataloader_pin_memory,
    )
    return trainer.accelerator.prepare(loader)


class SFT(Trainer):
    """The trainer of transformers on rows in which only the responses have a loss.

    Attributes:
        config_class, loss_name: the class of the trainer's arguments, and the unit of its loss.
        needs_base: whether training needs the model without its adapter, so that not all weights can be trained.
        supports_encoder_decoder: whether the trainer supports encoder-decoder models.
    """

    config_class: type[TrainingArguments] = TrainingArguments
    loss_name = "nats per response token"
    needs_base = False
    supports_encoder_decoder = True

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
    def collator(base: DialogueModel, pad_token_id: int) -> Collator:
        """Return the function that collates encoded rows into a batch."""
        if base.kind == "encoder_decoder":
            return partial(collate_encoder_decoder, pad_token_id=pad_token_id)
        with_positions = "position_ids" in inspect.signature(base.model.forward).parameters
        return partial(collate_causal, pad_token_id=pad_token_id, with_positions=with_positions)

    def get_train_dataloader(self) -> DataLoader:
        """Return the batches of training rows."""
        return length_grouped_batches(self)


@dataclass
class DistillConfig(TrainingArguments):
    """The arguments of training, and which tokens learn the mean over people.

    Attributes:
        first_tokens: how many tokens at the start of a response.
        min_divergence: only those of responses whose divergence between people is at least this, in nats.
    """

    first_tokens: int = field(default=4, kw_only=True)
    min_divergence: float = field(default=0.0, kw_only=True)


class DistillTrainer(SFT):
    """Trainer that minimises the KL divergence of the model's predictions from their targets.

    The target of the first tokens of a response, as many as `first_tokens`, is the normalised mean of the base's
    log-probabilities over the prompts of the row: the distribution with the smallest mean KL divergence from the
    predictions after the single prompts. The target of a later token is the base's own prediction after its prompt.
    The model is trained after the first `n_trained` prompts of a row; the first one is the prompt of the response.
    """

    args: DistillConfig
    n_trained = 2  # more take longer and teach hardly more
    config_class = DistillConfig
    loss_name = "KL from the predictions to learn, in nats per response token"
    needs_base = True
    supports_encoder_decoder = False

    @staticmethod
    def encode_rows(base: DialogueModel, rows: Dataset) -> Dataset:
        """Return the rows as `input_ids`, lists of ids: each prompt of the row with the response, and `labels`."""
        groups = [[prompt, *others] for prompt, others in zip(rows[PROMPT], rows[OTHERS], strict=True)]
        ids_of_all = prompt_ids(base, list(chain.from_iterable(groups)))
        size = len(groups[0])
        prompts = [ids_of_all[start : start + size] for start in range(0, len(ids_of_all), size)]
        completions = response_ids(base, rows, [max(group, key=len) for group in prompts])
        if MAX_TOKENS in rows.column_names:
            limits = rows[MAX_TOKENS]
            completions = [response[:limit] for response, limit in zip(completions, limits, strict=True)]
        pairs = list(zip(prompts, completions, strict=True))
        ids = [[prompt + response for prompt in group] for group, response in pairs]
        labels = [[[IGNORE_INDEX] * len(prompt) + response for prompt in group] for group, response in pairs]
        columns = {"input_ids": ids, "labels": labels}
        if IS_EVEN in rows.column_names:
            columns[IS_EVEN] = list(rows[IS_EVEN])
        if SPARES_OWN_WORDS in rows.column_names:
            columns[OWN_WORDS] = [own_word_ids(base.tokenizer, group) for group in prompts]
        return Dataset.from_dict(columns)

    @staticmethod
    def collator(base: DialogueModel, pad_token_id: int) -> Collator:
        """Return the function that collates b rows of n prompts into b · n sequences; `labels` are (b, n, length)."""
        collate = SFT.collator(base, pad_token_id)

        def collate_rows(rows: Sequence[Mapping[str, list]]) -> dict[str, Any]:
            sequences = []
            for row in rows:
                for ids, labels in zip(row["input_ids"], row["labels"], strict=True):
                    sequences.append({"input_ids": ids, "labels": labels})
            collated = collate(sequences)
            batch = {name: value for name, value in collated.items() if isinstance(value, torch.Tensor)}
            batch["labels"] = batch["labels"].unflatten(0, (len(rows), -1))
            return batch | collate_choices(rows)

        return collate_rows

    def compute_loss(
        self,
        model: torch.nn.Module,
        inputs: Batch,
        return_outputs: bool = False,
        num_items_in_batch: torch.Tensor | int | None = None,
    ) -> torch.Tensor | tuple[torch.Tensor, Batch]:
        """Return the mean divergence over the tokens of responses."""
        turn_off_dropout(model)  # with dropout, two passes of the same model have a KL above 0
        labels = inputs["labels"]  # (rows, prompts, k)
        is_response = labels[:, 0, 1:] != IGNORE_INDEX  # the prompts of a row have the same response
        apart = ("labels", IS_EVEN, OWN_WORDS)
        sequences = {name: value.unflatten(0, labels.shape[:2]) for name, value in inputs.items() if name not in apart}
        trained = {name: value[:, : self.n_trained] for name, value in sequences.items()}
        targets = self._targets(model, sequences, labels[:, 0, 1:], inputs)
        learned = log_probabilities(model, trained, is_response)
        divergence = kl_div(learned, targets, reduction="sum", log_target=True) / self.n_trained
        if num_items_in_batch is None:
            loss = divergence / is_response.sum()
        else:
            # `num_items_in_batch` counts a response once for each of its prompts, in all processes. DDP averages
            # gradients.
            loss = divergence * labels.shape[1] * self.accelerator.num_processes / num_items_in_batch
        return (loss, {}) if return_outputs else loss

    def _targets(self, model: torch.nn.Module, sequences: Batch, tokens: torch.Tensor, choices: Batch) -> torch.Tensor:
        """Return what the model learns to predict after each trained prompt: log-probabilities of the base model.

        For the first tokens of a response, the target is `even_targets` of the predictions after all prompts of the
        row; for later tokens, it is the prediction after the trained prompt. The first `n_trained` prompts of a row are
        trained.

        Args:
            model: the model that is trained; without its adapter, it is the base model.
            sequences: tokens of each prompt with the response, (rows, prompts, t).
            tokens: the last k tokens, (rows, k), which are IGNORE_INDEX before the response.
            choices: the tensors of `collate_choices`.
        """
        first_tokens = self.args.first_tokens
        is_response = tokens != IGNORE_INDEX
        trained = {name: value[:, : self.n_trained] for name, value in sequences.items()}
        others = {name: value[:, self.n_trained :] for name, value in sequences.items()}
        openings, is_in_opening = cut_responses(others, is_response.sum(1), first_tokens)
        with torch.no_grad(), self.accelerator.unwrap_model(model).disable_adapter():
            targets = log_probabilities(model, trained, is_response)
            is_first = is_response.cumsum(1)[is_response] <= first_tokens
            predictions = torch.cat([targets[:, is_first], log_probabilities(model, openings, is_in_opening)])
            targets[:, is_first] = self._even(predictions, tokens[is_response][is_first], is_response, choices)
        return targets

    def _even(
        self, predictions: torch.Tensor, tokens: torch.Tensor, is_response: torch.Tensor, choices: Batch
    ) -> torch.Tensor:
        """Return the targets of the first tokens of all rows, (n_trained, n, vocabulary).

        Args:
            predictions: of the base after all prompts, (prompts, n, vocabulary); n counts the first tokens of all rows.
            tokens: the first tokens, (n).
        """
        sizes = is_response.sum(1).clamp(max=self.args.first_tokens).tolist()
        parts = []
        for row, found in enumerate(predictions.split(sizes, dim=1)):
            is_even = IS_EVEN not in choices or bool(choices[IS_EVEN][row])
            words = choices[OWN_WORDS][row] if OWN_WORDS in choices else None
            parts.append(
                even_targets(
                    found,
                    tokens.split(sizes)[row],
                    self.n_trained,
                    min_divergence=self.args.min_divergence if is_even else torch.inf,
                    own_words=None if words is None else words[words >= 0],
                )
            )
        return torch.cat(parts, dim=1)


def collate_choices(rows: Sequence[Mapping[str, Any]]) -> Batch:
    """Return the tensors of `distill`'s rows that say what is evened out, if the rows have such columns.

    They are IS_EVEN, bool (rows), and OWN_WORDS, token ids padded with −1, (rows, w).
    """
    batch = {}
    if IS_EVEN in rows[0]:
        batch[IS_EVEN] = torch.tensor([row[IS_EVEN] for row in rows])
    if OWN_WORDS in rows[0]:
        batch[OWN_WORDS] = _padded([row[OWN_WORDS] for row in rows], -1)
    return batch


def log_probabilities(model: torch.nn.Module, batch: Batch, positions: torch.Tensor) -> torch.Tensor:
    """Return the log-probabilities where `positions` is true, (prompts, true positions, vocabulary).

    Args:
        batch: input_ids, attention_mask and perhaps position_ids, (rows, prompts, t).
        positions: a mask of the last k positions of each row's sequences, bool (rows, k).
    """
    flat = {name: value.flatten(0, 1) for name, value in batch.items()}
    logits = model(**flat, use_cache=False, logits_to_keep=positions.shape[1] + 1).logits[:, :-1]
    by_row = logits.unflatten(0, (len(positions), -1))
    return log_softmax(by_row.transpose(0, 1)[:, positions].float(), -1)


TRAINERS: dict[str, type[SFT]] = {"sft": SFT, "distill": DistillTrainer}


def collate_causal(
    rows: Sequence[Mapping[str, list[int]]], pad_token_id: int, with_positions: bool
) -> dict[str, torch.Tensor | int]:
    """Return rows as a batch padded on the left: input_ids and attention_mask (b, t), labels (b, k).

    k is the length of the longest response plus 1; labels and logits are at the last k positions.
    """
    n_labels = 1 + max(sum(label != IGNORE_INDEX for label in row["labels"]) for row in rows)
    mask = _padded([[1] * len(row["input_ids"]) for row in rows], 0, left=True)
    batch: dict[str, torch.Tensor | int] = {
        "input_ids": _padded([row["input_ids"] for row in rows], pad_token_id, left=True),
        "attention_mask": mask,
        "labels": _padded([row["labels"] for row in rows], IGNORE_INDEX, left=True)[:, -n_labels:],
        LOGITS_TO_KEEP: n_labels,
        **NO_CACHE,
    }
    if with_positions:
        batch["position_ids"] = (mask.cumsum(1) - 1).clamp(min=0)
    return batch


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


def collate_encoder_decoder(
    rows: Sequence[Mapping[str, list[int]]], pad_token_id: int
) -> dict[str, torch.Tensor | bool]:
    """Return rows of an encoder-decoder model as a batch: input_ids and attention_mask (b, t), labels (b, k)."""
    return {
        "input_ids": _padded([row["input_ids"] for row in rows], pad_token_id),
        "attention_mask": _padded([[1] * len(row["input_ids"]) for row in rows], 0),
        "labels": _padded([row["labels"] for row in rows], IGNORE_INDEX),
        **NO_CACHE,
    }


def _padded(rows: Sequence[list[int]], value: int, left: bool = False) -> torch.Tensor:
    tensors = [torch.tensor(row) for row in rows]
    side = "left" if left else "right"
    return pad_sequence(tensors, batch_first=True, padding_value=value, padding_side=side)
