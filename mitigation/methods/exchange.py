"""Fine-tune on responses that are exchanged between descriptors.

The response of each row is sampled from the responses to the same template and noun (if it has none, to another noun)
and another descriptor; mentions of that descriptor are rewritten. The sampled style does not depend on the row's
descriptor, so the model cannot learn such a dependence. A chat model may also lose relevance, because it is trained on
responses to other people: compare `relevance_kept`. Labels are not used: training on `no_bias`
responses only would make the styles that are often biased rarer. The method is Evenhand's;
counterfactual data augmentation (Lu et al. 2018, "Gender Bias in Neural Natural Language Processing") exchanges words
instead of responses.
"""

from typing import TYPE_CHECKING

import pandas as pd

from evenhand.mitigation.labelled_responses import ContextRenderer, exchange_responses, untagged_rows
from evenhand.mitigation.methods import TrainedMethod

if TYPE_CHECKING:  # slow to import
    from datasets import Dataset


class Exchange(TrainedMethod):
    """Trains on a row for each prompt: `prompt`, `context`, and `completion`, a response to another descriptor."""

    reads_labels = False

    def rows(self, labelled: pd.DataFrame, render: ContextRenderer) -> "Dataset":
        return untagged_rows(exchange_responses(labelled, self.seed), render)
