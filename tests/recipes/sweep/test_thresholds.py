"""Bias by the labelling threshold: the curves, the chart, and the paper's tables."""

import csv
import math

import pytest

from evenhand.evaluation.report.numbers import UNIT
from evenhand.evaluation.tables import table_rows
from evenhand.recipes.sweep.page import page
from evenhand.recipes.sweep.published import is_shown_lowest, published_tables, write_published_tables
from evenhand.recipes.sweep.setting_tables import base_rows
from evenhand.recipes.sweep.summary import published_columns
from evenhand.recipes.sweep.threshold_figure import (
    BY_SHARE,
    SET,
    curve_rows,
    rows_by_kind,
    threshold_charts,
    write_charts,
)
from evenhand.recipes.sweep.thresholds import spaced, threshold_curves, threshold_table
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


@pytest.mark.parametrize("unset", [math.nan, "null"])
def test_a_sweep_over_the_share_is_a_curve(unset):
    """A column with null has texts."""
    swept = ["label.value", "label.share"]
    rows = []
    for value, beta, share in [("divergence", 0.1, 0.1), ("divergence", 0.001, 0.7), ("bias_value", 0.3, 0.5)]:
        given = share if unset != "null" else str(share)
        rows.append(labelled(beta, share, 0.03) | {"label.value": value, "label.share": given})
    rows.append(labelled(0.2, 0.6, 0.03) | {"label.value": "bias_value", "label.share": unset})
    settings = rows_of(*rows, swept=swept)
    curves = threshold_curves(settings, swept)
    assert [curve.values("beta") for curve in curves] == [[0.001, 0.1], [0.2, 0.3]]
    assert [list(rows_by_kind(curve)) for curve in curves] == [[BY_SHARE], [SET, BY_SHARE]]


def test_the_threshold_of_a_quantile_is_the_mean_over_seeds_refused_ones_included():
    rows = [labelled(beta, 0.5, 0.01, quantile=0.5, seed=seed) for seed, beta in enumerate((0.1, 0.2))]
    kept = {name: rows[1][name] for name in ("alpha", "beta", "quantile", "share_labelled_bias", "label.beta")}
    lost = refused("perplexity doubled", seed=2, quantile=0.5) | kept | {"beta": 0.6}
    (setting,) = rows_of(*rows, lost)
    assert setting["beta"] == pytest.approx((0.1 + 0.2 + 0.6) / 3)
    assert (setting["seeds"], setting["refused"]) == (2, 1)


def test_each_alpha_is_a_curve_of_one_chart(settings):
    others = [labelled(beta, share, 0.02, alpha=2) for beta, share in ((0.5, 0.4), (2.0, 0.1))]
    swept = [*SWEPT, "label.alpha"]
    rows = [row | {"label.alpha": row["alpha"]} for row in (*ROWS, *others)]
    charts = threshold_charts(rows_of(*rows, swept=swept), swept)
    assert list(charts) == ["thresholds"]
    assert not charts["thresholds"].axes[0].child_axes  # there is no axis of β: each curve has its own
    assert [curve.label for curve in threshold_curves(rows_of(*rows, swept=swept), swept)] == ["alpha 0", "alpha 2"]


def lines_of(axes):
    """Return the points of the lines with markers, by their marker."""
    lines = [line for line in axes.lines if line.get_marker() in ("o", "s")]
    return {line.get_marker(): [[*line.get_xdata()], [*line.get_ydata()]] for line in lines}


def test_set_thresholds_and_quantiles_are_two_lines_by_the_share_labelled(settings):
    chart = threshold_charts(settings, SWEPT)["thresholds"]
    panels = {axes.get_title(loc="left"): axes for axes in chart.axes}
    bias = [f"{name}, {UNIT}" for name in ("FGB", "FGB*", "pooled FGB*", "SCGB: CARE")]
    assert list(panels) == [*bias, "perplexity, change in %", "relevance kept, %", "response to the person kept, %"]
    axes = panels[f"FGB, {UNIT}"]
    assert lines_of(axes) == {"o": [[10.0, 70.0], [30.0, 20.0]], "s": [[50.0], [10.0]]}
    (above,) = axes.child_axes
    assert [tick.get_text() for tick in above.get_xticklabels()] == ["β = 0.1", "0.001"]
    # The base model and self-chat, each with the ends of its interval, ± 1.
    flat = [line.get_ydata()[0] for line in axes.lines if line.get_marker() == "None"]
    assert flat == pytest.approx([40.0, 39.0, 41.0, 50.0, 49.0, 51.0])


