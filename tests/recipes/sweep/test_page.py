"""A sweep's report in HTML, Markdown and the terminal: it is complete, and safe for names from outside."""

import math
import re
from collections import Counter
from dataclasses import replace

import pytest
from markdown_it import MarkdownIt

from evenhand.evaluation.report.figures import BEFORE, INK, PAPER
from evenhand.evaluation.report.html import page_html
from evenhand.evaluation.report.markdown import page_markdown
from evenhand.evaluation.report.numbers import sanitize
from evenhand.mitigation.labelling.threshold_plan import fit_strength, fraction_left
from evenhand.recipes.sweep import plots as sweep_plots
from evenhand.recipes.sweep.criteria import Criteria
from evenhand.recipes.sweep.page import page
from tests.parsed_page import ParsedPage, assert_inert, without_script
from tests.report_pages import HOSTILE, printed, table_named, texts

from .sweep_points import increased, point, refused, settings_of, sweep_of, without_reductions


@pytest.fixture
def wide():
    """Twelve thresholds with three seeds each, one of them refused, and three methods without a threshold."""
    quantiles = [0.4 + i / 20 for i in range(12)]
    rows = [
        point(quantile=q, seed=seed, reduction=1.2 - q, predicted_left=q - 0.25, perplexity_change=0.05 - q / 20)
        for q in quantiles
        for seed in range(3)
    ]
    rows[4] = refused("the tag is not learned", quantile=quantiles[1], seed=1)
    rows += [
        point("dpo", reduction=0.96, perplexity_change=0.9, cluster_changes=increased("HATE"), worst_cluster="HATE")
    ]
    rows += [
        point("exchange", reduction=0.98, perplexity_change=0.0201, ratio_without_tag=math.nan),
        refused("perplexity doubled", method="kto"),
    ]
    return sweep_of(*rows, notes=("A tiny model.",))


@pytest.fixture
def two():
    """Two methods, one seed, nothing held out, no second classifier."""
    blank = without_reductions(["reduction_unseen", "reduction_confirmed"])
    rows = [point(quantile=0.7, reduction=0.95, **blank), point("exchange", reduction=0.9, **blank)]
    return sweep_of(*rows, swept=["method"])


@pytest.fixture
def hostile():
    """Each hostile string in place of every string that can come from outside."""
    strings = [string for string in HOSTILE if string and "\ud800" not in string]  # pandas rejects a lone surrogate
    joined = " ".join(strings)
    rows = []
    for i, string in enumerate(strings):
        names = {"worst_cluster": string, "cluster_changes": increased(string), "folder": string, "name": string}
        rows.append(point(string, quantile=i / 20, predicted_left=0.1 + i / 40, **names))
        rows.append(refused(string, method=string, seed=1, quantile=i / 20) | {"folder": string, "name": string})
    rows += [point("plain", seed=string) | {"name": string} for string in strings]
    sweep = sweep_of(*rows, swept=["label.quantile", "name"], notes=strings)
    return replace(sweep, title=joined, base_model=joined)


@pytest.mark.parametrize("kind", ["wide", "two", "hostile"])
def test_nothing_can_run_or_be_fetched(kind, request):
    assert_inert(page_html(page(request.getfixturevalue(kind))))


def test_hostile_names_are_shown_as_text(hostile):
    source = page_html(page(hostile))
    text = ParsedPage(source).text
    for string in (it for it in HOSTILE if it and "\ud800" not in it):
        assert re.sub(r"\s+", " ", sanitize(string, 60).replace("\u00a0", " ")).split(" … ")[0] in text, string
    for raw in ("<script", "<img", "<b>", "\x1b", "\x00", "\u202e", "\u2028"):
        assert raw not in without_script(source)
    for raw in ("\x1b", "\x00", "\u202e", "\u2028"):  # what can be markup there, a parser checks below
        assert raw not in page_markdown(page(hostile))
    source.encode("utf-8")


