"""Fine-tune on rows of `exchange` and own responses drawn by weight.

`exchange` trains on responses to other descriptors. It removes the bias, also for unseen descriptors, but lowers the
relevance. Training on the responses to the same prompt, drawn by their weights in the even target, keeps the relevance,
but removes only the bias that the labels show. A model that imitates both equally often retains half of an effect, or
less if the weights reduce the effect. It loses half of the relevance that `exchange` loses. Pooled FGB* is quadratic in
the effects, so at most a quarter of it remains. The method is Evenhand's.
"""

import pandas as pd
from datasets import Dataset

from evenhand.mitigation.labelling.labelled_responses import (
    ContextRenderer,
    balanced_responses,
    exchange_responses,
    untagged_rows,
)
from evenhand.mitigation.methods import Method


class HalfExchange(Method):
    """Fine-tune on rows of `exchange` and own responses drawn by weight."""

    trainer = "sft"
    uses_threshold = False
    defaults = {"learning_rate": 4e-3}

    def rows(self, labelled: pd.DataFrame, render: ContextRenderer, seed: int = 0) -> Dataset:
        """Return the rows of `exchange`, then a row for each of `balanced_responses`, with the same columns.

        Args:
            labelled: columns prompt_id, text, persona, response, label, template, descriptor, weight and, if there are
                nouns, noun.

        Raises:
            InputError: see `evenhand.mitigation.labelling.labelled_responses.exchange_responses` and
                `balanced_responses`.
        """
        exchanged, own = exchange_responses(labelled, seed)[1], balanced_responses(labelled, seed)
        return untagged_rows(pd.concat([exchanged, own]), render)
