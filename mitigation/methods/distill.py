"""Fine-tune on the base's mean prediction for different people.

A row has a response, its prompt, and prompts that differ in the descriptor only (`several_people`). The base model
predicts each token of the response after each of these prompts. After the response's own prompt and one of the others,
the tuned model learns to predict the mean of these predictions for the first tokens (`first_tokens`), which decide the
language and a part of the style, and the base's own prediction for the rest, which answers the person. A row of
`exchange` is one random token at each position, and a row of `distill` is a whole distribution, so fewer rows suffice.
Labels are not used.

Sources: Hinton, Vinyals and Dean 2015, "Distilling the Knowledge in a Neural Network" (soft targets); Garg et al. 2019,
"Counterfactual Fairness in Text Classification through Robustness" (equal outputs for prompts that differ in a group).
"""

import pandas as pd
from datasets import Dataset

from evenhand.evaluation.data.other_people import prompts_of_others, several_people
from evenhand.evaluation.errors import InputError
from evenhand.evaluation.score import PERSONA, TEMPLATE, TEXT
from evenhand.mitigation.labelled_responses import ContextRenderer, untagged_rows
from evenhand.mitigation.methods import Method

N_OTHERS = 7  # the own prompt is one of eight: with eight or more descriptors, an eighth of its effect is in the mean


class Distill(Method):
    """Trains on rows with the columns `prompt`, `context`, `completion` and `others` (a list of N_OTHERS prompts).

    There is one row for each labelled response, except responses to a template that has only one descriptor.
    """

    trainer = "distill"
    uses_threshold = False
    # More of them make answers refer less to what people say about themselves.
    defaults = {"learning_rate": 4e-3, "batch_size": 2, "max_rows": 560, "first_tokens": 4}
    large_model_learning_rate = 3e-4  # 1e-3 changes the later tokens, too, and ends at a higher validation loss

    def rows(self, labelled: pd.DataFrame, render: ContextRenderer) -> Dataset:
        others = several_people(labelled, N_OTHERS, self.seed)
        kept = others[:, 0] >= 0
        if not kept.any():
            raise InputError("labelled responses", f"no {TEMPLATE} has two descriptors; label more descriptors.")
        asked = labelled[kept].loc[lambda it: it.index.repeat(N_OTHERS)]
        prompts = prompts_of_others(asked, labelled.iloc[others[kept].ravel()])[[TEXT, PERSONA]]
        different = prompts.drop_duplicates()
        different = different.assign(context=render(different[TEXT].tolist(), different[PERSONA].tolist(), ""))
        contexts = prompts.merge(different, how="left", on=[TEXT, PERSONA])["context"].to_numpy(dtype=object)
        return untagged_rows(labelled[kept], render).add_column("others", contexts.reshape(-1, N_OTHERS).tolist())
