"""Likelihood Bias: equal to SciPy pair by pair, the paper's counts, a planted difference and none, what is left out."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from evenhand.evaluation.data.holistic_bias import generate_prompts, load_taxonomy
from evenhand.evaluation.errors import InputError
from evenhand.evaluation.metrics.likelihood_bias.descriptor_pairs import (
    MASKED_VARIANT,
    compare_descriptors,
    compute_surprisals,
    extreme_descriptors,
    select_most_common_length,
    select_scored_prompts,
    sentence_perplexities,
)
from evenhand.evaluation.metrics.likelihood_bias.metric import LEVEL, TESTS, likelihood_bias, likelihood_bias_change
from evenhand.evaluation.score import find_score
from tests.likelihood_tables import make_table, random_table
from tests.named_scores import find_named

V1_0 = Path(__file__).resolve().parents[4].parent / "shared" / "data" / "holistic_bias_v1.0"
needs_v1_0 = pytest.mark.skipif(not V1_0.is_dir(), reason="HolisticBias v1.0 is not in shared/data")


def samples(likelihoods: pd.DataFrame) -> dict[tuple[str, str, str], np.ndarray]:
    defined = likelihoods.assign(ppl=sentence_perplexities(likelihoods)).dropna(subset="ppl")
    return {cell: rows["ppl"].to_numpy() for cell, rows in defined.groupby(["axis", "template", "descriptor"])}


def pair_effects(likelihoods: pd.DataFrame) -> pd.DataFrame:
    columns = ["axis", "template", "descriptor_a", "descriptor_b", "p", "p_paired"]
    pairs = [
        (it.axis, it.template, it.descriptors[first], it.descriptors[second], p, p_paired)
        for it in compare_descriptors(likelihoods)
        for first, second, p, p_paired in zip(it.first, it.second, it.p, it.p_paired, strict=True)
    ]
    return pd.DataFrame(pairs, columns=columns)


def assert_equal_to_scipy(likelihoods: pd.DataFrame) -> None:
    effects, values = pair_effects(likelihoods), samples(likelihoods)
    cells = [[cell for cell in values if cell[:2] == group] for group in {cell[:2] for cell in values}]
    assert len(effects) == sum(math.comb(len(group), 2) for group in cells)
    for row in effects.itertuples():
        x, y = (values[row.axis, row.template, name] for name in (row.descriptor_a, row.descriptor_b))
        assert row.p == pytest.approx(stats.mannwhitneyu(x, y).pvalue, rel=1e-12, abs=0)


def test_p_values_equal_scipys():
    assert_equal_to_scipy(random_table(0, shift=1.0))
    # Up to 8 perplexities without ties have the exact distribution, with ties the normal approximation.
    rng = np.random.default_rng(3)
    sizes = [1, 1, 2, 5, 7, 8, 9, 30]
    assert_equal_to_scipy(make_table({("age", "t", f"d{i}"): rng.normal(size=n) for i, n in enumerate(sizes)}))
    assert_equal_to_scipy(make_table({("age", "t", f"d{i}"): rng.integers(12, size=n) for i, n in enumerate(sizes)}))
    for levels in (1, 2, 40):
        assert_equal_to_scipy(make_table({("age", "t", str(d)): rng.integers(levels, size=30) for d in range(6)}))
    likelihoods = with_nouns(2, strength=1.0, shift=0.5)
    effects = pair_effects(likelihoods[likelihoods["template"] == "t0"])
    cells = likelihoods[likelihoods["template"] == "t0"].groupby("descriptor")["log_likelihood"].agg(np.array)
    for row in effects.sample(50, random_state=0).itertuples():
        expected = stats.wilcoxon(cells[row.descriptor_a] - cells[row.descriptor_b]).pvalue
        assert row.p_paired == pytest.approx(expected, rel=1e-9)


def test_phrases_of_a_masked_model_are_compared_by_their_sums():
    # Each token of b is likelier than each of a, but b has three of them: by sums it is the less likely (B.1).
    phrases = pd.concat(
        [
            make_table({("age", "t", "a"): range(30)}),
            make_table({("age", "t", "b"): range(-3, 27)}, n_tokens=lambda name: 3),
        ]
    )
    phrases["log_likelihood"] -= 40 * phrases["n_tokens"]
    by_token, by_sum = (
        compute_surprisals(rows).groupby("descriptor")["surprisal"]
        for rows in (phrases, phrases.assign(variant=MASKED_VARIANT))
    )
    assert by_token.median()["a"] > by_token.median()["b"] and by_sum.max()["a"] < by_sum.min()["b"]
    assert pair_effects(phrases.assign(variant=MASKED_VARIANT))["p"][0] < 1e-9
    same_sums = phrases.assign(log_likelihood=[*range(30)] * 2, variant=MASKED_VARIANT)
    assert pair_effects(same_sums)["p"][0] == 1
    assert find_score(likelihood_bias(same_sums), "likelihood_bias").value == 0
    assert find_score(likelihood_bias(same_sums), "likelihood_bias_paired").value == 0
    pd.testing.assert_frame_equal(
        pair_effects(phrases.assign(variant="Σ log p of the sentence")), pair_effects(phrases)
    )


def test_the_length_changes_nothing():
    short = random_table(2)
    longer = short.assign(log_likelihood=short["log_likelihood"] * 8, n_tokens=8)
    pd.testing.assert_frame_equal(pair_effects(short), pair_effects(longer))


@needs_v1_0
def test_the_counts_of_the_published_dataset():
    columns = ["axis", "template", "descriptor", "noun", "noun_phrase_type", "descriptor_gender"]
    prompts = select_scored_prompts(generate_prompts(load_taxonomy(V1_0))[columns])
    assert len(prompts) == 462_878
    sizes = prompts.groupby(["axis", "descriptor", "template"]).size()
    assert sizes.value_counts().to_dict() == {30: 26 * 591, 10: 26 * 4, 11: 26 * 3}  # 7 descriptors have a gender
    number = np.random.default_rng(0).normal(size=len(prompts))
    comparisons = list(compare_descriptors(prompts.assign(log_likelihood=number, n_tokens=1)))
    assert sum(len(result.p) for result in comparisons) == 575_718
    for template in prompts["template"].unique():
        assert sum(len(result.p) for result in comparisons if result.template == template) == 22_143


def test_descriptors_with_a_gender_are_compared_over_the_nouns_they_share():
    taxonomy = load_taxonomy("paper")
    prompts = generate_prompts(replace(taxonomy, templates=taxonomy.templates[:1]))
    scored = select_scored_prompts(prompts)
    assert set(scored["noun_phrase_type"]) == {"descriptor_noun", "noun_descriptor"}
    rows = scored[scored["descriptor"].isin(["Filipina", "Filipino", "Korean"])]
    table = rows.assign(log_likelihood=-np.random.default_rng(0).random(len(rows)), n_tokens=1)
    assert_equal_to_scipy(table)
    effects = pair_effects(table).set_index(["descriptor_a", "descriptor_b"])["p_paired"]
    assert math.isnan(effects["Filipina", "Filipino"])  # women and men: no noun in common
    common = table.pivot(index="noun", columns="descriptor", values="log_likelihood").dropna(subset="Filipina")
    assert len(common) == 10
    expected = stats.wilcoxon(common["Filipina"] - common["Korean"]).pvalue
    assert effects["Filipina", "Korean"] == pytest.approx(expected)
    assert find_score(likelihood_bias(table), "likelihood_bias_paired").n_left_out == 1
    with pytest.raises(InputError, match="^prompts: "):
        select_scored_prompts(prompts[prompts["noun_phrase_type"] == "noun"])


def test_shares_and_their_jackknife_by_hand():
    low, high = list(range(30)), list(range(100, 130))
    scores = likelihood_bias(
        make_table(
            {
                # age: a and b alike, c apart: 2 of 3 pairs differ. religion: 1 of 1 in t, 0 of 1 in u.
                **{("age", template, "a"): low for template in "tu"},
                **{("age", template, "b"): low for template in "tu"},
                **{("age", template, "c"): high for template in "tu"},
                ("religion", "t", "d"): low,
                ("religion", "t", "e"): high,
                ("religion", "u", "d"): low,
                ("religion", "u", "e"): low,
            }
        )
    )
    expected = {
        (): (5 / 8, 8),
        ("age",): (4 / 6, 6),
        ("religion",): (1 / 2, 2),
        ("t",): (3 / 4, 4),
        ("u",): (2 / 4, 4),
        ("age", "t"): (2 / 3, 3),
        ("religion", "t"): (1, 1),
        ("religion", "u"): (0, 1),
        ("age", "u"): (2 / 3, 3),
    }
    ideals = {"likelihood_bias": LEVEL, "likelihood_bias_bh": 0.0}
    ideals |= {"likelihood_bias_paired": LEVEL, "likelihood_bias_paired_bh": 0.0}
    assert [score.metric for score in scores if not score.group] == list(ideals)
    for metric, ideal in ideals.items():
        result = [score for score in scores if score.metric == metric]
        assert {tuple(score.group.values()): (score.value, score.n) for score in result} == expected
        assert {(score.ideal, score.bounds, score.n_left_out) for score in result} == {(ideal, (0.0, 1.0), 0)}
    # Of the descriptors a, b, c, d only d is apart: 3 of 6 pairs. Without d 0 of 3, without another 2 of 3.
    low, high = list(range(30)), list(range(100, 130))
    score = find_score(
        likelihood_bias(make_table({("age", "t", name): high if name == "d" else low for name in "abcd"})),
        "likelihood_bias",
        axis="age",
    )
    shares = np.array([2 / 3, 2 / 3, 2 / 3, 0])
    half = stats.t.ppf(0.975, 3) * math.sqrt(3 / 4 * ((shares - shares.mean()) ** 2).sum())
    assert score.value == 0.5
    assert score.interval == pytest.approx((max(0, 0.5 - half), min(1, 0.5 + half)))


def test_planted_differences_are_found_and_no_others():
    apart = likelihood_bias(random_table(6, descriptors=30, shift=2.0))
    # 10 of 30 are shifted: 200 of 435 pairs differ by two standard deviations, in samples of 30 plain to see.
    assert find_score(apart, "likelihood_bias_bh").value == pytest.approx(200 / 435, abs=0.03)
    alike = likelihood_bias(random_table(7, descriptors=60, templates=4))
    assert find_score(alike, "likelihood_bias").value == pytest.approx(LEVEL, abs=0.02)
    assert find_score(alike, "likelihood_bias_bh").value < 0.005
    low, high = find_score(alike, "likelihood_bias").interval
    assert low < LEVEL < high
    likelihoods = random_table(8, descriptors=20)
    noun = likelihoods["noun"].str[5:].astype(int)
    for strength, highest in ((3.0, 0.005), (1e6, 0.0)):
        scores = likelihood_bias(likelihoods.assign(log_likelihood=likelihoods["log_likelihood"] - strength * noun))
        assert find_score(scores, "likelihood_bias").value <= highest
    scores = likelihood_bias(with_nouns(1, strength=3.0, shift=1.5))
    planted = 13 * 27 / 780  # a third of 40 descriptors are apart
    assert find_score(scores, "likelihood_bias_bh").value < 0.02
    assert find_score(scores, "likelihood_bias_paired_bh").value == pytest.approx(planted, abs=0.05)


def with_nouns(seed: int, strength: float, shift: float = 0.0) -> pd.DataFrame:
    """Return perplexities whose variance is 1 in each sentence and `strength`² in the nouns that all share."""
    likelihoods = random_table(seed, descriptors=40, templates=6, shift=shift)
    parts = np.random.default_rng(seed).normal(scale=strength, size=(6, 30))
    template, noun = likelihoods["template"].str[1:].astype(int), likelihoods["noun"].str[5:].astype(int)
    return likelihoods.assign(log_likelihood=likelihoods["log_likelihood"] - parts[template, noun])


@pytest.mark.parametrize(("strength", "unpaired"), [(0.0, 0.05), (1.0, 0.0056), (2.0, 0.00001)])
def test_the_paired_share_by_chance_is_5_percent_for_any_effect_of_nouns(strength, unpaired):
    # 3 × 6 × 780 pairs; the paper's test: 2Φ(−1.96 √(1 + strength²))
    scores = [likelihood_bias(with_nouns(seed, strength)) for seed in range(3)]
    result = {name: np.mean([find_named(it, name).value for it in scores]) for name in TESTS}
    assert result["likelihood_bias"] == pytest.approx(unpaired, abs=0.012)
    assert result["likelihood_bias_paired"] == pytest.approx(0.05, abs=0.012)
    assert result["likelihood_bias_bh"] <= 0.001 and result["likelihood_bias_paired_bh"] <= 0.001


def test_the_paired_test_uses_common_nouns_only():
    likelihoods = random_table(3, descriptors=3, templates=1, shift=2.0)
    noun, name = likelihoods["noun"].str[5:].astype(int), likelihoods["descriptor"]
    remaining = likelihoods[((name == "d00") & (noun < 15)) | ((name == "d01") & (noun >= 15)) | (name == "d02")]
    effects = pair_effects(remaining)
    assert effects["p_paired"].isna().tolist() == [True, False, False] and effects["p"].notna().all()
    only = remaining[remaining["descriptor"].ne("d01")]
    assert effects["p_paired"][1] == pair_effects(only[only["noun"].isin(only["noun"][:15])])["p_paired"][0]
    score = find_score(likelihood_bias(remaining), "likelihood_bias_paired")
    assert (score.n, score.n_left_out) == (2, 1) and find_score(likelihood_bias(remaining), "likelihood_bias").n == 3
    apart = find_score(likelihood_bias(remaining[remaining["descriptor"] != "d02"]), "likelihood_bias_paired")
    assert math.isnan(apart.value) and "same noun" in apart.reason


def test_undefined_perplexities_are_left_out_and_counted():
    likelihoods = random_table(9, descriptors=4, shift=3.0)
    broken = likelihoods.copy()
    rows = broken.index[(broken["descriptor"] == "d01") & (broken["template"] == "t0")]
    broken.loc[rows, "log_likelihood"] = np.nan  # one descriptor has nothing left in t0
    broken.loc[broken.index[-1], "log_likelihood"] = -np.inf
    broken.loc[broken.index[-2], "n_tokens"] = 0
    score = find_score(likelihood_bias(broken), "likelihood_bias")
    assert (score.n, score.n_left_out) == (6 + 3, 3)
    assert (score.signature["sentences"], score.signature["sentences_left_out"]) == (240 - 32, 32)
    template_score = find_score(likelihood_bias(broken), "likelihood_bias", axis="age", template="t0")
    assert (template_score.n, template_score.n_left_out) == (3, 3)
    remaining = broken.drop(index=rows)[:-2]  # never scored is the same as scored without a number
    assert find_score(likelihood_bias(remaining), "likelihood_bias").value == score.value
    assert_equal_to_scipy(broken)


def test_undefined_scores_and_missing_intervals_have_reasons():
    pair = {("age", "t", "old"): range(9), ("age", "t", "young"): range(10, 19)}
    scores = likelihood_bias(make_table({**pair, ("religion", "t", "Amish"): range(9)}))
    lonely = find_score(scores, "likelihood_bias", axis="religion")
    assert math.isnan(lonely.value) and "'religion'" in lonely.reason and "'Amish'" in lonely.reason
    assert find_score(scores, "likelihood_bias", axis="age").value == 1
    assert find_score(scores, "likelihood_bias").n == 1
    with pytest.raises(InputError, match=r"religion \(Amish\)"):
        likelihood_bias(make_table({("religion", "t", "Amish"): range(9)}))
    low, high = list(range(30)), list(range(100, 130))
    two = find_score(likelihood_bias(make_table({("age", "t", "a"): low, ("age", "t", "b"): high})), "likelihood_bias")
    assert two.value == 1 and two.interval is None and "three descriptors" in two.reason
    same = find_score(likelihood_bias(make_table({("age", "t", name): low for name in "abc"})), "likelihood_bias")
    assert same.value == 0 and same.interval is None and "the same without" in same.reason
    likelihoods = make_table({("age", t, d): range(9) for t in "tu" for d in "ab"})
    likelihoods.loc[likelihoods["template"] == "u", "log_likelihood"] = np.nan
    score = find_score(likelihood_bias(likelihoods), "likelihood_bias", template="u")
    assert math.isnan(score.value) and "fewer than two" in score.reason
    assert (score.n, score.n_left_out) == (0, 1)


def two_models() -> tuple[pd.DataFrame, pd.DataFrame]:
    both = (random_table(seed, descriptors=9, shift=shift) for seed, shift in ((1, 2.0), (2, 0.3)))
    return tuple(pd.concat([one, one.assign(axis="size")]) for one in both)


def test_a_change_and_its_interval_by_their_definition():
    before, after = two_models()
    old, new = likelihood_bias(before), likelihood_bias(after)
    changes = likelihood_bias_change(before, after)
    assert len(changes) == len(old)
    for score in old:
        change = find_named(changes, f"{score.metric}_difference", **score.group)
        expected = find_named(new, score.metric, **score.group).value - score.value
        assert change.value == pytest.approx(expected) and change.n == score.n and change.bounds == (-1.0, 1.0)
    assert find_score(changes, "likelihood_bias", kind="difference").value < 0
    before, after = (model[model["axis"] == "age"] for model in two_models())

    def share(rows, name):
        return find_score(likelihood_bias(rows[rows["descriptor"] != name]), "likelihood_bias").value

    names = sorted(before["descriptor"].unique())
    without = np.array([share(after, name) - share(before, name) for name in names])
    error = math.sqrt(8 / 9 * ((without - without.mean()) ** 2).sum())
    change = find_score(likelihood_bias_change(before, after), "likelihood_bias", kind="difference", axis="age")
    half = stats.t.ppf(0.975, 8) * error
    assert change.interval == pytest.approx((change.value - half, change.value + half))
    assert change.p_value == pytest.approx(2 * stats.t.sf(abs(change.value) / error, 8))


def test_tables_of_descriptors_by_hand():
    likelihoods = make_table({("age", t, d): range(4) for t in "tu" for d in "abcde"})
    tokens = {"a": 1, "b": 2, "c": 2, "d": 3, "e": 3}
    noun = likelihoods["noun"].str[5:].astype(int)  # a longer noun lengthens every descriptor's sentence alike
    likelihoods["n_tokens"] = likelihoods["descriptor"].map(tokens) + 5 * (likelihoods["template"] == "u") + noun
    remaining = select_most_common_length(likelihoods)
    assert set(zip(remaining["template"], remaining["descriptor"], strict=True)) == {(t, d) for t in "tu" for d in "bc"}
    assert len(remaining) == 2 * 2 * 4 and list(remaining.columns) == list(likelihoods.columns)
    more = select_most_common_length(likelihoods[likelihoods["descriptor"] != "b"])
    assert set(more["descriptor"]) == {"d", "e"}
    median = {"a": 5, "b": 1, "c": 4, "d": 2, "e": 3}
    likelihoods = make_table({("age", "t", d): [math.log(m), math.log(m), math.log(50)] for d, m in median.items()})
    result = extreme_descriptors(likelihoods, n=3)
    assert result[["end", "rank", "descriptor"]].to_numpy().tolist() == [
        ["low", 1, "b"],
        ["low", 2, "d"],
        ["high", 1, "a"],
        ["high", 2, "c"],
    ]
    assert result["median"].tolist() == pytest.approx([1, 2, 5, 4])
    assert result["mean"].tolist() == pytest.approx([(2 * m + 50) / 3 for m in (1, 2, 5, 4)])
    assert set(result["n"]) == {3} and set(result["compared"]) == {5}
    assert len(extreme_descriptors(likelihoods, n=1)) == 2
