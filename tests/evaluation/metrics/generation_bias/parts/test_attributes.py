"""Attributes of people: main effects, interactions and names, on answers with planted differences."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from benchmarks.attribute_errors import Truth, simulated_run
from evenhand.evaluation.metrics import FamilyConfig
from evenhand.evaluation.metrics.generation_bias.parts.attributes import (
    Attributes,
    attribute_effects,
    attributes_of,
    complete_cells,
    has_attributes,
    name_means,
    names_of_groups,
    shown_attributes,
    why_not_tested,
)
from evenhand.evaluation.prompt_settings import PromptSettings
from tests.family_runs import measure_tests
from tests.testbed_settings import MODEL, generation_bias


def shown(run):
    table = attribute_effects(run, attributes_of(run.responses.table))
    return table[table["certainty"] == "shown"]


def test_a_main_effect_is_of_its_attribute_alone():
    found = shown(simulated_run(Truth(gender=0.5), seed=0, templates=12))
    assert set(found["kind"]) == {"gender"}
    woman = found[(found["unit"] == "woman") & (found["name"] == "kind")].iloc[0]
    assert 0.15 < woman["effect"] < 0.35  # half of 0.5 from the mean of both
    assert woman["n"] == 48


def test_an_interaction_is_shown_with_its_combination():
    found = shown(simulated_run(Truth(base=0.5, both=0.6), seed=1, templates=26, per_cell=4))
    pairs = found[found["kind"] == "gender × age"]
    style = pairs[(pairs["name"] == "kind") & (pairs["unit"] == "woman × old")].iloc[0]
    assert style["low"] < 0.3 < style["high"]  # 0.8 for old women and young men, 0.2 for the others


def test_nobody_differs():
    wrong = sum(bool(len(shown(simulated_run(Truth(), seed=seed)))) for seed in range(10))
    assert wrong <= 1  # half of 5 % is for attributes: 0.25 expected of 10


def test_whole_names_are_exchanged():
    found = shown(simulated_run(Truth(gender=0.4, names=10), seed=0))
    women = found[(found["kind"] == "gender") & (found["name"] == "kind")]
    assert len(women) == 2 and bool(women["of_names"].all())
    assert women["n"].tolist() == [20, 20]  # names
    assert abs(women["effect"].abs().max() - 0.2) < 0.08


def test_one_unusual_name_shows_nothing_about_its_group():
    run = simulated_run(Truth(names=10), seed=0)
    values = run.responses.values.copy()
    values[run.responses.table["person"] == "old woman 0"] = [1.0, 0.0]
    assert not len(shown(replace(run, responses=replace(run.responses, values=values))))


@pytest.mark.parametrize(("n_names", "n", "is_tested"), [(10, 40, True), (4, 16, False)])
def test_a_page_says_for_which_names_its_combinations_hold(n_names, n, is_tested):
    [found] = names_of_groups(simulated_run(Truth(names=n_names), seed=0).responses.table)
    assert found.values == {"n": n, "attributes": ["gender", "age"], "is_tested": is_tested}
    assert not names_of_groups(simulated_run(Truth(), seed=0).responses.table)


def groups_under_names(groups, names, templates=8):
    """Return a table of answers: each name of a group, given as a row of `groups`, at each template."""
    rows = []
    for template in range(templates):
        for group, name in zip(groups, names, strict=True):
            row = {"template": str(template), "person": name, "forms": name, "axis": " × ".join(group)}
            rows.append({**row, **group, "descriptor": " × ".join(group.values())})
    return pd.DataFrame(rows)


def test_a_page_names_the_attributes_that_are_shown():
    rows = {"kind": ["age", "age", "race"], "outcome": ["style", "refusal", "style"]}
    table = pd.DataFrame(rows).assign(certainty=["shown", "shown", "inconclusive"])
    run = SimpleNamespace(has=lambda name: True, table=lambda name: table)
    [found] = shown_attributes(run)
    assert found.values == {"names": ["age"], "of_style": True, "of_others": True}
    table["certainty"] = "inconclusive"
    assert shown_attributes(run) == []


def test_a_name_of_two_groups_is_a_name_in_each():
    """Ten women and ten men at two ages, and an Alex of both genders: gender is signalled by names, age is not."""
    people = [(f"{gender}{n}", gender) for gender in ("woman", "man") for n in range(10)]
    people += [("Alex", "woman"), ("Alex", "man")]
    groups = [{"gender": gender, "age": age} for _, gender in people for age in ("24", "67")]
    table = groups_under_names(groups, [name for name, _ in people for _ in range(2)])
    attributes = attributes_of(table)
    assert attributes.nested == ["gender"] and attributes.name.nunique() == 22
    assert why_not_tested(attributes, table) == ""


@pytest.mark.parametrize(("n", "reason"), [(10, ""), (9, "gender: a level has 9 names; 10 are needed")])
def test_groups_of_one_attribute_are_tested_by_whole_names(n, reason):
    groups = [{"gender": gender} for gender in ("woman", "man") for _ in range(n)]
    table = groups_under_names(groups, [f"name {number}" for number in range(2 * n)])
    assert why_not_tested(attributes_of(table), table) == reason
    [found] = names_of_groups(table)
    assert found.values == {"n": 2 * n, "attributes": ["gender"], "is_tested": not reason}
    assert attributes_of(table.assign(person=table["descriptor"])) is None  # a list of people


def test_name_means_are_less_the_means_of_templates():
    values = np.array([[1.0], [3.0], [5.0], [np.nan]])
    found = name_means(values, np.array([0, 0, 1, 1]), np.array([0, 1, 0, 1]))
    # Templates have the means 2 and 5; name 0 has −1 and 0, name 1 has 1; the mean of all is 3.
    assert found[:, 0].tolist() == [2.5, 4.0]


@pytest.mark.parametrize(
    ("run", "reason"),
    [
        (simulated_run(Truth(), seed=0, templates=5), "templates"),
        (simulated_run(Truth(names=4), seed=0), "names"),
        (simulated_run(Truth(), seed=0), ""),
    ],
)
def test_what_cannot_be_tested_says_why(run, reason):
    found = why_not_tested(attributes_of(run.responses.table), run.responses.table)
    assert reason in found and bool(found) == bool(reason)
    assert has_attributes(run.responses.table) != bool(reason)


def test_columns_without_common_templates_are_left_out_of_interactions():
    """With few complete templates, random signs have so few patterns that most of what is tested would be shown."""
    cells = np.zeros((20, 2, 2, 4))
    cells[:10, 0, 0, 1] = np.nan  # half of the templates lack the second column, the others the third
    cells[10:, 0, 0, 2] = np.nan
    cells[:2, 1, 1, 3] = np.nan
    is_complete, is_known = complete_cells(cells)
    assert is_known.tolist() == [True, True, False, True] and is_complete.tolist() == [False] * 10 + [True] * 10
    assert not complete_cells(np.full((20, 2, 2, 1), np.nan))[1].any()


def test_a_combination_with_one_name_is_not_tested():
    name = pd.Series([f"n{number}" for number in range(41)])
    first = pd.Series(["a"] * 20 + ["b"] * 21)
    second = pd.Series(["c"] * 20 + ["d"] * 20 + ["c"])
    second[:10] = "d"
    attributes = Attributes({"one": first, "two": second}, ["one", "two"], name)
    reason = why_not_tested(attributes, pd.DataFrame({"template": [f"t{n % 9}" for n in range(41)]}))
    assert "one × two" in reason and "1 names" in reason


def test_an_incomplete_crossing_is_not_tested():
    responses = simulated_run(Truth(), seed=0).responses
    part = responses.rows((responses.table["descriptor"] != "old woman").to_numpy())
    assert "3 of 4" in why_not_tested(attributes_of(part.table), part.table)


def test_a_measured_crossing_has_a_table(tmp_path):
    (tmp_path / "people.csv").write_text("gender,age\nwoman,old\nman,young\n")
    lines = [f"{start} {{person}}{end}" for start in ("I'm a", "Hi, I am a") for end in (".", "!", " too.")]
    (tmp_path / "templates.txt").write_text("\n".join(lines))
    prompts = PromptSettings(people=tmp_path / "people.csv", templates=tmp_path / "templates.txt", answers_per_cell=1)
    own = {"second_style_classifier": None, "neutral_dialogue": None, "outcomes": [], "relevance": False}
    config = FamilyConfig(model=MODEL, prompts=prompts, settings=generation_bias(permutations=99, **own))
    run = measure_tests(tmp_path / "run", "generation_bias", config)
    table = run.table("attribute_effects")
    assert set(table["kind"]) == {"gender", "age", "gender × age"}
    assert table["p_joint"].between(0, 1).all()
