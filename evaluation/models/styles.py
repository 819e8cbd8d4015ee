"""Texts → style vectors, by a classifier.

S is the number of styles, that is, of the classifier's labels.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
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
from evenhand.evaluation.models.batches import activations_bytes, batch_size_limit, run_batches
from evenhand.evaluation.models.checkpoints import (
    BROKEN_WEIGHTS,
    ModelDescription,
    checkpoint_settings,
    load_network,
    move_to_device,
    pad_with_eos,
    resolve_device,
)
from evenhand.evaluation.models.classifier_labels import check_labels, find_label, labels_sha256
from evenhand.evaluation.models.revisions import model_revision
from evenhand.evaluation.runs.work_shards import ALL_ROWS, WorkShard
from evenhand.evaluation.settings import CheckpointSettings

log = logging.getLogger("evenhand")

TEXTS_PER_PART = 1024  # distinct texts that are encoded and classified together: a kill costs as many


@dataclass(frozen=True)
class StyleClassifier:
    """A sequence classifier in evaluation mode on its device; `labels` are its styles in the order of its outputs."""

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    labels: tuple[str, ...]
    labels_sha256: str
    name: str
    revision: str


def load_style_classifier(model: ModelDescription, field: str = "style_classifier") -> StyleClassifier:
    """Load any Hugging Face sequence classifier, an adapter merged into its base; `field` is the setting errors name.

    Raises:
        InputError: the name is no model, or no classifier with two labels or more, or its weights or tokenizer are
            missing or pickled.
    """
    model = checkpoint_settings(model)
    resolve_device(model.device)  # before a model is read for one that is not there
    revision = model_revision(model.name, model.revision, model.base)
    network, tokenizer = load_network(model, lambda of, config: _classifier_class(of, config, field))
    pad_with_eos(tokenizer, field, model.name)
    if network.config.pad_token_id is None:
        network.config.pad_token_id = tokenizer.pad_token_id  # classifiers on decoders find the last token by it
    labels = check_labels(model.name, network.config.id2label, network.config.problem_type)
    network = move_to_device(network, model)
    classifier = StyleClassifier(network, tokenizer, labels, labels_sha256(labels), model.name, revision)
    if _longest_input(classifier) <= tokenizer.num_special_tokens_to_add():
        raise InputError(
            f"{field}: {model.name} reads {_longest_input(classifier)} tokens at once, none of them of a text; "
            "give another, or mend max_position_embeddings in its config."
        )
    return classifier


def _classifier_class(model: CheckpointSettings, config: PreTrainedConfig, field: str) -> Any:
    """Return the auto class of a sequence classifier with at least two labels."""
    architectures = config.architectures or []
    if not any(architecture.endswith("ForSequenceClassification") for architecture in architectures):
        raise InputError(
            f"{field}: {model.name} is a {', '.join(architectures) or config.model_type}; give a model for sequence "
            "classification."
        )
    labels = check_labels(model.name, config.id2label, config.problem_type)
    if len(labels) < 2 or len(set(labels)) < len(labels):
        raise InputError(f"{field}: {model.name} has the labels {labels}; it needs two or more, all different.")
    return AutoModelForSequenceClassification


def style_vectors(
    classifier: StyleClassifier, texts: Sequence[str], on_progress: Callable[[int], None] = lambda rows: None
) -> np.ndarray:
    """Return the probabilities of all styles for each text, float32 of shape (n, S); each row sums to 1.

    A blank text says nothing, so its row is NaN, to be left out and counted. Texts longer than the model's input are
    cut, and a warning says how many. `on_progress` is called with the number of rows done since its last call.

    A classifier that was trained on several labels to a text (`problem_type` of its config) gives each label a
    probability of its own. Its style vector is these divided by their sum: the share of each style in what is there.
    """
    return to_style_vectors(classifier, label_probabilities(classifier, texts, on_progress))


def to_style_vectors(classifier: StyleClassifier, probabilities: np.ndarray) -> np.ndarray:
    """Return style vectors from the probabilities of the labels, both (n, S)."""
    several = is_multi_label(classifier)
    return probabilities / probabilities.sum(axis=1, keepdims=True) if several else probabilities


def label_probability(
    classifier: StyleClassifier,
    label: int,
    texts: Sequence[str],
    on_progress: Callable[[int], None] = lambda rows: None,
) -> np.ndarray:
    """Return the probability of one label for each text, float32 of shape (n,), in [0, 1]; NaN for a blank text."""
    return label_probabilities(classifier, texts, on_progress)[:, label]


def is_multi_label(classifier: StyleClassifier) -> bool:
    """Return whether the classifier was trained on several labels to a text (`problem_type` of its config)."""
    return classifier.model.config.problem_type == "multi_label_classification"


def label_probabilities(
    classifier: StyleClassifier, texts: Sequence[str], on_progress: Callable[[int], None] = lambda rows: None
) -> np.ndarray:
    """Return the probability of each label for each text, float32 of shape (n, S), in [0, 1]; NaN for a blank text.

    As `classify_texts`, all texts at once.
    """
    vectors, n_cut = np.full((len(texts), len(classifier.labels)), np.nan, dtype=np.float32), 0
    for rows, probabilities, cut in classify_texts(classifier, texts):
        vectors[rows] = probabilities
        n_cut += int(cut.sum())
        on_progress(len(rows))
    warn_truncated(classifier, n_cut, len(texts))
    return vectors


def classify_texts(
    classifier: StyleClassifier, texts: Sequence[str], *, shard: WorkShard = ALL_ROWS
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Yield part by part rows (r,), the probability of each label, float32 (r, S), and whether the text was cut, (r,).

    The labels of a classifier that was trained on several labels to a text do not share one unit of probability: each
    has its own sigmoid. All others have a softmax. Each distinct text is classified once; a blank one has NaN, and
    stands first. Of a `shard` there are its rows alone.

    Raises:
        InputError: the classifier gives NaN.
    """
    rows_of: dict[str, list[int]] = {}
    for row, text in enumerate(texts):
        rows_of.setdefault(text if text.strip() else "", []).append(row)
    blank = rows_of.pop("", [])
    if shard.unfinished_batches([blank[:1]]):
        nothing = np.full((len(blank), len(classifier.labels)), np.nan, dtype=np.float32)
        yield np.array(blank), nothing, np.zeros(len(blank), dtype=bool)
    distinct = list(rows_of)
    parts = (distinct[start : start + TEXTS_PER_PART] for start in range(0, len(distinct), TEXTS_PER_PART))
    for part in shard.unfinished_batches(parts, lambda text: rows_of[text][0]):
        times = [len(rows_of[text]) for text in part]
        probabilities, cut = _classify_part(classifier, part)
        yield np.concatenate([rows_of[text] for text in part]), probabilities.repeat(times, axis=0), cut.repeat(times)


