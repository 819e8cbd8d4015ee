"""The report as HTML, as Markdown and printed: complete, safe with hostile strings, with the digits of the scores."""

import re
from collections import Counter
from itertools import pairwise

import pytest
from markdown_it import MarkdownIt

from evenhand.evaluation.families.generation_bias.report.sections import report_page
from evenhand.evaluation.report.html import page_html
from evenhand.evaluation.report.markdown import page_markdown
from evenhand.evaluation.report.numbers import sanitize
from tests.parsed_page import ParsedPage, assert_inert, without_script
from tests.report_pages import HOSTILE, printed

# As HTML.


@pytest.mark.parametrize("kind", ["tuned", "single", "hostile"])
def test_nothing_can_run_or_be_fetched(kind, request):
    assert_inert(page_html(report_page(request.getfixturevalue(kind))))


def test_every_hostile_string_is_displayed_as_text(hostile):
    source = page_html(report_page(hostile))
    text = ParsedPage(source).text
    for string in filter(None, HOSTILE):
        shown = re.sub(r"\s+", " ", sanitize(string))
        assert shown in text, string
    for raw in ("<script", "<img", "<b>", "\x1b", "\x00", "\u202e", "\u2028"):
        assert raw not in without_script(source)
    source.encode("utf-8")


@pytest.mark.parametrize("kind", ["tuned", "single", "hostile"])
def test_headings_are_in_order_and_ids_are_unique(kind, request):
    page = ParsedPage(page_html(report_page(request.getfixturevalue(kind))))
    levels = [int(tag[1]) for tag in page.tags if re.fullmatch("h[1-6]", tag)]
    assert levels[0] == 1 and levels.count(1) == 1
    assert all(after - before <= 1 for before, after in pairwise(levels))
    ids = [value for _, name, value in page.attributes if name == "id"]
    labels = [value for _, name, value in page.attributes if name == "aria-labelledby"]
    assert len(ids) == len(set(ids)) and set(labels) <= set(ids)


def test_plots_have_names(tuned):
    source = page_html(report_page(tuned))
    images = re.findall(r'<svg class="(?:row|panel)" role="img" aria-label="([^"]+)"><title>([^<]+)</title>', source)
    assert images and all(label == title for label, title in images)
    assert ("pooled FGB*: before 9.47 (8.97 to 9.97), after 1.76 (1.45 to 2.07), truth 15.30",) * 2 in images


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


def test_a_single_measurement_has_one_column_and_does_not_mention_tuning(single):
    source = page_html(report_page(single))
    text = ParsedPage(source).text.replace("\u00a0", " ")
    assert "9.47 [8.97, 9.97]" in text and "differs with the descriptor" in text
    for word in ("before tuning", "after tuning", "What it cost", "nan", "None", "not measured", "rose"):
        assert word not in text.split("How to read the numbers")[0], word
    assert 'class="after"' not in source


def test_only_some_samples_are_unfolded_at_first(hostile):
    before, _, after = page_html(report_page(hostile)).partition(f"<summary>{len(HOSTILE) - 6} more</summary>")
    folded = after.partition("</details>")[0]
    assert before.count('class="prompt"') == 6 and folded.count('class="prompt"') == len(HOSTILE) - 6


# As Markdown.


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


def test_bare_addresses_are_not_linked_outside_code(hostile):
    prose, _, signature = page_markdown(report_page(hostile)).partition("## Signature")
    outside = re.sub(r"(`+)(?!`).*?(?<!`)\1(?!`)", "", prose.replace("\\`", ""), flags=re.DOTALL)
    assert not re.search(r"(?<!\\):/|(?<!\\)@|www\.", outside)
    (block,) = [token for token in parse(signature) if token.type not in {"paragraph_open", "inline"}]
    assert block.type == "fence"  # it holds every back-tick of the signature


def test_values_warning_and_reasons(tuned):
    source = page_markdown(report_page(tuned))
    assert "| pooled FGB\\* | 9.47 [8.97, 9.97] | 1.76 [1.45, 2.07] | −7.71 [−8.27, −7.15] | \\< 0.0001 |" in source
    assert re.search(r"> \*\*Warning\.\*\* .*HATE.* 0\.08 to 0\.66", source)
    assert "| HATE **rose** | 0.08 [−0.10, 0.27] | 0.66 [0.50, 0.80] | +0.58 [+0.41, +0.74] | 0.0003 |" in source
    assert "| nonce | – | – |  |" in source and "– undefined: only one descriptor." in source
    assert '"revision": "abc"' in source


def test_a_single_measurement_in_markdown(single):
    source = page_markdown(report_page(single))
    assert "| pooled FGB\\* | 9.47 [8.97, 9.97] |\n" in source
    assert "| measure | value |" in source and "  - response: " in source
    assert "tuning" not in source.split("## How to read")[0]


# Printed.


@pytest.mark.parametrize("kind", ["tuned", "single", "hostile"])
def test_no_codes_and_at_most_100_columns_in_a_log(kind, request):
    text = printed(report_page(request.getfixturevalue(kind)))
    assert "\x1b" not in text and "\x00" not in text and "\u202e" not in text
    if kind != "hostile":  # the width of some letters is the terminal's own affair
        assert max(map(len, text.split("\n"))) <= 100


def test_verdict_and_warning_are_first_and_the_note_on_intervals_is_last(tuned):
    text = printed(report_page(tuned))
    first = "\n".join(text.split("\n")[:20])
    joined = re.sub(r"\s+", " ", first)
    assert re.search(r"fell by 81 % .*78 to 85 %.*WARNING .*HATE.* 0\.08 to 0\.66", joined)
    assert "95 % interval" in "\n".join(text.split("\n")[-10:])
    assert joined.index("WARNING") < joined.index("measure")
    assert re.search(r"pooled FGB\* +9\.47 +\[8\.97, 9\.97\] +1\.76 \[1\.45, 2\.07\] +−7\.71 \[−8\.27, −7\.15\]", first)


def test_tables_follow_with_reasons_and_rises(tuned):
    text = printed(report_page(tuned))
    assert "HATE (rose)" in text and "CARE (rose)" not in text
    assert "undefined: only" in text
    assert text.index("by style cluster") < text.index("by axis")
    assert re.search(r"perplexity on neutral dialogue +2\.69 +2\.72 +\+0\.03", text)


def test_numbers_of_a_column_are_aligned(tuned):
    lines = printed(report_page(tuned)).split("\n")
    ends = {re.search(r"\d+\.\d\d", line).end() for line in lines if re.match(r"(FGB|FGB\*|pooled FGB\*) +\d", line)}
    assert len(ends) == 1


def test_a_single_measurement_printed(single):
    text = printed(report_page(single))
    assert re.search(r"pooled FGB\* +9\.47 +\[8\.97, 9\.97\]", text)
    assert "before" not in text and "WARNING" not in text and "after" not in text


@pytest.mark.parametrize("kind", ["tuned", "single"])
def test_the_page_is_accessible(kind, request, browser):
    scheme = "dark" if kind == "single" else "light"
    assert browser.faults(page_html(report_page(request.getfixturevalue(kind))), scheme) == []
