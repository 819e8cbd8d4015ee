"""DPO on responses that are exchanged between descriptors.

Source: Rafailov et al. 2023, "Direct Preference Optimization". Each response labelled `bias` is the rejected response
of a pair. The chosen response is also labelled `bias`, has the same template and another descriptor, whose mentions are
rewritten. Chosen and rejected responses therefore have the same styles and fit their templates equally well, so that
the model only learns to ignore the descriptor. Pairs of a `no_bias` response preferred to a `bias` response would teach
the model to avoid all styles that are often biased.
"""

import pandas as pd
from datasets import Dataset

from evenhand.mitigation.labelling.labelled_responses import (
    ContextRenderer,
    exchange_responses,
    render_untagged_contexts,
    response_columns,
)
from evenhand.mitigation.methods import Method


class DPO(Method):
    """DPO on responses that are exchanged between descriptors."""

    trainer = "dpo"
    defaults = {"learning_rate": 1e-3, "batch_size": 32, "max_rows": 3000, "preference_beta": 0.5}

    def rows(self, labelled: pd.DataFrame, render: ContextRenderer, seed: int = 0) -> Dataset:
        """Return a training row per pair: `prompt`, `context`, `chosen` (sampled by `seed`) and `rejected`.

        Args:
            labelled: columns prompt_id, text, persona, response, label, template and descriptor.

        Raises:
            InputError: see `evenhand.mitigation.labelling.labelled_responses.exchange_responses`.
        """
        biased, chosen = exchange_responses(labelled, seed, biased_only=True)
        contexts = render_untagged_contexts(biased, render)
        return Dataset.from_dict(
            {
                "prompt": contexts,
                **response_columns("chosen", chosen),
                **response_columns("rejected", biased),
                "context": contexts,
            }
        )
