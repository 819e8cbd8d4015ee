"""The command `train_classifier`: a small sequence classifier of labelled texts, and its scores on test texts.

The classifier measures offensiveness (Smith et al. 2022, §2.3.4) or styles without a model hub. A text has one label
(softmax), or several (`label_separator`; sigmoids). The default is a small BERT over subwords, trained from scratch.
"""

import math
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import compress
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
import transformers
from datasets import Dataset
from huggingface_hub import ModelCardData
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers
from transformers import PreTrainedModel, PreTrainedTokenizerBase, PreTrainedTokenizerFast

from evenhand.evaluation.data.labelled_texts import hold_out, read_labelled_texts
from evenhand.evaluation.files import sha256_of, write_text
from evenhand.evaluation.manifest import package_versions
from evenhand.evaluation.models.checkpoints import load_config, load_tokenizer, load_weights
from evenhand.evaluation.models.revisions import hub_repository, model_revision
from evenhand.evaluation.models.styles import label_probabilities, load_style_classifier
from evenhand.evaluation.report.numbers import interval, number, sanitize
from evenhand.evaluation.score import BiasScore, display_name, find_score, write_scores
from evenhand.evaluation.settings import AUTO, ModelSettings
from evenhand.evaluation.statistics.accuracy import accuracy_scores, best_thresholds, f1_scores
from evenhand.evaluation.store import stage
from evenhand.evaluation.tables import write_table
from evenhand.mitigation.adapter import atomic_write_folder
from evenhand.mitigation.card import table
from evenhand.mitigation.trainers import LengthGroupedSampler
from evenhand.mitigation.tune import last_checkpoint
from evenhand.recipes.measure import SCORES
from evenhand.recipes.settings import TrainClassifierSettings

