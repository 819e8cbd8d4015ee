"""The report on votes: what is said is what was counted, and nothing in it can break it."""

import pytest

from evenhand.evaluation.rating.metric import rating_scores
from evenhand.evaluation.rating.page import page
from evenhand.evaluation.report.html import page_html
from evenhand.evaluation.report.markdown import page_markdown
from tests.evaluation.rating.rated_pairs import QUESTIONS, made_up_pairs, vote_table
from tests.parsed_page import OURS, ParsedPage
from tests.report_pages import HOSTILE, printed, table_named, texts

COUNTS = {"template": 480, "descriptor": 7, "offensive": 3, "alike": 1}


def report(choices, counts=None, **own):
    pairs, votes = made_up_pairs(6, **own), vote_table(choices)
    scores = rating_scores(votes, QUESTIONS, {"seed": 0})
    return page(scores, votes, pairs, QUESTIONS, ("base", "tuned"), counts or COUNTS)


def test_the_first_screen():
    shown = report({"anna": {f"p{i}": "a" for i in range(4)}, "ben": {"p0": "a", "p1": "b", "p2": "-"}})
    assert shown.headline_value == "100 %"  # p0, p2 and p3; p1 is split
    assert (
        "neither can be told to be preferred (100 % of pairs for the model after, p = 0.25)" in shown.verdict
    )  # 2 / 8
    assert "Humanness: undefined: nobody decided" in shown.verdict
    assert texts(shown.tables[0])["preference"] == ["100", "0.25", "3", "1"]
    assert texts(table_named(shown, "Share of votes"))["preference"] == ["83", "0.22", "6", "1"]  # 5 of 6, p = 14 / 64
    assert "7 answers by 2 raters to 4 of 6 pairs" in shown.notes[0]
    assert shown.notes[1].startswith("Pairs were drawn from all prompts but those left out: 480 for their template")
    assert not shown.warnings


def test_who_is_preferred():
    for choice, side in (("a", "after"), ("b", "before")):
        six = {f"p{i}": choice for i in range(6)}
        assert f"the model {side} is preferred (100 % of votes, p = 0.031)" in report({"anna": six}).verdict  # 2 / 64
        five = report({name: six | {"p5": "-"} for name in "abc"})  # however many agree on them
        assert "neither can be told to be preferred" in five.verdict


def test_pairs_are_told_apart_from_votes_where_several_judged_one():
    alone = report({"anna": {"p0": "a", "p1": "b"}})
    both = report({"anna": {"p0": "a", "p1": "b"}, "ben": {"p0": "a", "p1": "a"}})
    assert "By vote" not in [part.title for part in alone.sections]
    assert texts(both.tables[0])["preference"] == ["100", "1", "1", "1"]
    assert texts(table_named(both, "Krippendorff"))["preference"] == ["0.00", "2"]
    # p0 agrees, p1 does not: Do = 1/2; three a, one b: De = 2 · 3 · 1 / (4 · 3) = 1/2


def test_responses_that_nobody_judged_are_a_warning():
    shown = report({"anna": {"p0": "a"}}, COUNTS | {"offensive": None})
    assert "offensive responses were not left out" in shown.warnings[0]
    assert "offensive" not in shown.notes[1]


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_texts_are_text(text):
    if "\ud800" in text:
        pytest.skip("no table can hold a lone surrogate")
    shown = report({text or "x": {"p0": "a", "p1": "b"}}, before=[text] * 6, text=[text] * 6, descriptor=[text] * 6)
    parsed = ParsedPage(page_html(shown))
    assert set(parsed.tags) <= OURS
    assert not [name for _, name, _ in parsed.attributes if name.startswith("on")]
    if text.startswith("<script>"):
        assert text in parsed.text
    assert page_markdown(shown) and printed(shown)


def test_nothing_keeps_people_from_using_it(browser):
    shown = report({"anna": {f"p{i}": "a" for i in range(4)}, "ben": {"p0": "a", "p1": "b", "p2": "-"}})
    assert browser.faults(page_html(shown)) == []
