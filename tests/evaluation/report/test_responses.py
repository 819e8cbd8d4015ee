"""The page of all responses has as many rows as fit, and escapes them."""

import json
import re

import numpy as np
import pandas as pd

from evenhand.evaluation.report.html import responses_html
from tests.parsed_page import without_script
from tests.report_pages import HOSTILE


def page(responses, **columns):
    n = len(responses)
    texts = pd.DataFrame({"axis": ["age"] * n, "descriptor": ["old"] * n, "text": ["I'm old."] * n, **columns})
    sides = {"response": (responses, np.array([[0.2, 0.8]] * n), ("Calm", "Angry"), np.arange(n) / 1000)}
    return responses_html("All", "a model", texts, sides)


def embedded_data(source):
    return json.loads(re.search(r'id="rows">(.*?)</script>', source, re.DOTALL).group(1))


def test_rows_have_texts_styles_and_b():
    data, answers = embedded_data(page(["Yes.", "No.", "Yes."])), ("Yes.", "No.", "Yes.")
    expected = [["age", "old", "I'm old.", [[it, "Angry", n / 1000]]] for n, it in enumerate(answers)]
    assert data == {"sides": ["response"], "rows": expected}


def test_a_random_sample_that_fits_replaces_too_many_rows(monkeypatch):
    monkeypatch.setattr("evenhand.evaluation.report.html.MAX_BYTES", 20_000)
    source = page([f"{i} {'long ' * 20}" for i in range(1000)])
    data = embedded_data(source)
    assert 90 < len(data["rows"]) < 200 and len(json.dumps(data, separators=(",", ":"))) <= 20_200
    assert f"{len(data['rows'])} of 1,000 responses" in source
    b = [row[3][0][2] for row in data["rows"]]
    assert b == sorted(b) and max(b) > 0.9  # in the order of the prompts, from all of them


def test_hostile_responses_stay_in_their_element():
    strings = [it for it in HOSTILE if "\ud800" not in it]  # pandas' own strings cannot hold a lone surrogate
    source = page([*strings, "</script><script>alert(1)</script><!--"])
    rest = without_script(source)
    assert rest.count("<script") == 1 and "<!--" not in rest and "<img" not in rest and "\u202e" not in rest
    assert "</script><script>alert(1)</script><!--" in {row[3][0][0] for row in embedded_data(source)["rows"]}
