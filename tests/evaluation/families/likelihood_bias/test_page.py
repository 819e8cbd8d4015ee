"""Reports on Likelihood Bias: numbers of small tables, missing and undefined values, hostile names, charts."""

import math
import re

import numpy as np
import pandas as pd
import pytest

from evenhand.evaluation.families import ReportContext
from evenhand.evaluation.families.likelihood_bias.metric import likelihood_bias
from evenhand.evaluation.families.likelihood_bias.page import comparison_page, page
from evenhand.evaluation.families.likelihood_bias.plots import (
    LESS_LIKELY,
    LIKELIER,
    pair_chart,
    pair_colours,
    spread_chart,
)
from evenhand.evaluation.families.likelihood_bias.rows import HATE, LOVE
from evenhand.evaluation.report.figures import svg
from evenhand.evaluation.report.html import page_html
from evenhand.evaluation.report.markdown import page_markdown
from evenhand.evaluation.score import BiasScore
from tests.likelihood_tables import make_table
from tests.report_pages import HOSTILE, assert_shows_as_text, measured, printed, table_named, texts

HI = "Hi, I'm {noun_phrase}."


def two_axes(templates=(LOVE, HATE, HI), axes=("age", "body_type"), **settings) -> pd.DataFrame:
    """Return two axes: all 6 pairs of four ages differ (5 nouns each, apart: p = 2/252), none of 3 body types does."""
    nouns = np.arange(5) / 10
    ages = {("age", name): nouns + offset for offset, name in enumerate(["young", "adult", "old", "aged"], start=2)}
    bodies = {("body_type", name): nouns + 3 for name in ("tall", "short", "bald")}
    cells = {cell: values for cell, values in (ages | bodies).items() if cell[0] in axes}
    return make_table({(axis, t, name): list(it) for (axis, name), it in cells.items() for t in templates}, **settings)


def make_page(likelihoods: pd.DataFrame, scores=None, truth=(), notes=(), **names):
    scores = likelihood_bias(likelihoods, {"model": {"name": "m"}}) if scores is None else scores
    return page(measured(scores, {"likelihoods": likelihoods}, **names), ReportContext(truth, notes))


def make_comparison_page(before, after, changes=()):
    runs = (measured(scores, {}, model=name) for scores, name in ((before, "a"), (after, "b"), (changes, "")))
    return comparison_page(*runs, ReportContext())


@pytest.mark.parametrize(("n_nouns", "smallest"), [(2, "0.33"), (3, "0.1"), (4, None)])
def test_too_few_nouns_for_any_difference_have_a_warning(n_nouns, smallest):
    sentences = {("age", "t", name): [1.0 + k + 10 * place for k in range(n_nouns)] for place, name in enumerate("ab")}
    warnings = make_page(make_table(sentences)).warnings
    assert [f"at most {n_nouns} nouns" in it and f"is {smallest}." in it for it in warnings] == [True] * bool(smallest)


def test_headline_and_tables_of_two_axes():
    page = make_page(two_axes())
    assert page.headline_value == "66.7 %"  # 6 of 9 pairs, in each template
    assert page.verdict.count("66.7 %") == 2 and page.verdict.endswith("5 %.")  # raw and corrected, then chance
    for text in (page_html(page), page_markdown(page), printed(page)):
        assert "66.7" in text
    report_table = table_named(make_page(two_axes()), "Likelihood Bias by axis")
    assert texts(report_table) == {"age": ["100.0", "100.0", "0.50", "18"], "body type": ["0.0", "0.0", "0.00", "9"]}
    assert report_table.ideal == 5.0
    assert [row.marks[0].value for row in report_table.rows] == [100.0, 0.0]
    report_table = texts(table_named(make_page(two_axes()), "Pairs of descriptors"))
    assert report_table["paired by noun, %"] == ["0.0", "5", "27"]  # five nouns can never differ, p = 2/32
    assert report_table["Likelihood Bias, %"] == ["66.7", "at most 5", "27"] and len(report_table) == 4
    assert "Wilcoxon" in page_markdown(make_page(two_axes()))


def test_extremes_and_their_template():
    likelihoods = two_axes(n_tokens=lambda name: 2 if name == "aged" else 1)
    report_table = table_named(make_page(likelihoods), "Most and least likely")
    least, most = f"young\u00a0({math.exp(2.2):.2f})", f"old\u00a0({math.exp(4.2):.1f})"
    assert texts(report_table)["age"] == ["100.0", least, most, "3 of 4"]
    assert LOVE in " ".join(make_page(likelihoods).sections[2].sentences)
    page = make_page(two_axes(templates=(HI,)))
    assert HI in " ".join(page.sections[2].sentences)
    assert not any(part.title == "Love and hate" and part.has_content for part in page.sections)


def test_the_contrast_of_love_and_hate_has_both_ends_and_its_line_at_the_mean():
    likelihoods = two_axes()
    hated = (likelihoods["template"] == HATE) & (likelihoods["descriptor"] == "old")
    likelihoods.loc[hated, "log_likelihood"] += 0.7  # hating them is likelier by 0.7 nats
    report_table = table_named(make_page(likelihoods), "Contrast of love and hate")
    assert report_table.rows[0].label == "old"
    assert [cell.text for cell in report_table.rows[0].cells] == ["age", "−0.700", "−0.600", "5"]
    assert report_table.ideal == pytest.approx(-0.1)  # of seven descriptors
    assert len(report_table.rows) == 6  # three at each end


