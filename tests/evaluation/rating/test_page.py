"""The report on votes has the right numbers, and no text can break it."""

import re

import pytest

from evenhand.evaluation.rating.metrics import NO_VOTES, page, rating_scores
from evenhand.evaluation.report.html import page_html
from tests.evaluation.rating.rated_pairs import QUESTIONS, synthetic_pairs, vote_table
from tests.parsed_page import OURS, ParsedPage
from tests.report_pages import HOSTILE, printed, table_named, table_of, texts

COUNTS = {"template": 480, "descriptor": 7, "offensive": 3, "alike": 1}


def report(choices, **columns):
    pairs = synthetic_pairs(6, **columns)
    votes = vote_table(choices)
    scores = rating_scores(votes, QUESTIONS, {"seed": 0})
    return page(scores, votes, pairs, QUESTIONS, ("base", "tuned"), COUNTS)


def test_pairs_are_the_unit_where_a_pair_has_several_raters():
    result = report({"anna": {f"p{i}": "a" for i in range(4)}, "ben": {"p0": "a", "p1": "b", "p2": "-"}})
    assert result.headline_value == "100 %"  # p0, p2 and p3; p1 is split
    assert [question for question in QUESTIONS if question.capitalize() in result.verdict] == list(QUESTIONS)
    assert "100" in result.verdict and NO_VOTES in result.verdict
    assert texts(result.sections[0].tables[0])["preference"] == ["100", "0.25", "3", "1"]  # p = 2 / 8
    assert texts(table_of(result, "By vote"))["preference"] == ["83", "0.22", "6", "1"]  # 5 of 6, p = 14 / 64
    assert re.findall(r"\d+", result.notes[0]) == ["7", "2", "4", "6"]  # answers, raters, pairs rated and shown
    assert set(re.findall(r"\d+", result.notes[1])) == {str(count) for count in COUNTS.values()}
    assert texts(table_named(result, "Krippendorff"))["preference"] == ["0.00", "2", "2"]
    # p0 agrees, p1 does not: Do = 1/2; three a, one b: De = 2 · 3 · 1 / (4 · 3) = 1/2
    alone = report({"anna": {"p0": "a", "p1": "b"}})
    assert texts(alone.sections[0].tables[0])["preference"] == ["50", "1", "2"]
    assert not any(part.has_content for part in alone.sections if part.title == "By vote")


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_texts_are_escaped(text):
    if "\ud800" in text:
        pytest.skip("no table can hold a lone surrogate")
    result = report({text or "x": {"p0": "a", "p1": "b"}}, descriptor=[text] * 6)
    parsed = ParsedPage(page_html(result))
    assert set(parsed.tags) <= OURS
    assert not [name for _, name, _ in parsed.attributes if name.startswith("on")]
    if text.startswith("<script>"):
        assert text in parsed.text
    assert printed(result)
