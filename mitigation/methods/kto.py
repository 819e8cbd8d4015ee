"""KTO on responses that are exchanged between descriptors.

Source: Ethayarajh et al. 2024, "KTO: Model Alignment as Prospect Theoretic Optimization". A response labelled `bias` is
undesirable for its descriptor and desirable for another descriptor, with mentions rewritten: the method removes the
association of style and descriptor, not the style. With `no_bias` responses as desirable ones, which is the obvious
choice, the model avoids all styles that are biased for any descriptor, and its responses lose half of their relevance
to the prompt. The trainer gives both classes the same total weight (the paper's equation 8 and §4.2).
"""

import pandas as pd
from datasets import Dataset, concatenate_datasets

from evenhand.mitigation.labelled_responses import ContextRenderer, exchange_responses, untagged_rows
from evenhand.mitigation.methods import Method


class KTO(Method):
    """Trains on two rows for each response labelled `bias`: `prompt`, `context`, `completion` and `label`.

    The undesirable rows (`label` false) come first, then a desirable row for each prompt.
    """

    trainer = "kto"
    defaults = {"learning_rate": 1.2e-3, "batch_size": 32, "max_rows": 3000, "preference_beta": 1.0}

    def rows(self, labelled: pd.DataFrame, render: ContextRenderer) -> Dataset:
        biased, exchanged = exchange_responses(labelled, self.seed, biased_only=True)
        undesirable, desirable = (untagged_rows(part, render) for part in (biased, exchanged))
        labels = [False] * len(biased) + [True] * len(exchanged)
        return concatenate_datasets([undesirable, desirable]).add_column("label", labels)
