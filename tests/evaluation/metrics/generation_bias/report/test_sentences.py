"""The verdict and the warnings follow from the numbers."""

import math
import re
from dataclasses import replace

import pytest

from evenhand.evaluation.metrics.generation_bias.report.sections import report_page
from evenhand.evaluation.metrics.generation_bias.report.warnings import warnings
from tests.evaluation.metrics.generation_bias.conftest import score

POOLED = "fgb_pooled_corrected"
SCGB = "scgb_pooled_corrected"
UNBOUNDED = "its 95 % interval is unbounded"
UNDEFINED = (math.nan, None, None, UNBOUNDED)
NOISE = (0.00009, (-0.00012, 0.00031))
BORDERLINE = (0.0004, (-0.00005, 0.0008), 0.04)


def verdict(data):
    return report_page(data).verdict


def headline(data):
    page = report_page(data)
    return page.headline_value, page.headline_caption


def with_headline(data, before, after=None, difference=None, reduction=None):
    """Replace the headline scores; each is (value, interval, p-value, reason)."""

    def without_headline(scores):
        return [it for it in scores if not (it.metric.startswith(POOLED) and not it.group)]

    changes = {"difference": difference, "reduction": reduction}
    return replace(
        data,
        scores_before=[*without_headline(data.scores_before), score(POOLED, *before)],
        scores_after=[*without_headline(data.scores_after), *([score(POOLED, *after)] if after else [])],
        differences=[
            *without_headline(data.differences),
            *(score(f"{POOLED}_{name}", *arguments) for name, arguments in changes.items() if arguments),
        ],
    )


@pytest.mark.parametrize(
    ("scores", "pattern", "big", "label"),
    [
        (
            [(0.00947, (0.009, 0.01)), (0.00176, (0.001, 0.002)), (-0.0077, (-0.008, -0.007)), (0.81, (0.78, 0.85))],
            r"fell by 81 % .*78 to 85 %.* 9\.47 to 1\.76 .*above 0\.$",
            "−81 %",
            "−78 to −85 %",
        ),
        (
            [(0.009, (0.008, 0.01)), (0.0001, (-0.0002, 0.0004)), (-0.0089, (-0.01, -0.008)), (0.99, (0.95, 1.02))],
            r"fell .*95 to 102 %.* 9\.00 to 0\.10 .*not distinguishable from 0\.$",
            "−99 %",
            "−95 to −102 %",
        ),
        (
            [(0.009, (0.008, 0.01)), (0.0088, (0.0078, 0.0098)), (-0.0002, (-0.001, 0.0006)), (0.02, (-0.07, 0.11))],
            r"^No change .* 9\.00 to 8\.80 .*−0\.20, .*−1\.00 to \+0\.60",
            "−2 %",
            "−11 to 7 %",
        ),
        (
            [(0.004, (0.003, 0.005)), (0.006, (0.005, 0.007)), (0.002, (0.001, 0.003)), (-0.5, (-0.8, -0.2))],
            r"rose by 50 % .*20 to 80 %.* 4\.00 to 6\.00",
            "+50 %",
            "20 to 80 %",
        ),
        (
            [(0.009, (0.001, 0.02)), (0.002, (-0.004, 0.009)), (-0.007, (-0.013, -0.001)), UNDEFINED],
            rf"fell from 9\.00 to 2\.00 .*not distinguishable from 0\. .*undefined: {UNBOUNDED}\.$",
            "2.00",
            "ideal 0",
        ),
        # The difference is significant, but no bias is shown before.
        (
            [(0.00064, (-0.00014, 0.00142)), (-0.00051, (-0.001, 0.0)), (-0.00115, (-0.002, -0.0003))],
            r"^No bias .* 0\.64 to −0\.51 .* −0\.14 to 1\.42 contains 0\.$",
            "−0.51",
            "ideal 0",
        ),
        ([NOISE, NOISE, (0.0, (-0.0001, 0.0001))], r"^No bias ", "0.090", "ideal 0"),
        ([NOISE, (0.006, (0.005, 0.007)), (0.0059, (0.004, 0.008))], r"rose from 0\.09 to 6\.00", "6.00", "ideal 0"),
        # The permutation test and the interval disagree, so neither is claimed.
        (
            [(0.009, (0.008, 0.01)), BORDERLINE, (-0.0086, (-0.01, -0.007)), (0.95, (0.9, 1.0))],
            r"^(?!.*(distinguishable|above 0)).*unclear.*p = 0\.04",
            "−95 %",
            "−90 to −100 %",
        ),
        ([(math.nan, None, None, "few"), (0.001, (0.0, 0.002))], r"^No verdict: .*before.*: few\.$", "1.00", ""),
    ],
)  # fmt: skip
def test_verdict_of_a_comparison(tuned, scores, pattern, big, label):
    data = with_headline(tuned, *scores)
    assert re.search(pattern, verdict(data)), verdict(data)
    assert headline(data)[0] == big and headline(data)[1].endswith(label)
    if pattern.startswith("^No bias"):
        assert data.overall(POOLED).direction == 0 and "less" not in verdict(data)


