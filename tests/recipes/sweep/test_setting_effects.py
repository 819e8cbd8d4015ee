"""What each swept setting changes: means over blocks, omitted blocks, and their table, chart and sentences."""

import math

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from evenhand.recipes.sweep.page import page
from evenhand.recipes.sweep.summary import OUTCOMES, setting_effects
from tests.report_pages import texts

from .sweep_points import point, refused, sweep_of

SWEPT = ["method", "label.alpha", "label.quantile"]


def grid(noise=0.0, **columns):
    """Return 24 points: 2 seeds × 2 methods × 2 α × 3 quantiles; a higher quantile and `distill` remove more."""
    rng, points = np.random.default_rng(0), []
    for seed in (0, 1):
        for method, extra in (("distill", 0.2), ("rejection", 0.0)):
            for alpha in (0, 1):
                for quantile in (0.5, 0.7, 0.9):
                    reduction = 0.3 * seed + extra + quantile / 2 + noise * rng.normal()
                    points.append(point(method, seed, reduction, quantile, **columns) | {"label.alpha": alpha})
    return points


def means(effects, field, outcome="reduction"):
    rows = effects[(effects["field"] == field) & (effects["outcome"] == outcome)]
    return dict(zip(rows["value"], rows["mean"].round(9), strict=True))


def test_means_are_over_seeds_and_other_settings():
    effects = setting_effects(pd.DataFrame(grid()), SWEPT)
    # mean over seeds 0.15, over methods 0.1, over quantiles 0.35
    assert means(effects, "label.quantile") == pytest.approx({"0.5": 0.5, "0.7": 0.6, "0.9": 0.7})
    assert means(effects, "method") == pytest.approx({"distill": 0.7, "rejection": 0.5})
    assert means(effects, "label.alpha") == pytest.approx({"0": 0.6, "1": 0.6})
    assert effects.groupby("field", sort=False)["points"].first().to_dict() == dict(
        zip(SWEPT, (12, 12, 8), strict=True)
    )
    assert effects.loc[effects["outcome"] == "reduction", "p_value"].tolist() == [0, 0, 1, 1, 0, 0, 0]


def test_the_blocks_are_the_seeds():
    rows = [point("distill", seed, reduction=0.5 + 0.1 * seed, quantile=q) for seed in range(3) for q in (0.5, 0.9)]
    rows += [
        point("rejection", seed, reduction=value, quantile=q)
        for seed, value in enumerate((0.3, 0.38, 0.5))
        for q in (0.5, 0.9)
    ]
    effects = setting_effects(pd.DataFrame(rows), ["method", "label.quantile"])
    distilled = effects[(effects["value"] == "distill") & (effects["outcome"] == "reduction")].iloc[0]
    # Both quantiles have the same values, so the p-value is of a paired test with three pairs, not six.
    expected = stats.ttest_rel([0.5, 0.6, 0.7], [0.3, 0.38, 0.5])
    assert distilled["p_value"] == pytest.approx(6 * expected.pvalue)  # Holm: two fields, three outcomes
    assert distilled["mean"] == pytest.approx(0.6) and distilled["points"] == 6
    half = (expected.confidence_interval().high - expected.confidence_interval().low) / 4
    assert (distilled["low"], distilled["high"]) == pytest.approx((0.6 - half, 0.6 + half))


def test_one_seed_has_means_and_no_test():
    one = [row for row in grid(noise=0.1) if row["seed"] == 0]
    effects = setting_effects(pd.DataFrame(one), SWEPT)
    assert effects["mean"].notna().all() and effects[["low", "high", "p_value"]].isna().all(axis=None)
    section = page(sweep_of(*one, swept=SWEPT)).sections[0]
    assert texts(section.tables[0])["label.alpha 0"][2:] == ["", "95.0", "", "+2.0", ""]


def test_equal_seeds_times_many_settings_do_not_make_an_effect():
    """Chance favours a method in all settings of a seed alike: many settings are no more evidence than one."""
    rng, found = np.random.default_rng(0), []
    for _ in range(60):
        noise = rng.normal(size=(3, 2))
        rows = [
            point(method, seed, noise[seed, i], quantile)
            for seed in range(3)
            for i, method in enumerate(("distill", "rejection"))
            for quantile in (0.1, 0.3, 0.5, 0.7)
        ]
        effects = setting_effects(
            pd.DataFrame(rows)[["method", "decoding", "seed", "label.quantile", *OUTCOMES]], SWEPT[::2]
        )
        found.append(effects.loc[effects["field"] == "method", "p_value"].min() < 0.05)
    assert np.mean(found) < 0.08


def test_gaps_are_left_out():
    points = grid()
    points[0] = refused("a guard", method="distill", seed=0, quantile=0.5) | {"label.alpha": 0}
    points.append(point("exchange", reduction=9.0) | {"label.alpha": math.nan})  # has no threshold
    points += [refused("always", method="rejection", seed=seed, quantile=0.95) | {"label.alpha": 0} for seed in (0, 1)]
    effects = setting_effects(pd.DataFrame(points), SWEPT)
    n = {"method": 11, "label.alpha": 11, "label.quantile": 7}  # the refused point is in one combination of each
    assert effects.groupby("field", sort=False)["points"].first().to_dict() == n
    assert list(means(effects, "label.quantile")) == ["0.5", "0.7", "0.9"]
    # seed 0 has one combination with distill and two others, seed 1 two each: 0.45 + 0.2 / 3, and 0.45 + 0.3 + 0.1
    assert means(effects, "label.quantile")["0.9"] == pytest.approx((0.45 + 0.2 / 3 + 0.85) / 2)
