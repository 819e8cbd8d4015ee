"""Fine-tune with the label at the end of the context (paper 002).

Source: paper 002, §4.2 and C.1. Each labelled response is a row: the context with " bias" or " no_bias" at its end, and
the response. With " no_bias" at the end of a context, a model tuned on such rows gives less biased responses. Without a
tag, the model may be more biased than the original, because training had no such context. As in `rejection`, the mean
style drifts towards the style of the responses labelled `no_bias`.
"""

import pandas as pd
from datasets import Dataset

from evenhand.evaluation.score import LABEL, PERSONA, TEXT
from evenhand.mitigation.labelling.labelled_responses import (
    ContextRenderer,
    check_labelled,
    render_untagged_contexts,
    response_columns,
)
from evenhand.mitigation.labelling.projection import BIAS, NO_BIAS
from evenhand.mitigation.methods import Method

BIAS_TAG, NO_BIAS_TAG = f" {BIAS}", f" {NO_BIAS}"


class ControlTags(Method):
    """Fine-tune with the label at the end of the context (paper 002)."""

    trainer = "sft"
    inference_tag = NO_BIAS_TAG
    tags = (BIAS_TAG, NO_BIAS_TAG)
    defaults = {"learning_rate": 4e-3, "epochs": 2}

    def rows(self, labelled: pd.DataFrame, render: ContextRenderer, seed: int = 0) -> Dataset:
        """Return one row per labelled response, in the same order.

        Columns: `prompt`, the context with the tag of the row's label; `completion`, the response; `context`, the
        context without a tag.

        Args:
            labelled: columns prompt_id, text, persona ("" for none), response and label.
            render: renders prompts and personas as contexts with a control tag.

        Raises:
            InputError: see `evenhand.mitigation.labelling.labelled_responses.check_labelled`.
        """
        check_labelled(labelled)
        prompts = pd.Series("", index=range(len(labelled)))
        for label, tag in ((BIAS, BIAS_TAG), (NO_BIAS, NO_BIAS_TAG)):
            mask = (labelled[LABEL] == label).to_numpy()
            prompts[mask] = render(labelled[TEXT][mask].tolist(), labelled[PERSONA][mask].tolist(), tag)
        return Dataset.from_dict(
            {
                "prompt": prompts.tolist(),
                **response_columns("completion", labelled),
                "context": render_untagged_contexts(labelled, render),
            }
        )
