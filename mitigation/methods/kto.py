"""KTO (Ethayarajh et al. 2024, "KTO: Model Alignment as Prospect Theoretic Optimization"): good and bad without pairs.

A response labelled `bias` is undesirable for the descriptor that got it, and desirable for another one, its mention
rewritten: what is unwanted is that style and descriptor go together, not the style. With `no_bias` responses for the
desirable ones, as one would think of first, the model turns from all styles that are ever biased, and half of what ties
its answers to the prompt goes with them. The trainer weighs the two classes so that both count the same (the paper's
equation 8 and §4.2); the tuned model needs no tag.
"""

import numpy as np
import pandas as pd
from datasets import Dataset, concatenate_datasets

from evenhand.evaluation.results import DESCRIPTOR, TEMPLATE
from evenhand.mitigation.labelling.labelled_responses import (
    ContextRenderer,
    check_labelled,
    exchange_responses,
    no_bias_mask,
    untagged_rows,
)

TRAINER, INFERENCE_TAG, TAGS, THRESHOLD_PLAN_APPLIES = "kto", "", (), False
DEFAULTS = {"learning_rate": 1.2e-3, "batch_size": 32, "max_rows": 3000, "preference_beta": 1.0}


def rows(labelled: pd.DataFrame, render: ContextRenderer, seed: int = 0) -> Dataset:
    """Return two rows for each response labelled `bias`: `prompt` and `context`, `completion`, and `label`.

    First all that are not desirable, then for each prompt the desirable one, drawn by `seed`.

    Args:
        labelled: columns prompt_id, text, persona, response, label, template and descriptor.

    Raises:
        InputError: see `evenhand.mitigation.labelling.labelled_responses.check_labelled` and `exchange_responses`.
    """
    check_labelled(labelled, TEMPLATE, DESCRIPTOR)
    biased, answers = exchange_responses(labelled[~no_bias_mask(labelled)], np.random.default_rng(seed))
    parts = (untagged_rows(biased, render), False), (untagged_rows(biased, render, answers), True)
    return concatenate_datasets([part.add_column("label", [wanted] * len(biased)) for part, wanted in parts])
