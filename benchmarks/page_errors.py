"""Simulations of a whole page: how often an even one shows somebody, and how often intervals and bounds hold.

$ python -m benchmarks.page_errors                  # false findings of even pages, 30 minutes of one core
$ python -m benchmarks.page_errors --coverage       # of shown effects, all effects and the bound, 8 minutes
$ python -m benchmarks.page_errors --simulations 2  # a try, seconds

Even pages: 24 people, 16 templates, 12 styles, tested with 199 joint permutations. "Anything" is the share of pages on
which anything at all is called shown: a style, a whole shift, an outcome, or that people differ at all. It may be 5 %.

Coverage: 31 people, 13 templates, two answers a cell; one class or number, of which 6 people have another mean, so that
some are shown and others are not. "Bound" is the share of tables in which nobody is further from the average than
`difference_bound` says. Intervals of shown effects should hold in 95 %, bounds in 95 % or more.
"""

from collections.abc import Callable

import numpy as np
import pandas as pd

from benchmarks.measuring import parse_options
from evenhand.evaluation.statistics.cell_table import Design, SetOfTests
from evenhand.evaluation.statistics.person_effects import Effects, joint_effects
from evenhand.evaluation.statistics.simultaneous_tests import LEVEL

STYLES = 12
GROUPS = np.kron(np.eye(4), np.full(6, 1 / 6))  # four axes of six people
FEW_ANSWERS = 8  # people with one answer to a template, where counts are unequal
SCREENED = (0, 7, 14, 21)  # people with four answers to a template, where the others have one; one of each group
PLANTED = "screened and planted"


