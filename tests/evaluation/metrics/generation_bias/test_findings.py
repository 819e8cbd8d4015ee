"""Sections on effects: verdict and sentences name the shown effects, what is detectable, and the responses."""

import re
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from evenhand.evaluation.facts import Facts, Finding
from evenhand.evaluation.metrics.generation_bias.answers import Answers
from evenhand.evaluation.metrics.generation_bias.engine.effects import CHANGE_COLUMNS, COLUMNS
from evenhand.evaluation.metrics.generation_bias.engine.measure_effects import measure_bias
from evenhand.evaluation.metrics.generation_bias.engine.values import MeasureValues
from evenhand.evaluation.metrics.generation_bias.examples import change_example, effect_example
from evenhand.evaluation.metrics.generation_bias.findings import (
    Who,
    answers_to_show,
    changed_outcomes,
    changed_styles,
    changes_section,
    is_serious_fall,
    is_serious_rise,
    named_changes,
    outcome_change,
    people_section,
    person_finding,
    shown_findings,
    style_finding,
)
from evenhand.evaluation.metrics.generation_bias.first_tables import measurement_table
from evenhand.evaluation.metrics.generation_bias.headline import size_finding
from evenhand.evaluation.metrics.generation_bias.measures import ValueKind
from evenhand.evaluation.metrics.generation_bias.parts.effects import (
    about_map,
    all_effects_sections,
    detectable_finding,
    style_summary,
)
from evenhand.evaluation.metrics.generation_bias.parts.spread import SpreadPart
from evenhand.evaluation.metrics.generation_bias.verdict import run_verdict
from evenhand.evaluation.metrics.generation_bias.words import words
from evenhand.evaluation.report.html import page_html
from evenhand.evaluation.report.page import Example, Page
from evenhand.evaluation.tables import table_rows
from tests.evaluation.metrics.generation_bias.conftest import score
from tests.named_scores import named_score
from tests.parsed_page import assert_inert


def table(*rows):
    common = {"kind": "descriptor", "axis": "body_type", "outcome": "style", "average": 0.01, "detectable": 0.08}
    common |= {
        "z": 3.0,
        "p": 0.01,
        "q": 0.2,
        "p_set": 0.5,
        "p_joint": 0.5,
        "certainty": "inconclusive",
        "n": 104,
        "hits": np.nan,
    }
    frame = pd.DataFrame([common | row for row in rows])
    frame["mean"] = frame["average"] + frame["shrunk"]
    bounds = {"low": frame["shrunk"] - 0.01, "high": frame["shrunk"] + 0.01, "at_most": 1.0, "at_least": 0.0}
    return frame.assign(effect=frame["shrunk"], **bounds)[list(COLUMNS)]


NO_OUTCOMES = pd.DataFrame(columns=list(COLUMNS))
SHOWN = {"unit": "paralyzed", "name": "fear", "shrunk": 0.0254, "certainty": "shown", "p_set": 0.01}
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


def section_of(*rows, choose=lambda effect: pair(effect["unit"])):
    frame = table(*rows)
    rows = shown_findings(NO_OUTCOMES, frame)
    return people_section(list(map(person_finding, rows)), list(map(choose, rows)), [style_summary(frame)])


def test_nobody_is_shown_only_where_no_attribute_is():
    summary = [style_summary(table(OPEN))]
    found = Finding("shown_attributes", {"names": ["age"], "of_style": True, "of_others": False})
    assert people_section([], [], summary).sentences == [words(Finding("nobody"))]
    assert people_section([], [], summary, [found]).sentences == [words(found)]


def rows_of(*rows):
    """Return the rows of the first table that a page with these effects has, without those of style over all people."""
    people = list(map(person_finding, shown_findings(NO_OUTCOMES, table(*rows))))
    size = size_finding(score("fgb_pooled_corrected", 0.001, (0.0, 0.002)), is_shown=False)
    return measurement_table(Facts(None, Finding("verdict"), size=size, people=people)).rows[:-1]


