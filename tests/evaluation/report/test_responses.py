"""The page of all responses has as many rows as fit, and escapes them."""

import json
import re

import numpy as np
import pandas as pd

from evenhand.evaluation.report.responses import responses_html, rows_of
from tests.parsed_page import without_script
from tests.report_pages import HOSTILE


def page(responses, **columns):
    n = len(responses)
    texts = pd.DataFrame({"axis": ["age"] * n, "descriptor": ["old"] * n, "text": ["I'm old."] * n, **columns})
    sides = {"response": (responses, np.array([[0.2, 0.8]] * n), ("Calm", "Angry"), np.arange(n) / 1000)}
    return responses_html("All", "a model", n, lambda rows: rows_of(texts, sides).iloc[rows], ["response"])


def embedded_data(source):
    return json.loads(re.search(r'id="rows">(.*?)</script>', source, re.DOTALL).group(1))


def test_rows_have_the_indices_of_their_texts_and_b():
    data = embedded_data(page(["Yes.", "No.", "Yes."]))
    texts = [[data["texts"][index] for index in row[:5]] for row in data["rows"]]
    assert texts == [["age", "old", "I'm old.", response, "Angry"] for response in ("Yes.", "No.", "Yes.")]
    assert [row[5] for row in data["rows"]] == [0.0, 0.001, 0.002]
    assert len(data["texts"]) == 6  # each text once


def test_a_random_sample_that_fits_replaces_too_many_rows(monkeypatch):
    monkeypatch.setattr("evenhand.evaluation.report.responses.MAX_BYTES", 20_000)
    source = page([f"{i} {'long ' * 20}" for i in range(1000)])
    data = embedded_data(source)
    assert 100 < len(data["rows"]) < 200 and len(json.dumps(data, separators=(",", ":"))) <= 20_200
    assert f"{len(data['rows'])} of 1,000 responses" in source
    b = [row[5] for row in data["rows"]]
    assert b == sorted(b) and max(b) > 0.9  # in the order of the prompts, from all of them


def test_hostile_responses_stay_in_their_element():
    strings = [it for it in HOSTILE if "\ud800" not in it]  # pandas' own strings cannot hold a lone surrogate
    source = page([*strings, "</script><script>alert(1)</script><!--"])
    rest = without_script(source)
    assert rest.count("<script") == 1 and "<!--" not in rest and "<img" not in rest and "\u202e" not in rest
    assert "</script><script>alert(1)</script><!--" in embedded_data(source)["texts"]
