"""Fine-tune with the label at the end of the context (Smith et al. 2022).

Source: Smith et al. 2022, §4.2 and C.1. Each labelled response is a row: the context with " bias" or " no_bias" at its
end, and the response. With " no_bias" at the end of a context, a model tuned on such rows gives less biased responses.
Without a tag, the model may be more biased than the original, because training had no such context. As in `rejection`,
the mean style drifts towards the style of the responses labelled `no_bias`.
"""

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from evenhand.evaluation.score import LABEL, PERSONA, TEXT
from evenhand.mitigation.labelled_responses import ContextRenderer, untagged_rows
from evenhand.mitigation.labels import BIAS, NO_BIAS
from evenhand.mitigation.methods import TrainedMethod

if TYPE_CHECKING:  # slow to import
    from datasets import Dataset

BIAS_TAG = f" {BIAS}"
NO_BIAS_TAG = f" {NO_BIAS}"
TAGS = {BIAS: BIAS_TAG, NO_BIAS: NO_BIAS_TAG}


class ControlTags(TrainedMethod):
    """Trains on the labelled responses, in the same order, with the tag of the label at the end of `prompt`."""

    control_tag = NO_BIAS_TAG
    tags = tuple(TAGS.values())
    defaults = {"learning_rate": 4e-3, "epochs": 2}

    def rows(self, labelled: pd.DataFrame, render: ContextRenderer) -> "Dataset":
        contexts = np.full(len(labelled), "", dtype=object)
        for label, tag in TAGS.items():
            has_label = (labelled[LABEL] == label).to_numpy()
            rows = labelled[has_label]
            contexts[has_label] = render(rows[TEXT].tolist(), rows[PERSONA].tolist(), tag)
        return untagged_rows(labelled, render, contexts.tolist())
