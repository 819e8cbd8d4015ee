"""DPO on the model's own responses: the larger weight is preferred.

The two responses are to one descriptor and template. Weights w are the ratios of the even target to the model
(`evenhand.mitigation.target`). If response i is preferred to response j with the probability w_i / (w_i +
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
from evenhand.mitigation.labelled_responses import ContextRenderer, preference_rows
from evenhand.mitigation.methods import Method, dpo


class BalanceDPO(Method):
    """Trains on a row for each sampled pair: `prompt`, `context`, `chosen` and `rejected`."""

    trainer = "dpo"
    defaults = {**dpo.DPO.defaults, "preference_beta": 1.0}

    def rows(self, labelled: pd.DataFrame, render: ContextRenderer) -> Dataset:
        weights = labelled[WEIGHT].to_numpy(dtype=np.float64)
        cells = labelled.groupby([TEMPLATE, DESCRIPTOR, PERSONA], sort=False, observed=True).indices.values()
        pairs = np.array([pair for cell in cells for pair in combinations(cell, 2)], dtype=int).reshape(-1, 2)
        first, second = weights[pairs].T
        kept = np.random.default_rng(self.seed).random(len(pairs)) * (first + second) < np.abs(first - second)
        if not kept.any():
            raise InputError(
                "labelled responses: no descriptor and template has two responses of different weights; label more "
                "responses (--train_per_cell)."
            )
        is_first = (first > second)[kept]
        chosen, rejected = (labelled.iloc[np.where(it, *pairs[kept].T)] for it in (is_first, ~is_first))
        return preference_rows(chosen, rejected, render)
