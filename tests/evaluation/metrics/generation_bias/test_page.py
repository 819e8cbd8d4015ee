"""The verdict and the warnings of a report follow from the numbers."""

import math
import re

import pytest

from evenhand.evaluation.metrics.generation_bias.verdict import comparison_verdict, warnings
from tests.evaluation.metrics.generation_bias.conftest import POOLED, score

UNBOUNDED = "its 95 % interval is unbounded"
UNDEFINED = (math.nan, None, None, UNBOUNDED)
NOISE = (0.00009, (-0.00012, 0.00031))
BORDERLINE = (0.0004, (-0.00005, 0.0008), 0.04)


@pytest.mark.parametrize(
    ("scores", "pattern"),
    [
        (
            [(0.00947, (0.009, 0.01)), (0.00176, (0.001, 0.002)), (-0.0077, (-0.008, -0.007)), (0.81, (0.78, 0.85))],
            r"as if 6\.9, then 3\.0 of .*−56 %, .*−53 to −61 %.*−81 %, .*−78 to −85 %.* 9\.47 to 1\.76 .*above 0\.$",
        ),
        (
            [(0.009, (0.008, 0.01)), (0.0001, (-0.0002, 0.0004)), (-0.0089, (-0.01, -0.008)), (0.99, (0.95, 1.02))],
            r"−90 %, .*−78 to −100 %.*−95 to −102 %: .*fell .* 9\.00 to 0\.10 .*not distinguishable from 0\.$",
        ),
        (
            [(0.009, (0.008, 0.01)), (0.0088, (0.0078, 0.0098)), (-0.0002, (-0.001, 0.0006)), (0.02, (-0.07, 0.11))],
            r"^No change of the whole .*; 2 single differences .* 9\.00 to 8\.80 .*−0\.20 .*−1\.00 to \+0\.60",
        ),
        (
            [(0.004, (0.003, 0.005)), (0.006, (0.005, 0.007)), (0.002, (0.001, 0.003)), (-0.5, (-0.8, -0.2))],
            r"as if 4\.5, then 5\.5 .*\+22 %, .* 10 to 34 %.*\+50 %, .* 20 to 80 %.*rose from 4\.00 to 6\.00",
        ),
        (
            [(0.009, (0.001, 0.02)), (0.002, (-0.004, 0.009)), (-0.007, (-0.013, -0.001)), UNDEFINED],
            rf"fell from 9\.00 to 2\.00 .*not distinguishable from 0\. .*undefined: {UNBOUNDED}\.$",
        ),
        # The difference is significant, but no bias is shown before.
        (
            [(0.00064, (-0.00014, 0.00142)), (-0.00051, (-0.001, 0.0)), (-0.00115, (-0.002, -0.0003))],
            r"^No bias .* 0\.64 to −0\.51 .*−0\.14, 1\.42",
        ),
        ([NOISE, (0.006, (0.005, 0.007)), (0.0059, (0.004, 0.008))], r"rose from 0\.09 to 6\.00"),
        # The permutation test and the interval disagree, so neither is claimed.
        (
            [(0.009, (0.008, 0.01)), BORDERLINE, (-0.0086, (-0.01, -0.007)), (0.95, (0.9, 1.0))],
            r"^(?!.*(distinguishable|above 0)).*unclear.*p = 0\.04",
        ),
        ([(math.nan, None, None, "few"), (0.001, (0.0, 0.002))], r"^No verdict: .*before.*: few\.$"),
    ],
)  # fmt: skip
def test_verdict_of_a_comparison(scores, pattern):
    names = (POOLED, POOLED, f"{POOLED}_difference", f"{POOLED}_reduction")
    before, after, *changes = (score(name, *it) for name, it in zip(names, scores, strict=False))
    singles = [score("effect_change", 0.1, **{outcome: "a"}) for outcome in ("style", "style", "cluster")]
    verdict = comparison_verdict([[before], [after], [*changes, *singles]])
    assert re.search(pattern, verdict), verdict


