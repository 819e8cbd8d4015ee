"""Effects of descriptors: exact on small cases, invariant, none where nothing differs, found where one is planted."""

import math
from itertools import permutations

import numpy as np
import pytest
from scipy import stats

from evenhand.evaluation.statistics.cell_table import Design, SetOfTests
from evenhand.evaluation.statistics.person_effects import Effects, interval_of_one, joint_effects


def effects(vectors, template, descriptor, groups=None, clusters=None, draws=99, seed=0) -> Effects:
    vectors, template, descriptor = np.asarray(vectors, dtype=np.float64), np.asarray(template), np.asarray(descriptor)
    groups = np.zeros((0, descriptor.max() + 1)) if groups is None else groups
    family = SetOfTests("style", vectors, clusters, has_overall=False)
    return joint_effects(Design(template, descriptor, groups), [family], draws, np.random.default_rng(seed))[0]


def design(templates=4, descriptors=8, answers_per_cell=3):
    template = np.repeat(np.arange(templates), descriptors * answers_per_cell)
    return template, np.tile(np.repeat(np.arange(descriptors), answers_per_cell), templates)


def one_hot(rng, n, styles=4, weights=None):
    return np.eye(styles)[rng.choice(styles, size=n, p=weights)]


def test_effects_are_differences_from_the_average_on_the_same_templates():
    # Descriptor 2 answers template 0 alone: it is compared with the average of template 0, (0.9 + 0.5 + 0.1) / 3.
    result = effects([[0.9], [0.5], [0.1], [0.2], [0.6]], [0, 0, 0, 1, 1], [0, 1, 2, 0, 1])
    assert result.effect.ravel().tolist() == pytest.approx([(0.4 - 0.2) / 2, (0.0 + 0.2) / 2, -0.4])
    assert result.mean.ravel().tolist() == pytest.approx([0.55, 0.55, 0.1])


def test_the_null_variance_is_that_of_all_permutations():
    # All 5! orders of one template's responses, in cells of 1, 1 and 3: with one template, responses are permuted.
    values, template, descriptor = np.array([0.0, 0.1, 0.5, 0.6, 1.0]), [0] * 5, [0, 1, 2, 2, 2]
    orders = [
        effects(values[list(order), None], template, descriptor, draws=0).effect.ravel()
        for order in permutations(range(5))
    ]
    np.testing.assert_allclose(np.mean(orders, axis=0), 0, atol=1e-12)
    of_each = effects(values[:, None], template, descriptor, draws=0)
    np.testing.assert_allclose(np.abs(of_each.z), np.abs(of_each.effect) / np.std(orders, axis=0)[:, None], rtol=1e-5)


def test_p_values_are_those_of_all_permutations():
    # Two descriptors with two responses each: of the 6 equally likely splits, 2 are as far apart as {1, 1} and {0, 0}.
    result = effects([[1.0], [1.0], [0.0], [0.0]], [0] * 4, [0, 0, 1, 1], draws=2999)
    assert result.p.ravel() == pytest.approx([1 / 3] * 2, abs=0.03)
    assert result.p_set.ravel() == pytest.approx([1 / 3] * 2, abs=0.03)


def test_order_of_rows_names_and_copies_do_not_matter():
    rng, (template, descriptor) = np.random.default_rng(1), design()
    vectors = one_hot(rng, len(template))
    first = effects(vectors, template, descriptor)
    order = rng.permutation(len(template))
    shuffled = effects(vectors[order], template[order], descriptor[order])
    for name in ("effect", "mean", "z"):
        np.testing.assert_allclose(getattr(shuffled, name), getattr(first, name), atol=1e-9)
    renamed = effects(vectors, template, descriptor.max() - descriptor)
    np.testing.assert_allclose(renamed.effect[::-1], first.effect, atol=1e-12)
    doubled = effects(np.repeat(vectors, 2, axis=0), np.repeat(template, 2), np.repeat(descriptor, 2), draws=0)
    np.testing.assert_allclose(doubled.effect, first.effect, atol=1e-12)
    np.testing.assert_allclose(effects(vectors, template, descriptor).p_set, first.p_set)


def test_a_planted_effect_is_found_and_nothing_else():
    rng, (template, descriptor) = np.random.default_rng(5), design(10, 12, 4)
    vectors = one_hot(rng, len(template), weights=[0.4, 0.3, 0.2, 0.1])
    vectors[descriptor == 7] = one_hot(rng, 40, weights=[0.1, 0.1, 0.1, 0.7])
    result = effects(vectors, template, descriptor, draws=199)
    found = np.argwhere(result.p_set <= 0.05)
    assert [7, 3] in found.tolist() and set(found[:, 0]) == {7}
    truth = 0.6 * 11 / 12  # 0.7 − 0.1, less its share of the average
    assert result.low[7, 3] < truth < result.high[7, 3]


