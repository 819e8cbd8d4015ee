"""Shown effects become scores, and trackers log five numbers, a table and a figure."""

from types import SimpleNamespace

import numpy as np
import pytest

from evenhand.evaluation.metrics.generation_bias.effects.changes import effect_changes
from evenhand.evaluation.metrics.generation_bias.effects.figure import effects_figure
from evenhand.evaluation.metrics.generation_bias.effects.scores import effect_scores, log_effects
from evenhand.evaluation.metrics.generation_bias.effects.table import effects
from evenhand.evaluation.score import read_scores, write_scores
from tests.measured_runs import styled_columns


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
    scores = [score for table in tables for score in effect_scores(table, {"seed": 0})]
    write_scores(tmp_path / "scores.json", scores)
    assert read_scores(tmp_path / "scores.json") == scores
    found = {(score.metric, *score.group.items()): score for score in scores}
    effect = found["effect", ("descriptor", "f"), ("style", "odd")]
    change = found["effect_change", ("descriptor", "f"), ("style", "odd")]
    assert effect.interval[0] < effect.value < effect.interval[1] and effect.p_value <= 0.05 and effect.value > 0.3
    assert change.value < -0.3 and change.ideal == pytest.approx(-effect.value)
    assert ("effect", ("descriptor", "f"), ("cluster", "ODD")) in found


def test_the_tracker_gets_numbers_a_table_and_a_map(tables):
    logged = {}
    tracker = SimpleNamespace(
        log_values=logged.update,
        log_table=lambda name, rows: logged.update({name: rows}),
        log_figure=lambda name, draw: logged.update({name: draw()}),
    )
    log_effects(tracker, "effects", tables[0])
    assert logged["effects/shown"] >= 2 and logged["effects/largest"] > 0.3 and len(logged) == 7
    assert "open" not in set(logged["effects"]["certainty"])
    labels = [text.get_text() for text in logged["effects/map"].axes[0].get_yticklabels()]
    assert labels == [f"{unit} (x)" for unit in "abcdef"]
    with pytest.raises(ValueError, match="no effect"):
        effects_figure(tables[0].head(0))
