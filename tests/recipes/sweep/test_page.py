"""A sweep's report in HTML and the terminal: it is complete, and safe for names from outside."""

import math
import re
from dataclasses import replace

import numpy as np
import pytest

from evenhand.evaluation.facts import FACTS, Facts, Finding, write_facts
from evenhand.evaluation.report.figures import AFTER_COLOR
from evenhand.evaluation.report.html import page_html
from evenhand.evaluation.report.page import Link
from evenhand.recipes.sweep.page import BY_VALUE, PANELS, cost_chart, page, value_chart
from evenhand.recipes.sweep.points import comparison_advice
from evenhand.recipes.sweep.words import note
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
    rows += [point("distill", reduction=0.96, perplexity_change=0.9, cluster_changes=increased("HATE"))]
    rows += [
        point("exchange", reduction=0.98, perplexity_change=0.0201, ratio_without_tag=math.nan),
        refused("perplexity doubled", method="rejection"),
    ]
    return sweep_of(*rows, notes=("A tiny model.",))


@pytest.fixture(scope="module")
def two():
    """Two methods, one seed, nothing held out, no second classifier."""
    blank = without_reductions(["reduction_untuned", "reduction_confirmed"])
    rows = [point(quantile=0.7, reduction=0.95, **blank), point("exchange", reduction=0.9, **blank)]
    return sweep_of(*rows, swept=["method"])


@pytest.fixture(scope="module")
def hostile():
    """Each hostile string in place of every string that can come from outside."""
    strings = [string for string in HOSTILE if string and "\ud800" not in string]  # pandas rejects a lone surrogate
    joined = " ".join(strings)
    rows = []
    for i, string in enumerate(strings):
        names = {"cluster_changes": increased(string), "folder": string, "name": string}
        rows.append(point(string, quantile=i / 20, **names))
        rows.append(refused(string, method=string, seed=1, quantile=i / 20) | {"folder": string, "name": string})
    rows += [point("plain", seed=string) | {"name": string} for string in strings]
    sweep = sweep_of(*rows, swept=["label.quantile", "name"], notes=strings)
    return replace(sweep, title=joined, base_model=joined)


def test_outcomes_by_value_join_the_settings_that_differ_in_this_value_only():
    removed = {0.9: 0.8, math.nan: 1.0, 0.5: 0.4}
    rows = [point("a", quantile=q, alpha=a, reduction=a * removed[q]) for q in removed for a in (1.0, 0.5)]
    swept = ("method", "label.quantile", "alpha")
    settings = settings_of(*rows, point("b", quantile=0.7, alpha=1.0), swept=swept)
    axes, *others = value_chart(settings, swept, "label.quantile").axes
    assert [it.get_title(loc="left") for it in (axes, *others)] == [*BY_VALUE.values()]
    assert [it.get_text() for it in axes.get_xticklabels()] == ["0.5", "0.9", "null"]
    lines = [[-0.1, 0.9, 1.9], [0.4, 0.8, 1.0]], [[0.1, 1.1, 2.1], [0.2, 0.4, 0.5]]  # alpha 1 and 0.5
    assert np.array(lines_in(axes, AFTER_COLOR)) == pytest.approx(np.array(lines))
    assert [text.get_text() for text in axes.texts] == ["5", "1", "3", "6", "2", "4"]  # in the order of the values
    assert value_chart(settings, swept, "method") is None
    assert value_chart(settings[:2], swept, "label.quantile") is None  # one value


def test_numbers_beside_null_are_in_their_order():
    values = ["1000", "null", "200", "1e-05"]  # as in a table of points
    settings = settings_of(*(point("a") | {"max_rows": value} for value in values), swept=("method", "max_rows"))
    axes = value_chart(settings, ("method", "max_rows"), "max_rows").axes[0]
    assert [text.get_text() for text in axes.get_xticklabels()] == ["1e-05", "200", "1000", "null"]


@pytest.mark.parametrize("kind", ["wide", "two", "hostile"])
def test_nothing_can_run_or_be_fetched(kind, request):
    assert_inert(page_html(page(request.getfixturevalue(kind))))


def texts_of(sweep) -> dict[str, str]:
    """Return the text of a sweep's report by format, on one line without escapes."""
    report = page(sweep)
    texts = {"html": ParsedPage(page_html(report)).text, "terminal": printed(report)}
    return {name: re.sub(r"\s+", " ", text.replace("\\", "").replace("\u00a0", " ")) for name, text in texts.items()}


