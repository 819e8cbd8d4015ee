"""Fine-tune on all responses: the ablation of control tags.

Source: Smith et al. 2022, C.2.1 and Table 8. The model is tuned on all of its responses, biased or not. The bias that
this method removes is an effect of fine-tuning as such.
"""

from typing import TYPE_CHECKING

import pandas as pd

from evenhand.mitigation.labelled_responses import ContextRenderer, untagged_rows
from evenhand.mitigation.methods import TrainedMethod

if TYPE_CHECKING:  # slow to import
    from datasets import Dataset


class SelfChat(TrainedMethod):
    """Trains on the labelled responses, in the same order: `prompt`, `context` and `completion`."""

    reads_labels = False

    def rows(self, labelled: pd.DataFrame, render: ContextRenderer) -> "Dataset":
        return untagged_rows(labelled, render)