def even_page(kind: str, rng: np.random.Generator) -> tuple[Design, list[SetOfTests]]:
    """Return a page on which nobody is treated differently.

    Kinds: "plain"; "copies", three of each answer; "interaction", styles of each person and template at random;
    "temperature 0.3", nearly always the same style; "unequal", one answer to some people and eight to others;
    "noisier", these with styles that vary more; "logs", one to four answers; "missing", 15 % of the cells;
    "everything", six outcomes and two cues. "screened": four answers to the people SCREENED, as was decided before any
    answer, and one to the others; "screened with interaction": also styles of each person and template at random;
    "interaction of the screened": such styles of these people only; "screened and planted": as the second, and one of
    them gets another style in 20 % of the answers; of this page, only what is shown of the others is false.
    """
    people = 24
    templates = 16
    base = 0.5 * rng.dirichlet(np.full(STYLES, 0.6), templates) + 0.5 * rng.dirichlet(np.full(STYLES, 0.3))
    p = np.repeat(base[:, None], people, axis=1)
    counts = np.full((templates, people), 2)
    if kind in ("interaction", "screened with interaction", PLANTED):
        p = p * np.exp(rng.normal(0, 1, p.shape))
    if kind == "interaction of the screened":
        p[:, SCREENED] = p[:, SCREENED] * np.exp(rng.normal(0, 1.5, p[:, SCREENED].shape))
    if kind == "temperature 0.3":
        p = p ** (1 / 0.3)
    if kind in ("unequal", "noisier"):
        counts[:] = np.where(np.arange(people) < FEW_ANSWERS, 1, 8)
    if kind == "logs":
        counts = rng.integers(1, 5, counts.shape)
    if kind == "missing":
        counts = counts * (rng.random(counts.shape) > 0.15)
    if kind == "copies":
        counts[:] = 1
    p /= p.sum(axis=2, keepdims=True)
    if kind == PLANTED:
        p[:, SCREENED[0]] *= 0.8
        p[:, SCREENED[0], 0] += 0.2
    if "screened" in kind:
        counts[:] = np.where(np.isin(np.arange(people), SCREENED), 4, 1)
    template, person = np.indices(counts.shape).reshape(2, -1).repeat(counts.ravel(), axis=1)
    style = (p[template, person].cumsum(axis=1)[:, :-1] < rng.random((len(template), 1))).sum(axis=1)
    vectors = np.eye(STYLES)[style]
    if kind == "noisier":  # a classifier is surer of the answers of people with few of them
        mean = base[template]
        vectors = np.where((person < FEW_ANSWERS)[:, None], vectors, 0.5 * vectors + 0.5 * mean)
    if kind == "copies":
        template = np.repeat(template, 3)
        person = np.repeat(person, 3)
        vectors = np.repeat(vectors, 3, axis=0)
    test_sets = [
        SetOfTests("everybody", vectors, has_effects=False),
        SetOfTests("style", vectors, np.kron(np.eye(3), np.ones((4, 1))), has_overall=False),
    ]
    cue = None
    is_extra = None
    if "screened" in kind:
        cell = pd.Series(template * people + person)
        is_extra = cell.groupby(cell).cumcount().to_numpy() > 0
    if kind == "everything":
        cue = (template >= templates // 2).astype(int)
        test_sets += outcomes(style, rng) + cue_tests(vectors, cue)
    return Design(template, person, GROUPS, cue, is_extra), test_sets


def outcomes(style: np.ndarray, rng: np.random.Generator) -> list[SetOfTests]:
    """Return six outcomes, of which some depend on the style of the answer."""
    n = len(style)
    language = np.eye(4)[np.where(rng.random(n) < 0.2, style % 4, 0)]
    length = np.log1p(np.exp(rng.normal(3 + 0.2 * (style % 3), 0.8)))
    grade = pd.Series(rng.standard_t(3, n) + length).rank().to_numpy() / n
    return [
        SetOfTests("language", language),
        SetOfTests("refusal", (rng.random((n, 1)) < 0.03).astype(float)),
        SetOfTests("length", length[:, None], are_shares=False),
        SetOfTests("readability", grade[:, None], are_shares=False),
        SetOfTests("mention", (rng.random((n, 1)) < 0.4).astype(float)),
        SetOfTests("fluency", np.log1p(rng.exponential(1, (n, 1))), are_shares=False),
    ]


def cue_tests(vectors: np.ndarray, cue: np.ndarray) -> list[SetOfTests]:
    """Return whether people differ at all by each of two cues."""
    return [
        SetOfTests(f"cue {number}", np.where((cue == number)[:, None], vectors, np.nan), has_effects=False)
        for number in (0, 1)
    ]


KINDS = (
    "plain",
    "copies",
    "interaction",
    "temperature 0.3",
    "unequal",
    "noisier",
    "logs",
    "missing",
    "everything",
    "screened",
    "screened with interaction",
    "interaction of the screened",
    PLANTED,
)


def false_findings(kind: str, simulations: int, permutations: int) -> dict[str, float]:
    """Return the shares of even pages, in %, on which anything, and on which a set's own tests, show somebody."""
    shown = []
    for seed in range(simulations):
        rng = np.random.default_rng(seed)
        design, test_sets = even_page(kind, rng)
        found = joint_effects(design, test_sets, permutations, rng)
        page = smallest_false_p(kind, found)
        styles = min(found[1].p_set.min(), found[1].shift_p.min())
        of_planted = found[1].p_joint[SCREENED[0], 0] <= LEVEL
        of_page = (page <= LEVEL, styles <= LEVEL, found[0].overall_p <= LEVEL, found[0].unit == "answers", of_planted)
        shown.append(of_page)
    names = ("anything", "styles alone", "people at all, alone", "answers are the unit", "the planted one")
    return dict(zip(names, 100 * np.mean(shown, axis=0), strict=True))


def smallest_false_p(kind: str, found: list[Effects]) -> float:
    """Return the smallest p-value of all that is false on a page: on a planted one, of the other people and groups."""
    if kind != PLANTED:
        return min(min(each.p_joint.min(), each.shift_joint.min(), each.overall_joint) for each in found)
    styles = found[1]
    first_group = len(styles.shift_joint)
    p_of_others = np.delete(styles.p_joint, [SCREENED[0], first_group], axis=0)
    return min(p_of_others.min(), np.delete(styles.shift_joint, SCREENED[0]).min())


def share(average: float) -> Callable[[np.ndarray, np.random.Generator], np.ndarray]:
    """Return a sampler of a class that 25 people get with the probability `average`, and 6 nearer to ½."""

    def sample(person: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        other = np.clip(average + np.sign(0.5 - average + 1e-9) * np.linspace(0.1, 0.45, 6), 0.02, 0.98)
        probability = np.concatenate([other, np.full(25, average)])
        return (rng.random(len(person)) < probability[person]).astype(float)

    return sample


def shifted(
    noise: Callable[[np.random.Generator, int], np.ndarray], spread: np.ndarray | None = None
) -> Callable[[np.ndarray, np.random.Generator], np.ndarray]:
    """Return a sampler of a number with this noise, times each person's spread, and other means for 6 people."""

    def sample(person: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        mean = np.concatenate([np.linspace(0.3, 2.0, 6), np.zeros(25)])
        scale = np.ones(31) if spread is None else spread
        return mean[person] + scale[person] * noise(rng, len(person))

    return sample


DIFFERENT_SPREAD = np.where(np.arange(31) % 3 == 0, 2.0, 1.0)
# name: (sampler, whether the values are shares, scale of analysis)
COLUMNS = {
    "average 0.03": (share(0.03), True),
    "average 0.3": (share(0.3), True),
    "average 0.5": (share(0.5), True),
    "average 0.9": (share(0.9), True),
    "average 0.97": (share(0.97), True),
    "average 0.03 screened": (share(0.03), True),
    "average 0.3 screened": (share(0.3), True),
    "log of lengths, normal": (shifted(lambda rng, n: rng.normal(0, 1, n)), False),
    "log of lengths, heavy tails": (shifted(lambda rng, n: rng.standard_t(3, n)), False),
    "people of different spread": (shifted(lambda rng, n: rng.normal(0, 1, n), DIFFERENT_SPREAD), False),
}


def coverage(name: str, simulations: int, permutations: int) -> dict[str, float]:
    """Return how often intervals of shown effects, those of others, and the bound hold, in %."""
    sample, are_shares = COLUMNS[name]
    counts = np.where(np.isin(np.arange(31), SCREENED) & ("screened" in name), 8, 2)
    template, person = np.indices((13, 31)).reshape(2, -1).repeat(np.tile(counts, 13), axis=1)
    cell = pd.Series(template * 31 + person)
    design = Design(template, person, np.zeros((0, 31)), is_extra=cell.groupby(cell).cumcount().to_numpy() >= 2)
    large = np.random.default_rng(0)
    means = np.array([sample(np.full(200_000, each), large).mean() for each in range(31)])
    truth = means - means.mean()
    rows = []
    for seed in range(simulations):
        rng = np.random.default_rng(seed)
        test_set = SetOfTests(name, sample(person, rng)[:, None], are_shares=are_shares, has_overall=False)
        found = joint_effects(design, [test_set], permutations, rng)[0]
        low = found.low[:, 0]
        high = found.high[:, 0]
        shown = found.p_joint[:, 0] <= LEVEL
        covered = (low <= truth) & (truth <= high)
        ends = np.where(shown, np.maximum(np.abs(low), np.abs(high)), found.at_most[:, 0])
        false = (shown & (np.abs(truth) < 0.002 + np.abs(truth).max() / 20)).any()
        is_detectable = np.abs(truth) >= found.detectable[:, 0]
        row = [covered[shown].sum(), shown.sum(), covered[~shown].sum(), (~shown).sum(), np.nanmax(ends), false]
        rows.append([*row, (shown & is_detectable).sum(), is_detectable.sum()])
    table = np.array(rows, dtype=float)
    total = table.sum(axis=0)
    return {
        "shown": total[1],
        "shown covered": 100 * total[0] / max(total[1], 1),
        "others covered": 100 * total[2] / max(total[3], 1),
        "bound holds": 100 * np.mean(table[:, 4] >= np.abs(truth).max()),
        "a false one": 100 * table[:, 5].mean(),
        "found of detectable": 100 * total[6] / max(total[7], 1),
    }


def main() -> None:
    options = parse_options(
        __doc__,
        simulations=(1000, "of each kind"),
        permutations=(199, "joint permutations"),
        coverage=(False, "coverage instead of false findings"),
        kinds=(list(KINDS), "kinds of even pages"),
        columns=(list(COLUMNS), "columns of which the coverage is simulated"),
    )
    names, simulate = (options.columns, coverage) if options.coverage else (options.kinds, false_findings)
    for name in names:
        found = simulate(name, options.simulations, options.permutations)
        print(f"{name}: {', '.join(f'{key} {value:.1f}' for key, value in found.items())}", flush=True)


if __name__ == "__main__":
    main()