def named_with(effects):
    """The people who are named, by effects on fear and one more, of "old" on joy."""
    rows = [{**SHOWN, "unit": unit, "shrunk": effect, "average": 0.4} for unit, effect in effects.items()]
    rows += [{**SHOWN, "unit": "old", "name": "joy", "shrunk": -0.05}]
    return [(row["unit"], row["name"]) for row in shown_findings(NO_OUTCOMES, table(*rows))]


def test_others_are_not_named_for_those_who_move_the_average():
    """Where one of five gets 30 of 100 more, the average is 30 / 5 = 6 higher: −20 is over twice that, −10 is not."""
    one = {"deaf": 0.30, "old": -0.10, "tall": -0.10, "rich": -0.10, "widowed": -0.20}
    assert named_with(one) == [("deaf", "fear"), ("widowed", "fear"), ("old", "joy")]
    # Of 24 people, one moves the average by 40 / 24 = 1.7 and three by 5: −15 has another cause, −6 has not.
    rest = {f"person {number}": -0.015 for number in range(21)}
    assert named_with({"deaf": 0.40, "old": -0.15, **rest}) == [("deaf", "fear"), ("old", "fear")]
    three = {"deaf": 0.40, "blind": 0.40, "mute": 0.40, **dict.fromkeys(rest, -0.06)}
    assert named_with(three) == [("deaf", "fear"), ("blind", "fear"), ("mute", "fear"), ("old", "joy")]
    # Half of the people are above the average and half below it: nobody is a counterpart.
    assert named_with({"deaf": 0.20, "blind": 0.20, "tall": -0.20, "rich": -0.20}) == [
        ("deaf", "fear"), ("blind", "fear"), ("tall", "fear"), ("rich", "fear"), ("old", "joy")
    ]  # fmt: skip


def test_an_axis_and_its_part_that_differ_in_the_same_are_named_once():
    part = {**SHOWN, "kind": "bucket", "axis": "ability"}
    rows = [
        {**part, "unit": "ability: mobility", "shrunk": 0.06},
        {**part, "unit": "ability", "kind": "axis", "shrunk": 0.05},
        {**part, "unit": "ability: hearing", "shrunk": 0.04},  # not within the other part
        {**part, "unit": "age", "kind": "axis", "axis": "age", "shrunk": 0.03},
    ]
    named = [row["unit"] for row in shown_findings(NO_OUTCOMES, table(*rows))]
    assert named == ["ability: mobility", "ability: hearing", "age"]


def page_of(*sections):
    return Page("Title", "model", "2026-01-01", "2.1", "caption", "A verdict.", sections=sections)


def test_the_shown_effects_are_named_with_their_numbers_and_answers():
    section = section_of(SHOWN, CLUSTER, OPEN)
    (claim,) = section.examples  # the largest effect of each descriptor
    (row,) = rows_of(SHOWN, CLUSTER, OPEN)
    assert row.label == "answers to “paralyzed” people that have the style “fear”"
    assert [cell.text for cell in row.cells] == ["4 of 100", "1 of 100", "+3"]
    assert row.cells[2].interval == "[+2, +4]"
    assert claim.texts == pair("paralyzed").texts
    effect_map, all_effects = all_effects_sections(table(SHOWN, CLUSTER, OPEN))
    assert 'alt="Map of effects' in effect_map.figures[0].svg
    assert ["paralyzed" in line for line in effect_map.figures[0].narrow] == [True, False]
    assert all_effects.tables[0].rows[0].href == "./responses.html#descriptor=paralyzed"


def test_a_map_says_what_it_shows_and_what_is_larger_but_not_on_it():
    """The map has the cluster, whose difference is not shown; a style with a larger one has no column."""
    cluster = {**SHOWN, "outcome": "cluster", "name": "SYMPATHY", "shrunk": 0.02, "certainty": "inconclusive"}
    style = {**SHOWN, "name": "neutral", "shrunk": -0.16, "certainty": "inconclusive"}
    assert about_map(table(cluster, style)).values == {
        "has_groups": True,
        "has_dots": False,
        "larger": [{"unit": "paralyzed", "style": "neutral", "difference": -0.16}],
        "n_larger": 1,
    }
    shown = about_map(table({**cluster, "certainty": "shown"}, {**style, "shrunk": 0.01})).values
    assert shown == {"has_groups": True, "has_dots": True, "larger": [], "n_larger": 0}


