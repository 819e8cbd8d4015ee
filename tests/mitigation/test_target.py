"""The even target: moments and least KL on small exact cases, invariances, and a planted bias."""

import numpy as np
import pytest
from scipy import optimize

from evenhand.evaluation.statistics.cells import arrange_cells
from evenhand.mitigation.target import cross_fitted_spread, fit_target, log_weights
from evenhand.mitigation.tilts import MIN_EFFECTIVE_SHARE, Pool, solve_tilt
from tests.measured_runs import styled_columns

# Two templates, three responses to each of two descriptors, three styles.
STYLES = np.array(
    [
        *([0.7, 0.2, 0.1], [0.1, 0.8, 0.1], [0.3, 0.3, 0.4], [0.2, 0.5, 0.3], [0.6, 0.1, 0.3], [0.4, 0.4, 0.2]),
        *([0.5, 0.3, 0.2], [0.2, 0.2, 0.6], [0.8, 0.1, 0.1], [0.1, 0.6, 0.3], [0.3, 0.4, 0.3], [0.2, 0.7, 0.1]),
    ]
)
TEMPLATE = np.repeat([0, 1], 6)
EFFECT = np.array([0.08, -0.05, -0.03])


def pool_of(styles=STYLES):
    return Pool.from_cells(arrange_cells(styles, TEMPLATE, np.tile([0, 0, 0, 1, 1, 1], 2), min_count=1))


def tilted(exponent, styles=STYLES):
    """Return the shares of exp(exponent · φ) among the responses of each template, (T, 6)."""
    weight = np.exp(styles @ exponent).reshape(2, 6)
    return weight / weight.sum(axis=1, keepdims=True)


def test_the_tilted_responses_have_the_effect_and_the_weights_undo_it():
    pool, shares = pool_of(), STYLES.reshape(2, 6, 3)
    tilt = solve_tilt(pool, EFFECT)
    own = tilted(-tilt.exponent)  # p_d
    mean = np.einsum("ti,tis->s", own, shares) / 2
    assert mean == pytest.approx(STYLES.mean(axis=0) + EFFECT, abs=1e-8)
    log_weight = (STYLES @ tilt.exponent).reshape(2, 6) + pool.log_normalisers(-tilt.exponent)[:, None]
    target = own * np.exp(log_weight)
    assert target == pytest.approx(np.full((2, 6), 1 / 6), abs=1e-12)  # the average, with the mean style 0
    assert tilt.fraction == 1
    assert tilt.kl == pytest.approx((target * np.log(target / own)).sum() / 2, abs=1e-12)


@pytest.mark.parametrize("effect", [EFFECT, -EFFECT, np.array([0.0, 0.1, -0.1])])
def test_no_other_reweighting_with_this_mean_style_is_nearer(effect):
    """A convex solver over all 12 shares finds the same distribution as the 2 variables of the dual."""
    styles = STYLES.reshape(2, 6, 3)

    def kl(shares):
        return float((shares * np.log(shares * 6)).sum() / 2)

    constraints = [
        {"type": "eq", "fun": lambda q: q.reshape(2, 6).sum(axis=1) - 1},
        {
            "type": "eq",
            "fun": lambda q: (
                np.einsum("ti,tis->s", q.reshape(2, 6), styles[..., :2])[:2] / 2 - (STYLES.mean(axis=0) + effect)[:2]
            ),
        },
    ]
    found = optimize.minimize(
        kl, np.full(12, 1 / 6), method="SLSQP", bounds=[(1e-9, 1)] * 12, constraints=constraints,
        options={"ftol": 1e-14, "maxiter": 500},
    )  # fmt: skip
    ours = tilted(-solve_tilt(pool_of(), effect).exponent)
    assert found.success
    assert ours.ravel() == pytest.approx(found.x, abs=1e-5)
    assert kl(ours.ravel()) <= found.fun + 1e-9


def test_a_mean_style_outside_of_the_responses_is_approached():
    for effect in (np.array([0.9, -0.5, -0.4]), np.array([0.34, -0.2, -0.14])):  # no mixture has it; almost none has
        pool = pool_of()
        tilt = solve_tilt(pool, effect)
        own = tilted(-tilt.exponent)
        moved = np.einsum("ti,tis->s", own, STYLES.reshape(2, 6, 3)) / 2 - STYLES.mean(axis=0)
        assert 0 < tilt.fraction < 1
        assert moved == pytest.approx(tilt.fraction * effect, abs=1e-6)
        share = 1 / np.mean((1 / 36 / own).sum(axis=1))  # 1 / E[w²] with w = (1/6) / own
        assert share >= MIN_EFFECTIVE_SHARE - 1e-9


