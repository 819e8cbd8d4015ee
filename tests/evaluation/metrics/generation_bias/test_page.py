"""The report as HTML, as Markdown and printed: complete, safe with hostile strings, with the digits of the scores."""

import re
from collections import Counter
from dataclasses import replace

import pytest
from markdown_it import MarkdownIt

from evenhand.evaluation.metrics.generation_bias.report.sections import report_page
from evenhand.evaluation.report.html import page_html
from evenhand.evaluation.report.markdown import page_markdown
from evenhand.evaluation.report.numbers import sanitize
from tests.parsed_page import ParsedPage, assert_inert
from tests.report_pages import HOSTILE, printed


@pytest.mark.parametrize("kind", ["tuned", "single", "hostile"])
def test_nothing_can_run_or_be_fetched(kind, request):
    assert_inert(page_html(report_page(request.getfixturevalue(kind))))


def test_plots_have_names(tuned):
    source = page_html(report_page(tuned))
    images = re.findall(r'<svg class="(?:row|panel)" role="img" aria-label="([^"]+)"><title>([^<]+)</title>', source)
    assert images and all(label == title for label, title in images)
    assert ("pooled FGB*: before 9.47 (8.97 to 9.97), after 1.76 (1.45 to 2.07)",) * 2 in images


def test_values_and_intervals_are_the_scores_times_a_thousand(tuned):
    text = ParsedPage(page_html(report_page(tuned))).text.replace("\u00a0", " ")
    for number in (
        "−81 %",
        "78 to 85 %",
        "196.87",  # FGB 0.19687
        "10.02 [8.71, 11.33]",
        "9.47 [8.97, 9.97]",  # 0.009472, 0.008974 and 0.009966
        "1.76 [1.45, 2.07]",
        "−7.71 [−8.27, −7.15]",
        "< 0.0001",
        "26.20 [22.90, 29.50]",  # axis ability
        "+0.58 [+0.41, +0.74]",  # cluster HATE
        "0.08 to 0.66",
        "Use it with its tag.",
        "62 %",  # 9.472 of the planted 15.3
        "model.revision",
    ):
        assert number in text, number
    assert "descriptor29" in text and "descriptor0 " in text and "descriptor15" not in text  # ten at each end


def test_an_undefined_score_has_its_reason_and_no_digits(tuned):
    source = page_html(report_page(tuned))
    (row,) = [it for it in re.findall(r"<tr>.*?</tr>", source, re.DOTALL) if ">nonce<" in it]
    text = ParsedPage(row).text
    assert text.split() == ["nonce", "–", "–"]
    assert "– undefined: only one descriptor." in ParsedPage(source).text
    assert not re.search(r"\d", text)


def test_a_breakdown_without_a_defined_score_says_so_once(single):
    undefined = [it for it in single.scores_before if it.group.get("axis") != "ability"]
    text = ParsedPage(page_html(report_page(replace(single, scores_before=undefined)))).text.replace("\u00a0", " ")
    assert "No score by axis is defined, for none of 1: only one descriptor." in text
    assert "– undefined" not in text


def test_a_single_measurement_has_one_column_and_does_not_mention_tuning(single):
    source = page_html(report_page(single))
    text = ParsedPage(source).text.replace("\u00a0", " ")
    assert "9.47 [8.97, 9.97]" in text and "differs with the descriptor" in text
    for word in ("before tuning", "after tuning", "What it cost", "nan", "None", "not measured", "rose"):
        assert word not in text.split("How to read the numbers")[0], word
    assert 'class="after"' not in source


def parse(source: str):
    return MarkdownIt("commonmark").enable("table").parse(source)


def walk(tokens):
    for token in tokens:
        yield token
        yield from walk(token.children or [])


@pytest.mark.parametrize("kind", ["tuned", "single", "hostile"])
def test_no_html_links_or_images_and_every_table_keeps_its_columns(kind, request):
    source = page_markdown(report_page(request.getfixturevalue(kind)))
    tokens = list(walk(parse(source)))
    kinds = Counter(token.type for token in tokens)
    assert not kinds.keys() & {"html_inline", "html_block", "link_open", "image", "strikethrough_open"}
    widths, columns = [], 0
    for token in tokens:
        if token.type == "thead_open":
            columns = 0
        elif token.type == "th_open":
            columns += 1
        elif token.type == "tr_open":
            widths.append(0)
        elif token.type == "td_open":
            widths[-1] += 1
        elif token.type == "tr_close" and widths[-1]:
            assert widths[-1] == columns
    assert kinds["table_open"] == source.count(" |\n| :---") + source.count(" |\n| ---:")
    # in each line of a table, the parser aside: as many unescaped pipes as in its head
    for block in re.findall(r"(?:^\|.*\|\n?)+", source, re.MULTILINE):
        assert len({len(re.findall(r"(?<!\\)\|", line)) for line in block.strip().split("\n")}) == 1


def test_hostile_responses_are_unchanged(hostile):
    source = page_markdown(report_page(hostile))
    inline = [token for token in parse(source) if token.type == "inline"]
    shown = {"".join(child.content for child in token.children if child.type == "text") for token in inline}
    for string in filter(None, HOSTILE):
        assert f"before: {sanitize(string)}".strip() in shown, string
    for character in "\x1b\x00\u202e\u2028":
        assert character not in source


def test_verdict_and_warning_are_first_and_the_note_on_intervals_is_last(tuned):
    text = printed(report_page(tuned))
    first = "\n".join(text.split("\n")[:20])
    joined = re.sub(r"\s+", " ", first)
    assert re.search(r"fell by 81 % .*78 to 85 %.*WARNING .*HATE.* 0\.08 to 0\.66", joined)
    assert "95 % interval" in "\n".join(text.split("\n")[-10:])
    assert joined.index("WARNING") < joined.index("measure")
    assert re.search(r"pooled FGB\* +9\.47 +\[8\.97, 9\.97\] +1\.76 \[1\.45, 2\.07\] +−7\.71 \[−8\.27, −7\.15\]", first)


@pytest.mark.parametrize("kind", ["tuned", "single"])
def test_the_page_is_accessible(kind, request, browser):
    scheme = "dark" if kind == "single" else "light"
    assert browser.faults(page_html(report_page(request.getfixturevalue(kind))), scheme) == []
