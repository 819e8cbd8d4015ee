"""Rates by group: numbers by hand, exact intervals for rare outcomes, and intervals that hold together."""

import math

import numpy as np
import pytest

from evenhand.evaluation.statistics.group_rates import clopper_pearson, group_rates


def table_of(shares, n_templates=26, answers=4, rng=None, template_levels=None):
    """The rates of answers drawn with these shares by group; requests differ by their level."""
    rng = np.random.default_rng(0) if rng is None else rng
    levels = np.ones(n_templates) if template_levels is None else template_levels
    group = np.arange(len(shares)).repeat(n_templates * answers)
    template = np.tile(np.arange(n_templates).repeat(answers), len(shares))
    chance = np.clip(np.array(shares)[group] * levels[template], 0, 1)
    values = (rng.random(len(group)) < chance).astype(float)
    return group_rates(values, group, template).set_index("group")


def test_rates_differences_and_ratios_by_hand():
    values = np.array([1.0, 1, 0, 0, 1, 0, 0, 0, np.nan])
    group = np.array(["a"] * 4 + ["b"] * 5)
    table = group_rates(values, group, np.array([0, 1] * 4 + [0])).set_index("group")
    assert table["n"].tolist() == [4, 4] and table["number"].tolist() == [2, 1]
    assert table["rate"].tolist() == [0.5, 0.25]
    np.testing.assert_allclose(table["difference"], [0.125, -0.125])
    np.testing.assert_allclose(table["ratio_to_average"], [0.5 / 0.375, 0.25 / 0.375])
    assert table["ratio_to_highest"].tolist() == [1, 0.5]


def test_a_group_without_events_has_a_ratio_from_0_and_few_answers_are_marked():
    table = table_of([0.5, 0.0, 0.5])
    assert table.loc["1", "ratio_to_highest"] == table.loc["1", "ratio_to_highest_low"] == 0
    assert 0 < table.loc["1", "ratio_to_highest_high"] < 0.5
    small = group_rates(np.ones(101), np.array(["a"] * 100 + ["b"]), np.arange(101) % 5).set_index("group")
    assert small["is_small"].tolist() == [False, True]


def test_copies_of_one_persons_answers_change_nobody_elses_difference():
    """Rates 0.5, 0.25 and 0: each person counts once, also where two of them are one group."""
    values = np.tile([1.0, 0.0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0], 4)
    values[1::12] = 1.0
    person = np.tile(np.repeat(["a", "b", "c"], 4), 4)
    template = np.repeat(np.arange(4), 12)
    of_a = np.tile(np.flatnonzero(person == "a"), 9)
    rows = np.concatenate([np.arange(48), of_a])
    for group in (person, np.where(person == "c", "c", "a and b")):
        once = group_rates(values, group, template, person).set_index("group")
        copied = group_rates(values[rows], group[rows], template[rows], person[rows]).set_index("group")
        assert once.loc["c", "difference"] == copied.loc["c", "difference"] == -0.25
    assert once.loc["a and b", "rate"] == 0.375 and once.loc["a and b", "difference"] == 0.125


def test_without_any_event_there_is_no_ratio():
    table = table_of([0.0, 0.0])
    assert table["ratio_to_highest"].isna().all() and table["ratio_to_average"].isna().all()
    assert (table["ratio_to_highest_high"] >= 1).all()


def test_a_group_at_one_template_gets_the_exact_interval_of_its_own_answers():
    """Ten of 20 answers, all to one template: its own templates show no noise, and those of others are not its own."""
    values = np.concatenate([np.tile([1.0, 0.0], 10), np.tile([1.0, 1.0, 0.0, 1.0, 0.0], 40)])
    template = np.concatenate([np.zeros(20), np.arange(200) % 10])
    table = group_rates(values, np.repeat(["a", "b"], [20, 200]), template).set_index("group")
    ((low, high),) = clopper_pearson(np.array([10.0]), np.array([20.0]), 0.05 / 4)
    # The average of 0.5 and 0.6 is 0.55, with the variance (0.25 / 19 + 0.24 / 199) / 2² and so many effective answers.
    effective_n = 0.55 * 0.45 * 4 / (0.25 / 19 + 0.24 / 199)
    average_low, average_high = clopper_pearson(0.55 * effective_n, effective_n, 0.05 / 4)
    np.testing.assert_allclose(
        table.loc["a", ["difference_low", "difference_high"]].astype(float), [low - average_high, high - average_low]
    )
    assert table.loc["a", "ratio_to_highest_low"] < 0.6 and table.loc["a", "ratio_to_highest_high"] == 1


def test_equal_rates_at_all_templates_are_no_certainty():
    """Half of the answers of each group are yes at each template: the rates are those of 40 answers, not exact."""
    values = np.tile([1.0, 0.0], 40)
    template = np.tile(np.repeat(np.arange(10), 4), 2)
    table = group_rates(values, np.repeat(["a", "b"], 40), template)
    assert (table["difference_high"] > 0.1).all() and (table["difference_low"] < -0.1).all()
    assert (table["ratio_to_highest_low"] < 0.8).all() and (table["ratio_to_average_high"] > 1.1).all()