def style_0(template, descriptor, bias):
    """Return the probability of style 0: odd descriptors have `bias` more in log odds, even ones as much less."""
    return 1 / (1 + np.exp(-(0.4 * template - 1.2 + bias * (descriptor % 2 * 2 - 1))))


def planted(bias, per_cell=30, seed=0):
    """Return responses with one of three styles each, to 4 templates and 12 descriptors on 3 axes."""
    rng = np.random.default_rng(seed)
    t, d, _ = (it.ravel() for it in np.meshgrid(np.arange(4), np.arange(12), np.arange(per_cell), indexing="ij"))
    style = np.where(rng.random(len(t)) < style_0(t, d, bias), 0, rng.integers(1, 3, len(t)))
    names = ([f"{kind}{it:02}" for it in codes] for kind, codes in zip("tda", (t, d, d % 3), strict=True))
    return styled_columns(np.eye(3)[style], *map(np.array, names), ["x", "y", "z"])


def test_a_planted_bias_is_removed_by_the_density_ratio():
    responses = planted(0.8, per_cell=60)
    target = fit_target(responses)
    weights = np.exp(log_weights(target, responses))
    t, d = (
        np.array([int(name[1:]) for name in names])
        for names in (responses.table["template"], responses.table["descriptor"])
    )
    own = style_0(t, d, 0.8)
    average = (style_0(t, 0, 0.8) + style_0(t, 1, 0.8)) / 2
    true = np.where(responses.vectors.argmax(axis=1) == 0, average / own, (1 - average) / (1 - own))
    assert np.abs(np.log(weights / true)).mean() < 0.15
    distance = 1.5 * np.mean(own - average, where=d == 1) ** 2
    table = target.table(responses.table["descriptor"].to_numpy(), weights).set_index("descriptor")
    assert table["distance"].mean() == pytest.approx(distance, rel=0.2)  # the other styles move by half as much
    assert (table["fraction"] == 1).all() and (table["n"] == 240).all()
    assert table["kl"].between(0.01, 0.3).all() and table["effective_share"].between(0.5, 0.99).all()
    before, reached = cross_fitted_spread(responses)
    assert before == pytest.approx(distance * 12 / 11, rel=0.25)
    assert abs(reached) < 0.15 * before


def test_without_bias_hardly_any_weight_differs_from_1():
    responses = planted(0.0, per_cell=100)
    weights = np.exp(log_weights(fit_target(responses), responses))
    assert np.abs(weights - 1).mean() < 0.05
    before, reached = cross_fitted_spread(responses)
    assert max(abs(before), abs(reached)) < 0.002


def test_axes_and_descriptors_have_exponents():
    responses = planted(0.8)
    table = fit_target(responses).exponents(responses.styles)
    assert table.columns.tolist() == ["kind", "unit", "x", "y", "z"]
    assert table["kind"].tolist() == ["descriptor"] * 12 + ["axis"] * 3
    of_descriptors = table[table["kind"] == "descriptor"]
    likes = of_descriptors["unit"].str[1:].astype(int) % 2 == 1
    assert (of_descriptors["x"][likes] < -0.1).all() and (of_descriptors["x"][~likes] > 0.1).all()


@pytest.mark.parametrize("n_repeated", [0, 1, 12])
def test_a_few_repeated_cells_do_not_switch_the_shrinkage_off(n_repeated):
    """Without bias, the shrunk effects are small, also if a few cells have two responses and all others one."""
    rng, (n_templates, n_names) = np.random.default_rng(5), (24, 20)
    template, name = (codes.ravel() for codes in np.indices((n_templates, n_names)))
    template, name = (
        np.concatenate([codes, codes[:: 480 // n_repeated][:n_repeated] if n_repeated else []]).astype(int)
        for codes in (template, name)
    )
    vectors = rng.dirichlet(np.ones(4), len(template))
    target = fit_target(styled_columns(vectors, template, name.astype(str), np.repeat("a", len(name)), list("pqrs")))
    assert (target.effects[:n_names] ** 2).sum(axis=1).mean() < 0.002