def test_refusals_and_rises_are_in_all_formats(wide):
    report = page(wide)
    (doubled,) = [warning for warning in report.warnings if "perplexity doubled" in warning]
    (unlearned,) = [warning for warning in report.warnings if "the tag is not learned" in warning]
    for warning, setting in ((doubled, "rejection"), (unlearned, "control_tags · quantile 0.45")):
        assert re.findall(r"\d+", warning)[:2] == ["1", "39"] and f"({setting})" in warning
    (risen,) = [warning for warning in report.warnings if "HATE" in warning]
    assert re.search(r"\b13 ", risen)
    assert "exchange" in report.verdict
    assert all(number in report.verdict for number in ("98.0 % [96.0, 100.0]", "95.0 % ["))
    for text in texts_of(wide).values():
        assert all(sentence in text for sentence in [*report.warnings, report.verdict, "A tiny model."])


def test_a_shown_rise_is_not_called_uncertain():
    rise = page(sweep_of(point(reduction=-0.3, reduction_low=-0.4, reduction_high=-0.2)))
    assert "adds to pooled FGB*" in rise.verdict
    assert "not shown" not in rise.verdict and "not shown" not in rise.headline_caption
    chance = page(sweep_of(point(reduction=0.3, reduction_low=-0.4, reduction_high=0.9)))
    assert "not shown" in chance.verdict and chance.headline_value == ""
    assert "is not shown to change: −16 % by" in chance.headline_caption  # √(1 − 0.3) = 0.84 of the difference is left


def test_a_few_settings_are_described_one_by_one():
    apart = page(sweep_of(point(reduction=0.6), point("exchange", reduction=0.9))).verdict
    assert "60.0 %" in apart and "90.0 %" in apart and "not shown" not in apart
    no_interval = {"reduction_low": math.nan, "reduction_high": math.nan}  # such as if one seed has no reduction
    without = page(sweep_of(point(reduction=0.6, **no_interval), point("exchange", reduction=0.9))).verdict
    assert "not shown that exchange removes more than the other" in without
    together = page(sweep_of(point(reduction=0.89), point("exchange", reduction=0.9))).verdict
    assert "89.0 %" in together and "90.0 %" in together and "not shown" in together


def test_the_headline_names_the_largest_reduction_or_that_there_is_none():
    rows = [point(quantile=q, reduction=r) for q, r in ((0.5, 0.95), (0.6, 0.97), (0.7, 0.6))]
    report = page(sweep_of(*rows, point("exchange", reduction=0.96)))
    assert report.headline_value == "−83 %"  # √(1 − 0.97) = 0.17 of the difference is left
    assert "pooled FGB*: −97 %" in report.headline_caption
    assert report.verdict.startswith("control_tags · quantile 0.6 removes 97.0 % [95.0, 99.0]")
    assert "2 of the 3 others" in report.verdict, (
        "0.95 ± 0.02 and 0.96 ± 0.02 overlap with 0.97 ± 0.02, and 0.6 does not"
    )
    for base_low, verdict in ((0.001, "unbounded"), (-0.001, "no_bias"), (math.nan, "no_bias")):
        blank = {"base_low": base_low, **without_reductions()}
        report = page(sweep_of(point(**blank), point("exchange", **blank)))
        assert (report.headline_value, report.headline_caption) == ("", "decoding: sample")
        assert report.verdict == note(verdict)


def test_numbers_of_a_setting(wide):
    report = page(wide)
    settings, costs, checks = (table_named(report, it) for it in ("Pooled FGB* removed", "Further costs", "Checks"))
    # quantile 0.4: three equal seeds of 1.2 − 0.4 = 80 %, which say nothing about their error
    first = settings.rows[0]
    assert first.label == "1 control_tags · quantile 0.4"
    assert [cell.text for cell in first.cells[:3]] == ["80.0", "80.0", "80.0"]
    assert [cell.interval for cell in first.cells[:3]] == [""] * 3
    assert first.cells[-1].text == "3 of 3"
    assert first.marks[0].value == pytest.approx(80) and settings.ideal == 100
    assert texts(settings)["2 control_tags · quantile 0.45"][-1] == "2 of 3"
    assert texts(settings)["14 exchange"] == ["98.0", "98.0", "98.0", "1 of 1"]  # three reductions; seeds
    # relevance, response to the person, drift, perplexity of responses and of dialogue, length
    main_costs = table_named(report, "What it cost")
    assert texts(main_costs)["14 exchange"] == ["95.0", "50.0", "4.0", "+2.0", "+2.0", "+1.0"]
    # distinct responses, distinct-2, parroting (0 ± 0.0001 points, and its decimals show that), worst cluster
    assert texts(costs)["14 exchange"] == ["−1.0", "−1.0", "0.0000", "−0.40"]
    assert texts(checks)["14 exchange"] == ["98.0", "2.0"]  # second classifier, minutes


