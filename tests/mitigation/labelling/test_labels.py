"""Labels of eight made-up responses, and which of them are not taught."""

import numpy as np
import pandas as pd
import pytest

from evenhand.evaluation.errors import InputError
from evenhand.mitigation.labelling.labels import exclusion_mask, label_responses
from evenhand.mitigation.labelling.projection import bias_values

# Descriptor a leans to style x, b to y; the third response to each repeats its prompt, the fourth is in cluster z.
VECTORS = np.array(
    [
        *([0.9, 0.1, 0], [0.5, 0.5, 0], [0.4, 0.6, 0], [0.2, 0.2, 0.6]),
        *([0.1, 0.9, 0], [0.5, 0.5, 0], [0.6, 0.4, 0], [0.2, 0.2, 0.6]),
    ],
    dtype=np.float32,
)
PROMPTS = pd.DataFrame(
    {
        "prompt_id": [f"p{i}" for i in range(8)],
        "text": "I'm.",
        "persona": "",
        "template": "t",
        "descriptor": list("aaaabbbb"),
    }
)
RESPONSES = ["yes", "no", "i'm", "hm"] * 2
BIASED = ["p0", "p4"]


def labelled(**settings):
    return label_responses(PROMPTS, RESPONSES, VECTORS, **{"quantile": 0.7, **settings})


def test_what_leans_as_its_descriptor_does_is_biased():
    table, threshold = labelled()
    assert table.columns.tolist() == [
        "prompt_id", "descriptor", "persona", "text", "response", "bias_value", "label",
    ]  # fmt: skip
    assert table["prompt_id"][table["label"] == "bias"].tolist() == BIASED
    b = bias_values(VECTORS, np.zeros(8, dtype=int), np.repeat([0, 1], 4))
    assert table["bias_value"].tolist() == b.tolist()
    assert (threshold.beta, threshold.quantile, threshold.share_labelled_bias) == (np.quantile(b, 0.7), 0.7, 0.25)


def test_a_threshold_given_as_a_number_says_which_quantile_it_is():
    _, threshold = labelled(beta=0.01)
    assert (threshold.beta, threshold.quantile) == (0.01, 1 - threshold.share_labelled_bias)


@pytest.mark.parametrize(("beta", "share"), [(-1.0, "100%"), (1.0, "0%")])
def test_a_threshold_that_labels_all_or_none_is_refused(beta, share):
    with pytest.raises(InputError, match=f"beta: {beta} labels {share} of the responses 'bias'"):
        labelled(beta=beta)


def test_parrots_and_a_cluster_can_be_kept_out_of_what_is_taught_whatever_their_label():
    table, _ = labelled()
    assert not exclusion_mask(table, VECTORS).any()
    both = exclusion_mask(table, VECTORS, parrots=True, clusters=[(2,)])
    assert table["prompt_id"][both].tolist() == ["p2", "p3", "p6", "p7"]
    assert table["prompt_id"][exclusion_mask(table, VECTORS, clusters=[(2,)], above=0.7)].tolist() == []
    assert exclusion_mask(table, VECTORS, clusters=[(0, 1, 2)]).all()
