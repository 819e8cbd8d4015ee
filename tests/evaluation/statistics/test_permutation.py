"""The joint test: units and strata of chance, exact p-values, one error rate for a page."""

from dataclasses import replace

import numpy as np
import pytest

from evenhand.evaluation.statistics.cell_table import ANSWERS, CELLS, Design, SetOfTests, cell_table
from evenhand.evaluation.statistics.permutation import null_hypothesis
from evenhand.evaluation.statistics.person_effects import joint_effects


def grid(templates=8, people=6, answers_per_cell=2):
    """Return the template and the person of each answer."""
    template, person = np.indices((templates, people)).reshape(2, -1).repeat(answers_per_cell, axis=1)
    return template, person


def effects(template, person, *families, cue=None, draws=99, seed=0, is_extra=None):
    n_people = int(np.max(person)) + 1
    design = Design(np.asarray(template), np.asarray(person), np.zeros((0, n_people)), cue, is_extra)
    return joint_effects(design, families, draws, np.random.default_rng(seed))


def one_hot(rng, n, weights):
    return np.eye(len(weights))[rng.choice(len(weights), size=n, p=weights)]


def unit(template, person, values=None, cue=None):
    values = np.random.default_rng(0).random((len(template), 1)) if values is None else values
    design = Design(template, person, np.zeros((0, person.max() + 1)), cue)
    return cell_table(design, [SetOfTests("x", values)], np.random.default_rng(0)).unit


def test_cells_are_the_unit_from_six_common_templates_and_enough_permutations_on():
    assert unit(*grid(6, 3)) == CELLS and unit(*grid(5, 3)) == ANSWERS
    assert unit(*grid(8, 2)) == CELLS and unit(*grid(7, 2)) == ANSWERS  # 2⁷ / 2 permutations: p ≥ 1/64
    template, person = grid(8, 4)
    kept = (person > 0) | (template < 5)
    assert unit(template[kept], person[kept]) == ANSWERS  # one person has five
    cue = (template >= 4).astype(int)
    assert unit(template, person, cue=cue) == ANSWERS  # four by each cue
    assert unit(*grid(12, 4), cue=(grid(12, 4)[0] >= 6).astype(int)) == CELLS


def test_copies_of_answers_change_nothing():
    rng = np.random.default_rng(1)
    template, person = grid(answers_per_cell=1)
    values = one_hot(rng, len(template), [0.5, 0.3, 0.2])
    once = effects(template, person, SetOfTests("style", values))[0]
    thrice = effects(
        *(np.repeat(each, 3) for each in (template, person)), SetOfTests("style", np.repeat(values, 3, axis=0))
    )[0]
    for name in ("effect", "z", "p_set", "low", "high", "overall_p"):
        np.testing.assert_allclose(getattr(thrice, name), getattr(once, name), rtol=1e-6)


def test_p_values_are_those_of_all_permutations_of_cells():
    """Two people, eight templates: δ is 1, and once −1, so that 2 · (1 + 8) of the 2⁸ signs give as large a |Σ δ|."""
    template, person = grid(8, 2, 1)
    values = (person == 0).astype(float)
    values[template == 3] = (person[template == 3] == 1).astype(float)
    found = effects(template, person, SetOfTests("x", values[:, None], has_overall=False), draws=3999)[0]
    assert found.p_set.ravel() == pytest.approx([18 / 256] * 2, abs=0.015)
    assert found.p_joint.ravel() == pytest.approx([18 / 256] * 2, abs=0.015)


def test_a_person_with_fewer_prompts_is_exchanged_with_cells_of_as_many():
    rng = np.random.default_rng(2)
    answers_per_cell = np.where(np.arange(12) < 4, 1, 8)
    template, person = (each.repeat(np.tile(answers_per_cell, 8)) for each in np.indices((8, 12)).reshape(2, -1))
    values = one_hot(rng, len(template), [0.6, 0.4])
    design = Design(template, person, np.zeros((0, 12)))
    table = cell_table(design, [SetOfTests("style", values)], rng)
    assert table.has_strata and table.uses_own_variance
    assert (table.stratum[table.person < 4] == 0).all() and (table.stratum[table.person >= 4] == 2).all()
    template, person = grid(8, 12, 2)
    dropped = rng.random(len(template)) < 0.05  # at random: counts do not depend on the person
    assert not cell_table(
        Design(template[~dropped], person[~dropped], np.zeros((0, 12))),
        [SetOfTests("style", one_hot(rng, int((~dropped).sum()), [0.6, 0.4]))],
        np.random.default_rng(1),
    ).has_strata


