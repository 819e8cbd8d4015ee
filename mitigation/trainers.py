"""The trainers, by the names in `TrainedMethod.trainer`: fine-tuning on responses, distillation, and preferences.

They are TRL's `SFTTrainer` and `DPOTrainer`, on rows whose token ids are Evenhand's: contexts and responses are encoded
as in generation. What TRL would compute beside the loss (the entropy and the accuracy of tokens, its own encoding of
rows) is switched off where its arguments allow it. TRL trains no encoder-decoder models; these have the trainer of
transformers.
"""

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import Any, ClassVar

import torch
from datasets import Dataset
from peft import PeftModel
from peft.utils import ModulesToSaveWrapper
from torch.nn.functional import kl_div, log_softmax
from torch.utils.data import DataLoader
from transformers import Trainer, TrainingArguments
from trl.trainer.dpo_config import DPOConfig
from trl.trainer.dpo_trainer import DataCollatorForPreference, DPOTrainer
from trl.trainer.sft_config import SFTConfig
from trl.trainer.sft_trainer import SFTTrainer

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.models.loading import DialogueModel
from evenhand.evaluation.models.modes import turn_off_dropout
from evenhand.evaluation.models.own_words import own_word_ids
from evenhand.evaluation.models.padding import ignores_padding
from evenhand.mitigation.even_targets import even_targets
from evenhand.mitigation.labelled_responses import (
    COMPLETION,
    COMPLETION_CUT,
    COMPLETION_IDS,
    CONTEXT,
    IS_EVEN,
    MAX_TOKENS,
    OTHERS,
    PROMPT,
    REJECTED,
    REJECTED_CUT,
    REJECTED_IDS,
    SPARES_OWN_WORDS,
    TRAINED,
)
from evenhand.mitigation.training_batches import (
    IGNORE_INDEX,
    Batch,
    collate_causal,
    collate_right,
    cut_responses,
    length_grouped_batches,
    padded,
)
from evenhand.mitigation.training_rows import prompt_ids, response_ids

Collator = Callable[[Sequence[Mapping[str, list]]], dict[str, Any]]

OWN_WORDS = "own_words"  # the column of encoded rows of `distill` with the tokens that keep each person's prediction
SEQUENCE_TENSORS = ("input_ids", "attention_mask", "position_ids")
TRAINED_PREFIX = "trained_"  # of the tensors of the sequences that `DistillTrainer` trains


class TuningTrainer(Trainer, ABC):
    """What the trainers have in common: the first base of each class, before the trainer of transformers or TRL.

    Attributes:
        model: the network that is trained.
        config_class, config_fields: the class of the trainer's arguments, and the arguments that are always the same.
        loss_name: the unit of the loss.
        needs_base: whether training needs the model without its adapter, so that not all weights can be trained.
        supports_encoder_decoder: whether the trainer supports encoder-decoder models.
    """

    model: torch.nn.Module
    config_class: ClassVar[type[TrainingArguments]] = SFTConfig
    # Encoded rows are used as they are, in all of their columns. A loss that balances experts is no part of a method.
    config_fields: ClassVar[Mapping[str, object]] = {
        "dataset_kwargs": {"skip_prepare_dataset": True},
        "max_length": None,
        "remove_unused_columns": False,
        "router_aux_loss_coef": 0.0,
    }
    loss_name: ClassVar[str] = "nats per response token"
    needs_base: ClassVar[bool] = False
    supports_encoder_decoder: ClassVar[bool] = False

    def __init__(self, model: torch.nn.Module, **arguments: Any) -> None:
        super().__init__(model, **arguments)
        for parameter in self.model.parameters():
            if parameter.requires_grad:  # TRL rounds adapters of quantized weights to bfloat16
                parameter.data = parameter.data.float()
        for module in self.model.modules():
            if isinstance(module, ModulesToSaveWrapper):
                compute_in_float32(module)

    @staticmethod
    @abstractmethod
    def encode_rows(base: DialogueModel, rows: Dataset) -> Dataset:
        """Return a method's rows as the token ids that the collator reads.

        Raises:
            InputError: a row is too long for the model, or the tokenizer encodes different prompts as the same tokens.
        """

    @staticmethod
    @abstractmethod
    def collator(base: DialogueModel, pad_token_id: int) -> Collator:
        """Return the function that collates encoded rows into a batch."""

    def get_train_dataloader(self) -> DataLoader:
        """Return the batches of training rows."""
        return length_grouped_batches(self)

    def create_model_card(self, *arguments: Any, **options: Any) -> None:
        """Write nothing: TRL would write its card beside the checkpoints, and `tune` writes Evenhand's."""

    def _send_telemetry(self) -> None:
        """Send nothing: TRL would report each training to the hub."""


