"""Fine-tune on responses that are exchanged between descriptors.

The response of each row is sampled from the responses to the same template and noun (if it has none, to another noun)
and another descriptor; mentions of that descriptor are rewritten. The sampled style does not depend on the row's
descriptor, so the model cannot learn such a dependence. A chat model may also lose relevance, because it is trained on
responses to other people: compare `relevance_kept`, and see `half_exchange`. Labels are not used: training on `no_bias`
responses only would make the styles that are often biased rarer. The method is Evenhand's;
counterfactual data augmentation (Lu et al. 2018, "Gender Bias in Neural Natural Language Processing") exchanges words
instead of responses.
"""

import pandas as pd
from datasets import Dataset

from evenhand.mitigation.labelling.labelled_responses import ContextRenderer, exchange_responses, untagged_rows
from evenhand.mitigation.methods import Method


class Exchange(Method):
    """Fine-tune on responses that are exchanged between descriptors."""

    trainer = "sft"
    uses_threshold = False
    defaults = {"learning_rate": 4e-3}

    def rows(self, labelled: pd.DataFrame, render: ContextRenderer, seed: int = 0) -> Dataset:
        """Return a training row per prompt: `prompt`, `context`, and `completion`, a response sampled by `seed`.

        Args:
            labelled: columns prompt_id, text, persona, response, label, template and descriptor.

        Raises:
            InputError: see `evenhand.mitigation.labelling.labelled_responses.exchange_responses`.
        """
        return untagged_rows(exchange_responses(labelled, seed)[1], render)
