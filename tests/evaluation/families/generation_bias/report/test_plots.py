"""Where the marks of the plots lie."""

import xml.etree.ElementTree as ElementTree

import pandas as pd
import pytest

from evenhand.evaluation.families.generation_bias.report import plots, tables
from evenhand.evaluation.report.plots import row_plot, row_scale


def test_a_row_draws_its_scores_in_place(tuned):
    (row,) = [row for row in tables.headline_table(tuned).rows if row.label == "pooled FGB*"]
    scale = row_scale([row])
    svg = ElementTree.fromstring(str(row_plot(row, scale)))
    circles = {it.get("class"): float(it.get("cx")[:-1]) for it in svg.iter("circle")}
    assert circles == {"before": scale(9.472), "after": scale(1.764)}
    (whisker,) = [it for it in svg.iter("line") if it.get("class") == "whisker before"]
    assert (whisker.get("x1"), whisker.get("x2")) == (f"{scale(8.974)}%", f"{scale(9.966)}%")
    assert sum(it.text == "◇" for it in svg.iter("text")) == 1


def test_raw_fgb_is_not_drawn_beside_what_is_corrected(tuned):
    row = tables.headline_table(tuned).rows[0]
    assert (row.label, row.marks) == ("FGB", ()) and "noise" in row.instead


def corpus(*points):
    rows = [{"descriptor": f"d{i}", "frequency": f, "before": b, "after": a} for i, (f, b, a) in enumerate(points)]
    return pd.DataFrame(rows).assign(axis="x", cluster="CARE")


def test_a_cloud_is_drawn_on_a_logarithmic_scale_and_what_never_occurs_apart():
    (panel,) = plots.corpus_panels(corpus((1e-4, 0.1, 0.1), (1e-2, 0.2, 0.1), (1.0, 0.3, 0.1), (0.0, 0.4, 0.1)))
    svg = ElementTree.fromstring(str(panel))
    before = [it for it in svg.iter("circle") if it.get("class") == "dot before"]
    across = sorted(float(it.get("cx")[:-1]) for it in before)
    assert len(before) == 4 == sum(it.get("class") == "dot after" for it in svg.iter("circle"))
    assert across[0] == plots.NEVER and across[2] - across[1] == pytest.approx(across[3] - across[2], abs=0.02)
    shown = [it.text for it in svg.iter("text")]
    assert {"never", "10⁻⁴", "10⁻²", "10⁰", "CARE", "d3", "d2"} <= set(shown)


def test_a_cloud_where_all_occur_has_no_place_for_those_that_never_do():
    (panel,) = plots.corpus_panels(corpus((0.01, 0.1, 0.1), (0.1, 0.2, float("nan"))))
    assert "never" not in str(panel) and "nan" not in str(panel)
    (panel,) = plots.corpus_panels(corpus((0.0, 0.1, 0.1), (0.0, 0.2, 0.1)))
    assert "never" in str(panel)


def test_names_of_points_do_not_lie_on_each_other():
    (panel,) = plots.corpus_panels(corpus(*[(0.01, 0.3, 0.1)] * 4, (0.02, 0.1, 0.1)))
    shown = [it.text for it in ElementTree.fromstring(str(panel)).iter("text")]
    assert len({"d0", "d1", "d2", "d3"} & set(shown)) == 1
