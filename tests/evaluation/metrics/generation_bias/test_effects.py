"""The table of effects: names, groups, certainty, and the effects that the testbed's grammar plants."""

import numpy as np
import pandas as pd
import pytest

from evenhand.evaluation.metrics.generation_bias.effects.table import COLUMNS, effects
from tests.measured_runs import styled_columns
from tools.testbed import grammar
from tools.testbed.corpus import all_prompts


def styled(vectors, descriptor, axis, templates=1):
    n = len(vectors) // templates
    template = [f"t{number}" for number in range(templates) for _ in range(n)]
    return styled_columns(vectors, template, descriptor, axis, ["kind", "curt", "odd"])


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
    responses = styled_columns(np.eye(2)[[0, 1, 0, 1]], list("ttuu"), list("aabb"), ["x"] * 4, ["kind", "curt"])
    assert len(effects(responses, {}, permutations=9)) == 0
    mixed = styled_columns(np.eye(2)[[0, 1, 0]], list("ttu"), list("abc"), ["x"] * 3, ["kind", "curt"])
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
    return styled_columns(vectors, *columns, styles), truth


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
