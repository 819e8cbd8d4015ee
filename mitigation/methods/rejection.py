"""Fine-tune on the responses labelled `no_bias` alone.

The model learns its distribution of responses without the biased responses. With a reward in place of labels, the
method is known as rejection-sampling fine-tuning (Touvron et al. 2023, Llama 2, §3.2.3).

The mean style of the training responses differs from the mean style of all responses, and the tuned model's mean style
drifts about as far: on the testbed 7 % at the 0.7 quantile, and 3 % at the 0.5 quantile, which also removes more bias.
"""

import pandas as pd
from datasets import Dataset

from evenhand.mitigation.labelling.labelled_responses import (
    ContextRenderer,
    check_labelled,
    no_bias_mask,
    untagged_rows,
)
from evenhand.mitigation.methods import Method


class Rejection(Method):
    """Fine-tune on the responses labelled `no_bias` alone."""

    trainer = "sft"
    defaults = {"learning_rate": 4e-3}

    def rows(self, labelled: pd.DataFrame, render: ContextRenderer, seed: int = 0) -> Dataset:
        """Return a training row per response labelled `no_bias`: `prompt`, `context` and `completion`.

        Raises:
            InputError: see `evenhand.mitigation.labelling.labelled_responses.check_labelled`.
        """
        check_labelled(labelled)
        return untagged_rows(labelled[no_bias_mask(labelled)], render)
