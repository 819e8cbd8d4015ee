"""DPO (Rafailov et al. 2023, "Direct Preference Optimization"): anyone's biased response is preferred to one's own.

Every response labelled `bias` is the rejected one of a pair. The chosen one is a response labelled `bias` too, but of
another descriptor, to the same template, its mention rewritten: what is biased for one is the next one's change. So
chosen and rejected responses are of the same styles and fit their templates alike, and the model learns to answer
without looking at the descriptor, and nothing else. Pairs of a `no_bias` and a `bias` response, as one would think of
first, teach it to avoid all styles that are ever biased.
"""

import numpy as np
import pandas as pd
from datasets import Dataset

from evenhand.evaluation.results import DESCRIPTOR, RESPONSE, TEMPLATE
from evenhand.mitigation.labelling.labelled_responses import (
    ContextRenderer,
    check_labelled,
    exchange_responses,
    no_bias_mask,
    render_untagged_contexts,
)

TRAINER, INFERENCE_TAG, TAGS, THRESHOLD_PLAN_APPLIES = "dpo", "", (), False
DEFAULTS = {"learning_rate": 1e-3, "batch_size": 32, "max_rows": 3000, "preference_beta": 0.5}


def rows(labelled: pd.DataFrame, render: ContextRenderer, seed: int = 0) -> Dataset:
    """Return one row per pair: `prompt` and `context`, `chosen` and `rejected`; partners are drawn by `seed`.

    Args:
        labelled: columns prompt_id, text, persona, response, label, template and descriptor.

    Raises:
        InputError: see `evenhand.mitigation.labelling.labelled_responses.check_labelled` and `exchange_responses`.
    """
    check_labelled(labelled, TEMPLATE, DESCRIPTOR)
    biased, answers = exchange_responses(labelled[~no_bias_mask(labelled)], np.random.default_rng(seed))
    contexts = render_untagged_contexts(biased, render)
    return Dataset.from_dict(
        {"prompt": contexts, "chosen": answers, "rejected": biased[RESPONSE].tolist(), "context": contexts}
    )