CLASSIFIER, CHECKPOINTS = "classifier", "checkpoints"
FILES = ("texts", "test_texts", "dev_texts")  # settings of the files of the splits for training, test and thresholds
Split = tuple[list[str], np.ndarray]  # texts (n,), and whether each text has each label, (n, L) bool
SPECIAL = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
VOCABULARY_SIZE, MAX_LENGTH = 8000, 128
BERT = {"hidden_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 256}
BERT |= {"max_position_embeddings": MAX_LENGTH}
OVERALL = {"accuracy": "accuracy", "macro_f1": "macro-F1", "roc_auc": "area under the ROC curve"}
SETTINGS_ON_CARD = ("epochs", "learning_rate", "batch_size", "seed")


def train_classifier(settings: TrainClassifierSettings) -> None:
    """Train a classifier, write its folder, and measure it on the test texts.

    Raises:
        InputError: a file of texts cannot be read or lacks a column.
    """
    files = {field: settings.data_dir / name for field in FILES if (name := getattr(settings, field)) is not None}
    hashes = {field: sha256_of(path) for field, path in files.items()}
    base = {"model": model_revision(settings.model)} if settings.model else {}
    with stage("train_classifier", settings, hashes | base) as run:
        if run is None:
            return
        names, splits = _read(settings, files)
        train, test, dev = (splits[field] for field in FILES)
        folder = settings.output_dir / CLASSIFIER
        with run.step("training"):
            if not folder.exists():
                with atomic_write_folder(folder) as partial_folder:
                    _fit(settings, *train, names, partial_folder)
            shutil.rmtree(settings.output_dir / CHECKPOINTS, ignore_errors=True)
        classifier = load_style_classifier(str(folder), field="classifier")
        with run.step("measuring"):
            probabilities, of_dev = (label_probabilities(classifier, texts) for texts, _ in (test, dev))
        signature = {**hashes, "classifier": classifier.revision, "packages": package_versions()}
        if settings.label_separator:
            score = partial(f1_scores, probabilities, test[1], names, seed=settings.seed, signature=signature)
            scores = score(threshold=settings.threshold)
            if settings.dev_texts:
                macro = replace(scores[0], group={"threshold": f"{settings.threshold:g}"})
                scores = [*score(threshold=best_thresholds(of_dev, dev[1])), macro]
        else:
            scores = accuracy_scores(probabilities, test[1].argmax(axis=1), names, signature)
        predictions = prediction_table(*test, probabilities, names, settings.label_separator)
        write_table(settings.output_dir / "held_out.parquet", predictions)
        counts = np.stack([truth.sum(axis=0) for _, truth in (train, test)])
        write_text(folder / "README.md", classifier_card(settings, hashes, names, counts, scores))
        write_scores(settings.output_dir / SCORES, scores)
        run.tracker.log_scores(scores)
        run.facts |= {"signature": signature, "texts": {field: len(texts) for field, (texts, _) in splits.items()}}
        print_scores(scores)
        print(f"\nClassifier: {folder.resolve()}")


def print_scores(scores: Sequence[BiasScore]) -> None:
    """Print one line for each score of a classifier on test texts."""
    for score in scores:
        low, high = score.interval or (math.nan, math.nan)
        name = " ".join([score.metric, *score.group.values()])
        print(f"{name}: {score.value:.3f} [{low:.3f}, {high:.3f}] on {score.n:,} test texts")


def prediction_table(
    texts: list[str], truth: np.ndarray, probabilities: np.ndarray, names: Sequence[str], separator: str | None
) -> pd.DataFrame:
    """Return a table of texts, their true labels, and the probability of each label."""
    labels = [(separator or "").join(name for name, has in zip(names, row, strict=True) if has) for row in truth]
    table = pd.DataFrame({"text": texts, "label": labels})
    return table.assign(**{f"p_{name}": probabilities[:, label] for label, name in enumerate(names)})


def _read(settings: TrainClassifierSettings, files: Mapping[str, Path]) -> tuple[list[str], dict[str, Split]]:
    """Return the names of the labels, and each split: n texts, and whether each has each label, (n, L) bool.

    The test split is a file or a random part of `texts`. Training texts that are also in another split are left out.
    """
    columns = (settings.text_column, settings.label_column, settings.labels, settings.label_separator, settings.columns)
    rows = {field: list(zip(*read_labelled_texts(path, *columns)[:2], strict=True)) for field, path in files.items()}
    if not settings.test_texts:
        texts = rows["texts"]
        is_test = hold_out([text for text, _ in texts], settings.test_fraction, settings.seed)
        rows["test_texts"] = list(compress(texts, is_test))
    elsewhere = {text for field in FILES[1:] for text, _ in rows.setdefault(field, [])}
    names = sorted({name for split in rows.values() for _, own in split for name in own})
    rows["texts"] = [row for row in rows["texts"] if row[0] not in elsewhere]
    return names, {
        field: (
            [text for text, _ in split],
            np.array([[name in own for name in names] for _, own in split], dtype=bool).reshape(-1, len(names)),
        )
        for field, split in rows.items()
    }


def _fit(
    settings: TrainClassifierSettings, texts: list[str], truth: np.ndarray, names: list[str], folder: Path
) -> None:
    """Save the classifier that is trained on n texts into `folder`; training resumes from the last checkpoint."""
    torch.manual_seed(settings.seed)
    model, tokenizer = _model(settings, texts, names)
    model.get_input_embeddings().requires_grad_(settings.train_embeddings)
    encoder = {id(parameter) for parameter in model.base_model.parameters()}
    head_rate = settings.learning_rate
    if settings.model:
        # At the encoder's learning rate, a new head on an untrained pooler (sentence encoders have one) predicts only
        # the frequencies of the labels for a whole epoch, and learns the frequencies in hundreds of steps.
        head_rate = max(head_rate, settings.head_learning_rate)
        output = [module for module in model.modules() if isinstance(module, torch.nn.Linear)][-1]
        if settings.label_separator and output.bias is not None:
            share = (truth.sum(axis=0) + 1) / (len(truth) + 2)
            output.bias.data.copy_(torch.as_tensor(np.log(share / (1 - share))))
    groups = [
        {"params": [p for p in model.parameters() if (id(p) in encoder) == of_encoder], "lr": rate}
        for of_encoder, rate in ((True, settings.learning_rate), (False, head_rate))
    ]
    on_gpu, checkpoints = torch.cuda.is_available(), settings.output_dir / CHECKPOINTS
    has_bfloat16 = torch.cuda.is_bf16_supported if on_gpu else torch.ops.mkldnn._is_mkldnn_bf16_supported
    arguments = transformers.TrainingArguments(
        output_dir=str(checkpoints),
        num_train_epochs=settings.epochs,
        learning_rate=settings.learning_rate,
        per_device_train_batch_size=settings.batch_size,
        lr_scheduler_type="cosine",
        warmup_steps=0.1,
        save_steps=0.1,  # share of all steps
        save_total_limit=1,
        logging_steps=50,
        seed=settings.seed,
        use_cpu=not on_gpu,
        bf16=has_bfloat16() if settings.dtype == AUTO else settings.dtype == "bfloat16",
        disable_tqdm=not sys.stderr.isatty(),  # without a terminal, the losses are printed
        report_to=settings.report_to,
    )
    counts = truth.sum(axis=0)
    # Every label has the same total weight.
    weights = torch.tensor(counts.sum() / (len(counts) * np.maximum(counts, 1)), dtype=torch.float32)

    def balanced_loss(output: Any, labels: torch.Tensor, **_: Any) -> torch.Tensor:
        return torch.nn.functional.cross_entropy(output["logits"], labels, weight=weights.to(labels.device))

    labels = truth.astype(np.float32) if settings.label_separator else truth.argmax(axis=1)
    encoded = tokenizer(texts, truncation=True, max_length=MAX_LENGTH)
    last = last_checkpoint(checkpoints)
    trainer = _Trainer(
        model,
        arguments,
        optimizers=(torch.optim.AdamW(groups, weight_decay=0, fused=True), None),
        train_dataset=Dataset.from_dict({**encoded, "labels": labels.tolist()}),
        processing_class=tokenizer,
        data_collator=transformers.DataCollatorWithPadding(tokenizer),
        compute_loss_func=None if settings.label_separator else balanced_loss,
    )
    trainer.train(resume_from_checkpoint=str(last) if last else None)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


class _Trainer(transformers.Trainer):
    """Trainer that keeps the order of the rows of an epoch when training resumes in the middle of the epoch.

    The sampler of transformers draws another order then, because it depends on the global random state.
    """

    def _get_train_sampler(self, train_dataset: Dataset | None = None) -> LengthGroupedSampler:
        lengths = [len(tokens) for tokens in self.train_dataset["input_ids"]]
        return LengthGroupedSampler(lengths, self.args.train_batch_size, self.args.seed)


def _model(
    settings: TrainClassifierSettings, texts: list[str], names: list[str]
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Return an encoder with a new head, or a small new classifier, with its tokenizer."""
    labels: dict[str, Any] = {"id2label": dict(enumerate(names)), "label2id": {name: n for n, name in enumerate(names)}}
    labels["problem_type"] = f"{'multi' if settings.label_separator else 'single'}_label_classification"
    if settings.model:
        source = ModelSettings(name=settings.model)
        config = load_config(source)
        config.update(labels)
        model = transformers.AutoModelForSequenceClassification.from_config(config)
        encoder = load_weights(transformers.AutoModel, source)
        model.base_model.load_state_dict(encoder.state_dict(), strict=False)  # the classifier may have no pooler
        return model, load_tokenizer(source, model.config)
    tokenizer = word_tokenizer(texts)
    labels |= {"vocab_size": len(tokenizer), "pad_token_id": tokenizer.pad_token_id}
    return transformers.BertForSequenceClassification(transformers.BertConfig(**BERT, **labels)), tokenizer


def word_tokenizer(texts: list[str]) -> PreTrainedTokenizerFast:
    """Return a lower-case tokenizer by byte-pair encoding, trained on the texts; equal texts give an equal tokenizer.

    The ties of WordPiece's trainer depend on hash order, which differs in each process.
    """
    _, unknown, start, end = special = [*SPECIAL.values()]
    words = Tokenizer(models.BPE(unk_token=unknown))
    words.normalizer = normalizers.BertNormalizer(lowercase=True)
    words.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.BpeTrainer(vocab_size=VOCABULARY_SIZE, special_tokens=special, show_progress=False)
    words.train_from_iterator(texts, trainer)
    ids = [(token, words.token_to_id(token)) for token in (start, end)]
    words.post_processor = processors.TemplateProcessing(single=f"{start} $A {end}", special_tokens=ids)
    return PreTrainedTokenizerFast(tokenizer_object=words, **SPECIAL, model_max_length=MAX_LENGTH)


def classifier_card(
    settings: TrainClassifierSettings,
    hashes: Mapping[str, str],
    names: Sequence[str],
    counts: np.ndarray,
    scores: Sequence[BiasScore],
) -> str:
    """Return a classifier's model card as Markdown. A base model in a local folder is left out of the front matter.

    `hashes` are the SHA-256 of each file of texts, by the file's setting; `counts` are the numbers of texts with each
    label for training and test, (2, L).
    """
    overall = [score for score in scores if score.group.get("label") not in names]  # two labels have one ROC curve
    metrics = list(dict.fromkeys(score.metric for score in scores if score not in overall))
    thresholds, rows = scores[0].signature.get("threshold"), {}  # one for all labels, or a list
    for index, name in enumerate(names):
        chosen = f" (p ≥ {thresholds[index]:.2f})" if isinstance(thresholds, list) else ""
        of_label = [_text(find_score(scores, metric, label=name)) for metric in metrics]
        rows[sanitize(name) + chosen] = [*(f"{n:,}" for n in counts[:, index]), *of_label]
    meaning = "A text has one label; the probabilities of the labels sum to 1."
    if settings.label_separator:
        threshold = "the number in the table" if isinstance(thresholds, list) else f"{settings.threshold:g}"
        meaning = f"A text has every label with a probability of at least {threshold}."
    metadata = ModelCardData(
        library_name="transformers",
        pipeline_tag="text-classification",
        tags=["evenhand", "multi-label" if settings.label_separator else "single-label"],
        base_model=settings.model and hub_repository(settings.model),
    )
    return CARD.format(
        metadata=metadata.to_yaml(),
        base=f"`{display_name(settings.model)}`" if settings.model else "scratch",
        settings=", ".join(f"{name} {getattr(settings, name)}" for name in SETTINGS_ON_CARD),
        files=", ".join(f"{sanitize(getattr(settings, field).name)} (SHA-256 `{hashes[field]}`)" for field in hashes),
        n=f"{scores[0].n:,}",
        overall="; ".join(f"{OVERALL[it.metric]}{_threshold(it)} {_text(it)}" for it in overall),
        labels=table(rows, ["label", "training texts", "test texts", *metrics]),
        meaning=meaning,
    )


def _threshold(score: BiasScore) -> str:
    return f" (threshold {score.group['threshold']})" if "threshold" in score.group else ""


def _text(score: BiasScore) -> str:
    return f"{number(score.value, 3)} {interval(score.interval, 3)}".strip()


CARD = """---
{metadata}
---

# A text classifier

Trained by `evenhand train_classifier` from {base}: {settings}. Texts: {files}; their licence still applies to them.

## Scores on {n} test texts

{overall}. Brackets contain 95 % intervals. No training text is a test text.

{labels}

{meaning}

## How to use it

Save the code as `label.py` and run `python label.py FOLDER "a text" "another"`, with this folder or its id on the hub.

```python
import sys

from transformers import pipeline

folder, *texts = sys.argv[1:]
classify = pipeline("text-classification", folder, top_k=None)
for text, labels in zip(texts, classify(texts, truncation=True)):
    print(text, {{label["label"]: round(label["score"], 3) for label in labels}})
```

Evenhand accepts the folder as `--generation_bias.style_classifier` or `--generation_bias.offensiveness`.

## Limits

- The labels reproduce the judgements and mistakes of the annotators. Classifiers often associate a dialect, or the
  mention of a group, with a label: check the errors on texts by and about the groups that you study.
- The scores hold for texts like the test texts, not for other texts such as the responses of a dialogue model.
- Use the probabilities to compare texts or models, not to judge a single text or person.
"""