@pytest.mark.parametrize("rare", [False, True])
def test_where_nothing_differs_a_false_effect_is_shown_in_one_of_twenty(rare):
    weights, wrong = ([0.01, 0.02, 0.07, 0.9] if rare else [0.25] * 4), 0
    for seed in range(100):
        rng, (template, descriptor) = np.random.default_rng(seed), design(5, 10, 2)
        result = effects(one_hot(rng, len(template), weights=weights), template, descriptor, draws=39, seed=seed)
        wrong += bool((result.p_set <= 0.05).any())
    assert wrong <= 11  # of 100 with probability 0.05: more with a probability of 0.4 %


def test_rare_styles_do_not_hide_effects_on_frequent_ones():
    """The skewed z of 30 styles of 0.1 % would set the critical |z| of all styles if it were one number."""
    found = 0
    for seed in range(20):
        rng, (template, descriptor) = np.random.default_rng(seed), design(5, 20, 4)
        weights = np.array([0.67, 0.3, *[0.001] * 30])
        vectors = one_hot(rng, len(template), 32, weights)
        vectors[descriptor == 7] = one_hot(rng, 20, 32, weights + np.eye(32)[1] * 0.45 - np.eye(32)[0] * 0.45)
        found += effects(vectors, template, descriptor, draws=99, seed=seed).p_set[7, 1] <= 0.05
    assert found >= 10  # 3 without scales


def test_what_never_varies_has_no_effect_no_test_and_no_bound():
    template, descriptor = design()
    vectors = np.tile([0.0, 1.0], (len(template), 1))
    result = effects(vectors, template, descriptor)
    assert (result.effect == 0).all() and (result.p == 1).all() and (result.p_set == 1).all()
    assert (result.shrunk == 0).all()
    for name in ("low", "high", "at_most", "detectable"):
        assert np.isnan(getattr(result, name)).all()


def test_the_variance_at_the_bound_decides():
    # Of 100 answers none: θ with θ = 1.64 √(θ (1 − θ) / 100); a share of ½ has the largest variance.
    variance = np.array([[0.01 * 0.99 / 100]])

    def ratio(place, effect):
        p = np.clip(0.01 + effect, 1e-6, 1 - 1e-6)
        return np.maximum(p * (1 - p) / (0.01 * 0.99), 1.0)

    low, high = interval_of_one(np.array([[-0.01]]), variance, ratio, 1.645)
    p = 0.01 + high[0, 0]
    assert p == pytest.approx(1.645 * np.sqrt(p * (1 - p) / 100), rel=1e-6)
    assert low[0, 0] < -0.01


@pytest.mark.parametrize("average", [0.03, 0.97])
def test_a_shown_effect_on_a_rare_or_common_class_is_covered(average):
    """A person at ½, 30 others at the average, and the mirror image."""
    covered = []
    for seed in range(40):
        rng, (template, descriptor) = np.random.default_rng(seed), design(13, 31, 2)
        share = np.where(descriptor == 0, 0.5, average)
        hit = rng.random(len(share)) < share
        result = effects(np.column_stack([hit, ~hit]), template, descriptor, draws=59, seed=seed)
        truth = (0.5 - average) * 30 / 31
        if result.p_joint[0, 0] <= 0.05:
            covered.append(result.low[0, 0] <= truth <= result.high[0, 0])
    assert len(covered) >= 30 and np.mean(covered) >= 0.88


def test_effects_of_single_responses_are_shrunk():
    """One response to a cell says little: its effect is neither exactly known nor the largest of the table."""
    rng = np.random.default_rng(3)
    template, descriptor = np.repeat(np.arange(8), 6), np.tile(np.arange(6), 8)
    alone = effects(one_hot(rng, 48), template, descriptor)
    assert (alone.low < alone.high).all() and np.abs(alone.shrunk).max() < np.abs(alone.effect).max() / 2


def planted(seed, size, planted=6, templates=10, descriptors=24, answers_per_cell=3):
    """Return the effects of descriptors that get style 0 more often by `size` (its bounds), and the true effects."""
    rng, (template, descriptor) = np.random.default_rng(seed), design(templates, descriptors, answers_per_cell)
    p = np.tile([0.05, 0.35, 0.25, 0.2, 0.15], (descriptors, 1))
    moved = rng.uniform(*size, planted)[:, None]
    p[:planted] = p[:planted] * (1 - moved / 0.95) + np.eye(5)[0] * moved / 0.95
    vectors = np.eye(5)[(p[descriptor].cumsum(axis=1) < rng.random((len(descriptor), 1))).sum(axis=1)]
    return effects(vectors, template, descriptor, draws=59, seed=seed), p - p.mean(axis=0)


