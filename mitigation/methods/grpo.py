"""GRPO with rewards for little bias and for relevance.

Source: Shao et al. 2024, "DeepSeekMath", §4.1. The model samples responses in training. The method has no threshold and
does not use the labels. A response's reward is lower if the response is characteristic of the descriptor in its prompt,
and lower if the response fits another prompt better.

The optimal model for a reward r and the penalty β × KL is proportional to p_base · exp(r / β). With r = −b/σ, the mean
of b/σ falls by about its variance / β, for each descriptor in proportion to its bias. The variance is near 1: after
many steps, β = 1 / mean of b/σ removes the bias, and a smaller β reverses it. In few steps, the noise of the gradient
uses up more of the KL than the reward does, and a smaller β is better: β depends on the number of steps.
"""

from collections.abc import Iterable, Sequence

import numpy as np
import pandas as pd
from datasets import Dataset

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.families.generation_bias.collect.classification import classify_responses
from evenhand.evaluation.families.generation_bias.costs.relevance import other_prompts
from evenhand.evaluation.models.likelihood.perplexity import response_perplexity
from evenhand.evaluation.models.loading import DialogueModel
from evenhand.evaluation.models.styles import StyleClassifier
from evenhand.evaluation.score import AXIS, DESCRIPTOR, STYLE_VECTOR, TEMPLATE
from evenhand.evaluation.statistics.cells import to_codes
from evenhand.mitigation.labelling.labelled_responses import ContextRenderer, check_labelled, untagged_rows
from evenhand.mitigation.labelling.projection import descriptor_means, project
from evenhand.mitigation.methods import RewardFunction

TRAINER = "grpo"
USES_THRESHOLD = False
DEFAULTS = {
    "learning_rate": 5e-3,
    "batch_size": 16,
    "max_rows": 420,
    "preference_beta": 0.5,
    "num_generations": 4,
    "relevance_weight": 0.5,
}


def rows(labelled: pd.DataFrame, render: ContextRenderer, seed: int = 0) -> Dataset:
    """Return a training row per recorded response: `prompt`, `context`, `completion`, and the inputs of `rewards`.

    u is the bias direction m_d − m̄ of the row's descriptor over the recorded responses, and σ the standard deviation of
    their bias values (p − m̄)·u (`evenhand.mitigation.labelling.projection.bias_values`, α = 0). `direction` is u/σ,
    (S,), and `offset` m̄·u/σ. A response sampled in training does not contribute to its direction. `other_context` has
    the same descriptor and another template; it is "" if no such context exists.

    Args:
        labelled: columns prompt_id, text, persona, response, label, template, descriptor, axis and style_vector.

    Raises:
        InputError: see `evenhand.mitigation.labelling.labelled_responses.check_labelled`; all bias values are equal.
    """
    check_labelled(labelled, TEMPLATE, DESCRIPTOR, AXIS, STYLE_VECTOR)
    vectors = np.stack(labelled[STYLE_VECTOR].tolist()).astype(np.float64)
    descriptor = to_codes(labelled[DESCRIPTOR].tolist())
    means = descriptor_means(vectors, to_codes(labelled[TEMPLATE].tolist()), descriptor)
    m_bar = means.mean(axis=0)
    direction = (means - m_bar)[descriptor]
    deviation = project(vectors, m_bar, direction, alpha=0).std()
    if not deviation > 0:
        raise InputError(
            "labelled responses: all bias values are equal, so no bias direction is defined; label more descriptors."
        )
    direction /= deviation
    return reward_rows(labelled, render, direction, direction @ m_bar)


def reward_rows(labelled: pd.DataFrame, render: ContextRenderer, direction: np.ndarray, offset: np.ndarray) -> Dataset:
    """Return the rows of `rows` for other directions, (n, S), and offsets, (n,): offset − direction · φ is rewarded."""
    columns = untagged_rows(labelled, render).to_dict()
    contexts = columns["context"]
    return Dataset.from_dict(
        {
            **columns,
            "other_context": [contexts[row] if row >= 0 else "" for row in other_prompts(labelled)],
            "descriptor": labelled[DESCRIPTOR].tolist(),
            "direction": direction.tolist(),
            "offset": offset.tolist(),
        }
    )


def rewards(base: DialogueModel, classifier: StyleClassifier, relevance_weight: float) -> list[RewardFunction]:
    """Return the reward functions; TRL's trainer adds their values and ignores NaN.

    - evenness: −b/σ, see `rows`; NaN for a blank response.
    - relevance: `relevance_weight` × min(0, log p(response | context) − log p(response | other context)), in nats, by
      the base model; NaN without another context. Without the bound of 0, the model learns little more than to give
      responses that reveal the template. With a weight of 0 there is no such function.

    Args:
        base: the model before tuning; it is not changed.
        classifier: the first style classifier, which labelled the responses.
    """

    def evenness(
        completions: Sequence[str],
        descriptor: Sequence[str],
        direction: Sequence[Sequence[float]],
        offset: Sequence[float],
        **further: object,
    ) -> list[float]:
        vectors = classify_responses(classifier, strip_all(completions), descriptor)
        return (np.array(offset) - (vectors * np.array(direction)).sum(axis=1)).tolist()

    def relevance(
        completions: Sequence[str], context: Sequence[str], other_context: Sequence[str], **further: object
    ) -> list[float]:
        values = np.full(len(completions), np.nan)
        indices = np.flatnonzero([bool(other) for other in other_context])
        responses = strip_all(completions[index] for index in indices)
        log_p, log_p_other = (
            response_perplexity(base, [contexts[index] for index in indices], responses)[0]
            for contexts in (context, other_context)
        )
        values[indices] = relevance_weight * np.minimum(log_p - log_p_other, 0.0)
        return values.tolist()

    return [evenness, relevance] if relevance_weight else [evenness]


def strip_all(completions: Iterable[str]) -> list[str]:
    """Return responses without leading and trailing blanks, as `evenhand measure` scores them."""
    return [completion.strip() for completion in completions]
