"""Sections on effects: verdict and sentences name the shown effects, what is detectable, and the responses."""

import numpy as np
import pandas as pd
import pytest

from evenhand.evaluation.metrics import FamilyRun
from evenhand.evaluation.metrics.generation_bias.effect_sections import (
    effect_change_section,
    effect_example,
    lead_sections,
)
from evenhand.evaluation.metrics.generation_bias.parts.effects import CHANGE_COLUMNS, COLUMNS, read_effects
from evenhand.evaluation.metrics.generation_bias.styled_responses import StyledResponses
from evenhand.evaluation.metrics.generation_bias.verdict import plain_verdict
from evenhand.evaluation.report.html import page_html
from evenhand.evaluation.report.page import Example, Page
from tests.named_scores import named_score
from tests.parsed_page import assert_inert


def table(*rows):
    common = {"kind": "descriptor", "axis": "body_type", "outcome": "style", "average": 0.01, "detectable": 0.08}
    common |= {
        "z": 3.0,
        "p": 0.01,
        "q": 0.2,
        "p_family": 0.5,
        "p_page": 0.5,
        "certainty": "inconclusive",
        "n": 104,
        "hits": np.nan,
    }
    frame = pd.DataFrame([common | row for row in rows])
    frame["mean"] = frame["average"] + frame["shrunk"]
    bounds = {"low": frame["shrunk"] - 0.01, "high": frame["shrunk"] + 0.01, "at_most": 1.0, "at_least": 0.0}
    return frame.assign(effect=frame["shrunk"], **bounds)[COLUMNS]


