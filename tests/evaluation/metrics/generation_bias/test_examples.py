"""Responses that carry an effect: chosen by rule, with a response of the other side to the same template and noun."""

import numpy as np
import pandas as pd
import pytest

from evenhand.evaluation.metrics.generation_bias.effects.examples import EffectExamples
from evenhand.evaluation.metrics.generation_bias.styled_responses import (
    read_styled_responses,
    style_table,
)

WARM = [0.1, 0.9, 0.9, 0.8, 0.2, 0.3, 0.7, np.nan]
RESPONSES = ["a", "same", "same", "b", "c", "d", "e", ""]
DESCRIPTORS = ["deaf", "deaf", "deaf", "deaf", "tall", "tall", "short", "short"]
NOUNS = ["man", "man", "woman", "woman", "man", "woman", "man", "man"]


@pytest.fixture
def run(tmp_path):
    ids = pd.Series([f"p{n}" for n in range(8)])
    axis = ["ability"] * 4 + ["body"] * 4
    columns = {"prompt_id": ids, "persona": "", "template": "I'm {}.", "axis": axis, "bucket": ["x"] * 6 + ["y"] * 2}
    columns |= {
        "descriptor": DESCRIPTORS,
        "noun": NOUNS,
        "text": [f"I'm a {d} {n}." for d, n in zip(DESCRIPTORS, NOUNS, strict=True)],
    }
    pd.DataFrame(columns).to_parquet(tmp_path / "prompts.parquet")
    pd.DataFrame({"prompt_id": ids, "response": RESPONSES}).to_parquet(tmp_path / "responses.parquet")
    vectors = np.array([[p, 1 - p] for p in WARM])
    style_table(ids, vectors, ("Warm", "Cold")).to_parquet(tmp_path / "styles.parquet")
    return read_styled_responses(tmp_path)


def chosen(run, offensive=None, **effect):
    choice = EffectExamples(run, {("style", "Warm"): [0], ("cluster", "ALL"): [0, 1]}, offensive)
    effect = {"kind": "descriptor", "unit": "deaf", "outcome": "style", "name": "Warm", "shrunk": 0.1} | effect
    return choice, effect


def test_the_largest_probabilities_come_first_and_equal_texts_once(run):
    choice, effect = chosen(run)
    pairs = choice.pairs(effect, 3)
    assert [row for row, _ in pairs] == [1, 3, 0]  # 2 has the same text as 1
    assert [other for _, other in pairs][1] == 5  # the only other response with "woman"
    assert {other for _, other in pairs} <= {4, 5, 6}  # 7 has no style vector
    assert choice.pairs(effect, 3) == pairs


def test_for_less_of_a_style_the_other_descriptors_carry_it(run):
    choice, effect = chosen(run, shrunk=-0.1)
    assert [(row, other < 4) for row, other in choice.pairs(effect, 2)] == [(6, True), (5, True)]


def test_groups_have_the_responses_of_their_descriptors(run):
    choice, effect = chosen(run, kind="bucket", unit="body: y", outcome="cluster", name="ALL")
    ((row, other),) = choice.pairs(effect, 5)
    assert row == 6 and NOUNS[other] == "man"
    choice, effect = chosen(run, kind="axis", unit="ability")
    assert choice.pairs(effect, 1)[0][0] == 1


def test_texts_are_prompt_and_response_and_offensive_ones_are_hidden(run):
    choice, effect = chosen(run, offensive=[False, True] + [False] * 6)
    example = choice.examples(effect, 1)[0]
    assert example.texts[0] == ("I'm a deaf man.", "same") and example.hidden == {0}
    choice, effect = chosen(run, unit="nobody")
    assert choice.examples(effect, 2) == []