def _classify_part(classifier: StyleClassifier, texts: list[str]) -> tuple[np.ndarray, np.ndarray]:
    """Return the probability of each label of some texts, (n, S), and whether each was cut, (n,)."""
    network, longest = classifier.model, _longest_input(classifier)
    encoded = classifier.tokenizer(texts, verbose=False)["input_ids"]
    cut = np.array([len(ids) > longest for ids in encoded])
    for row in np.flatnonzero(cut):
        encoded[row] = classifier.tokenizer(texts[row], truncation=True, max_length=longest)["input_ids"]
    vectors = np.empty((len(texts), len(classifier.labels)), dtype=np.float32)
    at_once = batch_size_limit(network, lambda length: activations_bytes(network, length))
    order = np.argsort([-len(ids) for ids in encoded], kind="stable")
    batches = run_batches(
        order,
        lambda row: at_once(max(1, len(encoded[row]))),
        lambda rows: _probabilities(classifier, [encoded[row] for row in rows]),
    )
    for rows, probabilities in batches:
        vectors[rows] = probabilities
    if np.isnan(vectors).any():
        raise InputError(f"model: the classifier {classifier.name} gives NaN for a text; {BROKEN_WEIGHTS}")
    return vectors, cut


@torch.inference_mode()
def _probabilities(classifier: StyleClassifier, encoded: list[list[int]]) -> np.ndarray:
    inputs = classifier.tokenizer.pad({"input_ids": encoded}, return_attention_mask=True, return_tensors="pt")
    logits = classifier.model(**inputs.to(classifier.model.device)).logits.float()
    return (logits.sigmoid() if is_multi_label(classifier) else logits.softmax(-1)).cpu().numpy()


def warn_truncated(classifier: StyleClassifier, n_cut: int, n: int) -> None:
    """Say in the log how many of n texts the classifier saw the beginning of alone, if any."""
    if n_cut:
        log.warning(
            "%d of %d texts are longer than the %d tokens that %s reads; it judged their beginnings",
            n_cut,
            n,
            _longest_input(classifier),
            classifier.name,
        )


def _longest_input(classifier: StyleClassifier) -> int:
    positions = getattr(classifier.model.config, "max_position_embeddings", None) or 514
    # RoBERTa's kin count two positions that no token can take.
    return min(classifier.tokenizer.model_max_length, max(positions - 2, 1))


def label_index(classifier: StyleClassifier, label: str | None, field: str) -> int:
    """Return which of the classifier's labels this is; `field` is the setting that errors name.

    Raises:
        InputError: none is given, or it is not one of them; the message lists them.
    """
    return find_label(classifier.labels, label, classifier.name, field)
