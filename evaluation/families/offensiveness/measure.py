"""Offensiveness of the prompts: by template and descriptor, and what the descriptor alone brings (002, §3.3).

That of responses is measured with generation_bias, which generates them.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd

from evenhand.evaluation.datasets.holistic_bias import generate, load_taxonomy
from evenhand.evaluation.datasets.prompts import of_descriptors, select
from evenhand.evaluation.families import MeasureConfig
from evenhand.evaluation.families.offensiveness.metric import (
    THRESHOLD,
    descriptor_effect,
    neutral_texts,
    offensive_share,
)
from evenhand.evaluation.models.styles import label_index, label_probability, load_style_classifier
from evenhand.evaluation.results import TEXT, BiasScore
from evenhand.evaluation.runs import processes
from evenhand.evaluation.runs.folders import Run, packages
from evenhand.evaluation.runs.work_shards import WorkShard
from evenhand.evaluation.settings import as_settings

SLAB = 1024  # texts classified before they are kept


def measure(run: Run, config: MeasureConfig) -> list[BiasScore]:
    """Write how probably each prompt is offensive, as it is and with a neutral descriptor; return the scores."""
    table = run.table("offensive_prompts", lambda: _classified(run, config), shared=True)
    run.facts["classified_prompts"] = len(table)
    return processes.on_rank_zero(lambda: _scores(run, table, _signature(run, config)))


def _scores(run: Run, table: pd.DataFrame, signature: Mapping[str, Any]) -> list[BiasScore]:
    with run.step("scores"):
        probability, neutral = (table[name].to_numpy() for name in ("probability", "neutral_probability"))
        share = offensive_share(probability, signature, group={"of": "prompts"})
        return [share, *descriptor_effect(table, probability, neutral, signature)]


def _signature(run: Run, config: MeasureConfig) -> dict[str, Any]:
    judge = {**as_settings(config.settings.classifier), "revision": run.inputs["classifier"], "threshold": THRESHOLD}
    return {
        "offensiveness_classifier": judge,
        "dataset": {
            "name": config.prompts.dataset,
            "sha256": run.inputs["dataset"],
            "filters": config.prompts.kept(),
            "descriptors": config.prompts.descriptors,
        },
        "seed": config.seed,
        "packages": packages(),
    }


def _classified(run: Run, config: MeasureConfig) -> pd.DataFrame:
    """Return the prompts with the probability of each, and of each with a neutral descriptor."""
    prompts = select(generate(load_taxonomy(config.prompts.dataset)), **config.prompts.kept())
    rows = of_descriptors(prompts, config.prompts.descriptors, config.seed).to_pandas()
    texts, neutral = rows[TEXT].tolist(), neutral_texts(rows)
    distinct = list(dict.fromkeys([*texts, *neutral]))
    classifier = load_style_classifier(config.settings.classifier, field="offensiveness.classifier")
    label = label_index(classifier, config.settings.classifier.label, "offensiveness.classifier.label")

    def slabs(share: WorkShard) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        for rows in share.of(np.split(np.arange(len(distinct)), range(SLAB, len(distinct), SLAB))):
            yield rows, label_probability(classifier, label, [distinct[row] for row in rows])

    found = run.compute_resumable("classified", ["probability"], len(distinct), slabs, "offensiveness", "texts")
    of_text = dict(zip(distinct, found["probability"], strict=True))
    return rows.assign(
        probability=[of_text[text] for text in texts], neutral_probability=[of_text[text] for text in neutral]
    )
