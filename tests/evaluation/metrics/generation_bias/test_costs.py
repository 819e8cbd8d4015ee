"""Costs by hand and by simulation: text quality, shares of clusters, relevance, style drift."""

import math

import numpy as np
import pandas as pd
import pytest

from evenhand.evaluation.metrics.generation_bias.costs.relevance import (
    cell_codes,
    likelihood_changes,
    likelihood_scores,
    other_prompts,
    sample_prompts,
)
from evenhand.evaluation.metrics.generation_bias.costs.scores import style_share
from evenhand.evaluation.metrics.generation_bias.costs.style_drift import style_drift
from evenhand.evaluation.metrics.generation_bias.costs.text_quality import (
    distinct_n,
    distinct_responses,
    mean_length,
    occurs_once,
    parroting_by_descriptor,
    repeat_prompts,
    repeats_prompt,
)
from evenhand.evaluation.score import find_score


def test_distinct_n_and_lengths_by_hand():
    responses = ["I see. I see!", "i SEE it"]
    # Words: i see i see · i see it. Distinct words: i, see, it of 7. Pairs: i see, see i, i see · i see, see it.
    assert distinct_n(responses, 1) == pytest.approx(3 / 7)
    assert distinct_n(responses, 2) == pytest.approx(3 / 5)
    # Threes: i see i, see i see · i see it.
    assert distinct_n(responses, 3) == 1
    assert distinct_n(responses * 2, 1) == pytest.approx(3 / 14)
    assert mean_length(["It's a well-known café, is it not?"]) == 7
    assert mean_length(["…", "один два"]) == 1
    assert math.isnan(distinct_n([], 1)) and math.isnan(distinct_n(["one", ""], 2))
    assert math.isnan(mean_length([])) and repeat_prompts([], []).shape == (0,)


@pytest.mark.parametrize(
    ("response", "repeats"),
    [
        ("I love deaf moms.", True),
        (" i LOVE Deaf moms ", True),
        ("I love deaf moms!!", True),
        ("I love deaf moms. I really do.", False),
        ("love deaf moms.", False),
        ("", False),
    ],
)
def test_parroting_ignores_case_blanks_and_final_punctuation(response, repeats):
    assert repeats_prompt(response, "I love deaf moms.") is repeats


@pytest.mark.parametrize(
    ("response", "quotes"),
    [
        ("You said: I love deaf moms.", True),
        ("you said i LOVE deaf moms!", True),
        ("“I love deaf moms.”", True),
        ("So you are saying that I love deaf moms?", True),
        ("Dijiste: «I love deaf moms».", True),
        ("Quote: I love deaf moms.", True),
        ("Yes, I love deaf moms.", False),  # it agrees
        ("I love deaf moms too!", False),
        ("You said: I love deaf moms. I am glad that you do, for I have one myself.", False),
        ("You said: my, I love deaf", False),
    ],
)
def test_quoting_the_prompt_is_parroting(response, quotes):
    assert repeats_prompt(response, "I love deaf moms.") is quotes


def test_a_prompt_without_words_or_an_empty_response_is_no_parroting():
    assert not repeats_prompt("You said: ...", "...") and not repeats_prompt("You said: x", "")
    assert not repeats_prompt("", "") and not repeats_prompt("!", "?")
    assert repeat_prompts(["a", "b.", "c"], ["A!", "b", "d"]).tolist() == [True, True, False]
    with pytest.raises(ValueError):
        repeat_prompts(["a"], [])


def test_shares_by_descriptor_largest_rise_first():
    descriptor = ["deaf", "deaf", "rich", "rich", "rich", "tall"]
    axis = ["ability", "ability", "class", "class", "class", "body"]
    before = np.array([1, 1, 0, 0, 1, 0], dtype=bool)
    after = np.array([1, 0, 1, 0, 1, 0], dtype=bool)
    table = parroting_by_descriptor(descriptor, axis, before, after)
    assert table["descriptor"].tolist() == ["rich", "tall", "deaf"]
    assert table["n"].tolist() == [3, 1, 2]
    assert table["before"].tolist() == [1 / 3, 0, 1] and table["after"].tolist() == [2 / 3, 0, 0.5]
    assert np.allclose(table["change"], [1 / 3, 0, -0.5])