def test_only_a_cluster_that_rose_has_a_warning(tuned):
    (warning,) = warnings(tuned)
    numbers = ("cluster HATE rose", "pooled SCGB*", "0.08 to 0.66", "+0.58", "[+0.41, +0.74]", "p = 0.0003")
    assert all(number in warning for number in numbers), warning


@pytest.mark.parametrize(("p_value", "clusters"), [(0.03, []), (0.008, ["CLUSTER 0"])])
def test_rises_are_corrected_for_the_number_of_clusters(p_value, clusters):
    """p = 0.03 among six: an interval above 0, as one of so many is by chance in 14 %."""
    name = "scgb_pooled_corrected"
    p_values = {f"CLUSTER {i}": p for i, p in enumerate([p_value, 0.2, 0.4, 0.5, 0.6, 0.7])}
    runs = [
        [score(name, 0.001, (0.0005, 0.0015), cluster=it) for it in p_values],
        [score(name, 0.002, (0.0015, 0.0025), cluster=it) for it in p_values],
        [score(f"{name}_difference", 0.001, (0.0001, 0.002), p, cluster=it) for it, p in p_values.items()],
    ]
    assert re.findall(r"(CLUSTER \d) rose", " ".join(warnings(runs))) == clusters


@pytest.mark.parametrize(
    ("metric", "before", "after", "pattern"),
    [
        ("perplexity", 2.0, 2.05, None),
        ("perplexity", 2.0, 2.1, r"^Perplexity .*: rose by 5\.0 %"),
        ("distinct_2", 0.2, 0.15, r"^Distinct-2: fell by 25\.0 %"),
        ("parroting", 0.01, 0.05, r"repeats the prompt|Repeats the prompt: rose by 4\.0 percentage points"),
        ("empty_share", math.nan, 0.5, None),
    ],
)
def test_large_costs_have_warnings(metric, before, after, pattern):
    reason = "nothing to count" if math.isnan(before) else None
    texts = warnings([[score(metric, before, reason=reason)], [score(metric, after)], []])
    assert len(texts) == (pattern is not None) and all(re.search(pattern, text) for text in texts)


@pytest.mark.parametrize(
    ("metric", "cluster", "difference", "expected"),
    [
        ("style_share", "HATE", (0.01, (0.004, 0.016), 0.01), "The share of HATE among .* from 4.00 to 5.00 %"),
        ("style_share", "HATE", (0.01, (-0.01, 0.03), 0.2), None),
        ("style_share", "CARE", (0.01, (0.004, 0.016), 0.01), None),  # not harmful
        ("offensive_share", "", (0.01, (0.002, 0.018), 0.001), r"offensive responses rose .*\+0.20, \+1.80"),
    ],
)
def test_a_rise_of_harmful_responses_has_a_warning(metric, cluster, difference, expected):
    group = {"cluster": cluster} if cluster else {}
    sides = [score(metric, 0.04, (0.035, 0.045), **group)], [score(metric, 0.05, (0.041, 0.059), **group)]
    texts = warnings([*sides, [score(f"{metric}_difference", *difference, **group)]])
    assert len(texts) == (expected is not None) and all(re.search(expected, text) for text in texts), texts


def test_a_shift_of_everybody_s_style_has_a_warning():
    def share(after):
        return warnings([[score("style_share", it, cluster="SYMPATHY")] for it in (0.13, after)] + [[]])

    (warning,) = share(0.028)
    assert warning == "The share of SYMPATHY fell from 13.0 % to 2.8 % over all answers." and not share(0.09)


def test_a_harmful_shift_has_one_warning():
    sides = ([score("style_share", value, cluster="HATE")] for value in (0.029, 0.206))
    texts = warnings([*sides, [score("style_share_difference", 0.177, (0.1, 0.25), 0.001, cluster="HATE")]])
    assert texts == ["The share of HATE rose from 2.9 % to 20.6 % over all answers."]