def test_a_ratio_to_an_average_that_one_group_makes_is_no_certainty():
    """Only one of three groups has events, so that its rate is three times the average at each template."""
    values = np.concatenate([np.tile([1.0, 1.0, 0.0, 1.0, 0.0, 0.0, 1.0, 0.0, 1.0, 0.0], 4), np.zeros(80)])
    table = group_rates(values, np.repeat(["a", "b", "c"], 40), np.tile(np.arange(10).repeat(4), 3))
    ((low, high),) = clopper_pearson(np.array([20.0]), np.array([40.0]), 0.05 / 6)
    average_low, average_high = clopper_pearson(20.0, 120.0, 0.05 / 6)  # everybody has equally many answers
    assert table["ratio_to_average"].tolist() == [3, 0, 0]
    found = table.loc[0, ["ratio_to_average_low", "ratio_to_average_high"]].tolist()
    assert found == pytest.approx([low / average_high, high / average_low])


def test_the_degrees_of_freedom_are_of_the_templates_of_the_group():
    """A group with answers to two of ten templates has one degree of freedom: its interval has no useful end."""
    values = np.concatenate([np.repeat([1.0, 0.0, 1.0, 0.0], [12, 8, 8, 12]), np.tile([1.0, 1.0, 0.0, 1.0, 0.0], 40)])
    template = np.concatenate([np.repeat([0, 1], 20), np.arange(200) % 10])
    table = group_rates(values, np.repeat(["a", "b"], [40, 200]), template).set_index("group")
    assert table.loc["a", "ratio_to_average_low"] == 0 and table.loc["a", "ratio_to_average_high"] == math.inf


@pytest.mark.parametrize(
    "shares", [[0.2] * 5, [0.3, 0.2, 0.1, 0.1, 0.05], [0.04] * 5], ids=["equal", "unequal", "rare"]
)
def test_the_intervals_of_all_groups_hold_together(shares):
    shares = np.array(shares)
    truth = {
        "difference": shares - shares.mean(),
        "ratio_to_average": shares / shares.mean(),
        "ratio_to_highest": shares / shares.max(),
    }
    rng = np.random.default_rng(1)
    n_covered = dict.fromkeys(truth, 0)
    for _ in range(150):
        table = table_of(shares, rng=rng, template_levels=2 * rng.beta(8, 8, 26))
        for name, expected in truth.items():
            low = table[f"{name}_low"].to_numpy()
            high = table[f"{name}_high"].to_numpy()
            n_covered[name] += bool((low <= expected + 1e-9).all() and (expected - 1e-9 <= high).all())
    assert min(n_covered.values()) >= 134  # 95 % of 150, less three standard errors


def test_clopper_pearson_is_exact():
    """At its bounds, the binomial tails are half the error."""
    ((low, high),) = clopper_pearson(np.array([3.0]), np.array([20.0]), 0.05)
    tail = sum(math.comb(20, k) * high**k * (1 - high) ** (20 - k) for k in range(4))
    assert tail == pytest.approx(0.025)
    tail = sum(math.comb(20, k) * low**k * (1 - low) ** (20 - k) for k in range(3, 21))
    assert tail == pytest.approx(0.025)


def test_a_fraction_of_an_event_has_an_interval_around_its_share():
    """Half an event of one effective answer: Beta(1/2, 3/2) has the distribution 2/π (asin √q + √(q (1 − q))).

    With fewer events, the lower end nears 0, as that of none: it is below the share.
    """
    low, high = clopper_pearson(0.5, 1.0, 0.05)
    assert 2 / math.pi * (math.asin(math.sqrt(low)) + math.sqrt(low * (1 - low))) == pytest.approx(0.025)
    assert high == pytest.approx(1 - low)
    low, high = clopper_pearson(np.array([0.001, 9.999]), 10.0, 0.05).T
    assert low[0] < 0.0001 < high[0] and low[1] < 0.9999 < high[1]
    none = clopper_pearson(0.0, 10.0, 0.05)
    np.testing.assert_allclose([low[0], high[0]], none, atol=1e-3)


def test_the_average_is_as_uncertain_as_the_people_with_few_answers():
    """a has 2 of 4, b 0 of 96: the average ¼ has the variance (½ · ½ / 3) / 2² = 1/48, that of ¼ · ¾ · 48 = 9 answers.

    If both had the same rate, these would be 2² / (1/4 + 1/96) = 15.4 answers.
    """
    values = np.zeros(100)
    values[:2] = 1.0
    table = group_rates(values, np.repeat(["a", "b"], [4, 96]), np.arange(100) % 4).set_index("group")
    (_, average_high) = clopper_pearson(2.25, 9.0, 0.05 / 4)
    (low, _) = clopper_pearson(2.0, 4.0, 0.05 / 4)
    assert table.loc["a", "difference_low"] == pytest.approx(low - average_high)
