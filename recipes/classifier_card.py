"""The card of a classifier of `train_classifier`: scores on test texts, use, and limits. All numbers are measured."""

from collections.abc import Mapping, Sequence

import numpy as np
from huggingface_hub import ModelCardData

from evenhand.evaluation.models.classifier_folders import MINILM
from evenhand.evaluation.models.revisions import hub_repository
from evenhand.evaluation.report.numbers import interval, number, sanitize
from evenhand.evaluation.score import BiasScore, display_name, find_score
from evenhand.mitigation.card import table
from evenhand.recipes.mention_check import MentionCheck
from evenhand.recipes.settings import TrainClassifierSettings

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
    if settings.label_separator is None:
        meaning = "A text has one label; the probabilities of the labels sum to 1."
    else:
        threshold = "the number in the table" if isinstance(thresholds, list) else f"{settings.threshold:g}"
        meaning = (
            f"A text has every label with a probability of at least {threshold}. Accuracy is the share of texts whose "
            "most probable label is one of the text's labels; the calibration error is of that label's probability "
            "(Guo et al. 2017, equation 3)."
        )
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
    return CARD.format(
        metadata=metadata.to_yaml(),
        base="scratch" if settings.model is None else f"`{display_name(repository or settings.model)}`",
        settings=", ".join(f"{name} {getattr(settings, name)}" for name in listed),
        files=", ".join(f"{sanitize(getattr(settings, field).name)} (SHA-256 `{hashes[field]}`)" for field in hashes),
        credit="Their licence still applies to them." if settings.credit is None else settings.credit,
        n=f"{scores[0].n:,}",
        overall="; ".join(f"{OVERALL[score.metric]}{_threshold(score)} {_text(score)}" for score in overall),
        labels=table(
            _label_rows(names, counts, scores, thresholds),
            ["label", "training texts", "test texts", *_label_metrics(scores, names)],
        ),
        meaning=meaning,
        use=WHOLE_MODEL if settings.model is None else ADAPTER,
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


CARD = """---
{metadata}
---

# A text classifier

Trained by `evenhand train_classifier` from {base}: {settings}.

Texts: {files}. {credit}

## Scores on {n} test texts

{overall}. Brackets contain 95 % intervals. No training text is a test text.

{labels}

{meaning}

## Does it react to who is mentioned?

{n_descriptors} descriptors of HolisticBias stand in {n_sentences} neutral sentences, such as “My neighbour is …”. The
table compares how much the styles differ between descriptors and between test texts. Evenhand replaces descriptors in
responses before it classifies them, so that this is the effect of a mention that it misses.

{mentions}

{use}

## Limits

- The labels reproduce the judgements and mistakes of the annotators. Classifiers often associate a dialect, or the
  mention of a group, with a label: check the errors on texts by and about the groups that you study.
- The scores hold for texts like the test texts, not for other texts such as the responses of a dialogue model.
- Use the probabilities to compare texts or models, not to judge a single text or person.
"""

WHOLE_MODEL = """## How to use it

Save the code as `label.py` and run `python label.py FOLDER "a text" "another"`, with this folder or its id on the hub.

```python
import sys

from transformers import pipeline

folder, *texts = sys.argv[1:]
classify = pipeline("text-classification", folder, top_k=None)
for text, labels in zip(texts, classify(texts, truncation=True)):
    print(text, {label["label"]: round(label["score"], 3) for label in labels})
```

Evenhand accepts the folder as `--generation_bias.style_classifier` or `--offensive_classifier`."""

ADAPTER = """## How to use it

The folder has low-rank changes of the encoder's weights, and a head on the mean of its token vectors. `classifier.json`
says where the encoder is, with its SHA-256. Save the code as `label.py` and run
`python label.py FOLDER "a text" "another"`.

```python
import sys

from evenhand.evaluation.models.classifier_kinds import load_style_classifier
from evenhand.evaluation.models.styles import label_probabilities

folder, *texts = sys.argv[1:]
classifier = load_style_classifier(folder)
for text, probabilities in zip(texts, label_probabilities(classifier, texts)):
    print(text, {label: round(float(p), 3) for label, p in zip(classifier.labels, probabilities)})
```

Evenhand accepts the folder as `--generation_bias.style_classifier` or `--offensive_classifier`."""
