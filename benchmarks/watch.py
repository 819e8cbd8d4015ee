"""How often `evenhand watch` names people who do not differ, and how soon it names those who do.

$ python -m benchmarks.watch                  # 1 minute of an idle core
$ python -m benchmarks.watch --streams 3      # in seconds

Each stream has 20 people whose requests differ in how often they are refused (6 of 100 on average). Some people are
refused more often. A name is wrong if the person is refused as often as all others, or in the wrong direction.
"""

import numpy as np

from benchmarks.measuring import parse_options
from evenhand.evaluation.statistics.betting import HIGHER, StreamTest

PEOPLE = 20
BASE = 0.06
CONCENTRATION = 8  # of the beta distribution of requests' shares
MARGIN = 0.02
ERROR = 0.05
N_STRATA = 30


def named_at(n: int, differing: int, gap: float, rng: np.random.Generator) -> dict[tuple[int, int], int]:
    """Return (person, direction) → the number of answers after which a stream of n answers names this person."""
    share = rng.beta(BASE * CONCENTRATION, (1 - BASE) * CONCENTRATION, N_STRATA)
    strata = rng.integers(N_STRATA, size=n)
    people = rng.integers(PEOPLE, size=n)
    chance = np.clip(share[strata] + gap * (people < differing), 0, 1)
    values = (rng.random(n) < chance).astype(float)
    test = StreamTest(1, margin=MARGIN, error=ERROR)
    named: dict[tuple[int, int], int] = {}
    for answer in range(n):
        found = test.add(str(strata[answer]), str(people[answer]), values[[answer]])
        for person, _, direction in found:
            named[int(person), direction] = answer + 1
    return named


def main() -> None:
    """Print a table of error rates and delays."""
    options = parse_options(__doc__, streams=100, answers=18_000)
    print("| people refused more often | points more | streams with a wrong name | found | median answers |")
    print("| --- | --- | --- | --- | --- |")
    for differing, gap in ((0, 0.0), (1, 0.10), (1, 0.25), (3, 0.25)):
        rng = np.random.default_rng(0)
        wrong = 0
        delays = []
        for _ in range(options.streams):
            named = named_at(options.answers, differing, gap, rng)
            right = {(person, HIGHER) for person in range(differing)}
            wrong += bool(named.keys() - right)
            delays += [named[key] for key in right & named.keys()]
        n_true = differing * options.streams
        median = f"{np.median(delays):,.0f}" if delays else "–"
        found = f"{len(delays)} of {n_true}" if n_true else "–"
        print(f"| {differing} of {PEOPLE} | {100 * gap:.0f} | {wrong} of {options.streams} | {found} | {median} |")


if __name__ == "__main__":
    main()
