"""The even target leaves an accepted difference alone, and removes the rest."""

import numpy as np
import pandas as pd
import pytest

from evenhand.evaluation.metrics.generation_bias.styled_responses import without_accepted
from evenhand.mitigation.target import fit_target, log_weights
from tests.evaluation.metrics.generation_bias.test_accepted import planted


def test_the_even_target_keeps_what_is_accepted_and_removes_the_rest():
    """Disabled people are told "sorry" in half of the responses, which is accepted; tall people get half of "sad"."""
    responses = planted()
    accepted = pd.DataFrame({"kind": ["axis"], "unit": ["ability"], "styles": [["sad", "sorry"]]})

    def share(person, style, weights):
        own = (responses.table["descriptor"] == person).to_numpy()
        return np.average(responses.vectors[own, style], weights=weights[own])

    whole, rest = (np.exp(log_weights(fit_target(it), it)) for it in (responses, without_accepted(responses, accepted)))
    equal = np.ones(len(responses))
    assert share("deaf", 1, rest) == pytest.approx(share("deaf", 1, equal), abs=0.06)
    assert share("deaf", 1, whole) < share("deaf", 1, equal) - 0.15
    assert share("tall", 0, rest) < share("tall", 0, equal) - 0.15
