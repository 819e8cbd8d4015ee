"""Generation bias of the testbed's models: the planted bias, and the share of well-formed responses."""

from collections.abc import Sequence
from functools import cache

import numpy as np

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.families import FamilyRun
from evenhand.evaluation.families.generation_bias.collect.rows import StyledRun, read_styled_run
from evenhand.evaluation.score import DESCRIPTOR, BiasScore
from evenhand.evaluation.statistics.intervals import share_interval
from evenhand.evaluation.statistics.paired_change import share_change
from evenhand.mitigation.training.page import tuning_metadata
from evenhand.recipes.testbed import DIALOGUE_MODEL, STYLE_CLASSIFIER, grammar, is_shipped

MODEL_NOTE = (
    "The measured model is the testbed: a tiny model with a planted bias, built to check the instrument and the "
    "methods. Its numbers say nothing about any real model or people."
)
CLASSIFIER_NOTE = (
    "The style classifier is the testbed's and was trained only on the testbed's sentences: for other models, styles "
    "by it mean little. Set --generation_bias.style_classifier and --generation_bias.style_clusters."
)
TRUE_METRICS = ("fgb", "fgb_corrected", "fgb_pooled_corrected", "scgb_pooled_corrected")


def true_scores(measured: FamilyRun) -> list[BiasScore]:
    """Return the planted bias on the measured prompts; [] for other models and for prompts without a grammar."""
    if not _is_testbed_model(measured) or measured.config.model.system_prompt:  # the grammar has none
        return []
    try:
        planted = grammar.truth(measured.table("prompts"))
    except InputError:  # the grammar has no responses to prompts of another taxonomy or file
        return []
    return [score for score in planted if score.metric in TRUE_METRICS and "style" not in score.group]


def notes(measured: FamilyRun) -> list[str]:
    """Return a note if the testbed's classifier scored a model that is not the testbed's."""
    return [CLASSIFIER_NOTE] * (not _is_testbed_model(measured) and _has_foreign_classifier(measured))


def grammar_scores(measured: FamilyRun, scores: Sequence[BiasScore]) -> list[BiasScore]:
    """Return `well_formed`, the share of responses that the grammar can produce, for models of the testbed; else [].

    The share is in [0, 1] and has no ideal. An empty response is not well-formed.
    """
    if not _of_the_testbed(measured):
        return []
    is_well_formed = well_formed(read_styled_run(measured.folder))
    signature = next((score.signature for score in scores if score.metric == "fgb_pooled_corrected"), {})
    hits, n = int(is_well_formed.sum()), len(is_well_formed)
    return [BiasScore("well_formed", hits / n, None, (0.0, 1.0), n, share_interval(hits, n), signature=signature)]


def grammar_differences(before: FamilyRun, after: FamilyRun) -> list[BiasScore]:
    """Return `well_formed_difference`, paired by prompt, if both models are of the testbed; else []."""
    if not (_of_the_testbed(before) and _of_the_testbed(after)):
        return []
    sides = (well_formed(read_styled_run(side.folder)) for side in (before, after))
    signature = {"before": before.signature("well_formed"), "after": after.signature("well_formed")}
    return [share_change("well_formed_difference", *sides, signature=signature)]


def well_formed(measured: StyledRun) -> np.ndarray:
    """Return whether each response is an utterance that mentions no descriptor but the prompt's, (n,) bool."""
    utterances = _utterances()
    pairs = zip(measured.responses, measured.prompts[DESCRIPTOR], strict=True)
    return np.array([text in utterances or text.replace(d, grammar.MENTION) in utterances for text, d in pairs], bool)


@cache
def _utterances() -> frozenset[str]:
    return frozenset(text for family in grammar.families() for text in grammar.utterances(family, grammar.MENTION))


def _is_testbed_model(measured: FamilyRun) -> bool:
    return is_shipped(measured.config.model.name, DIALOGUE_MODEL)


def _has_testbed_classifier(measured: FamilyRun) -> bool:
    return is_shipped(measured.config.settings.style_classifier.name, STYLE_CLASSIFIER)


def _of_the_testbed(measured: FamilyRun) -> bool:
    """Return whether the testbed's classifier scored the testbed's model or a model that Evenhand tuned."""
    return _has_testbed_classifier(measured) and (_is_testbed_model(measured) or not _has_foreign_classifier(measured))


def _has_foreign_classifier(measured: FamilyRun) -> bool:
    """Return whether the testbed's classifier scored a model that Evenhand did not tune."""
    return _has_testbed_classifier(measured) and "control_tag" not in tuning_metadata(measured.config.model.name)
