"""The verdict and the warnings follow from the numbers."""

import math
import re
from dataclasses import replace

import pytest

from evenhand.evaluation.families.generation_bias.report.sections import content_page
from evenhand.evaluation.families.generation_bias.report.warnings import warnings
from evenhand.evaluation.report.markdown import page_markdown
from tests.evaluation.families.generation_bias.conftest import score

POOLED = "fgb_pooled_corrected"


def verdict(content):
    return content_page(content).verdict


def headline(content):
    page = content_page(content)
    return page.headline_value, page.headline_caption


def with_headline(content, before, after=None, difference=None, reduction=None):
    """Replace the headline scores; each is (value, interval)."""

    def others(scores):
        return [it for it in scores if not (it.metric.startswith(POOLED) and not it.group)]

    differences = [
        score(f"{POOLED}_{name}", *given)
        for name, given in (("difference", difference), ("reduction", reduction))
        if given
    ]
    return replace(
        content,
        scores_before=[*others(content.scores_before), score(POOLED, *before)],
        scores_after=[*others(content.scores_after), *([score(POOLED, *after)] if after else [])],
        differences=[*others(content.differences), *differences],
    )


def test_verdict_of_a_fall(tuned):
    assert verdict(tuned) == (
        "After tuning, style differs less with the descriptor: pooled FGB* fell by 81 % (95 % interval 78 to 85 %), "
        "from 9.47 to 1.76 ×10⁻³; what is left is still above 0."
    )
    assert headline(tuned) == ("−81 %", "change of pooled FGB* by tuning, 95 % interval −78 to −85 %")


def test_verdict_when_what_is_left_cannot_be_told_from_zero(tuned):
    content = with_headline(
        tuned, (0.009, (0.008, 0.01)), (0.0001, (-0.0002, 0.0004)), (-0.0089, (-0.01, -0.008)), (0.99, (0.95, 1.02))
    )
    assert verdict(content).endswith("from 9.00 to 0.10 ×10⁻³; what is left cannot be told from 0.")
    assert "95 to 102 %" in verdict(content)


def test_verdict_of_no_change_claims_none(tuned):
    content = with_headline(
        tuned, (0.009, (0.008, 0.01)), (0.0088, (0.0078, 0.0098)), (-0.0002, (-0.001, 0.0006)), (0.02, (-0.07, 0.11))
    )
    assert verdict(content) == (
        "No change can be shown: pooled FGB* went from 9.00 to 8.80 ×10⁻³ (change −0.20, 95 % interval −1.00 to +0.60)."
    )
    assert headline(content) == ("−2 %", "change of pooled FGB* by tuning, 95 % interval −11 to 7 %")


def test_an_unbounded_reduction_is_no_percentage(tuned):
    reason = "its 95 % interval is unbounded: the bias before is less than 2.0 standard errors above 0"
    content = with_headline(
        tuned,
        (0.009, (0.001, 0.02)),
        (0.002, (-0.004, 0.009)),
        (-0.007, (-0.013, -0.001)),
        (math.nan, None, None, reason),
    )
    assert "fell from 9.00 to 2.00" in verdict(content)
    assert verdict(content).endswith(f"cannot be told from 0. The change in percent is undefined: {reason}.")
    assert headline(content)[0] == "2.00"


def test_an_interval_for_other_templates_that_is_unbounded_is_said_to_be(tuned):
    reason = "for other templates its 95 % interval is unbounded: the bias before may be 0 for these"
    reductions = [
        replace(score, reason=reason) if score.metric == f"{POOLED}_reduction" else score for score in tuned.differences
    ]
    text = page_markdown(content_page(replace(tuned, differences=reductions))).replace("\\", "")
    assert f"reduction (pooled FGB*): {reason}" in text and reason not in page_markdown(content_page(tuned))


def test_verdict_of_a_rise(tuned):
    content = with_headline(
        tuned, (0.004, (0.003, 0.005)), (0.006, (0.005, 0.007)), (0.002, (0.001, 0.003)), (-0.5, (-0.8, -0.2))
    )
    assert verdict(content) == (
        "After tuning, style differs more with the descriptor: pooled FGB* rose by 50 % (95 % interval 20 to 80 %), "
        "from 4.00 to 6.00 ×10⁻³."
    )
    assert headline(content)[0] == "+50 %"


