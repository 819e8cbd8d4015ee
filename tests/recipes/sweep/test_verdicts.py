"""The verdicts of a sweep's report follow from its numbers."""

from dataclasses import replace

from evenhand.recipes.sweep.page import page, setting_verdict

from .sweep_points import increased, point, refused, settings_of, sweep_of, without_reductions


def verdict_of(*rows):
    return page(sweep_of(*rows)).verdict


def verdict_on(*rows):
    (setting,) = settings_of(*rows).to_dict("records")
    return setting_verdict(setting)


def without_bias(method="control_tags", **columns):
    """Return a point of a base of 0.09 [−0.12, 0.31] ×10⁻³: no reduction is defined."""
    return point(method, base=0.00009, base_low=-0.00012, base_high=0.00031, **without_reductions(), **columns)


def test_the_verdict_names_the_largest_reduction_and_lists_those_that_meet_the_criteria():
    rows = [point(quantile=q, reduction=r) for q, r in ((0.5, 0.95), (0.6, 0.97), (0.7, 0.95), (0.8, 0.6))]
    report = page(sweep_of(*rows, point("exchange", reduction=0.96)))
    assert report.verdict.startswith("control_tags · quantile 0.6 removes 97.0 % [95.0, 99.0]")
    assert "4 settings (1–3, 5)" in report.verdict and "exchange" not in report.verdict
    assert report.headline_value == "−97 %" and "95 % interval −95 to −99" in report.headline_caption


def test_if_no_setting_meets_the_criteria_the_report_names_the_nearest():
    costly = point(reduction=0.9, perplexity_change=0.05)
    report = page(sweep_of(costly, point("exchange", reduction=0.85), point("distill", reduction=0.88)))
    assert report.verdict.startswith("distill removes 88.0 % [86.0, 90.0]") and "No setting is shown" in report.verdict
    assert report.headline_value == "−88 %" and "0 of 3 settings" in report.headline_caption


def test_changes_that_are_not_significant_are_no_costs():
    not_significant = dict(zip(("perplexity_change_low", "perplexity_change_high"), (-0.01, 0.05), strict=True))
    (setting,) = settings_of(point(**not_significant)).to_dict("records")
    # style drift 4 of 10 points; relevance 5 of 25, distinct-2 and length 1 of 5, perplexity 2 of 10; 1 of 10
    assert setting["costs"][0] == "style_drift" and setting["costs"][-1] == "distinct_responses_change"
    fifths = {"relevance_kept", "distinct_2_change", "length_change", "response_perplexity_change"}
    assert set(setting["costs"][1:-1]) == fifths and len(setting["costs"]) == 6
    better = {"relevance_kept": 1.1, "distinct_2_change": 0.1, "distinct_responses_change": 0.0}
    better |= {"response_perplexity_change": -0.01, "style_drift": 0.0, "perplexity_change": -0.01}
    assert "no significant cost" in verdict_of(point(reduction=0.97, **better | {"length_change": 0.0}))


def test_no_setting_meets_the_criteria_if_the_base_shows_no_bias():
    report = page(sweep_of(without_bias(), without_bias("exchange")))
    assert report.headline_value == "–" and "no bias" in report.verdict
    assert verdict_on(without_bias()).startswith("inconclusive: the base model shows no bias in 1 of 1 seed")
    mixed = page(sweep_of(point(reduction=0.96), point(seed=1, reduction=0.96), without_bias(seed=2)))
    assert "No setting" in mixed.verdict
    assert any("shows no bias" in warning and "1 setting (1)" in warning for warning in mixed.warnings)


def test_without_finished_points_the_report_has_no_verdict():
    assert "refused every point" in verdict_of(refused("no"))
    empty = sweep_of(point())
    assert "no points" in page(replace(empty, points=empty.points.head(0))).verdict


def test_the_verdict_on_a_setting_names_its_missed_and_inconclusive_criteria():
    assert verdict_on(point(reduction=0.95)) == "meets all criteria"
    columns = {"perplexity_change": 0.041, "cluster_changes": increased("HATE"), "parroting_change": 0.002}
    costly = verdict_on(point(reduction=0.95, **columns))
    assert costly == "misses: perplexity +4.1 %, repeats +0.20 points, higher: HATE"
    assert verdict_on(point(reduction=0.95), refused("no", seed=1)).startswith("misses: 1 of 2 seeds refused")
    assert verdict_on(refused("no")) == "refused by a guard"
    both = verdict_on(point(reduction=0.94, perplexity_change=0.04))
    assert both == "misses: perplexity +4.0 %; inconclusive: tuned on 94.0 % [92.0, 96.0]"
