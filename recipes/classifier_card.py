"""The model card of a trained classifier: front matter for the hub, data, scores, use and limits."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from huggingface_hub import EvalResult, ModelCardData

from evenhand.evaluation.models.model_paths import hub_repository
from evenhand.evaluation.report.numbers import NO_NUMBER, interval, number, sanitize
from evenhand.evaluation.score import BiasScore, display_name, find_score
from evenhand.mitigation.training.card import table
from evenhand.recipes.settings import TrainClassifierSettings

TASK, DECIMALS = "text-classification", 3
OVERALL_METRICS = {"accuracy": "accuracy", "macro_f1": "macro-F1", "roc_auc": "area under the ROC curve"}
LABEL_METRICS = {"recall": "recall", "f1": "F1", "roc_auc": "ROC-AUC"}


@dataclass(frozen=True)
class Texts:
    """Labelled texts of the training, dev and test splits.

    Attributes:
        texts: n texts.
        truth: (n, L) bool, whether each text has each of the L labels in `names`.
        train: (n,) bool, the texts of the training split, without the texts that the test split also has.
        dev: (n,) bool, the texts on which thresholds are chosen.
        test: (n,) bool, the texts of the test split.
        blank: the number of omitted blank texts of each file, by the name of the file's setting.
    """

    texts: list[str]
    truth: np.ndarray
    names: list[str]
    train: np.ndarray
    dev: np.ndarray
    test: np.ndarray
    blank: Mapping[str, int]

    def select(self, mask: np.ndarray) -> list[str]:
        """Return the texts where `mask` (n,) is True."""
        return [self.texts[row] for row in np.flatnonzero(mask)]


def classifier_card(
    settings: TrainClassifierSettings, data: Texts, inputs: Mapping[str, str], scores: Sequence[BiasScore]
) -> str:
    """Return the classifier's model card as Markdown.

    `inputs` maps the name of each setting that is a file of texts to the file's SHA-256.
    """
    files = [
        f"| {_cell(getattr(settings, field).name)} | {blank:,} | `{inputs[field]}` |"
        for field, blank in data.blank.items()
    ]
    n_unused = len(data.texts) - int((data.train | data.dev | data.test).sum())
    unused = f" {n_unused:,} training texts that are also test or dev texts were not used." if n_unused else ""
    is_multi_label = settings.label_separator is not None
    threshold = str(settings.threshold) if settings.dev_texts is None else "its threshold in the table of labels"
    rows = {
        "from": f"`{display_name(settings.model)}`" if settings.model else f"scratch ({settings.architecture})",
        "labels of a text": f"several (sigmoid, threshold {threshold})" if is_multi_label else "one (softmax)",
        **{name: getattr(settings, name) for name in ("epochs", "learning_rate", "batch_size", "seed")},
    }
    # Two labels have one ROC curve; the `label` of its score names both.
    overall = [score for score in scores if score.group.get("label") not in data.names]
    return CARD.format(
        front_matter=_front_matter(settings, overall),
        table=table(rows),
        files="\n".join(files),
        train=f"{data.train.sum():,}",
        test=f"{data.test.sum():,}",
        unused=unused,
        overall="; ".join(f"{_overall_name(score)} {_text(score)}" for score in overall),
        labels=_labels(data, scores),
        meaning=MULTI_LABEL.format(threshold=threshold) if is_multi_label else SINGLE_LABEL,
    )


def _front_matter(settings: TrainClassifierSettings, overall: Sequence[BiasScore]) -> str:
    """Return the card's YAML front matter for the hub. A base model in a local folder is left out."""
    test_file = (settings.test_texts or settings.texts).name
    dataset = {"task_type": TASK, "dataset_type": "texts", "dataset_name": test_file}
    results = [
        EvalResult(
            **dataset, metric_type=score.metric, metric_name=OVERALL_METRICS[score.metric], metric_value=score.value
        )
        for score in overall
        if math.isfinite(score.value) and "threshold" not in score.group
    ]
    repository = hub_repository(settings.model) if settings.model else None
    base = {"base_model": repository, "base_model_relation": "finetune"} if repository else {}
    name = f"classifier of {settings.texts.stem}"
    return ModelCardData(
        library_name="transformers",
        pipeline_tag=TASK,
        tags=["evenhand", "multi-label" if settings.label_separator else "single-label"],
        **base,
        **({"eval_results": results, "model_name": name} if results else {}),
    ).to_yaml()


def _labels(data: Texts, scores: Sequence[BiasScore]) -> str:
    """Return a Markdown table with the numbers of training and test texts and the scores of each label."""
    metrics = [metric for metric in LABEL_METRICS if find_score(scores, metric, label=data.names[0])]
    thresholds = scores[0].signature.get("threshold")  # one for all labels, or a list
    thresholds = thresholds if isinstance(thresholds, list) else []
    head = ["label", "training texts", "test texts", *(["threshold"] if thresholds else [])]
    head += [LABEL_METRICS[metric] for metric in metrics]
    lines = [head, ["---"] * len(head)]
    for index, (name, has) in enumerate(zip(data.names, data.truth.T, strict=True)):
        cells = [f"{(has & split).sum():,}" for split in (data.train, data.test)]
        cells += [f"{thresholds[index]:.2f}"] if thresholds else []
        label_scores = (find_score(scores, metric, label=name) for metric in metrics)
        cells += [NO_NUMBER if score is None else _text(score) for score in label_scores]
        lines.append([_cell(name), *cells])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _overall_name(score: BiasScore) -> str:
    threshold = score.group.get("threshold")
    return OVERALL_METRICS[score.metric] + (f" (threshold {threshold})" if threshold else "")


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

## Data

| file | omitted blank texts | SHA-256 |
| --- | --- | --- |
{files}

The classifier was trained on {train} texts and tested on {test} other texts.{unused} The licence of the texts still
applies to them.

## Scores on the test texts

{overall}. Brackets contain 95 % intervals.

{labels}

## How to use it

Save the code as `label.py` and run `python label.py FOLDER "a text" "another"`. FOLDER is the path of this folder or
its id on the hub.

```python
import sys

from transformers import pipeline

folder, *texts = sys.argv[1:]
classify = pipeline("text-classification", folder, top_k=None)
for text, labels in zip(texts, classify(texts, truncation=True)):
    print(text, {{label["label"]: round(label["score"], 3) for label in labels}})
```

{meaning} Evenhand accepts the folder as `--generation_bias.style_classifier` or `--generation_bias.offensiveness`.

## Limits

- The labels reproduce the judgements and mistakes of the annotators. Classifiers often associate a dialect, or the
  mention of a group, with a label: check the errors on texts by and about the groups that you study.
- The scores hold for texts like the test texts, not for other texts such as the responses of a dialogue model.
- Use the probabilities to compare texts or models, not to judge a single text or person.
"""

SINGLE_LABEL = "A text has one label; the probabilities of the labels sum to 1."
MULTI_LABEL = "Each label has a separate probability; a text has every label whose probability is at least {threshold}."
