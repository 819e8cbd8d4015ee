"""The section on effects names the shown ones, states what is detectable otherwise, and escapes nothing away."""

import numpy as np
import pandas as pd

from evenhand.evaluation.families.generation_bias.effects.section import effects_section
from evenhand.evaluation.families.generation_bias.effects.table import COLUMNS


def table(*rows):
    common = {"kind": "descriptor", "axis": "ability", "outcome": "style", "average": 0.01, "detectable": 0.08}
    common |= {"z": 3.0, "p": 0.01, "q": 0.2, "p_family": 0.5, "certainty": "open", "n": 104}
    frame = pd.DataFrame([common | row for row in rows])
    frame["mean"] = frame["average"] + frame["shrunk"]
    return frame.assign(effect=frame["shrunk"], low=frame["shrunk"] - 0.01, high=frame["shrunk"] + 0.01)[list(COLUMNS)]


SHOWN = {"unit": "paralyzed", "name": "fear", "shrunk": 0.0254, "certainty": "shown", "p_family": 0.01}
OPEN = {"unit": "blond", "name": "fear", "shrunk": -0.002}


def test_shown_effects_are_named_with_their_numbers():
    section = effects_section(table(SHOWN, OPEN, {**SHOWN, "outcome": "cluster", "name": "HARM"}))
    sentence = next(sentence for sentence in section.sentences if "paralyzed" in sentence)
    for number in ("fear", "3.5 %", "1.0 %", "+2.5", "+1.5 to +3.5"):
        assert number in sentence
    assert not any("blond" in sentence for sentence in section.sentences)
    (descriptor_map,) = section.parts[0].tables
    assert [row.label for row in descriptor_map.rows] == ["paralyzed"] and descriptor_map.rows[0].cells[1].bold
    (leads,) = section.parts[1].tables
    assert [row.label for row in leads.rows] == ["paralyzed, fear", "paralyzed, HARM"]


def test_without_a_shown_effect_it_names_the_smallest_detectable_one():
    section = effects_section(table(OPEN, {**OPEN, "unit": "tall"}))
    assert "8.0 percentage points" in section.sentences[-1]
    assert not section.parts[1].tables[0].rows


def test_no_effects_make_no_section():
    assert not effects_section(pd.DataFrame(columns=list(COLUMNS))).has_content


def test_hidden_characters_of_names_are_written_out():
    hostile = {**SHOWN, "unit": "a\u202eb\x1b[31m", "name": "<b>"}
    (sentence,) = [s for s in effects_section(table(hostile, OPEN)).sentences if "<b>" in s]
    assert "\u202e" not in sentence and "\x1b" not in sentence
    assert np.isfinite(effects_section(table(hostile, OPEN)).parts[1].tables[0].rows[0].marks[0].value)
