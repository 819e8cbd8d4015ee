"""Bias by the labelling threshold: the curves, the chart, and the paper's tables."""

import csv
import math

import pytest
from matplotlib.colors import to_hex

from evenhand.evaluation.report.figures import AFTER_COLOR, PAPER
from evenhand.evaluation.report.numbers import UNIT
from evenhand.evaluation.tables import table_rows
from evenhand.recipes.sweep.page import page
from evenhand.recipes.sweep.published import is_shown_lowest, published_tables, write_published_tables
from evenhand.recipes.sweep.summary import published_columns
from evenhand.recipes.sweep.thresholds import (
    curve_rows,
    spaced,
    threshold_charts,
    threshold_curves,
    threshold_table,
    write_charts,
)
from tests.report_pages import printed, texts

from .sweep_points import point, refused, settings_of, sweep_of

SWEPT = ["label.beta", "label.quantile"]


def interval(name, value):
    return {name: value, f"{name}_low": value - 0.001, f"{name}_high": value + 0.001}


def measured(fgb, prefix=""):
    """Return the columns of bias: FGB, half of it without noise, a tenth in one style cluster."""
    columns = {"fgb": fgb, "fgb_corrected": fgb / 2, "fgb_pooled_corrected": fgb / 4, "scgb: CARE": fgb / 10}
    columns["pgb: CARE"] = fgb / 20
    row = {}
    for name, value in columns.items():
        row |= interval(f"{prefix}{name}", value)
    return row


def labelled(beta, share, fgb, *, quantile=None, **columns):
    """Return a point of control_tags with a realised threshold; `quantile` if that is what was set."""
    row = point(alpha=0, beta=beta, share_labelled_bias=share, **measured(fgb), **measured(0.04, "base_"))
    row["quantile"] = 1 - share
    row["label.beta"] = beta if quantile is None else math.nan
    row["label.quantile"] = math.nan if quantile is None else quantile
    return row | columns


def self_chat(fgb=0.05):
    row = point("self_chat", **measured(fgb), **measured(0.04, "base_"))
    return row | {"label.beta": math.nan}


ROWS = [
    labelled(0.1, 0.1, 0.03),
    labelled(0.001, 0.7, 0.02),
    labelled(0.02, 0.5, 0.01, quantile=0.5),
    self_chat(),
]


def rows_of(*rows, swept=SWEPT):
    """Return the settings of points as rows."""
    return table_rows(settings_of(*rows, swept=swept))


@pytest.fixture
def settings():
    return rows_of(*ROWS)


def test_a_curve_has_set_and_computed_thresholds_in_the_order_of_beta(settings):
    (curve,) = threshold_curves(settings, SWEPT)
    assert curve.label == "control_tags" and curve.alpha == 0
    assert curve.values("beta") == [0.001, 0.02, 0.1]
    assert curve.values("share_labelled_bias") == [0.7, 0.5, 0.1]
    assert threshold_curves(rows_of(ROWS[0], ROWS[3], swept=SWEPT), SWEPT) == []  # one threshold


def test_the_threshold_of_a_quantile_is_the_mean_over_seeds_refused_ones_included():
    rows = [labelled(beta, 0.5, 0.01, quantile=0.5, seed=seed) for seed, beta in enumerate((0.1, 0.2))]
    kept = {name: rows[1][name] for name in ("alpha", "beta", "quantile", "share_labelled_bias", "label.beta")}
    lost = refused("perplexity doubled", seed=2, quantile=0.5) | kept | {"beta": 0.6}
    (setting,) = rows_of(*rows, lost)
    assert setting["beta"] == pytest.approx((0.1 + 0.2 + 0.6) / 3)
    assert (setting["seeds"], setting["refused"]) == (2, 1)


def test_each_alpha_has_its_own_chart(settings):
    others = [labelled(beta, share, 0.02, alpha=2) for beta, share in ((0.5, 0.4), (2.0, 0.1))]
    swept = [*SWEPT, "label.alpha"]
    rows = [row | {"label.alpha": row["alpha"]} for row in (*ROWS, *others)]
    charts = threshold_charts(rows_of(*rows, swept=swept), swept)
    assert list(charts) == ["thresholds_1", "thresholds_2"]
    assert list(threshold_charts(settings, SWEPT)) == ["thresholds"]
    assert [curve.label for curve in threshold_curves(rows_of(*rows, swept=swept), swept)] == ["alpha 0", "alpha 2"]


def test_dots_lie_at_beta_and_a_quantiles_dot_is_hollow(settings):
    chart = threshold_charts(settings, SWEPT)["thresholds"]
    panels = {axes.get_title(loc="left"): axes for axes in chart.axes}
    assert list(panels) == [f"{name}, {UNIT}" for name in ("FGB", "FGB*", "pooled FGB*", "SCGB: CARE")]
    axes = panels[f"FGB, {UNIT}"]
    assert axes.get_xscale() == "log"
    dots = axes.collections[-1]
    assert dots.get_offsets().tolist() == [[0.001, 20.0], [0.02, 10.0], [0.1, 30.0]]
    assert [to_hex(color) for color in dots.get_facecolors()] == [AFTER_COLOR, PAPER, AFTER_COLOR]
    # The base model and self-chat, as lines and bands of ± 1.
    assert [line.get_ydata()[0] for line in axes.lines[:2]] == [40.0, 50.0]
    bands = [(patch.get_y(), patch.get_y() + patch.get_height()) for patch in axes.patches]
    assert [end for band in bands for end in band] == pytest.approx([39.0, 41.0, 49.0, 51.0])
    (above,) = axes.child_axes
    assert [tick.get_text() for tick in above.get_xticklabels()] == ["70 %", "50 %", "10 %"]
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["0.001", "0.02", "0.1"]


