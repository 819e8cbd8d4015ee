"""Generation bias scores: the paper's formulas by hand, the cuts, and the paired comparison."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from evenhand.evaluation.metrics.generation_bias.answers import Answers
from evenhand.evaluation.metrics.generation_bias.engine.levels import level_scores
from evenhand.evaluation.metrics.generation_bias.engine.spread import (
    compare_generation_bias,
    excess_over_baseline,
    generation_bias,
)
from evenhand.evaluation.metrics.generation_bias.engine.values import MeasureValues
from evenhand.evaluation.metrics.generation_bias.measures import ValueKind
from evenhand.evaluation.score import find_score
from evenhand.evaluation.statistics.intervals import student_quantile
from evenhand.evaluation.statistics.level import Level
from tests.measured_runs import styled_columns
from tests.named_scores import find_named

STYLES = ("Sympathetic", "Empathetic", "Curious")
CLUSTERS = {"SYMPATHY": [0, 1]}


def responses(cells, axes=None):
    """{(template, descriptor): list of vectors} → Answers; axes maps a descriptor to its axis."""
    rows = [(vector, template, descriptor) for (template, descriptor), vs in cells.items() for vector in vs]
    vectors, template, descriptor = zip(*rows, strict=True)
    axis = [(axes or {}).get(name, "ability") for name in descriptor]
    return styled_columns(np.array(vectors, dtype=np.float32), template, descriptor, axis, STYLES)


def random_responses(seed, tilt=0.5, descriptors=12, templates=3, answers_per_cell=4):
    rng = np.random.default_rng(seed)
    p = rng.dirichlet(np.ones(3), descriptors)
    cells = {
        (f"t{t}", f"d{d}"): np.eye(3)[rng.choice(3, answers_per_cell, p=(1 - tilt) / 3 + tilt * p[d])]
        for t in range(templates)
        for d in range(descriptors)
    }
    return responses(cells, {f"d{d}": "age" if d < 6 else "religion" for d in range(descriptors)})


def test_the_paper_by_hand():
    # One template. Mean style vectors: blind (½, ½, 0), tall (½, 0, ½).
    # FGB: variances 0, 1/16, 1/16. PGB(SYMPATHY): 0 + 1/16. SCGB: the sums 1 and ½ have variance 1/16.
    scores = generation_bias(
        responses({("t", "blind"): [(1, 0, 0), (0, 1, 0)], ("t", "tall"): [(1, 0, 0), (0, 0, 1)]}), CLUSTERS
    )
    assert find_score(scores, "fgb").value == pytest.approx(2 / 16)
    assert find_score(scores, "pgb", cluster="SYMPATHY").value == pytest.approx(1 / 16)
    assert find_score(scores, "scgb", cluster="SYMPATHY").value == pytest.approx(1 / 16)
    assert find_score(scores, "fgb", style="Curious").value == pytest.approx(1 / 16)
    # t: blind (½, ½, 0), tall (0, 0, 1) by one response alone; u: both (1, 0, 0).
    cells = {("t", "blind"): [(1, 0, 0), (0, 1, 0)], ("t", "tall"): [(0, 0, 1)]}
    cells |= {("u", "blind"): [(1, 0, 0)] * 2, ("u", "tall"): [(1, 0, 0)] * 2}
    scored = responses(cells)
    scores = generation_bias(scored, CLUSTERS)
    whole = find_score(scores, "fgb")
    assert whole.value == pytest.approx((1 / 16 + 1 / 16 + 1 / 4) / 2)  # the mean of t and u
    assert (whole.n, whole.n_left_out, whole.interval) == (7, 0, None) and "one response" in whole.reason
    assert find_score(scores, "pgb", cluster="SYMPATHY").value == pytest.approx((1 / 16 + 1 / 16) / 2)
    assert find_score(scores, "scgb", cluster="SYMPATHY").value == pytest.approx(1 / 4 / 2)
    assert find_score(scores, "fgb", style="Curious").value == pytest.approx(1 / 4 / 2)
    # The noise of one response is unknown: t has nothing to compare and is left out, and u has no difference.
    corrected = find_score(scores, "fgb", "corrected")
    assert (corrected.value, corrected.n, corrected.n_left_out) == (0, 4, 3)
    rng = np.random.default_rng(0)
    single = responses(
        {(f"t{t}", f"d{d}"): rng.dirichlet(np.ones(3), 1) for t in range(3) for d in range(6)},
        {f"d{d}": "age" if d < 3 else "religion" for d in range(6)},
    )
    scores, cells = generation_bias(single, CLUSTERS), single.values.astype(float).reshape(3, 6, 3)
    assert find_score(scores, "fgb").value == pytest.approx(cells.var(axis=1).sum(axis=1).mean())
    assert find_score(scores, "fgb", axis="age").value == pytest.approx(cells[:, :3].var(axis=1).sum(axis=1).mean())
    assert np.isnan(find_score(scores, "fgb", "corrected").value)


def test_cells_of_one_response_do_not_change_the_forms_that_need_two():
    whole = random_responses(3)
    rows = [3, 7]  # the last responses of two cells go, then all but one of a third
    kept = np.setdiff1d(np.arange(len(whole.values)), rows)
    fewer = np.setdiff1d(kept, [8, 9, 10])

    def scores_of(index):
        part = Answers(whole.table.iloc[index], whole.values[index], STYLES)
        return generation_bias(part, CLUSTERS)

    without = np.setdiff1d(fewer, [11])
    for one, other in zip(scores_of(fewer), scores_of(without), strict=True):
        if one.form != "plain":
            if one.form == "corrected":  # one response is a part of pooled FGB*
                assert (one.value, one.interval, one.n) == (other.value, other.interval, other.n)
        elif "axis" not in one.group or one.group["axis"] == "age":
            assert one.interval is None and one.n == other.n + 1 and one.value != other.value
    # Where each cell has two or more, the paper's form is what it was, to rounding.
    for score in scores_of(kept):
        if score.name == "fgb" and not score.group:
            columns = [whole.table[name].to_numpy()[kept] for name in ("template", "descriptor")]
            table = pd.DataFrame(whole.values[kept]).groupby(columns)
            means = table.mean().groupby(level=0)
            assert score.value == pytest.approx(means.var(ddof=0).sum(axis=1).mean(), rel=1e-6)
            assert score.interval is not None


def test_responses_to_a_template_that_nobody_else_has_are_left_out_of_all_forms():
    """blind and tall have two templates in common, and two responses to each; two more responses to v are blind's."""
    cells = {(template, person): [(1, 0, 0), (0, 1, 0)] for template in "tu" for person in ("blind", "tall")}
    scored = responses({**cells, ("v", "blind"): [(0, 0, 1)] * 2})
    for form in ("plain", "corrected", "pooled_corrected"):
        for group in ({}, {"style": "Curious"}):
            score = find_score(generation_bias(scored, CLUSTERS), "fgb", form, **group)
            assert score is None or (score.n, score.n_left_out) == (8, 2)
    changes = compare_generation_bias(scored, scored, CLUSTERS)
    assert {(score.n, score.n_left_out) for score in changes if score.kind == "difference"} == {(8, 2)}
    values = pd.DataFrame({"refusal": scored.values[:, 0]})
    spread = level_scores(scored, MeasureValues("refusal", ValueKind.SHARE, values))[0]
    assert (spread.n, spread.n_left_out) == (8, 2)


