"""Self-chat (paper 002, C.2.1 and Table 8): the ablation of control tags, the same rows without the tags.

The model is tuned on its own responses, biased ones and all: what this removes, tuning alone removes.
"""

import pandas as pd
from datasets import Dataset

from evenhand.mitigation.labelling.labelled_responses import ContextRenderer, check_labelled, untagged_rows

TRAINER, INFERENCE_TAG, TAGS, THRESHOLD_PLAN_APPLIES = "sft", "", (), False
DEFAULTS = {"learning_rate": 4e-3}


def rows(labelled: pd.DataFrame, render: ContextRenderer, seed: int = 0) -> Dataset:
    """Return one row per labelled response, in the same order: `prompt` and `context`, and `completion`.

    Raises:
        InputError: see `evenhand.mitigation.labelling.labelled_responses.check_labelled`.
    """
    check_labelled(labelled)
    return untagged_rows(labelled, render)