def test_a_refused_threshold_is_a_cross_below():
    lost = refused("perplexity doubled", quantile=math.nan) | {"label.beta": 0.5, "beta": 0.5, "alpha": 0}
    chart = threshold_charts(rows_of(*ROWS, lost), SWEPT)["thresholds"]
    for axes in chart.axes:
        assert axes.lines[-1].get_xdata().tolist() == [0.5]
        assert axes.get_xlim()[1] > 0.5


def test_a_threshold_below_zero_has_an_axis_that_is_not_logarithmic():
    rows = [labelled(-0.01, 0.8, 0.02), labelled(0.02, 0.3, 0.01)]
    chart = threshold_charts(rows_of(*rows, swept=SWEPT), SWEPT)["thresholds"]
    assert {axes.get_xscale() for axes in chart.axes} == {"linear"}


def test_ticks_that_would_overlap_are_left_out():
    assert spaced([0.0, 0.1, 0.2, 0.9, 1.0], 0.15) == [0, 2, 3]


def test_charts_are_png_and_pdf(settings, tmp_path):
    files = write_charts(tmp_path / "new", threshold_charts(settings, SWEPT))
    assert [file.read_bytes()[:4] for file in files] == [b"\x89PNG", b"%PDF"]


def test_every_setting_with_a_threshold_is_in_the_table_and_on_the_first_screen(settings):
    table = threshold_table(settings)
    assert texts(table) == {
        "0 base model": ["", "", "", "", "40.00", "20.00", "10.00"],
        "1 control_tags · beta 0.1": ["0", "0.1", "0.900", "10.0", "30.00", "15.00", "7.50"],
        "2 control_tags · beta 0.001": ["0", "0.001", "0.300", "70.0", "20.00", "10.00", "5.00"],
        "3 control_tags · quantile 0.5": ["0", "0.02", "0.500", "50.0", "10.00", "5.00", "2.50"],
        "4 self_chat": ["", "", "", "", "50.00", "25.00", "12.50"],
    }
    assert "0.02" in printed(page(sweep_of(*ROWS, swept=SWEPT)))
    assert threshold_table(rows_of(self_chat(), swept=[])) is None


def test_rows_of_the_tracker_are_in_the_order_of_beta(settings):
    rows = curve_rows(settings, SWEPT)
    assert [row["beta"] for row in rows] == [0.001, 0.02, 0.1]
    assert [row["control_tags fgb"] for row in rows] == [20.0, 10.0, 30.0]
    assert {"control_tags fgb_corrected", "control_tags scgb: CARE", "share_labelled_bias"} <= set(rows[0])


def test_the_papers_tables_as_csv_and_latex(tmp_path):
    sweep = sweep_of(*ROWS, swept=SWEPT)
    files = write_published_tables(tmp_path, sweep)
    assert [file.name for file in files] == ["table_8.csv", "table_8.tex", "table_9.csv", "table_9.tex"]
    with files[0].open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    names = ["base model", "control_tags · beta 0.1", "control_tags · beta 0.001", "control_tags · quantile 0.5"]
    assert [row["model"] for row in rows] == [*names, "self_chat"]
    assert [float(row["FGB"]) for row in rows] == pytest.approx([40, 30, 20, 10, 50])
    assert [float(row["CARE_high"]) for row in rows] == pytest.approx([3, 2.5, 2, 1.5, 3.5])  # PGB: FGB/20 + 0.001
    assert (rows[0]["beta"], float(rows[3]["beta"])) == ("", 0.02)
    lines = files[1].read_text(encoding="utf-8").splitlines()
    assert r"control\_tags · quantile 0.5 & 0.02 & 50\,\% & \textbf{10.00} & 0.50 \\" in lines
    assert r"base model &  &  & 40.00 & 2.00 \\" in lines
    assert r"\textbf" not in files[3].read_text(encoding="utf-8")  # SCGB is FGB/10: all intervals overlap
    assert write_published_tables(tmp_path, sweep_of(point(), swept=[])) == []


def test_a_value_is_bold_only_if_its_interval_is_below_all_others():
    rows = [interval("fgb", value) for value in (0.010, 0.0119, 0.020)]
    assert not any(is_shown_lowest(row, rows, "fgb") for row in rows)  # ± 1: 11 is within the interval of 11.9
    rows[0] = interval("fgb", 0.0098)
    assert [is_shown_lowest(row, rows, "fgb") for row in rows] == [True, False, False]


def test_the_bias_as_published_is_shown_before_and_after_in_thousandths():
    """The base is the mean over the seeds of one setting: (4 + 6) / 2, and (2 + 4) / 2 of the cluster."""
    rows = [
        point(seed=seed, **interval("fgb", 0.003), **interval("base_fgb", base))
        | {**interval("pgb: CARE", 0.001), **interval("base_pgb: CARE", base - 0.002)}
        for seed, base in ((0, 0.004), (1, 0.006))
    ]
    tables = published_tables(rows_of(*rows, swept=[]), published_columns(sweep_of(*rows).points))
    assert tables[0].columns == ("setting", "FGB", "CARE") and "SCGB" in tables[1].caption
    assert [(row.label, *(cell.text for cell in row.cells)) for row in tables[0].rows] == [
        ("0 base model", "5.00", "3.00"),
        ("1 control_tags", "3.00", "1.00"),
    ]
    assert published_tables(rows_of(point(), swept=[]), []) == []
