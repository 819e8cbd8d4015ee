"""What is known of the testbed's models beside what is measured: their true scores, and what a reader must know."""

from collections.abc import Callable, Mapping, Sequence

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.families import FamilyRun, ReportContext
from evenhand.evaluation.families.generation_bias.collect.rows import read_styled_run
from evenhand.evaluation.results import BiasScore
from evenhand.evaluation.settings import TESTBED
from evenhand.evaluation.statistics.intervals import share_interval
from evenhand.evaluation.statistics.paired_change import share_change
from evenhand.mitigation.training.page import tuning_metadata
from evenhand.recipes.testbed import grammar, pairs
from evenhand.recipes.testbed.well_formed import well_formed

MODEL_NOTES = {
    "generation_bias": (
        "The measured model is the testbed: a tiny model with a planted bias, built to check the instrument and the "
        "methods. Its numbers say nothing about any real model or people."
    ),
    "sentence_pairs": (
        "The measured model is the testbed's: a tiny model of a grammar with a planted stereotype, built to check the "
        "instrument. Its numbers say nothing about any real model or people."
    ),
    "likelihood_bias": (
        "The measured model is the testbed's: a tiny model of a grammar in which some descriptors are rarer than "
        "others of their axis, built to check the instrument. Its numbers say nothing about any real model or people."
    ),
}
CLASSIFIER_NOTE = (
    "The style classifier is the testbed's, which knows the testbed's sentences alone: for any other model its styles "
    "mean little. Give --generation_bias.style_classifier and --generation_bias.style_clusters of your own."
)
PAIRS_NOTE = (
    "These pairs are the testbed's, of words that its grammar gives a stereotype to. They say nothing about any other "
    "model: give --sentence_pairs.pairs crows_pairs, or a file of your own."
)
WORDS_NOTE = "The testbed's model knows the words of its own pairs alone; of these it can say nothing."
SHOWN = ("fgb", "fgb_corrected", "fgb_pooled_corrected", "scgb_pooled_corrected")


def known(family: str, measured: FamilyRun) -> ReportContext:
    """Return the planted bias on the measured rows, where the testbed was measured, and the notes to its readers."""
    return ReportContext(TRUTHS.get(family, lambda measured: [])(measured), notes_on(family, measured))


def notes_on(family: str, measured: FamilyRun) -> list[str]:
    """Return what a reader must know of the measured model, and of what judged it."""
    is_testbed = measured.config.model.name == TESTBED
    notes = [MODEL_NOTES[family]] if is_testbed and family in MODEL_NOTES else []
    if family == "generation_bias" and not is_testbed and _foreign_classifier(measured):
        notes.append(CLASSIFIER_NOTE)
    if family == "sentence_pairs" and is_testbed != (measured.config.settings.pairs == TESTBED):
        notes.append(WORDS_NOTE if is_testbed else PAIRS_NOTE)
    return notes


def known_scores(family: str, measured: FamilyRun, scores: Sequence[BiasScore]) -> list[BiasScore]:
    """Return `well_formed`, the share of responses that the grammar could have given, for models of the testbed.

    In [0, 1]; no ideal: the testbed's own model is not perfect. An empty response is not well-formed.
    """
    if family != "generation_bias" or not _of_the_testbed(measured):
        return []
    found = well_formed(read_styled_run(measured.folder))
    signature = next((score.signature for score in scores if score.metric == "fgb_pooled_corrected"), {})
    hits, n = int(found.sum()), len(found)
    return [BiasScore("well_formed", hits / n, None, (0.0, 1.0), n, share_interval(hits, n), signature=signature)]


def known_differences(family: str, before: FamilyRun, after: FamilyRun) -> list[BiasScore]:
    """Return `well_formed_difference`, paired by prompt, where both runs have it."""
    if family != "generation_bias" or not (_of_the_testbed(before) and _of_the_testbed(after)):
        return []
    sides = (well_formed(read_styled_run(side.folder)) for side in (before, after))
    signature = {"before": before.signature("well_formed"), "after": after.signature("well_formed")}
    return [share_change("well_formed_difference", *sides, signature=signature)]


def _of_the_testbed(measured: FamilyRun) -> bool:
    """Return whether the model is the testbed's, or was tuned from it, as far as can be told."""
    told = measured.config
    return told.settings.style_classifier.name == TESTBED and (
        told.model.name == TESTBED or not _foreign_classifier(measured)
    )


def _foreign_classifier(measured: FamilyRun) -> bool:
    """Return whether the testbed's classifier judged a model that was not made from the testbed's."""
    told = measured.config
    return told.settings.style_classifier.name == TESTBED and "control_tag" not in tuning_metadata(told.model.name)


def _generation_truth(measured: FamilyRun) -> list[BiasScore]:
    if measured.config.model.name != TESTBED or measured.config.model.system_prompt:  # the grammar knows of none
        return []
    try:
        planted = grammar.truth(measured.table("prompts"))
    except InputError:  # prompts of another taxonomy or file, which the grammar does not answer
        return []
    return [score for score in planted if score.metric in SHOWN and "style" not in score.group]


def _pairs_truth(measured: FamilyRun) -> list[BiasScore]:
    told = measured.config
    planted = told.model.name == TESTBED and told.settings.pairs == TESTBED and not told.settings.perturbed
    return pairs.truth(measured.table("pairs")) if planted else []


def _likelihood_truth(measured: FamilyRun) -> list[BiasScore]:
    from evenhand.recipes.testbed import frequencies  # it brings torch

    planted = measured.config.model.name == TESTBED and measured.config.prompts.dataset == frequencies.DATASET
    return frequencies.truth(measured.table("likelihoods")) if planted else []


TRUTHS: Mapping[str, Callable[[FamilyRun], list[BiasScore]]] = {
    "generation_bias": _generation_truth,
    "sentence_pairs": _pairs_truth,
    "likelihood_bias": _likelihood_truth,
}
