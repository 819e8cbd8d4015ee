"""Effects: names, groups, certainty, changes, scores, and the effects that the testbed's grammar plants."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from evenhand.evaluation.metrics.generation_bias.engine.effects import (
    CHANGE_COLUMNS,
    COLUMNS,
    effect_changes,
    effect_scores,
    effects,
    transitions,
)
from evenhand.evaluation.metrics.generation_bias.parts.effects import change_summary, effects_figure, log_effects
from evenhand.evaluation.score import read_scores, write_scores
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
    assert list(table.columns) == COLUMNS
    assert table.groupby("kind")["unit"].nunique().to_dict() == {"axis": 2, "descriptor": 4}
    rows = table.set_index(["kind", "unit", "name"])
    assert rows.loc[("descriptor", "b", "kind"), ["mean", "average", "effect", "n"]].tolist() == [0.5, 0.375, 0.125, 2]
    assert rows.loc[("axis", "x", "kind"), ["mean", "effect", "n"]].tolist() == [0.75, 0.375, 4]
    assert rows.loc[("descriptor", "a", "WARM"), "effect"] == rows.loc[("descriptor", "a", "kind"), "effect"]
    assert (table["shrunk"].abs().diff().dropna() <= 1e-12).all()


def test_a_change_that_is_too_small_to_be_named_is_not_counted():
    """Two shown effects: one falls from 0.2 to 0, the other one from 0.0001 to 0."""
    rows = []
    for size in (0.2, 0.0001):
        row = {"outcome": "style", "mean_before": 0.3 + size, "average_before": 0.3, "mean_after": 0.3}
        row |= {"average_after": 0.3, "certainty_before": "shown", "certainty_after": "inconclusive"}
        rows.append({**row, "certainty": "shown", "transition": "removed"})
    found = change_summary(pd.DataFrame(rows)).values
    assert found == {"n": 2, "n_before": 1, "became": {"removed": 1}, "n_new": 0, "n_changed": 1}


def test_rows_without_styles_or_common_templates_have_no_effect():
    vectors = np.eye(3)[[0, 1, 2, 0, 1, 2]]
    vectors[[2, 5]] = np.nan
    table = effects(styled(vectors, ["a", "b", "c"] * 2, ["x"] * 6, templates=2), {}, permutations=9)
    assert set(table.query("kind == 'descriptor'")["unit"]) == {"a", "b"}
    empty = effects(styled(vectors[:1], ["a"], ["x"]), {}, permutations=9)
    assert len(empty) == 0 and list(empty.columns) == COLUMNS
    responses = styled_columns(np.eye(2)[[0, 1, 0, 1]], list("ttuu"), list("aabb"), ["x"] * 4, ["kind", "curt"])
    assert len(effects(responses, {}, permutations=9)) == 0
    mixed = styled_columns(np.eye(2)[[0, 1, 0]], list("ttu"), list("abc"), ["x"] * 3, ["kind", "curt"])
    assert set(effects(mixed, {}, permutations=9).query("kind == 'descriptor'")["unit"]) == {"a", "b"}


def test_answers_to_a_template_that_nobody_else_has_count_neither_in_the_mean_nor_in_the_number():
    """To the common template, a gets kind in 3 of 4 answers and b in none: 3/4 − 3/8. The 4 answers to u are alone."""
    vectors = np.eye(2)[[0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1]]
    responses = styled_columns(vectors, list("ttttttttuuuu"), list("aaaabbbbaaaa"), ["x"] * 12, ["kind", "curt"])
    table = effects(responses, {}, permutations=9).set_index(["unit", "name"])
    columns = ["mean", "effect", "n", "hits"]
    assert table.loc[("a", "kind"), columns].tolist() == [0.75, 0.375, 4, 3]
    assert table.loc[("b", "curt"), columns].tolist() == [1, 0.375, 4, 4]


def test_templates_on_which_only_one_person_has_an_answer_change_no_effect():
    """On t, a gets kind and b curt: ± 1/2. To u, both were asked, and b's answers are empty."""
    vectors = np.eye(2)[[0, 0, 1, 1, 0, 0, 1, 1]]
    vectors[6:] = np.nan
    responses = styled_columns(vectors, list("ttttuuuu"), list("aabbaabb"), ["x"] * 8, ["kind", "curt"])
    table = effects(responses, {}, permutations=9)
    without_empty = effects(responses.rows(responses.has_value()), {}, permutations=9)
    for found in (table, without_empty):
        row = found.set_index(["unit", "name"]).loc[("a", "kind")]
        assert row[["mean", "average", "effect", "n", "hits"]].tolist() == [1, 0.5, 0.5, 2, 2]


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


