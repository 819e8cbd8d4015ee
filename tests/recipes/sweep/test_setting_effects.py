"""What each swept setting changes: means over blocks, omitted blocks, and their table, chart and sentences."""

import math

import numpy as np
import pandas as pd
import pytest

from evenhand.recipes.sweep.page import page
from evenhand.recipes.sweep.plots import effect_chart
from evenhand.recipes.sweep.setting_effects import setting_effects
from tests.report_pages import texts

from .sweep_points import point, refused, sweep_of

SWEPT = ["method", "label.alpha", "label.quantile"]


def grid(noise=0.0, **columns):
    """Return 24 points: 2 seeds × 2 methods × 2 α × 3 quantiles; a higher quantile and `dpo` remove more."""
    rng, points = np.random.default_rng(0), []
    for seed in (0, 1):
        for method, extra in (("dpo", 0.2), ("kto", 0.0)):
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
    assert means(effects, "method") == pytest.approx({"dpo": 0.7, "kto": 0.5})
    assert means(effects, "label.alpha") == pytest.approx({"0": 0.6, "1": 0.6})
    assert effects.groupby("field", sort=False)["points"].first().to_dict() == dict(
        zip(SWEPT, (12, 12, 8), strict=True)
    )
    assert effects.loc[effects["outcome"] == "reduction", "p_value"].tolist() == [0, 0, 1, 1, 0, 0, 0]


def test_an_effect_of_the_size_of_the_noise_is_not_shown():
    effects = setting_effects(pd.DataFrame(grid(noise=0.3)), SWEPT)
    assert effects["p_value"].min() > 0.05
    rows = effects[effects["outcome"] == "reduction"]
    assert (rows["high"] - rows["low"]).between(0.1, 1).all()


def test_incomplete_blocks_are_left_out():
    points = grid()
    points[0] = refused("a guard", method="dpo", seed=0, quantile=0.5) | {"label.alpha": 0}
    points.append(point("exchange", reduction=9.0) | {"label.alpha": math.nan})  # has no threshold
    effects = setting_effects(pd.DataFrame(points), SWEPT)
    n_blocks = {"method": 11, "label.alpha": 11, "label.quantile": 7}  # the refused point is in one block of each
    assert effects.groupby("field", sort=False)["points"].first().to_dict() == n_blocks
    # without it, the blocks are: seed 0 once dpo and twice kto, seed 1 twice each, which add 0.2 · 3/7 and 0.3 · 4/7
    assert means(effects, "label.quantile")["0.9"] == pytest.approx(0.45 + 0.2 * 3 / 7 + 0.3 * 4 / 7)


@pytest.mark.parametrize("rows", [0, 1, 3])  # three quantiles in one block
def test_nothing_to_compare(rows):
    assert setting_effects(pd.DataFrame(grid()).head(rows), SWEPT).empty


def test_the_page_names_what_matters_first():
    report = page(sweep_of(*grid(noise=0.01), swept=SWEPT))
    section = report.lead[0]
    assert section.title == "What each setting changes"
    removed, relevance, _ = section.sentences
    assert removed.startswith("Bias removed: method matters, from 50.")
    assert "label.quantile matters, from 49." in removed and removed.endswith("no difference is shown for label.alpha.")
    assert relevance == "Relevance kept: no difference is shown for method, label.alpha, label.quantile."
    (table,) = section.tables
    assert texts(table)["method dpo"][:1] == ["12"] and texts(table)["label.alpha 1"][2:] == ["95.0", "+2.0"]


def test_panels_and_dots():
    effects = setting_effects(pd.DataFrame(grid()), SWEPT)
    chart = effect_chart(effects)
    assert len(chart.axes) == 9 and chart.axes[0].get_title(loc="left") == "bias removed"
    dots = [float(line.get_ydata()[0]) for line in chart.axes[2].lines]
    assert dots == pytest.approx([0.5, 0.6, 0.7])
    assert [tick.get_text() for tick in chart.axes[8].get_xticklabels()] == ["0.5", "0.7", "0.9"]