class EncoderDecoderSFT(TuningTrainer):
    """The trainer of transformers for encoder-decoder models, on contexts and their responses."""

    supports_encoder_decoder = True

    @staticmethod
    def encode_rows(base: DialogueModel, rows: Dataset) -> Dataset:
        """Return the rows as `input_ids`, the context, and `labels`, the response with its EOS."""
        prompts = prompt_ids(base, rows[PROMPT])
        return Dataset.from_dict({"input_ids": prompts, "labels": response_ids(base, rows, prompts)})

    @staticmethod
    def collator(base: DialogueModel, pad_token_id: int) -> Collator:
        return partial(collate_right, pad_token_id=pad_token_id)


class SFT(TuningTrainer, SFTTrainer):
    """TRL's SFTTrainer on rows in which only the responses have a loss."""

    @staticmethod
    def encode_rows(base: DialogueModel, rows: Dataset) -> Dataset:
        """Return the rows as `input_ids` (context, response, EOS) and `labels`, which are IGNORE_INDEX in the context.

        Raises:
            InputError: a row is too long for the model, or the tokenizer encodes different prompts as the same tokens.
        """
        prompts = prompt_ids(base, rows[PROMPT])
        completions = response_ids(base, rows, prompts)
        pairs = list(zip(prompts, completions, strict=True))
        ids = [prompt + completion for prompt, completion in pairs]
        labels = [[IGNORE_INDEX] * len(prompt) + completion for prompt, completion in pairs]
        return Dataset.from_dict({"input_ids": ids, "labels": labels})

    @staticmethod
    def collator(base: DialogueModel, pad_token_id: int) -> Collator:
        if not ignores_padding(base.model):
            return partial(collate_right, pad_token_id=pad_token_id)
        with_positions = "position_ids" in inspect.signature(base.model.forward).parameters
        return partial(collate_causal, pad_token_id=pad_token_id, with_positions=with_positions)

    def compute_loss(
        self,
        model: torch.nn.Module,
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: torch.Tensor | int | None = None,
    ) -> torch.Tensor | tuple[torch.Tensor, Any]:
        """Return the mean loss over the tokens of responses, as the trainer of transformers.

        TRL's would cut the labels of `logits_to_keep` and not the hidden states, and adds entropies and accuracies.
        """
        return Trainer.compute_loss(self, model, inputs, return_outputs, num_items_in_batch)


@dataclass
class DistillConfig(SFTConfig):
    """The arguments of training, and which tokens learn the mean over people.

    Attributes:
        first_tokens: how many tokens at the start of a response.
        min_divergence: only those of responses whose divergence between people is at least this, in nats.
    """

    first_tokens: int = field(default=4, kw_only=True)
    min_divergence: float = field(default=0.0, kw_only=True)


