"""Train classifier: labelled texts → a small sequence classifier, measured on texts that it never saw.

For measuring offensiveness (002, §2.3.4) or styles without a model hub. A text has one label (softmax), or several
(`label_separator`; a sigmoid each). The default is a small BERT on parts of words, from scratch.
"""

import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from datasets import Dataset
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers
from transformers import (
    AutoModel,
    AutoModelForSequenceClassification,
    BertConfig,
    BertForSequenceClassification,
    DataCollatorWithPadding,
    ModernBertConfig,
    ModernBertForSequenceClassification,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    PreTrainedTokenizerFast,
    PrinterCallback,
    Trainer,
    TrainingArguments,
)

from evenhand.evaluation.datasets.labelled_texts import hold_out, read_labelled_texts
from evenhand.evaluation.errors import InputError
from evenhand.evaluation.models.checkpoints import load_config, load_tokenizer, load_weights
from evenhand.evaluation.models.revisions import first_line, model_revision
from evenhand.evaluation.models.styles import label_probabilities, load_style_classifier
from evenhand.evaluation.results import write_scores
from evenhand.evaluation.runs.environment import package_versions
from evenhand.evaluation.runs.files import sha256_of, write_text
from evenhand.evaluation.runs.progress import progress
from evenhand.evaluation.runs.stage import stage
from evenhand.evaluation.runs.tables import write_table
from evenhand.evaluation.settings import ModelSettings
from evenhand.evaluation.statistics.accuracy import accuracy_scores, f1_scores
from evenhand.mitigation.training.adapter import atomic_write_folder
from evenhand.mitigation.training.callbacks import StepCallback
from evenhand.mitigation.training.checkpoints import last_checkpoint
from evenhand.recipes.classifier_card import Texts, classifier_card
from evenhand.recipes.measure import SCORES
from evenhand.recipes.settings import TrainClassifierSettings

