"""DPO on the model's own responses: the larger weight is preferred.

The two responses are to one descriptor and template. Weights w are the ratios of the even target to the model
(`evenhand.mitigation.labelling.target`). If response i is preferred to response j with the probability w_i / (w_i +
w_j) (Bradley and Terry 1952), the optimum of DPO with β = 1 is the even target (Rafailov et al. 2023, "Direct
Preference Optimization", equation 4, with the reward log w). Pairs in both orders cancel at the start of training. Only
the rest is trained on: a pair is kept with the probability |w_i − w_j| / (w_i + w_j), with the heavier response as the
chosen one. The prompt of a row is the prompt of the chosen response. The rejected response is to the same prompt, or to
another noun with the same descriptor and template.
"""

from itertools import combinations

import numpy as np
import pandas as pd
from datasets import Dataset

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.score import DESCRIPTOR, PERSONA, TEMPLATE, WEIGHT
from evenhand.mitigation.labelling.labelled_responses import (
    ContextRenderer,
    check_labelled,
    check_weights,
    render_untagged_contexts,
    response_columns,
)
from evenhand.mitigation.methods import Method
from evenhand.mitigation.methods.dpo import DPO


class BalanceDPO(Method):
    """DPO on the model's own responses: the larger weight is preferred."""

    trainer = "dpo"
    defaults = {**DPO.defaults, "preference_beta": 1.0}

    def rows(self, labelled: pd.DataFrame, render: ContextRenderer, seed: int = 0) -> Dataset:
        """Return a training row per pair: `prompt`, `context`, `chosen` and `rejected`; pairs are sampled by `seed`.

        Args:
            labelled: columns prompt_id, text, persona, response, label, template, descriptor and weight.

        Raises:
            InputError: see `check_labelled` and `check_weights`; no cell has two responses of different weights.
        """
        check_labelled(labelled, TEMPLATE, DESCRIPTOR, WEIGHT)
        weights = check_weights(labelled)
        cells = labelled.groupby([TEMPLATE, DESCRIPTOR, PERSONA], sort=False, observed=True).indices.values()
        pairs = np.array([pair for cell in cells for pair in combinations(cell, 2)], dtype=int).reshape(-1, 2)
        first, second = weights[pairs].T
        kept = np.random.default_rng(seed).random(len(pairs)) * (first + second) < np.abs(first - second)
        if not kept.any():
            raise InputError(
                "labelled responses: no descriptor and template has two responses of different weights; label more "
                "responses (--train_per_cell)."
            )
        is_first = (first > second)[kept]
        chosen, rejected = (labelled.iloc[np.where(it, *pairs[kept].T)] for it in (is_first, ~is_first))
        contexts = render_untagged_contexts(chosen, render)
        return Dataset.from_dict(
            {
                "prompt": contexts,
                **response_columns("chosen", chosen),
                **response_columns("rejected", rejected),
                "context": contexts,
            }
        )