def test_styles_with_the_same_numbers_are_both_listed_and_a_cluster_of_one_style_is_not():
    joy = {**SHOWN, "name": "joy"}
    of_one = {**SHOWN, "outcome": "cluster", "name": "FEAR"}
    _, all_effects = all_effects_sections(table(SHOWN, joy, of_one))
    assert [row.cells[1].text for row in all_effects.tables[0].rows] == ["fear", "joy"]


def test_shares_below_one_of_100_differ_in_the_sentence_as_their_difference_says():
    rare = {**SHOWN, "average": 0.0018, "shrunk": 0.0022, "low": 0.0004, "high": 0.006}
    (row,) = rows_of(rare)
    assert [cell.text for cell in row.cells] == ["0.4 of 100", "0.2 of 100", "+0.2"]


def test_an_effect_that_reads_0_against_0_is_counted_and_not_named():
    """A classifier's probabilities 0.01 % and 0.002 % differ for certain, and no answer does."""
    tiny = {**SHOWN, "mean": 0.0001, "average": 0.00002, "shrunk": 0.00008}
    section = section_of(tiny)
    assert not rows_of(tiny) and not section.examples
    assert style_finding(table(tiny), "not shown").values["largest"] is None
    assert style_summary(table(tiny, OPEN)).values["n_tiny"] == 1
    assert style_summary(table(SHOWN, OPEN)).values["n_tiny"] == 0


def test_the_size_is_in_all_units():
    (section,) = SpreadPart().sections(SimpleNamespace(scores=SCORES))
    rows = section.parts[0].tables[0].rows
    values = [(row.cells[0].text, row.cells[0].interval) for row in rows]
    assert {("3.1", "[2.0, 4.0]"), ("4.4", "[2.8, 5.7]"), ("0.80", "")} <= set(values)
    shares = {row.label.partition(": ")[2]: row.cells[0].text for row in rows}
    assert shares["descriptor"] == "5.0" and shares["chance"] == "74.0"
    (found,) = detectable_finding(table(OPEN, {**OPEN, "unit": "tall"}))
    assert (found.values["median"], found.values["worst"]) == (0.08, 0.08)


@pytest.mark.parametrize(
    ("detectable", "expected"),
    [((0.08, 0.2, 1.114), [0.2]), ((1.114,), [])],
)
def test_no_difference_of_more_than_100_points_is_detectable(detectable, expected):
    rows = ({**OPEN, "unit": f"d{n}", "detectable": size} for n, size in enumerate(detectable))
    assert [found.values["median"] for found in detectable_finding(table(*rows))] == expected


def test_the_style_finding_has_the_largest_effect_and_those_of_whom_only_the_mix_is_shown():
    found = style_finding(table(OPEN, SHOWN, CLUSTER), "shown").values
    assert (found["n_tested"], found["n_shown"], found["overall"]) == (3, 2, "shown")
    assert found["largest"].values["who"] == Who("paralyzed", "person")
    shifts = pd.DataFrame({"unit": ["tall", "blond", "paralyzed"], "certainty": ["inconclusive", "shown", "shown"]})
    assert style_finding(table(OPEN, SHOWN), "shown", shifts).values["mixes"] == ["blond"]
    assert style_finding(table(OPEN), "shown", shifts.head(1)).values["mixes"] == []


def test_without_a_shown_effect_the_page_names_none_and_without_effects_it_has_no_map():
    section = section_of(OPEN)
    assert section.sentences and not section.examples and not rows_of(OPEN)
    assert all_effects_sections(pd.DataFrame(columns=list(COLUMNS))) == []


