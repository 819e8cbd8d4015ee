"""Responses in another language: found by hand, named first in the report, and their styles kept apart."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd

from evenhand.evaluation.metrics.generation_bias.answers import Answers
from evenhand.evaluation.metrics.generation_bias.cuts import (
    NOT_TUNED,
    TUNED,
    Cuts,
)
from evenhand.evaluation.metrics.generation_bias.engine.effects import effects
from evenhand.evaluation.metrics.generation_bias.engine.measure_effects import measure_bias
from evenhand.evaluation.metrics.generation_bias.engine.spread import compare_generation_bias
from evenhand.evaluation.metrics.generation_bias.engine.values import MeasureValues
from evenhand.evaluation.metrics.generation_bias.findings import (
    person_finding,
    requested_summary,
    shown_findings,
    style_finding,
)
from evenhand.evaluation.metrics.generation_bias.measures import ValueKind
from evenhand.evaluation.metrics.generation_bias.parts import Comparison
from evenhand.evaluation.metrics.generation_bias.parts.corpus import CorpusSettings
from evenhand.evaluation.metrics.generation_bias.requested_language import shown_in_another_language
from evenhand.evaluation.metrics.generation_bias.words import words
from evenhand.evaluation.statistics.level import ONE_LOOK
from evenhand.evaluation.statistics.sequential import LookPlan


def test_changes_of_people_used_in_tuning_and_of_others_account_for_the_looks():
    rng = np.random.default_rng(0)
    rows = [(template, person, person in "abc") for template in "stuvwxyz" for person in "abcdef" for _ in range(2)]
    table = pd.DataFrame(rows, columns=["template", "descriptor", "untuned"]).assign(axis="x")
    level = LookPlan((7, 13)).level(0)
    old, new = (Answers(table, rng.dirichlet([1, 1], len(table)), ["joy", "neutral"], level=level) for _ in range(2))
    run = SimpleNamespace(has=lambda name: False)
    comparison = Comparison(None, run, run, old, new, {}, CorpusSettings(), None, None, "", {})
    changes = Cuts().compare(comparison)
    for group, chosen in ((TUNED, ~table["untuned"]), (NOT_TUNED, table["untuned"])):
        of_group = [score.interval for score in changes if score.group == group]
        sides = [side.rows(chosen.to_numpy()) for side in (old, new)]
        expected = compare_generation_bias(*sides, {}, by_axis=False)
        assert of_group == [score.interval for score in expected]
        ordinary = compare_generation_bias(*(replace(side, level=ONE_LOOK) for side in sides), {}, by_axis=False)
        assert of_group != [score.interval for score in ordinary]


def test_a_style_that_only_another_language_has_is_not_shown_apart():
    """A tenth of the answers is in Spanish, of "Cuban" people half, and the classifier calls Spanish "neutral"."""
    rng, n = np.random.default_rng(0), 100
    people = ["Cuban", *(f"other {k}" for k in range(5))]
    rows = [{"template": t, "descriptor": d, "axis": "x"} for t in "stuv" for d in people for _ in range(n)]
    table = pd.DataFrame(rows)
    spanish = rng.random(len(table)) < np.where(table["descriptor"] == "Cuban", 0.5, 0.02)
    neutral = spanish | (rng.random(len(table)) < 0.3)
    responses = Answers(table, np.eye(2)[neutral.astype(int)], ["joy", "neutral"])
    is_other = MeasureValues("other_language", ValueKind.SHARE, pd.DataFrame({"other_language": spanish.astype(float)}))
    found = measure_bias(responses, is_other, permutations=99)[1]
    assert shown_in_another_language(found)["unit"].tolist() == ["Cuban"]
    everywhere, apart = (effects(each, {}, permutations=99) for each in (responses, responses.rows(~spanish)))
    assert {"Cuban"} <= set(everywhere[everywhere["certainty"] == "shown"]["unit"])
    assert not (apart["certainty"] == "shown").any()
    (finding,) = shown_findings(found, apart)
    assert (finding["unit"], finding["outcome"], finding["n"]) == ("Cuban", "other_language", 400)
    assert words(person_finding(finding, "English")) != words(person_finding(finding))
    among_english, among_all = (style_finding(each, "shown", in_language=True) for each in (apart, everywhere))
    assert among_english.values["largest"] is None
    assert among_all.values["largest"].values["who"].name == "Cuban"
    nobody = style_finding(apart.iloc[:0], "no interval", in_language=True, language="English")
    assert words(nobody) == (
        "Styles of the answers in English cannot be compared: too few people have such answers to the same requests."
    )
    n_shown = int((everywhere["certainty"] == "shown").sum())
    counts = {"n_all": n_shown, "n_both": 0, "n_others": 0}
    assert counts.items() <= requested_summary(everywhere, apart, "English").values.items()


def test_styles_are_told_apart_by_language_where_only_a_group_is_shown_to_get_another_one():
    rows = [("descriptor", "Cuban", "inconclusive", 0.1), ("axis", "nationality", "shown", 0.05)]
    rows += [("axis", "age", "shown", -0.05)]
    found = pd.DataFrame(rows, columns=["kind", "unit", "certainty", "effect"]).assign(outcome="other_language")
    assert shown_in_another_language(found)["unit"].tolist() == ["nationality"]
