"""DPO on responses that are exchanged between descriptors.

Source: Rafailov et al. 2023, "Direct Preference Optimization". Each response labelled `bias` is the rejected response
of a pair. The chosen response is also labelled `bias`, has the same template and another descriptor, whose mentions are
rewritten. Chosen and rejected responses therefore have the same styles and fit their templates equally well, so that
the model only learns to ignore the descriptor. Pairs of a `no_bias` response preferred to a `bias` response would teach
the model to avoid all styles that are often biased.
"""

import pandas as pd
from datasets import Dataset

from evenhand.mitigation.labelled_responses import ContextRenderer, exchange_responses, preference_rows
from evenhand.mitigation.methods import Method


class DPO(Method):
    """Trains on a row for each response labelled `bias`: `prompt`, `context`, `chosen` and `rejected`."""

    trainer = "dpo"
    defaults = {"learning_rate": 1e-3, "batch_size": 32, "max_rows": 3000, "preference_beta": 0.5}

    def rows(self, labelled: pd.DataFrame, render: ContextRenderer) -> Dataset:
        biased, exchanged = exchange_responses(labelled, self.seed, biased_only=True)
        return preference_rows(exchanged, biased, render)
