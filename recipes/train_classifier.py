"""The command `train_classifier`: a small sequence classifier of labelled texts, and its scores on test texts.

The classifier measures offensiveness (002, §2.3.4) or styles without a model hub. A text has one label (softmax), or
several (`label_separator`; sigmoids). The default is a small BERT over subwords, trained from scratch.
"""

import math
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
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

from evenhand.evaluation.data.labelled_texts import hold_out, read_labelled_texts
from evenhand.evaluation.errors import InputError
from evenhand.evaluation.models.checkpoints import load_config, load_tokenizer, load_weights
from evenhand.evaluation.models.revisions import first_line, model_revision
from evenhand.evaluation.models.styles import label_probabilities, load_style_classifier
from evenhand.evaluation.progress import progress
from evenhand.evaluation.runs.environment import package_versions
from evenhand.evaluation.runs.files import sha256_of, write_text
from evenhand.evaluation.runs.stage import stage
from evenhand.evaluation.runs.tables import write_table
from evenhand.evaluation.score import BiasScore, write_scores
from evenhand.evaluation.settings import AUTO, ModelSettings
from evenhand.evaluation.statistics.accuracy import accuracy_scores, best_thresholds, f1_scores
from evenhand.mitigation.training.adapter import atomic_write_folder
from evenhand.mitigation.training.callbacks import StepCallback
from evenhand.mitigation.training.fit import last_checkpoint
from evenhand.mitigation.training.trainers.sft import LengthGroupedSampler
from evenhand.recipes.classifier_card import Texts, classifier_card
from evenhand.recipes.measure import SCORES
from evenhand.recipes.settings import TrainClassifierSettings

