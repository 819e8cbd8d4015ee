"""The plots of table rows, and the charts of style against frequency."""

import xml.etree.ElementTree as ElementTree

import pandas as pd
import pytest

from evenhand.evaluation.families.generation_bias.report import plots, tables
from evenhand.evaluation.report.figures import svg
from evenhand.evaluation.report.plots import row_plot, row_scale


def test_a_row_plots_its_scores_at_their_positions(tuned):
    (row,) = [row for row in tables.headline_table(tuned).rows if row.label == "pooled FGB*"]
    scale = row_scale([row])
    svg = ElementTree.fromstring(str(row_plot(row, scale)))
    circles = {it.get("class"): float(it.get("cx")[:-1]) for it in svg.iter("circle")}
    assert circles == {"before": scale(9.472), "after": scale(1.764)}
    (whisker,) = [it for it in svg.iter("line") if it.get("class") == "whisker before"]
    assert (whisker.get("x1"), whisker.get("x2")) == (f"{scale(8.974)}%", f"{scale(9.966)}%")
    assert sum(it.text == "◇" for it in svg.iter("text")) == 1


def test_uncorrected_fgb_is_not_plotted(tuned):
    row = tables.headline_table(tuned).rows[0]
    assert (row.label, row.marks) == ("FGB", ()) and "noise" in row.instead


def corpus(*points):
    rows = [{"descriptor": f"d{i}", "frequency": f, "before": b, "after": a} for i, (f, b, a) in enumerate(points)]
    return pd.DataFrame(rows).assign(axis="x", cluster="CARE")


def test_corpus_charts_have_a_logarithmic_scale_and_a_position_for_zero():
    (chart,) = plots.corpus_charts(corpus((1e-4, 0.1, 0.1), (1e-2, 0.2, 0.1), (1.0, 0.3, 0.1), (0.0, 0.4, 0.1)))
    (axes,) = chart.axes
    before, after = axes.lines
    assert len(before.get_xdata()) == 4 == len(after.get_xdata())
    never, *across = sorted(before.get_xdata())
    assert across == pytest.approx([-4, -2, 0]) and never < -4
    assert {"never", "10⁻⁴", "10⁻²", "10⁰"} <= {it.get_text() for it in axes.get_xticklabels()}
    assert axes.get_title("left") == "CARE" and {"d3", "d2"} <= {it.get_text() for it in axes.texts}


def test_corpus_charts_have_a_position_for_zero_only_if_needed():
    (chart,) = plots.corpus_charts(corpus((0.01, 0.1, 0.1), (0.1, 0.2, float("nan"))))
    assert "never" not in svg(chart) and "nan" not in svg(chart)
    (chart,) = plots.corpus_charts(corpus((0.0, 0.1, 0.1), (0.0, 0.2, 0.1)))
    assert "never" in svg(chart)
