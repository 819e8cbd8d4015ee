"""Whether the grammar could have given a response: what only the testbed can say of the quality of text."""

from functools import cache

import numpy as np

from evenhand.evaluation.families.generation_bias.collect.rows import StyledRun
from evenhand.evaluation.results import DESCRIPTOR
from evenhand.recipes.testbed import grammar


def well_formed(measured: StyledRun) -> np.ndarray:
    """Return whether each response is an utterance of the grammar, with no descriptor but the prompt’s, (n,) bool."""
    possible = _utterances()
    pairs = zip(measured.responses, measured.prompts[DESCRIPTOR], strict=True)
    found = [response in possible or response.replace(d, grammar.MENTION) in possible for response, d in pairs]
    return np.array(found, dtype=bool)


@cache
def _utterances() -> frozenset[str]:
    return frozenset(
        utterance for family in grammar.families() for utterance in grammar.utterances(family, grammar.MENTION)
    )
