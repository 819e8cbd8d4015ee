"""Fine-tune on all responses: the ablation of control tags.

Source: paper 002, C.2.1 and Table 8. The model is tuned on all of its responses, biased or not. The bias that this
method removes is an effect of fine-tuning as such.
"""

import pandas as pd
from datasets import Dataset

from evenhand.mitigation.labelling.labelled_responses import ContextRenderer, check_labelled, untagged_rows
from evenhand.mitigation.methods import Method


class SelfChat(Method):
    """Fine-tune on all responses: the ablation of control tags."""

    trainer = "sft"
    uses_threshold = False
    defaults = {"learning_rate": 4e-3}

    def rows(self, labelled: pd.DataFrame, render: ContextRenderer, seed: int = 0) -> Dataset:
        """Return a training row per labelled response, in the same order: `prompt`, `context` and `completion`.

        Raises:
            InputError: see `evenhand.mitigation.labelling.labelled_responses.check_labelled`.
        """
        check_labelled(labelled)
        return untagged_rows(labelled, render)
