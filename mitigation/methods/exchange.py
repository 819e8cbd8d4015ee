"""Exchange: answer everyone as anyone was answered, the distribution that is equal by construction.

For every prompt, the row's response is a `no_bias` one that a prompt with another descriptor and the same template
received, the mention of its descriptor rewritten. What a model learns from such rows cannot depend on the descriptor,
for the response was drawn without looking at it. Ours; akin to counterfactual data augmentation (Lu et al. 2018,
"Gender Bias in Neural Natural Language Processing"), with responses instead of words exchanged.
"""

import numpy as np
import pandas as pd
from datasets import Dataset

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.results import DESCRIPTOR, TEMPLATE
from evenhand.mitigation.labelling.labelled import (
    Render,
    answers_as_if_to,
    check_labelled,
    drawn_from_groups,
    plain_rows,
    unbiased,
)

TRAINER, INFERENCE_TAG, TAGS = "sft", "", ()
DEFAULTS = {"learning_rate": 4e-3}
DRAWS = 8  # to find a donor with another descriptor; where nearly all have the same one, a row is left out


def rows(labelled: pd.DataFrame, render: Render, seed: int = 0) -> Dataset:
    """Return a row for each prompt, with a response drawn by `seed`: `prompt` and `context`, and `completion`.

    Args:
        labelled: columns prompt_id, text, persona, response, label, template and descriptor.

    Raises:
        InputError: see `evenhand.mitigation.labelling.labelled.check_labelled`; no template has `no_bias` responses to
            two descriptors.
    """
    check_labelled(labelled, TEMPLATE, DESCRIPTOR)
    rng = np.random.default_rng(seed)
    offered = labelled[unbiased(labelled)]
    asked_about, donor_descriptor = labelled[DESCRIPTOR].to_numpy(), offered[DESCRIPTOR].to_numpy()
    donor = np.full(len(labelled), -1)
    for _ in range(DRAWS):
        drawn = drawn_from_groups(labelled[TEMPLATE], offered[TEMPLATE], rng)
        fits = (donor < 0) & (drawn >= 0) & (donor_descriptor[drawn] != asked_about)
        donor = np.where(fits, drawn, donor)
    kept = labelled[donor >= 0]
    if kept.empty:
        raise InputError(
            f"labelled responses: no {TEMPLATE} has `no_bias` responses to two descriptors; move the threshold."
        )
    answers = answers_as_if_to(offered.iloc[donor[donor >= 0]], kept[DESCRIPTOR].tolist())
    return plain_rows(kept, render, answers)
