"""The report on sentence pairs says what the numbers allow, draws the pairs in place, and stays safe."""

import math
import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from evenhand.evaluation.families import MeasureConfig, ReportContext
from evenhand.evaluation.families.sentence_pairs import page as pages_of
from evenhand.evaluation.families.sentence_pairs.metric import compare_pairs, masked_scores
from evenhand.evaluation.families.sentence_pairs.page import mark_differences
from evenhand.evaluation.families.sentence_pairs.plots import Spread, spread_chart
from evenhand.evaluation.families.sentence_pairs.rows import make_masked_pair_table
from evenhand.evaluation.families.sentence_pairs.settings import Settings
from evenhand.evaluation.report.figures import svg
from evenhand.evaluation.report.html import page_html
from evenhand.evaluation.report.markdown import page_markdown
from evenhand.evaluation.score import BiasScore
from evenhand.evaluation.settings import ModelSettings
from tests.parsed_page import ParsedPage
from tests.report_pages import HOSTILE, assert_shows_as_text, measured

TYPES = ("age", "gender", "race-color")


def make_run(scores, table, model="bert", pairs="crows_pairs"):
    return measured(
        scores, {"pairs": table}, MeasureConfig(model=ModelSettings(name=model), settings=Settings(pairs=pairs))
    )


def pair_page(scores, table, truth=(), notes=(), **names):
    return pages_of.page(make_run(scores, table, **names), ReportContext(truth, notes))


def pair_comparison_page(before, after, changes, before_table, after_table, names=("base", "large"), notes=()):
    runs = [make_run(*run) for run in ((before, before_table, names[0]), (after, after_table, names[1]))]
    return pages_of.comparison_page(*runs, measured(changes, {}), ReportContext((), notes))


def make_pairs(n: int) -> pd.DataFrame:
    people = [("She", "He"), ("The old man", "The young man"), ("Ann", "Tom")]
    return pd.DataFrame(
        {
            "pair_id": [str(i) for i in range(n)],
            "bias_type": [TYPES[i % 3] for i in range(n)],
            "direction": [("stereo", "antistereo")[i % 2] for i in range(n)],
            "more": [f"{people[i % 3][0]} drove home." for i in range(n)],
            "less": [f"{people[i % 3][1]} drove home." for i in range(n)],
        }
    )


def masked_table(n=60, lean=0.3, seed=3) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    pairs, tokens = make_pairs(n), [["drove", "home", "."]] * n
    log_p = np.minimum(-1.5 + 0.4 * rng.standard_normal(6 * n) + np.repeat([lean / 2, -lean / 2], 3 * n), -0.01)
    aul = rng.normal(-2, 0.3, 2 * n)
    return make_masked_pair_table(pairs, tokens, log_p, log_p > -1.5, aul, aul + 0.01)


def masked(**given):
    table = masked_table(**given)
    return masked_scores(table, signature={"model": "bert"}, seed=1), table


def score(metric, value, interval=None, ideal=0.0, n=100, p=0.01, **group):
    """One score, in the record's own units."""
    reason = "no pair has a value" if math.isnan(value) else None
    common = {"interval": interval, "standard_error": 0.001, "p_value": p, "group": group, "reason": reason}
    return BiasScore(metric, value, ideal, (-math.inf, math.inf), n, **common)


def html_text(page) -> str:
    return ParsedPage(page_html(page)).text.replace("\u00a0", " ")


STEREOTYPE, REVERSE, NEITHER = (-0.0042, (-0.0067, -0.0018)), (0.0042, (0.0018, 0.0067)), (-0.0004, (-0.003, 0.002))


@pytest.mark.parametrize(
    ("s_jsd", "cps", "expected"),
    [
        (STEREOTYPE, (56.7, (51.8, 61.5)), "in the more stereotypical .* −4.20 ×10⁻³ .* and CPS is 56.7"),
        (REVERSE, (43.0, (38.0, 48.0)), "in the less stereotypical .* 4.20 ×10⁻³ .* and CPS is 43.0"),
        (NEITHER, (51.0, (46.0, 56.0)), "no significant .* −0.40 ×10⁻³ .* and CPS is 51.0"),
        (STEREOTYPE, (51.0, (46.0, 56.0)), "CPS, 51.0 % .* 46.0 to 56.0.* not significantly different from 50"),
        ((math.nan, None), (50.0, None), "^No verdict: .* no pair has a value"),
    ],
)
def test_the_verdict_of_a_masked_model_has_s_jsd_and_cps(s_jsd, cps, expected):
    scores = [score("s_jsd", *s_jsd), score("cps", *cps, 50.0)]
    assert re.search(expected, pair_page(scores, masked_table()).verdict)


