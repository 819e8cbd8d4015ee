"""Train classifier: labelled texts → a small sequence classifier, measured on texts that it never saw.

For measuring offensiveness (002, §2.3.4) without a model hub. The default is a small BERT on whole words, from scratch.
"""

import math
import shutil
from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from datasets import Dataset
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
    TrainingArguments,
)

from evenhand.evaluation.datasets.labelled_texts import hold_out, read_labelled
from evenhand.evaluation.errors import InputError
from evenhand.evaluation.models.checkpoints import load_config, load_tokenizer, load_weights
from evenhand.evaluation.models.revisions import model_revision
from evenhand.evaluation.models.styles import load_style_classifier, style_vectors
from evenhand.evaluation.results import write_scores
from evenhand.evaluation.runs.files import sha256_of, write_text
from evenhand.evaluation.runs.folders import Run, packages, stage
from evenhand.evaluation.runs.progress import progress
from evenhand.evaluation.runs.tables import write_table
from evenhand.evaluation.settings import ModelSettings
from evenhand.evaluation.statistics.accuracy import accuracy_scores
from evenhand.mitigation.training.callbacks import StepCallback
from evenhand.recipes.measure import SCORES
from evenhand.recipes.settings import TrainClassifierSettings

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


def train_classifier(settings: TrainClassifierSettings) -> None:
    """Train, write the classifier's folder, and measure it on the texts held out."""
    if not settings.texts.is_file():
        raise InputError(f"texts: there is no file {settings.texts}; give a CSV or JSONL file of labelled texts.")
    inputs = {"texts": sha256_of(settings.texts)}
    if settings.model:
        inputs["model"] = model_revision(settings.model)
    with stage("train_classifier", settings, inputs) as run:
        if run is None:
            return
        texts, labels, left_out = read_labelled(
            settings.texts, settings.text_column, settings.label_column, settings.labels
        )
        names = sorted(set(labels))
        held_out = hold_out(texts, settings.held_out, settings.seed)
        with run.step("training"):
            folder = _trained(run, settings, texts, labels, names, held_out)
        classifier = load_style_classifier(str(folder), field="classifier")
        rows = np.flatnonzero(held_out)
        with run.step("measuring"), progress(len(rows), "held out", "texts") as advance:
            found = style_vectors(classifier, [texts[row] for row in rows], on_progress=advance)
        truth = np.array([names.index(labels[row]) for row in rows])
        signature = {"texts": inputs["texts"], "classifier": classifier.revision, "packages": packages()}
        scores = accuracy_scores(found, truth, names, signature)
        write_table(settings.output_dir / HELD_OUT, _predictions([texts[row] for row in rows], truth, found, names))
        measured = "; ".join(f"{s.metric} {' '.join(s.group.values())} {s.value:.3f}" for s in scores)
        card = {"labels": ", ".join(names), "n_train": len(texts) - len(rows), "n": len(rows), "left_out": left_out}
        text = CARD.format(**card, texts=settings.texts.name, sha256=inputs["texts"], measured=measured)
        write_text(folder / "README.md", text)
        write_scores(settings.output_dir / SCORES, scores)
        run.tracker.scores(scores)
        run.facts |= {"signature": signature, "texts": len(texts), "left_out": left_out, "labels": Counter(labels)}
        for score in scores:
            low, high = score.interval
            name = " ".join([score.metric, *score.group.values()])
            print(f"{name}: {score.value:.3f} [{low:.3f}, {high:.3f}] of {score.n:,} texts held out")
        print(f"\nClassifier: {folder.resolve()}")


def _trained(
    run: Run,
    settings: TrainClassifierSettings,
    texts: list[str],
    labels: list[str],
    names: list[str],
    held_out: np.ndarray,
) -> Path:
    """Return the folder of the classifier; training goes on from the last checkpoint, if there is one."""
    folder, checkpoints = settings.output_dir / CLASSIFIER, settings.output_dir / CHECKPOINTS
    if folder.exists():
        return folder
    train = [row for row in range(len(texts)) if not held_out[row]]
    torch.manual_seed(settings.seed)
    model, tokenizer = _model(settings, [texts[row] for row in train], names)
    encoded = tokenizer([texts[row] for row in train], truncation=True, max_length=LONGEST)
    rows = Dataset.from_dict({**encoded, "labels": [names.index(labels[row]) for row in train]})
    steps = math.ceil(len(rows) / settings.batch_size) * settings.epochs
    counts = Counter(labels[row] for row in train)
    weights = torch.tensor([len(train) / (len(names) * counts[name]) for name in names])
    last = max(checkpoints.glob("checkpoint-*"), key=lambda path: int(path.name.split("-")[1]), default=None)
    with progress(steps, "training", "steps", int(last.name.split("-")[1]) if last else 0) as advance:
        trainer = Trainer(
            model=model,
            args=_arguments(settings, checkpoints),
            train_dataset=rows,
            processing_class=tokenizer,
            data_collator=DataCollatorWithPadding(tokenizer),
            # Rare labels count as much as frequent ones: shares of offensive texts differ from file to file.
            compute_loss_func=lambda output, labels, **_: torch.nn.functional.cross_entropy(
                output["logits"], labels, weight=weights.to(labels.device)
            ),
            callbacks=[StepCallback(advance)],
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
    """Return a model for these labels, or a small BERT on words of the texts, and its tokenizer."""
    labels = {"id2label": dict(enumerate(names)), "label2id": {name: n for n, name in enumerate(names)}}
    if settings.model:
        described = ModelSettings(name=settings.model)
        of_model = load_config(described)
        if getattr(of_model, "num_labels", 0) != len(names):
            raise InputError(
                f"model: {settings.model} has {of_model.num_labels} labels, the texts {len(names)}; give one with as "
                "many, or leave model out."
            )
        model = load_weights(AutoModelForSequenceClassification, described)
        model.config.update(labels)
        return model, load_tokenizer(described, model.config)
    tokenizer = word_tokenizer(texts)
    special = {"pad_token_id": tokenizer.pad_token_id, "max_position_embeddings": LONGEST}
    return BertForSequenceClassification(BertConfig(**SIZES, **labels, **special, vocab_size=len(tokenizer))), tokenizer


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


def _predictions(texts: list[str], truth: np.ndarray, found: np.ndarray, names: list[str]) -> pd.DataFrame:
    table = pd.DataFrame({"text": texts, "label": [names[label] for label in truth]})
    return table.assign(**{f"p_{name}": found[:, label] for label, name in enumerate(names)})