def test_distinct_responses_and_their_jackknife():
    responses = ["I see.", "i  see", "Oh?", "Me too.", "oh!", "Why"]
    assert distinct_responses(responses) == 4 / 6
    assert occurs_once(responses).tolist() == [False, False, False, True, False, True]
    assert math.isnan(distinct_responses([])) and occurs_once([]).tolist() == []
    rng = np.random.default_rng(0)
    draws = [rng.zipf(1.6, 400).astype(str).tolist() for _ in range(300)]
    error = np.sqrt(np.mean([occurs_once(each).var(ddof=1) / 400 for each in draws]))
    true = np.std([distinct_responses(each) for each in draws])
    assert true < error < 1.5 * true


VECTORS = np.array([[0.1, 0.2, 0.7], [0.3, 0.4, 0.3], [np.nan] * 3, [0.5, 0.1, 0.4]], dtype=np.float32)
CLUSTERS = {"HATE": (0, 1), "CARE": (2,)}


def test_shares_and_their_intervals():
    hate, care = style_share(VECTORS, CLUSTERS, {"seed": 0})
    # Sums 0.3, 0.7, 0.6: mean 1.6/3; deviations −7/30, 5/30, 2/30: variance (49 + 25 + 4)/900/2, of the mean a third.
    half = 1.959964 * math.sqrt(78 / 900 / 2 / 3)
    assert (hate.metric, hate.group, hate.ideal, hate.bounds) == ("style_share", {"cluster": "HATE"}, None, (0.0, 1.0))
    assert hate.value == pytest.approx(1.6 / 3)
    assert hate.interval == pytest.approx((1.6 / 3 - half, 1.6 / 3 + half), abs=1e-6)
    assert (hate.n, hate.n_left_out, hate.signature) == (3, 1, {"seed": 0})
    assert care.value == pytest.approx(1.4 / 3)
    rng = np.random.default_rng(0)
    vectors = rng.dirichlet(np.ones(5), 50)
    scores = style_share(vectors, {"a": (0, 3), "b": (1, 2, 4)})
    assert sum(score.value for score in scores) == pytest.approx(1)
    again = style_share(vectors[rng.permutation(50)], {"a": (0, 3), "b": (1, 2, 4)})
    assert [score.value for score in again] == pytest.approx([score.value for score in scores])
    low = style_share(np.array([[0.0, 1.0], [0.1, 0.9]]), {"HATE": (0,)})[0]
    assert low.interval[0] == 0
    one = style_share(VECTORS[:1], CLUSTERS)[0]
    assert one.interval is None and "interval" in one.reason
    none = style_share(VECTORS[2:3], CLUSTERS)[0]
    assert math.isnan(none.value) and "empty" in none.reason and (none.n, none.n_left_out) == (0, 1)


def grid(descriptors=5, templates=4, per_cell=3) -> pd.DataFrame:
    rows = [
        (f"d{d}", f"a{d % 2}", f"t{t}") for d in range(descriptors) for t in range(templates) for _ in range(per_cell)
    ]
    prompts = pd.DataFrame(rows, columns=["descriptor", "axis", "template"])
    return prompts.assign(prompt_id=[f"p{row}" for row in range(len(rows))])


def likelihoods(own, other, tokens=1) -> pd.DataFrame:
    return pd.DataFrame({"log_likelihood": own, "other_log_likelihood": other, "tokens": tokens}).astype(float)


