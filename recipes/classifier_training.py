"""Training of a text classifier: a small BERT from scratch, or a sentence encoder with low-rank changes and a new head.

The changes and the head of an encoder are an adapter of a few megabytes, to which a loader adds the encoder.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
import transformers
from datasets import Dataset
from peft import LoraConfig, PeftModel, get_peft_model
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers
from torch.utils.data import DataLoader
from transformers import PreTrainedModel, PreTrainedTokenizerBase, PreTrainedTokenizerFast
from transformers.modeling_outputs import SequenceClassifierOutput

from evenhand.evaluation.model_settings import ModelSettings
from evenhand.evaluation.models.checkpoints import load_config, load_tokenizer, load_weights
from evenhand.evaluation.models.mean_pooling import HEAD, MeanPoolingClassifier
from evenhand.evaluation.models.precision import fast_dtype
from evenhand.evaluation.settings import AUTO
from evenhand.mitigation.training import last_checkpoint
from evenhand.mitigation.training_batches import length_grouped_batches
from evenhand.recipes.command_settings import TrainClassifierSettings

CHECKPOINTS = "checkpoints"
LABELS = "labels"  # the column of the training rows that `compute_loss_func` gets
SPECIAL = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
VOCABULARY_SIZE = 8000
MAX_LENGTH = 128


def fit_classifier(
    settings: TrainClassifierSettings,
    texts: Sequence[str],
    truth: np.ndarray,
    names: Sequence[str],
    report_to: str,
) -> tuple[PreTrainedModel | PeftModel, PreTrainedTokenizerBase]:
    """Return a classifier trained on n texts, and its tokenizer; training resumes from the last checkpoint.

    Args:
        texts, truth: the texts, and whether each has each label, (n, L) bool.
        names: the names of the labels, (L,).
        report_to: the tracker of the training (`Tracker.of_trainer`).
    """
    torch.manual_seed(settings.seed)
    if settings.model is None:
        tokenizer = byte_pair_tokenizer(texts)
        model = new_classifier(tokenizer, names, has_several_labels=settings.label_separator is not None)
    else:
        source = ModelSettings(name=settings.model)
        tokenizer = load_tokenizer(source, load_config(source))
        model = adapted_encoder(source, truth, rank=settings.lora_rank)
    if settings.label_separator is None:
        labels = truth.argmax(axis=1)
        loss = _BalancedCrossEntropy(truth.sum(axis=0))
    else:
        labels = truth.astype(np.float32)
        loss = binary_cross_entropy
    encoded = tokenizer(list(texts), truncation=True, max_length=MAX_LENGTH)
    checkpoints = settings.output_dir / CHECKPOINTS
    trainer = _Trainer(
        model,
        training_arguments(settings, checkpoints, report_to),
        optimizers=(optimizer(model, settings), None),
        train_dataset=Dataset.from_dict({**encoded, LABELS: labels.tolist()}),
        processing_class=tokenizer,
        data_collator=transformers.DataCollatorWithPadding(tokenizer),
        compute_loss_func=loss,
    )
    last = last_checkpoint(checkpoints)
    trainer.train(resume_from_checkpoint=None if last is None else str(last))
    return model, tokenizer


def new_classifier(
    tokenizer: PreTrainedTokenizerBase, names: Sequence[str], has_several_labels: bool
) -> PreTrainedModel:
    """Return a small BERT with random weights that classifies the tokenizer's texts."""
    config = transformers.BertConfig(
        hidden_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=256,
        max_position_embeddings=MAX_LENGTH,
        id2label=dict(enumerate(names)),
        label2id={name: index for index, name in enumerate(names)},
        problem_type="multi_label_classification" if has_several_labels else "single_label_classification",
        vocab_size=len(tokenizer),
        pad_token_id=tokenizer.pad_token_id,
    )
    return transformers.BertForSequenceClassification(config)


def adapted_encoder(source: ModelSettings, truth: np.ndarray, rank: int) -> PeftModel:
    """Return an encoder with a new head, whose linear layers have low-rank changes to train (Hu et al. 2022, LoRA).

    The outputs start at the log odds of each label's share of the texts, given by `truth`, (n, L) bool. With other
    outputs, training spends its first hundreds of steps on learning how frequent the labels are.
    """
    encoder = load_weights(transformers.AutoModel, source)
    model = MeanPoolingClassifier(encoder, n_labels=truth.shape[1])
    share = (truth.sum(axis=0) + 1) / (len(truth) + 2)
    model.head[-1].bias.data.copy_(torch.as_tensor(np.log(share / (1 - share))))
    layers = [
        name
        for name, module in model.named_modules()
        if isinstance(module, torch.nn.Linear) and name.startswith("encoder.") and "pooler" not in name
    ]
    config = LoraConfig(r=rank, lora_alpha=2 * rank, target_modules=layers, modules_to_save=[HEAD])
    return get_peft_model(model, config)


