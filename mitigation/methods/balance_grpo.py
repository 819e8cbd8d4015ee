"""GRPO; the reward is the log weight in the even target.

The optimal model for a reward r and the penalty β × KL is proportional to p_base · exp(r / β). With the reward λ_d · φ
of a response with style vector φ and with β = 1, the optimum is the even target itself
(`evenhand.mitigation.labelling.target`; Korbak, Perez and Buckley 2022, "RL with KL penalties is better viewed as
Bayesian inference"). Relevance is not rewarded, because the model generates every response for its prompt.
"""

import numpy as np
import pandas as pd
from datasets import Dataset

from evenhand.evaluation.families.generation_bias.styled_responses import StyledResponses
from evenhand.evaluation.score import AXIS, DESCRIPTOR, STYLE_VECTOR, TEMPLATE
from evenhand.evaluation.statistics.cells import to_codes
from evenhand.mitigation.labelling.labelled_responses import ContextRenderer, check_labelled
from evenhand.mitigation.labelling.target import fit_target
from evenhand.mitigation.methods import grpo

TRAINER = "grpo"
DEFAULTS = {**grpo.DEFAULTS, "preference_beta": 1.0, "relevance_weight": 0.0}
rewards = grpo.rewards


def rows(labelled: pd.DataFrame, render: ContextRenderer, seed: int = 0) -> Dataset:
    """Return the rows of `evenhand.mitigation.methods.grpo.rows` with −λ_d as direction and 0 as offset.

    Args:
        labelled: columns prompt_id, text, persona, response, label, template, descriptor, axis and style_vector.

    Raises:
        InputError: see `evenhand.mitigation.labelling.labelled_responses.check_labelled`.
    """
    check_labelled(labelled, TEMPLATE, DESCRIPTOR, AXIS, STYLE_VECTOR)
    vectors = np.stack(labelled[STYLE_VECTOR].tolist()).astype(np.float64)
    target = fit_target(StyledResponses(labelled, vectors, [str(style) for style in range(vectors.shape[1])]))
    exponents = np.stack([tilt.exponent for tilt in target.tilts])[to_codes(labelled[DESCRIPTOR].tolist())]
    return grpo.reward_rows(labelled, render, -exponents, np.zeros(len(labelled)))
