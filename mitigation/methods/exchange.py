"""Exchange: answer everyone as anyone was answered, the distribution that is equal by construction.

For every prompt, the row's response is one that a prompt with another descriptor and the same template received, the
mention of its descriptor rewritten. What a model learns from such rows cannot depend on the descriptor, for the
response was drawn without looking at it. Labels play no part: of `no_bias` responses alone the styles that are often
biased would be lost. Ours; akin to counterfactual data augmentation (Lu et al. 2018,
"Gender Bias in Neural Natural Language Processing"), with responses instead of words exchanged.
"""

import numpy as np
import pandas as pd
from datasets import Dataset

from evenhand.evaluation.results import DESCRIPTOR, TEMPLATE
from evenhand.mitigation.labelling.labelled_responses import (
    ContextRenderer,
    check_labelled,
    exchange_responses,
    untagged_rows,
)

TRAINER, INFERENCE_TAG, TAGS, THRESHOLD_PLAN_APPLIES = "sft", "", (), False
DEFAULTS = {"learning_rate": 4e-3}


def rows(labelled: pd.DataFrame, render: ContextRenderer, seed: int = 0) -> Dataset:
    """Return a row for each prompt, with a response drawn by `seed`: `prompt` and `context`, and `completion`.

    Args:
        labelled: columns prompt_id, text, persona, response, label, template and descriptor.

    Raises:
        InputError: see `evenhand.mitigation.labelling.labelled_responses.check_labelled` and `exchange_responses`.
    """
    check_labelled(labelled, TEMPLATE, DESCRIPTOR)
    kept, answers = exchange_responses(labelled, np.random.default_rng(seed))
    return untagged_rows(kept, render, answers)