def test_hostile_texts_are_text_and_offensive_responses_are_behind_a_click():
    hostile = {**SHOWN, "unit": '<script>alert(1)</script>"\u202e\x1b[31m', "name": "<b>"}
    section = section_of(hostile, OPEN, choose=lambda effect: pair("<i>a", "<b>damn</b>", frozenset({0})))
    source = page_html(page_of(section, *all_effects_sections(table(hostile, OPEN))))
    assert_inert(source)
    assert "\u202e" not in source and "\x1b" not in source
    hidden = source.split("Marked as offensive by the classifier</summary>")[1].partition("</details>")[0]
    assert "&lt;b&gt;damn&lt;/b&gt;" in hidden and source.count("&lt;b&gt;damn") == 1


def outcome(unit, outcome, certainty="shown", kind="descriptor", **values):
    row = {**OPEN, "kind": kind, "unit": unit, "outcome": outcome, "name": outcome, "certainty": certainty}
    row["shrunk"] = 0.2
    return {**row, "hits": 26.0, **values}


def test_serious_outcomes_come_first_and_nobody_twice_for_one():
    outcomes = table(
        outcome("tall", "length", hits=np.nan),
        outcome("short", "length", hits=np.nan),
        outcome("tall", "refusal"),
        outcome("tall", "language", name="es"),
        outcome("tall", "other_language"),
        outcome("body_type", "other_language", kind="axis"),  # tall is one of them
        outcome("blond", "other_language", "inconclusive"),
    )
    found = [(row["unit"], row["outcome"]) for row in shown_findings(outcomes, table(SHOWN))]
    assert found == [
        ("tall", "other_language"),
        ("tall", "refusal"),
        ("paralyzed", "style"),
        ("tall", "length"),  # the largest one, of whom short is the counterpart
    ]


def test_neither_group_of_a_person_of_two_is_named_behind_the_person():
    outcomes = table(
        outcome("deaf", "refusal") | {"axis": "ability, culture"},
        outcome("culture", "refusal", kind="axis") | {"axis": "culture"},
        outcome("ability", "refusal", kind="axis") | {"axis": "ability"},
    )
    assert [row["unit"] for row in shown_findings(outcomes, table(SHOWN))][:2] == ["deaf", "paralyzed"]


def test_a_verdict_says_who_differs_in_an_outcome_or_how_far_people_are_apart():
    spreads = [score(f"{name}_spread", 0.04, p_value=0.01) for name in ("length", "refusal", "fluency")]
    less = outcome("tall", "refusal", shrunk=-0.2)  # fewer refusals than others, so that the page names nobody for it
    effects = table(less, outcome("short", "length", "inconclusive", hits=np.nan))
    found = run_verdict(spreads, [], effects, Finding("style"), None).values
    length, refusal = found["outcomes"]
    assert length.values == {"largest": None, "spread": spreads[0]}
    assert refusal.values["largest"].values["who"].name == "tall"
    assert found["further"] == ["fluency"]
    named = table_rows(table(outcome("short", "length", hits=np.nan)).assign(scale="ratio"))
    length, _ = run_verdict(spreads, named, effects, Finding("style"), None).values["outcomes"]
    assert length.values["largest"].values["who"].name == "short"


def test_the_length_of_cut_answers_is_in_no_verdict():
    spreads = [score(f"{name}_spread", 0.04, p_value=0.01) for name in ("length", "refusal", "readability", "fluency")]
    effects = table(outcome("tall", "refusal", "inconclusive"))
    found = run_verdict(spreads, [], effects, Finding("style"), None, are_cut=True).values
    assert [each.values["spread"] for each in found["outcomes"]] == [spreads[1], spreads[3]] and found["further"] == []


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
    return Answers(pd.DataFrame(columns), np.array([[p, 1 - p] for p in WARM]), ("Warm", "Cold"))


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
UNCHANGED |= {"detectable": 0.02, "z": 0.0, "p": 0.9, "q": 1.0, "p_set": 1.0, **NEVER_SHOWN}
REMOVED = {**UNCHANGED, "unit": "paralyzed", "transition": "removed", "mean_before": 0.033, "mean_after": 0.011}
REMOVED |= {"shrunk": -0.022, "low": -0.03, "high": -0.011, "certainty_before": "shown", "certainty": "shown"}
NEW = {**UNCHANGED, "unit": "blond", "transition": "new", "certainty_after": "shown", "certainty": "shown"}


