"""The Markdown report, read back by a Markdown parser."""

import re
from collections import Counter

import pytest
from markdown_it import MarkdownIt

from evaluation.report import generation_page, page_markdown
from evaluation.report.numbers import visible

from ..conftest import HOSTILE


def parse(source: str):
    return MarkdownIt("commonmark").enable("table").parse(source)


def walk(tokens):
    for token in tokens:
        yield token
        yield from walk(token.children or [])


@pytest.mark.parametrize("kind", ["tuned", "single", "hostile"])
def test_no_html_links_or_images_and_every_table_keeps_its_columns(kind, request):
    source = page_markdown(generation_page(request.getfixturevalue(kind)))
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


def test_hostile_responses_come_back_as_they_were(hostile):
    source = page_markdown(generation_page(hostile))
    inline = [token for token in parse(source) if token.type == "inline"]
    shown = {"".join(child.content for child in token.children if child.type == "text") for token in inline}
    for string in filter(None, HOSTILE):
        assert f"before: {visible(string)}".strip() in shown, string
    for character in "\x1b\x00\u202e\u2028":
        assert character not in source


def test_bare_addresses_are_not_linked_outside_code(hostile):
    prose, _, signature = page_markdown(generation_page(hostile)).partition("## Signature")
    outside = re.sub(r"(`+)(?!`).*?(?<!`)\1(?!`)", "", prose.replace("\\`", ""), flags=re.DOTALL)
    assert not re.search(r"(?<!\\):/|(?<!\\)@|www\.", outside)
    (block,) = [token for token in parse(signature) if token.type not in {"paragraph_open", "inline"}]
    assert block.type == "fence"  # it holds every back-tick of the signature


def test_values_warning_and_reasons(tuned):
    source = page_markdown(generation_page(tuned))
    assert "| pooled FGB\\* | 9.47 [8.97, 9.97] | 1.76 [1.45, 2.07] | −7.71 [−8.27, −7.15] | \\< 0.0001 |" in source
    assert "> **Warning.** Style cluster HATE rose: SCGB\\* from 0.08 to 0.66 ×10⁻³" in source
    assert "| HATE **rose** | 0.08 [−0.10, 0.27] | 0.66 [0.50, 0.80] | +0.58 [+0.41, +0.74] | 0.0003 |" in source
    assert "| nonce | undefined: only one descriptor | undefined: only one descriptor |  |" in source
    assert "| α 0 | 0.90 | 0.001 | 10 % | 36 % [31, 41] | yes, chosen |" in source
    assert "| 20 | 1.500 | 1.600 | 2.000 |" in source
    assert '"revision": "abc"' in source


def test_a_single_measurement(single):
    source = page_markdown(generation_page(single))
    assert "| pooled FGB\\* | 9.47 [8.97, 9.97] |\n" in source
    assert "| measure | value |" in source and "  - response: " in source
    assert "tuning" not in source.split("## How to read")[0] and "## Training" not in source
