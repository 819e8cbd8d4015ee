"""Simulations of the effects in a report: false effects, missed effects, and the coverage of intervals.

$ python -m benchmarks.effects                            # the table of docs/benchmarks/accuracy.md, a minute
$ python -m benchmarks.effects --change                   # changes between two runs, 2 minutes
$ python -m benchmarks.effects --parts --simulations 300  # coverage of the parts of person and word, 2 minutes
$ python -m benchmarks.effects --rare --simulations 150   # coverage where one person's outcome varies more, a minute
$ python -m benchmarks.effects --simulations 1            # a try, seconds

Styles of 60 descriptors, in 6 axes and 20 buckets, are sampled from probabilities that differ by descriptor as planned
(`PLANS`); the vectors are one-hot, or smooth for the axis. Effects are tested in one set, so that the numbers are
those of each test before the correction over families. "Covered" is the share of intervals that contain the true
effect, for all effects and for the shown ones; otherwise the truth is above or below the interval. True effects below
half a percentage point count as none, from 2 points as real. "Even" is the share of simulations in which no true effect
is above `difference_bound`, "uneven" that in which the largest one is above its lower bound. Changes: the second run
has the same probabilities, or half of every effect.
"""

from collections.abc import Callable
from functools import partial
from itertools import product

import numpy as np
import pandas as pd

from benchmarks.measuring import parse_options
from evenhand.evaluation import columns
from evenhand.evaluation.metrics.generation_bias.engine.effects import SHOWN, difference_bound
from evenhand.evaluation.statistics.cell_table import Design, SetOfTests
from evenhand.evaluation.statistics.cells import arrange_cells
from evenhand.evaluation.statistics.person_effects import changed_effects, joint_effects
from evenhand.evaluation.statistics.synonyms import person_and_word