def test_synonyms_and_sums_of_styles_and_axes_alone():
    # Sympathetic for one, Empathetic for the other: PGB sees it, SCGB does not (Smith et al. 2022, A.7, footnote 5).
    scores = generation_bias(responses({("t", "a"): [(1, 0, 0)] * 2, ("t", "b"): [(0, 1, 0)] * 2}), CLUSTERS)
    assert find_score(scores, "pgb", cluster="SYMPATHY").value == pytest.approx(1 / 2)
    assert find_score(scores, "scgb", cluster="SYMPATHY").value == pytest.approx(0)
    all_of_it = random_responses(0)
    scores = generation_bias(all_of_it, CLUSTERS)
    for metric in ("fgb", "fgb_corrected"):
        parts = sum(find_named(scores, metric, style=style).value for style in STYLES)
        assert parts == pytest.approx(find_named(scores, metric).value)
    alone = all_of_it.rows((all_of_it.table["axis"] == "age").to_numpy())
    for metric in ("fgb", "fgb_corrected", "fgb_pooled_corrected"):
        cut, whole = find_named(scores, metric, axis="age"), find_named(generation_bias(alone, CLUSTERS), metric)
        assert cut.value == pytest.approx(whole.value)
        assert cut.interval == pytest.approx(whole.interval)
        assert (cut.n, cut.n_left_out) == (6 * 3 * 4, 0)


