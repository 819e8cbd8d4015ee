"""Rejection sampling: tune on the responses labelled `no_bias` alone, untagged.

The model learns its own conditional distribution with the biased responses rejected, and needs no tag. Known for
answers chosen by a reward as best-of-n or rejection-sampling fine-tuning (Touvron et al. 2023, Llama 2, §3.2.3).

What is rejected is not of the mean style, so the model's mean style drifts by about as much as that of the kept
responses: on the testbed 7 % at the 0.7 quantile, 3 % at the 0.5 quantile, where more bias goes too.
"""

import pandas as pd
from datasets import Dataset

from evenhand.mitigation.labelling.labelled_responses import (
    ContextRenderer,
    check_labelled,
    no_bias_mask,
    untagged_rows,
)

TRAINER, INFERENCE_TAG, TAGS, THRESHOLD_PLAN_APPLIES = "sft", "", (), True
DEFAULTS = {"learning_rate": 4e-3}


def rows(labelled: pd.DataFrame, render: ContextRenderer, seed: int = 0) -> Dataset:
    """Return one row per response labelled `no_bias`: `prompt` and `context`, and `completion`.

    Raises:
        InputError: see `evenhand.mitigation.labelling.labelled_responses.check_labelled`.
    """
    check_labelled(labelled)
    return untagged_rows(labelled[no_bias_mask(labelled)], render)