def panels(sweep):
    """Return the settings of a sweep, and the panels of its chart by title."""
    settings = settings_of(*sweep.points.to_dict("records"), swept=sweep.swept)
    return settings, {axes.get_title(loc="left"): axes for axes in cost_chart(settings).axes}


def lines_in(axes, color):
    """Return the coordinates of the lines with this colour."""
    lines = [it for it in axes.lines if it.get_color() == color]
    return [[[*map(float, it.get_xdata())], [*map(float, it.get_ydata())]] for it in lines]


def test_every_measured_setting_is_plotted_once(wide):
    summary, charts = panels(wide)
    assert len(charts) == len(PANELS) == 6
    for axes in charts.values():
        numbers = [text.get_text() for text in axes.texts]
        assert numbers == [str(it) for it in summary["number"] if it != 15]  # the refused one has no position
        assert len(axes.collections[-1].get_offsets()) == len(numbers)


def test_dots_lie_at_their_numbers():
    rows = (
        point("a", quantile=0.5, reduction=0.5, perplexity_change=0.03),
        point("a", quantile=0.9, reduction=0.25, perplexity_change=-0.01),
        point("a", quantile=0.7, reduction=0.75, perplexity_change=0.02),
        point("b", reduction=1.0, perplexity_change=0.0, relevance_kept=0.9),
    )
    _, charts = panels(sweep_of(*rows))
    axes = charts["perplexity of ordinary dialogue"]
    assert axes.collections[-1].get_offsets().tolist() == [[0.03, 0.5], [-0.01, 0.25], [0.02, 0.75], [0, 1]]
    assert [text.get_text() for text in axes.texts] == ["1", "2", "3", "4"]
    [(across, up)] = lines_in(axes, AFTER_COLOR)
    assert (across, up) == ([-0.01, 0.0], [0.25, 1.0])
    dots = charts["relevance lost"].collections[-1].get_offsets()
    assert dots[:, 0].tolist() == pytest.approx([0.05, 0.05, 0.05, 0.1])


@pytest.mark.parametrize("kind", ["wide", "two"])
def test_nothing_keeps_people_from_using_it(kind, request, browser):
    scheme = "dark" if kind == "two" else "light"
    assert browser.faults(page_html(page(request.getfixturevalue(kind))), scheme) == []


def test_the_advice_is_read_from_the_facts_of_the_comparison(tmp_path):
    assert comparison_advice(tmp_path / FACTS) == []
    decided = Finding("decision", {"advice": "measure more", "against": [], "open": [Finding("no_fall_shown")]})
    write_facts(tmp_path / FACTS, {"generation_bias": Facts(None, Finding("change_verdict"), decision=decided)})
    assert comparison_advice(tmp_path / FACTS) == ["Measure more before you decide: no fall is shown."]


def test_the_advice_of_the_comparison_is_the_verdict():
    found = sweep_of(point("distill"), advice=["distill: Do not ship it: no reason."])
    assert page(found).verdict == "distill: Do not ship it: no reason."


@pytest.mark.parametrize(
    ("reduction", "commands"),
    [(0.01, ["evenhand plan 'my runs/before'"]), (0.1, ["evenhand export 'my runs/distill/tune'"])],
)
def test_a_reduction_that_is_not_shown_leads_to_more_answers(reduction, commands):
    """The interval is the reduction ± 0.02."""
    found = sweep_of(point("distill", reduction=reduction), base_folder="my runs/before", tuning="my runs/distill/tune")
    assert [step.command for step in page(found).steps if step.command] == commands


def test_a_loop_leads_to_the_comparison_of_the_best_method():
    links = [Link(f"{name}, seed 0", f"{name}/compare/report.html") for name in ("exchange", "distill")]
    points = [point("exchange", reduction=0.1), point("distill", reduction=0.4)]
    found = sweep_of(*points, links=links, advice=["exchange: Measure more.", "distill: Measure more."])
    assert [step.link for step in page(found).steps] == [links[1]]
    without_advice = sweep_of(*points, links=links)  # an ablation compares settings
    assert page(without_advice).steps == []
