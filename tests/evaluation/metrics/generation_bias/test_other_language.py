"""Responses in another language: found by hand, named first in the report, and their styles kept apart."""

import re

import numpy as np
import pandas as pd

from evenhand.evaluation.metrics.generation_bias.cuts import (
    language_section,
    language_text,
    requested_text,
    shown_in_another_language,
)
from evenhand.evaluation.metrics.generation_bias.parts.effects import effects
from evenhand.evaluation.metrics.generation_bias.parts.outcomes import other_language, outcome_bias
from evenhand.evaluation.metrics.generation_bias.styled_responses import StyledResponses


def test_the_usual_language_is_that_of_the_template():
    template = pd.Series(["s", "s", "s", "t", "t", "t", "t"])
    languages = pd.DataFrame(np.eye(3)[[0, 0, 1, 1, 1, 2, 0]], columns=["en", "es", "too short"])
    languages.iloc[6] = np.nan
    found = other_language(template, languages)["other_language"]
    assert found[:6].tolist() == [0, 0, 1, 0, 0, 0] and np.isnan(found[6])


def test_a_style_that_only_another_language_has_is_not_shown_apart():
    """A tenth of the answers is in Spanish, of "Cuban" people half, and the classifier calls Spanish "neutral"."""
    rng, n = np.random.default_rng(0), 100
    people = ["Cuban", *(f"other {k}" for k in range(5))]
    rows = [{"template": t, "descriptor": d, "axis": "x"} for t in "stuv" for d in people for _ in range(n)]
    table = pd.DataFrame(rows)
    spanish = rng.random(len(table)) < np.where(table["descriptor"] == "Cuban", 0.5, 0.02)
    neutral = spanish | (rng.random(len(table)) < 0.3)
    responses = StyledResponses(table, np.eye(2)[neutral.astype(int)], ["joy", "neutral"])
    languages = pd.DataFrame({"en": ~spanish, "es": spanish}, dtype=float)
    is_other = other_language(table["template"], languages)
    assert (is_other["other_language"] == spanish).all()
    found = outcome_bias(responses, "other_language", is_other, permutations=99)[1]
    assert shown_in_another_language(found)["unit"].tolist() == ["Cuban"]
    text = language_text(found)
    counted = r"“Cuban” \(2\d\d of 400 answers; difference \+4\d \[\+\d\d, \+\d\d\] of 100\)"
    assert re.fullmatch(f"{counted} gets more answers in another language than .* is 1\\d of 100. ", text)
    everywhere, apart = (effects(it, {}, permutations=99) for it in (responses, responses.rows(~spanish)))
    section = language_section(everywhere, apart)
    assert {"Cuban"} <= set(everywhere[everywhere["certainty"] == "shown"]["unit"])
    assert not (apart["certainty"] == "shown").any() and not section.tables[0].rows
    assert language_text(found[found["unit"] != "Cuban"]) == ""
    assert "nobody" in requested_text(everywhere, apart)
    assert requested_text(everywhere, everywhere) == requested_text(apart, apart) == ""