@pytest.mark.parametrize("kind", ["wide", "two", "hostile"])
def test_markdown_has_no_html_links_or_images_and_its_tables_keep_their_columns(kind, request):
    source = page_markdown(page(request.getfixturevalue(kind)))
    tokens = MarkdownIt("commonmark").enable("table").parse(source)
    kinds = Counter(it.type for token in tokens for it in (token, *(token.children or [])))
    assert not kinds.keys() & {"html_inline", "html_block", "link_open", "image", "strikethrough_open"}
    blocks = re.findall(r"(?:^\|.*\|\n?)+", source, re.MULTILINE)
    assert kinds["table_open"] == len(blocks)
    for block in blocks:
        assert len({len(re.findall(r"(?<!\\)\|", line)) for line in block.strip().split("\n")}) == 1


def texts_of(sweep) -> dict[str, str]:
    """Return the text of a sweep's report by format, on one line without escapes."""
    report = page(sweep)
    texts = {"html": ParsedPage(page_html(report)).text, "markdown": page_markdown(report), "terminal": printed(report)}
    return {name: re.sub(r"\s+", " ", text.replace("\\", "").replace("\u00a0", " ")) for name, text in texts.items()}


def test_all_formats_have_the_refused_points_with_their_reasons(wide):
    for name, text in texts_of(wide).items():
        assert "perplexity doubled" in text and "the tag is not learned" in text, name
        assert "2 of 39 points (settings 2, 15)" in text, name
        assert "refused by a guard" in text and "1 of 3 seeds refused" in text and "2 of 3" in text, name


def test_all_formats_have_the_verdict_the_criteria_the_notes_and_the_increased_clusters(wide):
    for name, text in texts_of(wide).items():
        assert "exchange removes 98.0 % [96.0, 100.0] of pooled FGB*; costs: perplexity +2.0 %" in text, name
        assert "93 % for descriptors tuned on" in text and "A tiny model." in text, name
        assert "1 setting: HATE in setting 13." in text, name
        assert "misses: perplexity +90.0 %, higher: HATE" in text, name
        assert "Student’s t over the seeds" in text, name


def test_numbers_of_a_setting(wide):
    report = page(wide)
    captions = "Pooled FGB* removed", "Quality of the responses", "Further costs", "Two checks", "Pooled FGB* left"
    reductions, quality, costs, checks, plan = (table_named(report, caption) for caption in captions)
    # quantile 0.4: three equal seeds of 1.2 − 0.4 = 80 %, so an interval without width
    first = reductions.rows[0]
    assert first.label == "1 control_tags · quantile 0.4"
    assert [cell.text for cell in first.cells] == ["80.0", "80.0", "80.0", "3"]
    assert [cell.interval for cell in first.cells] == ["[80.0, 80.0]"] * 3 + [""]
    assert first.marks[0].value == pytest.approx(80) and reductions.ideal == 100
    # parroting is 0 ± 0.0001 points, and its decimals show that
    # relevance, drift, perplexity, distinctness; perplexity, distinct-2, length, parroting, worst cluster; second
    # classifier, minutes
    assert texts(quality)["14 exchange"] == ["95.0", "4.0", "+2.0", "−1.0"]
    assert texts(costs)["14 exchange"] == ["+2.0", "−1.0", "+1.0", "0.0000", "CARE −0.40"]
    assert texts(checks)["14 exchange"] == ["98.0", "2.0"]
    # the slope is the quantile; the lowest, where 20 % were left, is the pilot
    by_pilot = 100 * fraction_left(0.5, fit_strength(0.4, 0.2))
    assert texts(plan)["1 control_tags · quantile 0.4"] == ["0.40", "15.0", "the pilot", "20.0", "3.0", "4.0"]
    assert texts(plan)["3 control_tags · quantile 0.5"][2] == f"{by_pilot:.1f}"
    assert [cell.interval for cell in plan.rows[0].cells[1:4]] == ["[3.0, 8.0]", "", "[20.0, 20.0]"]


def test_the_report_compares_the_plan_with_the_results(wide):
    for name, text in texts_of(wide).items():
        # before tuning, every prediction is 0.05 too low; calibrated ones rise faster than the measured, in their order
        assert "the plan did not predict the size" in text, name
        assert "before any tuning, 12 of 12 measured values within 0.1" in text, name
        assert "Spearman ρ = 1.00, p" in text, name


