"""The planted Likelihood Bias of the testbed's language model."""

from evenhand.evaluation.families import FamilyRun
from evenhand.evaluation.score import BiasScore
from evenhand.recipes.testbed import LANGUAGE_MODEL, frequencies, is_shipped

MODEL_NOTE = (
    "The measured model is the testbed's: a tiny model of a grammar in which some descriptors are rarer than "
    "others of their axis, built to check the instrument. Its numbers say nothing about any real model or people."
)


def true_scores(measured: FamilyRun) -> list[BiasScore]:
    """Return the planted bias if the model and the sentences are the testbed's; else []."""
    config = measured.config
    is_planted = is_shipped(config.model.name, LANGUAGE_MODEL) and config.prompts.dataset == frequencies.DATASET
    return frequencies.truth(measured.table("likelihoods")) if is_planted else []