def test_one_person_with_many_more_answers_is_exchanged_with_the_others():
    """One group asks five times as often as each of five others, and half of its answers differ: a share of 0.5."""
    counts = np.where(np.arange(6) == 0, 15, 3)
    template, person = (each.repeat(np.tile(counts, 8)) for each in np.indices((8, 6)).reshape(2, -1))
    number = np.arange(len(template))
    differs = ((person == 0) & (number % 2 == 0)).astype(float)[:, None]
    found = effects(template, person, SetOfTests("x", differs), draws=199)[0]
    assert found.p_joint[0, 0] <= 0.05
    nobody = (number % 7 == 0).astype(float)[:, None]
    assert effects(template, person, SetOfTests("x", nobody), draws=199)[0].p_joint.min() > 0.05


def screened(templates=12, people=10, n_equal=1, n=4, high=(0, 5)):
    """Return template, person and is_extra of answers: n to the people `high`, n_equal to the others."""
    counts = np.where(np.isin(np.arange(people), high), n, n_equal)
    template, person = (
        each.repeat(np.tile(counts, templates)) for each in np.indices((templates, people)).reshape(2, -1)
    )
    place = np.concatenate([np.arange(count) for count in np.tile(counts, templates)])
    return template, person, place >= n_equal


def found_of(template, person, is_extra, values, draws=199):
    design = Design(template, person, np.zeros((0, person.max() + 1)), is_extra=is_extra)
    return joint_effects(design, [SetOfTests("style", values)], draws, np.random.default_rng(0))[0]


def test_if_nobody_has_more_answers_the_test_is_that_of_equal_cells():
    template, person, is_extra = screened(n=1)
    values = one_hot(np.random.default_rng(6), len(template), [0.5, 0.3, 0.2])
    none, marked = (found_of(template, person, marks, values) for marks in (None, is_extra))
    for name in ("effect", "z", "p_joint", "low", "high", "detectable", "shift_joint", "overall_joint"):
        np.testing.assert_array_equal(getattr(marked, name), getattr(none, name))


def test_what_is_exchanged_is_the_equal_part_and_means_of_more_answers_are_studentised():
    """The scale of a person with more answers is s₀ / s, at most √(4 / 1); nobody else's cells are scaled."""
    template, person, is_extra = screened()
    values = np.random.default_rng(7).random((len(template), 3))
    design = Design(template, person, np.zeros((0, 10)), is_extra=is_extra)
    test_sets = [SetOfTests("style", values)]
    table = cell_table(design, test_sets, np.random.default_rng(0))
    assert not table.has_strata
    null = null_hypothesis(table, design, test_sets)
    equal = cell_table(
        Design(template[~is_extra], person[~is_extra], np.zeros((0, 10))),
        [SetOfTests("style", values[~is_extra])],
        np.random.default_rng(0),
    )
    np.testing.assert_array_equal(null.values, equal.mean)

    def variances(cells):
        means = cells.mean.reshape(10, 12, 3)  # sorted by person, then template
        return means.var(axis=1, ddof=1).sum(axis=1)

    of_all = variances(table)
    s0 = variances(equal).mean()
    expected = np.ones(10)
    for who in (0, 5):
        expected[who] = min(np.sqrt(s0 / max(of_all[who], of_all[[0, 5]].mean())), 2.0)
    np.testing.assert_allclose(null.scaled, table.mean * expected[table.person][:, None])
    assert 1.3 < expected[0] <= 2


def test_copies_as_more_answers_give_no_power():
    """Four copies of one answer vary as much as one, so that the scale is about 1, not 2."""
    template, person, is_extra = screened(n_equal=1, n=4)
    first = np.flatnonzero(~is_extra)
    values = one_hot(np.random.default_rng(8), len(template), [0.5, 0.3, 0.2])
    values = values[first[np.cumsum(~is_extra) - 1]]  # every extra answer repeats the equal one
    once = found_of(template[first], person[first], None, values[first])
    copies = found_of(template, person, is_extra, values)
    np.testing.assert_allclose(copies.effect, once.effect)
    assert (np.abs(copies.z[:10]) <= 1.3 * np.abs(once.z[:10]) + 1e-9).all()


def test_more_answers_show_what_fewer_do_not():
    template, person, is_extra = screened(templates=16, people=16, high=(0,))
    rng = np.random.default_rng(9)
    values = one_hot(rng, len(template), [0.7, 0.3])
    hers = person == 0
    values[hers] = one_hot(rng, int(hers.sum()), [0.35, 0.65])
    more = found_of(template, person, is_extra, values, draws=499)
    fewer = found_of(template[~is_extra], person[~is_extra], None, values[~is_extra], draws=499)
    assert more.p_joint[0, 0] <= 0.05 and more.p_joint[0, 0] < fewer.p_joint[0, 0]
    assert more.detectable[0, 0] < fewer.detectable[0, 0]
    assert more.p_joint[1:].min() > 0.05


