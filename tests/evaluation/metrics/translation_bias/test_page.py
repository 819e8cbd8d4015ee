"""The page on translations: what it shows of tables that can be checked by eye."""

import math
from dataclasses import replace
from types import SimpleNamespace

import pandas as pd

from evenhand.evaluation.metrics.translation_bias import TranslationBias
from evenhand.evaluation.report.html import page_html
from evenhand.evaluation.score import BiasScore
from tests.report_pages import measured, table_named, texts

EN_XX = {"direction": "en-xx"}


def score(metric, value, group, interval=None, p=None, n=10, reason=None, bounds=(-100.0, 100.0)):
    return BiasScore(metric, value, 0.0, bounds, n, interval, p, group=group, reason=reason, signature={"seed": 0})


def scores(lang="spa_Latn", gap=2.5):
    group = {"lang": lang, **EN_XX}
    return [
        score("bleu", 40.0, {**group, "gender": "masculine"}),
        score("bleu", 40.0 - gap, {**group, "gender": "feminine"}),
        score("translation_gap", gap, group, (1.0, 4.0), 0.01),
        score("translation_gap", gap, EN_XX, (1.25, 3.75), 0.01, n=1),
        score("masculine_rendering", 0.75, group, (0.5, 0.9), bounds=(0.0, 1.0)),
    ]


def sentences(descriptor="old", axis="age"):
    rows = [
        ("1", axis, descriptor, "t", "spa_Latn", "en-xx", gender, value, value)
        for gender, value in (("masculine", 50.0), ("feminine", 45.0))
    ]
    columns = ["sentence_id", "axis", "descriptor", "template", "lang", "direction", "gender", "bleu", "chrf"]
    return pd.DataFrame(rows, columns=columns)


COUNTS = {
    "sentences": 5, "masculine": 5, "feminine": 5, "replaced_masculine": 0, "replaced_feminine": 0, "missing": 0
}  # fmt: skip


def languages(*rows):
    return pd.DataFrame([{"lang": "spa_Latn", **COUNTS, "left_out": None}, *rows])


def page(gap_scores, table=None, counts=None, model="a model", references="some references"):
    config = SimpleNamespace(
        model=SimpleNamespace(name=model), settings=SimpleNamespace(translations=None, references=references)
    )
    tables = {
        "sentence_scores": sentences() if table is None else table,
        "languages": languages() if counts is None else counts,
    }
    return TranslationBias().page(measured(gap_scores, tables, config))


def test_the_page_has_the_gap_and_each_language():
    report = page(scores())
    assert report.headline_value == "+2.50" and "better against masculine references" in report.verdict
    assert "+1.25 to +3.75" in report.verdict
    assert texts(report.sections[1].tables[0])["Spanish"] == ["+2.50", "0.01", "10"]
    assert texts(table_named(report, "overgeneralisation"))["Spanish"][0] == "75.0"
    assert texts(table_named(report, "BLEU of single sentences by axis"))["age"] == [
        "50.0",
        "45.0",
        "–",
        "47.5",
        "+5.0",
        "2",
    ]


def test_gaps_that_are_insignificant_or_undefined():
    gap_scores = [replace(it, interval=(-1.0, 6.0)) if it.metric == "translation_gap" else it for it in scores()]
    assert "not significantly different from 0" in page(gap_scores).verdict
    undefined = {"value": math.nan, "interval": None, "p_value": None, "reason": "no sentence has a feminine reference"}
    report = page([replace(it, **undefined) if it.metric == "translation_gap" else it for it in scores("tha_Thai")])
    assert report.headline_value == "–" and undefined["reason"] in report.verdict and "nan" not in page_html(report)


def test_languages_left_out_are_listed_with_the_reason():
    report = page(
        scores(), counts=languages({"lang": "tha_Thai", **COUNTS, "left_out": "too few masculine references"})
    )
    assert texts(report.sections[-1].tables[0]) == {"too few masculine references": ["Thai"]}


def test_of_many_pairs_the_ends_are_shown():
    codes = ["spa_Latn", "deu_Latn", "fra_Latn", "cat_Latn", "ita_Latn", "por_Latn", "ron_Latn"]
    pairs = [f"{a}-{b}" for a in codes for b in codes if a != b]
    gap_scores = [
        score("translation_gap", float(n), {"lang": pair, "direction": "xx-xx"}, (n - 1.0, n + 1.0), 0.5)
        for n, pair in enumerate(pairs)
    ]
    gap_scores.append(score("translation_gap", 14.5, {"direction": "xx-xx"}, (13.0, 16.0), 0.01, n=30))
    report = page(gap_scores)
    assert report.headline_value == "+14.50"
    table = table_named(report, "gap; ideal 0; the 15 largest and the 15 smallest of 42")
    assert len(table.rows) == 30 and "→" in table.rows[0].label


def test_the_page_is_accessible(browser):
    assert browser.faults(page_html(page(scores()))) == []