def sides():
    """Return responses of 8 descriptors: b's "odd" ones are common before only, h's after only."""
    rng, n = np.random.default_rng(0), 8 * 12 * 4
    descriptor, template = np.tile(np.repeat(list("abcdefgh"), 4), 12), np.repeat([f"t{t}" for t in range(12)], 32)
    odd = [0.6 if cell == name else 0.15 for name in "bh" for cell in descriptor]
    vectors = np.eye(2)[(rng.random((2, n)) < np.reshape(odd, (2, n))).astype(int)]
    return [
        styled_columns(each, template.tolist(), descriptor.tolist(), ["x"] * n, ["kind", "odd"]) for each in vectors
    ]


def test_removed_and_new_effects():
    before, after = sides()
    before.values[0] = np.nan
    table = effect_changes(before, after, {}, permutations=199)
    assert list(table.columns) == CHANGE_COLUMNS
    rows = table.query("kind == 'descriptor' and name == 'odd'").set_index("unit")
    assert rows["transition"].to_dict() == {**dict.fromkeys("acdefg", "inconclusive"), "b": "removed", "h": "new"}
    assert rows["n"].to_dict() == {**dict.fromkeys("bcdefgh", 48), "a": 47}
    after.values[0] = np.nan
    alone = effects(after, {}, permutations=199).query("kind == 'descriptor' and name == 'odd'").set_index("unit")
    assert rows["shrunk_after"].to_dict() == alone["shrunk"].to_dict()
    assert rows["certainty_after"].to_dict() == alone["certainty"].to_dict()


def test_transitions():
    before, after = np.array([5, 5, 5, 5, 1, 5, 5, 5, 0]), np.array([0, 2, 4, 9, 6, -5, -5, 0, 2])
    shown = {"before": [1, 1, 1, 1, 0, 1, 1, 1, 0], "after": [0, 1, 1, 1, 1, 1, 1, 0, 1]}
    shown["change"] = [1, 1, 0, 1, 1, 1, 0, 0, 0]
    found = transitions(before, after, *(np.array(each, dtype=bool) for each in shown.values()))
    assert found.tolist() == [
        "removed",
        "reduced",
        "kept",
        "grown",
        "new",
        "turned round",
        "inconclusive",
        "inconclusive",
        "inconclusive",
    ]


@pytest.fixture(scope="module")
def tables():
    """Effects of 6 descriptors, of which only f gets odd responses, and their changes when f gets kind ones, too."""
    descriptor, template = np.tile(np.repeat(list("abcdef"), 6), 10), np.repeat([f"t{t}" for t in range(10)], 36)
    n, rng = len(descriptor), np.random.default_rng(0)
    kind = rng.random(n) < 0.9
    odd = np.where(descriptor == "f", rng.random(n) < 0.2, kind)
    sides = (
        styled_columns(np.eye(2)[1 - is_kind.astype(int)], template, descriptor, ["x"] * n, ["kind", "odd"])
        for is_kind in (odd, kind)
    )
    before, after = sides
    clusters = {"ODD": [1]}
    return effects(before, clusters, permutations=99), effect_changes(before, after, clusters, permutations=99)


def test_shown_effects_and_changes_are_scores(tables, tmp_path):
    scores = [score for table in tables for score in effect_scores(table)]
    write_scores(tmp_path / "scores.json", scores)
    assert read_scores(tmp_path / "scores.json") == scores
    found = {(score.name, *score.group.items()): score for score in scores}
    effect = found["effect", ("descriptor", "f"), ("style", "odd")]
    change = found["effect_difference", ("descriptor", "f"), ("style", "odd")]
    assert effect.interval[0] < effect.value < effect.interval[1] and effect.p_value <= 0.05 and effect.value > 0.3
    assert change.value < -0.3 and change.ideal == pytest.approx(-effect.value)
    assert ("effect", ("descriptor", "f"), ("cluster", "ODD")) in found


def test_a_group_of_everybody_has_no_effect(tables):
    assert all(set(table["kind"]) == {"descriptor"} for table in tables)  # the six have one axis


def test_the_tracker_gets_a_number_a_table_and_a_map(tables):
    logged = {}
    tracker = SimpleNamespace(
        log_values=logged.update,
        log_table=lambda name, rows: logged.update({name: rows}),
        log_figure=lambda name, draw: logged.update({name: draw()}),
    )
    log_effects(tracker, "effects", tables[0])
    assert logged["effects/shown"] >= 2 and len(logged) == 3
    assert "inconclusive" not in set(logged["effects"]["certainty"])
    axes = logged["effects/map"].axes[0]
    assert [text.get_text() for text in axes.get_yticklabels()] == [f"{unit} (x)" for unit in "abcdef"]
    # The style "kind" has shown effects, and no cluster has it.
    assert [text.get_text() for text in axes.get_xticklabels()] == ["ODD", "kind"]
    with pytest.raises(ValueError, match="no effect"):
        effects_figure(tables[0].head(0))


def test_the_map_of_two_descriptors_has_room_for_its_label(tables):
    figure = effects_figure(tables[0][tables[0]["unit"].isin(["a", "b"])])
    figure.draw_without_rendering()
    label = figure.axes[1].yaxis.label.get_window_extent()
    assert 0 <= label.y0 < label.y1 <= figure.bbox.height