@pytest.mark.parametrize(
    ("before", "pattern"),
    [
        ((0.009472, (0.009, 0.01)), r"responses differs with the descriptor: .* 9\.47 "),
        ((0.009472, (-0.001, 0.02)), r"do not show .* 9\.47 .*−1\.00 to 20\.00"),
        ((0.009472, None), r"9\.47 .*without an interval"),
        (BORDERLINE, r"^(?!.*do not show).*unclear.*p = 0\.04"),
        ((0.1, (0.001, 0.9), 0.25), r"^(?!.*differs).*unclear: the interval is above 0, .*p = 0\.25"),
        ((math.nan, None, None, "too few"), r"^No verdict: .*too few"),
    ],
)
def test_verdict_of_a_single_measurement(single, before, pattern):
    data = with_headline(single, before)
    assert re.search(pattern, verdict(data)), verdict(data)
    if math.isnan(before[0]):
        assert headline(data)[0] == "–" and "too few" in headline(data)[1]


def test_only_a_cluster_that_rose_has_a_warning(tuned):
    (warning,) = warnings(tuned)
    numbers = ("cluster HATE rose", "SCGB*", "0.08 to 0.66", "+0.58", "+0.41 to +0.74", "p = 0.0003")
    assert all(number in warning for number in numbers), warning


@pytest.mark.parametrize(("metric", "has_warning"), [("scgb_corrected", True), ("pgb_corrected", False)])
def test_without_a_paired_difference_intervals_must_not_overlap_and_one_metric_is_tested(tuned, metric, has_warning):
    data = replace(
        tuned,
        scores_before=[*tuned.scores_before, score(metric, 0.001, (0.0005, 0.0015), cluster="ENVY")],
        scores_after=[*tuned.scores_after, score(metric, 0.003, (0.002, 0.004), cluster="ENVY")],
    )
    envy = [text for text in warnings(data) if "ENVY" in text]
    assert bool(envy) == has_warning
    assert all("1.00 to 3.00" in text and "do not overlap" in text for text in envy)


@pytest.mark.parametrize(("p_value", "clusters"), [(0.03, []), (0.008, ["CLUSTER 0"])])
def test_rises_are_corrected_for_the_number_of_clusters(tuned, p_value, clusters):
    """p = 0.03 among six: an interval above 0, as one of so many is by chance in 14 %."""
    p_values = {f"CLUSTER {i}": p for i, p in enumerate([p_value, 0.2, 0.4, 0.5, 0.6, 0.7])}
    data = replace(
        tuned,
        scores_before=[score(SCGB, 0.001, (0.0005, 0.0015), cluster=it) for it in p_values],
        scores_after=[score(SCGB, 0.002, (0.0015, 0.0025), cluster=it) for it in p_values],
        differences=[score(f"{SCGB}_difference", 0.001, (0.0001, 0.002), p, cluster=it) for it, p in p_values.items()],
    )
    assert re.findall(r"(CLUSTER \d) rose", " ".join(warnings(data))) == clusters


@pytest.mark.parametrize(
    ("metric", "before", "after", "pattern"),
    [
        ("perplexity", 2.0, 2.05, None),
        ("perplexity", 2.0, 2.1, r"^Perplexity rose by 5\.0 %"),
        ("distinct_2", 0.2, 0.15, r"^Distinct-2 fell by 25\.0 %"),
        ("parroting", 0.01, 0.05, r"repeat the prompt rose by 4\.0 percentage points"),
        ("empty_share", math.nan, 0.5, None),
    ],
)
def test_large_costs_have_warnings(tuned, metric, before, after, pattern):
    reason = "nothing to count" if math.isnan(before) else None
    data = replace(
        tuned, scores_before=[score(metric, before, reason=reason)], scores_after=[score(metric, after)], differences=[]
    )
    texts = warnings(data)
    assert len(texts) == (pattern is not None) and all(re.search(pattern, text) for text in texts)


@pytest.mark.parametrize(("n", "has_warning"), [(24, True), (49, True), (50, False)])
def test_few_responses_have_a_warning(tuned, n, has_warning):
    few = [replace(score, n=n) for score in tuned.scores_before]
    assert (
        any(text.startswith(f"Only {n} responses") for text in warnings(replace(tuned, scores_before=few)))
        == has_warning
    )


def test_the_cost_sentence_and_the_permutation_test(tuned, single):
    (sentences, note), (no_sentences, note_of_single) = (
        (page.sections[0].sentences, page.notes[0]) for page in map(report_page, (tuned, single))
    )
    (cost,) = sentences  # 2.721 / 2.694 = 1.0100; 0.2086 / 0.2113 = 0.9872
    assert re.search(
        r"^Perplexity .* rose by 1\.0 %; distinct-2 fell by 1\.3 %; .*: 0\.3 % before, 0\.3 % after\.$", cost
    )
    assert not no_sentences
    assert "p = 0.0005." in note_of_single and "◇" not in note_of_single
    assert "p = 0.0005 before tuning, p = 0.011 after tuning" in note and "◇" in note
