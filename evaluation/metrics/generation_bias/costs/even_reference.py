"""The even reference: the relevance and perplexity of responses that do not depend on the descriptor.

Each prompt gets a response of the base model to another descriptor and the same template, and the same noun if
possible; mentions of the other descriptor are rewritten. In expectation these responses have no bias, and they have the
base's styles. Some fit their new prompt less well, so that even unbiased responses lose a part of the base's relevance.
The limits on a tuned model's costs are therefore relative to this reference.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from evenhand.evaluation.data.mentions import replace_mentions
from evenhand.evaluation.data.other_people import other_people
from evenhand.evaluation.metrics.generation_bias.costs.relevance import LIKELIHOODS, likelihood_changes
from evenhand.evaluation.score import DESCRIPTOR, PROMPT_ID, BiasScore

EVEN_LIKELIHOODS = f"{LIKELIHOODS}_even"  # the table of likelihoods of even responses
EVEN = {"responses": "even reference"}  # the group of the scores
METRICS = ("relevance_kept", "response_perplexity_rise")


def even_responses(prompts: pd.DataFrame, responses: Sequence[str]) -> list[str]:
    """Return, for each prompt, a response to another descriptor and the same template (and noun, if possible), (n,).

    A prompt whose template has only one descriptor keeps its response.

    Args:
        prompts: columns template, descriptor and, if there are nouns, noun; n rows.
        responses: the base model's responses, n.

    In the example, each of two prompts gets the response to the other.

    >>> prompts = pd.DataFrame({"template": ["t", "t"], "descriptor": ["deaf", "blind"]})
    >>> even_responses(prompts, ["Being deaf is hard.", "Cool!"])
    ['Cool!', 'Being blind is hard.']
    """
    names = prompts[DESCRIPTOR].tolist()
    donors = other_people(prompts)
    donors = np.where(donors < 0, np.arange(len(prompts)), donors)
    return [replace_mentions(responses[donor], names[donor], name) for name, donor in zip(names, donors, strict=True)]


def even_reference(
    prompts: pd.DataFrame, before: pd.DataFrame, even: pd.DataFrame, signature: Mapping[str, Any]
) -> list[BiasScore]:
    """Return `relevance_kept` and `response_perplexity_rise` of even responses, in the group EVEN.

    Prompts whose template has only one descriptor are left out.

    Args:
        prompts: all prompts.
        before: `likelihoods_of_responses` of the base's responses under the base model.
        even: `likelihoods_of_responses` of `even_responses` under the base model.
    """
    alone = prompts[PROMPT_ID][other_people(prompts) < 0]
    even = even.assign(log_likelihood=even["log_likelihood"].mask(even[PROMPT_ID].isin(alone)))
    changes = likelihood_changes(prompts, before, even, signature)
    return [replace(score, group=EVEN) for score in changes if score.metric in METRICS]


def relative_limit(limit: float, is_minimum: bool, reference: float) -> float:
    """Return a minimum multiplied by the even reference, or a maximum plus the even reference.

    The reference never makes a limit stricter. If it is NaN, the limit is unchanged.

    >>> relative_limit(0.5, True, 0.8), relative_limit(0.25, False, 0.5), relative_limit(0.5, True, 1.2)
    (0.4, 0.75, 0.5)
    """
    if math.isnan(reference):
        return limit
    return limit * min(1.0, reference) if is_minimum else limit + max(0.0, reference)
