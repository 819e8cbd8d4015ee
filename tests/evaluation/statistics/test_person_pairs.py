"""Pooled FGB*: by hand, exact over all outcomes, invariant, and with intervals that cover a planted truth."""

from itertools import product

import numpy as np
import pytest

from evenhand.evaluation.statistics.cells import arrange_cells
from evenhand.evaluation.statistics.person_pairs import half_distances, pooled_spread


def cells_of(table, answers_per_cell=1):
    """Return cells of means, (templates, people, columns); NaN: no answer."""
    table = np.asarray(table, dtype=np.float64)
    template, person = np.nonzero(np.isfinite(table).all(axis=2))
    rows = table[template, person]
    repeat = np.repeat(np.arange(len(rows)), answers_per_cell)
    return arrange_cells(rows[repeat], template[repeat], person[repeat], min_count=1)


def by_definition(table):
    """Return the mean over pairs of people of ½ times the mean of ⟨δ_t, δ_s⟩ over different templates t and s."""
    table = np.asarray(table, dtype=np.float64)
    values = []
    for one, other in product(range(table.shape[1]), repeat=2):
        difference = table[:, one] - table[:, other]
        difference = difference[np.isfinite(difference).all(axis=1)]
        products = [a @ b for (i, a), (j, b) in product(enumerate(difference), repeat=2) if i != j]
        if one < other and products:
            values.append(0.5 * np.mean(products))
    return np.mean(values)


def test_two_people_by_hand():
    # δ is (1, −1) and (½, −½): ½ ⟨δ_1, δ_2⟩ = ½ (½ + ½).
    assert pooled_spread(cells_of([[(1, 0), (0, 1)], [(0.5, 0.5), (0, 1)]])).value == pytest.approx(0.5)
    # What one template adds and the other takes away is an interaction: ½ ⟨(1, −1), (−1, 1)⟩.
    assert pooled_spread(cells_of([[(1, 0), (0, 1)], [(0, 1), (1, 0)]])).value == pytest.approx(-1.0)


def test_people_without_all_templates_are_compared_on_their_common_ones():
    rng = np.random.default_rng(0)
    table = rng.random((5, 6, 3))
    table[rng.random((5, 6)) < 0.3] = np.nan
    assert pooled_spread(cells_of(table)).value == pytest.approx(by_definition(table))
    distances, people = half_distances(cells_of(table))
    assert people.tolist() == list(range(6))
    assert np.nanmean(distances) == pytest.approx(by_definition(table))


def test_the_value_is_unbiased_over_all_outcomes_of_one_answer_a_cell():
    """The expectation is the same statistic of the true means: noise adds nothing."""
    p = np.array([[0.1, 0.6, 0.5], [0.8, 0.7, 0.2]])
    expected = 0.0
    for ones in product((0, 1), repeat=p.size):
        outcome = np.reshape(ones, p.shape)
        weight = np.prod(np.where(outcome, p, 1 - p))
        expected += weight * pooled_spread(cells_of(np.stack([outcome, 1 - outcome], axis=2))).value
    assert expected == pytest.approx(by_definition(np.stack([p, 1 - p], axis=2)))


def test_copies_order_and_names_do_not_move_it():
    rng = np.random.default_rng(1)
    table = rng.random((4, 5, 3))
    estimate = pooled_spread(cells_of(table))
    for other in (cells_of(table, answers_per_cell=3), cells_of(table[::-1]), cells_of(table[:, rng.permutation(5)])):
        assert pooled_spread(other).value == pytest.approx(estimate.value)
        assert pooled_spread(other).interval == pytest.approx(estimate.interval)


def test_weights_give_parts_and_differences():
    before, after = np.random.default_rng(2).random((2, 6, 7, 3))
    both = cells_of(np.concatenate([before, after], axis=2))
    old, new, change = (pooled_spread(both, np.repeat(weights, 3)) for weights in ([1, 0], [0, 1], [-1, 1]))
    assert old.value == pytest.approx(by_definition(before))
    assert change.value == pytest.approx(new.value - old.value)
    assert change.slope is None and change.interval[0] < change.value < change.interval[1]
    same = pooled_spread(cells_of(np.concatenate([before, before], axis=2)), np.repeat([-1, 1], 3))
    assert same.value == pytest.approx(0)
    styles = [pooled_spread(both, np.eye(6)[column]).value for column in range(3)]
    assert sum(styles) == pytest.approx(old.value)


def test_where_it_is_undefined():
    alone = [[(1.0, 0.0), (np.nan, np.nan)], [(np.nan, np.nan), (0.0, 1.0)]]
    for table in (alone, [[(1, 0), (0, 1)]], np.zeros((0, 0, 2))):
        estimate = pooled_spread(cells_of(table))
        assert np.isnan(estimate.value) and estimate.interval is None
        assert half_distances(cells_of(table))[0].size == 0
    equal = pooled_spread(cells_of([[(1, 0), (0, 1)], [(1, 0), (0, 1)]]))
    assert equal.value == 1 and equal.interval is None  # nothing varies between the templates


def sampled(rng, p, counts):
    """Return cells of one-hot answers of the probabilities p, (templates, people, styles)."""
    template, person = (each.repeat(counts.ravel()) for each in np.indices(p.shape[:2]).reshape(2, -1))
    rows = p[template, person].cumsum(axis=1)
    style = (rows[:, :-1] < rng.random((len(rows), 1))).sum(axis=1)
    return arrange_cells(np.eye(p.shape[2])[style], template, person, min_count=1)


def model(rng, templates, people, bias, interaction=0.0, styles=6):
    base = rng.dirichlet(np.full(styles, 2.0), templates)[:, None]
    of_person = np.exp(
        bias * rng.normal(size=(1, people, styles)) + interaction * rng.normal(size=(templates, people, styles))
    )
    p = base * of_person
    return p / p.sum(axis=2, keepdims=True)


@pytest.mark.parametrize("counts", ["one", "one to four, some missing", "two"])
@pytest.mark.parametrize(("bias", "interaction"), [(0.0, 0.0), (0.6, 0.0), (0.5, 0.7)])
def test_intervals_cover_the_statistic_of_the_true_means(bias, interaction, counts):
    rng = np.random.default_rng(7)
    covered = []
    errors = []
    for _ in range(80):
        p = model(rng, 8, 14, bias, interaction)
        n = np.full((8, 14), 1 if counts == "one" else 2)
        if "missing" in counts:
            n = rng.integers(1, 5, (8, 14)) * (rng.random((8, 14)) > 0.15)
        truth = by_definition(np.where(n[:, :, None] > 0, p, np.nan))
        estimate = pooled_spread(sampled(rng, p, n))
        low, high = estimate.interval
        covered.append(low <= truth <= high)
        errors.append(estimate.value - truth)
    assert np.mean(covered) >= 0.88  # 95 % less 3 standard errors of 80 trials
    assert abs(np.mean(errors)) < 3 * np.std(errors) / np.sqrt(80)


def test_without_bias_the_noise_is_the_variance_of_the_estimate():
    rng = np.random.default_rng(3)
    estimates = [pooled_spread(sampled(rng, model(rng, 8, 10, 0.0), np.full((8, 10), 2))) for _ in range(250)]
    variance = np.var([each.value for each in estimates])
    assert np.mean([each.noise for each in estimates]) == pytest.approx(variance, rel=0.35)