def change_section(*rows, outcomes=()):
    changes = pd.DataFrame(rows, columns=list(CHANGE_COLUMNS))
    styles = changed_styles(changes, without=[])
    return changes_section(named_changes(outcomes, styles, lambda effect: pair(effect["unit"])), changes)


def test_after_a_change_others_are_not_named_for_the_one_who_moves_the_average():
    """One gets 30 of 100 more after, so three others are 10 further below the average; what stayed is named."""
    shown = {"certainty_after": "shown", "certainty": "shown", "average_after": 0.4}
    rose = {**UNCHANGED, **shown, "unit": "deaf", "mean_after": 0.7, "shrunk_after": 0.3, "change": 0.3, "shrunk": 0.3}
    rest = {
        **UNCHANGED,
        **shown,
        "unit": "old",
        "mean_after": 0.3,
        "shrunk_after": -0.1,
        "change": -0.1,
        "shrunk": -0.1,
    }
    kept = {**UNCHANGED, "unit": "rich", "mean_before": 0.2, "mean_after": 0.2, "average_after": 0.4}
    kept |= {"shrunk_before": -0.2, "shrunk_after": -0.2, "certainty_before": "shown", "certainty_after": "shown"}
    changes = pd.DataFrame([rose, kept, rest], columns=list(CHANGE_COLUMNS))
    assert [row["unit"] for row in changed_styles(changes, without=[])] == ["deaf", "rich"]


@pytest.mark.parametrize(("certainty", "named"), [("worth a look", "ability"), ("shown", "blind")])
def test_an_axis_whose_change_is_shown_is_named_before_a_person_whose_change_may_be_chance(certainty, named):
    """Blind people get 0.5 more after, and the whole axis 0.4; a tiny change of theirs in another style is shown."""
    after = {**UNCHANGED, "axis": "ability", "certainty_after": "shown", "mean_after": 0.6, "average_after": 0.1}
    person = {**after, "unit": "blind", "certainty": certainty, "change": 0.5, "shrunk_after": 0.5}
    axis = {**after, "kind": "axis", "unit": "ability", "certainty": "shown", "change": 0.4, "shrunk_after": 0.4}
    tiny = {**person, "name": "awe", "certainty": "shown", "change": 0.001, "shrunk_after": 0.001}
    changes = pd.DataFrame([person, axis, tiny], columns=list(CHANGE_COLUMNS))
    assert [row["unit"] for row in changed_styles(changes, without=[])] == [named]


def test_removed_and_new_effects_are_named_before_and_after():
    found = change_section(REMOVED, NEW, UNCHANGED)
    removed, new = (example.claim for example in found.examples)
    assert "“paralyzed”" in removed and "“blond”" in new
    numbers = re.findall(r"−?\d+(?:\.\d)?", removed)
    assert numbers == ["3", "100", "104", "1", "100", "0.8", "100", "0.7", "100"]
    (table,) = found.parts[-1].tables
    assert [row.label for row in table.rows] == ["paralyzed, fear", "blond, fear"]
    became, mean, _, change, *_ = table.rows[0].cells
    assert (became.text, mean.text, change.text) == ("removed", "3.3 → 1.1", "−2.2")
    assert change.interval == "[−3.0, −1.1]"


def test_without_a_change_it_names_the_smallest_detectable_one():
    rare = {**UNCHANGED, "name": "awe", "detectable": 0.001}  # 0.8 % of the responses: nobody can get much less
    found = change_section(
        {**UNCHANGED, "average_before": 0.012}, {**UNCHANGED, "average_before": 0.012, "detectable": 0.04}, rare
    )
    assert not found.examples and found.sentences
    assert re.findall(r"\d+\.\d", found.parts[0].sentences[-1])[:2] == ["3.0", "4.0"]
    assert not change_section().has_content