DESCRIPTORS = 60
STYLES = 28
PERMUTATIONS = 99
NEGLIGIBLE = 0.005
REAL = 0.02
LEVEL = 0.05
GROUPS = [np.kron(np.eye(DESCRIPTORS // size), np.full(size, 1 / size)) for size in (10, 3)]  # axes, buckets
UNITS = np.concatenate([np.eye(DESCRIPTORS), *GROUPS])


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


def mixed(p: np.ndarray, rng: np.random.Generator) -> None:
    single = [(rng.integers(STYLES), [descriptor]) for descriptor in range(20, 50, 5)]
    for style, descriptors in [(0, range(10)), (1, range(12, 15)), *single]:
        for descriptor in descriptors:
            add(p, descriptor, style, rng.uniform(0.1, 0.3))


# design: (function that plants the effects, templates, responses to a cell)
PLANS: dict[str, tuple[Callable, int, int | str]] = {
    "12 descriptors by 5 to 50 points": (few, 26, 2),
    "the same, in one style": (partial(few, styles=1), 26, 2),
    "the same, 2 to 8 responses": (few, 10, "2 to 8"),
    "everybody, log odds N(0, ½²)": (everybody, 26, 4),
    "an axis of 10 by 10 to 40 points": (axis, 26, 4),
    "an axis, a bucket, 6 descriptors": (mixed, 26, 2),
}


def responses(p: np.ndarray, counts: np.ndarray, is_smooth: bool, rng: np.random.Generator) -> np.ndarray:
    """Return style vectors sampled from the probabilities, `counts` for each template and descriptor, (n, styles)."""
    rows = np.repeat(p.reshape(-1, STYLES).cumsum(axis=1), counts, axis=0)
    vectors = np.eye(STYLES)[(rows[:, :-1] < rng.random((len(rows), 1))).sum(axis=1)]
    if not is_smooth:
        return vectors
    return 0.75 * vectors + 0.25 * rng.dirichlet(np.full(STYLES, 0.3), size=len(rows))


def simulate(name: str, change: str | None, seed: int) -> pd.DataFrame:
    """Return the effects in a simulated measurement, or their changes to a second one, with the truth."""
    rng = np.random.default_rng(seed)
    (plant, templates, answers_per_cell) = PLANS[name]
    even = 0.5 * rng.dirichlet(np.full(STYLES, 0.6), size=templates) + 0.5 * rng.dirichlet(np.full(STYLES, 0.3))
    p = np.repeat(even[:, None], DESCRIPTORS, axis=1)  # (templates, descriptors, styles)
    if change != "no effect":
        plant(p, rng)
    sides = [p]
    if change == "nothing":
        sides.append(p)
    elif change == "every effect halved":
        sides.append((even[:, None] + p) / 2)
    size = templates * DESCRIPTORS
    counts = rng.integers(2, 9, size) if answers_per_cell == "2 to 8" else np.full(size, answers_per_cell)
    template, descriptor = np.divmod(np.arange(size).repeat(counts), DESCRIPTORS)
    is_smooth = plant is axis
    test_sets = [SetOfTests("style", responses(side, counts, is_smooth, rng), has_overall=False) for side in sides]
    design = Design(template, descriptor, UNITS[DESCRIPTORS:])
    difference = sides[-1] if len(sides) == 1 else sides[1] - sides[0]
    truth = (0.75 if is_smooth else 1.0) * difference.mean(axis=0)
    truth = UNITS @ (truth - truth.mean(axis=0))
    if len(sides) == 1:
        found = joint_effects(design, test_sets, PERMUTATIONS, rng)[0]
    else:
        before, after = test_sets
        effects_before = joint_effects(design, [before], 0, rng)[0]
        effects_after = joint_effects(design, [after], 0, rng)[0]
        found = changed_effects(design, before, after, effects_before, effects_after, PERMUTATIONS, rng)
    names = np.stack([truth, found.low, found.high]).reshape(3, -1).T
    table = pd.DataFrame(names, columns=["truth", "low", "high"])
    kind = np.repeat([columns.DESCRIPTOR, "axis", "bucket"], [STYLES * n for n in (DESCRIPTORS, *map(len, GROUPS))])
    table = table.assign(kind=kind, unit="any", outcome="style", n=counts.sum(), seed=seed)
    shown = found.p_set.ravel() <= LEVEL
    return table.assign(
        shown=shown,
        certainty=np.where(shown, SHOWN, ""),
        at_most=found.at_most.ravel(),
        at_least=found.at_least.ravel(),
    )


def rates(table: pd.DataFrame) -> dict[str, float]:
    """Return error rates, power and coverage, in %, from the effects in all simulations of one design."""
    above = table["truth"] > table["high"]
    below = table["truth"] < table["low"]
    shown = table["shown"]
    size = table["truth"].abs()
    false = (shown & (size < NEGLIGIBLE)).groupby(table["seed"]).any()
    covered = ~above & ~below
    numbers = {"a false one shown": false, "covered": covered}
    for kind in table["kind"].unique():
        numbers[f"{kind} found"] = shown[(size >= REAL) & (table["kind"] == kind)]
    largest = size.groupby(table["seed"]).max()
    bounds = pd.DataFrame([difference_bound(one).interval for _, one in table.groupby("seed")], columns=["low", "high"])
    numbers["even"] = bounds["high"] >= largest.to_numpy()
    numbers["uneven"] = bounds["low"] <= largest.to_numpy()
    numbers["shown covered"] = covered[shown]
    numbers["above"] = above[shown]
    numbers["below"] = below[shown]
    return {name: round(100 * float(values.mean()), 1) for name, values in numbers.items()}


def parts(simulations: int) -> pd.DataFrame:
    """Return the coverage, in %, of the intervals of the parts of person and word, of normal vectors of 4 columns."""
    sizes = (np.full(12, 2), np.full(60, 3), np.arange(40) % 6 + 1)  # words of each bucket
    rows = {}
    for words, (person, word) in product(sizes, ((1, 0), (0, 1), (1, 1))):
        rng = np.random.default_rng(0)
        bucket = np.repeat(np.arange(len(words)), words)
        template, descriptor = np.divmod(np.arange(10 * len(bucket)).repeat(2), len(bucket))
        hits = []
        for _ in range(simulations):
            means = person * rng.normal(size=(len(words), 4))[bucket] + word * rng.normal(size=(len(bucket), 4))
            vectors = means[descriptor] + 3 * rng.normal(size=(len(descriptor), 4))
            found = person_and_word(arrange_cells(vectors, template, descriptor), bucket)
            row = []
            for part, truth in zip(found, (person, word), strict=True):
                low, high = part.interval
                row.append(low <= 4 * truth <= high)
            hits.append(row)
        name = f"{len(words)} buckets of {words.min()} to {words.max()} words; person {person}, word {word}"
        of_person, of_word = 100 * np.mean(hits, axis=0)
        rows[name] = {"person": of_person, "word": of_word}
    return pd.DataFrame(rows).T


def rare(simulations: int) -> pd.DataFrame:
    """Return the coverage, in %, of the intervals of a person whose answers have a rare value more often than others'.

    Six people answer 8 requests, or 60 people 26. 98 % of the answers of others have 5 stars, of this person 80 %, and
    the rest 1 or 2. "stars" are their logarithms, "solved" is whether there are 5.
    """
    rows = {}
    for people, templates, answers_per_cell in ((6, 8, 6), (60, 26, 2)):
        template, cell = np.divmod(np.arange(templates * people * answers_per_cell), people * answers_per_cell)
        person = cell // answers_per_cell
        share = np.where(np.arange(people) == 0, 0.80, 0.98)
        design = Design(template, person, np.zeros((0, people)))
        means = {"solved": share, "stars": share * np.log(6) + (1 - share) * np.log([2, 3]).mean()}
        hits: dict[str, list[np.ndarray]] = {name: [] for name in means}
        for seed in range(simulations):
            rng = np.random.default_rng(seed)
            is_solved = rng.random(len(person)) < share[person]
            stars = np.where(is_solved, np.log(6), np.log(rng.integers(2, 4, len(person))))
            test_sets = [
                SetOfTests("solved", is_solved[:, np.newaxis].astype(float)),
                SetOfTests("stars", stars[:, np.newaxis], are_shares=False),
            ]
            for test_set, found in zip(test_sets, joint_effects(design, test_sets, PERMUTATIONS, rng), strict=True):
                truth = means[test_set.name] - means[test_set.name].mean()
                hits[test_set.name].append((found.low[:, 0] <= truth) & (truth <= found.high[:, 0]))
        for name, covered in hits.items():
            of_people = np.mean(covered, axis=0)
            row = {"the person": of_people[0], "the others": of_people[1:].mean()}
            rows[f"{people} people, {templates} requests, {name}"] = row
    return 100 * pd.DataFrame(rows).T


def main() -> None:
    options = parse_options(
        __doc__,
        simulations=(40, "per design"),
        change=(False, "changes between two runs instead"),
        parts=(False, "parts of person and word instead"),
        rare=(False, "a person with a rare value instead"),
        plans=(list(PLANS), "designs"),
    )
    if options.rare:
        return print(rare(options.simulations).round(1).to_string())
    if options.parts:
        return print(parts(options.simulations).round(1).to_string())
    for change in ("nothing", "every effect halved") if options.change else ("no effect", None):
        rows = {}
        for name in options.plans:
            table = pd.concat([simulate(name, change, seed) for seed in range(options.simulations)], ignore_index=True)
            rows[name] = {"shown": int(table["shown"].sum())} | rates(table)
        print(f"\n{change or 'effects as planned'}, %\n{pd.DataFrame(rows).T.to_string()}", flush=True)


if __name__ == "__main__":
    main()
