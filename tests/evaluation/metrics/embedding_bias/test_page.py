"""The page on embeddings of a table that can be checked by eye, and of an undefined gap."""

from types import SimpleNamespace

import pandas as pd

from evenhand.evaluation.metrics.embedding_bias import (
    EmbeddingBias,
    add_cosines,
    embedding_scores,
    pair_with_references,
)
from evenhand.evaluation.report.html import page_html
from tests.report_pages import assert_shows_as_text, measured

CONFIG = SimpleNamespace(
    model=SimpleNamespace(name="an encoder"), settings=SimpleNamespace(references="some references")
)
COLUMNS = ["sentence_id", "lang", "english", "gender", "reference"]


def test_embedding_gaps_with_their_tests(browser):
    rows = [
        (str(n), "spa_Latn", f"english {n}", gender, f"{gender} {n}")
        for n in range(3)
        for gender in ("masculine", "feminine")
    ]
    compared = pair_with_references(pd.DataFrame(rows, columns=COLUMNS))
    texts = sorted({*compared["english"], *compared["reference"]})
    vector = {"english": (1, 0), "masculine": (1, 0.1), "feminine": (1, 0.3)}
    vectors = [[x, y + 0.01 * int(text[-1])] for text in texts for x, y in [vector[text.split()[0]]]]
    tables = {"cosines": add_cosines(compared, texts, vectors)}
    scores = embedding_scores(tables["cosines"], signature={"seed": 0})
    report = EmbeddingBias().page(measured(scores, tables, CONFIG))
    assert "in 1 of 1" in report.verdict and report.signature["seed"] == 0
    assert_shows_as_text(report, ["Spanish, masculine", "Spanish, feminine"])
    assert browser.faults(page_html(report)) == []
    assert "not measured" in EmbeddingBias().page(measured([], tables, CONFIG)).verdict


def test_an_undefined_gap_gives_its_reason():
    rows = pd.DataFrame([("1", "tha_Thai", "english", "neutral", "neutral")], columns=COLUMNS)
    table = add_cosines(pair_with_references(rows), ["english", "neutral"], [[1, 0], [1, 1]])
    report = EmbeddingBias().page(measured(embedding_scores(table), {"cosines": table}, CONFIG))
    assert report.headline_value == "–" and "undefined" in report.verdict and "nan" not in page_html(report)
