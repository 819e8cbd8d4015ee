"""The command `train_classifier`: a small classifier of labelled texts, and its scores on test texts.

The classifier measures styles or offensiveness (Smith et al. 2022, §2.3.4) without a model hub. A text has one label
(softmax), or several (`label_separator`; sigmoids).
"""

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import compress
from pathlib import Path

import numpy as np
import pandas as pd
from peft import PeftModel

from evenhand.evaluation.data.readers.labelled_texts import held_out_mask
from evenhand.evaluation.errors import InputError
from evenhand.evaluation.files import sha256_of, write_json, write_text
from evenhand.evaluation.models.classifier_folders import (
    ADAPTER_FILES,
    DESCRIPTION,
    WEIGHTS,
    ClassifierDescription,
    EncoderSource,
    encoder_sources,
    find_encoder,
    read_description,
)
from evenhand.evaluation.models.classifier_kinds import load_style_classifier
from evenhand.evaluation.models.revisions import hub_repository, model_revision
from evenhand.evaluation.models.styles import label_probabilities
from evenhand.evaluation.report.numbers import interval
from evenhand.evaluation.runs.record import package_versions
from evenhand.evaluation.runs.stage import stage
from evenhand.evaluation.score import SCORES, BiasScore, signed, write_scores
from evenhand.evaluation.statistics.accuracy import best_thresholds, calibration_error, classifier_scores, f1_scores
from evenhand.evaluation.statistics.scores import share_score
from evenhand.evaluation.tables import write_table
from evenhand.mitigation.adapter import atomic_write_folder
from evenhand.recipes.classifier_card import classifier_card
from evenhand.recipes.classifier_training import CHECKPOINTS, fit_classifier
from evenhand.recipes.command_settings import TrainClassifierSettings
from evenhand.recipes.mention_check import check_mentions

CLASSIFIER = "classifier"
TEXTS = "texts"
TEST_TEXTS = "test_texts"
DEV_TEXTS = "dev_texts"
MODEL_FILES = ("config.json", WEIGHTS, "tokenizer.json", "tokenizer_config.json")
FILES = (TEXTS, TEST_TEXTS, DEV_TEXTS)  # settings of the files of the splits for training, test and thresholds


@dataclass(frozen=True)
class Split:
    """n texts, and whether each has each of L labels, (n, L) bool."""

    texts: list[str]
    truth: np.ndarray


def train_classifier(settings: TrainClassifierSettings) -> None:
    """Train a classifier, write its folder, and measure it on the test texts.

    Raises:
        InputError: a file of texts cannot be read or lacks a column, or the encoder is not on this machine.
    """
    files = {}
    for field in FILES:
        name = getattr(settings, field)
        if name is not None:
            files[field] = settings.data_dir / name
    hashes = {field: sha256_of(path) for field, path in files.items()}
    inputs = dict(hashes)
    if settings.model is not None:
        inputs["model"] = model_revision(settings.model)
    with stage("train_classifier", settings, inputs) as store:
        if store is None:
            return
        names, splits = read_splits(settings, files)
        folder = settings.output_dir / CLASSIFIER
        with store.step("training"):
            if not _is_complete(settings, folder):
                write_classifier(settings, splits[TEXTS], names, folder, store.tracker.of_trainer())
            shutil.rmtree(settings.output_dir / CHECKPOINTS, ignore_errors=True)
        classifier = load_style_classifier(str(folder), field="classifier")
        test = splits[TEST_TEXTS]
        with store.step("measuring"):
            probabilities = label_probabilities(classifier, test.texts)
            dev_probabilities = label_probabilities(classifier, splits[DEV_TEXTS].texts)
            mentions = check_mentions(classifier, probabilities)
        signature = {**hashes, "classifier": classifier.revision, "packages": package_versions()}
        if settings.label_separator is None:
            scores = classifier_scores(probabilities, test.truth.argmax(axis=1), names)
        else:
            thresholds = None
            if settings.dev_texts is not None:
                thresholds = best_thresholds(dev_probabilities, splits[DEV_TEXTS].truth)
                if (folder / DESCRIPTION).exists():
                    write_thresholds(folder, thresholds)
            scores = several_label_scores(settings, probabilities, test.truth, names, thresholds)
        scores = signed(scores, signature)
        predictions = prediction_table(test.texts, test.truth, probabilities, names, settings.label_separator)
        write_table(settings.output_dir / "held_out.parquet", predictions)
        counts = np.stack([splits[TEXTS].truth.sum(axis=0), test.truth.sum(axis=0)])
        write_text(folder / "README.md", classifier_card(settings, hashes, names, counts, scores, mentions))
        write_scores(settings.output_dir / SCORES, scores)
        store.tracker.log_scores(scores)
        store.record["signature"] = signature
        store.record["texts"] = {field: len(split.texts) for field, split in splits.items()}
        store.record["address"] = asdict(mentions)
        print_scores(scores)
        print(f"\nClassifier: {folder.resolve()}")


