"""Simulations of the effects in a report: false effects, missed effects, and the coverage of intervals.

$ python -m benchmarks.effects --simulations 40  # the table of docs/benchmarks/accuracy.md; 3 minutes of one core
$ python -m benchmarks.effects --change          # changes between two runs

Styles of 60 descriptors are sampled from probabilities that differ by descriptor as planned (`PLANS`); the vectors are
one-hot, or smooth for the axis. "Covered" is the share of 95 % intervals that contain the true effect, for all effects
and for the shown ones; otherwise the truth is above or below the interval. True effects below half a percentage point
count as none, from 2 points as real. Changes: the second run has the same probabilities, or half of every effect.
"""

from collections.abc import Callable
from functools import partial

import numpy as np
import pandas as pd

from benchmarks.measuring import parse_options
from evenhand.evaluation.statistics.cells import arrange_cells
from evenhand.evaluation.statistics.effect_changes import effect_changes
from evenhand.evaluation.statistics.effects import descriptor_effects

DESCRIPTORS, STYLES, PERMUTATIONS = 60, 28, 99
NEGLIGIBLE, REAL, LEVEL = 0.005, 0.02, 0.05
NOTHING = np.zeros((0, DESCRIPTORS)), np.zeros((STYLES, 0))  # no groups of descriptors, no clusters of styles


def add(p: np.ndarray, descriptor: int, style: int, size: float) -> None:
    """Move the probability `size`, at most 95 % of the rest, from the other styles to one, in place."""
    room = 1 - p[:, descriptor, style]
    moved = np.minimum(size, 0.95 * room)
    raised = p[:, descriptor, style] + moved
    p[:, descriptor] *= (1 - moved / room)[:, None]
    p[:, descriptor, style] = raised


def few(p: np.ndarray, rng: np.random.Generator, styles: int = STYLES) -> None:
    for descriptor in rng.choice(DESCRIPTORS, 12, replace=False):
        add(p, descriptor, rng.integers(styles), rng.uniform(0.05, 0.5))


def everybody(p: np.ndarray, rng: np.random.Generator) -> None:
    p *= np.exp(rng.normal(0, 0.5, p.shape[1:]))
    p /= p.sum(axis=2, keepdims=True)


def axis(p: np.ndarray, rng: np.random.Generator) -> None:
    for descriptor in range(10):
        add(p, descriptor, 0, rng.uniform(0.1, 0.4))


# design: (function that plants the effects, templates, responses to a cell)
PLANS: dict[str, tuple[Callable, int, int | str]] = {
    "12 descriptors by 5 to 50 points": (few, 26, 2),
    "the same, in one style": (partial(few, styles=1), 26, 2),
    "the same, 2 to 8 responses": (few, 10, "2 to 8"),
    "everybody, log odds N(0, ½²)": (everybody, 26, 4),
    "an axis of 10 by 10 to 40 points": (axis, 26, 4),
}


def responses(p: np.ndarray, counts: np.ndarray, is_smooth: bool, rng: np.random.Generator) -> np.ndarray:
    """Return style vectors sampled from the probabilities, `counts` for each template and descriptor, (n, styles)."""
    rows = np.repeat(p.reshape(-1, STYLES).cumsum(axis=1), counts, axis=0)
    vectors = np.eye(STYLES)[(rows[:, :-1] < rng.random((len(rows), 1))).sum(axis=1)]
    return 0.75 * vectors + 0.25 * rng.dirichlet(np.full(STYLES, 0.3), size=len(rows)) if is_smooth else vectors


def simulate(name: str, change: str | None, seed: int) -> pd.DataFrame:
    """Return the effects in a simulated measurement, or their changes to a second one, with the truth."""
    rng, (plant, templates, per_cell) = np.random.default_rng(seed), PLANS[name]
    even = 0.5 * rng.dirichlet(np.full(STYLES, 0.6), size=templates) + 0.5 * rng.dirichlet(np.full(STYLES, 0.3))
    p = np.repeat(even[:, None], DESCRIPTORS, axis=1)  # (templates, descriptors, styles)
    if change != "no effect":
        plant(p, rng)
    after = (even[:, None] + p) / 2 if change == "every effect halved" else p
    sides = (p,) if change in (None, "no effect") else (p, after)
    size = templates * DESCRIPTORS
    counts = rng.integers(2, 9, size) if per_cell == "2 to 8" else np.full(size, per_cell)
    places = np.divmod(np.arange(size).repeat(counts), DESCRIPTORS)
    is_smooth = plant is axis
    cells = arrange_cells(np.hstack([responses(side, counts, is_smooth, rng) for side in sides]), *places, 1)
    truth = (0.75 if is_smooth else 1.0) * (sides[-1] - (0 if len(sides) == 1 else sides[0])).mean(axis=0)
    truth -= truth.mean(axis=0)
    if len(sides) == 1:
        found = descriptor_effects(cells, *NOTHING, PERMUTATIONS, rng)
    else:
        halves = [cells.select_columns(half) for half in np.split(np.arange(2 * STYLES), 2)]
        runs = [descriptor_effects(half, *NOTHING, 0, rng) for half in halves]
        found = effect_changes(cells, *runs, *NOTHING, PERMUTATIONS, rng)
    columns = np.stack([truth, found.low, found.high]).reshape(3, -1).T
    table = pd.DataFrame(columns, columns=["truth", "low", "high"])
    return table.assign(shown=found.p_family.ravel() <= LEVEL, seed=seed)


def rates(table: pd.DataFrame) -> dict[str, float]:
    """Return error rates, power and coverage, in %, from the effects in all simulations of one design."""
    above, below = table["truth"] > table["high"], table["truth"] < table["low"]
    shown, size = table["shown"], table["truth"].abs()
    false = (shown & (size < NEGLIGIBLE)).groupby(table["seed"]).any()
    covered = ~above & ~below
    numbers = {"a false one shown": false, "real ones found": shown[size >= REAL], "covered": covered}
    numbers |= {"shown covered": covered[shown], "above": above[shown], "below": below[shown]}
    return {name: round(100 * float(values.mean()), 1) for name, values in numbers.items()}


def main() -> None:
    options = parse_options(
        __doc__, simulations=(100, "per design"), change=(False, "changes between two runs instead")
    )
    for change in ("nothing", "every effect halved") if options.change else ("no effect", None):
        rows = {}
        for name in PLANS:
            table = pd.concat([simulate(name, change, seed) for seed in range(options.simulations)])
            rows[name] = {"shown": int(table["shown"].sum())} | rates(table)
        print(f"\n{change or 'effects as planned'}, %\n{pd.DataFrame(rows).T.to_string()}", flush=True)


if __name__ == "__main__":
    main()
