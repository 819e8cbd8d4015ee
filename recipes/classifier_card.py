"""The card of a classifier of `train_classifier`: scores on test texts, use, and limits. All numbers are measured."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from huggingface_hub import ModelCardData

from evenhand.evaluation.models.classifier_folders import MINILM
from evenhand.evaluation.models.revisions import hub_repository
from evenhand.evaluation.report.numbers import interval, number, sanitize
from evenhand.evaluation.report.words import document
from evenhand.evaluation.score import BiasScore, display_name, find_score
from evenhand.mitigation.card import table
from evenhand.recipes.command_settings import TrainClassifierSettings
from evenhand.recipes.mention_check import MentionCheck

CARD = Path(__file__).with_name("classifier_card.md.j2")
OVERALL = {
    "accuracy": "accuracy",
    "macro_f1": "macro-F1",
    "roc_auc": "area under the ROC curve",
    "calibration_error": "expected calibration error",
}
SETTINGS_ON_CARD = ("epochs", "learning_rate", "batch_size", "seed")
ENCODER_SETTINGS_ON_CARD = (*SETTINGS_ON_CARD, "head_learning_rate", "lora_rank")


def classifier_card(
    settings: TrainClassifierSettings,
    hashes: Mapping[str, str],
    names: Sequence[str],
    counts: np.ndarray,
    scores: Sequence[BiasScore],
    mentions: MentionCheck,
) -> str:
    """Return a classifier's model card as Markdown. A base model in a local folder is left out of the front matter.

    Args:
        hashes: the SHA-256 of each file of texts, by the file's setting.
        names: the names of the labels, (L,).
        counts: the numbers of texts with each label for training and test, (2, L).
        scores: the scores on the test texts.
        mentions: how the classifier reacts to descriptors.
    """
    overall = [score for score in scores if score.group.get("label") not in names]  # two labels have one ROC curve
    thresholds = scores[0].signature.get("threshold")  # one for all labels, or a list
    repository = None
    if settings.model is not None:
        is_minilm = settings.model in [source.name for source in MINILM]
        repository = MINILM[-1].name if is_minilm else hub_repository(settings.model)
    metadata = ModelCardData(
        library_name="transformers" if settings.model is None else "peft",
        pipeline_tag="text-classification",
        tags=["evenhand", "single-label" if settings.label_separator is None else "multi-label"],
        base_model=repository,
    )
    listed = SETTINGS_ON_CARD if settings.model is None else ENCODER_SETTINGS_ON_CARD
    return document(
        CARD,
        metadata=metadata.to_yaml(),
        base="scratch" if settings.model is None else f"`{display_name(repository or settings.model)}`",
        settings=", ".join(f"{name} {getattr(settings, name)}" for name in listed),
        files=", ".join(f"{sanitize(getattr(settings, field).name)} (SHA-256 `{hashes[field]}`)" for field in hashes),
        credit=settings.credit,
        n=f"{scores[0].n:,}",
        overall="; ".join(f"{OVERALL[score.metric]}{_threshold(score)} {_text(score)}" for score in overall),
        labels=table(
            _label_rows(names, counts, scores, thresholds),
            ["label", "training texts", "test texts", *_label_metrics(scores, names)],
        ),
        is_multi_label=settings.label_separator is not None,
        threshold="the number in the table" if isinstance(thresholds, list) else f"{settings.threshold:g}",
        is_adapter=settings.model is not None,
        n_descriptors=f"{mentions.n_descriptors:,}",
        n_sentences=mentions.n_sentences,
        mentions=_mention_tables(mentions),
    )


def _label_metrics(scores: Sequence[BiasScore], names: Sequence[str]) -> list[str]:
    """Return the metrics that have a score for each label."""
    return list(dict.fromkeys(score.metric for score in scores if score.group.get("label") in names))


def _label_rows(
    names: Sequence[str], counts: np.ndarray, scores: Sequence[BiasScore], thresholds: float | list[float] | None
) -> dict[str, list[str]]:
    """Return the numbers of texts and the scores of each label, by its name and threshold."""
    rows = {}
    for index, name in enumerate(names):
        chosen = f" (p ≥ {thresholds[index]:.2f})" if isinstance(thresholds, list) else ""
        texts = [f"{n:,}" for n in counts[:, index]]
        values = [_text(find_score(scores, metric, label=name)) for metric in _label_metrics(scores, names)]
        rows[sanitize(name) + chosen] = [*texts, *values]
    return rows


def _mention_tables(mentions: MentionCheck) -> str:
    """Return the two spreads, their ratio, and the descriptors to which the classifier reacts most, as Markdown."""
    ratio = "undefined"
    if mentions.text_spread:
        ratio = f"{mentions.descriptor_spread / mentions.text_spread:.3f}"
    spreads = table(
        {
            "between descriptors in the same sentence": f"{mentions.descriptor_spread:.4f}",
            "between test texts": f"{mentions.text_spread:.4f}",
            "ratio": ratio,
        },
        ["spread of style vectors, Σ Var(p)", ""],
    )
    strongest = table(
        {
            sanitize(descriptor): [sanitize(style), f"{100 * rise:+.1f}"]
            for descriptor, style, rise in mentions.strongest
        },
        ["descriptor", "style that it raises most", "points of 100"],
    )
    return f"{spreads}\n\n{strongest}"


def _threshold(score: BiasScore) -> str:
    return f" (threshold {score.group['threshold']})" if "threshold" in score.group else ""


def _text(score: BiasScore) -> str:
    return f"{number(score.value, 3)} {interval(score.interval, 3)}".strip()
