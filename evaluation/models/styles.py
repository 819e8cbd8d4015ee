"""Texts → style vectors, by a classifier.

S is the number of styles, that is, of the classifier's labels.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import numpy as np
import torch
from transformers import (
    AutoModelForSequenceClassification,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.models.checkpoints import (
    Described,
    best_device,
    load_network,
    model_settings,
    on_its_device,
    pad_with_eos,
)
from evenhand.evaluation.models.classifier_labels import place_of_label
from evenhand.evaluation.models.revisions import model_revision
from evenhand.evaluation.settings import CheckpointSettings


@dataclass(frozen=True)
class StyleClassifier:
    """A sequence classifier in evaluation mode on its device; `labels` are its styles in the order of its outputs."""

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    labels: tuple[str, ...]
    labels_sha256: str
    name: str
    revision: str


def load_style_classifier(model: Described, field: str = "style_classifier") -> StyleClassifier:
    """Load any Hugging Face sequence classifier, an adapter merged into its base; `field` is the setting errors name.

    Raises:
        InputError: the name is no model, or no classifier with two labels or more, or its weights or tokenizer are
            missing or pickled.
    """
    model = model_settings(model)
    best_device(model.device)  # before a model is read for one that is not there
    revision = model_revision(model.name, model.revision, model.base)
    network, tokenizer = load_network(model, lambda of, config: _classifying_class(of, config, field))
    pad_with_eos(tokenizer, field, model.name)
    if network.config.pad_token_id is None:
        network.config.pad_token_id = tokenizer.pad_token_id  # classifiers on decoders find the last token by it
    labels = _labels(network.config)
    digest = sha256("\n".join(labels).encode()).hexdigest()
    return StyleClassifier(on_its_device(network, model), tokenizer, labels, digest, model.name, revision)


def _labels(config: PreTrainedConfig) -> tuple[str, ...]:
    return tuple(str(config.id2label[index]) for index in range(config.num_labels))


def _classifying_class(model: CheckpointSettings, config: PreTrainedConfig, field: str) -> Any:
    """Return the auto class of a sequence classifier with at least two labels."""
    architectures, labels = config.architectures or [], _labels(config)
    if not any(architecture.endswith("ForSequenceClassification") for architecture in architectures):
        raise InputError(
            f"{field}: {model.name} is a {', '.join(architectures) or config.model_type}; give a model for sequence "
            "classification."
        )
    if len(labels) < 2 or len(set(labels)) < len(labels):
        raise InputError(f"{field}: {model.name} has the labels {labels}; it needs two or more, all different.")
    return AutoModelForSequenceClassification


def style_vectors(
    classifier: StyleClassifier,
    texts: Sequence[str],
    batch_size: int = 256,
    on_progress: Callable[[int], None] = lambda rows: None,
) -> np.ndarray:
    """Return the probabilities of all styles for each text, float32 of shape (n, S); each row sums to 1.

    A blank text says nothing, so its row is NaN, to be left out and counted. Texts longer than the model's input are
    cut. `on_progress` is called with the number of rows done since its last call.

    A classifier that was trained on several labels to a text (`problem_type` of its config) gives each label a
    probability of its own. Its style vector is these divided by their sum: the share of each style in what is there.
    """
    vectors = label_probabilities(classifier, texts, batch_size, on_progress)
    return vectors / vectors.sum(axis=1, keepdims=True) if has_several_labels(classifier) else vectors


def label_probability(
    classifier: StyleClassifier,
    label: int,
    texts: Sequence[str],
    batch_size: int = 256,
    on_progress: Callable[[int], None] = lambda rows: None,
) -> np.ndarray:
    """Return the probability of one label for each text, float32 of shape (n,), in [0, 1]; NaN for a blank text."""
    return label_probabilities(classifier, texts, batch_size, on_progress)[:, label]


def has_several_labels(classifier: StyleClassifier) -> bool:
    """Return whether the classifier was trained on several labels to a text (`problem_type` of its config)."""
    return classifier.model.config.problem_type == "multi_label_classification"


@torch.inference_mode()
def label_probabilities(
    classifier: StyleClassifier,
    texts: Sequence[str],
    batch_size: int = 256,
    on_progress: Callable[[int], None] = lambda rows: None,
) -> np.ndarray:
    """Return the probability of each label for each text, float32 of shape (n, S), in [0, 1]; NaN for a blank text.

    The labels of a classifier that was trained on several labels to a text do not share one unit of probability: each
    has its own sigmoid. All others have a softmax. Each distinct text is classified once.
    """
    activation = torch.nn.Sigmoid() if has_several_labels(classifier) else torch.nn.Softmax(-1)
    rows_of: dict[str, list[int]] = {}
    for row, text in enumerate(texts):
        if text.strip():
            rows_of.setdefault(text, []).append(row)
    vectors = np.full((len(texts), len(classifier.labels)), np.nan, dtype=np.float32)
    on_progress(len(texts) - sum(map(len, rows_of.values())))
    if not rows_of:
        return vectors
    distinct = list(rows_of)
    encoded = classifier.tokenizer(distinct, truncation=True, max_length=_longest_input(classifier))["input_ids"]
    order = sorted(range(len(distinct)), key=lambda index: len(encoded[index]))
    for start in range(0, len(order), batch_size):
        batch = order[start : start + batch_size]
        inputs = classifier.tokenizer.pad(
            {"input_ids": [encoded[index] for index in batch]}, return_attention_mask=True, return_tensors="pt"
        )
        logits = classifier.model(**inputs.to(classifier.model.device)).logits
        probabilities = activation(logits.float()).cpu().numpy()
        done = 0
        for index, vector in zip(batch, probabilities, strict=True):
            rows = rows_of[distinct[index]]
            vectors[rows] = vector
            done += len(rows)
        on_progress(done)
    return vectors


def _longest_input(classifier: StyleClassifier) -> int:
    positions = getattr(classifier.model.config, "max_position_embeddings", None) or 514
    # RoBERTa's kin count two positions that no token can take.
    return min(classifier.tokenizer.model_max_length, max(positions - 2, 1))


def label_index(classifier: StyleClassifier, label: str | None, field: str) -> int:
    """Return which of the classifier's labels this is; `field` is the setting that errors name.

    Raises:
        InputError: none is given, or it is not one of them; the message lists them.
    """
    return place_of_label(classifier.labels, label, classifier.name, field)