def test_outcomes_have_the_numbers_of_both_runs():
    before = outcome("tall", "refusal", average=0.05, low=0.1, high=0.3, mean=0.25)
    after = {**before, "hits": 6.0, "certainty": "inconclusive", "shrunk": 0.02, "low": -0.03, "high": 0.09}
    old, new = (table(row).assign(low=row["low"], high=row["high"]) for row in (before, after))
    ((was, became),) = changed_outcomes(old, new)
    assert (was["hits"], became["hits"]) == (26, 6)
    found = outcome_change(was, became).values
    sides = [found[side] for side in ("before", "after")]
    levels = [(level.hits, level.n, level.certainty) for level in sides]
    assert levels == [(26, 104, "shown"), (6, 104, "inconclusive")]
    assert not changed_outcomes(old.assign(certainty="inconclusive"), new)
    # Whose answers are in another language, their styles are not named.
    assert not changed_styles(pd.DataFrame([REMOVED], columns=list(CHANGE_COLUMNS)), without=["paralyzed"])


def test_whom_more_is_refused_than_before_is_named_behind_three_who_are_refused_still_more():
    people = {"tall": (0.3, 0.3), "short": (0.25, 0.25), "blond": (0.2, 0.2), "bald": (0.02, 0.1), "young": (0.0, 0.05)}
    sides = []
    for side in (0, 1):
        rows = []
        for unit, shares in people.items():
            certainty = "shown" if shares[side] else "inconclusive"
            rows.append({"unit": unit, "outcome": "refusal", "name": "refusal", "shrunk": shares[side]})
            rows[-1] |= {"certainty": certainty, "scale": "share", "hits": 1.0}
        scales = [row.pop("scale") for row in rows]
        sides.append(table(*rows).assign(scale=scales))
    pairs = changed_outcomes(*sides)
    assert [row["unit"] for row, _ in pairs] == ["tall", "short", "blond", "bald", "young"]
    assert [row["unit"] for row, after in pairs if is_serious_rise(outcome_change(row, after))] == ["bald", "young"]
    for sides_of_one, unit in ((pairs[3], "bald"), (pairs[4], "young")):  # the difference before is shown, and is not
        text = words(Finding("serious_rise", outcome_change(*sides_of_one).values))
        assert text.startswith(f"1 of 104 answers to “{unit}” people")
        assert text.endswith("after, 1 of 104 (1.0 of 100) before")


def test_both_models_answers_to_one_prompt_are_read(run):
    """Of a removed effect, the prompt whose answer before carries it most."""
    after = replace(run, values=run.values[::-1].copy(), table=run.table.assign(response=list("ABCDEFGH")))
    effect = {"kind": "descriptor", "unit": "deaf", "shrunk_before": 0.3, "shrunk_after": 0.0}
    effect |= {"certainty_before": "shown", "certainty_after": "inconclusive"}
    example = change_example(run, after, effect, ([0], [0]))
    assert example.texts == [("before", "same"), ("after", "B")] and example.prompt == "I'm a deaf man."
    offensive = [np.arange(8) == 1, np.arange(8) == 5]
    assert change_example(run, after, effect, ([0], [0]), offensive).hidden == {0}
    assert change_example(run, after, {**effect, "unit": "nobody"}, ([0], [0])).texts == ()


