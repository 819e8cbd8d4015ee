"""Signatures of the scores of generation bias. A signature contains everything that affects the score."""

from collections.abc import Mapping
from typing import Any

from evenhand.evaluation.files import sha256_of
from evenhand.evaluation.manifest import package_versions
from evenhand.evaluation.metrics import MeasureConfig
from evenhand.evaluation.metrics.generation_bias.settings import FIRST, OFFENSIVE, classifiers
from evenhand.evaluation.metrics.generation_bias.styled_responses import PROMPTS
from evenhand.evaluation.metrics.offensiveness.metric import THRESHOLD
from evenhand.evaluation.models.judges import classifier_styles, judge_facts
from evenhand.evaluation.models.revisions import labels_sha256
from evenhand.evaluation.settings import CheckpointSettings, as_settings
from evenhand.evaluation.store import Store


def classifier_facts(name: str, run: Store, config: MeasureConfig) -> dict[str, Any]:
    """Return the entries of a signature that identify a style classifier; `name` is its name in the settings."""
    facts = classifier_signature(classifiers(config)[name], run.inputs[name])
    if name == FIRST:
        facts["clusters"] = config.settings.style_clusters
    return facts | ({"threshold": THRESHOLD} if name == OFFENSIVE else {})


def classifier_signature(classifier: CheckpointSettings, revision: str) -> dict[str, Any]:
    """Return the entries of a signature that identify a sequence classifier or an LLM judge."""
    facts = as_settings(classifier)
    del facts["device"], facts["device_map"]  # runs on different devices can be compared
    if "judge" in facts:
        facts = judge_facts(classifier)
    return facts | {"revision": revision, "labels_sha256": labels_sha256(classifier_styles(classifier))}


def score_signature(
    run: Store, config: MeasureConfig, responses: Mapping[str, Any], classifier: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the signature of a run's scores.

    Args:
        responses: the entries for model, dataset and decoding, as returned by `collect`.
        classifier: the entries for the first style classifier (`classifier_facts`).
    """
    prompts = sha256_of(run.folder / f"{PROMPTS}.parquet")
    return {
        **responses,
        "dataset": {**responses["dataset"], "sha256": prompts},
        FIRST: classifier,
        "inputs": dict(run.inputs),
        "seed": config.seed,
        "packages": package_versions(),
    }