CLASSIFIER, CHECKPOINTS, HELD_OUT = "classifier", "checkpoints", "held_out.parquet"
PAD, UNKNOWN, START, END = "[PAD]", "[UNK]", "[CLS]", "[SEP]"
VOCABULARY_SIZE, MAX_LENGTH = 8000, 128
FILES = ("texts", "test_texts", "dev_texts")
SAVED = ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json")
SIZES = {"hidden_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 256}
# Nearly a bag of words: one layer with mean pooling.
BAG_OF_WORDS = {
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
    """Train a classifier, write its folder, and measure it on the test texts.

    Raises:
        InputError: a file of texts does not exist or lacks a column; the model cannot be a classifier of these labels.
    """
    inputs = {}
    for field in FILES:
        if (name := getattr(settings, field)) is not None:
            path = settings.data_dir / name
            if not path.is_file():
                raise InputError(f"{field}: {path} does not exist; give a CSV, TSV or JSONL file of labelled texts.")
            inputs[field] = sha256_of(path)
    if settings.model:
        inputs["model"] = model_revision(settings.model)
    with stage("train_classifier", settings, inputs) as run:
        if run is None:
            return
        data = _read(settings)
        with run.step("training"):
            folder = _train(settings, data)
        classifier = load_style_classifier(str(folder), field="classifier")
        texts, truth, names = data.select(data.test), data.truth[data.test], data.names
        with run.step("measuring"), progress(len(texts) + int(data.dev.sum()), "held out", "texts") as advance:
            probabilities = label_probabilities(classifier, texts, on_progress=advance)
            dev = label_probabilities(classifier, data.select(data.dev), on_progress=advance)
        files = {key: inputs[key] for key in FILES if key in inputs}
        signature = {**files, "classifier": classifier.revision, "packages": package_versions()}
        if settings.label_separator:
            score = partial(f1_scores, probabilities, truth, names, seed=settings.seed, signature=signature)
            scores = score(threshold=settings.threshold)
            if settings.dev_texts:
                macro = replace(scores[0], group={"threshold": f"{settings.threshold:g}"})
                scores = [*score(threshold=best_thresholds(dev, data.truth[data.dev])), macro]
        else:
            scores = accuracy_scores(probabilities, truth.argmax(axis=1), names, signature)
        predictions = prediction_table(texts, truth, probabilities, names, settings.label_separator)
        write_table(settings.output_dir / HELD_OUT, predictions)
        write_text(folder / "README.md", classifier_card(settings, data, inputs, scores))
        write_scores(settings.output_dir / SCORES, scores)
        run.tracker.log_scores(scores)
        labels = dict(zip(names, data.truth.sum(axis=0).tolist(), strict=True))
        counts = {"texts": len(data.texts), "left_out": sum(data.blank.values()), "labels": labels}
        run.facts |= {"signature": signature, **counts}
        print_scores(scores)
        print(f"\nClassifier: {folder.resolve()}")


def print_scores(scores: Sequence[BiasScore]) -> None:
    """Print one line for each score of a classifier on test texts."""
    for score in scores:
        low, high = score.interval or (math.nan, math.nan)
        name = " ".join([score.metric, *score.group.values()])
        print(f"{name}: {score.value:.3f} [{low:.3f}, {high:.3f}] on {score.n:,} test texts")


def _read(settings: TrainClassifierSettings) -> Texts:
    """Return the labelled texts. The test split is a file or a fraction of `texts`; the dev split may be empty."""
    columns = (settings.text_column, settings.label_column, settings.labels, settings.label_separator, settings.columns)
    blank = {}
    texts, labels, blank["texts"] = read_labelled_texts(settings.data_dir / settings.texts, *columns)
    dev_texts: list[str] = []
    if settings.dev_texts:
        dev_texts, dev_labels, blank["dev_texts"] = read_labelled_texts(
            settings.data_dir / settings.dev_texts, *columns
        )
    if settings.test_texts:
        n = len(texts)
        test_texts, test_labels, blank["test_texts"] = read_labelled_texts(
            settings.data_dir / settings.test_texts, *columns
        )
        texts, labels = texts + test_texts, labels + test_labels
        test, distinct = np.arange(len(texts)) >= n, set(test_texts)
        train = np.array([text not in distinct for text in texts])
    else:
        test = hold_out(texts, settings.test_fraction, settings.seed)
        train = ~test
    if dev_texts:
        distinct_dev = set(dev_texts)
        train &= np.array([text not in distinct_dev for text in texts])
        texts, labels = texts + dev_texts, labels + dev_labels
        train, test = (np.append(mask, np.zeros(len(dev_texts), dtype=bool)) for mask in (train, test))
    dev = np.arange(len(texts)) >= len(texts) - len(dev_texts)
    names = _output_order(settings, sorted({name for row_labels in labels for name in row_labels}))
    truth = np.array([[name in row_labels for name in names] for row_labels in labels])
    return Texts(texts, truth, names, train, dev, test, blank)


def _output_order(settings: TrainClassifierSettings, names: list[str]) -> list[str]:
    """Return the names of the labels, in the order of the outputs of a classifier that has the same labels."""
    if not settings.model:
        return names
    config = load_config(ModelSettings(name=settings.model))
    outputs = [config.id2label[n] for n in sorted(config.id2label)] if _is_classifier(config) else []
    return outputs if sorted(outputs) == names else names


def _train(settings: TrainClassifierSettings, data: Texts) -> Path:
    """Return the folder of the trained classifier; training resumes from the last checkpoint, if any."""
    folder, checkpoints = settings.output_dir / CLASSIFIER, settings.output_dir / CHECKPOINTS
    if not all((folder / name).exists() for name in SAVED):  # a file is missing if it was damaged
        with atomic_write_folder(folder) as partial:
            for part in _fit(settings, data, checkpoints):
                part.save_pretrained(partial)
    shutil.rmtree(checkpoints, ignore_errors=True)
    return folder


def _fit(
    settings: TrainClassifierSettings, data: Texts, checkpoints: Path
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Return the classifier trained on the training split, and its tokenizer; training resumes from `checkpoints`."""
    torch.manual_seed(settings.seed)
    texts, truth = data.select(data.train), data.truth[data.train]
    model, tokenizer = _model(settings, texts, data.names)
    model.get_input_embeddings().requires_grad_(settings.train_embeddings)
    if settings.label_separator and _has_new_head(model):
        _start_from_frequencies(model, truth)
    encoded = tokenizer(texts, truncation=True, max_length=MAX_LENGTH)
    labels = truth.astype(np.float32) if settings.label_separator else truth.argmax(axis=1)
    rows = Dataset.from_dict({**encoded, "labels": labels.tolist()})
    steps = math.ceil(len(rows) / settings.batch_size) * settings.epochs
    last = last_checkpoint(checkpoints)
    with progress(steps, "training", "steps", int(last.name.split("-")[1]) if last else 0) as advance:
        trainer = _Trainer(
            model=model,
            args=_arguments(settings, checkpoints),
            optimizers=(_optimizer(model, settings), None),
            train_dataset=rows,
            processing_class=tokenizer,
            data_collator=DataCollatorWithPadding(tokenizer),
            compute_loss_func=_multi_label_loss if settings.label_separator else _balanced_loss(truth.sum(axis=0)),
            callbacks=[StepCallback(advance)],
        )
        trainer.remove_callback(PrinterCallback)
        trainer.train(resume_from_checkpoint=str(last) if last else None)
    return model, tokenizer


class _Trainer(Trainer):
    """Trainer that keeps the order of the rows of an epoch when training resumes in the middle of the epoch.

    The sampler of transformers draws another order then, because it depends on the global random state.
    """

    def _get_train_sampler(self, train_dataset: Dataset | None = None) -> LengthGroupedSampler:
        lengths = [len(tokens) for tokens in self.train_dataset["input_ids"]]
        return LengthGroupedSampler(lengths, self.args.train_batch_size, self.args.seed)


def _optimizer(model: PreTrainedModel, settings: TrainClassifierSettings) -> torch.optim.AdamW | None:
    """Return AdamW with a higher learning rate for a new head on a pretrained encoder; None for other models.

    At the encoder's learning rate, a new head on an untrained pooler (sentence encoders have one) predicts only the
    frequencies of the labels for a whole epoch.
    """
    if not _has_new_head(model):
        return None
    encoder = [parameter for parameter in model.base_model.parameters() if parameter.requires_grad]
    encoder_ids = {id(parameter) for parameter in encoder}
    head = [parameter for parameter in model.parameters() if id(parameter) not in encoder_ids]
    rates = ((encoder, settings.learning_rate), (head, max(settings.head_learning_rate, settings.learning_rate)))
    groups = [{"params": parameters, "lr": rate} for parameters, rate in rates]
    return torch.optim.AdamW(groups, weight_decay=0, fused=True)


def _start_from_frequencies(model: PreTrainedModel, truth: np.ndarray) -> None:
    """Set the biases of a new head to the labels' log odds, which the head would learn only in hundreds of steps."""
    heads = [module for module in model.modules() if isinstance(module, torch.nn.Linear)]
    if heads[-1].out_features == truth.shape[1] and heads[-1].bias is not None:
        share = (truth.sum(axis=0) + 1) / (len(truth) + 2)
        heads[-1].bias.data.copy_(torch.as_tensor(np.log(share / (1 - share))))


def _has_new_head(model: PreTrainedModel) -> bool:
    """Return whether the model is a pretrained encoder with a head that is not trained yet."""
    return bool(model.config.architectures) and not _is_classifier(model.config)


def _is_classifier(config: PreTrainedConfig) -> bool:
    return any(name.endswith("ForSequenceClassification") for name in config.architectures or [])


def _balanced_loss(counts: np.ndarray) -> Callable[..., torch.Tensor]:
    """Return a cross-entropy loss weighted by the inverse frequencies of the labels.

    A label without training texts gets a finite weight, which no row uses.
    """
    weights = torch.tensor(counts.sum() / (len(counts) * np.maximum(counts, 1)), dtype=torch.float32)
    return lambda output, labels, **_: torch.nn.functional.cross_entropy(
        output["logits"], labels, weight=weights.to(labels.device)
    )


def _multi_label_loss(output: Any, labels: torch.Tensor, **_: Any) -> torch.Tensor:
    """Return the binary cross-entropy, unweighted because style vectors need calibrated probabilities."""
    return torch.nn.functional.binary_cross_entropy_with_logits(output["logits"], labels)


def _arguments(settings: TrainClassifierSettings, checkpoints: Path) -> TrainingArguments:
    return TrainingArguments(
        output_dir=str(checkpoints),
        num_train_epochs=settings.epochs,
        learning_rate=settings.learning_rate,
        per_device_train_batch_size=settings.batch_size,
        lr_scheduler_type="cosine",
        warmup_steps=0.1,
        save_strategy="steps",
        save_steps=0.1,  # share of all steps
        save_total_limit=1,
        logging_steps=50,
        seed=settings.seed,
        use_cpu=not torch.cuda.is_available(),
        bf16=_is_bfloat16(settings.dtype),
        disable_tqdm=True,
        report_to="wandb" if settings.report_to == "wandb" else "none",
    )


def _is_bfloat16(dtype: str) -> bool:
    """Return whether to train in mixed precision; with "auto", True if the processor supports bfloat16."""
    if dtype == AUTO:
        on_gpu = torch.cuda.is_available()
        return torch.cuda.is_bf16_supported() if on_gpu else torch.ops.mkldnn._is_mkldnn_bf16_supported()
    return dtype == "bfloat16"


def _model(
    settings: TrainClassifierSettings, texts: list[str], names: list[str]
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Return a pretrained classifier, an encoder with a new head, or a small new model, with its tokenizer."""
    labels: dict[str, Any] = {"id2label": dict(enumerate(names)), "label2id": {name: n for n, name in enumerate(names)}}
    labels["problem_type"] = f"{'multi' if settings.label_separator else 'single'}_label_classification"
    if settings.model:
        source = ModelSettings(name=settings.model)
        config = load_config(source)
        if not _is_classifier(config):
            model = _with_new_head(source, config, labels)
        elif config.num_labels != len(names):
            raise InputError(
                f"model: {settings.model} has {config.num_labels} labels, but the texts have {len(names)}; give a "
                "classifier with as many labels, give an encoder, or omit model."
            )
        else:
            model = load_weights(AutoModelForSequenceClassification, source)
            model.config.update(labels)
        return model, load_tokenizer(source, model.config)
    tokenizer = word_tokenizer(texts)
    common = {
        "pad_token_id": tokenizer.pad_token_id,
        "max_position_embeddings": MAX_LENGTH,
        "vocab_size": len(tokenizer),
    }
    if settings.architecture == "bert":
        return BertForSequenceClassification(BertConfig(**SIZES, **labels, **common)), tokenizer
    return ModernBertForSequenceClassification(ModernBertConfig(**BAG_OF_WORDS, **labels, **common)), tokenizer


def _with_new_head(source: ModelSettings, config: PreTrainedConfig, labels: dict[str, Any]) -> PreTrainedModel:
    """Return a classifier with the weights of an encoder and a randomly initialised head."""
    encoder = load_weights(AutoModel, source)
    config.update(labels)
    try:
        model = AutoModelForSequenceClassification.from_config(config)
        missing = model.base_model.load_state_dict(encoder.state_dict(), strict=False).missing_keys
    except (ValueError, RuntimeError) as error:
        raise InputError(f"model: {source.name} cannot become a classifier: {first_line(error)}") from None
    if missing:
        raise InputError(f"model: {source.name} lacks {missing[0]}, which a classifier needs; give another encoder.")
    return model


def word_tokenizer(texts: list[str]) -> PreTrainedTokenizerFast:
    """Return a lower-case subword tokenizer that is trained on the texts; equal texts give an equal tokenizer.

    The algorithm is byte-pair encoding; the ties of WordPiece's trainer depend on hash order, which differs in each
    process.
    """
    words = Tokenizer(models.BPE(unk_token=UNKNOWN))
    words.normalizer = normalizers.BertNormalizer(lowercase=True)
    words.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    words.train_from_iterator(
        texts,
        trainers.BpeTrainer(vocab_size=VOCABULARY_SIZE, special_tokens=[PAD, UNKNOWN, START, END], show_progress=False),
    )
    special = [(token, words.token_to_id(token)) for token in (START, END)]
    words.post_processor = processors.TemplateProcessing(single=f"{START} $A {END}", special_tokens=special)
    names = {"pad_token": PAD, "unk_token": UNKNOWN, "cls_token": START, "sep_token": END}
    return PreTrainedTokenizerFast(tokenizer_object=words, **names, model_max_length=MAX_LENGTH)


def prediction_table(
    texts: list[str], truth: np.ndarray, probabilities: np.ndarray, names: list[str], separator: str | None
) -> pd.DataFrame:
    """Return a table of texts, their true labels, and the probability of each label."""
    labels = [(separator or "").join(name for name, has in zip(names, row, strict=True) if has) for row in truth]
    table = pd.DataFrame({"text": texts, "label": labels})
    return table.assign(**{f"p_{name}": probabilities[:, label] for label, name in enumerate(names)})
