"""The reduction and the difference of two runs agree, also for a weak bias."""

import numpy as np
import pytest

from evenhand.evaluation.families.generation_bias.metric import StyledResponses, compare_generation_bias
from evenhand.evaluation.results import find_score

DESCRIPTORS, TEMPLATES, PER_CELL, STYLES = 24, 6, 4, 12
METRICS = ("fgb_corrected", "fgb_pooled_corrected")


def two_runs(seed, bias, remaining=1.0):
    """Return two runs of one-hot style vectors; `bias` is the share of a style that depends on the descriptor."""
    rng = np.random.default_rng(seed)
    descriptor_p = rng.dirichlet(np.ones(STYLES), DESCRIPTORS)
    cell = np.arange(DESCRIPTORS * TEMPLATES).repeat(PER_CELL)
    names = [f"t{t}" for t in cell % TEMPLATES], [f"d{d}" for d in cell // TEMPLATES], ["x"] * len(cell)
    runs = []
    for share in (bias, bias * remaining):
        p = (1 - share) / STYLES + share * descriptor_p[cell // TEMPLATES]
        style = (p.cumsum(axis=1)[:, :-1] < rng.random(len(cell))[:, None]).sum(axis=1)
        vectors = np.eye(STYLES, dtype=np.float32)[style]
        runs.append(StyledResponses(vectors, *names, [f"s{s}" for s in range(STYLES)]))
    return runs


def excludes_0(interval):
    return interval[0] > 0 or interval[1] < 0


@pytest.mark.parametrize("remaining", [1.0, 0.3])
@pytest.mark.parametrize("bias", [0.2, 0.35, 0.6])
def test_the_reduction_excludes_0_exactly_where_the_difference_does(bias, remaining):
    defined = 0
    for seed in range(60):
        scores = compare_generation_bias(*two_runs(seed, bias, remaining), {}, by_axis=False)
        for metric in METRICS:
            difference, reduction = (find_score(scores, f"{metric}_{name}") for name in ("difference", "reduction"))
            if reduction.interval is None:
                assert np.isnan(reduction.value)
                assert "unbounded" in reduction.reason or difference.ideal > 0  # the bias before is below 0 by chance
                continue
            defined += 1
            assert excludes_0(reduction.interval) == excludes_0(difference.interval) == (difference.p_value < 0.05)
            assert (reduction.value > 0) == (difference.value < 0)
            assert reduction.interval[0] < reduction.value < reduction.interval[1]
            if reduction.jackknife_interval is None:
                assert "for other templates" in reduction.reason
            else:
                assert reduction.jackknife_interval[0] < reduction.value < reduction.jackknife_interval[1]
    assert defined > {0.2: 5, 0.35: 25, 0.6: 90}[bias]


def test_only_the_run_before_decides_whether_a_reduction_is_defined():
    for seed in range(20):
        before, after = two_runs(seed, 0.35, 0.3)
        comparisons = [
            compare_generation_bias(before, run, {}, by_axis=False) for run in (after, two_runs(seed + 100, 0.35)[1])
        ]
        for metric in METRICS:
            one, other = (np.isnan(find_score(scores, f"{metric}_reduction").value) for scores in comparisons)
            assert one == other


def test_equal_runs_have_a_reduction_of_0_without_an_interval():
    before, _ = two_runs(0, 0.6)
    reduction = find_score(compare_generation_bias(before, before, {}), "fgb_pooled_corrected_reduction")
    assert reduction.value == 0 and reduction.interval is None and "no interval" in reduction.reason
