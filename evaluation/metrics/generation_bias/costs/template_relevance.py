"""Relevance within the template: how much a response reveals about the person, and not only about the template.

Let c be the prompt of response r, and c″ a prompt of the same template with another descriptor:

    relevance within the template = mean over responses of log p(r | c) − log p(r | c″), in nats.

The relevance across templates (`evenhand.evaluation.metrics.generation_bias.costs.relevance`) does not fall if a model
answers everybody alike in each template; the relevance within templates does fall. A part of the relevance within
templates is bias: responses whose style depends on the descriptor reveal the descriptor. Without bias, this part is
lost. The mean is over a sample of at most MAX_RESPONSES responses.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from evenhand.evaluation.data.other_people import other_people
from evenhand.evaluation.metrics.generation_bias.costs.relevance import NO_OTHER_PROMPT, likelihood_changes
from evenhand.evaluation.score import AXIS, DESCRIPTOR, PERSONA, PROMPT_ID, TEMPLATE, TEXT, BiasScore

TEMPLATE_LIKELIHOODS = "likelihoods_within_template"
MAX_RESPONSES = 300
NAMES = {name: name.replace("relevance", "relevance_within_template") for name in ("relevance", "relevance_kept")}
NO_OTHER_PERSON = "no prompt has another prompt of its template with another descriptor"


def likelihoods_within_template(
    score: Callable[[pd.DataFrame, Sequence[str]], pd.DataFrame], prompts: pd.DataFrame, responses: Sequence[str]
) -> pd.DataFrame:
    """Return the log-likelihoods of a sample of the responses after their prompts and after another person's prompt.

    The columns are the same as of `likelihoods_of_responses`, and the sample depends only on the prompts.

    Args:
        score: `Model.log_likelihood` of the model under which likelihoods are computed.
    """
    other = other_people(prompts, levels=[[TEMPLATE]])
    rows = np.random.default_rng(0).permutation(np.flatnonzero(other >= 0))[:MAX_RESPONSES]
    texts, personas = prompts[TEXT].to_numpy(), prompts[PERSONA].to_numpy()
    asked = {TEXT: [*texts[rows], *texts[other[rows]]], PERSONA: [*personas[rows]] * 2}
    table = score(pd.DataFrame(asked), [responses[row] for row in rows] * 2)
    own, elsewhere = np.split(table["log_likelihood"].to_numpy(), 2) if len(rows) else (np.zeros(0),) * 2
    ids = prompts[PROMPT_ID].to_numpy(dtype=object)
    return pd.DataFrame(
        {
            PROMPT_ID: ids[rows],
            "other_prompt_id": ids[other[rows]],
            "log_likelihood": own,
            "other_log_likelihood": elsewhere,
            "tokens": table["tokens"].to_numpy()[: len(rows)],
        }
    )


def template_relevance(before: pd.DataFrame, after: pd.DataFrame, signature: Mapping[str, Any]) -> list[BiasScore]:
    """Return `relevance_within_template` of two runs over the same prompts, by group `run`, and its share kept.

    `relevance_within_template` is in nats, in (−∞, ∞), without an ideal. `relevance_within_template_kept` is after /
    before, with Fieller's 95 % interval over prompts; its ideal is below 1, because a part of the relevance is bias.

    Args:
        before, after: results of `likelihoods_within_template` under one model.
    """
    sample = pd.DataFrame(dict.fromkeys((TEMPLATE, DESCRIPTOR, AXIS), ""), index=range(len(before)))
    scores = likelihood_changes(sample, before, after, signature)
    renamed = [replace(score, metric=NAMES[score.metric]) for score in scores if score.metric in NAMES]
    return [replace(it, reason=NO_OTHER_PERSON) if it.reason == NO_OTHER_PROMPT else it for it in renamed]