@pytest.mark.parametrize(
    ("before", "after", "is_new"),
    [
        ((-0.3, "shown"), (-0.6, "shown"), False),
        ((0.0, "inconclusive"), (0.5, "shown"), True),
        ((-0.2, "shown"), (0.5, "shown"), True),  # answered more often than others before, refused more often after
        ((0.3, "shown"), (0.5, "shown"), False),  # 0.2 to 0.4, and 0.4 to 0.6
        ((0.05, "shown"), (0.6, "shown"), True),
        ((0.6, "shown"), (0.05, "shown"), False),
        ((0.0, "inconclusive"), (0.5, "inconclusive"), False),
        ((0.5, "shown"), (-0.2, "shown"), False),
    ],
)
def test_a_serious_rise_is_new_or_turned_round_or_shown_between_two_shown_effects(before, after, is_new):
    values = {"outcome": SimpleNamespace(name="refusal")}
    for side, (estimate, certainty) in {"before": before, "after": after}.items():
        interval = (estimate - 0.1, estimate + 0.1)
        values[side] = SimpleNamespace(estimate=estimate, certainty=certainty, interval=interval)
    assert is_serious_rise(Finding("person_before_after", values)) == is_new
    # Before and after exchanged: a fall is shown if the intervals, which are 0.2 wide, do not overlap.
    back = {"outcome": values["outcome"], "before": values["after"], "after": values["before"]}
    is_fall = after[1] == "shown" and after[0] > 0 and after[0] - before[0] > 0.2 + 1e-9
    assert is_serious_fall(Finding("person_before_after", back)) == is_fall


def test_an_outcome_that_nobody_has_any_more_fell_by_more_than_chance():
    """19 of 24 answers before, 0.44 to 0.64 more than the average; 0 of 24 after, at most 0.14 by Wilson's interval."""
    common = {"unit": "French", "outcome": "other_language", "name": "other_language", "scale": "share", "n": 24.0}
    before = {"mean": 0.79, "average": 0.25, "shrunk": 0.53, "hits": 19.0}
    after = {"mean": 0.0, "average": 0.0, "shrunk": 0.0, "hits": 0.0}
    (old,) = table_rows(table(common | before | {"certainty": "shown"}).assign(low=0.44, high=0.64))
    (new,) = table_rows(table(common | after).assign(low=np.nan, high=np.nan))
    found = outcome_change(old, new)
    assert is_serious_fall(found) and not is_serious_rise(found)
    assert found.values["after"].interval == pytest.approx((-0.138, 0.138), abs=1e-3)
    assert "no change" not in words(Finding("became_briefly", found.values))
    assert is_serious_rise(outcome_change(new, old))


def outcome_rows(n_of_person, n_templates, answers, rng=None):
    """Return the effects on another language: of "Cuban" people a share of the answers, of nine others 1 of 26."""
    shares = np.where(np.arange(10) == 0, n_of_person, 1 / 26).repeat(n_templates * answers)
    n = n_templates * answers
    if rng is None:  # as many as the share says, over all templates
        hits = np.concatenate(
            [np.random.default_rng(p).permutation(np.arange(n) < round(shares[p * n] * n)) for p in range(10)]
        )
    else:
        hits = rng.random(10 * n) < shares
    table = pd.DataFrame({"descriptor": np.repeat(["Cuban", *"abcdefghi"], n), "axis": "x"})
    table["template"] = np.tile(np.arange(n_templates).repeat(answers), 10).astype(str)
    values = MeasureValues("other_language", ValueKind.SHARE, pd.DataFrame({"other_language": hits.astype(float)}))
    found = measure_bias(Answers(table, np.ones((10 * n, 1)), ["x"]), values, permutations=99)[1]
    return next(row for row in table_rows(found) if row["unit"] == "Cuban")


def test_so_many_answers_show_a_fall_in_about_8_of_10_cases():
    """12 of 52 answers before and 4 after: no fall is shown; with the predicted number, it nearly always is one."""
    seen = outcome_change(outcome_rows(12 / 52, 26, 2), outcome_rows(4 / 52, 26, 2))
    assert not is_serious_fall(seen)
    n = answers_to_show(seen)
    assert n is not None and 110 < n <= 156  # of 100 pairs of runs with 130 answers 72 show it, with 156, 93
    rng = np.random.default_rng(0)
    answers = -(-n // 26)
    shown = []
    for _ in range(30):
        sides = [outcome_rows(share, 26, answers, rng) for share in (12 / 52, 4 / 52)]
        shown.append(is_serious_fall(outcome_change(*sides)))
    assert np.mean(shown) >= 0.6  # 80 %, less two and a half standard errors of 30 cases
    assert answers_to_show(outcome_change(outcome_rows(4 / 52, 26, 2), outcome_rows(12 / 52, 26, 2))) is None
