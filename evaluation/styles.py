"""Texts → style vectors: the classifier, the cleaning of responses before it, and the clusters of its styles.

S is the number of styles, that is, of the classifier's labels.
"""

import json
import re
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import lru_cache
from hashlib import sha256
from pathlib import Path

import numpy as np
import torch
from transformers import AutoModelForSequenceClassification, PreTrainedModel, PreTrainedTokenizerBase

from evaluation.datasets.holistic_bias import NONE
from evaluation.errors import InputError, unknown_name
from evaluation.models import DTYPES, best_device, load_config, load_tokenizer, load_weights, model_revision

CLUSTERS = Path(__file__).parent / "data" / "style_clusters"

NEUTRAL_DESCRIPTOR = "left-handed"  # paper 002, A.6
# A.6 prints "_POTENTIALLY_UNSAFE__"; ParlAI's agents write it with one underscore more or less.
SAFETY_MARKER = re.compile(r"\s*_*POTENTIALLY_+UNSAFE_*")


@dataclass(frozen=True)
class StyleClassifier:
    """A sequence classifier in evaluation mode on its device; `labels` are its styles in the order of its outputs."""

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    labels: tuple[str, ...]
    labels_sha256: str
    name: str
    revision: str


def load_style_classifier(
    name: str,
    *,
    revision: str | None = None,
    device: str = "auto",
    trust_remote_code: bool = False,
    field: str = "style_classifier",
) -> StyleClassifier:
    """Load any Hugging Face sequence classifier, by model id or folder, in float32 from safetensors.

    `field` is the setting that errors name.

    Raises:
        InputError: the name is no model, or no classifier with two labels or more, or its weights or tokenizer are
            missing or pickled.
    """
    version = model_revision(name, revision)
    config = load_config(name, revision, trust_remote_code)
    architectures = config.architectures or []
    if not any(architecture.endswith("ForSequenceClassification") for architecture in architectures):
        raise InputError(
            f"{field}: {name} is a {', '.join(architectures) or config.model_type}; give a model for sequence "
            "classification."
        )
    labels = tuple(str(config.id2label[index]) for index in range(config.num_labels))
    if len(labels) < 2 or len(set(labels)) < len(labels):
        raise InputError(f"{field}: {name} has the labels {labels}; it needs two or more, all different.")
    model = load_weights(AutoModelForSequenceClassification, name, revision, DTYPES["float32"], trust_remote_code)
    tokenizer = load_tokenizer(name, revision, config, trust_remote_code)
    if tokenizer.pad_token_id is None:
        if tokenizer.eos_token_id is None:
            raise InputError(f"{field}: the tokenizer of {name} has no padding token; save it with one.")
        tokenizer.pad_token = tokenizer.eos_token  # masked, so its meaning does not matter
    if model.config.pad_token_id is None:
        model.config.pad_token_id = tokenizer.pad_token_id  # classifiers on decoders find the last token by it
    digest = sha256("\n".join(labels).encode()).hexdigest()
    return StyleClassifier(model.to(best_device(device)).eval(), tokenizer, labels, digest, name, version)


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
    vectors = _probabilities(classifier, texts, _activation(classifier), batch_size, on_progress)
    return vectors / vectors.sum(axis=1, keepdims=True) if _has_several_labels(classifier) else vectors


def label_probability(
    classifier: StyleClassifier,
    label: int,
    texts: Sequence[str],
    batch_size: int = 256,
    on_progress: Callable[[int], None] = lambda rows: None,
) -> np.ndarray:
    """Return the probability of one label for each text, float32 of shape (n,), in [0, 1]; NaN for a blank text.

    The labels of a classifier that was trained on several labels to a text (`problem_type` of its config) do not share
    one unit of probability: each has its own sigmoid. All others have a softmax.
    """
    return _probabilities(classifier, texts, _activation(classifier), batch_size, on_progress)[:, label]


def _has_several_labels(classifier: StyleClassifier) -> bool:
    return classifier.model.config.problem_type == "multi_label_classification"


def _activation(classifier: StyleClassifier) -> torch.nn.Module:
    return torch.nn.Sigmoid() if _has_several_labels(classifier) else torch.nn.Softmax(-1)


@torch.inference_mode()
def _probabilities(
    classifier: StyleClassifier,
    texts: Sequence[str],
    activation: torch.nn.Module,
    batch_size: int,
    on_progress: Callable[[int], None],
) -> np.ndarray:
    """Return the activated logits of each text, float32 of shape (n, S); each distinct text is classified once."""
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


def clean_response(response: str, descriptor: str) -> str:
    """Return the response as the style classifier is to see it (paper 002, A.6).

    Every mention of its prompt's descriptor becomes "left-handed", so that the classifier judges the tone and not the
    group; safety markers are removed. A mention is a whole word or phrase, in any case, with blanks, hyphens or
    nothing between its words, in singular or plural, with or without its article, "who is" being "who are" as well.

    >>> clean_response("I love Hard of Hearing people! _POTENTIALLY_UNSAFE__", "hard-of-hearing")
    'I love left-handed people!'
    """
    response = SAFETY_MARKER.sub("", response).strip() if "UNSAFE" in response else response
    return replace_mentions(response, descriptor, NEUTRAL_DESCRIPTOR)


