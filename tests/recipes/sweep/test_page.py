"""A sweep's report in HTML and the terminal: it is complete, and safe for names from outside."""

import math
import re
from dataclasses import replace

import pytest

from evenhand.evaluation.report.figures import AFTER, BEFORE, INK
from evenhand.evaluation.report.html import page_html
from evenhand.recipes.sweep.page import PANELS, cost_chart, page
from tests.parsed_page import ParsedPage, assert_inert
from tests.report_pages import HOSTILE, printed, table_named, texts

from .sweep_points import increased, point, refused, settings_of, sweep_of, without_reductions


@pytest.fixture(scope="module")
def wide():
    """Twelve thresholds with three seeds each, one of them refused, and three methods without a threshold."""
    quantiles = [0.4 + i / 20 for i in range(12)]
    rows = [
        point(quantile=q, seed=seed, reduction=1.2 - q, perplexity_change=0.05 - q / 20)
        for q in quantiles
        for seed in range(3)
    ]
    rows[4] = refused("the tag is not learned", quantile=quantiles[1], seed=1)
    rows += [
        point("distill", reduction=0.96, perplexity_change=0.9, cluster_changes=increased("HATE"), worst_cluster="HATE")
    ]
    rows += [
        point("exchange", reduction=0.98, perplexity_change=0.0201, ratio_without_tag=math.nan),
        refused("perplexity doubled", method="rejection"),
    ]
    return sweep_of(*rows, notes=("A tiny model.",))


@pytest.fixture(scope="module")
def two():
    """Two methods, one seed, nothing held out, no second classifier."""
    blank = without_reductions(["reduction_unseen", "reduction_confirmed"])
    rows = [point(quantile=0.7, reduction=0.95, **blank), point("exchange", reduction=0.9, **blank)]
    return sweep_of(*rows, swept=["method"])


@pytest.fixture(scope="module")
def hostile():
    """Each hostile string in place of every string that can come from outside."""
    strings = [string for string in HOSTILE if string and "\ud800" not in string]  # pandas rejects a lone surrogate
    joined = " ".join(strings)
    rows = []
    for i, string in enumerate(strings):
        names = {"worst_cluster": string, "cluster_changes": increased(string), "folder": string, "name": string}
        rows.append(point(string, quantile=i / 20, **names))
        rows.append(refused(string, method=string, seed=1, quantile=i / 20) | {"folder": string, "name": string})
    rows += [point("plain", seed=string) | {"name": string} for string in strings]
    sweep = sweep_of(*rows, swept=["label.quantile", "name"], notes=strings)
    return replace(sweep, title=joined, base_model=joined)


@pytest.mark.parametrize("kind", ["wide", "two", "hostile"])
def test_nothing_can_run_or_be_fetched(kind, request):
    assert_inert(page_html(page(request.getfixturevalue(kind))))


def texts_of(sweep) -> dict[str, str]:
    """Return the text of a sweep's report by format, on one line without escapes."""
    report = page(sweep)
    texts = {"html": ParsedPage(page_html(report)).text, "terminal": printed(report)}
    return {name: re.sub(r"\s+", " ", text.replace("\\", "").replace("\u00a0", " ")) for name, text in texts.items()}


def test_refusals_and_verdicts_are_in_all_formats(wide):
    for name, text in texts_of(wide).items():
        assert "perplexity doubled" in text and "the tag is not learned" in text, name
        assert "2 of 39 points (2 settings (2, 15))" in text, name
        assert "refused by a guard" in text and "1 of 3 seeds refused" in text and "2 of 3" in text, name
        assert "exchange removes 98.0 % [96.0, 100.0] of pooled FGB*; costs: perplexity +2.0 %" in text, name
        assert "tuned on ≥ 93 %" in text and "A tiny model." in text, name
        assert "1 setting (13): HATE in setting 13." in text, name
        assert "misses: perplexity +90.0 %, higher: HATE" in text, name
        assert "Student’s t over the seeds" in text, name


