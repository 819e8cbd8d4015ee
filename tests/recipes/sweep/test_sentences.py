"""The verdicts of a sweep follow from its numbers."""

import math
from dataclasses import replace

import pytest

from evenhand.evaluation.report.html import page_html
from evenhand.evaluation.report.markdown import page_markdown
from evenhand.evaluation.report.page import Link
from evenhand.evaluation.results import BiasScore
from evenhand.recipes.sweep.bar import Bar
from evenhand.recipes.sweep.page import page
from evenhand.recipes.sweep.summary import Agreement
from evenhand.recipes.sweep.tables import say

from .sweep_points import REDUCTIONS, point, refused, rise, settings_of, sweep_of


def verdict_of(*rows):
    return page(sweep_of(*rows)).verdict


def judged(*rows):
    (setting,) = settings_of(*rows).to_dict("records")
    return say.judged(setting)


# What every point of `sweep_points` costs: of each limit's share the three largest.
COST = "and costs perplexity +2.0 %, style drift 4.0 %, "


def happened(text: str, *told: tuple[str, str]) -> str:
    """Return what a verdict says after the sentences on what these settings removed at what cost."""
    for label, removed in told:
        first, _, text = text.partition(". ")
        assert first.startswith(f"{label} removes {removed} of pooled FGB*, {COST}"), first
    return text


def test_several_settings_meet_the_bar():
    rows = [point(quantile=q, reduction=r) for q, r in ((0.5, 0.95), (0.6, 0.97), (0.7, 0.95), (0.8, 0.6))]
    text = verdict_of(*rows, point("exchange", reduction=0.96))
    rest = happened(text, ("control_tags · quantile 0.6", "97.0 % [95.0, 99.0]"))  # of so many, the leading one alone
    assert rest == "4 of 5 settings meet the bar: 1–3, 5."


def test_one_setting_meets_it_and_another_would_by_what_was_measured():
    text = verdict_of(point(reduction=0.95), point("exchange", reduction=0.99, reduction_unseen=math.nan))
    rest = happened(text, ("control_tags", "95.0 % [93.0, 97.0]"), ("exchange", "99.0 % [97.0, 101.0]"))
    assert rest == (
        "1 of 2 settings meets the bar: setting 1 (control_tags). 1 more would, by what was measured of it."
    )


def test_what_was_not_measured_is_named():
    rows = [point(reduction=0.95, reduction_unseen=math.nan), point("exchange", reduction=0.5)]
    assert verdict_of(*rows).endswith(
        ". 1 of 2 settings meets what was measured of the bar: setting 1 (control_tags). "
        "Not measured, or undefined: what is removed for descriptors not tuned on."
    )


def test_none_meets_it_so_the_nearest_is_named():
    rows = [
        point(reduction=0.9, perplexity_change=0.05),
        point("exchange", reduction=0.85),
        point("dpo", reduction=0.88),
    ]
    whole = page(sweep_of(*rows))
    assert whole.verdict.startswith("dpo removes 88.0 % [86.0, 90.0] of pooled FGB*, and costs perplexity +2.0 %")
    assert "control_tags removes 90.0 % [88.0, 92.0] of pooled FGB*, and costs perplexity +5.0 %" in whole.verdict
    assert whole.verdict.endswith(". No setting meets the bar; nearest comes dpo.")
    assert whole.big == "−88 %" and whole.under.startswith("pooled FGB* by dpo, 95 % interval −86 to −90; 0 of 3")


