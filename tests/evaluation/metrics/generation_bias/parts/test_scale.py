"""Scales of generation bias: the square root of pooled FGB* and what it means, and the grammar's own shares."""

import math

import numpy as np
import pandas as pd
import pytest

from evenhand.evaluation.metrics.generation_bias.answers import Answers
from evenhand.evaluation.metrics.generation_bias.engine.spread import generation_bias
from evenhand.evaluation.metrics.generation_bias.parts.spread import person_scores, scale_scores
from evenhand.evaluation.score import find_score
from tests.measured_runs import styled_columns
from tools.testbed import grammar
from tools.testbed.corpus import all_prompts


def test_moved_answers_is_the_share_of_responses_that_move_from_one_style_to_another():
    """Descriptor a has styles 50:50, b 70:30, 10 responses each: each is 10 % of its responses from their mean.

    Two descriptors at distance √2 · 0.1 from the mean have θ = 2 · 0.02 / (2 − 1) before noise is subtracted.
    """
    vectors = np.eye(2)[[0] * 5 + [1] * 5 + [0] * 7 + [1] * 3]
    responses = styled_columns(vectors, ["t"] * 20, ["a"] * 10 + ["b"] * 10, ["x"] * 20, ["s", "r"])
    scores = scale_scores(responses)
    pooled = find_score(generation_bias(responses, {}, permutations=0), "fgb", "pooled_corrected")
    noise = 2 * (0.5 * 0.5 + 0.7 * 0.3) / 2 / 9
    assert pooled.value == pytest.approx(0.04 - noise)
    assert find_score(scores, "style_shift").value == 0 and pooled.value < 0  # less than noise: no shift
    assert find_score(scores, "moved_answers").interval == (0.0, pytest.approx(math.sqrt(pooled.interval[1] / 2)))
    share = find_score(scores, "variance_share", source="template")
    assert math.isnan(share.value) and "one template" in share.reason
    assert find_score(scores, "fgb", "pooled_corrected", "detectable").value > math.sqrt(noise**2 / 9)


def test_the_shares_of_the_grammar_are_found():
    rng = np.random.default_rng(1)
    prompts = all_prompts()[["template", "descriptor", "axis"]].drop_duplicates(["template", "descriptor"])
    prompts = prompts[prompts["descriptor"].isin(rng.choice(prompts["descriptor"].unique(), 40, replace=False))]
    p = grammar.style_distribution(prompts["template"], prompts["descriptor"])
    cells = prompts.assign(row=range(len(prompts))).pivot(index="template", columns="descriptor", values="row")
    p = p[cells.to_numpy()]  # (T, D, S)
    descriptor = p.mean(axis=0).var(axis=0, ddof=1).sum()
    truth = {
        "template": p.mean(axis=1).var(axis=0, ddof=1).sum(),
        "descriptor": descriptor,
        "interaction": p.var(axis=1, ddof=1).sum(axis=1).mean() - descriptor,
        "chance": (1 - (p**2).sum(axis=2)).mean(),
    }
    template, of = (index.ravel().repeat(4) for index in np.indices(p.shape[:2]))
    vectors = np.eye(p.shape[2])[grammar.sample_columns(p[template, of], rng)]
    responses = styled_columns(vectors, list(template), list(of), ["x"] * len(of), list(grammar.styles()))
    scores = scale_scores(responses)
    for source, value in truth.items():
        low, high = find_score(scores, "variance_share", source=source).interval
        assert low <= value / sum(truth.values()) <= high and high - low < 0.05, source
    assert find_score(scores, "style_shift").value == pytest.approx(math.sqrt(descriptor), rel=0.1)


def test_an_axis_of_one_bucket_is_no_part_of_person_and_word():
    """Six buckets of two equal words; and an axis whose only bucket has words for different people."""
    names = [f"{bucket}{word}" for bucket in "abcdef" for word in "xy"] + ["p", "q", "r"]
    descriptor = np.repeat(names, 2)
    is_other = np.isin(descriptor, ["p", "q", "r"])
    bucket, axis = np.where(is_other, "all", [name[0] for name in descriptor]), np.where(is_other, "religion", "age")
    template = np.tile(["t", "u"], len(names))
    table = pd.DataFrame({"template": template, "descriptor": descriptor, "axis": axis, "bucket": bucket})
    style = np.where(is_other, [ord(name[0]) % 3 for name in descriptor], [ord(name[0]) % 2 for name in descriptor])
    scores = person_scores(Answers(table, np.eye(3)[style], ["x", "y", "z"]))
    person, word = scores[:2]
    assert (person.n, person.n_left_out, word.value) == (24, 6, pytest.approx(0))
    assert person.value == pytest.approx(9 * 2 / 30)  # ½ · 2 for the 9 pairs of buckets of 15 that differ
    age, religion = (find_score(scores, "fgb", "person", axis=name) for name in ("age", "religion"))
    assert age.value == person.value and math.isnan(religion.value)
    assert (religion.n, religion.n_left_out) == (0, 6) and "buckets" in religion.reason
    of_one = person_scores(Answers(table.assign(axis="age"), np.eye(3)[style], ["x", "y", "z"]).rows(is_other))
    assert [math.isnan(it.value) and bool(it.reason) for it in of_one] == [True, True]


def test_an_axis_of_one_descriptor_has_scores_with_a_reason():
    rng = np.random.default_rng(0)
    names = np.repeat(["a", "b", "c"], 20)
    responses = styled_columns(
        np.eye(2)[rng.integers(0, 2, 60)], ["t"] * 60, names, ["x"] * 40 + ["y"] * 20, ["s", "r"]
    )
    of_axis = [it for it in generation_bias(responses, {}, permutations=0) if it.group == {"axis": "y"}]
    assert len(of_axis) == 3 and all(math.isnan(it.value) and it.reason for it in of_axis)