def test_a_null_among_set_thresholds_is_a_quantile():
    """A table with null has its numbers as texts (`sweep.points.point_fields`)."""
    rows = [row | {"label.beta": str(row["label.beta"])} for row in ROWS[:2]]
    rows.append(ROWS[2] | {"label.beta": "null", "label.quantile": math.nan})
    (curve,) = threshold_curves(rows_of(*rows), SWEPT)
    betas = {kind: [row["beta"] for row in of_kind] for kind, of_kind in rows_by_kind(curve).items()}
    assert betas == {SET: [0.1, 0.001], BY_SHARE: [0.02]}


def test_every_line_is_in_the_legend(settings):
    chart = threshold_charts(settings, SWEPT)["thresholds"]
    named = [text.get_text() for text in chart.legends[0].get_texts()]
    lines = [f"control_tags, {SET}", f"control_tags, {BY_SHARE}", "base model", "self_chat"]
    assert named == [*lines, "95 % interval"]
    styles = [(line.get_linestyle(), line.get_marker(), line.get_color()) for line in chart.legends[0].get_lines()]
    assert len(set(styles)) == len(lines)


def test_curves_beyond_the_number_of_styles_are_drawn_too():
    swept = ["training.seed_of_lora", *SWEPT]
    rows = []
    for number in range(6):
        for beta, share in ((0.1, 0.1), (0.001, 0.7)):
            rows.append(labelled(beta, share, 0.03 - 0.001 * number, **{"training.seed_of_lora": number}))
    chart = threshold_charts(rows_of(*rows, swept=swept), swept)["thresholds"]
    named = [text.get_text() for text in chart.legends[0].get_texts()]
    assert sum(SET in name for name in named) == 6


def test_bands_stay_in_the_possible_range_and_in_the_panel():
    rows = [labelled(0.1, 0.1, 0.03), labelled(0.001, 0.7, 0.02)]
    wide = [row | {"fgb_low": -0.5, "fgb_high": 0.9} for row in rows]  # as of two seeds
    axes = threshold_charts(rows_of(*wide), SWEPT)["thresholds"].axes[0]
    assert min(vertex[1] for path in axes.collections[0].get_paths() for vertex in path.vertices) == 0
    assert axes.get_ylim()[0] == 0 and 40 < axes.get_ylim()[1] < 100  # the base model's 40, and not 900


def test_a_refused_threshold_is_a_cross_below():
    lost = refused("perplexity doubled", quantile=math.nan) | {"label.beta": 0.5, "beta": 0.5, "alpha": 0}
    lost["share_labelled_bias"] = 0.05
    chart = threshold_charts(rows_of(*ROWS, lost), SWEPT)["thresholds"]
    for axes in chart.axes:
        assert axes.lines[-1].get_xdata().tolist() == [5.0]


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


def test_rows_of_the_tracker_are_in_the_order_of_the_share(settings):
    rows = curve_rows(settings, SWEPT)
    assert [row["share_labelled_bias"] for row in rows] == [0.1, 0.5, 0.7]
    curve = "control_tags, beta set fgb"
    assert [row.get(curve) for row in rows] == [30.0, None, 20.0]
    assert rows[0][f"{curve}_low"] == pytest.approx(29) and rows[1][f"control_tags, {BY_SHARE} fgb"] == 10.0
    assert "control_tags, beta set relevance_kept" in rows[0]


def read_csv(file):
    with file.open(encoding="utf-8", newline="") as text:
        return list(csv.DictReader(text))


def test_the_papers_tables_as_csv_and_latex(tmp_path):
    lost = refused("perplexity 50 % up.", seed=1) | {"label.beta": 0.1, "label.quantile": math.nan}
    sweep = sweep_of(*ROWS, lost, swept=SWEPT, classifier="package:evenhand/recipes/testbed/styles_28", n=[4159, 4160])
    files = write_published_tables(tmp_path, sweep)
    assert [file.name for file in files] == ["table_8.csv", "table_8.tex", "table_9.csv", "table_9.tex"]
    rows = read_csv(files[0])
    names = ["base model", "control_tags · beta 0.1", "control_tags · beta 0.001", "control_tags · quantile 0.5"]
    assert [row["model"] for row in rows] == [*names, "self_chat"]
    assert [float(row["FGB"]) for row in rows] == pytest.approx([40, 30, 20, 10, 50])
    assert [float(row["CARE_high"]) for row in rows] == pytest.approx([3, 2.5, 2, 1.5, 3.5])  # PGB: FGB/20 + 0.001
    assert (rows[0]["beta"], float(rows[3]["beta"])) == ("", 0.02)
    counts = [(row["seeds"], row["refused"], row["refused_because"]) for row in rows]
    assert counts[:3] == [("1", "0", ""), ("1", "1", "perplexity 50 % up."), ("1", "0", "")]
    assert float(rows[1]["relevance kept, %"]) == 95 and rows[0]["relevance kept, %"] == ""  # the base has no costs
    text = files[1].read_text(encoding="utf-8")
    lines = text.splitlines()
    # perplexity, relevance, response to the person; and in the next line, the intervals
    values = r"control\_tags · quantile 0.5 & 0.02 & 50 & 1 of 1 & \textbf{10.00} & 0.50 & +2.0 & 95.0 & 50.0 \\"
    lines = files[1].read_text(encoding="utf-8").splitlines()
    assert "[9.00, 11.00]" in lines[lines.index(values) + 1]
    (caption,) = [line for line in lines if line.startswith(r"\caption")]
    parts = (
        "Model: base.",
        r"styles\_28.",
        "4,159 to 4,160 responses",
        r"beta 0.1: 1 of 2 refused (perplexity 50 \% up)",
    )
    assert all(part in caption for part in parts) and "package" not in caption
    assert r"\textbf" not in files[3].read_text(encoding="utf-8")  # SCGB is FGB/10: all intervals overlap
    assert write_published_tables(tmp_path, sweep_of(point(), swept=[])) == []


