"""Fine-tune on the base's mean prediction for different people.

A row has a response, its prompt, and prompts that differ in the descriptor only (`other_people`). The base model
predicts each token of the response after each of these prompts. The tuned model learns to predict the mean of these
predictions after every prompt. It thereby learns to ignore the descriptor, as with `exchange`. But a row of `exchange`
is one random token at each position, and a row of `distill` is a whole distribution, so fewer rows suffice. Labels are
not used.

Sources: Hinton, Vinyals and Dean 2015, "Distilling the Knowledge in a Neural Network" (soft targets); Garg et al. 2019,
"Counterfactual Fairness in Text Classification through Robustness" (equal outputs for prompts that differ in a group).
"""

import pandas as pd
from datasets import Dataset

from evenhand.evaluation.datasets.other_people import other_people
from evenhand.evaluation.errors import InputError
from evenhand.evaluation.results import DESCRIPTOR, TEMPLATE
from evenhand.mitigation.labelling.labelled_responses import ContextRenderer, check_labelled, untagged_rows

TRAINER = "distill"
USES_THRESHOLD = False
N_OTHERS = 7  # the own prompt is one of eight: an eighth of the descriptor's effect is in the mean
DEFAULTS = {"learning_rate": 4e-3, "batch_size": 2, "max_rows": 300}
LARGE_MODEL_LEARNING_RATE = 1e-3  # of all results on a real model (docs/results.md)
ROW_COST = 4 / 3 * (1 + N_OTHERS)  # a forward pass of the base in addition to a forward and a backward pass


def rows(labelled: pd.DataFrame, render: ContextRenderer, seed: int = 0) -> Dataset:
    """Return rows with the columns `prompt`, `context`, `completion` and `others` (a list of N_OTHERS prompts).

    There is one row for each labelled response, except responses to a template that has only one descriptor.

    Args:
        labelled: columns prompt_id, text, persona, response, label, template, descriptor and, if there are nouns, noun.

    Raises:
        InputError: see `evenhand.mitigation.labelling.labelled_responses.check_labelled`; no template has two
            descriptors.
    """
    check_labelled(labelled, TEMPLATE, DESCRIPTOR)
    others = [other_people(labelled, seed * N_OTHERS + n) for n in range(N_OTHERS)]
    kept = others[0] >= 0
    if not kept.any():
        raise InputError(f"labelled responses: no {TEMPLATE} has two descriptors; label responses to more descriptors.")
    table = untagged_rows(labelled, render)
    prompts = table["prompt"]
    table = table.add_column("others", [[prompts[other] for other in row] for row in zip(*others, strict=True)])
    return table.select(kept.nonzero()[0])