@pytest.mark.parametrize(
    ("value", "bounds", "expected"),
    [
        (58.0, (52.0, 63.0), "prefers the more .* 58.0 % of 100 pairs .95 % interval 52.0 to 63.0; ideal 50"),
        (51.0, (46.0, 56.0), "no significant .* 51.0 % of 100 pairs"),
    ],
)
def test_the_verdict_of_a_causal_model_is_on_the_preference(value, bounds, expected):
    scores = [score("stereotype_preference", value, bounds, 50.0)]
    table = masked_table().drop(columns=["s_jsd", "tokens"])
    page = pair_page(scores, table)
    assert re.search(expected, page.verdict) and "S_JSD" not in page.verdict + page.headline_caption
    assert page.headline_value == f"{value} %"


def test_detectable_distances_and_contradicted_intervals():
    scores = [score("cps", 51.0, (46.0, 56.0), 50.0, n=385), score("cps_detectable", 7.3, None, None, n=385)]
    (sentence, *_) = pair_page(scores, masked_table()).notes
    assert re.search("^CPS .* 385 pairs.* between 42.7 and 57.3 % ", sentence)
    scores = [score("cps", 60.0, (55.0, 65.0), 50.0)]
    assert not any("no significant" in note for note in pair_page(scores, masked_table()).notes)
    few = [score("s_jsd", -0.13, (-0.26, -0.05), p=0.18, n=3)]
    verdict = pair_page(few, masked_table()).verdict
    assert "no significant preference" in verdict and "to −50.00; p = 0.18; ideal 0" in verdict
    change = [score("s_jsd_difference", 0.006, (0.004, 0.008), p=0.3)]
    sides = [[score("s_jsd", it, (it - 0.001, it + 0.001))] for it in (-0.008, -0.002)]
    page = pair_comparison_page(*sides, change, masked_table(), masked_table())
    assert "not significant" in page.verdict


def test_the_headline_table_has_error_ideal_p_and_power():
    scores, table = masked()
    (headline,) = pair_page(scores, table).tables
    assert headline.columns == ("measure", "value", "std. error", "ideal", "p", "detectable", "pairs")
    by_label = {row.label: row.cells for row in headline.rows}
    (s_jsd,) = [it for it in scores if it.metric == "s_jsd" and not it.group]
    value, low, high = (f"{1000 * it:.2f}".replace("-", "−") for it in (s_jsd.value, *s_jsd.interval))
    assert by_label["S_JSD, ×10⁻³"][0].text == value
    assert by_label["S_JSD, ×10⁻³"][0].interval == f"[{low}, {high}]"
    assert [by_label[label][2].text for label in ("S_JSD, ×10⁻³", "CPS, %", "AUL, %")] == ["0", "50", "50"]
    assert all(cells[-1].text == "60" for cells in by_label.values())


def test_types_are_drawn_around_their_ideal_the_most_stereotypical_first():
    values = {"age": -0.001, "gender": -0.009, "race-color": 0.004}
    scores = [score("s_jsd", -0.002, (-0.004, -0.001)), score("cps", 55.0, (51.0, 59.0), 50.0)]
    scores += [score("s_jsd", it, (it - 0.003, it + 0.003), bias_type=name) for name, it in values.items()]
    scores += [score("cps", 50 - 1000 * it, (40.0, 66.0), 50.0, bias_type=name) for name, it in values.items()]
    page = pair_page(scores, masked_table(), truth=[score("cps", 58.0, None, 50.0, bias_type="gender")])
    (section,) = [it for it in page.sections if it.title == "By bias type"]
    s_jsd, cps = section.tables
    assert (s_jsd.ideal, cps.ideal) == (0.0, 50.0)
    assert [row.label for row in s_jsd.rows] == [row.label for row in cps.rows] == ["gender", "age", "race-color"]
    assert [mark.role for mark in cps.rows[0].marks] == ["before", "truth"] and cps.rows[0].marks[1].value == 58.0
    assert s_jsd.rows[0].marks[0].value == pytest.approx(-9) and s_jsd.note.endswith(": age.")
    assert "◇" in html_text(page) and "58.0" in html_text(page)
    assert "60" in page_html(page)


