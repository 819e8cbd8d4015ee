"""The plan's predictions where the answer is known."""

import numpy as np
import pytest

from evenhand.mitigation.labelling.threshold_plan import threshold_plan


def sampled(seed, tilt, biased=20, fair=20, templates=8, per_cell=6, styles=5):
    """`biased` descriptors lean to one style each by `tilt`, the fair ones to none."""
    rng = np.random.default_rng(seed)
    p = np.full((biased + fair, styles), 1 / styles)
    for d in range(biased):
        p[d] = (1 - tilt) * p[d] + tilt * np.eye(styles)[d % styles]
    cell = np.repeat(np.arange(len(p) * templates), per_cell)
    descriptor, template = cell // templates, cell % templates
    style = (p[descriptor].cumsum(axis=1) > rng.random(len(cell))[:, None]).argmax(axis=1)
    soft = 0.9 * np.eye(styles)[style] + 0.1 * rng.dirichlet(np.ones(styles), len(cell))
    return soft.astype(np.float32), template, descriptor


@pytest.fixture(scope="module")
def plan():
    return threshold_plan(*sampled(0, 0.3), quantiles=(0.5, 0.7, 0.8, 0.9, 0.99))


def test_a_threshold_above_everything_changes_nothing(plan):
    barely = plan[plan["quantile"] == 0.99]
    assert (barely["predicted_fgb_left"] > 0.75).all()
    assert (barely["predicted_fgb_left"] <= 1.01).all()


def test_a_lower_threshold_that_still_selects_removes_more(plan):
    of_alpha_0 = plan[plan["alpha"] == 0].set_index("quantile")["predicted_fgb_left"]
    assert of_alpha_0[0.8] < of_alpha_0[0.9] < of_alpha_0[0.99]


def test_the_table_says_what_was_labelled(plan):
    assert plan["share_labelled_bias"].to_numpy() == pytest.approx(1 - plan["quantile"].to_numpy(), abs=0.01)
    assert (plan["lower"] <= plan["predicted_fgb_left"]).all()
    assert (plan["predicted_fgb_left"] <= plan["upper"]).all()


def test_the_prediction_stays_bounded_where_filtering_misleads():
    """With almost no bias the labels follow noise: the filtered rows spread, what is predicted does not."""
    misled = threshold_plan(*sampled(1, 0.12, per_cell=3), alphas=(2,), quantiles=(0.3,)).iloc[0]
    assert misled["filtered_fgb_left"] > 2
    assert misled["predicted_fgb_left"] < misled["filtered_fgb_left"] / 5
    assert not misled["trusted"]


def test_it_is_reproducible():
    case = sampled(2, 0.3, biased=5, fair=5)
    assert threshold_plan(*case, seed=3).equals(threshold_plan(*case, seed=3))
