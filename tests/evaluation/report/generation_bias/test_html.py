"""The page is whole, safe whatever it is fed, and shows the scores' own digits."""

import json
import re
from itertools import pairwise

import pytest

from evaluation.report import generation_page, page_html
from evaluation.report.html import signature_rows
from evaluation.report.numbers import visible

from ..conftest import HOSTILE
from ..parsed_page import OURS, ParsedPage


@pytest.mark.parametrize("kind", ["tuned", "single", "hostile"])
def test_nothing_can_run_or_be_fetched(kind, request):
    source = page_html(generation_page(request.getfixturevalue(kind)))
    page = ParsedPage(source)
    assert page.open == []
    assert set(page.tags) <= OURS
    for tag, name, value in page.attributes:
        assert not name.startswith("on"), (tag, name)
        assert name not in {"src", "srcset", "action", "formaction", "style", "xlink:href", "srcdoc"}, (tag, name)
        assert name != "href" or value == "data:,", (tag, value)
        assert name in {"aria-label", "data-label"} or not re.search(r"url\(|javascript:|//", value), (tag, value)
    style = re.search(r"<style>(.*?)</style>", source, re.DOTALL).group(1)
    assert "url(" not in style and "@import" not in style
    assert ("meta", "http-equiv", "Content-Security-Policy") in page.attributes
    (policy,) = [value for _, name, value in page.attributes if name == "content" and "default-src" in value]
    assert policy.startswith("default-src 'none'; style-src 'unsafe-inline'; img-src data:")
    assert source.count("<style>") == 1


def test_every_hostile_string_is_shown_as_text(hostile):
    source = page_html(generation_page(hostile))
    text = ParsedPage(source).text
    for string in filter(None, HOSTILE):
        shown = re.sub(r"\s+", " ", visible(string))
        assert shown in text, string
    for raw in ("<script", "<img", "<b>", "\x1b", "\x00", "\u202e", "\u2028"):
        assert raw not in source
    source.encode("utf-8")


@pytest.mark.parametrize("kind", ["tuned", "single", "hostile"])
def test_headings_are_in_order_and_ids_are_unique(kind, request):
    page = ParsedPage(page_html(generation_page(request.getfixturevalue(kind))))
    levels = [int(tag[1]) for tag in page.tags if re.fullmatch("h[1-6]", tag)]
    assert levels[0] == 1 and levels.count(1) == 1
    assert all(after - before <= 1 for before, after in pairwise(levels))
    ids = [value for _, name, value in page.attributes if name == "id"]
    labels = [value for _, name, value in page.attributes if name == "aria-labelledby"]
    assert len(ids) == len(set(ids)) and set(labels) <= set(ids)


def test_plots_have_names(tuned):
    source = page_html(generation_page(tuned))
    images = re.findall(r'<svg class="(?:row|panel)" role="img" aria-label="([^"]+)"><title>([^<]+)</title>', source)
    assert images and all(label == title for label, title in images)
    assert ("pooled FGB*: before 9.47 (8.97 to 9.97), after 1.76 (1.45 to 2.07), truth 15.30",) * 2 in images


def test_values_and_intervals_are_the_scores_times_a_thousand(tuned):
    text = ParsedPage(page_html(generation_page(tuned))).text.replace("\u00a0", " ")
    for shown in (
        "−81 %",
        "fell by 81 % (95 % interval 78 to 85 %), from 9.47 to 1.76 ×10⁻³",
        "196.87",  # FGB 0.19687
        "10.02 [8.71, 11.33]",
        "9.47 [8.97, 9.97]",  # 0.009472, 0.008974 and 0.009966
        "1.76 [1.45, 2.07]",
        "−7.71 [−8.27, −7.15]",
        "< 0.0001",
        "26.20 [22.90, 29.50]",  # axis ability
        "+0.58 [+0.41, +0.74]",  # cluster HATE
        "Style cluster HATE rose: SCGB* from 0.08 to 0.66 ×10⁻³",
        "36 % [31, 41]",  # threshold plan, 0.36 ± 0.05
        "Below 0.6 it is not to be trusted.",
        "Use it with its tag.",
        "62 %",  # 9.472 of the planted 15.3
        "model.revision",
    ):
        assert shown in text, shown
    assert "descriptor29" in text and "descriptor0 " in text and "descriptor15" not in text  # ten at each end


def test_an_undefined_score_shows_its_reason_and_never_zero(tuned):
    source = page_html(generation_page(tuned))
    (row,) = [it for it in re.findall(r"<tr>.*?</tr>", source, re.DOTALL) if ">nonce<" in it]
    text = ParsedPage(row).text
    assert "undefined: only one descriptor" in text and text.count("undefined") == 3
    assert not re.search(r"\d", text)


def test_a_single_measurement_has_one_column_and_no_talk_of_tuning(single):
    source = page_html(generation_page(single))
    text = ParsedPage(source).text.replace("\u00a0", " ")
    assert "9.47 [8.97, 9.97]" in text and "differs with the descriptor" in text
    for word in ("before tuning", "after tuning", "What it cost", "nan", "None", "not measured", "Training", "rose"):
        assert word not in text.split("How to read the numbers")[0], word
    assert 'class="after"' not in source


def test_only_some_samples_are_unfolded_at_first(hostile):
    before, _, after = page_html(generation_page(hostile)).partition(f"<summary>{len(HOSTILE) - 6} more</summary>")
    folded = after.partition("</details>")[0]
    assert before.count('class="asked"') == 6 and folded.count('class="asked"') == len(HOSTILE) - 6


def test_the_signature_is_flat_and_complete():
    nested = {"model": {"id": "m", "args": {}}, "seed": 3, "list": [1, 2]}
    assert signature_rows(nested) == [("model.id", "m"), ("model.args", "{}"), ("seed", "3"), ("list", "[1, 2]")]
    assert json.dumps(nested)  # the input is left as it was
