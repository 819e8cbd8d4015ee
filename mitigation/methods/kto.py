"""KTO (Ethayarajh et al. 2024, "KTO: Model Alignment as Prospect Theoretic Optimization"): the label is the preference.

A response labelled `no_bias` is desirable, one labelled `bias` is not; no pairs are needed. The tuned model needs no
tag. The trainer weighs the two classes so that both count the same (the paper's equation 8 and §4.2).
"""

import pandas as pd
from datasets import Dataset

from evenhand.mitigation.labelling.labelled import Render, check_labelled, plain_rows, unbiased

TRAINER, INFERENCE_TAG, TAGS = "kto", "", ()
DEFAULTS = {"learning_rate": 1.5e-3, "batch_size": 32, "max_rows": 3000, "preference_beta": 1.0}


def rows(labelled: pd.DataFrame, render: Render, seed: int = 0) -> Dataset:
    """Return one row per labelled response, in the same order: `prompt` and `context`, `completion`, and `label`.

    `label` is true where the response is desirable.

    Raises:
        InputError: see `evenhand.mitigation.labelling.labelled.check_labelled`.
    """
    check_labelled(labelled)
    return plain_rows(labelled, render).add_column("label", unbiased(labelled).tolist())
