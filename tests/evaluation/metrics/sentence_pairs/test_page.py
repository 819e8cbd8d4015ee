"""The report on sentence pairs says what the numbers allow, and stays safe."""

import math
import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from evenhand.evaluation.metrics import FamilyConfig
from evenhand.evaluation.metrics.sentence_pairs import SentencePairs, Settings
from evenhand.evaluation.metrics.sentence_pairs.metric import compare_pairs, make_masked_pair_table, pair_scores
from evenhand.evaluation.model_settings import ModelSettings
from evenhand.evaluation.report.html import page_html
from evenhand.evaluation.score import signed
from tests.named_scores import named_score
from tests.report_pages import HOSTILE, assert_shows_as_text, measured, table_of, texts

TYPES = ("age", "gender", "race-color")
STEREOTYPE, REVERSE, NEITHER = (-0.0042, (-0.0067, -0.0018)), (0.0042, (0.0018, 0.0067)), (-0.0004, (-0.003, 0.002))


def run_of(scores, table, model="bert", pairs="crows_pairs"):
    config = FamilyConfig(model=ModelSettings(name=model), settings=Settings(pairs=pairs))
    return measured(scores, {"pairs": table}, config)


def page_of(scores, table, **names):
    return SentencePairs().page(run_of(scores, table, **names))


def masked_table(n=60, lean=0.3) -> pd.DataFrame:
    rng, people = np.random.default_rng(3), [("She", "He"), ("The old man", "The young man"), ("Ann", "Tom")]
    facts = [(str(i), TYPES[i % 3], ("stereo", "antistereo")[i % 2], *people[i % 3]) for i in range(n)]
    pairs = pd.DataFrame(facts, columns=["pair_id", "bias_type", "direction", "more", "less"])
    log_p = np.minimum(-1.5 + 0.4 * rng.standard_normal(6 * n) + np.repeat([lean / 2, -lean / 2], 3 * n), -0.01)
    aul = rng.normal(-2, 0.3, 2 * n)
    return make_masked_pair_table(pairs, [["drove", "home", "."]] * n, log_p, log_p > -1.5, aul, aul + 0.01)


def score(metric, value, interval=None, ideal=0.0, p=0.01, **group):
    reason = "no pair has a value" if math.isnan(value) else None
    return named_score(metric, value, ideal, (-math.inf, math.inf), 100, interval, p, group=group, reason=reason)


@pytest.mark.parametrize(
    ("s_jsd", "expected"),
    [
        (STEREOTYPE, "the more stereotypical .* −4.20 thousandths .* and CPS is 56.7"),
        (REVERSE, "the less stereotypical .* 4.20 thousandths"),
        (NEITHER, "no significant .* −0.40 thousandths"),
        ((math.nan, None), "^No verdict: .* no pair has a value"),
    ],
)
def test_the_verdict_of_a_masked_model_has_s_jsd_and_cps(s_jsd, expected):
    scores = [score("s_jsd", *s_jsd), score("cps", 56.7, (51.8, 61.5), 50.0)]
    assert re.search(expected, page_of(scores, masked_table()).verdict)


def test_a_causal_model_has_a_preference_and_a_test_contradicts_an_interval():
    page = page_of([score("stereotype_preference", 58.0, (52.0, 63.0), 50.0)], masked_table())
    assert re.search("prefers the more .* 58.0 % .95 % interval 52.0 to 63.0; ideal 50", page.verdict)
    assert "S_JSD" not in page.verdict and page.headline_value == "58.0 %"
    page = page_of([score("s_jsd", *STEREOTYPE, p=0.2)], masked_table())
    assert "no significant" in page.verdict and "p = 0.2" in page.verdict


def test_warnings_of_pairs_left_out_easy_words_and_contradictions():
    table = masked_table()
    assert not page_of(pair_scores(table, seed=1), table).warnings
    table.loc[:9, "left_out"] = "no shared word"
    scores = [score("s_jsd", *STEREOTYPE), score("cps", 43.0, (38.0, 48.0), 50.0)]
    page = page_of([*scores, score("token_accuracy", 0.95, side="more")], table)
    assert [sum(word in it for it in page.warnings) for word in ("10 of 60", "90 %", "opposite")] == [1, 1, 1]
    assert any("10: no shared word" in sentence for part in page.sections for sentence in part.sentences)


def test_tables_by_bias_type_examples_and_two_models(browser):
    before, after = masked_table(lean=0.3), masked_table(lean=0.0)
    runs = [run_of(signed(pair_scores(it, seed=1), {"model": "m"}), it) for it in (before, after)]
    page = SentencePairs().page(runs[0])
    by_type = table_of(page, "By bias type")
    assert set(texts(by_type)) == set(TYPES) and all(row.marks for row in by_type.rows)
    assert "detectable" in by_type.columns and page.signature["model"] == "m" and page.signature_lines
    examples = [it for part in page.sections[-1].parts for it in part.examples]
    assert {name for it in examples for name, _ in it.texts} == {"more stereotypical", "less stereotypical"}
    assert browser.faults(page_html(page)) == []
    changes = signed(compare_pairs(before, after, seed=1), {"model": "both"})
    page = SentencePairs().comparison_page(*runs, measured(changes, {}))
    assert page.headline_value[0] == "+" and page.sides == ("before", "after") and "S_JSD is" in page.verdict
    rows = texts(page.sections[0].tables[0])
    assert len(rows["CPS, %"]) == 5 and rows["CPS, %"][-1] == "60"
    titles = {it.title for it in page.sections}
    assert {"By bias type", "What the comparison can show", "Pairs that changed most"} <= titles


def test_standard_errors_are_printed_in_the_units_of_the_paper():
    scores = [
        replace(score("s_jsd", -0.0063), standard_error=0.0012),
        replace(score("cps", 58.6, ideal=50.0), standard_error=1.3),
        replace(score("b_s_jsd", 60.5, ideal=50.0), standard_error=1.26),
    ]
    page = page_of(scores, masked_table())
    rows = texts(table_of(page, "With standard errors"))
    assert list(rows.values()) == [["−6.3 ± 1.2", "58.6 ± 1.3", "60.5 ± 1.3"]]


def test_hostile_texts_are_shown_as_text():
    strings = [it for it in HOSTILE if it and "\ud800" not in it]  # pandas' own strings cannot hold a lone surrogate
    table = masked_table(n=3 * len(strings))
    for column in ("pair_id", "bias_type", "direction", "more", "less"):
        table[column] = [strings[i % len(strings)] for i in range(len(table))]
    table["pair_id"] = [f"{i} {name}" for i, name in enumerate(table["pair_id"])]
    scores = signed(pair_scores(table, seed=1), {"model": strings[0]})
    assert_shows_as_text(page_of(scores, table, model=strings[1], pairs=strings[0]), strings)