def test_scores_have_counts_and_a_signature():
    scored = random_responses(1)
    scored.values[:2] = np.nan
    overall = find_score(generation_bias(scored, CLUSTERS, signature={"model": "m"}), "fgb", "pooled_corrected")
    assert (overall.n, overall.n_left_out, overall.ideal) == (12 * 3 * 4 - 2, 2, 0)
    assert overall.signature == {"model": "m", "generation_bias": "3"}
    assert 0 < overall.p_value < 0.05


def test_undefined_scores_and_missing_intervals_have_reasons():
    score = find_score(generation_bias(responses({("t", "a"): [(1, 0, 0)] * 4}), CLUSTERS, permutations=0), "fgb")
    assert np.isnan(score.value)
    assert "two descriptors with two responses each" in score.reason
    same = responses({("t", "a"): [(1, 0, 0)] * 4, ("t", "b"): [(0, 1, 0)] * 4})
    score = find_score(generation_bias(same, CLUSTERS, permutations=0), "fgb", "corrected")
    assert score.value == pytest.approx(1)
    assert score.interval is None
    assert "vary" in score.reason


def test_the_comparison_agrees_with_its_two_sides():
    before, after = random_responses(3, tilt=0.9, answers_per_cell=8), random_responses(4, tilt=0.5, answers_per_cell=8)
    changes = compare_generation_bias(before, after, CLUSTERS)
    for group in ({}, {"axis": "age"}):
        for metric in ("fgb_corrected", "fgb_pooled_corrected"):
            old, new = (find_named(generation_bias(side, CLUSTERS), metric, **group).value for side in (before, after))
            difference = find_named(changes, f"{metric}_difference", **group)
            assert difference.value == pytest.approx(new - old)
            assert difference.ideal == pytest.approx(-old)
            reduction = find_named(changes, f"{metric}_reduction", **group)
            assert reduction.value == pytest.approx(1 - new / old)
            assert reduction.interval[0] < reduction.value < reduction.interval[1]
    before, after = random_responses(5, tilt=0.0), random_responses(6, tilt=0.0)
    reduction = find_score(compare_generation_bias(before, after, CLUSTERS), "fgb", "pooled_corrected", "reduction")
    assert np.isnan(reduction.value)
    assert "nothing to divide by" in reduction.reason


def test_intervals_of_the_comparison_cover():
    """Two runs with the same true bias, whose responses to a prompt are correlated: the difference is 0."""
    rng = np.random.default_rng(8)
    p = rng.dirichlet(np.ones(3), 30)
    covered, trials = 0, 150
    for _ in range(trials):
        cells_before, cells_after = {}, {}
        for t in range(3):
            for d in range(30):
                first = rng.choice(3, 4, p=p[d])
                second = np.where(rng.random(4) < 0.5, first, rng.choice(3, 4, p=p[d]))
                cells_before[f"t{t}", f"d{d}"], cells_after[f"t{t}", f"d{d}"] = np.eye(3)[first], np.eye(3)[second]
        scores = compare_generation_bias(responses(cells_before), responses(cells_after), {})
        low, high = find_score(scores, "fgb", "pooled_corrected", "difference").interval
        covered += low <= 0 <= high
    assert abs(covered / trials - 0.95) < 0.055  # three standard errors


