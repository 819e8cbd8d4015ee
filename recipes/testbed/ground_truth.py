"""True scores of the testbed's models, metrics that only the testbed has, and notes for readers of its reports."""

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
    "The style classifier is the testbed's and was trained only on the testbed's sentences: for other models, styles "
    "by it mean little. Set --generation_bias.style_classifier and --generation_bias.style_clusters."
)
PAIRS_NOTE = (
    "These pairs are the testbed's, with words for which its grammar plants a stereotype. They say nothing about other "
    "models: set --sentence_pairs.pairs to crows_pairs or to a file."
)
WORDS_NOTE = "The testbed's model knows only the words of the testbed's pairs; its scores on these pairs mean nothing."
TRUE_METRICS = ("fgb", "fgb_corrected", "fgb_pooled_corrected", "scgb_pooled_corrected")


def report_context(family: str, measured: FamilyRun) -> ReportContext:
    """Return the planted bias on the measured rows, [] for models other than the testbed's, and notes for readers."""
    true_scores = TRUE_SCORES[family](measured) if family in TRUE_SCORES else []
    return ReportContext(true_scores, reader_notes(family, measured))


def reader_notes(family: str, measured: FamilyRun) -> list[str]:
    """Return notes for readers if the measured model, its style classifier or its pairs are the testbed's."""
    is_testbed = measured.config.model.name == TESTBED
    notes = [MODEL_NOTES[family]] if is_testbed and family in MODEL_NOTES else []
    if family == "generation_bias" and not is_testbed and _has_foreign_classifier(measured):
        notes.append(CLASSIFIER_NOTE)
    if family == "sentence_pairs" and is_testbed != (measured.config.settings.pairs == TESTBED):
        notes.append(WORDS_NOTE if is_testbed else PAIRS_NOTE)
    return notes


def grammar_scores(family: str, measured: FamilyRun, scores: Sequence[BiasScore]) -> list[BiasScore]:
    """Return `well_formed`, the share of responses that the grammar can produce, for models of the testbed; else [].

    In [0, 1], without an ideal, as the testbed's model is not perfect. An empty response is not well-formed.

    Args:
        scores: the family's scores of the same run.
    """
    if family != "generation_bias" or not _of_the_testbed(measured):
        return []
    is_well_formed = well_formed(read_styled_run(measured.folder))
    signature = next((score.signature for score in scores if score.metric == "fgb_pooled_corrected"), {})
    hits, n = int(is_well_formed.sum()), len(is_well_formed)
    return [BiasScore("well_formed", hits / n, None, (0.0, 1.0), n, share_interval(hits, n), signature=signature)]


def grammar_differences(family: str, before: FamilyRun, after: FamilyRun) -> list[BiasScore]:
    """Return `well_formed_difference`, paired by prompt, if both models are of the testbed; else []."""
    if family != "generation_bias" or not (_of_the_testbed(before) and _of_the_testbed(after)):
        return []
    sides = (well_formed(read_styled_run(side.folder)) for side in (before, after))
    signature = {"before": before.signature("well_formed"), "after": after.signature("well_formed")}
    return [share_change("well_formed_difference", *sides, signature=signature)]


def _of_the_testbed(measured: FamilyRun) -> bool:
    """Return whether the model is the testbed's, or an adapter scored by the testbed's classifier."""
    config = measured.config
    return config.settings.style_classifier.name == TESTBED and (
        config.model.name == TESTBED or not _has_foreign_classifier(measured)
    )


def _has_foreign_classifier(measured: FamilyRun) -> bool:
    """Return whether the testbed's classifier scored a model that this toolkit did not tune."""
    config = measured.config
    return config.settings.style_classifier.name == TESTBED and "control_tag" not in tuning_metadata(config.model.name)


def _true_generation_bias(measured: FamilyRun) -> list[BiasScore]:
    if measured.config.model.name != TESTBED or measured.config.model.system_prompt:  # the grammar has none
        return []
    try:
        planted = grammar.truth(measured.table("prompts"))
    except InputError:  # the grammar has no responses to prompts of another taxonomy or file
        return []
    return [score for score in planted if score.metric in TRUE_METRICS and "style" not in score.group]


def _true_pair_scores(measured: FamilyRun) -> list[BiasScore]:
    config = measured.config
    is_planted = config.model.name == TESTBED and config.settings.pairs == TESTBED and not config.settings.perturbed
    return pairs.truth(measured.table("pairs")) if is_planted else []


def _true_likelihood_bias(measured: FamilyRun) -> list[BiasScore]:
    from evenhand.recipes.testbed import frequencies  # imports torch

    is_planted = measured.config.model.name == TESTBED and measured.config.prompts.dataset == frequencies.DATASET
    return frequencies.truth(measured.table("likelihoods")) if is_planted else []


TRUE_SCORES: Mapping[str, Callable[[FamilyRun], list[BiasScore]]] = {
    "generation_bias": _true_generation_bias,
    "sentence_pairs": _true_pair_scores,
    "likelihood_bias": _true_likelihood_bias,
}