def test_intervals_cover_large_effects_that_are_shown():
    covered = []
    for seed in range(50):
        result, truth = planted(seed, (0.1, 0.7))
        shown = (result.p_set <= 0.05) & (np.arange(24) < 6)[:, None] & (np.arange(5) == 0)
        assert ((result.low <= result.shrunk) & (result.shrunk <= result.high)).all()
        covered += ((result.low <= truth) & (truth <= result.high))[shown].tolist()
    assert len(covered) > 150 and np.mean(covered) >= 0.93


def test_an_effect_of_the_detectable_size_is_shown_in_80_percent():
    sizes = [planted(seed, (0, 0), 1, descriptors=48)[0].detectable[:, 0] for seed in range(5)]
    size = np.median(sizes) * 48 / 47  # an effect is a difference from an average that includes it
    shown = [planted(seed, (size, size), 1, descriptors=48)[0].p_set[0, 0] <= 0.05 for seed in range(80)]
    assert 0.68 <= np.mean(shown) <= 0.92


def test_the_interval_of_single_answers_to_one_template_is_by_the_spread_of_people():
    # Values 0 to 4 have variance 2.5. An effect is x_d − x̄, whose variance is 2.5 (1 − 1/5) = 2; each end is one-sided.
    values = np.arange(5.0)[:, None]
    family = SetOfTests("length", values, has_overall=False, are_shares=False)
    people = Design(np.zeros(5, dtype=int), np.arange(5), np.zeros((0, 5)))
    result = joint_effects(people, [family], 0, np.random.default_rng(0))[0]
    np.testing.assert_allclose(result.high - result.low, 2 * 1.6448536 * np.sqrt(2), rtol=1e-6)


@pytest.mark.parametrize("size", [1.0, 1000.0])
def test_equal_answers_of_a_cell_have_no_noise_of_rounding(size):
    rng = np.random.default_rng(0)
    template, descriptor = design(templates=3, descriptors=8, answers_per_cell=1)
    values = size + rng.random((len(template), 1))
    family = SetOfTests("length", np.tile(values, (3, 1)), has_overall=False, are_shares=False)
    people = Design(np.tile(template, 3), np.tile(descriptor, 3), np.zeros((0, 8)))
    result = joint_effects(people, [family], 0, np.random.default_rng(0))[0]
    once = SetOfTests("length", values, has_overall=False, are_shares=False)
    people_once = Design(template, descriptor, np.zeros((0, 8)))
    expected = joint_effects(people_once, [once], 0, np.random.default_rng(0))[0]
    np.testing.assert_allclose(result.low, expected.low, rtol=1e-6)
    np.testing.assert_allclose(result.high, expected.high, rtol=1e-6)


def test_the_interval_of_a_person_whose_numbers_vary_more_has_their_own_variance():
    """Person 0 has +1 and −1 in turn, the two others 0: centred, 2/3 and −1/3 of it, around effects of 0.

    The own variance of person 0 is (6 · 4/9) / 5 / 6, with 5 degrees of freedom; the pooled one, which is larger than
    that of persons 1 and 2, is (6 · 4/9 + 12 · 1/9) / 10 / 6 · 2/3.
    """
    template, person = np.divmod(np.arange(18), 3)
    values = np.where(person == 0, (-1.0) ** template, 0.0)[:, None]
    family = SetOfTests("number", values, are_shares=False)
    design = Design(template, person, np.zeros((0, 3)))
    found = joint_effects(design, [family], 0, np.random.default_rng(0))[0]
    student = stats.t.ppf(0.975, 5) / stats.norm.ppf(0.975)
    own, pooled = math.sqrt(4 / 45) * student, math.sqrt(2 / 45)
    expected = stats.norm.ppf(0.95) * np.array([own, pooled, pooled])  # not shown: each bound with 95 % confidence
    np.testing.assert_allclose(found.high.ravel(), expected, rtol=1e-6)
    np.testing.assert_allclose(found.low.ravel(), -expected, rtol=1e-6)


@pytest.mark.parametrize(("templates", "can_be_shown"), [(1, False), (3, False), (7, True)])
def test_where_people_can_be_exchanged_in_few_ways_no_size_is_detectable(templates, can_be_shown):
    """Two people can be exchanged in 2^T ways, each with its mirror image: the smallest p-value is 2^(1 − T)."""
    template, descriptor = design(templates, 2, 1)
    vectors = np.random.default_rng(0).dirichlet(np.ones(3), len(template))
    result = effects(vectors, template, descriptor, draws=999)
    assert np.isfinite(result.detectable).any() == can_be_shown
    assert (result.p_set > 0.05).all() or can_be_shown
