"""Style vectors of texts: the probabilities of S styles, which are the S labels of a sequence classifier."""

import logging
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from transformers import AutoModelForSequenceClassification, PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

from evenhand.evaluation import columns
from evenhand.evaluation.data.language.mentions import clean_responses
from evenhand.evaluation.errors import InputError, format_value
from evenhand.evaluation.model_settings import ClassifierSettings
from evenhand.evaluation.models.batches import (
    activations_bytes,
    batch_size_limit,
    group_rows,
    longest_first,
    max_positions,
    run_batches,
)
from evenhand.evaluation.models.checkpoints import (
    BROKEN_WEIGHTS,
    load_network,
    move_to_device,
    pad_with_eos,
    resolve_device,
)
from evenhand.evaluation.models.classifiers import FAINT, Classifier
from evenhand.evaluation.models.mean_pooling import load_adapted_classifier
from evenhand.evaluation.models.revisions import check_labels
from evenhand.evaluation.runs.store import Store
from evenhand.evaluation.tables import join_batches

log = logging.getLogger("evenhand")

# Heads of classifiers.
SOFTMAX = "softmax"
SIGMOID = "sigmoid"
ONE_LOGIT = "one logit"
TRUNCATED = "cut"  # column of saved batches: whether the classifier read only the beginning of a text
UNNAMED = re.compile(r"LABEL_\d+")
EXCLUSIVE = re.compile(r"positive|negative|neutral|\bstars?\b|entailment|contradiction", re.IGNORECASE)


