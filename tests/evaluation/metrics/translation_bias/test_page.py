"""The page on translations: what it shows of tables that can be checked by eye."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from evenhand.evaluation.data.gendered_translations import LANGUAGES
from evenhand.evaluation.facts import Finding
from evenhand.evaluation.metrics import FamilyConfig
from evenhand.evaluation.metrics.translation_bias import Settings, TranslationBias
from evenhand.evaluation.metrics.translation_bias.metric import GAP
from evenhand.evaluation.metrics.translation_bias.pair_map import pair_gaps, pair_map
from evenhand.evaluation.model_settings import ModelSettings
from evenhand.evaluation.prompt_settings import ReferenceSettings
from evenhand.evaluation.report.figures import WIDE
from evenhand.evaluation.report.html import page_html
from tests.named_scores import named_score
from tests.report_pages import measured, table_named, table_of, texts

EN_XX = {"direction": "en-xx"}
COLUMNS = ["sentence_id", "axis", "descriptor", "template", "lang", "direction", "gender", "bleu", "chrf"]
SENTENCES = pd.DataFrame(
    [
        ("1", "age", "old", "t", "spa_Latn", "en-xx", gender, value, value)
        for gender, value in (("masculine", 50.0), ("feminine", 45.0))
    ],
    columns=COLUMNS,
)
LEFT_OUT = {"spa_Latn": None, "tha_Thai": "too few masculine references"}


def score(metric, value, group, interval=None, p=None, n=10):
    return named_score(metric, value, 0.0, (-100.0, 100.0), n, interval, p, group=group, signature={"seed": 0})


def scores(lang="spa_Latn"):
    group = {"lang": lang, **EN_XX}
    return [
        score("bleu", 40.0, {**group, "gender": "masculine"}),
        score("bleu", 37.5, {**group, "gender": "feminine"}),
        score("translation_gap", 2.5, group, (1.0, 4.0), 0.01),
        score("translation_gap", 2.5, EN_XX, (1.25, 3.75), 0.01, n=1),
        score("masculine_rendering", 0.75, group, (0.5, 0.9)),
    ]


def page_of(gap_scores):
    counts = {"sentences": 10, "masculine": 9, "feminine": 8, "neutral": 1, "generic": 0, "missing": 0}
    languages = pd.DataFrame([{"lang": lang, **counts, "left_out": reason} for lang, reason in LEFT_OUT.items()])
    tables = {"sentence_scores": SENTENCES, "languages": languages}
    config = FamilyConfig(
        model=ModelSettings(name="a model"), references=ReferenceSettings(name="some references"), settings=Settings()
    )
    return TranslationBias().page(measured(gap_scores, tables, config))


def with_gaps(all_scores, **changes):
    """Return the scores with these fields of the gaps."""
    return [replace(each, **changes) if each.metric == "translation_gap" else each for each in all_scores]


def pair_scores():
    """Gaps of Spanish, German and English in all directions, with an undefined one, and two means."""
    gaps = [
        ("deu_Latn-spa_Latn", "xx-xx", 4.0),
        ("spa_Latn-deu_Latn", "xx-xx", -1.0),
        ("spa_Latn", "en-xx", 2.5),
        ("deu_Latn", "xx-en", 0.5),
    ]
    pairs = [score(GAP, value, {"lang": lang, "direction": direction}) for lang, direction, value in gaps]
    means = [score(GAP, 1.5, {"source": "eng_Latn"}, (1.0, 2.0), n=2)]
    means.append(score(GAP, 3.25, {"target": "spa_Latn"}, (3.0, 3.5), n=2))
    reason = "no sentence has a feminine reference"
    undefined = replace(pairs[0], group={"lang": "deu_Latn", **EN_XX}, value=math.nan, reason=reason)
    return [*pairs, undefined, *means]


def test_the_map_has_the_source_in_rows_and_the_target_in_columns():
    gaps = pair_gaps(pair_scores())
    assert list(gaps.index) == ["eng_Latn", "deu_Latn", "spa_Latn"] == list(gaps.columns)
    np.testing.assert_equal(gaps.to_numpy(), [[np.nan, np.nan, 2.5], [0.5, np.nan, 4.0], [np.nan, -1.0, np.nan]])
    axes, scale = pair_map(gaps).axes
    (image,) = axes.images
    assert image.get_array().compressed().tolist() == [2.5, 0.5, 4.0, -1.0]
    assert image.get_clim() == (-4.0, 4.0)  # no gap is in the middle of the scale
    assert {text.get_position(): text.get_text() for text in axes.texts} == {
        (2, 0): "+2.5",
        (0, 1): "+0.5",
        (2, 1): "+4.0",
        (1, 2): "−1.0",
    }
    names = ["English", "German", "Spanish"]
    for axis, title in ((axes.xaxis, "into"), (axes.yaxis, "from")):
        assert [text.get_text() for text in axis.get_ticklabels()] == names and axis.label.get_text() == title
    assert scale.get_ylabel() == "gap, points"


def test_fifty_languages_fit_into_the_map_without_numbers():
    codes = pd.read_csv(LANGUAGES)["code"].tolist()
    chart = pair_map(pd.DataFrame(np.eye(50), index=codes, columns=codes))
    assert chart.get_size_inches()[0] * 72 <= WIDE and not chart.axes[0].texts
    chart.draw_without_rendering()
    boxes = [text.get_window_extent() for text in chart.axes[0].get_yticklabels()]
    assert all(above.y0 >= below.y1 for above, below in itertools.pairwise(boxes))


def test_one_table_has_the_gaps_as_source_and_target_and_the_references():
    report = page_of(pair_scores())
    table = table_named(report, "Gap by source and target, and sentences with a reference of each gender")
    assert table.columns[:4] == ("language", "gap as source", "gap as target", "sentences")
    assert texts(table)["English"] == ["+1.50", "", "", "", "", "", ""]
    assert texts(table)["Spanish"] == ["", "+3.25", "10", "9", "8", "1", "0"]
    assert [row.cells[1].interval for row in table.rows] == ["", "[+3.00, +3.50]", ""]
    (section,) = [section for section in report.sections if section.title == "Map of the gaps"]
    assert 'class="chart"' in section.figures[0].svg
    assert not any(section.figures for section in page_of(scores()).sections)  # one direction: no map


def genders_in(verdict):
    return {"masculine", "feminine"} & set(verdict.split())


def test_the_page_has_the_gap_each_language_and_what_is_left_out(browser):
    report = page_of(scores())
    assert report.headline_value == "+2.50" and genders_in(report.verdict) == {"masculine"}
    assert "+1.25 to +3.75" in report.verdict
    assert texts(report.sections[1].tables[0])["Spanish"] == ["+2.50", "0.01", "10"]
    assert texts(table_named(report, "overgeneralisation"))["Spanish"][0] == "75.0"
    by_axis = texts(table_named(report, "BLEU of single sentences by axis"))
    assert by_axis["age"] == ["50.0", "45.0", "–", "47.5", "+5.0", "+10.5", "2"]  # 5 of 47.5
    by_gender = texts(table_named(report, "Sentences with a reference of each gender"))
    assert by_gender["Thai"] == ["10", "9", "8", "1", "0"]
    assert texts(report.sections[-1].tables[0]) == {"too few masculine references": ["Thai"]}
    assert browser.faults(page_html(report)) == []


def test_gaps_that_are_insignificant_or_undefined():
    gap_scores = with_gaps(scores(), interval=(-1.0, 6.0))
    assert genders_in(page_of(gap_scores).verdict) == set()
    undefined = {"value": math.nan, "interval": None, "p_value": None, "reason": "no sentence has a feminine reference"}
    report = page_of(with_gaps(scores("tha_Thai"), **undefined))
    assert report.headline_value == "–" and undefined["reason"] in report.verdict and "nan" not in page_html(report)


def test_of_many_pairs_those_furthest_from_the_ideal_are_shown():
    codes = ["spa_Latn", "deu_Latn", "fra_Latn", "cat_Latn", "ita_Latn", "por_Latn", "ron_Latn"]
    groups = [{"lang": f"{a}-{b}", "direction": "xx-xx"} for a in codes for b in codes if a != b]
    gap_scores = [score("translation_gap", float(n), group, (n - 1.0, n + 1.0), 0.5) for n, group in enumerate(groups)]
    means = [score("translation_gap", 14.5, {"direction": "xx-xx"}, (13.0, 16.0), 0.01, n=42)]
    means.append(score("translation_gap", 3.0, {"source": "spa_Latn"}, (1.0, 5.0), 0.01, n=6))
    report = page_of([*gap_scores, *means])
    assert texts(table_of(report, "By source")) == {"Spanish": ["+3.00", "0.01", "6"]}
    assert report.headline_value == "+14.50"
    (table,) = (part.tables[0] for part in report.sections if part.tables and part.tables[0].link)
    assert [row.cells[0].text for row in table.rows] == [f"+{n}.00" for n in range(41, 31, -1)]
    assert "→" in table.rows[0].label


@pytest.mark.parametrize(
    ("direction", "said"),
    [
        ("en-xx", "From English, translations are better against masculine references: "),
        ("xx-en", "Into English, masculine sentences are translated better: "),  # against the same references
        ("xx-xx", "Between other languages, masculine sentences are translated better: "),
    ],
)
def test_what_is_better_depends_on_the_direction(direction, said):
    found = Finding("above", {"gap": None, "direction": direction})
    assert TranslationBias().sentence(found).startswith(said)
