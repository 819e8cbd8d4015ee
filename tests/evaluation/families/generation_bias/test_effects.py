"""The table and the section of effects: certainty, planted effects, names."""

import numpy as np
import pandas as pd
import pytest

from evenhand.evaluation.families.generation_bias.effects.section import effects_section
from evenhand.evaluation.families.generation_bias.effects.table import COLUMNS, effects
from evenhand.evaluation.families.generation_bias.metric import StyledResponses
from evenhand.recipes.testbed import grammar
from tools.testbed.corpus import all_prompts


def styled(vectors, descriptor, axis, templates=1):
    n = len(vectors) // templates
    template = [f"t{number}" for number in range(templates) for _ in range(n)]
    return StyledResponses(vectors, template, descriptor, axis, ["kind", "curt", "odd"])


def test_units_have_their_means_groups_and_counts():
    vectors = np.eye(3)[[0, 0, 1, 0, 1, 1, 2, 2]]
    descriptor, axis = ["a", "a", "b", "b", "c", "c", "d", "d"], ["x"] * 4 + ["y"] * 4
    table = effects(styled(vectors, descriptor, axis), {"WARM": [0]}, permutations=19)
    assert tuple(table.columns) == COLUMNS
    assert table.groupby("kind")["unit"].nunique().to_dict() == {"axis": 2, "descriptor": 4}
    rows = table.set_index(["kind", "unit", "name"])
    assert rows.loc[("descriptor", "b", "kind"), ["mean", "average", "effect", "n"]].tolist() == [0.5, 0.375, 0.125, 2]
    assert rows.loc[("axis", "x", "kind"), ["mean", "effect", "n"]].tolist() == [0.75, 0.375, 4]
    assert rows.loc[("descriptor", "a", "WARM"), "effect"] == rows.loc[("descriptor", "a", "kind"), "effect"]
    assert (table["shrunk"].abs().diff().dropna() <= 1e-12).all()


def test_rows_without_styles_or_common_templates_have_no_effect():
    vectors = np.eye(3)[[0, 1, 2, 0, 1, 2]]
    vectors[[2, 5]] = np.nan
    table = effects(styled(vectors, ["a", "b", "c"] * 2, ["x"] * 6, templates=2), {}, permutations=9)
    assert set(table.query("kind == 'descriptor'")["unit"]) == {"a", "b"}
    empty = effects(styled(vectors[:1], ["a"], ["x"]), {}, permutations=9)
    assert len(empty) == 0 and tuple(empty.columns) == COLUMNS
    responses = StyledResponses(np.eye(2)[[0, 1, 0, 1]], list("ttuu"), list("aabb"), ["x"] * 4, ["kind", "curt"])
    assert len(effects(responses, {}, permutations=9)) == 0
    mixed = StyledResponses(np.eye(2)[[0, 1, 0]], list("ttu"), list("abc"), ["x"] * 3, ["kind", "curt"])
    assert set(effects(mixed, {}, permutations=9).query("kind == 'descriptor'")["unit"]) == {"a", "b"}


def responses_of_the_grammar(n_descriptors, seed):
    rng = np.random.default_rng(seed)
    prompts = all_prompts()[["template", "descriptor", "axis"]].drop_duplicates(["template", "descriptor"])
    chosen = rng.choice(prompts["descriptor"].unique(), n_descriptors, replace=False)
    prompts = prompts[prompts["descriptor"].isin(chosen)]
    p, styles = grammar.style_distribution(prompts["template"], prompts["descriptor"]), list(grammar.styles())
    rows = prompts.loc[prompts.index.repeat(4)]
    vectors = np.eye(len(styles), dtype=np.float32)[grammar.sample_columns(np.repeat(p, 4, axis=0), rng)]
    average = pd.DataFrame(p, index=prompts.index).groupby(prompts["template"]).transform("mean").to_numpy()
    truth = pd.DataFrame(p - average, columns=styles).groupby(prompts["descriptor"].to_numpy()).mean().stack()
    columns = (rows[name].tolist() for name in ("template", "descriptor", "axis"))
    return StyledResponses(vectors, *columns, styles), truth


@pytest.mark.parametrize("seed", [0, 1])
def test_the_planted_effects_are_shown_with_the_right_sign(seed):
    responses, truth = responses_of_the_grammar(60, seed)
    table = effects(responses, {}, permutations=199).query("kind == 'descriptor'").set_index(["unit", "name"])
    truth = truth.reindex(table.index)
    shown = table["certainty"] == "shown"
    assert shown[truth.abs().nlargest(10).index].sum() >= 6
    assert (np.sign(table["effect"][shown]) == np.sign(truth[shown])).all()
    covered = ((table["low"] <= truth) & (truth <= table["high"])).mean()
    assert covered > 0.9
    largest = truth.abs().nlargest(10).index
    assert (table["effect"] - truth)[largest].abs().max() < 0.2
    assert 0 < table["detectable"].median() < 0.5


def table(*rows):
    common = {"kind": "descriptor", "axis": "ability", "outcome": "style", "average": 0.01, "detectable": 0.08}
    common |= {"z": 3.0, "p": 0.01, "q": 0.2, "p_family": 0.5, "certainty": "open", "n": 104}
    frame = pd.DataFrame([common | row for row in rows])
    frame["mean"] = frame["average"] + frame["shrunk"]
    return frame.assign(effect=frame["shrunk"], low=frame["shrunk"] - 0.01, high=frame["shrunk"] + 0.01)[list(COLUMNS)]


SHOWN = {"unit": "paralyzed", "name": "fear", "shrunk": 0.0254, "certainty": "shown", "p_family": 0.01}
OPEN = {"unit": "blond", "name": "fear", "shrunk": -0.002}


def test_effects_are_named_only_if_they_are_shown():
    section = effects_section(table(SHOWN, OPEN, {**SHOWN, "outcome": "cluster", "name": "HARM"}))
    sentence = next(sentence for sentence in section.sentences if "paralyzed" in sentence)
    for number in ("fear", "3.5 %", "1.0 %", "+2.5", "+1.5 to +3.5"):
        assert number in sentence
    assert not any("blond" in sentence for sentence in section.sentences)
    (descriptor_map,) = section.parts[0].tables
    assert [row.label for row in descriptor_map.rows] == ["paralyzed"] and descriptor_map.rows[0].cells[1].bold
    (leads,) = section.parts[1].tables
    assert [row.label for row in leads.rows] == ["paralyzed, fear", "paralyzed, HARM"]
    section = effects_section(table(OPEN, {**OPEN, "unit": "tall"}))
    assert "8.0 percentage points" in section.sentences[-1]
    assert not section.parts[1].tables[0].rows
    assert not effects_section(pd.DataFrame(columns=list(COLUMNS))).has_content


def test_hidden_characters_of_names_are_written_out():
    hostile = {**SHOWN, "unit": "a\u202eb\x1b[31m", "name": "<b>"}
    (sentence,) = [s for s in effects_section(table(hostile, OPEN)).sentences if "<b>" in s]
    assert "\u202e" not in sentence and "\x1b" not in sentence
    assert np.isfinite(effects_section(table(hostile, OPEN)).parts[1].tables[0].rows[0].marks[0].value)