def read_splits(settings: TrainClassifierSettings, files: Mapping[str, Path]) -> tuple[list[str], dict[str, Split]]:
    """Return the names of the labels, and the splits, given the file of each.

    The test split is a file or a random part of `texts`. Training texts that are also in another split are left out.

    Raises:
        InputError: a file cannot be read, or no training text is left.
    """
    rows = {}
    for field, path in files.items():
        labelled = settings.read(path)
        rows[field] = list(zip(labelled.texts, labelled.labels, strict=True))
    if settings.test_texts is None:
        texts = [text for text, _ in rows[TEXTS]]
        is_test = held_out_mask(texts, settings.test_fraction, settings.seed)
        rows[TEST_TEXTS] = list(compress(rows[TEXTS], is_test))
    rows.setdefault(DEV_TEXTS, [])
    elsewhere = {text for field in (TEST_TEXTS, DEV_TEXTS) for text, _ in rows[field]}
    names = sorted({name for split in rows.values() for _, labels in split for name in labels})
    rows[TEXTS] = [row for row in rows[TEXTS] if row[0] not in elsewhere]
    if not rows[TEXTS]:
        raise InputError(TEXTS, "all texts are also in the split for testing or for thresholds; give other texts.")
    splits = {}
    for field, split in rows.items():
        truth = np.array([[name in labels for name in names] for _, labels in split], dtype=bool)
        splits[field] = Split([text for text, _ in split], truth.reshape(-1, len(names)))
    return names, splits


def _is_complete(settings: TrainClassifierSettings, folder: Path) -> bool:
    """Return whether a folder has a trained classifier; of a finished run, the stage has deleted damaged files."""
    files = MODEL_FILES if settings.model is None else (DESCRIPTION, *ADAPTER_FILES)
    return all((folder / name).is_file() for name in files)


def write_classifier(
    settings: TrainClassifierSettings, train: Split, names: Sequence[str], folder: Path, report_to: str
) -> None:
    """Train a classifier and write it: an adapter in half precision with its description, or a whole small model."""
    model, tokenizer = fit_classifier(settings, train.texts, train.truth, names, report_to)
    with atomic_write_folder(folder) as partial_folder:
        if isinstance(model, PeftModel):
            description = describe_classifier(settings, names)
            write_json(partial_folder / DESCRIPTION, asdict(description))
            model.peft_config["default"].base_model_name_or_path = description.encoder[0].name
            model.half().save_pretrained(str(partial_folder), save_embedding_layers=False)
        else:
            model.save_pretrained(partial_folder)
            tokenizer.save_pretrained(partial_folder)


def describe_classifier(settings: TrainClassifierSettings, names: Sequence[str]) -> ClassifierDescription:
    """Return the description of a classifier on the encoder `settings.model`, without thresholds."""
    model = str(settings.model)
    commit = None
    if hub_repository(model) is not None:
        commit = model_revision(model)
    folder = find_encoder([EncoderSource(model, commit)])
    encoder_sha256 = sha256_of(folder / WEIGHTS)
    return ClassifierDescription(
        labels=tuple(names),
        has_several_labels=settings.label_separator is not None,
        encoder=encoder_sources(model, commit, encoder_sha256),
        encoder_sha256=encoder_sha256,
    )


def write_thresholds(folder: Path, thresholds: np.ndarray) -> None:
    """Write the thresholds of the labels, (L,), into the description of the classifier in `folder`."""
    rounded = tuple(round(float(threshold), 4) for threshold in thresholds)
    write_json(folder / DESCRIPTION, asdict(replace(read_description(folder), thresholds=rounded)))


def several_label_scores(
    settings: TrainClassifierSettings,
    probabilities: np.ndarray,
    truth: np.ndarray,
    names: Sequence[str],
    thresholds: np.ndarray | None,
) -> list[BiasScore]:
    """Return F1, the share of texts whose most probable label is right, and the calibration of that label.

    F1 is by the thresholds of the labels, (L,), if there are any, and by `settings.threshold`.
    """
    scores = f1_scores(probabilities, truth, names, threshold=settings.threshold, seed=settings.seed)
    if thresholds is not None:
        one_threshold = replace(scores[0], group={"threshold": f"{settings.threshold:g}"})
        scores = [*f1_scores(probabilities, truth, names, threshold=thresholds, seed=settings.seed), one_threshold]
    is_right = truth[np.arange(len(truth)), probabilities.argmax(axis=1)]
    top_label = share_score("accuracy", is_right, 1.0, reason="there are no test texts")
    return [*scores, top_label, calibration_error(probabilities, truth, settings.seed)]


def print_scores(scores: Sequence[BiasScore]) -> None:
    """Print one line for each score of a classifier on test texts."""
    for score in scores:
        name = " ".join([score.metric, *score.group.values()])
        value = f"{score.value:.3f} {interval(score.interval, 3)}".rstrip()
        print(f"{name}: {value} on {score.n:,} test texts")


def prediction_table(
    texts: list[str], truth: np.ndarray, probabilities: np.ndarray, names: Sequence[str], separator: str | None
) -> pd.DataFrame:
    """Return a table of texts, their true labels, and the probability of each label."""
    labels = [(separator or "").join(name for name, has in zip(names, row, strict=True) if has) for row in truth]
    table = pd.DataFrame({"text": texts, "label": labels})
    for label, name in enumerate(names):
        table[f"p_{name}"] = probabilities[:, label]
    return table