SHOWN = {"unit": "paralyzed", "name": "fear", "shrunk": 0.0254, "certainty": "shown", "p_family": 0.01}
CLUSTER = {**SHOWN, "outcome": "cluster", "name": "SELF_HARM", "shrunk": 0.02}
OPEN = {"unit": "blond", "name": "fear", "shrunk": -0.002}
SCORES = [
    named_score(name, value, None, (0, 2), 400, interval, group={"source": source} if source else {})
    for name, value, interval, source in (
        ("moved_answers", 0.031, (0.02, 0.04), ""),
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


def opening(*rows, choose=lambda effect: pair(effect["unit"])):
    frame = table(*rows)
    return Page(
        "Title",
        "model",
        "2026-01-01",
        "2.1",
        "caption",
        plain_verdict(frame, "shown"),
        sections=lead_sections(frame, SCORES, choose),
    )


def test_the_shown_effects_are_named_with_their_numbers_and_responses():
    page = opening(SHOWN, CLUSTER, OPEN)
    assert page.verdict == (
        "This model answers people in different styles depending on who they are: prompts with “paralyzed” get more "
        "“fear” responses than the average: 4 of 100 (n = 104), on average 1 of 100."
    )
    summary, effect_map, effects = page.sections
    (claim,) = summary.examples  # the largest effect of each descriptor
    for number in ("“fear”", "4 of 100", "1 of 100", "+3 [+2, +4]"):
        assert number in claim.claim
    assert claim.texts == pair("paralyzed").texts
    assert 'alt="Map of effects' in effect_map.figures[0].svg
    rows = effects.tables[0].rows
    assert rows[0].href == "./responses.html#descriptor=paralyzed"


def test_the_opening_ends_with_size_and_resolution():
    size = opening(OPEN, {**OPEN, "unit": "tall"}).sections[0].parts[0]
    cells = {row.label.partition(",")[0]: row.cells[0] for row in size.tables[0].rows if "variance" not in row.label}
    assert (
        cells["answers as if moved to another style"].text,
        cells["answers as if moved to another style"].interval,
    ) == ("3.1", "[2.0, 4.0]")
    assert (cells["shift of the mix of styles"].text, cells["smallest detectable pooled FGB*"].text) == ("4.4", "0.80")
    shares = {row.label.partition(": ")[2]: row.cells[0].text for row in size.tables[0].rows}
    assert shares["descriptor"] == "5.0" and shares["chance"] == "74.0"
    assert size.sentences[0].startswith("8 of 10 such runs show a difference of 8.0 points (median; at worst 8.0) in")


@pytest.mark.parametrize(
    ("detectable", "expected"),
    [((0.08, 0.2, 1.114), ["a difference of 20.0 points (median; in some cases none)"]), ((1.114,), [])],
)
def test_no_difference_of_more_than_100_points_is_detectable(detectable, expected):
    rows = ({**OPEN, "unit": f"d{n}", "detectable": size} for n, size in enumerate(detectable))
    sentences = opening(*rows).sections[0].parts[0].sentences
    assert len(sentences) == len(expected) and all(map(str.__contains__, sentences, expected))


@pytest.mark.parametrize(
    ("verdict", "rows", "expected"),
    [
        ("not shown", [OPEN], "do not show"),
        ("unclear", [OPEN], "depending on who they are is unclear"),
        ("not shown", [SHOWN], "single ones are: prompts with “paralyzed”"),
        ("no interval", [OPEN], "too few"),
    ],
)
def test_the_verdict_is_one_sentence_without_a_symbol(verdict, rows, expected):
    sentence = plain_verdict(table(*rows), verdict)
    assert expected in sentence and sentence.count(".") == 1
    assert not set(sentence) & set("*×⁻θ√")


def test_a_difference_without_a_shown_effect_has_nobody_s_name():
    assert plain_verdict(table(OPEN), "shown").endswith("they are. These responses do not show whom.")


def test_without_a_shown_effect_the_page_names_none_and_without_effects_it_has_no_opening():
    summary = opening(OPEN).sections[0]
    assert summary.sentences[0] == "Effects shown: 0 of 1; worth a look: 0." and not summary.examples
    assert lead_sections(pd.DataFrame(columns=COLUMNS), SCORES, pair) == []


def test_hostile_texts_are_text_and_offensive_responses_are_behind_a_click():
    hostile = {**SHOWN, "unit": '<script>alert(1)</script>"\u202e\x1b[31m', "name": "<b>"}
    page = opening(hostile, OPEN, choose=lambda effect: pair("<i>a", "<b>damn</b>", frozenset({0})))
    source = page_html(page)
    assert_inert(source)
    assert "\u202e" not in source and "\x1b" not in source
    hidden = source.split("Marked as offensive by the classifier</summary>")[1].partition("</details>")[0]
    assert "&lt;b&gt;damn&lt;/b&gt;" in hidden and source.count("&lt;b&gt;damn") == 1


WARM = [0.1, 0.9, 0.9, 0.8, 0.2, 0.3, 0.7, np.nan]
RESPONSES = ["a", "same", "same", "b", "c", "d", "e", ""]
DESCRIPTORS = ["deaf", "deaf", "deaf", "deaf", "tall", "tall", "short", "short"]
NOUNS = ["man", "man", "woman", "woman", "man", "woman", "man", "man"]


@pytest.fixture
def run():
    axis = ["ability"] * 4 + ["body"] * 4
    columns = {"template": "I'm {}.", "axis": axis, "bucket": ["x"] * 6 + ["y"] * 2, "response": RESPONSES}
    columns |= {"descriptor": DESCRIPTORS, "noun": NOUNS}
    columns["text"] = [f"I'm a {d} {n}." for d, n in zip(DESCRIPTORS, NOUNS, strict=True)]
    return StyledResponses(pd.DataFrame(columns), np.array([[p, 1 - p] for p in WARM]), ("Warm", "Cold"))


def chosen(run, columns=(0,), offensive=None, **effect):
    effect = {"kind": "descriptor", "unit": "deaf", "shrunk": 0.1} | effect
    return effect_example(run, effect, columns, offensive)


def test_the_response_with_the_largest_probability_has_one_of_the_other_side_beside_it(run):
    example = chosen(run)
    assert example.texts[0] == ("I'm a deaf man.", "same") and example.texts[1][0] in (
        "I'm a tall man.",
        "I'm a short man.",
    )
    assert chosen(run) == example
    # For less of a style, another descriptor's response carries it, and is the second.
    assert [text for _, text in chosen(run, shrunk=-0.1).texts] in (["a", "e"], ["same", "e"])
    # Groups have the responses of their descriptors.
    assert chosen(run, (0, 1), kind="bucket", unit="body: y").texts[0][1] == "e"
    assert chosen(run, kind="axis", unit="ability").texts[0][1] == "same"


def test_offensive_responses_are_hidden_and_an_unknown_unit_has_no_example(run):
    assert chosen(run, offensive=[False, True] + [False] * 6).hidden == {0}
    assert chosen(run, unit="nobody").texts == ()


NEVER_SHOWN = dict.fromkeys(("certainty_before", "certainty_after", "certainty"), "inconclusive")
UNCHANGED = {"kind": "descriptor", "unit": "tall", "axis": "body", "outcome": "style", "name": "fear"}
UNCHANGED |= {"transition": "inconclusive"}
UNCHANGED |= {"mean_before": 0.01, "mean_after": 0.01, "average_before": 0.008, "average_after": 0.007, "n": 104}
UNCHANGED |= {"shrunk_before": 0.001, "shrunk_after": 0.001, "change": 0.0, "shrunk": 0.0, "low": -0.01, "high": 0.01}
UNCHANGED |= {"detectable": 0.02, "z": 0.0, "p": 0.9, "q": 1.0, "p_family": 1.0, **NEVER_SHOWN}
REMOVED = {**UNCHANGED, "unit": "paralyzed", "transition": "removed", "mean_before": 0.033, "mean_after": 0.011}
REMOVED |= {"shrunk": -0.022, "low": -0.03, "high": -0.011, "certainty_before": "shown", "certainty": "shown"}
NEW = {**UNCHANGED, "unit": "blond", "transition": "new", "certainty_after": "shown", "certainty": "shown"}


def section(*rows):
    return effect_change_section(pd.DataFrame(rows, columns=CHANGE_COLUMNS))


def test_removed_and_new_effects_are_named():
    found = section(REMOVED, NEW, UNCHANGED)
    assert found.sentences[0] == (
        "Effects shown before: 1 of 3 (1 removed); new after: 1. Changes shown: 2; if nothing had changed, 5 of 100 "
        "comparisons would show any."
    )
    for table in (found.tables[0], found.parts[0].tables[0]):
        assert [row.label for row in table.rows] == ["paralyzed, fear", "blond, fear"]
    became, mean, _, change, *_ = found.tables[0].rows[0].cells
    assert (became.text, mean.text, change.text) == ("removed", "3.3 → 1.1", "−2.2")
    assert change.interval == "[−3.0, −1.1]"


def test_without_a_change_it_names_the_smallest_detectable_one():
    rare = {**UNCHANGED, "name": "awe", "detectable": 0.001}  # 0.8 % of the responses: nobody can get much less
    found = section(
        {**UNCHANGED, "average_before": 0.012}, {**UNCHANGED, "average_before": 0.012, "detectable": 0.04}, rare
    )
    assert found.sentences[0].startswith("Effects shown before: 0 of 3; new after: 0.")
    assert "a change of 3.0 points (median; at worst 4.0)" in found.sentences[-1]
    assert not section().has_content


def test_tables_of_earlier_versions_are_read(tmp_path):
    table(SHOWN).drop(columns=["p_page", "hits"]).to_parquet(tmp_path / "effects.parquet")
    read = read_effects(FamilyRun(tmp_path), "effects")
    assert read["p_page"].tolist() == [0.01] and read["hits"].isna().all()
    assert lead_sections(read, SCORES, lambda effect: pair(effect["unit"]))
    assert not len(read_effects(FamilyRun(tmp_path), "absent"))


def test_the_verdict_names_who_is_shown_to_get_another_mix_of_styles():
    """No single effect is shown, but the whole shift of one person is."""
    frame = table(OPEN)
    shifts = pd.DataFrame({"unit": ["tall", "blond"], "certainty": ["inconclusive", "shown"]})
    assert "“blond”" in plain_verdict(frame, "shown", shifts) and "tall" not in plain_verdict(frame, "shown", shifts)
    assert plain_verdict(frame, "shown", shifts.head(1)) == plain_verdict(frame, "shown")