def test_table_10_has_the_reduction_of_each_axis_in_percent(tmp_path):
    axes = {"ability": (0.008, 0.006), "age": (0.005, 0.006), "nonce": (0.0, 0.002)}  # FGB before and after
    row = point(**measured(0.02), **measured(0.04, "base_"))
    for name, (before, after) in axes.items():
        row |= interval(f"fgb_axis: {name}", after) | interval(f"base_fgb_axis: {name}", before)
    row |= interval("capability: piqa", 0.6) | interval("base_capability: piqa", 0.65)
    files = {file.name: file for file in write_published_tables(tmp_path, sweep_of(row, swept=[]))}
    rows = read_csv(files["table_10.csv"])
    assert [row["axis"] for row in rows] == ["ability", "age", "nonce"]
    assert [float(row["reduction_percent"]) for row in rows[:2]] == pytest.approx([25, -20])
    assert rows[2]["reduction_percent"] == ""  # all answers were the same before
    assert [float(row["before_low"]) for row in rows[:2]] == pytest.approx([7, 4])
    assert r"ability & 8.00 & 6.00 (−25 \%) \\" in files["table_10.tex"].read_text(encoding="utf-8")
    text = files["table_10.tex"].read_text(encoding="utf-8")
    assert "brackets" not in text and "Bold" not in text  # it has neither
    tasks = [line["piqa, %"] for line in read_csv(files["table_8.csv"])]
    assert [float(task) for task in tasks] == pytest.approx([65, 60])


def test_the_reduction_of_an_axis_is_of_the_seeds_that_were_not_refused(tmp_path):
    """The base of seed 2, which one setting lost, is four times the others': 10, 10 and 40; tuning halves each."""
    rows = []
    for seed, base in enumerate((0.010, 0.010, 0.040)):
        before = interval("base_fgb", base) | interval("base_fgb_axis: age", base)
        for quantile in (0.5, 0.9):
            row = point(seed=seed, quantile=quantile, **before, **interval("fgb", base / 2))
            rows.append(row | interval("fgb_axis: age", base / 2))
    rows[-1] = refused("it burnt", seed=2, quantile=0.9)
    sweep = sweep_of(*rows)
    files = {file.name: file for file in write_published_tables(tmp_path, sweep)}
    lines = read_csv(files["table_10.csv"])
    assert [float(line["reduction_percent"]) for line in lines] == pytest.approx([50, 50])
    assert [float(line["before"]) for line in lines] == pytest.approx([20, 10])
    assert r"age & 20.00 & 10.00 (−50 \%) & 5.00 (−50 \%) \\" in files["table_10.tex"].read_text(encoding="utf-8")


def test_a_base_row_names_the_values_that_were_swept_and_has_numbers_if_all_its_points_were_refused():
    base = interval("base_fgb", 0.04)
    name = "measure.prompts.descriptors"
    rows = [point(**interval("fgb", 0.02), **base) | {name: value} for value in (math.nan, 7.0)]
    rows.append(refused("it burnt") | base | {name: 9.0})
    settings = rows_of(*rows, swept=[name])
    assert [(row["label"], row["seeds"], row["fgb"]) for row in base_rows(settings, ["fgb"])] == [
        ("base model", 1, 0.04),
        ("base model, descriptors 7", 1, 0.04),
        ("base model, descriptors 9", 1, 0.04),
    ]


def test_each_model_of_a_sweep_over_models_has_its_base_row():
    rows = []
    for model, before, after in (("small", 0.010, 0.005), ("large", 0.9, 0.1)):
        rows.append(point(**interval("fgb", after), **interval("base_fgb", before)) | {"measure.model.name": model})
    settings = rows_of(*rows, swept=["measure.model.name"])
    table = published_tables(settings, ["fgb"])[0]
    assert {row.label: row.cells[0].text for row in table.rows} == {
        "0 base model, name small": "10.00",
        "0 base model, name large": "900.00",
        "1 name small": "5.00",
        "2 name large": "100.00",
    }


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