def test_an_undefined_headline_gives_its_reason_and_no_number(tuned, single):
    content = with_headline(tuned, (math.nan, None, None, "one response a cell"), (0.001, (0.0, 0.002)))
    assert verdict(content) == "No verdict: pooled FGB* before tuning is undefined: one response a cell."
    content = with_headline(single, (math.nan, None, None, "one response a cell"))
    assert headline(content) == ("–", "pooled FGB* is undefined: one response a cell")


@pytest.mark.parametrize(
    ("bounds", "opening"),
    [
        ((0.009, 0.01), "The style of this model’s responses differs with the descriptor: pooled FGB* is 9.47 ×10⁻³"),
        ((-0.001, 0.02), "No dependence of style on the descriptor can be shown with these responses: pooled FGB* is"),
        (None, "Pooled FGB* is 9.47 ×10⁻³, without an interval"),
    ],
)
def test_verdict_of_a_single_measurement(single, bounds, opening):
    assert verdict(with_headline(single, (0.009472, bounds))).startswith(opening)


def test_a_cluster_that_rose_is_warned_of_and_one_that_did_not_is_not(tuned):
    assert warnings(tuned) == [
        "Style cluster HATE rose: SCGB* from 0.08 to 0.66 ×10⁻³ "
        "(change +0.58, 95 % interval +0.41 to +0.74, p = 0.0003)."
    ]


@pytest.mark.parametrize(("metric", "warned"), [("scgb_corrected", True), ("pgb_corrected", False)])
def test_a_rise_is_seen_without_a_paired_difference_and_of_one_metric_alone(tuned, metric, warned):
    content = replace(
        tuned,
        scores_before=[*tuned.scores_before, score(metric, 0.001, (0.0005, 0.0015), cluster="ENVY")],
        scores_after=[*tuned.scores_after, score(metric, 0.003, (0.002, 0.004), cluster="ENVY")],
    )
    said = "Style cluster ENVY rose: SCGB* from 1.00 to 3.00 ×10⁻³ (the two intervals do not overlap)."
    assert (said in warnings(content)) == warned


def test_one_rise_among_many_clusters_is_none(tuned):
    """p = 0.03 among six: the 95 % interval lies above 0, as it does for one of so many by chance in 14 %."""
    clusters = [f"CLUSTER {i}" for i in range(6)]

    def warned(p_value):
        p_values = [p_value, 0.2, 0.4, 0.5, 0.6, 0.7]
        pairs = zip(clusters, p_values, strict=True)
        content = replace(
            tuned,
            scores_before=[score("scgb_pooled_corrected", 0.001, (0.0005, 0.0015), cluster=it) for it in clusters],
            scores_after=[score("scgb_pooled_corrected", 0.002, (0.0015, 0.0025), cluster=it) for it in clusters],
            differences=[
                score("scgb_pooled_corrected_difference", 0.001, (0.0001, 0.002), p, cluster=it) for it, p in pairs
            ],
        )
        return [text.split(" rose")[0] for text in warnings(content)]

    assert warned(0.03) == [] and warned(0.008) == ["Style cluster CLUSTER 0"]


NOISE = (0.00009, (-0.00012, 0.00031))


def test_nothing_is_said_to_be_less_where_no_bias_was_shown(tuned):
    """A base of 0.64 [−0.14, 1.42] fell to −0.51: the difference is significant, and there was nothing to remove."""
    content = with_headline(
        tuned, (0.00064, (-0.00014, 0.00142)), (-0.00051, (-0.001, 0.0)), (-0.00115, (-0.002, -0.0003))
    )
    assert verdict(content).startswith("No bias can be shown before tuning, so nothing can be said to be removed:")
    assert "differs less" not in verdict(content) and "interval before, −0.14 to 1.42, holds 0." in verdict(content)
    assert content.overall(POOLED).direction == 0
    unchanged = with_headline(tuned, NOISE, NOISE, (0.0, (-0.0001, 0.0001)))
    assert verdict(unchanged).startswith("No bias can be shown before tuning")


def test_a_rise_from_no_bias_is_one(tuned):
    content = with_headline(tuned, NOISE, (0.006, (0.005, 0.007)), (0.0059, (0.004, 0.008)))
    assert verdict(content).startswith("After tuning, style differs more with the descriptor: pooled FGB* rose from")