CLASSIFIER, CHECKPOINTS, HELD_OUT = "classifier", "checkpoints", "held_out.parquet"
PAD, UNKNOWN, START, END = "[PAD]", "[UNK]", "[CLS]", "[SEP]"
VOCABULARY, LONGEST = 8000, 128
HEAD_LEARNING_RATE = 1e-2
SIZES = {"hidden_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 256}
# Nearly a bag of words: one layer, its mean.
WORDS_ALONE = {
    "hidden_size": 128,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "intermediate_size": 128,
    "layer_types": ["full_attention"],
    "classifier_pooling": "mean",
    "embedding_dropout": 0.1,
    "mlp_dropout": 0.1,
    "classifier_dropout": 0.1,
    "bos_token_id": None,
    "eos_token_id": None,
    "cls_token_id": None,
    "sep_token_id": None,
}


def train_classifier(settings: TrainClassifierSettings) -> None:
    """Train, write the classifier's folder, and measure it on the texts held out."""
    inputs = {}
    for field in ("texts", "test_texts"):
        if (path := getattr(settings, field)) is not None:
            if not path.is_file():
                raise InputError(f"{field}: there is no file {path}; give a CSV, TSV or JSONL file of labelled texts.")
            inputs[field] = sha256_of(path)
    if settings.model:
        inputs["model"] = model_revision(settings.model)
    with stage("train_classifier", settings, inputs) as run:
        if run is None:
            return
        data = _read(settings)
        with run.step("training"):
            folder = _trained(settings, data)
        classifier = load_style_classifier(str(folder), field="classifier")
        texts, truth, names = data.of(data.test), data.truth[data.test], data.names
        with run.step("measuring"), progress(len(texts), "held out", "texts") as advance:
            found = label_probabilities(classifier, texts, on_progress=advance)
        read = {key: inputs[key] for key in ("texts", "test_texts") if key in inputs}
        signature = {**read, "classifier": classifier.revision, "packages": package_versions()}
        if settings.label_separator:
            scores = f1_scores(found, truth, names, settings.threshold, settings.seed, signature)
        else:
            scores = accuracy_scores(found, truth.argmax(axis=1), names, signature)
        write_table(settings.output_dir / HELD_OUT, _predictions(texts, truth, found, names, settings.label_separator))
        write_text(folder / "README.md", classifier_card(settings, data, inputs, scores))
        write_scores(settings.output_dir / SCORES, scores)
        run.tracker.log_scores(scores)
        labels = dict(zip(names, data.truth.sum(axis=0).tolist(), strict=True))
        counts = {"texts": len(data.texts), "left_out": sum(data.blank.values()), "labels": labels}
        run.facts |= {"signature": signature, **counts}
        for score in scores:
            low, high = score.interval or (math.nan, math.nan)
            name = " ".join([score.metric, *score.group.values()])
            print(f"{name}: {score.value:.3f} [{low:.3f}, {high:.3f}] of {score.n:,} texts held out")
        print(f"\nClassifier: {folder.resolve()}")


def _read(settings: TrainClassifierSettings) -> Texts:
    """Read the texts, and choose those that it is measured on: a file's, or some held out."""
    asked = (settings.text_column, settings.label_column, settings.labels, settings.label_separator, settings.columns)
    blank = {}
    texts, labels, blank["texts"] = read_labelled_texts(settings.texts, *asked)
    if settings.test_texts:
        n = len(texts)
        more, their_labels, blank["test_texts"] = read_labelled_texts(settings.test_texts, *asked)
        texts, labels = texts + more, labels + their_labels
        test, among_them = np.arange(len(texts)) >= n, set(more)
        train = np.array([text not in among_them for text in texts])
    else:
        test = hold_out(texts, settings.test_fraction, settings.seed)
        train = ~test
    names = sorted({name for row_labels in labels for name in row_labels})
    truth = np.array([[name in row_labels for name in names] for row_labels in labels])
    return Texts(texts, truth, names, train, test, blank)


def _trained(settings: TrainClassifierSettings, data: Texts) -> Path:
    """Return the folder of the classifier; training goes on from the last checkpoint, if there is one."""
    folder, checkpoints = settings.output_dir / CLASSIFIER, settings.output_dir / CHECKPOINTS
    if not folder.exists():
        with atomic_write_folder(folder) as partial:
            for part in _fitted(settings, data, checkpoints):
                part.save_pretrained(partial)
    shutil.rmtree(checkpoints, ignore_errors=True)
    return folder


def _fitted(
    settings: TrainClassifierSettings, data: Texts, checkpoints: Path
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Return the trained model and its tokenizer."""
    torch.manual_seed(settings.seed)
    texts, truth = data.of(data.train), data.truth[data.train]
    model, tokenizer = _model(settings, texts, data.names)
    encoded = tokenizer(texts, truncation=True, max_length=LONGEST)
    labels = truth.astype(np.float32) if settings.label_separator else truth.argmax(axis=1)
    rows = Dataset.from_dict({**encoded, "labels": labels.tolist()})
    steps = math.ceil(len(rows) / settings.batch_size) * settings.epochs
    last = last_checkpoint(checkpoints)
    with progress(steps, "training", "steps", int(last.name.split("-")[1]) if last else 0) as advance:
        trainer = Trainer(
            model=model,
            args=_arguments(settings, checkpoints),
            optimizers=(_optimizer(model, settings.learning_rate), None),
            train_dataset=rows,
            processing_class=tokenizer,
            data_collator=DataCollatorWithPadding(tokenizer),
            compute_loss_func=_loss_of_several if settings.label_separator else _balanced_loss(truth.sum(axis=0)),
            callbacks=[StepCallback(advance)],
        )
        trainer.remove_callback(PrinterCallback)
        trainer.train(resume_from_checkpoint=str(last) if last else None)
    return model, tokenizer


def _optimizer(model: PreTrainedModel, learning_rate: float) -> torch.optim.AdamW | None:
    """Return AdamW that lets a new head on a pretrained encoder learn at a rate of its own; None for other models.

    At the encoder's rate a head of small random weights on a pooler that was never trained (sentence encoders') says
    the labels' frequencies for a whole epoch.
    """
    if not model.config.architectures or _classifies(model.config):
        return None
    encoder = list(model.base_model.parameters())
    known = {id(parameter) for parameter in encoder}
    head = [parameter for parameter in model.parameters() if id(parameter) not in known]
    rates = ((encoder, learning_rate), (head, max(HEAD_LEARNING_RATE, learning_rate)))
    return torch.optim.AdamW([{"params": of, "lr": rate} for of, rate in rates], weight_decay=0)


def _classifies(config: PreTrainedConfig) -> bool:
    return any(name.endswith("ForSequenceClassification") for name in config.architectures or [])


def _balanced_loss(counts: np.ndarray) -> Callable[..., torch.Tensor]:
    """Return a cross-entropy in which rare labels count as much as frequent ones: shares differ from file to file.

    A label that is in none of the texts (all that have it are held out) is in no row, so its weight does not matter.
    """
    weights = torch.tensor(counts.sum() / (len(counts) * np.maximum(counts, 1)), dtype=torch.float32)
    return lambda output, labels, **_: torch.nn.functional.cross_entropy(
        output["logits"], labels, weight=weights.to(labels.device)
    )


def _loss_of_several(output: Any, labels: torch.Tensor, **_: Any) -> torch.Tensor:
    """Return the binary cross-entropy, unweighted: a label's sigmoid is then its probability, as style vectors need."""
    return torch.nn.functional.binary_cross_entropy_with_logits(output["logits"], labels)


def _arguments(settings: TrainClassifierSettings, checkpoints: Path) -> TrainingArguments:
    return TrainingArguments(
        output_dir=str(checkpoints),
        num_train_epochs=settings.epochs,
        learning_rate=settings.learning_rate,
        per_device_train_batch_size=settings.batch_size,
        lr_scheduler_type="cosine",
        warmup_steps=0.1,
        train_sampling_strategy="group_by_length",
        save_strategy="epoch",
        save_total_limit=1,
        logging_steps=50,
        seed=settings.seed,
        use_cpu=not torch.cuda.is_available(),
        disable_tqdm=True,
        report_to="wandb" if settings.report_to == "wandb" else "none",
    )


def _model(
    settings: TrainClassifierSettings, texts: list[str], names: list[str]
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Return a classifier or an encoder with a new head for these labels, or a small one on words of the texts."""
    labels: dict[str, Any] = {"id2label": dict(enumerate(names)), "label2id": {name: n for n, name in enumerate(names)}}
    kind = "multi_label_classification" if settings.label_separator else "single_label_classification"
    labels["problem_type"] = kind
    if settings.model:
        described = ModelSettings(name=settings.model)
        of_model = load_config(described)
        if not _classifies(of_model):
            model = _on_encoder(described, of_model, labels)
        elif of_model.num_labels != len(names):
            raise InputError(
                f"model: {settings.model} has {of_model.num_labels} labels, the texts {len(names)}; give one with as "
                "many, or an encoder, or leave model out."
            )
        else:
            model = load_weights(AutoModelForSequenceClassification, described)
            model.config.update(labels)
        return model, load_tokenizer(described, model.config)
    tokenizer = word_tokenizer(texts)
    common = {"pad_token_id": tokenizer.pad_token_id, "max_position_embeddings": LONGEST, "vocab_size": len(tokenizer)}
    if settings.architecture == "bert":
        return BertForSequenceClassification(BertConfig(**SIZES, **labels, **common)), tokenizer
    return ModernBertForSequenceClassification(ModernBertConfig(**WORDS_ALONE, **labels, **common)), tokenizer


def _on_encoder(described: ModelSettings, of_model: PreTrainedConfig, labels: dict[str, Any]) -> PreTrainedModel:
    """Return a classifier with an encoder's weights and a head with random ones.

    Raises:
        InputError: its architecture has no classifier, or that has parts which the encoder lacks.
    """
    encoder = load_weights(AutoModel, described)
    of_model.update(labels)
    try:
        model = AutoModelForSequenceClassification.from_config(of_model)
        lacking = model.base_model.load_state_dict(encoder.state_dict(), strict=False).missing_keys
    except (ValueError, RuntimeError) as error:
        raise InputError(f"model: {described.name} cannot be made a classifier: {first_line(error)}") from None
    if lacking:
        raise InputError(f"model: {described.name} lacks {lacking[0]}, which a classifier needs; give another encoder.")
    return model


def word_tokenizer(texts: list[str]) -> PreTrainedTokenizerFast:
    """Return a tokenizer into parts of lower-case words, learned from the texts; the same from the same texts.

    Byte-pair merges without a prefix for parts inside a word: WordPiece's trainer breaks ties as its hash maps fall,
    and makes another vocabulary in each process.
    """
    words = Tokenizer(models.BPE(unk_token=UNKNOWN))
    words.normalizer = normalizers.BertNormalizer(lowercase=True)
    words.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    words.train_from_iterator(
        texts,
        trainers.BpeTrainer(vocab_size=VOCABULARY, special_tokens=[PAD, UNKNOWN, START, END], show_progress=False),
    )
    special = [(token, words.token_to_id(token)) for token in (START, END)]
    words.post_processor = processors.TemplateProcessing(single=f"{START} $A {END}", special_tokens=special)
    names = {"pad_token": PAD, "unk_token": UNKNOWN, "cls_token": START, "sep_token": END}
    return PreTrainedTokenizerFast(tokenizer_object=words, **names, model_max_length=LONGEST)


def _predictions(
    texts: list[str], truth: np.ndarray, found: np.ndarray, names: list[str], separator: str | None
) -> pd.DataFrame:
    labels = [(separator or "").join(name for name, has in zip(names, row, strict=True) if has) for row in truth]
    table = pd.DataFrame({"text": texts, "label": labels})
    return table.assign(**{f"p_{name}": found[:, label] for label, name in enumerate(names)})
