"""The verdict and the warnings follow from the numbers."""

import math
import re
from dataclasses import replace

import pytest

from evenhand.evaluation.families.generation_bias.page import content_page
from evenhand.evaluation.families.generation_bias.warnings import warnings

from .conftest import score

POOLED = "fgb_pooled_corrected"


def verdict(content):
    return content_page(content).verdict


def headline(content):
    page = content_page(content)
    return page.big, page.under


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


def test_a_rise_is_seen_without_a_paired_difference_and_in_either_metric(tuned):
    content = replace(
        tuned,
        scores_before=[*tuned.scores_before, score("pgb_pooled_corrected", 0.001, (0.0005, 0.0015), cluster="ENVY")],
        scores_after=[*tuned.scores_after, score("pgb_pooled_corrected", 0.003, (0.002, 0.004), cluster="ENVY")],
    )
    assert (
        "Style cluster ENVY rose: pooled PGB* from 1.00 to 3.00 ×10⁻³ (the two intervals do not overlap)."
        in warnings(content)
    )


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


def test_the_cost_sentence_and_the_permutation_test(tuned, single):
    (cost, note), (of_one, note_of_one) = (
        (page.sections[0].sentences, page.notes[0]) for page in map(content_page, (tuned, single))
    )
    assert cost == [  # 2.721 / 2.694 = 1.0100; 0.2086 / 0.2113 = 0.9872
        "Perplexity on neutral dialogue rose by 1.0 %; distinct-2 fell by 1.3 %; "
        "0.3 % of the responses repeat the prompt, 0.3 % did before."
    ]
    assert not of_one
    assert "descriptor: p = 0.0005." in note_of_one and "◇" not in note_of_one
    assert "p = 0.0005 before tuning, p = 0.011 after tuning. ◇" in note


def test_what_was_not_measured_is_said(tuned, single):
    bare = replace(single, scores_before=[])
    assert headline(bare)[0] == "–" and "not measured" in headline(bare)[1] and "no verdict" in verdict(bare)
    without = replace(tuned, scores_after=[], differences=[])
    assert verdict(without) == "No verdict: pooled FGB* after tuning is not measured."


def test_no_sentence_has_a_blank_too_many(tuned, single):
    for content in (tuned, single):
        page = content_page(content)
        said = [page.big, page.under, page.verdict, *page.warnings, *page.notes, *page.limits, *sum(page.glossary, ())]
        for sentence in [*said, *(it for section in page.sections for it in section.sentences)]:
            assert not re.search(r"  |\( | [,.;:)]", sentence), sentence
