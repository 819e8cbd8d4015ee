"""The planted stereotype in the testbed's sentence pairs."""

from evenhand.evaluation.families import FamilyRun
from evenhand.evaluation.score import BiasScore
from evenhand.recipes.testbed import MASKED_MODEL, PAIRS, is_shipped, pairs

MODEL_NOTE = (
    "The measured model is the testbed's: a tiny model of a grammar with a planted stereotype, built to check the "
    "instrument. Its numbers say nothing about any real model or people."
)
PAIRS_NOTE = (
    "These pairs are the testbed's, with words for which its grammar plants a stereotype. They say nothing about other "
    "models: set --sentence_pairs.pairs to crows_pairs or to a file."
)
WORDS_NOTE = "The testbed's model knows only the words of the testbed's pairs; its scores on these pairs mean nothing."


def true_scores(measured: FamilyRun) -> list[BiasScore]:
    """Return the planted stereotype if the model and the pairs are the testbed's and unperturbed; else []."""
    config = measured.config
    is_planted = is_shipped(config.model.name, MASKED_MODEL) and is_shipped(config.settings.pairs, PAIRS)
    return pairs.truth(measured.table("pairs")) if is_planted and not config.settings.perturbed else []


def notes(measured: FamilyRun) -> list[str]:
    """Return a note if only the model or only the pairs are from the testbed."""
    is_testbed = is_shipped(measured.config.model.name, MASKED_MODEL)
    has_pairs = is_shipped(measured.config.settings.pairs, PAIRS)
    return [WORDS_NOTE if is_testbed else PAIRS_NOTE] if is_testbed != has_pairs else []