def test_what_nothing_can_be_told_of_is_no_cost():
    unchanged = {f"perplexity_change{end}": value for end, value in (("", 0.02), ("_low", -0.01), ("_high", 0.05))}
    (setting,) = settings_of(point(**unchanged)).to_dict("records")
    # style drift 4 of 10 points; relevance 5 of 25, distinct-2 1 of 5 and responses' perplexity 2 of 10; 1 of 10
    assert setting["costs"][0] == "style_drift" and setting["costs"][-1] == "distinct_responses_change"
    assert set(setting["costs"][1:-1]) == {"relevance_kept", "distinct_2_change", "response_perplexity_change"}
    better = {"relevance_kept": 1.1, "distinct_2_change": 0.1, "distinct_responses_change": 0.0}
    better |= {"response_perplexity_change": -0.01, "style_drift": 0.0, "perplexity_change": -0.01}
    assert verdict_of(point(reduction=0.97, **better)).startswith(
        "control_tags removes 97.0 % [95.0, 99.0] of pooled FGB*, at no cost that can be told. 1 of 1 setting meets"
    )


def test_of_what_the_intervals_leave_open_it_cannot_be_told():
    rows = [point(reduction=0.94), point("exchange", reduction=0.5), point("dpo", reduction=0.96)]
    assert verdict_of(*rows).endswith(
        ". 1 of 3 settings meets the bar: setting 3 (dpo). Of 1 more (1) it cannot be told."
    )
    whole = page(sweep_of(*rows[:2]))
    assert whole.verdict.startswith("control_tags removes 94.0 % [92.0, 96.0] of pooled FGB*")
    assert whole.verdict.endswith(". No setting is shown to meet the bar; nearest comes control_tags.")
    assert whole.under.endswith("; 0 of 2 settings meet the bar, of 1 it cannot be told; decoding: sample")


def without_bias(method="control_tags", **given):
    """A point of a base of 0.09 [−0.12, 0.31] ×10⁻³: no reduction is defined."""
    blank = {f"{name}{end}": math.nan for name in REDUCTIONS for end in ("", "_low", "_high")}
    return point(method, base=0.00009, base_low=-0.00012, base_high=0.00031, **blank, **given)


def test_nothing_passes_where_the_base_shows_no_bias():
    whole = page(sweep_of(without_bias(), without_bias("exchange")))
    assert whole.verdict.startswith(
        "No bias of the base model can be shown: the 95 % interval of its pooled FGB* holds"
    )
    assert (whole.big, whole.under) == ("–", "the base shows no bias, so none can be removed; decoding: sample")
    assert "meets" not in whole.verdict and judged(without_bias()).startswith("cannot be told: the base shows no bias")
    mixed = page(sweep_of(point(reduction=0.96), point(seed=1, reduction=0.96), without_bias(seed=2)))
    assert "No setting is shown to meet the bar." in mixed.verdict
    assert any("shows no bias" in warning and "1 setting (1)" in warning for warning in mixed.warnings)


def test_no_verdict_without_a_point_that_went_through():
    assert verdict_of(refused("no")) == "Every point was refused, so there is no verdict."
    empty = sweep_of(point())
    assert page(replace(empty, points=empty.points.head(0))).verdict == "There is no point to judge."


def test_each_setting_is_judged_in_words():
    assert judged(point(reduction=0.95)) == "meets the bar; on the front for perplexity and distinct-2"
    costly = point(reduction=0.95, perplexity_change=0.041, cluster_changes=rise("HATE"), parroting_change=0.002)
    assert judged(costly).startswith("misses: perplexity +4.1 %, repeats +0.20 points, rose: HATE;")
    assert judged(point(reduction=0.95), refused("no", seed=1)).startswith("misses: 1 of 2 seeds refused;")
    assert judged(refused("no")) == "refused by a guard"
    both = judged(point(reduction=0.94, perplexity_change=0.04))
    assert both.startswith("misses: perplexity +4.0 %; cannot be told: tuned on 94.0 % [92.0, 96.0];")


def test_one_model_under_two_decodings_is_two_settings_and_the_headline_names_both():
    settings = [
        point(reduction=0.97, relevance_kept=kept, decoding=name) for name, kept in (("sample", 0.95), ("paper", 0.4))
    ]
    report = page(sweep_of(*settings, swept=[]))
    assert report.big == "−97 %"
    assert report.under.endswith("1 of 2 settings meet the bar; decodings: sample and paper")
    assert [row.label for row in report.tables[1].rows] == ["1 decoding sample", "2 decoding paper"]
    assert "setting 1 (decoding sample)" in report.verdict


