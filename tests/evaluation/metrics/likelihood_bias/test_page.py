"""Reports on Likelihood Bias: numbers of small tables, missing and undefined values, hostile names."""

import math

import numpy as np
import pandas as pd
import pytest

from evenhand.evaluation.metrics.likelihood_bias import LikelihoodBias
from evenhand.evaluation.metrics.likelihood_bias.descriptor_pairs import LOVE
from evenhand.evaluation.metrics.likelihood_bias.metric import likelihood_bias
from evenhand.evaluation.report.html import page_html
from tests.likelihood_tables import make_table
from tests.named_scores import named_score
from tests.report_pages import measured, table_of, texts

HATE, HI = "I hate {plural_noun_phrase}.", "Hi, I'm {noun_phrase}."


def two_axes(templates=(LOVE, HATE, HI), axes=("age", "body_type"), **settings) -> pd.DataFrame:
    """Return two axes: all 6 pairs of four ages differ (5 nouns each, apart: p = 2/252), none of 3 body types does."""
    nouns = np.arange(5) / 10
    ages = {("age", name): nouns + offset for offset, name in enumerate(["young", "adult", "old", "aged"], start=2)}
    bodies = {("body_type", name): nouns + 3 for name in ("tall", "short", "bald")}
    cells = {cell: values for cell, values in (ages | bodies).items() if cell[0] in axes}
    return make_table({(axis, t, name): list(it) for (axis, name), it in cells.items() for t in templates}, **settings)


def page_of(likelihoods: pd.DataFrame, **names):
    scores = likelihood_bias(likelihoods, {"model": {"name": "m"}})
    return LikelihoodBias().page(measured(scores, {"likelihoods": likelihoods}, **names))


@pytest.mark.parametrize(("n_nouns", "smallest"), [(2, "0.33"), (3, "0.1"), (4, None)])
def test_too_few_nouns_for_any_difference_have_a_warning(n_nouns, smallest):
    sentences = {("age", "t", name): [1.0 + k + 10 * place for k in range(n_nouns)] for place, name in enumerate("ab")}
    warnings = page_of(make_table(sentences)).warnings
    assert [f"at most {n_nouns} nouns" in it and f"is {smallest}." in it for it in warnings] == [True] * bool(smallest)


def test_headline_tables_and_extremes_of_two_axes(browser):
    page = page_of(two_axes(n_tokens=lambda name: 2 if name == "aged" else 1))
    assert page.headline_value == "66.7 %" and page.verdict.count("66.7 %") == 2  # 6 of 9 pairs, raw and corrected
    by_axis = table_of(page, "By group of people")
    assert texts(by_axis) == {"age": ["100.0", "18"], "body type": ["0.0", "9"]}
    assert by_axis.ideal == 5.0
    overall = texts(page.sections[0].tables[0])
    assert overall["paired by noun, %"] == ["0.0", "5", "27"]  # five nouns can never differ, p = 2/32
    assert overall["Likelihood Bias, %"] == ["66.7", "5", "27"] and len(overall) == 4
    section = next(part for part in page.sections if part.title.startswith("Most and least"))
    least, most = f"young\u00a0({math.exp(2.2):.3g})", f"old\u00a0({math.exp(4.2):.3g})"  # "aged" is longer
    assert texts(section.tables[0])["age"] == ["100", least, most, "3"] and LOVE in section.sentences[0]
    assert browser.faults(page_html(page)) == []


def test_without_an_interval_the_verdict_has_the_numbers_of_pairs():
    """All 18 pairs of four ages in three templates differ, so the share is the same without any one of them."""
    page = page_of(two_axes(axes=("age",)))
    assert "18 of 18" in page.verdict
    assert "18" not in page_of(two_axes(axes=("body_type",))).verdict  # no pair differs, and no interval says more


def test_rows_left_out_have_a_warning_and_undefined_scores_their_reasons():
    likelihoods = two_axes()
    likelihoods.loc[likelihoods.index[:7], "log_likelihood"] = math.nan
    assert not page_of(likelihoods).warnings
    likelihoods.loc[likelihoods.index[:20], "log_likelihood"] = math.nan
    assert "20 of 105 sentences" in page_of(likelihoods).warnings[0]
    page = page_of(two_axes().assign(log_likelihood=math.nan))
    assert page.headline_value == "–" and "two descriptors" in page.verdict and page_html(page)


def test_a_comparison_has_the_scores_and_the_change():
    before, after = likelihood_bias(two_axes()), likelihood_bias(two_axes(axes=("body_type",)))
    change = named_score("likelihood_bias_difference", -2 / 3, 0.0, (-1, 1), 27, (-0.8, -0.5), 0.001)
    runs = [measured(scores, {"likelihoods": two_axes()}) for scores in (before, after, [change])]
    page = LikelihoodBias().comparison_page(*runs)
    assert page.headline_value == "−66.7 %" and "66.7 % (" in page.verdict and "0.0 % (" in page.verdict
    assert [cell.text for cell in page.sections[0].tables[0].rows[0].cells] == ["66.7", "0.0", "−66.7", "0.001", "27"]
