"""Reports on translations and embeddings: what they show of tables that can be checked by eye."""

import math
from dataclasses import replace

import pandas as pd

from evaluation.metrics.embedding_bias import comparisons, embedding_scores, similarity_quantiles, with_cosines
from evaluation.report import embedding_page, page_html, page_markdown, translation_page
from evaluation.results import BiasScore

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


def page(found, table=None, **changes):
    given = {"model": "a model", "dataset": "some references", "date": "2026-01-01", **changes}
    return translation_page(found, sentences() if table is None else table, **given)


def test_it_says_by_how_much_and_shows_each_language():
    made = page(scores())
    assert made.big == "+2.50" and "better against masculine references, by 2.50 BLEU points" in made.verdict
    text = page_markdown(made)
    assert "| Spanish | 40.0 | 37.5 | – | +2.50 [+1.00, +4.00] | 0.01 | 10 |" in text
    assert "75.0 [50.0, 90.0]" in text  # rendered masculine
    assert "| age | 50.0 | 45.0 | – | 47.5 | +5.0 | 2 |" in text
    assert page_html(made) == page_html(page(scores()))


def test_a_gap_that_cannot_be_told_from_none_is_said_so():
    found = [replace(it, interval=(-1.0, 6.0)) if it.metric == "translation_gap" else it for it in scores()]
    assert page(found).verdict.startswith("No preference can be shown from English")


def test_an_undefined_gap_gives_its_reason():
    reason = "no sentence has a feminine reference of its own"
    found = [
        replace(it, value=math.nan, interval=None, p_value=None, reason=reason)
        if it.metric == "translation_gap"
        else it
        for it in scores("tha_Thai")
    ]
    made = page(found)
    assert made.big == "–" and reason in made.verdict
    assert "nan" not in page_markdown(made)


def test_names_from_files_are_escaped():
    hostile = "<script>alert(1)</script>"
    text = page_html(page(scores(), sentences(descriptor=hostile, axis=hostile), model=hostile, dataset=hostile))
    assert hostile not in text and "&lt;script&gt;" in text


def test_languages_left_out_are_listed_with_the_reason():
    counts = {
        "sentences": 5,
        "masculine": 5,
        "feminine": 0,
        "replaced_masculine": 0,
        "replaced_feminine": 5,
        "missing": 1,
    }
    left_out = pd.DataFrame([{"lang": "tha_Thai", **counts, "left_out": "fewer than 100 masculine references"}])
    assert "fewer than 100 masculine references" in page_markdown(page(scores(), left_out=left_out))


def test_embedding_gaps_with_their_tests():
    rows = [
        (str(n), "spa_Latn", f"english {n}", gender, f"{gender} {n}")
        for n in range(3)
        for gender in ("masculine", "feminine")
    ]
    compared = comparisons(pd.DataFrame(rows, columns=["sentence_id", "lang", "english", "gender", "reference"]))
    texts = sorted({*compared["english"], *compared["reference"]})
    vector = {"english": (1, 0), "masculine": (1, 0.1), "feminine": (1, 0.3)}
    vectors = [[x, y + 0.01 * int(text[-1])] for text in texts for x, y in [vector[text.split()[0]]]]
    table = with_cosines(compared, texts, vectors)
    given = {"model": "an encoder", "dataset": "some references", "date": "2026-01-01"}
    made = embedding_page(embedding_scores(table, signature={"seed": 0}), similarity_quantiles(table), **given)
    assert "1 to the masculine, 0 to the feminine" in made.verdict
    text = page_markdown(made)
    assert "Spanish, masculine" in text and "Spanish, feminine" in text and "nan" not in text
    assert page_html(made) == page_html(made)
    empty = embedding_page([], similarity_quantiles(table), **given)
    assert empty.big == "–" and "not measured" in empty.verdict