def optimizer(model: torch.nn.Module, settings: TrainClassifierSettings) -> torch.optim.Optimizer:
    """Return the optimizer of all trained weights; the new head of an encoder has a learning rate of its own."""
    encoder_weights = []
    head_weights = []
    for name, weight in model.named_parameters():
        if weight.requires_grad:
            (head_weights if f".{HEAD}." in name else encoder_weights).append(weight)
    groups = [{"params": encoder_weights, "lr": settings.learning_rate}]
    if head_weights:
        groups.append({"params": head_weights, "lr": settings.head_learning_rate})
    return torch.optim.AdamW(groups, weight_decay=0, fused=True)


def training_arguments(
    settings: TrainClassifierSettings, checkpoints: Path, report_to: str
) -> transformers.TrainingArguments:
    """Return the arguments of the trainer, which saves a checkpoint in `checkpoints` ten times."""
    on_gpu = torch.cuda.is_available()
    dtype = settings.dtype
    if dtype == AUTO:
        dtype = fast_dtype(torch.device("cuda" if on_gpu else "cpu"))
    return transformers.TrainingArguments(
        output_dir=str(checkpoints),
        num_train_epochs=settings.epochs,
        learning_rate=settings.learning_rate,
        per_device_train_batch_size=settings.batch_size,
        lr_scheduler_type="cosine",
        warmup_steps=0.1,  # share of all steps
        save_steps=0.1,  # share of all steps
        save_total_limit=1,
        logging_steps=50,
        seed=settings.seed,
        use_cpu=not on_gpu,
        bf16=dtype == "bfloat16",
        label_names=[LABELS],
        disable_tqdm=not sys.stderr.isatty(),  # without a terminal, the losses are printed
        report_to=report_to,
    )


def binary_cross_entropy(
    output: SequenceClassifierOutput, labels: torch.Tensor, num_items_in_batch: torch.Tensor | None = None
) -> torch.Tensor:
    """Return the mean of the cross-entropy over texts and labels, where a text may have several labels."""
    return torch.nn.functional.binary_cross_entropy_with_logits(output["logits"].float(), labels)


class _BalancedCrossEntropy:
    """The cross-entropy in which every label has the same total weight, given the number of texts with each, (L,)."""

    def __init__(self, counts: np.ndarray) -> None:
        weights = counts.sum() / (len(counts) * np.maximum(counts, 1))
        self.weights = torch.tensor(weights, dtype=torch.float32)

    def __call__(
        self, output: SequenceClassifierOutput, labels: torch.Tensor, num_items_in_batch: torch.Tensor | None = None
    ) -> torch.Tensor:
        weights = self.weights.to(labels.device)
        return torch.nn.functional.cross_entropy(output["logits"], labels, weight=weights)


class _Trainer(transformers.Trainer):
    """Trainer that keeps the order of the rows of an epoch when training resumes in the middle of the epoch."""

    def get_train_dataloader(self) -> DataLoader:
        """Return the batches of texts."""
        return length_grouped_batches(self)


def byte_pair_tokenizer(texts: Sequence[str]) -> PreTrainedTokenizerFast:
    """Return a lower-case tokenizer by byte-pair encoding, trained on the texts; equal texts give an equal tokenizer.

    The ties of WordPiece's trainer depend on hash order, which differs in each process.
    """
    special_tokens = list(SPECIAL.values())
    words = Tokenizer(models.BPE(unk_token=SPECIAL["unk_token"]))
    words.normalizer = normalizers.BertNormalizer(lowercase=True)
    words.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.BpeTrainer(vocab_size=VOCABULARY_SIZE, special_tokens=special_tokens, show_progress=False)
    words.train_from_iterator(texts, trainer)
    start = SPECIAL["cls_token"]
    end = SPECIAL["sep_token"]
    words.post_processor = processors.TemplateProcessing(
        single=f"{start} $A {end}", special_tokens=[(token, words.token_to_id(token)) for token in (start, end)]
    )
    return PreTrainedTokenizerFast(tokenizer_object=words, **SPECIAL, model_max_length=MAX_LENGTH)
