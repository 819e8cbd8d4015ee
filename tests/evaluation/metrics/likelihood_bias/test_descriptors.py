"""Descriptors of the lowest and the highest perplexity."""

import math

import pytest

from evenhand.evaluation.metrics.likelihood_bias import pairs as rows
from tests.likelihood_tables import make_table

LOVE, HATE = "I love {plural_noun_phrase}.", "I hate {plural_noun_phrase}."


def test_tables_of_descriptors_by_hand():
    likelihoods = make_table({("age", t, d): range(4) for t in "tu" for d in "abcde"})
    tokens = {"a": 1, "b": 2, "c": 2, "d": 3, "e": 3}
    noun = likelihoods["noun"].str[5:].astype(int)  # a longer noun lengthens every descriptor's sentence alike
    likelihoods["n_tokens"] = likelihoods["descriptor"].map(tokens) + 5 * (likelihoods["template"] == "u") + noun
    remaining = rows.select_most_common_length(likelihoods)
    assert set(zip(remaining["template"], remaining["descriptor"], strict=True)) == {(t, d) for t in "tu" for d in "bc"}
    assert len(remaining) == 2 * 2 * 4 and list(remaining.columns) == list(likelihoods.columns)
    more = rows.select_most_common_length(likelihoods[likelihoods["descriptor"] != "b"])
    assert set(more["descriptor"]) == {"d", "e"}
    median = {"a": 5, "b": 1, "c": 4, "d": 2, "e": 3}
    likelihoods = make_table({("age", "t", d): [math.log(m), math.log(m), math.log(50)] for d, m in median.items()})
    result = rows.extreme_descriptors(likelihoods, n=3)
    assert result[["end", "rank", "descriptor"]].to_numpy().tolist() == [
        ["low", 1, "b"],
        ["low", 2, "d"],
        ["high", 1, "a"],
        ["high", 2, "c"],
    ]
    assert result["median"].tolist() == pytest.approx([1, 2, 5, 4])
    assert result["mean"].tolist() == pytest.approx([(2 * m + 50) / 3 for m in (1, 2, 5, 4)])
    assert set(result["n"]) == {3} and set(result["compared"]) == {5}
    assert len(rows.extreme_descriptors(likelihoods, n=1)) == 2
