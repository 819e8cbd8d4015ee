"""Train classifier: labelled texts → a small sequence classifier, measured on texts that it never saw.

For measuring offensiveness (002, §2.3.4) without a model hub. The default is a small BERT on whole words, from scratch.
"""

import csv
import json
import math
import shutil
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from datasets import Dataset
from scipy import stats
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers
from transformers import (
    AutoModelForSequenceClassification,
    BertConfig,
    BertForSequenceClassification,
    DataCollatorWithPadding,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    PreTrainedTokenizerFast,
    PrinterCallback,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)

from evaluation.errors import InputError
from evaluation.files import sha256_of, write_text
from evaluation.metrics.paired_change import share_interval
from evaluation.models import load_config, load_tokenizer, load_weights, model_revision
from evaluation.progress import progress
from evaluation.results import BiasScore, write_scores
from evaluation.styles import load_style_classifier, style_vectors
from recipes.config import TrainClassifierConfig
from recipes.runs import Run, packages, stage
from recipes.tables import SCORES, write_table

CLASSIFIER, CHECKPOINTS, HELD_OUT = "classifier", "checkpoints", "held_out.parquet"
PAD, UNKNOWN, START, END = "[PAD]", "[UNK]", "[CLS]", "[SEP]"
VOCABULARY, LONGEST = 8000, 128
SIZES = {"hidden_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 256}
CARD = """# A text classifier

Labels: {labels}. Trained by `evenhand train_classifier` on {n_train:,} texts of `{texts}` (SHA-256 {sha256});
{left_out:,} blank ones were left out. The texts' licence is theirs.

On {n:,} texts held out: {measured}.

What it takes for offensive is what the labellers of these texts took for it. Labels of tweets by crowd workers are
known to mark African American English more often than other English (Sap et al. 2019; Davidson et al. 2019), and words
more than what is meant. Its scores compare texts or models; they are no verdict on any one of them.
"""


def train_classifier(config: TrainClassifierConfig) -> None:
    """Train, write the classifier's folder, and measure it on the texts held out."""
    if not config.texts.is_file():
        raise InputError(f"texts: there is no file {config.texts}; give a CSV or JSONL file of labelled texts.")
    inputs = {"texts": sha256_of(config.texts)}
    if config.model:
        inputs["model"] = model_revision(config.model)
    with stage("train_classifier", config, inputs) as run:
        if run is None:
            return
        texts, labels, left_out = read_labelled(config)
        names = sorted(set(labels))
        held_out = hold_out(texts, config.held_out, config.seed)
        with run.step("training"):
            folder = _trained(run, config, texts, labels, names, held_out)
        classifier = load_style_classifier(str(folder), field="classifier")
        rows = np.flatnonzero(held_out)
        with run.step("measuring"), progress(len(rows), "held out", "texts") as advance:
            found = style_vectors(classifier, [texts[row] for row in rows], on_progress=advance)
        truth = np.array([names.index(labels[row]) for row in rows])
        signature = {"texts": inputs["texts"], "classifier": classifier.revision, "packages": packages()}
        scores = accuracy_scores(found, truth, names, signature)
        write_table(config.output_dir / HELD_OUT, _predictions([texts[row] for row in rows], truth, found, names))
        measured = "; ".join(f"{s.metric} {' '.join(s.group.values())} {s.value:.3f}" for s in scores)
        card = {"labels": ", ".join(names), "n_train": len(texts) - len(rows), "n": len(rows), "left_out": left_out}
        text = CARD.format(**card, texts=config.texts.name, sha256=inputs["texts"], measured=measured)
        write_text(folder / "README.md", text)
        write_scores(config.output_dir / SCORES, scores)
        run.tracker.scores(scores)
        run.facts |= {"signature": signature, "texts": len(texts), "left_out": left_out, "labels": Counter(labels)}
        for score in scores:
            low, high = score.interval
            name = " ".join([score.metric, *score.group.values()])
            print(f"{name}: {score.value:.3f} [{low:.3f}, {high:.3f}] of {score.n:,} texts held out")
        print(f"\nClassifier: {folder.resolve()}")


def read_labelled(config: TrainClassifierConfig) -> tuple[list[str], list[str], int]:
    """Return the texts, the name of each one's label, and how many texts were blank and are left out.

    Raises:
        InputError: the file cannot be read; a column is missing; a label is missing or has no name; there is one label.
    """
    rows = _rows(config.texts)
    for field, name in (("text_column", config.text_column), ("label_column", config.label_column)):
        if rows and name not in rows[0]:
            raise InputError(
                f"{field}: {config.texts} has no column {name!r}; there are {', '.join(map(str, rows[0]))}."
            )
    names = {str(value): name for value, name in config.labels.items()}
    texts, labels = [], []
    for number, row in enumerate(rows, start=1):
        text, value = row.get(config.text_column), row.get(config.label_column)
        if value is None or str(value).strip() == "":
            raise InputError(f"label_column: row {number} of {config.texts} has no label; give one, or drop the row.")
        if names and str(value) not in names:
            raise InputError(f"labels: row {number} has {value!r}, which has no name; known are {', '.join(names)}.")
        if isinstance(text, str) and text.strip():
            texts.append(text)
            labels.append(names.get(str(value), str(value)))
    if len(set(labels)) < 2:
        raise InputError(f"labels: all {len(texts)} texts are {set(labels)}; a classifier needs two labels.")
    return texts, labels, len(rows) - len(texts)


def _rows(path: Path) -> list[dict[str, Any]]:
    try:
        if path.suffix == ".jsonl":
            return [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line.strip()]
        with path.open(encoding="utf-8-sig", newline="") as file:
            return list(csv.DictReader(file))
    except (OSError, ValueError, csv.Error) as error:
        raise InputError(f"texts: {path} cannot be read ({error}); give a CSV or JSONL file in UTF-8.") from None


def hold_out(texts: Sequence[str], share: float, seed: int) -> np.ndarray:
    """Return which texts are held out, (n,) bool: equal ones together, so that none is seen in training."""
    distinct, of_text = np.unique(np.array(texts, dtype=object).astype(str), return_inverse=True)
    chosen = np.random.default_rng(seed).random(len(distinct)) < share
    if chosen.all() or not chosen.any():
        raise InputError(
            f"held_out: {share} of {len(distinct)} different texts leaves one side empty; give more texts."
        )
    return chosen[of_text]


def _trained(
    run: Run, config: TrainClassifierConfig, texts: list[str], labels: list[str], names: list[str], held_out: np.ndarray
) -> Path:
    """Return the folder of the classifier; training goes on from the last checkpoint, if there is one."""
    folder, checkpoints = config.output_dir / CLASSIFIER, config.output_dir / CHECKPOINTS
    if folder.exists():
        return folder
    train = [row for row in range(len(texts)) if not held_out[row]]
    torch.manual_seed(config.seed)
    model, tokenizer = _model(config, [texts[row] for row in train], names)
    encoded = tokenizer([texts[row] for row in train], truncation=True, max_length=LONGEST)
    rows = Dataset.from_dict({**encoded, "labels": [names.index(labels[row]) for row in train]})
    arguments = TrainingArguments(
        output_dir=str(checkpoints),
        num_train_epochs=config.epochs,
        learning_rate=config.learning_rate,
        per_device_train_batch_size=config.batch_size,
        lr_scheduler_type="cosine",
        warmup_steps=0.1,
        train_sampling_strategy="group_by_length",
        save_strategy="epoch",
        save_total_limit=1,
        logging_steps=50,
        seed=config.seed,
        use_cpu=not torch.cuda.is_available(),
        disable_tqdm=True,
        report_to="wandb" if config.report_to == "wandb" else "none",
    )
    steps = math.ceil(len(rows) / config.batch_size) * config.epochs
    counts = Counter(labels[row] for row in train)
    weights = torch.tensor([len(train) / (len(names) * counts[name]) for name in names])
    last = max(checkpoints.glob("checkpoint-*"), key=lambda path: int(path.name.split("-")[1]), default=None)
    with progress(steps, "training", "steps", int(last.name.split("-")[1]) if last else 0) as advance:
        trainer = Trainer(
            model=model,
            args=arguments,
            train_dataset=rows,
            processing_class=tokenizer,
            data_collator=DataCollatorWithPadding(tokenizer),
            # Rare labels count as much as frequent ones: shares of offensive texts differ from file to file.
            compute_loss_func=lambda output, labels, **_: torch.nn.functional.cross_entropy(
                output["logits"], labels, weight=weights.to(labels.device)
            ),
            callbacks=[_Steps(advance)],
        )
        trainer.remove_callback(PrinterCallback)
        trainer.train(resume_from_checkpoint=str(last) if last else None)
    partial = folder.with_name(f".{CLASSIFIER}.part")
    shutil.rmtree(partial, ignore_errors=True)
    model.save_pretrained(partial)
    tokenizer.save_pretrained(partial)
    partial.replace(folder)
    shutil.rmtree(checkpoints, ignore_errors=True)
    return folder


def _model(
    config: TrainClassifierConfig, texts: list[str], names: list[str]
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Return a model of the config's for these labels, or a small BERT on words of the texts, and its tokenizer."""
    labels = {"id2label": dict(enumerate(names)), "label2id": {name: n for n, name in enumerate(names)}}
    if config.model:
        of_model = load_config(config.model, None, False)
        if getattr(of_model, "num_labels", 0) != len(names):
            raise InputError(
                f"model: {config.model} has {of_model.num_labels} labels, the texts {len(names)}; give one with as "
                "many, or leave model out."
            )
        model = load_weights(AutoModelForSequenceClassification, config.model, None, torch.float32, False)
        model.config.update(labels)
        return model, load_tokenizer(config.model, None, model.config, False)
    tokenizer = _word_tokenizer(texts)
    special = {"pad_token_id": tokenizer.pad_token_id, "max_position_embeddings": LONGEST}
    return BertForSequenceClassification(BertConfig(**SIZES, **labels, **special, vocab_size=len(tokenizer))), tokenizer


def _word_tokenizer(texts: list[str]) -> PreTrainedTokenizerFast:
    words = Tokenizer(models.WordPiece(unk_token=UNKNOWN))
    words.normalizer = normalizers.BertNormalizer(lowercase=True)
    words.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    words.train_from_iterator(
        texts,
        trainers.WordPieceTrainer(
            vocab_size=VOCABULARY, special_tokens=[PAD, UNKNOWN, START, END], show_progress=False
        ),
    )
    special = [(token, words.token_to_id(token)) for token in (START, END)]
    words.post_processor = processors.TemplateProcessing(single=f"{START} $A {END}", special_tokens=special)
    names = {"pad_token": PAD, "unk_token": UNKNOWN, "cls_token": START, "sep_token": END}
    return PreTrainedTokenizerFast(tokenizer_object=words, **names, model_max_length=LONGEST)


class _Steps(TrainerCallback):
    """Moves the progress bar."""

    def __init__(self, advance: Any) -> None:
        self.advance = advance

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.advance(1)


def accuracy_scores(
    probabilities: np.ndarray, truth: np.ndarray, names: Sequence[str], signature: Mapping[str, Any]
) -> list[BiasScore]:
    """Return accuracy, recall of each label, and for each label the area under the ROC curve, in [0, 1], ideal 1.

    Intervals: Wilson's for shares; that of Hanley and McNeil (1982) for areas.

    Args:
        probabilities: of each label, (n, L). truth: the index of each text's label, (n,). names: of the labels, (L,).
    """
    found = probabilities.argmax(axis=1)
    common = {"ideal": 1.0, "bounds": (0.0, 1.0), "signature": signature}

    def share(metric: str, hits: np.ndarray, group: dict[str, str]) -> BiasScore:
        n, right = len(hits), int(hits.sum())
        reason = None if n else "no text held out has this label"
        interval = share_interval(right, n)
        return BiasScore(
            metric, right / n if n else math.nan, n=n, interval=interval, group=group, reason=reason, **common
        )

    scores = [share("accuracy", found == truth, {})]
    for label, name in enumerate(names):
        scores.append(share("recall", found[truth == label] == label, {"label": name}))
    # Of two labels one area says all.
    for label in range(len(names) if len(names) > 2 else 1):
        one, other = (probabilities[chosen, label] for chosen in (truth == label, truth != label))
        area, interval = _area(one, other)
        reason = None if math.isfinite(area) else "no text held out has this label, or all have"
        name = names[label] if len(names) > 2 else " or ".join(names)
        group = {"label": name}
        scores.append(BiasScore("roc_auc", area, n=len(truth), interval=interval, group=group, reason=reason, **common))
    return scores


def _area(one: np.ndarray, other: np.ndarray) -> tuple[float, tuple[float, float] | None]:
    """Return P(a number of `one` is above one of `other`), ties counting half, and its 95 % interval."""
    if not len(one) or not len(other):
        return math.nan, None
    area = float(stats.mannwhitneyu(one, other).statistic / (len(one) * len(other)))
    q1, q2 = area / (2 - area), 2 * area**2 / (1 + area)
    spread = area * (1 - area) + (len(one) - 1) * (q1 - area**2) + (len(other) - 1) * (q2 - area**2)
    half = float(stats.norm.ppf(0.975)) * math.sqrt(spread / (len(one) * len(other)))
    return area, (max(0.0, area - half), min(1.0, area + half))


def _predictions(texts: list[str], truth: np.ndarray, found: np.ndarray, names: list[str]) -> pd.DataFrame:
    table = pd.DataFrame({"text": texts, "label": [names[label] for label in truth]})
    return table.assign(**{f"p_{name}": found[:, label] for label, name in enumerate(names)})
