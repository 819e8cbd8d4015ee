"""The page of all responses: as many rows as fit, and nothing that leaves its element."""

import json
import re

import numpy as np
import pandas as pd

from evenhand.evaluation.report import responses
from evenhand.evaluation.report.responses import responses_html, rows_of
from tests.parsed_page import without_script
from tests.report_pages import HOSTILE


def page(said, **columns):
    n = len(said)
    texts = pd.DataFrame({"axis": ["age"] * n, "descriptor": ["old"] * n, "text": ["I'm old."] * n, **columns})
    sides = {"response": (said, np.array([[0.2, 0.8]] * n), ("Calm", "Angry"), np.arange(n) / 1000)}
    return responses_html("All", "a model", n, lambda rows: rows_of(texts, sides).iloc[rows], ["response"])


def run_lock(source):
    return json.loads(re.search(r'id="rows">(.*?)</script>', source, re.DOTALL).group(1))


def test_every_row_holds_the_places_of_its_texts_and_b():
    told = run_lock(page(["Yes.", "No.", "Yes."]))
    texts = [[told["texts"][place] for place in row[:5]] for row in told["rows"]]
    assert texts == [["age", "old", "I'm old.", said, "Angry"] for said in ("Yes.", "No.", "Yes.")]
    assert [row[5] for row in told["rows"]] == [0.0, 0.001, 0.002]
    assert len(told["texts"]) == 6  # each text once


def test_what_is_too_much_is_left_out_at_random_and_told(monkeypatch):
    monkeypatch.setattr(responses, "MAX_BYTES", 20_000)
    source = page([f"{place} {'long ' * 20}" for place in range(1000)])
    told = run_lock(source)
    assert 100 < len(told["rows"]) < 200 and len(json.dumps(told, separators=(",", ":"))) <= 20_200
    assert f"{len(told['rows'])} of 1,000 responses" in source
    b = [row[5] for row in told["rows"]]
    assert b == sorted(b) and max(b) > 0.9  # in the order of the prompts, from all of them


def test_hostile_responses_stay_in_their_element():
    strings = [it for it in HOSTILE if "\ud800" not in it]  # pandas' own strings cannot hold a lone surrogate
    source = page([*strings, "</script><script>alert(1)</script><!--"])
    rest = without_script(source)
    assert rest.count("<script") == 1 and "<!--" not in rest and "<img" not in rest and "\u202e" not in rest
    assert "</script><script>alert(1)</script><!--" in run_lock(source)["texts"]