@dataclass(frozen=True)
class NetworkClassifier(Classifier):
    """A sequence classifier in evaluation mode on its device; `labels` are its styles in the order of its outputs.

    `head` is "softmax", "sigmoid" (a text may have several labels) or "one logit" (a label, or not).
    """

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    labels: tuple[str, ...]
    name: str
    revision: str
    head: str = SOFTMAX

    @property
    def is_multi_label(self) -> bool:
        """Whether a text can have several labels."""
        return self.head == SIGMOID

    @property
    def max_tokens(self) -> int:
        """The number of tokens that the classifier reads."""
        positions = max_positions(self.model.config)
        # RoBERTa and related models have two positions that no token can take.
        limit = 512 if positions == math.inf else max(int(positions) - 2, 1)
        return min(self.tokenizer.model_max_length, limit)

    @property
    def limit(self) -> str:
        """What the classifier reads of a text, in words."""
        return f"{self.max_tokens} tokens"

    def classify(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """Return the probability of each label for each text, (n, S), and whether the text is truncated, (n,)."""
        encoded = self.tokenizer(list(texts), verbose=False)["input_ids"]
        is_truncated = np.array([len(ids) > self.max_tokens for ids in encoded])
        for row in np.flatnonzero(is_truncated).tolist():
            encoded[row] = self.tokenizer(texts[row], truncation=True, max_length=self.max_tokens)["input_ids"]
        probabilities = np.empty((len(texts), len(self.labels)), dtype=np.float32)
        limit = batch_size_limit(self.model, lambda length: activations_bytes(self.model, length))
        order = longest_first([len(ids) for ids in encoded])
        batches = run_batches(
            order,
            lambda row: limit(max(1, len(encoded[row]))),
            lambda rows: self._probabilities([encoded[row] for row in rows]),
        )
        for rows, batch in batches:
            probabilities[rows] = batch
        if np.isnan(probabilities).any():
            raise InputError("model", f"the classifier {self.name} returns NaN for a text; {BROKEN_WEIGHTS}")
        return probabilities, is_truncated

    @torch.inference_mode()
    def _probabilities(self, encoded: list[list[int]]) -> np.ndarray:
        """Return the probability of each label for each of n texts, (n, S), from their token ids."""
        batch = {"input_ids": encoded}
        inputs = self.tokenizer.pad(batch, return_attention_mask=True, return_tensors="pt").to(self.model.device)
        # Classifiers on decoders find the last token by the padding of their config, which may not be the tokenizer's.
        padding = self.model.config.get_text_config().pad_token_id
        if padding is not None:
            inputs["input_ids"] = inputs["input_ids"].masked_fill(inputs["attention_mask"] == 0, padding)
        logits = self.model(**inputs).logits.float()
        if self.head == ONE_LOGIT:
            logits = torch.cat([logits, torch.zeros_like(logits)], dim=-1)  # whose softmax is the sigmoid
        probabilities = logits.sigmoid() if self.is_multi_label else logits.softmax(-1)
        return probabilities.cpu().numpy()


def load_network_classifier(
    settings: ClassifierSettings, revision: str, field: str, folder: Path | None = None
) -> NetworkClassifier:
    """Load a Hugging Face sequence classifier, or the one that `train_classifier` wrote to a folder.

    InputError as of `load_style_classifier`.
    """
    checkpoint = settings.checkpoint()
    resolve_device(checkpoint.device)  # raises before weights are read
    if folder is None:
        network, tokenizer = load_network(checkpoint, lambda _, config: _classifier_class(settings, config, field))
    else:
        network, tokenizer = load_adapted_classifier(checkpoint, folder)
    pad_with_eos(tokenizer, field, settings.name)
    config = network.config.get_text_config()
    if config.pad_token_id is None or not 0 <= config.pad_token_id < config.vocab_size:
        config.pad_token_id = network.config.pad_token_id = tokenizer.pad_token_id
    labels = _labels(settings, network.config)
    network = move_to_device(network, checkpoint)
    return NetworkClassifier(network, tokenizer, labels, settings.name, revision, _head(settings, network.config))


def _labels(settings: ClassifierSettings, config: PreTrainedConfig) -> tuple[str, ...]:
    """Return the labels that the settings or a model's config give; InputError if they do not fit each other."""
    names = {int(index): str(label) for index, label in (config.id2label or {}).items()}
    return check_labels(settings.name, names, config.problem_type, settings.head, settings.label_names)


def _head(settings: ClassifierSettings, config: PreTrainedConfig) -> str:
    """Return the head of a classifier, and warn if nothing says whether its labels exclude each other."""
    if len(config.id2label or {}) == 1:
        return ONE_LOGIT
    if settings.head is not None:
        return settings.head
    if config.problem_type == "multi_label_classification":
        return SIGMOID
    labels = _labels(settings, config)
    if config.problem_type is None and len(labels) > 2 and not all(map(EXCLUSIVE.search, labels)):
        log.warning(
            "%s does not say whether a text may have several of its %d labels (no problem_type): softmax is used; give "
            "`head: sigmoid` if it was trained with several labels a text",
            settings.name,
            len(labels),
        )
    if all(UNNAMED.fullmatch(label) for label in labels):
        log.warning("%s names its labels %s …; give their names by label_names, a file", settings.name, labels[0])
    return SOFTMAX


def _classifier_class(settings: ClassifierSettings, config: PreTrainedConfig, field: str) -> Any:
    architectures = config.architectures or []
    if not any(architecture.endswith("ForSequenceClassification") for architecture in architectures):
        kind = ", ".join(architectures) or config.model_type
        raise InputError(field, f"{settings.name} is a {kind}; give a model for sequence classification.")
    labels = _labels(settings, config)
    if len(labels) < 2 or len(set(labels)) < len(labels):
        raise InputError(field, f"{settings.name} has the labels {labels}; it needs two or more, all different.")
    return AutoModelForSequenceClassification


def style_vectors(classifier: Classifier, texts: Sequence[str]) -> np.ndarray:
    """Return the probabilities of all styles for each text, float32 (n, S); each row sums to 1.

    The row of a blank text is NaN. Texts longer than the model's input are truncated, and the number of truncated texts
    is logged as a warning. A multi-label classifier (`problem_type` of its config) has an independent probability for
    each label; a style vector then contains the probabilities divided by their sum.

    InputError if the classifier is not a result of `load_style_classifier`.
    """
    if not isinstance(classifier, Classifier):
        raise InputError("classifier", f"{format_value(classifier)} is not loaded; give load_style_classifier(NAME).")
    texts = [texts] if isinstance(texts, str) else texts
    return to_style_vectors(classifier, label_probabilities(classifier, texts))


def to_style_vectors(classifier: Classifier, probabilities: np.ndarray) -> np.ndarray:
    """Return style vectors, (n, S), from label probabilities, (n, S): of several labels, divided by their sum.

    A text to which no label fits has a nearly even vector, which says little about it; a warning has their number.
    """
    if not classifier.is_multi_label:
        return probabilities
    n_unlabelled = int(has_no_label(classifier, probabilities).sum())
    if n_unlabelled:
        log.warning(
            "%d of %d texts have no label of %s with a probability of %g or more; their style vectors are nearly even",
            n_unlabelled,
            len(probabilities),
            classifier.name,
            FAINT,
        )
    return probabilities / probabilities.sum(axis=1, keepdims=True)


def has_no_label(classifier: Classifier, probabilities: np.ndarray) -> np.ndarray:
    """Return whether a text has no label with a probability of FAINT or more, (n,) bool; False for a blank text.

    A text can have no label only if a text may have several. `probabilities` are of each label, (n, S).
    """
    if not classifier.is_multi_label:
        return np.zeros(len(probabilities), dtype=bool)
    return probabilities.max(axis=1, initial=0.0) < FAINT


def classify_responses(classifier: Classifier, responses: Sequence[str], prompts: pd.DataFrame) -> np.ndarray:
    """Return the style vectors (n, S) of the responses, classified without the descriptors of their prompts."""
    return style_vectors(classifier, clean_responses(responses, prompts))


def classify_rows(
    store: Store | None,
    name: str,
    classifier: Classifier,
    texts: Sequence[str],
    keys: Sequence[str] | pd.Series | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Return the probabilities of all labels for each text, (n, S), and whether the text was truncated, (n,).

    With a store, finished batches are saved in its folder under `name`, by the keys of the texts (`Store.rows`);
    None: their numbers.
    """
    items = pd.DataFrame({columns.TEXT: list(texts)}, index=None if keys is None else list(keys), dtype=object)
    if store is None:
        table = join_batches(classify_texts(classifier, items))
    else:
        table = store.rows(name, items, partial(classify_texts, classifier), "texts")
    truncated = table.pop(TRUNCATED).to_numpy(dtype=bool)
    probabilities = table.to_numpy(dtype=np.float32)
    if truncated.any():
        log.warning(
            "%d of %d texts are longer than the %s that %s reads; only their beginnings were classified",
            truncated.sum(),
            len(texts),
            classifier.limit,
            classifier.name,
        )
    n_blank = sum(not text.strip() for text in texts)
    n_defined = int(np.isfinite(probabilities).all(axis=1).sum())
    n_undefined = len(texts) - n_defined - n_blank
    if n_undefined:  # such as texts for which a judge named no option
        log.warning("%d of %d texts have no style: %s gave them none", n_undefined, len(texts), classifier.name)
    return probabilities, truncated


def label_probabilities(classifier: Classifier, texts: Sequence[str]) -> np.ndarray:
    """Return the probability of each label for each text, float32 (n, S) in [0, 1]; NaN for a blank text.

    The number of truncated texts is logged as a warning.
    """
    return classify_rows(None, "", classifier, texts)[0]


def classify_texts(classifier: Classifier, items: pd.DataFrame) -> Iterator[pd.DataFrame]:
    """Yield the rows of some texts, part by part: whether a text is truncated, and the probability of each label.

    Each distinct text is classified once. Blank texts have NaN and come first.

    Args:
        classifier: the classifier.
        items: the column `text`; the index of a part says for which of these items its rows are.
    """
    names = [f"p{label}" for label in range(len(classifier.labels))]
    groups = group_rows(text if text.strip() else "" for text in items[columns.TEXT])
    blank = np.array(groups.pop("", []), dtype=np.int64)
    if len(blank) or not groups:
        undefined = np.full((len(blank), len(names)), np.nan, dtype=np.float32)
        part = pd.DataFrame(undefined, items.index[blank], names)
        part.insert(0, TRUNCATED, np.zeros(len(blank), dtype=bool))
        yield part
    distinct = list(groups)
    classifier.announce(distinct)
    for start in range(0, len(distinct), classifier.texts_per_part):
        texts = distinct[start : start + classifier.texts_per_part]
        counts = [len(groups[text]) for text in texts]
        probabilities, is_truncated = classifier.classify(texts)
        rows = np.concatenate([groups[text] for text in texts])
        part = pd.DataFrame(probabilities.repeat(counts, axis=0), items.index[rows], names)
        part.insert(0, TRUNCATED, is_truncated.repeat(counts))
        yield part
