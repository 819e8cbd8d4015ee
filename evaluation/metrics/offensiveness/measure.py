"""Measurement of the offensiveness of prompts and of the effect of their descriptors (Smith et al. 2022, §3.3).

The package generation_bias measures the offensiveness of responses.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from evenhand.evaluation import processes
from evenhand.evaluation.data.prompts import dataset_prompts
from evenhand.evaluation.manifest import package_versions
from evenhand.evaluation.metrics import MeasureConfig
from evenhand.evaluation.metrics.offensiveness.metric import (
    THRESHOLD,
    descriptor_effect,
    make_neutral_texts,
    offensive_share,
)
from evenhand.evaluation.models.revisions import find_label
from evenhand.evaluation.models.styles import classify_texts, load_style_classifier, warn_truncated
from evenhand.evaluation.score import TEXT, BiasScore
from evenhand.evaluation.settings import as_settings
from evenhand.evaluation.store import Store


def measure(run: Store, config: MeasureConfig) -> list[BiasScore]:
    """Write the probability that each prompt is offensive with its and with a neutral descriptor; return the scores."""
    table = run.table("offensive_prompts", lambda: _classified(run, config), on_all_ranks=True)
    run.facts["classified_prompts"] = len(table)
    return processes.on_rank_zero(lambda: _scores(run, table, _signature(run, config)))


def _scores(run: Store, table: pd.DataFrame, signature: Mapping[str, Any]) -> list[BiasScore]:
    with run.step("scores"):
        probability, neutral = (table[name].to_numpy() for name in ("probability", "neutral_probability"))
        share = offensive_share(probability, signature, group={"of": "prompts"})
        return [share, *descriptor_effect(table, probability, neutral, signature)]


def _signature(run: Store, config: MeasureConfig) -> dict[str, Any]:
    settings = config.settings.classifier
    classifier = {**as_settings(settings), "revision": run.inputs["classifier"], "threshold": THRESHOLD}
    return {
        "offensiveness_classifier": classifier,
        "dataset": config.prompts.signature(run.inputs["dataset"]),
        "seed": config.seed,
        "packages": package_versions(),
    }


def _classified(run: Store, config: MeasureConfig) -> pd.DataFrame:
    """Return the prompts, each with the probability of being offensive with its descriptor and with a neutral one."""
    rows = dataset_prompts(config.prompts, config.seed).to_pandas()
    texts, neutral = rows[TEXT].tolist(), make_neutral_texts(rows)
    distinct = list(dict.fromkeys([*texts, *neutral]))
    classifier = load_style_classifier(config.settings.classifier, field="offensiveness.classifier")
    label = find_label(
        classifier.labels, config.settings.classifier.label, classifier.name, "offensiveness.classifier.label"
    )

    def compute(texts: Sequence[str]) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        return ((rows, values[:, label], cut) for rows, values, cut in classify_texts(classifier, texts))

    table = run.rows("classified", ["probability", "truncated"], compute, distinct, unit="texts")
    warn_truncated(classifier, int(table["truncated"].sum()), len(distinct))
    probabilities = dict(zip(distinct, table["probability"], strict=True))
    return rows.assign(
        probability=[probabilities[text] for text in texts],
        neutral_probability=[probabilities[text] for text in neutral],
    )
