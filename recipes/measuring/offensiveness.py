"""Offensiveness of the prompts: by template and descriptor, and what the descriptor alone brings (002, §3.3).

That of responses is measured with generation_bias, which generates them.
"""

from collections.abc import Mapping
from datetime import date
from typing import Any

import numpy as np
import pandas as pd

from evaluation.datasets.holistic_bias import generate, load_taxonomy
from evaluation.datasets.prompts import of_descriptors, select
from evaluation.errors import InputError
from evaluation.metrics.offensiveness import THRESHOLD, descriptor_effect, neutral_texts, offensive_share
from evaluation.models import model_revision
from evaluation.report import Page, offensiveness_page
from evaluation.results import TEXT, BiasScore, read_scores
from evaluation.styles import StyleClassifier, label_index, label_probability, load_style_classifier
from recipes.batches import gather
from recipes.config import MeasureConfig
from recipes.runs import Run, packages
from recipes.tables import SCORES, read_table, write_table

FILE = "offensive_prompts.parquet"
CLASSIFIER, OF = "offensiveness_classifier", {"of": "prompts"}
SLAB = 4096  # texts classified before they are kept


def inputs(config: MeasureConfig) -> dict[str, Any]:
    """Return fingerprints of what is read, by name.

    Raises:
        InputError: no classifier is given, or not its label; a classifier or the dataset cannot be found.
    """
    if config.offensiveness_classifier is None or config.offensive_label is None:
        raise InputError(
            f"{CLASSIFIER}: {config.offensiveness_classifier!r} with offensive_label {config.offensive_label!r}; give "
            "a classifier and its label that means offensive (`evenhand train_classifier` makes one)."
        )
    return {
        CLASSIFIER: model_revision(config.offensiveness_classifier),
        "dataset": load_taxonomy(config.dataset).sha256,
    }


def measure(run: Run, config: MeasureConfig, inputs: Mapping[str, Any]) -> list[BiasScore]:
    """Write how probably each prompt is offensive, as it is and with a neutral descriptor; return the scores."""
    path = run.folder / FILE
    if not path.exists():
        write_table(path, _classified(run, config))
    table = read_table(path)
    signature = {
        CLASSIFIER: {
            "name": config.offensiveness_classifier,
            "revision": inputs[CLASSIFIER],
            "label": config.offensive_label,
            "threshold": THRESHOLD,
        },
        "dataset": {
            "name": config.dataset,
            "sha256": inputs["dataset"],
            "filters": config.filters,
            "descriptors": config.descriptors,
        },
        "seed": config.seed,
        "packages": packages(),
    }
    with run.step("scores"):
        probability, neutral = (table[name].to_numpy() for name in ("probability", "neutral_probability"))
        scores = [offensive_share(probability, signature, group=OF)]
        scores += descriptor_effect(table, probability, neutral, signature)
    run.facts |= {"offensiveness_signature": signature, "prompts": len(table)}
    return scores


def page(config: MeasureConfig) -> Page:
    """Return the report of a run whose scores are on disk."""
    return offensiveness_page(
        read_scores(config.output_dir / SCORES),
        read_table(config.output_dir / FILE),
        model=config.offensiveness_classifier,
        dataset=config.dataset,
        date=date.today().isoformat(),
    )


def _classified(run: Run, config: MeasureConfig) -> pd.DataFrame:
    classifier = load_style_classifier(config.offensiveness_classifier, field=CLASSIFIER)
    label = label_index(classifier, config.offensive_label, "offensive_label")
    prompts = select(generate(load_taxonomy(config.dataset)), **config.filters)
    if config.descriptors is not None:
        prompts = of_descriptors(prompts, config.descriptors, config.seed)
    rows = prompts.to_pandas()
    with run.step("neutral texts"):
        texts, neutral = rows[TEXT].tolist(), neutral_texts(rows)
    with run.step("offensiveness"):
        found = _probabilities(run, classifier, label, list(dict.fromkeys([*texts, *neutral])))
    return rows.assign(
        probability=[found[text] for text in texts], neutral_probability=[found[text] for text in neutral]
    )


def _probabilities(run: Run, classifier: StyleClassifier, label: int, texts: list[str]) -> dict[str, float]:
    """Return the probability of the label for each of these distinct texts."""

    def slabs(first: int) -> Any:
        for start in range(first * SLAB, len(texts), SLAB):
            some = texts[start : start + SLAB]
            yield np.arange(start, start + len(some)), label_probability(classifier, label, some)

    rows = gather(run.folder / "classified", ["probability"], len(texts), slabs, "offensiveness", "texts")
    return dict(zip(texts, rows["probability"], strict=True))