def test_the_other_prompt_has_the_descriptor_and_another_template():
    prompts = grid()
    other = other_prompts(prompts)
    for column, same in (("descriptor", True), ("axis", True), ("template", False)):
        values = prompts[column].to_numpy()
        assert ((values[other] == values) == same).all(), column
    again = prompts.sample(frac=1, random_state=0)
    pairs = pd.crosstab(prompts["template"], prompts["template"].to_numpy()[other])
    assert (np.diag(pairs) == 0).all() and (pairs.to_numpy().sum(axis=1) == 15).all()
    assert (pairs.to_numpy() + 15 * np.eye(4) > 0).all()  # all the others are drawn
    assert (other_prompts(again) >= 0).all()
    np.testing.assert_array_equal(other_prompts(prompts), other)
    prompts = pd.DataFrame({"descriptor": list("aaaab"), "axis": "x", "template": ["s", "s", "s", "t", "s"]})
    other = other_prompts(prompts)
    assert other[:3].tolist() == [3, 3, 3] and other[3] in (0, 1, 2) and other[4] == -1


def test_scores_by_hand():
    prompts = pd.DataFrame({"descriptor": "d", "axis": "a", "template": ["s", "s", "t", "t"]})
    table = likelihoods([-1.0, -2.0, -3.0, -4.0], [-2.0, -2.0, -3.0, math.nan], [2, 2, 1, 5])
    relevance, perplexity = likelihood_scores(prompts, table, {"seed": 0})
    assert (relevance.metric, relevance.value, relevance.n, relevance.n_left_out) == ("relevance", 1 / 3, 3, 1)
    assert perplexity.value == pytest.approx(math.exp(10 / 10)) and (perplexity.n, perplexity.n_left_out) == (4, 0)
    assert relevance.signature == {"seed": 0} and relevance.interval[0] < 1 / 3 < relevance.interval[1]
    alone = likelihood_scores(prompts[:1], table[:1].assign(other_log_likelihood=math.nan), {})
    assert math.isnan(alone[0].value) and "template" in alone[0].reason and alone[1].interval is None


def test_changes_by_hand():
    prompts = grid(2, 2, 2)
    before = likelihoods([-1.0] * 8, [-3.0, -1.5] * 4, 2)
    after = likelihoods([-1.5] * 8, [-2.0, -2.0] * 4, 2)
    changes = likelihood_changes(prompts, before, after, {})
    assert find_score(changes, "relevance", run="before").value == pytest.approx(1.25)
    assert find_score(changes, "relevance_difference").value == pytest.approx(0.5 - 1.25)
    kept = find_score(changes, "relevance_kept")
    assert kept.value == pytest.approx(0.4) and kept.interval[0] < 0.4 < kept.interval[1]
    assert find_score(changes, "response_perplexity_rise").value == pytest.approx(math.exp(0.25) - 1)
    nothing = likelihood_changes(prompts, before.assign(other_log_likelihood=-1.0), after, {})
    kept = find_score(nothing, "relevance_kept")
    assert math.isnan(kept.value) and "relevance" in kept.reason


def test_intervals_cover_the_truth_over_new_responses_in_the_same_cells():
    rng, prompts = np.random.default_rng(0), grid(10, 5, 4)
    cells, n = cell_codes(prompts), len(prompts)
    effect = rng.normal(0.5, 0.5, 50)[cells]
    tokens = rng.integers(3, 9, n)
    held = {"relevance_kept": 0, "relevance_difference": 0, "response_perplexity_rise": 0}
    kept, rise = 0.8, math.exp(0.1 * n / tokens.sum()) - 1
    for _ in range(400):
        own = -2.0 * tokens + rng.normal(0, 1, n)
        other = own - effect - rng.normal(0, 1, n)
        new = own - 0.1 + rng.normal(0, 1, n)
        tables = likelihoods(own, other, tokens), likelihoods(new, new - kept * effect - rng.normal(0, 1, n), tokens)
        changes = likelihood_changes(prompts, *tables, {})
        truth = {"relevance_kept": kept, "relevance_difference": (kept - 1) * effect.mean()}
        for metric, true in (truth | {"response_perplexity_rise": rise}).items():
            low, high = find_score(changes, metric).interval
            held[metric] += low <= true <= high
    assert all(0.92 <= count / 400 <= 0.98 for count in held.values()), held


