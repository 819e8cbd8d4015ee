"""The change of each style's variance and mean, by hand (Smith et al. 2022, Table 15)."""

import numpy as np
import pandas as pd
import pytest

from evenhand.evaluation.metrics.generation_bias.answers import Answers
from evenhand.evaluation.metrics.generation_bias.engine.spread import generation_bias
from evenhand.evaluation.metrics.generation_bias.parts.style_changes import style_changes
from evenhand.evaluation.score import find_score

STYLES = ["kind", "curt", "calm"]
PROMPTS = pd.DataFrame({"template": ["t", "t", "u", "u"], "descriptor": ["old", "young"] * 2})


def responses(*vectors):
    return Answers(PROMPTS, np.array(vectors, dtype=np.float64), STYLES)


BEFORE = responses([1, 0, 0], [0, 1, 0], [1, 0, 0], [0, 0, 1])
AFTER = responses([0.5, 0.5, 0], [0.5, 0.5, 0], [0.5, 0, 0.5], [0.5, 0, 0.5])


def test_variances_means_and_descriptors_by_hand():
    """Before, kind differs by 1 in both templates (variance ¼); curt in t and calm in u alone (mean of ¼ and 0)."""
    table = style_changes(BEFORE, AFTER).set_index("style")
    assert table["variance"].to_dict() == pytest.approx({"kind": 0.25, "curt": 0.125, "calm": 0.125})
    assert table["variance_change"].to_dict() == pytest.approx({"kind": -0.25, "curt": -0.125, "calm": -0.125})
    # Over descriptors: kind is 1 for the old and 0 for the young, curt and calm 0 and ½.
    assert table["mean"].to_dict() == pytest.approx({"kind": 0.5, "curt": 0.25, "calm": 0.25})
    assert table["mean_change"].to_dict() == pytest.approx({"kind": 0, "curt": 0, "calm": 0})
    assert table.loc["kind", ["decreased", "increased"]].tolist() == ["old", "young"]
    assert table.loc["curt", ["decreased", "increased"]].tolist() == ["young", "old"]
    assert table.index[0] == "kind"  # the largest decrease of the variance is first


def test_the_variances_are_each_styles_part_of_fgb_and_the_reverse_has_opposite_signs():
    table = style_changes(BEFORE, AFTER).set_index("style")
    assert table["variance"].sum() == pytest.approx(
        find_score(generation_bias(BEFORE, {}, permutations=0), "fgb").value
    )
    reverse = style_changes(AFTER, BEFORE).set_index("style")
    assert reverse["variance_change"].to_dict() == pytest.approx((-table["variance_change"]).to_dict())
    assert reverse["increased"].to_dict() == table["decreased"].to_dict()


def test_prompts_with_an_empty_response_are_left_out():
    after = responses([0.5, 0.5, 0], [0.5, 0.5, 0], [np.nan] * 3, [0.5, 0, 0.5])
    table = style_changes(BEFORE, after).set_index("style")
    assert table["variance"].to_dict() == pytest.approx({"kind": 0.25, "curt": 0.25, "calm": 0})  # template t alone