def test_the_big_number_is_what_the_leading_setting_removed():
    whole = page(sweep_of(point(reduction=0.95), point("exchange", reduction=0.99, perplexity_change=0.2)))
    assert whole.big == "−95 %"  # it meets the bar, the other does not
    assert whole.under == (
        "pooled FGB* by control_tags, 95 % interval −93 to −97; 1 of 2 settings meet the bar; decoding: sample"
    )
    partly = page(sweep_of(point(reduction=0.95, perplexity_change=math.nan)))
    assert "; 1 of 1 setting meets what was measured of the bar; decoding: sample" in partly.under


def test_reports_behind_a_sweep_are_linked():
    made = replace(sweep_of(point()), links=[Link("kto, seed 1", "kto/a b?/report.html")])
    source = page_html(page(made))
    assert '<a href="./kto/a%20b%3F/report.html">kto, seed 1</a>' in source
    assert "[kto, seed 1](./kto/a%20b%3F/report.html)" in page_markdown(page(made))


def test_the_bar_is_shown_with_its_limits():
    text = say.bar(Bar(reduction_seen=0.5, perplexity_rise=0.125))
    for shown in ("at least 50 %", "80 % for those not tuned on", "at most 12.5 %", "down by at most 5 %", "0.05 perc"):
        assert shown in text


def test_warnings_of_refusals_rises_and_untagged_use():
    rows = [point(quantile=q, untagged_ratio=2.31) for q in (0.5, 0.6, 0.7)]
    rows += [point("dpo", cluster_changes=rise("HATE")), refused("no", method="kto")]
    assert page(sweep_of(*rows)).warnings == [
        "1 of 5 points were refused by a guard (setting 5); the reasons are listed below.",
        "A style cluster rose significantly in 1 setting: HATE in setting 4.",
        "Used without its control tag, the tuned model has more pooled FGB* than the base model in 3 settings (1–3), "
        "up to 2.3 times as much.",
    ]
    assert page(sweep_of(point())).warnings == []


def agreement(name, n, near, factor, rho=0.9, p=0.01, reason=""):
    return Agreement(name, n, near, factor, BiasScore("plan_rho", rho, None, (-1, 1), n, p_value=p, reason=reason))


@pytest.mark.parametrize(
    ("piloted", "opening"),
    [
        ((10, 9, 8), "Calibrated by one pilot a method, the plan’s sizes held: 9 of 10 measured within 0.1"),
        ((10, 8, 8), "Calibrated by one pilot a method, the plan’s sizes did not hold: 8 of 10 measured within 0.1"),
        ((2, 2, 2), "Too few settings beside the pilots to say whether the plan’s sizes hold: 2 of 2"),
        ((0, 0, 0), "Too few settings beside the pilots to say whether the plan’s sizes hold: as it stood"),
    ],
)
def test_whether_the_plan_held(piloted, opening):
    text = say.plan(agreement("as it stood", 11, 4, 3), agreement("by one pilot a method", *piloted))
    assert text.startswith(opening)
    assert "as it stood before any tuning, 4 of 11 measured within 0.1 of the prediction, 3 within a factor of" in text


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "It ranks the settings better than chance (Spearman ρ = 0.90, p = 0.01, n = 9)."),
        ({"rho": 0.3, "p": 0.4}, "That it ranks the settings rightly is not shown (Spearman ρ = 0.30"),
        ({"rho": -0.9, "p": 0.001}, "It ranks the settings the wrong way round"),
        (
            {"rho": math.nan, "p": math.nan, "reason": "all predictions are equal"},
            "undefined: all predictions are equal.",
        ),
    ],
)
def test_the_ranking_is_not_praised_without_reason(given, said):
    assert said in say.plan(agreement("as it stood", 10, 9, 9), agreement("by one pilot", 9, 9, 9, **given))