def test_the_same_prompts_are_drawn_in_every_run():
    ids = [f"p{row}" for row in range(5000)]
    drawn = sample_prompts(ids, None, 10**8)
    assert drawn.sum() == 500 and sample_prompts(ids[:1000], None, 10**8).sum() == 300
    assert sample_prompts(ids[:300], None, 10**8).all() and sample_prompts(ids, None, 10**6).all()
    assert sample_prompts(ids, 0.5, 10**6).sum() == 2500 and sample_prompts(ids[:3], 0.1, 10**6).sum() == 1
    shuffled = np.random.default_rng(0).permutation(5000)
    again = sample_prompts([ids[row] for row in shuffled], None, 10**8)
    np.testing.assert_array_equal(drawn[shuffled], again)
    assert not (drawn & ~sample_prompts(ids, 0.2, 10**8)).any()  # a larger share keeps the prompts of a smaller one
    assert 2300 < np.flatnonzero(drawn).mean() < 2700  # neither the first prompts nor the last


def test_intervals_of_drawn_responses_cover_the_truth_over_all_prompts():
    rng, held = np.random.default_rng(1), {"relevance": 0, "relevance_kept": 0, "response_perplexity_rise": 0}
    prompts = grid(10, 5, 4)
    cells, n = cell_codes(prompts), len(prompts)
    effect = rng.normal(2.0, 1.0, 50)[cells]
    truth = {"relevance": effect.mean(), "relevance_kept": 0.8, "response_perplexity_rise": math.exp(0.1) - 1}
    for repeat in range(400):
        ids = [f"{repeat}-{row}" for row in range(n)]
        own = rng.normal(-3, 1, n)
        new = own - 0.1 + rng.normal(0, 0.3, n)
        before, after = (
            likelihoods(ll, ll - kept * effect - rng.normal(0, 1, n))[sample_prompts(ids, 0.25, 0)]
            for ll, kept in ((own, 1.0), (new, 0.8))
        )
        changes = likelihood_changes(prompts, before, after, {"seed": 0})
        for metric, true in truth.items():
            run = {"run": "before"} if metric == "relevance" else {}
            low, high = find_score(changes, metric, **run).interval
            held[metric] += low <= true <= high
    assert all(0.92 <= count / 400 <= 0.99 for count in held.values()), held
    score = find_score(changes, "relevance_kept")
    assert (score.n, score.n_left_out, score.signature["scored"]["of"]) == (50, 0, 200)
    assert score.signature["seed"] == 0 and score.signature["scored"]["responses"] == 50


def test_style_drift_is_unbiased_with_and_without_a_change():
    rng, cells = np.random.default_rng(0), np.arange(800) // 4
    base = rng.dirichlet(np.ones(20))
    moved = base + 0.15 * (np.eye(20)[0] - base)
    truth = np.abs(moved - base).sum() / 2
    for after, true in ((base, 0.0), (moved, truth)):
        found, plain, held = [], [], []
        for _ in range(150):
            old, new = (np.eye(20)[rng.choice(20, 800, p=p)] for p in (base, after))
            score = style_drift(old, new, cells)
            found.append(score.value)
            plain.append(np.abs(new.mean(axis=0) - old.mean(axis=0)).sum() / 2)
            held.append(score.interval[0] <= true <= score.interval[1])
        assert abs(np.mean(found) - true) < 0.02 < np.mean(plain) - true + 0.015, (true, np.mean(found))
        assert np.mean(held) > 0.9
    assert np.mean(plain) > truth


def test_style_drift_of_a_run_with_itself_is_0_and_empty_responses_are_left_out():
    vectors = np.random.default_rng(0).dirichlet(np.ones(3), 12)
    same = style_drift(vectors, vectors, np.arange(12) // 3)
    assert (same.value, same.n) == (0.0, 12) and same.interval == (0.0, 0.0)
    vectors[0] = np.nan
    assert style_drift(vectors, vectors, np.arange(12) // 3).n_left_out == 1
    nothing = style_drift(vectors[:1], vectors[:1], np.zeros(1, int))
    assert math.isnan(nothing.value) and nothing.reason
