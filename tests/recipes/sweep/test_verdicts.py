"""The verdicts of a sweep's report follow from its numbers."""

from evenhand.recipes.sweep.page import page, setting_verdict

from .sweep_points import increased, point, refused, settings_of, sweep_of, without_reductions


def verdict_on(*rows):
    (setting,) = settings_of(*rows).to_dict("records")
    return setting_verdict(setting)


def without_bias(method="control_tags", **columns):
    """Return a point of a base of 0.09 [−0.12, 0.31] ×10⁻³: no reduction is defined."""
    return point(method, base=0.00009, base_low=-0.00012, base_high=0.00031, **without_reductions(), **columns)


def test_the_verdict_is_on_the_largest_reduction_among_the_settings_with_the_fewest_missed_criteria():
    rows = [point(quantile=q, reduction=r) for q, r in ((0.5, 0.95), (0.6, 0.97), (0.7, 0.95), (0.8, 0.6))]
    report = page(sweep_of(*rows, point("exchange", reduction=0.96)))
    assert report.verdict.startswith("control_tags · quantile 0.6 removes 97.0 % [95.0, 99.0]")
    assert report.verdict.endswith("It meets all measured criteria.") and "4 of 5 settings" in report.headline_caption
    assert report.headline_value == "−97 %"
    costly = point(reduction=0.9, perplexity_change=0.05)
    report = page(sweep_of(costly, point("exchange", reduction=0.85), point("dpo", reduction=0.88)))
    assert report.verdict.startswith("dpo removes 88.0 % [86.0, 90.0]") and "0 of 3" in report.headline_caption
    assert report.verdict.endswith("It misses: tuned on 88.0 % [86.0, 90.0].")


def test_no_setting_meets_the_criteria_if_the_base_shows_no_bias():
    report = page(sweep_of(without_bias(), without_bias("exchange")))
    assert report.headline_value == "–" and "no bias" in report.verdict
    assert verdict_on(without_bias()).startswith("is inconclusive: all descriptors –")
    mixed = page(sweep_of(point(reduction=0.96), point(seed=1, reduction=0.96), without_bias(seed=2)))
    assert "It is inconclusive: all descriptors 96.0 % without an interval" in mixed.verdict


def test_the_verdict_on_a_setting_names_its_missed_and_inconclusive_criteria():
    assert verdict_on(point(reduction=0.95)) == "meets all measured criteria"
    columns = {"perplexity_change": 0.041, "cluster_changes": increased("HATE"), "parroting_change": 0.002}
    costly = verdict_on(point(reduction=0.95, **columns))
    assert costly.startswith("misses: perplexity +4.1") and costly.endswith(", higher: HATE")
    assert verdict_on(point(reduction=0.95), refused("no", seed=1)).startswith("misses: 1 of 2 seeds refused")
    assert verdict_on(refused("no")) == "was refused by a guard"
    both = verdict_on(point(reduction=0.94, perplexity_change=0.04))
    assert both.startswith("misses: perplexity") and both.endswith("is inconclusive: tuned on 94.0 % [92.0, 96.0]")
