"""The model card of a trained classifier: front matter for the hub, data, scores, use and limits."""

import math
from collections.abc import Mapping, Sequence

import numpy as np
from huggingface_hub import EvalResult, ModelCardData

from evenhand.evaluation.models.revisions import hub_repository
from evenhand.evaluation.report.numbers import interval, number, sanitize
from evenhand.evaluation.score import BiasScore, display_name, find_score
from evenhand.mitigation.card import table
from evenhand.recipes.settings import TrainClassifierSettings

TASK = "text-classification"
OVERALL = {"accuracy": "accuracy", "macro_f1": "macro-F1", "roc_auc": "area under the ROC curve"}
SETTINGS = ("epochs", "learning_rate", "batch_size", "seed")


def classifier_card(
    settings: TrainClassifierSettings,
    hashes: Mapping[str, str],
    names: Sequence[str],
    counts: np.ndarray,
    scores: Sequence[BiasScore],
) -> str:
    """Return a classifier's model card as Markdown. A base model in a local folder is left out of the front matter.

    Args:
        hashes: the SHA-256 of each file of texts, by the file's setting.
        names: names of the labels, (L,).
        counts: numbers of texts with each label for training, test and the choice of thresholds, (3, L).
        scores: the scores on the test texts.
    """
    # Two labels have one ROC curve, whose group is both.
    overall = [score for score in scores if score.group.get("label") not in names]
    metrics = list(dict.fromkeys(score.metric for score in scores if score not in overall))
    thresholds = scores[0].signature.get("threshold")  # one for all labels, or a list
    rows = {}
    for index, name in enumerate(names):
        found = [_text(find_score(scores, metric, label=name)) for metric in metrics]
        chosen = f" (p ≥ {thresholds[index]:.2f})" if isinstance(thresholds, list) else ""
        rows[sanitize(name) + chosen] = [f"{counts[0, index]:,}", f"{counts[1, index]:,}", *found]
    threshold = "the number in the table" if isinstance(thresholds, list) else f"{settings.threshold:g}"
    dataset = {"task_type": TASK, "dataset_type": "texts", "dataset_name": (settings.test_texts or settings.texts).name}
    results = [
        EvalResult(**dataset, metric_type=it.metric, metric_name=OVERALL[it.metric], metric_value=it.value)
        for it in overall
        if math.isfinite(it.value) and "threshold" not in it.group
    ]
    metadata = ModelCardData(
        library_name="transformers",
        pipeline_tag=TASK,
        tags=["evenhand", "multi-label" if settings.label_separator else "single-label"],
        base_model=settings.model and hub_repository(settings.model),
        **({"eval_results": results, "model_name": f"classifier of {settings.texts.stem}"} if results else {}),
    )
    return CARD.format(
        metadata=metadata.to_yaml(),
        base=f"`{display_name(settings.model)}`" if settings.model else "scratch",
        settings=", ".join(f"{name} {getattr(settings, name)}" for name in SETTINGS),
        files=", ".join(f"{sanitize(getattr(settings, field).name)} (SHA-256 `{hashes[field]}`)" for field in hashes),
        n=f"{scores[0].n:,}",
        overall="; ".join(f"{OVERALL[it.metric]}{_threshold(it)} {_text(it)}" for it in overall),
        labels=table(rows, ["label", "training texts", "test texts", *metrics]),
        meaning=f"A text has every label with a probability of at least {threshold}."
        if settings.label_separator
        else "A text has one label; the probabilities of the labels sum to 1.",
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