def test_numbers_of_a_setting(wide):
    report = page(wide)
    captions = "Pooled FGB* removed", "Quality of the responses", "Further costs", "Two checks"
    reductions, quality, costs, checks = (table_named(report, caption) for caption in captions)
    # quantile 0.4: three equal seeds of 1.2 − 0.4 = 80 %, so an interval without width
    first = reductions.rows[0]
    assert first.label == "1 control_tags · quantile 0.4"
    assert [cell.text for cell in first.cells] == ["80.0", "80.0", "80.0", "3"]
    assert [cell.interval for cell in first.cells] == ["[80.0, 80.0]"] * 3 + [""]
    assert first.marks[0].value == pytest.approx(80) and reductions.ideal == 100
    # parroting is 0 ± 0.0001 points, and its decimals show that
    # relevance, within the template, drift, perplexity, distinctness; perplexity, distinct-2, length, parroting, worst
    # cluster; second classifier, minutes
    assert texts(quality)["14 exchange"] == ["95.0", "50.0", "4.0", "+2.0", "−1.0"]
    assert texts(costs)["14 exchange"] == ["+2.0", "−1.0", "+1.0", "0.0000", "CARE −0.40"]
    assert texts(checks)["14 exchange"] == ["98.0", "2.0"]


def panels(sweep):
    """Return the settings of a sweep, and the panels of its chart by title."""
    settings = settings_of(*sweep.points.to_dict("records"), swept=sweep.swept)
    chart = cost_chart(settings)
    return settings, {axes.get_title(loc="left"): axes for axes in chart.axes if axes.get_visible()}


def dots_and_labels(axes):
    """Return the dots of a panel by the numbers of their settings, and its labels."""
    dots = {str(line.get_gid()).split(":")[1]: line for line in axes.lines if line.get_gid()}
    return dots, [text.get_text() for text in axes.texts]


def lines_in(axes, **wanted):
    """Return the coordinates of the lines with this colour, or this style."""
    lines = [it for it in axes.lines if all(getattr(it, f"get_{name}")() == value for name, value in wanted.items())]
    return [[[*map(float, it.get_xdata())], [*map(float, it.get_ydata())]] for it in lines]


def test_every_measured_setting_is_plotted_once_and_filled_if_it_meets_the_criteria(wide):
    summary, charts = panels(wide)
    assert len(charts) == len(PANELS) == 6
    for axes in charts.values():
        dots, _ = dots_and_labels(axes)
        assert list(dots) == [str(it) for it in summary["number"] if it != 15]  # the refused one has no position
        assert [name for name, dot in dots.items() if dot.get_markerfacecolor() == INK] == ["14"]
    text = texts_of(wide)["html"]  # the terminal has the first screen only
    assert "perplexity of ordinary dialogue: 5–12, 14; style drift: 14;" in text


def test_dots_lie_at_their_numbers():
    rows = (
        point("a", quantile=0.5, reduction=0.5, perplexity_change=0.03),
        point("a", quantile=0.9, reduction=0.25, perplexity_change=-0.01),
        point("a", quantile=0.7, reduction=0.75, perplexity_change=0.02),
        point("b", reduction=1.0, perplexity_change=0.0, relevance_kept=0.9),
    )
    _, charts = panels(sweep_of(*rows))
    axes = charts["perplexity of ordinary dialogue"]
    dots, labels = dots_and_labels(axes)
    positions = {name: (*map(float, (*dot.get_xdata(), *dot.get_ydata())),) for name, dot in dots.items()}
    assert positions == {"1": (0.03, 0.5), "2": (-0.01, 0.25), "3": (0.02, 0.75), "4": (0, 1)}
    assert sorted(labels) == ["1", "2", "3", "4"]
    assert lines_in(axes, color=BEFORE)[0][0] == [0.03, 0.03]  # the maximum increase of perplexity
    [(across, up)] = lines_in(axes, color=AFTER)
    assert (across[:2], up) == ([-0.01, 0.0], [0.25, 1.0, 1.0]) and across[2] == 0.03
    dots, _ = dots_and_labels(charts["relevance lost"])
    assert [float(*dot.get_xdata()) for dot in dots.values()] == pytest.approx([0.05, 0.05, 0.05, 0.1])
    assert lines_in(charts["relevance lost"], color=BEFORE)[0][0] == [0.25, 0.25]  # without an even reference
    assert not lines_in(charts["relevance within templates lost"], color=BEFORE)  # no criterion


@pytest.mark.parametrize("kind", ["wide", "two"])
def test_nothing_keeps_people_from_using_it(kind, request, browser):
    scheme = "dark" if kind == "two" else "light"
    assert browser.faults(page_html(page(request.getfixturevalue(kind))), scheme) == []
