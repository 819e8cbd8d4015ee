"""Fine-tune on exchanged responses and on own ones drawn by weight.

`exchange` trains on responses to other descriptors. It removes the bias, also for unseen descriptors, but lowers the
relevance. Training on the responses to the same prompt, drawn by their weights in the even target, keeps the relevance,
but removes only the bias that the labels show. A model that imitates both equally often retains half of an effect, or
less if the weights reduce the effect. It loses half of the relevance that `exchange` loses. Pooled FGB* is quadratic in
the effects, so at most a quarter of it remains. The method is Evenhand's.
"""

import pandas as pd
from datasets import Dataset

from evenhand.mitigation.labelled_responses import (
    ContextRenderer,
    balanced_responses,
    exchange_responses,
    untagged_rows,
)
from evenhand.mitigation.methods import Method


class HalfExchange(Method):
    """Trains on the rows of `exchange`, then on a row for each of `balanced_responses`."""

    uses_threshold = False

    def rows(self, labelled: pd.DataFrame, render: ContextRenderer) -> Dataset:
        exchanged = exchange_responses(labelled, self.seed)[1]
        return untagged_rows(pd.concat([exchanged, balanced_responses(labelled, self.seed)]), render)
