"""The card of a trained classifier: front matter that the hub reads, its texts and labels, scores, use, limits."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from huggingface_hub import EvalResult, ModelCardData

from evenhand.evaluation.report.numbers import NO_NUMBER, interval, number, sanitize
from evenhand.evaluation.results import BiasScore, display_name, find_score
from evenhand.mitigation.training.card import table
from evenhand.recipes.settings import TrainClassifierSettings

TASK, DECIMALS = "text-classification", 3
OF_ALL = {"accuracy": "accuracy", "macro_f1": "macro-F1", "roc_auc": "area under the ROC curve"}
OF_A_LABEL = {"recall": "recall", "f1": "F1", "roc_auc": "ROC-AUC"}


@dataclass(frozen=True)
class Texts:
    """n labelled texts: `train` and `test` (n,) bool say what each is for, `truth` (n, L) bool its labels of `names`.

    A text to train on that is also among the others is for neither. `blank` has how many of each file are left out.
    """

    texts: list[str]
    truth: np.ndarray
    names: list[str]
    train: np.ndarray
    test: np.ndarray
    blank: Mapping[str, int]

    def of(self, chosen: np.ndarray) -> list[str]:
        """Return the chosen texts."""
        return [self.texts[row] for row in np.flatnonzero(chosen)]


def classifier_card(
    settings: TrainClassifierSettings, data: Texts, inputs: Mapping[str, str], scores: Sequence[BiasScore]
) -> str:
    """Return the card as Markdown; `inputs` are the SHA-256 of the files of texts, by the settings that name them."""
    files = [
        f"| {_cell(getattr(settings, field).name)} | {blank:,} | `{inputs[field]}` |"
        for field, blank in data.blank.items()
    ]
    neither = len(data.texts) - int(data.train.sum() + data.test.sum())
    apart = f", and {neither:,} that stand in both files were not trained on" if neither else ""
    several = settings.label_separator is not None
    rows = {
        "from": f"`{display_name(settings.model)}`" if settings.model else f"scratch ({settings.architecture})",
        "labels of a text": f"several: a sigmoid each, given from {settings.threshold}"
        if several
        else "one: a softmax",
        **{name: getattr(settings, name) for name in ("epochs", "learning_rate", "batch_size", "seed")},
    }
    # Of two labels one area says all, and is called by both.
    overall = [score for score in scores if score.group.get("label") not in data.names]
    return CARD.format(
        front_matter=_front_matter(settings, overall),
        table=table(rows),
        files="\n".join(files),
        train=f"{data.train.sum():,}",
        test=f"{data.test.sum():,}",
        apart=apart,
        overall="; ".join(f"{OF_ALL[score.metric]} {_text(score)}" for score in overall),
        labels=_labels(data, scores),
        meaning=SEVERAL.format(threshold=settings.threshold) if several else SINGLE,
    )


def _front_matter(settings: TrainClassifierSettings, overall: Sequence[BiasScore]) -> str:
    """Return what the hub reads: a base that is not on it is left out."""
    measured_on = (settings.test_texts or settings.texts).name
    of = {"task_type": TASK, "dataset_type": "texts", "dataset_name": measured_on}
    results = [
        EvalResult(**of, metric_type=score.metric, metric_name=OF_ALL[score.metric], metric_value=score.value)
        for score in overall
        if math.isfinite(score.value)
    ]
    on_hub = settings.model is not None and not Path(settings.model).expanduser().is_dir()
    base = {"base_model": settings.model, "base_model_relation": "finetune"} if on_hub else {}
    name = f"classifier of {settings.texts.stem}"
    return ModelCardData(
        library_name="transformers",
        pipeline_tag=TASK,
        tags=["evenhand", "multi-label" if settings.label_separator else "single-label"],
        **base,
        **({"eval_results": results, "model_name": name} if results else {}),
    ).to_yaml()


def _labels(data: Texts, scores: Sequence[BiasScore]) -> str:
    """Return the table of labels: texts that have each, on both sides, and its scores."""
    metrics = [metric for metric in OF_A_LABEL if find_score(scores, metric, label=data.names[0])]
    head = ["label", "texts to train on", "texts held out", *(OF_A_LABEL[metric] for metric in metrics)]
    lines = [head, ["---"] * len(head)]
    for name, has in zip(data.names, data.truth.T, strict=True):
        found = [find_score(scores, metric, label=name) for metric in metrics]
        shown = [NO_NUMBER if score is None else _text(score) for score in found]
        lines.append([_cell(name), *(f"{(has & chosen).sum():,}" for chosen in (data.train, data.test)), *shown])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _text(score: BiasScore) -> str:
    return f"{number(score.value, DECIMALS)} {interval(score.interval, DECIMALS)}".strip()


def _cell(text: str) -> str:
    return sanitize(text).replace("|", "\\|")


CARD = """---
{front_matter}
---

# A text classifier

Trained by `evenhand train_classifier`.

{table}

## Its texts

| file | blank texts, left out | SHA-256 |
| --- | --- | --- |
{files}

It learned from {train} of these texts and was measured on {test} that it never saw{apart}. The texts' licence is
theirs.

## How right it is

Of the texts held out: {overall}. Brackets are 95 % intervals.

{labels}

## How to use it

As `label.py`, from any directory: `python label.py FOLDER "a text" "another"`, FOLDER being this one, or its id on the
hub.

```python
import sys

from transformers import pipeline

folder, *texts = sys.argv[1:]
classify = pipeline("text-classification", folder, top_k=None)
for text, labels in zip(texts, classify(texts, truncation=True)):
    print(text, {{label["label"]: round(label["score"], 3) for label in labels}})
```

{meaning} Evenhand takes the folder as `--generation_bias.style_classifier` or `--generation_bias.offensiveness`.

## What it is not

- What it takes for a label is what the labellers of these texts took for it, with their mistakes and their taste. A
  classifier often takes a dialect, or the mere mention of a group, for a label that went with it in its texts: look at
  its errors on texts by, and about, the people whom you ask about.
- Its scores hold for texts like these; on others, such as the answers of a dialogue model, nobody has measured it.
- Its numbers compare texts or models. They are no verdict on any one text or person.
"""

SINGLE = "The scores of a text sum to 1: it has one label."
SEVERAL = "Each label has a probability of its own: a text may have several, those from {threshold} on, or none."