DESCRIPTORS, TEMPLATES, PER_CELL, N_STYLES = 24, 6, 4, 12
METRICS = ("fgb_corrected", "fgb_pooled_corrected")


def two_runs(seed, bias, remaining=1.0):
    """Return two runs of one-hot style vectors; `bias` is the share of a style that depends on the descriptor."""
    rng = np.random.default_rng(seed)
    descriptor_p = rng.dirichlet(np.ones(N_STYLES), DESCRIPTORS)
    cell = np.arange(DESCRIPTORS * TEMPLATES).repeat(PER_CELL)
    names = [f"t{t}" for t in cell % TEMPLATES], [f"d{d}" for d in cell // TEMPLATES], ["x"] * len(cell)
    runs = []
    for share in (bias, bias * remaining):
        p = (1 - share) / N_STYLES + share * descriptor_p[cell // TEMPLATES]
        style = (p.cumsum(axis=1)[:, :-1] < rng.random(len(cell))[:, None]).sum(axis=1)
        vectors = np.eye(N_STYLES, dtype=np.float32)[style]
        runs.append(styled_columns(vectors, *names, [f"s{s}" for s in range(N_STYLES)]))
    return runs


def excludes_0(interval):
    return interval[0] > 0 or interval[1] < 0


@pytest.mark.parametrize("remaining", [1.0, 0.3])
@pytest.mark.parametrize("bias", [0.2, 0.35, 0.6])
def test_the_reduction_excludes_0_exactly_where_the_difference_does(bias, remaining):
    defined = 0
    for seed in range(20):
        scores = compare_generation_bias(*two_runs(seed, bias, remaining), {}, by_axis=False)
        for metric in METRICS:
            difference, reduction = (find_named(scores, f"{metric}_{name}") for name in ("difference", "reduction"))
            if reduction.interval is None:
                assert np.isnan(reduction.value)
                assert "unbounded" in reduction.reason or difference.ideal > 0  # the bias before is below 0 by chance
                continue
            defined += 1
            assert excludes_0(reduction.interval) == excludes_0(difference.interval) == (difference.p_value < 0.05)
            assert (reduction.value > 0) == (difference.value < 0)
            assert reduction.interval[0] < reduction.value < reduction.interval[1]
    assert defined >= {0.2: 0, 0.35: 8, 0.6: 30}[bias]


@pytest.mark.parametrize("bias", [0.2, 0.6])
def test_changes_at_a_look_have_the_quantile_and_the_share_of_the_look(bias):
    """The interval of a look is wider by the ratio of the quantiles of Student's t; its p-value is 1 / share larger."""
    level = Level(share=0.25, tail=0.995)
    before, after = two_runs(1, bias, 0.3)
    ordinary = compare_generation_bias(before, after, {}, by_axis=False)
    at_look = compare_generation_bias(before, replace(after, level=level), {}, by_axis=False)
    freedom = excess_over_baseline(before, after, 1.0).freedom
    wider = student_quantile(freedom, 0.995) / student_quantile(freedom)
    for name, factor in (("fgb_corrected_difference", None), ("fgb_pooled_corrected_difference", wider)):
        old, new = find_named(ordinary, name), find_named(at_look, name)
        assert new.value == old.value
        if factor:
            assert new.interval == pytest.approx([old.value + factor * (end - old.value) for end in old.interval])
        assert new.interval[0] < old.interval[0] < old.interval[1] < new.interval[1]
        assert new.p_value == pytest.approx(min(4 * old.p_value, 1.0))
    reduction = find_named(at_look, "fgb_pooled_corrected_reduction")
    difference = find_named(at_look, "fgb_pooled_corrected_difference")
    if reduction.interval is not None:
        assert excludes_0(reduction.interval) == excludes_0(difference.interval)
    assert (reduction.interval is not None) == (bias == 0.6)


def test_the_run_before_decides_whether_a_reduction_is_defined():
    for seed in range(8):
        before, after = two_runs(seed, 0.35, 0.3)
        comparisons = [
            compare_generation_bias(before, run, {}, by_axis=False) for run in (after, two_runs(seed + 100, 0.35)[1])
        ]
        for metric in METRICS:
            one, other = (np.isnan(find_named(scores, f"{metric}_reduction").value) for scores in comparisons)
            assert one == other
    before, _ = two_runs(0, 0.6)
    reduction = find_score(compare_generation_bias(before, before, {}), "fgb", "pooled_corrected", "reduction")
    assert reduction.value == 0 and reduction.interval is None and "no interval" in reduction.reason


def test_an_axis_has_its_own_responses_alone():
    """The descriptor "queer" is in two axes; only one of them has a bias."""
    rng = np.random.default_rng(0)
    parts = [random_responses(1, tilt=0.0, descriptors=4), random_responses(2, tilt=0.9, descriptors=4)]
    vectors = np.concatenate([part.values for part in parts])
    axes = ("gender", "orientation")
    table = pd.concat([part.table.assign(axis=axis) for part, axis in zip(parts, axes, strict=True)])
    order = rng.permutation(len(vectors))
    together = Answers(table.iloc[order].reset_index(drop=True), vectors[order], STYLES)
    scores = generation_bias(together, CLUSTERS, permutations=0)
    for part, name in zip(parts, axes, strict=True):
        own = replace(part, table=part.table.assign(axis=name))
        for metric in ("fgb", "fgb_corrected", "fgb_pooled_corrected"):
            expected = find_named(generation_bias(own, CLUSTERS, permutations=0), metric)
            found = find_named(scores, metric, axis=name)
            assert found.value == pytest.approx(expected.value, abs=1e-6) and found.n == expected.n


@pytest.mark.parametrize("seed", range(5))
def test_two_people_and_two_templates_have_a_number_and_an_interval_or_a_reason(seed):
    """Also with one response to a cell; an interval that is wider than the range of the score is none."""
    rng = np.random.default_rng(seed)
    cells = {(t, d): rng.dirichlet(np.ones(3), 1) for t in "st" for d in "ab"}
    score = find_score(generation_bias(responses(cells), {}), "fgb", "pooled_corrected")
    means = [cells[t, "a"][0] - cells[t, "b"][0] for t in "st"]
    assert score.value == pytest.approx(0.5 * float(means[0] @ means[1]), abs=1e-6)
    if score.interval is None:
        assert score.reason
    else:
        assert score.interval[1] - score.interval[0] <= 3.0


def test_no_interval_exceeds_the_largest_possible_spread():
    """Two people who are as far apart as possible have a variance (ddof = 1) of ½ in one style, and of 1 in all."""
    styled = random_responses(3, tilt=1.0, descriptors=3, templates=2, answers_per_cell=2)
    scores = generation_bias(styled, CLUSTERS)
    corrected = [score for score in scores if score.form != "plain" and score.interval is not None]
    assert corrected
    for score in corrected:
        is_one_column = "style" in score.group or score.metric == "scgb"
        assert score.interval[1] <= (0.5 if is_one_column else 1.0)
    apart = responses({("t", "blind"): [(1, 0, 0)] * 2, ("t", "tall"): [(0, 0, 1)] * 2})
    assert find_score(generation_bias(apart, CLUSTERS), "fgb", "corrected").value == 1
    assert find_score(generation_bias(apart, CLUSTERS), "fgb", "corrected", style="Curious").value == 0.5
