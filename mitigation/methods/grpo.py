"""GRPO (Shao et al. 2024, "DeepSeekMath", §4.1): the model answers on the way, and is rewarded for what it says.

Online, and without a threshold: a response is worth the less, the more it shows what is characteristic of its prompt's
descriptor, and the less, the better it would fit another prompt than its own. The labels are not used.

The best model for a reward r against β × KL is p_base · exp(r / β), up to a factor. With r = −b/σ, that moves the mean
of b/σ down by about its variance / β, for each descriptor in proportion to its bias. The variance is near 1: in the
long run a β of 1 over the mean of b/σ removes the bias, and a smaller one turns it round. In few steps the noise of the
gradient spends more of the KL than the reward does, and a smaller β does better; so the two belong together.
"""

from collections.abc import Sequence

import numpy as np
import pandas as pd
from datasets import Dataset

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.families.generation_bias.collect.classification import classify_responses
from evenhand.evaluation.families.generation_bias.costs.relevance import other_prompts
from evenhand.evaluation.models.likelihood.perplexity import response_perplexity
from evenhand.evaluation.models.loading import DialogueModel
from evenhand.evaluation.models.styles import StyleClassifier
from evenhand.evaluation.results import AXIS, DESCRIPTOR, STYLE_VECTOR, TEMPLATE
from evenhand.evaluation.statistics.cells import codes
from evenhand.mitigation.labelling.labelled_responses import ContextRenderer, check_labelled, untagged_rows
from evenhand.mitigation.labelling.projection import descriptor_means, project
from evenhand.mitigation.training.data import RewardFunction

TRAINER, INFERENCE_TAG, TAGS, THRESHOLD_PLAN_APPLIES = "grpo", "", (), False
DEFAULTS = {
    "learning_rate": 5e-3,
    "batch_size": 16,
    "max_rows": 420,
    "preference_beta": 0.5,
    "num_generations": 4,
    "relevance_weight": 0.5,
}


def rows(labelled: pd.DataFrame, render: ContextRenderer, seed: int = 0) -> Dataset:
    """Return a row for each recorded response: `prompt`, `context` and `completion`, and what a new one is judged by.

    With u the bias direction of the row's descriptor, m_d − m̄ of the recorded responses, and σ the standard deviation
    of their bias values (p − m̄)·u (`evenhand.mitigation.labelling.projection.bias_values`, α = 0): `direction` is u/σ,
    S numbers, `offset` m̄·u/σ. A response that is drawn in tuning has no part in its own direction. `other_context` is
    one with the same descriptor and another template, "" where there is none.

    Args:
        labelled: columns prompt_id, text, persona, response, label, template, descriptor, axis and style_vector.

    Raises:
        InputError: see `evenhand.mitigation.labelling.labelled_responses.check_labelled`; all have the same bias value.
    """
    check_labelled(labelled, TEMPLATE, DESCRIPTOR, AXIS, STYLE_VECTOR)
    vectors = np.stack(labelled[STYLE_VECTOR].tolist()).astype(np.float64)
    descriptor = codes(labelled[DESCRIPTOR].tolist())
    means = descriptor_means(vectors, codes(labelled[TEMPLATE].tolist()), descriptor)
    m_bar = means.mean(axis=0)
    direction = (means - m_bar)[descriptor]
    deviation = project(vectors, m_bar, direction, alpha=0).std()
    if not deviation > 0:
        raise InputError("labelled responses: b is the same for all, so there is no direction; label more descriptors.")
    direction /= deviation
    plain = untagged_rows(labelled, render).to_dict()
    contexts = plain["context"]
    return Dataset.from_dict(
        {
            **plain,
            "other_context": [contexts[row] if row >= 0 else "" for row in other_prompts(labelled)],
            "descriptor": labelled[DESCRIPTOR].tolist(),
            "direction": direction.tolist(),
            "offset": (direction @ m_bar).tolist(),
        }
    )


def rewards(base: DialogueModel, classifier: StyleClassifier, relevance_weight: float) -> list[RewardFunction]:
    """Return what TRL's trainer rewards responses by; it adds the two up, and passes over what is NaN.

    - evenness: −b/σ, see `rows`; NaN for a blank response.
    - relevance: `relevance_weight` × min(0, log p(response | context) − log p(response | other context)), in nats, by
      the base model; NaN where there is no other context. Without that bound the model learns to say what shows best
      which template it answers, and little else.

    Args:
        base: the model before tuning; it is not changed.
        classifier: the first style classifier, that of the labels.
    """

    def evenness(
        completions: Sequence[str],
        descriptor: Sequence[str],
        direction: Sequence[Sequence[float]],
        offset: Sequence[float],
        **further: object,
    ) -> list[float]:
        vectors = classify_responses(classifier, strip_blanks(completions), descriptor)
        return (np.array(offset) - (vectors * np.array(direction)).sum(axis=1)).tolist()

    def relevance(
        completions: Sequence[str], context: Sequence[str], other_context: Sequence[str], **further: object
    ) -> list[float]:
        found = np.full(len(completions), np.nan)
        there = np.flatnonzero([bool(other) for other in other_context])
        responses = [strip_blanks(completions)[row] for row in there]
        asked = [[contexts[row] for row in there] for contexts in (context, other_context)]
        own, other = (response_perplexity(base, contexts, responses)[0] for contexts in asked)
        found[there] = relevance_weight * np.minimum(own - other, 0.0)
        return found.tolist()

    return [evenness, relevance]


def strip_blanks(completions: Sequence[str]) -> list[str]:
    """Return responses as they are measured: without outer blanks."""
    return [completion.strip() for completion in completions]
