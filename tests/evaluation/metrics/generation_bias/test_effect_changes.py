"""Changed effects: the numbers of both sides, what each effect became, and the sentences of the report."""

import numpy as np
import pandas as pd

from evenhand.evaluation.metrics.generation_bias.effects.change_section import effect_change_section
from evenhand.evaluation.metrics.generation_bias.effects.changes import COLUMNS, effect_changes, transitions
from evenhand.evaluation.metrics.generation_bias.effects.table import effects
from tests.measured_runs import styled_columns


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
    before.vectors[0] = np.nan
    table = effect_changes(before, after, {}, permutations=199)
    assert tuple(table.columns) == COLUMNS
    rows = table.query("kind == 'descriptor' and name == 'odd'").set_index("unit")
    assert rows["transition"].to_dict() == {**dict.fromkeys("acdefg", "open"), "b": "removed", "h": "new"}
    assert rows["n"].to_dict() == {**dict.fromkeys("bcdefgh", 48), "a": 47}
    after.vectors[0] = np.nan
    alone = effects(after, {}, permutations=199).query("kind == 'descriptor' and name == 'odd'").set_index("unit")
    assert rows["shrunk_after"].to_dict() == alone["shrunk"].to_dict()
    assert rows["certainty_after"].to_dict() == alone["certainty"].to_dict()


def test_transitions():
    before, after = np.array([5, 5, 5, 5, 1, 5, 5, 5, 0]), np.array([0, 2, 4, 9, 6, -5, -5, 0, 2])
    shown = {"before": [1, 1, 1, 1, 0, 1, 1, 1, 0], "after": [0, 1, 1, 1, 1, 1, 1, 0, 1]}
    shown["change"] = [1, 1, 0, 1, 1, 1, 0, 0, 0]
    found = transitions(before, after, *(np.array(each, dtype=bool) for each in shown.values()))
    assert found.tolist() == ["removed", "reduced", "kept", "grown", "new", "turned round", "open", "open", "open"]


NEVER_SHOWN = dict.fromkeys(("certainty_before", "certainty_after", "certainty"), "open")
OPEN = {"kind": "descriptor", "unit": "tall", "axis": "body", "outcome": "style", "name": "fear", "transition": "open"}
OPEN |= {"mean_before": 0.01, "mean_after": 0.01, "average_before": 0.008, "average_after": 0.007, "n": 104}
OPEN |= {"shrunk_before": 0.001, "shrunk_after": 0.001, "change": 0.0, "shrunk": 0.0, "low": -0.01, "high": 0.01}
OPEN |= {"detectable": 0.02, "z": 0.0, "p": 0.9, "q": 1.0, "p_family": 1.0, **NEVER_SHOWN}
REMOVED = {**OPEN, "unit": "paralyzed", "transition": "removed", "mean_before": 0.033, "mean_after": 0.011}
REMOVED |= {"shrunk": -0.022, "low": -0.03, "high": -0.011, "certainty_before": "shown", "certainty": "shown"}
NEW = {**OPEN, "unit": "blond", "transition": "new", "certainty_after": "shown", "certainty": "shown"}


def section(*rows):
    return effect_change_section(pd.DataFrame(rows, columns=list(COLUMNS)))


def test_removed_and_new_effects_are_named():
    found = section(REMOVED, NEW, OPEN)
    assert found.sentences[0] == (
        "1 of 3 effects is shown before tuning: 1 removed. 1 is new after tuning. 2 changes are shown: with a "
        "probability of 95 %, none of them is chance."
    )
    assert found.sentences[1] == (
        "“paralyzed”: fear 3.3 → 1.1 % (average 0.8 → 0.7 %), change of the difference −2.2 points [−3.0, −1.1]: "
        "removed."
    )
    assert found.sentences[2].startswith("“blond”") and len(found.sentences) == 3
    (table,) = found.parts[0].tables
    assert [row.label for row in table.rows] == ["paralyzed, fear", "blond, fear"]


def test_without_a_change_it_names_the_smallest_detectable_one():
    found = section(OPEN)
    assert found.sentences[0].startswith("None of 1 effects is shown before tuning. None is new")
    assert "2.0 percentage points" in found.sentences[-1]
    assert not section().has_content
