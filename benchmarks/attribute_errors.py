"""Simulations of the tests of attributes: false findings, and how often intervals contain the truth.

$ python -m benchmarks.attribute_errors                  # about ten minutes of one core
$ python -m benchmarks.attribute_errors --simulations 2  # a try, seconds

Two attributes of two levels each, 16 templates, two answers a cell, two styles and the outcome refusal; or, with names,
ten names in each cell. "False" is the share of pages on which an effect is shown that is 0; half of the page's error is
for attributes, so that 2.5 % are allowed. "Covered" is the share of intervals of shown effects that contain the truth.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.measuring import parse_options
from evenhand.evaluation import columns
from evenhand.evaluation.metrics import FamilyConfig
from evenhand.evaluation.metrics.generation_bias.answers import Answers
from evenhand.evaluation.metrics.generation_bias.engine.values import MeasureValues
from evenhand.evaluation.metrics.generation_bias.measures import ValueKind
from evenhand.evaluation.metrics.generation_bias.parts.attributes import attribute_effects, attributes_of
from evenhand.evaluation.metrics.generation_bias.settings import Settings
from evenhand.evaluation.tables import table_rows

GENDERS = ("woman", "man")
AGES = ("old", "young")
PAIR = "gender × age"


@dataclass(frozen=True)
class Truth:
    """The probability of the first style: a base, more for women, and more for old women and young men.

    `names` is the number of names in each cell, 0 for none; names then differ by a standard deviation of 0.1.
    """

    base: float = 0.3
    gender: float = 0.0
    both: float = 0.0
    names: int = 0


@dataclass
class SimulatedRun:
    """What the tests of attributes read of a classified run."""

    responses: Answers
    outcomes: dict[str, MeasureValues]
    clusters: dict[str, Any] = field(default_factory=dict)
    config: FamilyConfig = field(default_factory=lambda: FamilyConfig(settings=Settings(permutations=199)))


KINDS = {
    "nobody differs": Truth(),
    "gender only": Truth(gender=0.2),
    "interaction only": Truth(both=0.2),
    "rare, nobody differs": Truth(base=0.03),
    "rare, gender only": Truth(base=0.02, gender=0.1),
    "names, nobody differs": Truth(names=10),
    "names, gender only": Truth(gender=0.2, names=10),
}


def simulated_run(truth: Truth, seed: int, templates: int = 16, per_cell: int = 2) -> SimulatedRun:
    """Return answers of two styles; a refusal has the probability of the first style."""
    rng = np.random.default_rng(seed)
    rows = []
    for woman in (True, False):
        for old in (True, False):
            level = {"gender": GENDERS[not woman], "age": AGES[not old]}
            shift = truth.gender * woman + truth.both * (0.5 if woman == old else -0.5)
            for number in range(truth.names or 1):
                person = f"{level['age']} {level['gender']}"
                of_person = {"descriptor": person, "person": person, "p": truth.base + shift}
                if truth.names:
                    p = np.clip(truth.base + shift + rng.normal(0, 0.1), 0.0, 1.0)
                    group = f"{level['gender']} × {level['age']}"
                    of_person = {"descriptor": group, "person": f"{person} {number}", "p": p}
                for template in range(templates):
                    row = {"template": f"t{template}", "axis": PAIR, **of_person, **level}
                    rows += [row] * (1 if truth.names else per_cell)
    table = pd.DataFrame(rows).assign(response="x")
    first = rng.random((2, len(table))) < table["p"].to_numpy()
    vectors = np.stack([first[0], ~first[0]], axis=1).astype(float)
    refusal = MeasureValues("refusal", ValueKind.SHARE, pd.DataFrame({"refusal": first[1].astype(float)}))
    return SimulatedRun(Answers(table, vectors, ["kind", "curt"]), {"refusal": refusal})


def true_effect(truth: Truth, row: dict[str, Any]) -> float:
    """Return the true effect of a row of the table of effects."""
    sign = -1.0 if row["name"] == "curt" else 1.0
    if row["kind"] == "gender":
        return sign * truth.gender / 2 * (1 if row["unit"] == "woman" else -1)
    if row["kind"] == "age":
        return 0.0
    same = row["unit"] in ("woman × old", "man × young")
    return sign * truth.both / 2 * (1 if same else -1)


def simulate(truth: Truth, simulations: int) -> dict[str, float]:
    """Return the shares, in %, of pages with a false finding, of pages with a true one, and of covered intervals."""
    n_false = 0
    n_true = 0
    covered = []
    for seed in range(simulations):
        run = simulated_run(truth, seed)
        table = attribute_effects(run, attributes_of(run.responses.table))
        shown = [row for row in table_rows(table) if row["certainty"] == "shown"]
        truths = [true_effect(truth, row) for row in shown]
        n_false += any(value == 0 for value in truths)
        n_true += any(value != 0 for value in truths)
        for row, value in zip(shown, truths, strict=True):
            if value != 0 and row["outcome"] == columns.STYLE:
                covered.append(row["low"] <= value <= row["high"])
    share = 100 / simulations
    return {"false": share * n_false, "found": share * n_true, "covered": 100 * np.mean(covered) if covered else np.nan}


def main() -> None:
    """Print a row for each kind of truth."""
    options = parse_options(__doc__, simulations=(200, "simulated pages of each kind"))
    print(f"{'':24}{'false':>8}{'found':>8}{'covered':>9}")
    for name, truth in KINDS.items():
        found = simulate(truth, options.simulations)
        print(f"{name:24}{found['false']:8.1f}{found['found']:8.1f}{found['covered']:9.1f}", flush=True)


if __name__ == "__main__":
    main()
