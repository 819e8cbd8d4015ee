"""The opening of a report: verdict and sentences name the shown effects, what is detectable, and the responses."""

import numpy as np
import pandas as pd
import pytest

from evenhand.evaluation.metrics.generation_bias.effects.section import MAX_ROWS, lead_sections, plain_verdict
from evenhand.evaluation.metrics.generation_bias.effects.table import COLUMNS
from evenhand.evaluation.report.html import page_html
from evenhand.evaluation.report.markdown import page_markdown
from evenhand.evaluation.report.page import Example, Page
from evenhand.evaluation.score import BiasScore
from tests.parsed_page import ParsedPage, assert_inert


def table(*rows):
    common = {"kind": "descriptor", "axis": "body_type", "outcome": "style", "average": 0.01, "detectable": 0.08}
    common |= {"z": 3.0, "p": 0.01, "q": 0.2, "p_family": 0.5, "certainty": "open", "n": 104}
    frame = pd.DataFrame([common | row for row in rows])
    frame["mean"] = frame["average"] + frame["shrunk"]
    return frame.assign(effect=frame["shrunk"], low=frame["shrunk"] - 0.01, high=frame["shrunk"] + 0.01)[list(COLUMNS)]


SHOWN = {"unit": "paralyzed", "name": "fear", "shrunk": 0.0254, "certainty": "shown", "p_family": 0.01}
CLUSTER = {**SHOWN, "outcome": "cluster", "name": "SELF_HARM", "shrunk": 0.02}
OPEN = {"unit": "blond", "name": "fear", "shrunk": -0.002}
SCORES = [
    BiasScore(name, value, None, (0, 2), 400, interval, group={"source": source} if source else {})
    for name, value, interval, source in (
        ("moved_share", 0.031, (0.02, 0.04), ""),
        ("style_shift", 0.044, (0.028, 0.057), ""),
        ("fgb_pooled_corrected_detectable", 0.0008, None, ""),
        *(
            ("variance_share", value, (0, 1), source)
            for source, value in {"template": 0.2, "descriptor": 0.05, "interaction": 0.01, "chance": 0.74}.items()
        ),
    )
]


def pair(name, response="I am sorry.", hidden=()):
    return Example("", ((f"I'm {name}.", response), ("I'm tall.", "Hi.")), hidden=hidden)


def examples(effect, most):
    return [pair(effect["unit"]), pair(effect["unit"], "Damn you.", frozenset({0}))][:most]


def opening(*rows, choose=examples):
    frame = table(*rows)
    return Page(
        "Title",
        "model",
        "2026-01-01",
        "2.1",
        "caption",
        plain_verdict(frame, "shown"),
        lead=lead_sections(frame, SCORES, choose),
    )


def test_the_shown_effects_are_named_with_their_numbers_and_responses():
    page = opening(SHOWN, CLUSTER, OPEN)
    assert page.verdict == (
        "This model answers people differently depending on who they are: prompts with “paralyzed” get more “fear” "
        "responses than others, 4 instead of 1 in 100."
    )
    summary, descriptor_map, effects = page.lead
    (claim,) = summary.examples  # the largest effect of each descriptor
    for number in ("“fear”", "3.5 %", "1.0 %", "+2.5", "+1.5 to +3.5"):
        assert number in claim.claim
    assert claim.texts == pair("paralyzed").texts
    assert [row.label for row in descriptor_map.tables[0].rows] == ["paralyzed"]
    assert descriptor_map.tables[0].columns == ("descriptor", "axis", "self harm")
    assert descriptor_map.tables[0].rows[0].cells[1].bold
    rows = effects.tables[0].rows
    assert [row.href for row in rows] == ["#responses1", "#responses2", "./responses.html#descriptor=blond"]
    assert [it.anchor for it in effects.parts[0].examples] == ["responses1", "responses2"]
    assert len(effects.parts[0].examples[0].texts) == 4


def test_the_opening_ends_with_size_and_resolution():
    scale, shares, resolution = opening(OPEN, {**OPEN, "unit": "tall"}).lead[0].parts[0].sentences
    assert "3.1 of 100 responses (95 % interval 2.0 to 4.0)" in scale and "4.4 points" in scale
    assert "5.0 % [0.0, 100.0] is due to the descriptor" in shares and "74.0 %" in shares
    # √(0.0008 / 2) is 2 %; 104 responses to each of two descriptors, four times as many for half
    for number in ("208 responses", "2.0 of 100", "8.0 points", "832"):
        assert number in resolution


@pytest.mark.parametrize(
    ("verdict", "rows", "expected"),
    [
        ("not shown", [OPEN], "do not show"),
        ("unclear", [OPEN], "unclear, because two tests disagree"),
        ("not shown", [SHOWN], "single ones are: prompts with “paralyzed”"),
        ("no interval", [OPEN], "too few"),
    ],
)
def test_the_verdict_is_one_sentence_without_a_symbol(verdict, rows, expected):
    sentence = plain_verdict(table(*rows), verdict)
    assert expected in sentence and sentence.count(".") == 1
    assert not set(sentence) & set("*×⁻θ√")


def test_without_a_shown_effect_the_page_names_none_and_without_effects_it_has_no_opening():
    summary = opening(OPEN).lead[0]
    assert summary.sentences == ["None of 1 effects is shown."] and not summary.examples
    assert not opening(OPEN).lead[1].has_content  # without clusters there is no map
    assert lead_sections(pd.DataFrame(columns=list(COLUMNS)), SCORES, examples) == []


def test_only_the_largest_effects_are_in_the_table():
    rows = opening(*({**OPEN, "unit": f"d{n}"} for n in range(MAX_ROWS + 5))).lead[2].tables[0]
    assert len(rows.rows) == MAX_ROWS and rows.note.startswith("5 smaller effects")


def test_hostile_texts_are_text_and_offensive_responses_are_behind_a_click():
    hostile = {**SHOWN, "unit": '<script>alert(1)</script>"\u202e\x1b[31m', "name": "<b>"}
    page = opening(hostile, OPEN, choose=lambda effect, most: [pair("<i>a", "<b>damn</b>", frozenset({0}))])
    source = page_html(page)
    assert_inert(source)
    assert "\u202e" not in source and "\x1b" not in source
    hidden = source.split("Marked as offensive by the classifier</summary>")[1].partition("</details>")[0]
    assert "&lt;b&gt;damn&lt;/b&gt;" in hidden and source.count("&lt;b&gt;damn") == 2  # and in the folded list
    assert "damn" not in page_markdown(page)
    ids = {value for _, name, value in ParsedPage(source).attributes if name == "id"}
    assert "responses1" in ids
    assert np.isfinite(table(hostile)["low"]).all()
