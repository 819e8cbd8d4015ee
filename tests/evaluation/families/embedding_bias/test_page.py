"""The page on embeddings: what it shows of a table that can be checked by eye."""

import re
from types import SimpleNamespace

import pandas as pd

from evenhand.evaluation.families import ReportContext
from evenhand.evaluation.families.embedding_bias.metric import add_cosines, embedding_scores, pair_with_references
from evenhand.evaluation.families.embedding_bias.page import page
from evenhand.evaluation.report.html import page_html
from evenhand.evaluation.report.markdown import page_markdown
from tests.report_pages import measured

CONFIG = SimpleNamespace(
    model=SimpleNamespace(name="an encoder"), settings=SimpleNamespace(references="some references")
)


def test_embedding_gaps_with_their_tests(browser):
    rows = [
        (str(n), "spa_Latn", f"english {n}", gender, f"{gender} {n}")
        for n in range(3)
        for gender in ("masculine", "feminine")
    ]
    compared = pair_with_references(
        pd.DataFrame(rows, columns=["sentence_id", "lang", "english", "gender", "reference"])
    )
    texts = sorted({*compared["english"], *compared["reference"]})
    vector = {"english": (1, 0), "masculine": (1, 0.1), "feminine": (1, 0.3)}
    vectors = [[x, y + 0.01 * int(text[-1])] for text in texts for x, y in [vector[text.split()[0]]]]
    tables = {"cosines": add_cosines(compared, texts, vectors)}
    scores = embedding_scores(tables["cosines"], signature={"seed": 0})
    report = page(measured(scores, tables, CONFIG), ReportContext(notes=["a note"]))
    assert re.findall(r"\d+", report.verdict) == [
        "1",
        "1",
        "0",
        "0",
    ]  # masculine in 1 of 1, feminine in 0, neither in 0
    assert report.notes[-1] == "a note" and report.signature["seed"] == 0
    text = page_markdown(report)
    assert "Spanish, masculine" in text and "Spanish, feminine" in text and "nan" not in text
    assert browser.faults(page_html(report)) == []
    empty = page(measured([], tables, CONFIG), ReportContext())
    assert empty.headline_value == "–" and "not measured" in empty.verdict


def test_an_undefined_gap_gives_its_reason():
    rows = pd.DataFrame(
        [("1", "tha_Thai", "english", "neutral", "neutral")],
        columns=["sentence_id", "lang", "english", "gender", "reference"],
    )
    table = add_cosines(pair_with_references(rows), ["english", "neutral"], [[1, 0], [1, 1]])
    report = page(measured(embedding_scores(table), {"cosines": table}, CONFIG), ReportContext())
    assert report.headline_value == "–" and "reference" in report.verdict and "undefined" in report.verdict
    assert "nan" not in page_markdown(report)