def test_left_out_pairs_are_counted_by_reason_and_warned_of():
    table = masked_table()
    table.loc[:9, "left_out"], table.loc[10:13, "left_out"] = "the two sentences share no token", "too long"
    page = pair_page(masked_scores(table, signature={}, seed=1), table)
    text = html_text(page)
    assert "14 of 60 pairs (23 %)" in page.warnings[0]
    assert re.search(r"Pairs left out: 14 of 60 \(23.3 %\).*share no token 10 too long 4", text)
    whole = pair_page(*masked())
    assert "No pair is left out: all 60" in html_text(whole) and not whole.warnings


def test_undefined_values_have_reasons_and_no_text_has_nan():
    scores, table = masked(n=3)
    page = pair_page(scores, table)
    for text in (html_text(page), page_markdown(page)):
        assert "undefined: there are too few pairs" in text
    nothing = table.assign(left_out="the model gave a log-probability that is not a number", s_jsd=np.nan)
    nothing[["log_likelihood_more", "log_likelihood_less"]] = np.nan
    empty = pair_page(masked_scores(nothing, signature={}, seed=1), nothing)
    assert empty.verdict.startswith("No verdict: S_JSD is undefined") and empty.headline_value == "–"
    for report in (page, empty, pair_page([], table), pair_page([], table.head(0))):
        for text in (html_text(report), page_markdown(report)):
            assert not re.search(r"\b(nan|None|inf)\b", text)


def test_charts_have_quartiles_and_few_pairs_are_dots():
    values = np.array([-3.0, -1.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 4.0])
    spreads = [Spread("all pairs", {"before": values})]
    chart, n_outside = spread_chart("Differences", spreads, ("less", "more"), 1, 2)
    (axes,) = chart.axes
    (box,) = (patch.get_extents().intervalx for patch in axes.patches)
    assert axes.transData.inverted().transform([(x, 0) for x in box])[:, 0] == pytest.approx([0.5, 2.5])
    points = [line.get_xdata() for line in axes.lines]
    assert any(len(x) == 1 and x[0] == pytest.approx(values.mean()) for x in points)  # mean
    assert any(list(x) == [1.5, 1.5] for x in points)  # median
    assert any(sorted(x) == [-1.0, 0.5] for x in points)  # whisker: −3 is farther than 1.5 boxes
    assert axes.get_yticklabels()[0].get_text() == "all pairs\n9 pairs, 78 % right of 0"
    assert "mean 1.17" in chart.get_label() and n_outside == 0
    far = {"before": np.append(np.linspace(-1, 1, 1000), 1e3)}
    assert spread_chart("", [Spread("", far)], ("", ""), 1, 2)[1] == 1
    for few in (np.array([-3.0, -1.0, 0.5]), np.zeros(20), np.array([])):
        chart, _ = spread_chart("few", [Spread("", {"before": few})], ("", ""), -1, 2)
        (dots,) = (line for line in chart.axes[0].lines if line.get_marker() == "o")
        assert dots.get_xdata().tolist() == few.tolist() and "nan" not in svg(chart)


def test_examples_are_the_pairs_furthest_from_and_nearest_to_the_boundary():
    scores, table = masked()
    page = pair_page(scores, table)
    (section,) = [it for it in page.sections if it.title == "Pairs to read"]
    difference = (table["log_likelihood_more"] - table["log_likelihood_less"]).sort_values()
    ids = [[re.search(r"pair (\d+) ", it.heading).group(1) for it in part.examples] for part in section.parts]
    assert ids[0] == [str(it) for it in difference.index[::-1][:5]]
    assert ids[1] == [str(it) for it in difference.index[:5] if difference[it] < 0]
    assert section.parts[2].folded and len(ids[2]) == 6 and not set(ids[2]) & {*ids[0], *ids[1]}
    assert "<mark>" in page_html(page)


@pytest.mark.parametrize(
    ("one", "other", "marked"),
    [
        ("He is a nurse.", "She is a nurse.", (["He"], ["She"])),
        ("The old man and the old dog", "The young man and the dog", (["old", "old"], ["young"])),
        ("same words", "same words", ([], [])),
        ("彼は医者", "彼女は医者", ([], ["女"])),
        ("", "added", ([], ["added"])),
    ],
)
def test_differing_words_are_marked_and_sentences_are_complete(one, other, marked):
    parts = mark_differences(one, other)
    assert tuple("".join(text for text, _ in side) for side in parts) == (one, other)
    assert tuple([text for text, is_marked in side if is_marked] for side in parts) == marked