class DistillTrainer(SFT):
    """Trainer that minimises the KL divergence of the model's predictions from their targets.

    A row has the contexts of several people (CONTEXT, then OTHERS), which the base reads, and those after which the
    model is trained (TRAINED): the contexts of the first people, with the control tag if the method has one.

    The target of the first tokens of a response, as many as `first_tokens`, is the normalised mean of the base's
    log-probabilities over all people of the row: the distribution with the smallest mean KL divergence from the
    predictions after the single contexts. The target of a later token is the base's own prediction for that person.
    """

    args: DistillConfig
    config_class = DistillConfig
    loss_name = "KL from the predictions to learn, in nats per response token"
    needs_base = True

    @staticmethod
    def encode_rows(base: DialogueModel, rows: Dataset) -> Dataset:
        """Return the rows as `input_ids` and `trained_ids`, lists of contexts with the response, and `labels`.

        `labels` are IGNORE_INDEX and the response, which is the same after all contexts of a row.
        """
        read = [[context, *others] for context, others in zip(rows[CONTEXT], rows[OTHERS], strict=True)]
        groups = [people + trained for people, trained in zip(read, rows[TRAINED], strict=True)]
        ids = iter(prompt_ids(base, list(chain.from_iterable(groups))))
        contexts = [[next(ids) for _ in group] for group in groups]
        responses = response_ids(base, rows, [max(group, key=len) for group in contexts])
        if MAX_TOKENS in rows.column_names:
            limits = rows[MAX_TOKENS]
            responses = [response[:limit] for response, limit in zip(responses, limits, strict=True)]
        columns: dict[str, list] = {"input_ids": [], "trained_ids": [], "labels": []}
        for people, group, response in zip(read, contexts, responses, strict=True):
            sequences = [context + response for context in group]
            columns["input_ids"].append(sequences[: len(people)])
            columns["trained_ids"].append(sequences[len(people) :])
            columns["labels"].append([IGNORE_INDEX, *response])
        if IS_EVEN in rows.column_names:
            columns[IS_EVEN] = list(rows[IS_EVEN])
        if SPARES_OWN_WORDS in rows.column_names:
            of_people = [group[: len(people)] for people, group in zip(read, contexts, strict=True)]
            columns[OWN_WORDS] = [own_word_ids(base.tokenizer, group) for group in of_people]
        return Dataset.from_dict(columns)

    @staticmethod
    def collator(base: DialogueModel, pad_token_id: int) -> Collator:
        """Return the function that collates b rows of n contexts into b · n sequences, and b · m trained ones.

        The tensors of trained sequences have the prefix TRAINED_PREFIX; `labels` are (b, k).
        """
        if not ignores_padding(base.model):
            raise InputError("method", f"padding changes what {base.name} predicts; give a method that trains by SFT.")
        collate = SFT.collator(base, pad_token_id)

        def collate_rows(rows: Sequence[Mapping[str, list]]) -> dict[str, Any]:
            batch: dict[str, Any] = {"labels": padded([row["labels"] for row in rows], IGNORE_INDEX, left=True)}
            for prefix, column in (("", "input_ids"), (TRAINED_PREFIX, "trained_ids")):
                sequences = []
                for row in rows:
                    sequences += [{"input_ids": ids, "labels": row["labels"]} for ids in row[column]]
                collated = collate(sequences)
                batch |= {prefix + name: collated[name] for name in SEQUENCE_TENSORS if name in collated}
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
        labels = inputs["labels"]
        is_response = labels[:, 1:] != IGNORE_INDEX
        read = sequences_of(inputs, "")
        trained = sequences_of(inputs, TRAINED_PREFIX)
        n_trained = trained["input_ids"].shape[1]
        targets = self._targets(model, read, n_trained, labels[:, 1:], inputs)
        learned = log_probabilities(model, trained, is_response)
        divergence = kl_div(learned, targets, reduction="sum", log_target=True) / n_trained
        if num_items_in_batch is None:
            loss = divergence / is_response.sum()
        else:  # which counts the tokens of responses in all processes; DDP averages gradients
            loss = divergence * self.accelerator.num_processes / num_items_in_batch
        return (loss, {}) if return_outputs else loss

    def _targets(
        self, model: torch.nn.Module, sequences: Batch, n_trained: int, tokens: torch.Tensor, choices: Batch
    ) -> torch.Tensor:
        """Return what the model learns to predict for the first `n_trained` people: log-probabilities of the base.

        For the first tokens of a response, the target is `even_targets` of the predictions for all people of the row;
        for later tokens, it is the prediction for the person.

        Args:
            model: the model that is trained; without its adapter, it is the base model.
            sequences: tokens of each context with the response, (rows, people, t).
            tokens: the last k tokens, (rows, k), which are IGNORE_INDEX before the response.
            choices: the tensors of `collate_choices`.
        """
        is_response = tokens != IGNORE_INDEX
        targets, of_others = self._base_predictions(model, sequences, n_trained, is_response)
        is_first = is_response.cumsum(1)[is_response] <= self.args.first_tokens
        predictions = torch.cat([targets[:, is_first], of_others])
        first = tokens[is_response][is_first]
        targets[:, is_first] = self._even(predictions, first, n_trained, is_response, choices)
        return targets

    def _base_predictions(
        self, model: torch.nn.Module, sequences: Batch, n_trained: int, is_response: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the base's log-probabilities of the tokens of responses.

        Returns:
            For the first `n_trained` people, of all tokens, (n_trained, all tokens, vocabulary); and for the other
            people, of the first tokens, (others, first tokens, vocabulary).
        """
        own = {name: value[:, :n_trained] for name, value in sequences.items()}
        others = {name: value[:, n_trained:] for name, value in sequences.items()}
        openings, is_in_opening = cut_responses(others, is_response.sum(1), self.args.first_tokens)
        with torch.no_grad(), self.accelerator.unwrap_model(model).disable_adapter():
            of_trained = log_probabilities(model, own, is_response)
            of_others = log_probabilities(model, openings, is_in_opening)
        return of_trained, of_others

    def _even(
        self, predictions: torch.Tensor, tokens: torch.Tensor, n_trained: int, is_response: torch.Tensor, choices: Batch
    ) -> torch.Tensor:
        """Return the targets of the first tokens of all rows, (n_trained, n, vocabulary).

        Args:
            predictions: of the base for all people, (people, n, vocabulary); n counts the first tokens of all rows.
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
                    n_trained,
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
        batch[OWN_WORDS] = padded([row[OWN_WORDS] for row in rows], -1)
    return batch


def sequences_of(inputs: Batch, prefix: str) -> Batch:
    """Return the tensors of a batch of `DistillTrainer` with a prefix, as (rows, sequences of a row, t)."""
    n_rows = len(inputs["labels"])
    found = {}
    for name in SEQUENCE_TENSORS:
        if prefix + name in inputs:
            found[name] = inputs[prefix + name].unflatten(0, (n_rows, -1))
    return found


def log_probabilities(model: torch.nn.Module, batch: Batch, positions: torch.Tensor) -> torch.Tensor:
    """Return the log-probabilities where `positions` is true, (contexts, true positions, vocabulary).

    Args:
        batch: input_ids, attention_mask and perhaps position_ids, (rows, contexts, t).
        positions: a mask of the last k positions of each row's sequences, bool (rows, k).
    """
    flat = {name: value.flatten(0, 1) for name, value in batch.items()}
    logits = model(**flat, use_cache=False, logits_to_keep=positions.shape[1] + 1).logits[:, :-1]
    by_row = logits.unflatten(0, (len(positions), -1))
    return log_softmax(by_row.transpose(0, 1)[:, positions].float(), -1)


class PreferenceTrainer(TuningTrainer, DPOTrainer):
    """TRL's DPOTrainer with the base as reference, on rows with a chosen and a rejected response."""

    config_class = DPOConfig
    config_fields = {"max_length": None, "remove_unused_columns": False, "router_aux_loss_coef": 0.0}
    loss_name = "loss of preferences; ln 2 for the base"
    needs_base = True

    def __init__(self, model: PeftModel, **arguments: Any) -> None:
        # Of a model that has an adapter already, TRL would copy the adapter as the reference.
        config = model.active_peft_config
        super().__init__(model.unload(), peft_config=config, **arguments)

    @staticmethod
    def encode_rows(base: DialogueModel, rows: Dataset) -> Dataset:
        """Return the rows as `prompt_ids`, `chosen_ids` and `rejected_ids`; responses have EOS unless they are cut."""
        prompts = prompt_ids(base, rows[PROMPT])
        chosen_columns = [name for name in (COMPLETION, COMPLETION_CUT, COMPLETION_IDS) if name in rows.column_names]
        names = {REJECTED: COMPLETION, REJECTED_CUT: COMPLETION_CUT, REJECTED_IDS: COMPLETION_IDS}
        renamed = {old: new for old, new in names.items() if old in rows.column_names}
        rejected = rows.remove_columns(chosen_columns).rename_columns(renamed)
        columns = {
            "prompt_ids": prompts,
            "chosen_ids": response_ids(base, rows, prompts),
            "rejected_ids": response_ids(base, rejected, prompts),
        }
        return Dataset.from_dict(columns)

    @staticmethod
    def collator(base: DialogueModel, pad_token_id: int) -> Collator:
        return DataCollatorForPreference(pad_token_id=pad_token_id)  # on the right, which no causal model reads

    def get_train_dataloader(self) -> DataLoader:
        return length_grouped_batches(self, "prompt_ids")

    def _prepare_dataset(self, dataset: Dataset, *arguments: Any) -> Dataset:
        """Return the rows as they are: TRL would encode them again, as text, and add EOS to cut responses."""
        return dataset


def compute_in_float32(wrapper: ModulesToSaveWrapper) -> None:
    """Make the copies of a module that PEFT trains whole, in float32, work in a network of another precision."""
    dtype = next(wrapper.original_module.parameters()).dtype
    if dtype == torch.float32:
        return

    def widen(module: torch.nn.Module, inputs: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
        return tuple(each.float() if each.is_floating_point() else each for each in inputs)

    def narrow(module: torch.nn.Module, inputs: object, output: torch.Tensor) -> torch.Tensor:
        return output.to(dtype)

    for copied in wrapper.modules_to_save.values():
        copied.register_forward_pre_hook(widen)
        copied.register_forward_hook(narrow)


TRAINERS: dict[str, type[TuningTrainer]] = {"sft": SFT, "distill": DistillTrainer, "preference": PreferenceTrainer}


def trainer_class(name: str, is_encoder_decoder: bool = False) -> type[TuningTrainer]:
    """Return a trainer by its name. Of "sft", encoder-decoder models have another one."""
    return EncoderDecoderSFT if name == "sft" and is_encoder_decoder else TRAINERS[name]