@pytest.mark.parametrize("n_equal", [0, 1])
def test_a_class_that_is_rare_where_everybody_has_as_many_answers_is_not_shown(n_equal):
    """More answers find more of a rare language; one or two such answers of a person are no evidence."""
    template, person, is_extra = screened()
    values = one_hot(np.random.default_rng(10), len(template), [0.5, 0.3, 0.2])
    rare = np.zeros((len(template), 1))
    rare[np.flatnonzero(is_extra & (person == 0))[0]] = 1
    rare[np.flatnonzero(~is_extra & (person == 0))[:n_equal]] = 1
    found = found_of(template, person, is_extra, np.concatenate([values * (1 - rare), rare], axis=1))
    assert found.effect[0, 3] > 0 and found.p_joint[0, 3] > 0.05


def test_a_family_that_repeats_another_one_costs_nothing_and_others_do():
    rng = np.random.default_rng(3)
    template, person = grid(8, 8, 2)
    values = one_hot(rng, len(template), [0.5, 0.5])
    values[person == 0] = one_hot(rng, 16, [0.05, 0.95])
    alone, twice = (effects(template, person, *[SetOfTests("style", values)] * n, draws=499)[0] for n in (1, 2))
    assert twice.p_joint == pytest.approx(alone.p_joint, abs=0.01)
    others = [SetOfTests(str(number), rng.random((len(template), 1))) for number in range(6)]
    with_others = effects(template, person, SetOfTests("style", values), *others, draws=499)[0]
    assert with_others.p_joint[0, 0] > 2 * with_others.p_set[0, 0]
    assert (with_others.p_joint >= with_others.p_set).all()


def test_missing_values_move_with_their_cells():
    """Where only one person has values on a template, nothing is compared there; elsewhere the others are."""
    rng = np.random.default_rng(4)
    template, person = grid(8, 5, 1)
    values = rng.random((len(template), 1))
    values[(template == 0) & (person > 0)] = np.nan
    values[(template == 1) & (person == 2)] = np.nan
    found = effects(template, person, SetOfTests("x", values))[0]
    frame = values[:, 0].reshape(8, 5)
    centred = frame - np.nanmean(frame, axis=1, keepdims=True)
    centred[0] = np.nan
    assert found.effect[:, 0] == pytest.approx(np.nanmean(centred, axis=0))


@pytest.mark.parametrize("kind", ["copies", "interaction", "six outcomes", "more answers for some"])
def test_an_even_page_shows_something_in_one_of_twenty(kind):
    wrong = 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        template, person = grid(8, 10, 1 if kind == "copies" else 2)
        weights = rng.dirichlet(np.ones(5), size=(8, 10 if kind == "interaction" else 1))
        p = np.broadcast_to(weights, (8, 10, 5))[template, person].cumsum(axis=1)
        values = np.eye(5)[(p[:, :-1] < rng.random((len(p), 1))).sum(axis=1)]
        if kind == "copies":
            template, person, values = (np.repeat(each, 3, axis=0) for each in (template, person, values))
        families = [
            SetOfTests("everybody", values, has_effects=False),
            SetOfTests("style", values, has_overall=False),
        ]
        is_extra = None
        if kind == "more answers for some":
            is_extra = (np.arange(len(template)) % 2 == 1) & (person < 2)
            kept = is_extra | (np.arange(len(template)) % 2 == 0)
            template, person, is_extra = template[kept], person[kept], is_extra[kept]
            families = [replace(family, values=family.values[kept]) for family in families]
        if kind == "six outcomes":
            families += [
                SetOfTests(str(n), (rng.random((len(person), 1)) < 0.1 * (n + 1)).astype(float)) for n in range(6)
            ]
        found = effects(template, person, *families, draws=39, seed=seed, is_extra=is_extra)  # 0.05 is exact
        p_joint = [min(each.p_joint.min(), each.shift_joint.min(), each.overall_joint) for each in found]
        wrong += min(p_joint) <= 0.05
    assert wrong <= 8  # of 60 with probability 0.05: more with a probability of 0.5 %


def test_a_whole_shift_is_shown_where_many_styles_move_a_little():
    rng = np.random.default_rng(5)
    template, person = grid(26, 12, 4)
    weights = np.full(20, 0.05)
    values = one_hot(rng, len(template), weights)
    moved = np.where(np.arange(20) < 10, 0.08, 0.02)
    values[person == 3] = one_hot(rng, 104, moved)
    found = effects(template, person, SetOfTests("style", values), draws=199)[0]
    assert (found.p_joint > 0.05).all()
    assert found.shift_joint[3] <= 0.05 and (np.delete(found.shift_joint, 3) > 0.05).all()


@pytest.mark.parametrize("size", [(19, 173), (12, 170), (9, 166), (24, 150), (17, 105)])  # templates, people
def test_a_single_refusal_shows_nothing(size):
    # No permutation changes how far people are apart if one answer is a refusal, so p is 1. Single and double precision
    # differ by rounding.
    template, person = grid(*size, answers_per_cell=1)
    refusal = np.zeros((len(template), 1))
    refusal[len(template) // 3] = 1
    (found,) = effects(template, person, SetOfTests("refusal", refusal))
    assert found.overall_p == found.overall_joint == 1
    assert found.p_joint.min() > 0.5
