"""DPO (Rafailov et al. 2023, "Direct Preference Optimization"): pairs of a `no_bias` and a `bias` response.

Every response labelled `bias` is the rejected one of a pair. The chosen one is a `no_bias` response to the very same
context where there is one; else one to the same template and noun with another descriptor, whose mention is
rewritten. A biased response without either is left out.
"""

import numpy as np
import pandas as pd
from datasets import Dataset

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.results import DESCRIPTOR, NOUN, RESPONSE, TEMPLATE
from evenhand.mitigation.labelling.labelled import (
    Render,
    answers_as_if_to,
    check_labelled,
    drawn_from_groups,
    unbiased,
    untagged_contexts,
)

TRAINER, INFERENCE_TAG, TAGS = "dpo", "", ()
DEFAULTS = {"learning_rate": 1.5e-3, "batch_size": 32, "max_rows": 2000, "preference_beta": 0.5}


def rows(labelled: pd.DataFrame, render: Render, seed: int = 0) -> Dataset:
    """Return one row per pair: `prompt` and `context`, `chosen` and `rejected`; partners are drawn by `seed`.

    Args:
        labelled: columns prompt_id, text, persona, response, label, template, noun and descriptor.

    Raises:
        InputError: see `evenhand.mitigation.labelling.labelled.check_labelled`; there is no pair.
    """
    check_labelled(labelled, TEMPLATE, NOUN, DESCRIPTOR)
    rng = np.random.default_rng(seed)
    labelled = labelled.assign(context=untagged_contexts(labelled, render)).reset_index(drop=True)
    chosen_of = unbiased(labelled)
    biased, offered = labelled[~chosen_of], labelled[chosen_of]
    contexts = biased["context"], offered["context"]
    templates_and_nouns = tuple(side[TEMPLATE] + "\n" + side[NOUN] for side in (biased, offered))
    partner = np.full(len(biased), -1)
    for keys in (contexts, templates_and_nouns):
        partner = np.where(partner < 0, drawn_from_groups(*keys, rng), partner)
    biased, donors = biased[partner >= 0], offered.iloc[partner[partner >= 0]]
    if biased.empty:
        raise InputError(
            "labelled responses: no `bias` response has a `no_bias` one to the same context, or to the same template "
            "and noun; sample more responses, or move the threshold."
        )
    return Dataset.from_dict(
        {
            "prompt": biased["context"].tolist(),
            "chosen": answers_as_if_to(donors, biased[DESCRIPTOR].tolist()),
            "rejected": biased[RESPONSE].tolist(),
            "context": biased["context"].tolist(),
        }
    )