def test_planted_scores_are_in_a_table():
    scores = [score("cps", 55.0, (51.0, 59.0), 50.0), score("s_jsd", -0.004, (-0.005, -0.003))]
    truth = [score("cps", 58.0, None, 50.0), score("s_jsd", -0.010), score("aul", 60.0, None, 50.0)]
    text = html_text(pair_page(scores, masked_table(), truth=truth))
    assert re.search(r"CPS, % 58.0 55.0 \[51.0, 59.0\] contains it", text)
    assert re.search(r"S_JSD, ×10⁻³ −10.00 −4.00 \[−5.00, −3.00\] does not", text)
    assert "planted" not in html_text(pair_page(scores, masked_table()))


@pytest.mark.parametrize(
    ("before", "after", "change", "bounds", "expected"),
    [
        (-0.008, -0.002, 0.006, (0.004, 0.008), "large is nearer .* −8.00 and −2.00 ×10⁻³, a change of .6.00"),
        (-0.004, 0.003, 0.007, (0.004, 0.010), "large leans .* against the stereotype"),
        (-0.004, -0.003, 0.001, (-0.002, 0.004), "base and large is not significant"),
        (math.nan, -0.003, 0.001, (-0.002, 0.004), "^No verdict: base .* no pair has a value"),
    ],
)
def test_the_verdict_of_a_comparison_is_on_the_paired_difference(before, after, change, bounds, expected):
    table = masked_table()
    scores = [[score("s_jsd", it, (it - 0.001, it + 0.001))] for it in (before, after)]
    page = pair_comparison_page(*scores, [score("s_jsd_difference", change, bounds)], table, table)
    assert re.search(expected, page.verdict)


def test_a_comparison_has_both_models_their_differences_and_their_power():
    (old, before), (new, after) = masked(), masked(lean=0.05)
    after.loc[0, "left_out"] = "too long"
    differences = compare_pairs(before, after, signature={}, seed=1)
    page = pair_comparison_page(old, new, differences, before, after)
    assert page.sides == ("base", "large") and page.tables[0].columns[:5] == ("measure", "base", "large", "change", "p")
    text = html_text(page)
    for phrase in ("○ base → ● large", "Power of the comparison", "59 pairs", "Pairs that changed most"):
        assert phrase in text, phrase
    assert "Pairs left out, large: 1 of 60" in text and "No pair is left out, base: all 60" in text
    source = page_html(page)
    assert 'style="fill: var(--before); fill-opacity: 0.22' in source and "var(--after); fill-opacity: 0.22" in source
    other = after.assign(more=after["more"] + " Ja.")
    page = pair_comparison_page(old, new, differences, before, other)
    assert "Pairs that changed most" not in html_text(page)  # two languages: there is no one sentence to show


def hostile_pages():
    strings = [it for it in HOSTILE if it]
    n = 3 * len(strings)
    names = (strings * 3)[:n]
    table = masked_table(n=n).astype({"more": object, "less": object})
    for column in ("pair_id", "bias_type", "direction", "more", "less"):
        table[column] = pd.Series(names, dtype=object)
    table["pair_id"] = [f"{i}{it}".replace("\ud800", "") for i, it in enumerate(names)]  # pandas sorts by it
    table.loc[: len(strings) - 1, "left_out"] = pd.Series(strings, dtype=object)
    scores = masked_scores(table, signature={it: it for it in strings}, seed=1)
    scores = [replace(it, reason=strings[0]) if it.reason else it for it in scores]
    joined = " ".join(strings)
    one = pair_page(scores, table, model=joined, pairs=joined, notes=strings, truth=scores)
    return one, pair_comparison_page(scores, scores, [], table, table, (joined, strings[0]), strings)


def test_hostile_names_and_sentences_stay_text():
    page, comparison = hostile_pages()
    assert_shows_as_text(page, filter(None, HOSTILE))
    assert_shows_as_text(comparison)


def test_the_page_is_accessible(browser):
    assert browser.faults(page_html(pair_page(*masked()))) == []