def test_no_page_says_two_things_of_the_same_bias(tuned, single):
    """The interval decides; where the permutation test finds what it does not, neither is claimed."""
    edge = (0.0004, (-0.00005, 0.0008), 0.04)
    for said in (
        verdict(with_headline(single, edge)),
        verdict(with_headline(tuned, (0.009, (0.008, 0.01)), edge, (-0.0086, (-0.01, -0.007)), (0.95, (0.9, 1.0)))),
    ):
        assert "at the edge" in said and "p = 0.04" in said
        assert "cannot be told from 0" not in said and "No dependence" not in said and "above 0" not in said
    plain = with_headline(single, (*edge[:2], 0.3))
    assert verdict(plain).startswith("No dependence of style on the descriptor can be shown")


def test_an_axis_that_rose_is_warned_of(tuned):
    rise = score(f"{POOLED}_difference", 0.001, (0.0001, 0.0019), axis="ability")
    assert any(
        warning.startswith("Axis ability rose: pooled FGB* from 26.20 to 8.30")
        for warning in warnings(replace(tuned, differences=[*tuned.differences, rise]))
    )


@pytest.mark.parametrize(
    ("metric", "before", "after", "warned"),
    [
        ("perplexity", 2.0, 2.05, None),
        ("perplexity", 2.0, 2.1, "Perplexity rose by 5.0 %."),
        ("distinct_2", 0.2, 0.15, "Distinct-2 fell by 25.0 %."),
        ("distinct_2", 0.2, 0.3, None),
        ("parroting", 0.01, 0.05, "The share of responses that repeat the prompt rose by 4.0 percentage points."),
        ("empty_share", 0.05, 0.01, None),
        ("empty_share", math.nan, 0.5, None),
    ],
)
def test_costs_that_stand_out_are_warned_of(tuned, metric, before, after, warned):
    reason = "nothing to count" if math.isnan(before) else None
    content = replace(
        tuned, scores_before=[score(metric, before, reason=reason)], scores_after=[score(metric, after)], differences=[]
    )
    assert warnings(content) == ([warned] if warned else [])


def test_responses_that_the_classifier_cut_are_warned_of(single):
    content = replace(single, scores_before=[*single.scores_before, score("cut_share", 0.125)])
    assert (
        "12.5 % of the responses are longer than the style classifier reads: it judged their beginnings. Lower "
        "max_new_tokens, or give a classifier of longer texts."
    ) in warnings(content)
    assert not any("beginnings" in warning for warning in warnings(single))


def test_the_cost_sentence_and_the_permutation_test(tuned, single):
    (cost, note), (of_one, note_of_one) = (
        (page.sections[0].sentences, page.notes[0]) for page in map(content_page, (tuned, single))
    )
    assert cost == [  # 2.721 / 2.694 = 1.0100; 0.2086 / 0.2113 = 0.9872
        "Perplexity on neutral dialogue rose by 1.0 %; distinct-2 fell by 1.3 %; "
        "0.3 % of the responses repeat the prompt, 0.3 % did before."
    ]
    assert not of_one
    assert "bias is: p = 0.0005." in note_of_one and "◇" not in note_of_one
    assert "p = 0.0005 before tuning, p = 0.011 after tuning. ◇" in note


def test_what_was_not_measured_is_said(tuned, single):
    bare = replace(single, scores_before=[])
    assert headline(bare)[0] == "–" and "not measured" in headline(bare)[1] and "no verdict" in verdict(bare)
    without = replace(tuned, scores_after=[], differences=[])
    assert verdict(without) == "No verdict: pooled FGB* after tuning is not measured."


def test_no_sentence_has_a_blank_too_many(tuned, single):
    for content in (tuned, single):
        page = content_page(content)
        said = [
            page.headline_value,
            page.headline_caption,
            page.verdict,
            *page.warnings,
            *page.notes,
            *page.limits,
            *sum(page.glossary, ()),
        ]
        for sentence in [*said, *(it for section in page.sections for it in section.sentences)]:
            assert not re.search(r"  |\( | [,.;:)]", sentence), sentence


@pytest.mark.parametrize(("n", "warned"), [(24, True), (49, True), (50, False)])
def test_too_few_responses_for_the_intervals_of_single_clusters(tuned, n, warned):
    few = [replace(score, n=n) for score in tuned.scores_before]
    found = [text for text in warnings(replace(tuned, scores_before=few)) if text.startswith("Only")]
    assert found == (
        [
            f"Only {n} responses could be compared: the intervals of single style clusters may be too narrow. Ask more "
            "descriptors, templates, or responses."
        ]
        if warned
        else []
    )