def test_rows_left_out_are_counted():
    likelihoods = two_axes()
    likelihoods.loc[likelihoods.index[:2], "log_likelihood"] = math.nan
    likelihoods.loc[likelihoods["descriptor"].eq("bald") & likelihoods["template"].eq(HI), "log_likelihood"] = -math.inf
    page = make_page(likelihoods)
    assert re.findall(r"\d+", page.notes[0]) == ["98", "7", "25", "2"]  # sentences compared and left out, then pairs
    assert not page.warnings
    likelihoods.loc[likelihoods.index[:20], "log_likelihood"] = math.nan
    assert "left out" in make_page(likelihoods).warnings[0]


def test_planted_scores_are_in_table_and_marks():
    planted = [
        BiasScore("likelihood_bias", 0.9, 0.05, (0, 1), 9),
        BiasScore("likelihood_bias", 1.0, 0.05, (0, 1), 6, group={"axis": "age"}),
    ]
    page = make_page(two_axes(), truth=planted)
    rows = texts(table_named(page, "Measured against"))
    assert rows["Likelihood Bias"][:2] == ["90.0", "66.7"] and rows["Likelihood Bias, age"][:2] == ["100.0", "100.0"]
    roles = [mark.role for mark in table_named(page, "Likelihood Bias by axis").rows[0].marks]
    assert roles == ["before", "truth"]
    assert "◇" in page_html(page)


def test_undefined_scores_give_their_reasons():
    likelihoods = two_axes().assign(log_likelihood=math.nan)
    page = make_page(likelihoods)
    assert page.headline_value == "–" and "fewer than two descriptors" in page.verdict
    page_html(page), page_markdown(page), printed(page)
    likelihoods = pd.concat([two_axes(), two_axes(axes=("age",)).query("descriptor == 'old'").assign(axis="nonce")])
    page = make_page(likelihoods)
    cell = table_named(page, "Likelihood Bias by axis").rows[-1].cells[0]
    assert cell.text == "undefined" and "nonce" in cell.reason
    assert page.headline_value == "66.7 %"


def test_hostile_names_are_shown_as_text():
    strings = [it for it in HOSTILE if it and "\ud800" not in it]  # pandas' own strings cannot hold a lone surrogate
    values = list(np.arange(5) / 10)
    cells = {(it, t, name): values for it in strings for t in (LOVE, HATE) for name in (it, "plain")}
    cells |= {("plain", it, name): values for it in strings for name in ("plain", it)}
    assert_shows_as_text(make_page(make_table(cells), model=strings[0], dataset=strings[1], notes=strings), strings)


def test_a_pair_is_orange_where_the_row_is_less_likely_and_blank_where_it_was_not_compared():
    above = np.array([[0.5, 0.5, math.nan], [0.5, 0.5, 1.0], [1.0, 0.0, 0.5]])
    colours = pair_colours(above)
    assert tuple(colours[2, 0]) == (*LESS_LIKELY, 1) and tuple(colours[2, 1]) == (*LIKELIER, 1)
    assert 0 < colours[1, 0, 3] < 0.1  # no difference, but compared
    assert not colours[..., 3][np.triu_indices(3)].any()  # each pair once
    assert pair_colours(np.full((2, 2), math.nan))[1, 0, 3] == 0


def test_charts_of_pairs_and_quantiles():
    chart = pair_chart("pairs", pd.DataFrame([[0.5, 0.2], [0.8, 0.5]], list("ab"), list("ab")))
    (axes,) = chart.axes
    assert (
        [it.get_text() for it in axes.get_xticklabels()]
        == ["a", "b"]
        == [it.get_text() for it in axes.get_yticklabels()]
    )
    assert svg(chart) == svg(chart) and "data:image/png" in svg(chart)
    frames = [pd.DataFrame([[10.0 ** (1 + q / 2), math.nan]], [LOVE], ["age", "nonce"]) for q in range(5)]
    (axes,) = spread_chart("spread", frames).axes
    whisker, box, median = (line.get_xdata()[:2] for line in axes.lines)
    assert whisker[0] < box[0] < median[0] == median[1] < box[1] < whisker[1] < 1
    assert all(len(line.get_xdata()) == 3 for line in axes.lines)  # of one cell, and a gap
    assert [it.get_text() for it in axes.get_xticklabels()] == ["age", "nonce"]


def test_a_comparison_has_a_verdict_only_with_an_interval():
    before = likelihood_bias(two_axes())
    after = likelihood_bias(two_axes(axes=("body_type",)))
    page = make_comparison_page(before, after)
    assert page.headline_value == "–" and page.verdict.startswith("No verdict")
    assert re.findall(r"[\d.]+ %", page.verdict) == ["66.7 %", "0.0 %"]
    change = BiasScore("likelihood_bias_difference", -2 / 3, 0.0, (-1, 1), 27, (-0.8, -0.5), 0.001)
    page = make_comparison_page(before, after, [change])
    assert page.headline_value == "−66.7" and page.verdict.startswith("Likelihood Bias fell")
    ages = page.sections[0].tables[0].rows[0]
    assert [cell.text for cell in ages.cells] == ["100.0", "not measured", "", ""]
    for text in (page_html(page), page_markdown(page), printed(page)):
        assert "66.7" in text
    undefined = likelihood_bias(two_axes().assign(log_likelihood=math.nan))
    assert make_comparison_page(before, undefined).verdict.startswith("No verdict")
    assert make_comparison_page([], []).verdict.startswith("No verdict")


def test_the_page_is_accessible(browser):
    assert browser.faults(page_html(make_page(two_axes()))) == []