def replace_mentions(text: str, descriptor: str, replacement: str) -> str:
    """Return the text with every mention of the descriptor (see `clean_response`) replaced."""
    if descriptor in ("", NONE, replacement):
        return text
    return _mentions(descriptor).sub(lambda _: replacement, text)


@lru_cache(maxsize=8192)
def _mentions(descriptor: str) -> re.Pattern[str]:
    words = unicodedata.normalize("NFC", descriptor).replace("’", "'").replace("who's", "who is")
    words = re.split(r"[\s‐‑–-]+", words.strip())
    between = r"[\s‐‑–-]*"
    pattern = ""
    for index, word in enumerate(words):
        form = _forms(word, is_last=index == len(words) - 1, is_verb=index > 0 and words[index - 1].lower() == "who")
        if word.lower() in ("a", "an"):
            pattern += r"(?:an?\s+)?"
        else:
            pattern += form + (between if index < len(words) - 1 else "")
    return re.compile(rf"(?<!\w){pattern}(?!\w)", re.IGNORECASE)


def _forms(word: str, is_last: bool, is_verb: bool) -> str:
    """Return a pattern of one word's spellings, singular and plural."""
    lower = word.lower()
    if is_verb:
        if lower in ("is", "are"):
            return "(?:is|are|['’]s|['’]re)"
        return _letters(word.removesuffix("s")) + "s?" if lower.endswith("s") else _letters(word)
    if lower == "person":
        return "(?:persons?|people)"
    if lower == "year":
        return "years?"  # "20 years old" for "20-year-old"
    if not is_last:
        return _letters(word)
    if re.search(r"[^aeiou]y$", lower):
        return f"{_letters(word[:-1])}(?:y|ies)"
    if lower.endswith("man"):
        return f"{_letters(word[:-2])}(?:an|en)"
    return f"{_letters(word)}(?:s|es)?"


def _letters(word: str) -> str:
    """Return a pattern of the word with or without accents, composed or not, with either apostrophe or none."""
    parts = []
    for letter in word:
        base, *marks = unicodedata.normalize("NFD", letter)
        if letter == "'":
            parts.append("['’]?")
        elif marks:
            parts.append(f"(?:{letter}|{base}(?:{''.join(marks)})?)")
        else:
            parts.append(re.escape(letter))
    # "nonbinary" is also written "non-binary".
    joined = "".join(parts)
    return re.sub(r"^(non)(?=\w{4})", r"\1[\\s-]?", joined, flags=re.IGNORECASE)


def label_index(classifier: StyleClassifier, label: str | None, field: str) -> int:
    """Return which of the classifier's labels this is; `field` is the setting that errors name.

    Raises:
        InputError: none is given, or it is not one of them; the message lists them.
    """
    if label in classifier.labels:
        return classifier.labels.index(label)
    listed = ", ".join(map(repr, classifier.labels))
    raise InputError(f"{field}: {label!r} is not a label of {classifier.name}; give one of {listed}.")


def load_style_clusters(name_or_path: str, labels: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """Return each cluster's members as indices into `labels`, from a shipped file's name or a JSON file's path.

    The file maps a cluster to the names of its styles. A style is the label of that name, or the label that has that
    name before a gloss in parentheses: "Compassionate" is "Compassionate (Sympathetic, Warm)".

    Raises:
        InputError: there is no such file, it is not of that form, or a style is not (or not uniquely) a label.
    """
    path = Path(name_or_path)
    if path.suffix != ".json":
        path = CLUSTERS / f"{name_or_path}.json"
        if not path.exists():
            raise unknown_name("style_clusters", name_or_path, (file.stem for file in CLUSTERS.glob("*.json")))
    try:
        clusters = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"style_clusters: {path} cannot be read as JSON ({error}).") from None
    if not isinstance(clusters, dict) or not all(
        isinstance(styles, list) and styles and all(isinstance(style, str) for style in styles)
        for styles in clusters.values()
    ):
        raise InputError(f'style_clusters: {path} must map names to lists of styles, as in {{"ENVY": ["Envious"]}}.')
    return {
        cluster: tuple(dict.fromkeys(_label_index(cluster, style, labels) for style in styles))
        for cluster, styles in clusters.items()
    }


def _label_index(cluster: str, style: str, labels: Sequence[str]) -> int:
    if style in labels:
        return labels.index(style)
    found = [index for index, label in enumerate(labels) if label.partition(" (")[0] == style]
    if len(found) == 1:
        return found[0]
    if found:
        several = ", ".join(repr(labels[index]) for index in found)
        raise InputError(f"style_clusters: {style!r} in {cluster} could be {several}; write the whole label.")
    raise InputError(
        f"style_clusters: {style!r} in {cluster} is not a label of the style classifier{_closest(style, labels)}; "
        "give the clusters of this classifier's label set."
    )


def _closest(style: str, labels: Iterable[str]) -> str:
    close = get_close_matches(style, labels, n=1)
    return f"; did you mean {close[0]!r}?" if close else ""
