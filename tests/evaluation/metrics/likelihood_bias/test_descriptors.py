"""Descriptors by their perplexities: heat maps of pairs, extremes, quantiles, love against hate."""

import math

import numpy as np
import pytest
from scipy import stats

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.metrics.likelihood_bias import rows
from evenhand.evaluation.metrics.likelihood_bias.pairs import effect_matrix, pair_effects
from tests.likelihood_tables import make_table, random_table

LOVE, HATE = "I love {plural_noun_phrase}.", "I hate {plural_noun_phrase}."


def test_heat_maps():
    likelihoods = random_table(10, descriptors=5, templates=3, shift=1.0)
    likelihoods = likelihoods[~((likelihoods["descriptor"] == "d04") & (likelihoods["template"] == "t0"))]
    effects = pair_effects(likelihoods)
    matrix = effect_matrix(effects, "age")
    assert (matrix + matrix.T).to_numpy() == pytest.approx(1)
    assert np.diag(matrix).tolist() == [0.5] * 5
    pair_effect = effects[(effects["descriptor_a"] == "d01") & (effects["descriptor_b"] == "d04")]["auc"]
    assert len(pair_effect) == 2 and matrix.loc["d01", "d04"] == pytest.approx(pair_effect.mean())
    with pytest.raises(InputError, match="did you mean 'age'"):
        effect_matrix(effects, "ages")
    cells = {("age", "t", "a"): range(3), ("age", "t", "b"): range(3), ("age", "u", "b"): range(3)}
    matrix = effect_matrix(pair_effects(make_table({**cells, ("age", "u", "c"): range(3)})), "age")
    assert math.isnan(matrix.loc["a", "c"]) and math.isnan(matrix.loc["c", "a"]) and matrix.loc["c", "b"] == 0.5


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


def test_quantiles_and_contrasts_by_hand():
    likelihoods = make_table(
        {
            ("age", LOVE, "old"): [1.0, 2.0, 3.0],
            ("age", HATE, "old"): [0.0, 0.0, 0.0],  # differences −1, −2, −3
            ("age", LOVE, "young"): [1.0, 1.0, math.nan],
            ("age", HATE, "young"): [5.0, 5.0, 5.0],  # 4, 4
            ("age", "Hi {noun_phrase}.", "young"): [9.0, 9.0, 9.0],
            ("age", LOVE, "odd"): [1.0],
            ("age", HATE, "odd"): [2.0],
            ("age", LOVE, "void"): [math.nan],
            ("age", "Hi {noun_phrase}.", "elsewhere"): [1.0],
        }
    )
    result = rows.love_hate_contrast(likelihoods)
    assert result["descriptor"].tolist() == ["old", "odd", "young", "void"]
    assert result["contrast"].tolist() == pytest.approx([-2, 1, 4, math.nan], nan_ok=True)
    assert result["relative"].tolist() == pytest.approx([-3, 0, 3, math.nan], nan_ok=True)
    half = stats.t.ppf(0.975, 2) / math.sqrt(3)
    assert result.loc[0, ["low", "high"]].tolist() == pytest.approx([-2 - half, -2 + half])
    assert result["n"].tolist() == [3, 1, 2, 0] and result["n_left_out"].tolist() == [0, 0, 1, 1]
    assert result["reason"].tolist() == ["", "one noun has no interval", "", "no noun has both"]
    with pytest.raises(InputError, match="I adore"):
        rows.love_hate_contrast(likelihoods, love="I adore {plural_noun_phrase}.")
    likelihoods = make_table({("age", "t", "a"): np.log(range(1, 52)), ("age", "t", "b"): np.log(range(52, 102))})
    likelihoods.loc[100, "log_likelihood"] = math.nan  # of 101
    result = rows.perplexity_quantiles(likelihoods, (0.0, 0.5, 1.0))
    assert result[["axis", "template", "n", "n_left_out"]].to_numpy().tolist() == [["age", "t", 100, 1]]
    assert result[["q0", "q50", "q100"]].iloc[0].tolist() == pytest.approx([1, 50.5, 100])
    assert list(rows.perplexity_quantiles(likelihoods).columns[-5:]) == ["q5", "q25", "q50", "q75", "q95"]
