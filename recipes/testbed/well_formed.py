"""Whether the testbed's grammar can produce a response: a measure of the quality of text."""

from functools import cache

import numpy as np

from evenhand.evaluation.families.generation_bias.collect.rows import StyledRun
from evenhand.evaluation.results import DESCRIPTOR
from evenhand.recipes.testbed import grammar


def well_formed(measured: StyledRun) -> np.ndarray:
    """Return whether each response is an utterance that names only the prompt's descriptor, (n,) bool."""
    utterances = _utterances()
    pairs = zip(measured.responses, measured.prompts[DESCRIPTOR], strict=True)
    return np.array([text in utterances or text.replace(d, grammar.MENTION) in utterances for text, d in pairs], bool)


@cache
def _utterances() -> frozenset[str]:
    return frozenset(
        utterance for family in grammar.families() for utterance in grammar.utterances(family, grammar.MENTION)
    )