def test_a_loop_with_two_methods_has_no_plan_and_no_empty_columns(two):
    for name, text in texts_of(two).items():
        text = text.rsplit("How to read the numbers", 1)[0]
        assert "1 of 2 settings meets all measured criteria: setting 1 (control_tags)" in text, name
        assert "Not measured or undefined: the reduction for descriptors not tuned on." in text, name
        assert "the threshold plan" not in text and "by the second classifier" not in text and "× base" not in text, (
            name
        )


def test_the_same_sweep_gives_the_same_bytes(wide):
    for write in (page_html, page_markdown):
        assert write(page(wide)) == write(page(wide))


@pytest.mark.parametrize("kind", ["wide", "two", "hostile"])
def test_a_log_has_no_codes_and_at_most_100_columns(kind, request):
    text = printed(page(request.getfixturevalue(kind)))
    assert "\x1b" not in text and "\x00" not in text and "\u202e" not in text
    if kind != "hostile":  # some of its characters are two columns wide, others none
        assert max(map(len, text.split("\n"))) <= 100


@pytest.mark.parametrize("rows", [[], [refused("no")]])
def test_a_sweep_without_numbers_is_still_shown(rows):
    sweep = sweep_of(*(rows or [point()]))
    if not rows:
        sweep = replace(sweep, points=sweep.points.head(0))
    for text in texts_of(sweep).values():
        assert "no verdict" in text or "no points" in text


def cost_charts(sweep):
    settings = settings_of(*sweep.points.to_dict("records"), swept=sweep.swept)
    return settings, [sweep_plots.cost_chart(settings, Criteria(), cost) for cost in ("perplexity", "distinct_2")]


def dots_and_labels(chart):
    """Return the dots of a chart by the numbers of their settings, and its labels."""
    (axes,) = chart.axes
    dots = {str(line.get_gid()).split(":")[1]: line for line in axes.lines if line.get_gid()}
    return dots, [text.get_text() for text in axes.texts]


def test_every_measured_setting_is_plotted_once_and_filled_if_it_meets_the_criteria(wide):
    summary, (chart, _) = cost_charts(wide)
    dots, labels = dots_and_labels(chart)
    assert list(dots) == [str(it) for it in summary["number"] if it != 15]  # the refused one has no position
    assert [name for name, dot in dots.items() if dot.get_markerfacecolor() == INK] == ["14"]
    assert "13 → 90 %" in labels  # far beyond the others' costs
    assert chart.get_label().endswith("on the Pareto front: 12, 11, 10, 9, 8, 7, 6, 5, 14")


def test_dots_lie_at_their_numbers():
    rows = point("a", reduction=0.5, perplexity_change=0.03), point("b", reduction=1.0, perplexity_change=0.0)
    _, (chart, _) = cost_charts(sweep_of(*rows))
    dots, labels = dots_and_labels(chart)
    assert {name: (*dot.get_xdata(), *dot.get_ydata()) for name, dot in dots.items()} == {"1": (0.03, 0.5), "2": (0, 1)}
    assert {"1 a", "2 b", "criterion"} <= set(labels)  # so few are named
    (limit,) = [line for line in chart.axes[0].lines if line.get_color() == BEFORE]
    assert limit.get_xdata() == [0.03, 0.03]  # the maximum increase of perplexity


def test_methods_have_different_markers():
    summary = settings_of(*(point(it) for it in "abcdef"), swept=["method"])
    handles = sweep_plots.cost_chart(summary, Criteria(), "perplexity").legends[0].legend_handles
    *methods, filled, hollow, _ = handles
    assert [it.get_label() for it in methods] == list("abcdef") and len({it.get_marker() for it in methods}) == 6
    assert (filled.get_markerfacecolor(), hollow.get_markerfacecolor()) == (INK, PAPER)
    alone = sweep_plots.cost_chart(summary.head(1), Criteria(), "perplexity")
    assert len(alone.legends[0].legend_handles) == 3


@pytest.mark.parametrize("kind", ["wide", "two"])
def test_nothing_keeps_people_from_using_it(kind, request, browser):
    scheme = "dark" if kind == "two" else "light"
    assert browser.faults(page_html(page(request.getfixturevalue(kind))), scheme) == []
