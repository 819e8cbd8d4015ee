"""A simulation of measurements that stop as soon as they are decided (`evaluation.statistics.sequential`).

$ python -m benchmarks.sequential                                   # stopping and coverage, 4 minutes of one core
$ python -m benchmarks.sequential --gates --simulations 200         # gates alone, a minute
$ python -m benchmarks.sequential --baselines --simulations 100000  # gates whose baseline stopped early, seconds
$ python -m benchmarks.sequential --pages --simulations 150         # false findings at all looks, 3 minutes
$ python -m benchmarks.sequential --bounds --simulations 100        # bounds of single differences, 5 minutes
$ python -m benchmarks.sequential --differences --simulations 8     # the largest difference of anybody, 4 minutes
$ python -m benchmarks.sequential --simulations 2                   # a try, seconds

Models are even, or their bias is 2, 4 or 8 of 100 answers (√(pooled FGB* / 2), the headline of a report). Style vectors
are smooth, and every person has something of their own on each template (an interaction). In each simulation people,
templates and responses are new, so that the true pooled FGB*, the variance between the people of their mean styles over
all such templates, is exactly as planted.

*Questions.* "Size": whether the bias is small, medium or large, with limits of 2 and 5 of 100. "Limit 3": whether it is
below or above 3 of 100. "Gate": whether a second model, paired by prompt, has a pooled FGB* that is at most GATE_RISE
larger; its bias is the same, or on this limit. "Differences": whether anybody differs from the average by more than a
limit in a style. A measurement stops at the first look that decides the question, else at the end.

*Baselines.* A gate whose baseline stopped early errs where a baseline that chance made more biased stops sooner. The
estimates are normal, with the information t² of the plan, and the second model is exactly on the limit.

*Rules.* "hsd −4" is the rule of Evenhand. Others have its looks: other spending functions, and "mixture", a confidence
sequence by a normal mixture (Robbins 1970, "Statistical methods related to the law of the iterated logarithm"), which
allows a look at each answer. "95 %" stops by ordinary intervals. "After stopping" is the narrower interval that is
reported where a decision was the reason to stop.
"""

import math
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
import scipy

from benchmarks.coverage import STYLES, draw
from benchmarks.measuring import parse_options
from benchmarks.page_errors import COLUMNS, even_page
from evenhand.evaluation.statistics.cell_noise import components
from evenhand.evaluation.statistics.cell_table import Design, SetOfTests
from evenhand.evaluation.statistics.cells import arrange_cells
from evenhand.evaluation.statistics.descriptor_spread import Estimate, slope_of_variance
from evenhand.evaluation.statistics.level import Level
from evenhand.evaluation.statistics.person_effects import Effects, joint_effects
from evenhand.evaluation.statistics.person_pairs import LEAST_NOISE, pooled_spread
from evenhand.evaluation.statistics.sequential import (
    LookPlan,
    boundaries,
    decided_range,
    interval_after_stopping,
    plan_looks,
    rounds_of,
    spent_error,
)
from evenhand.evaluation.statistics.simultaneous_tests import LEVEL

TEMPLATES = 26
SIZES = {"full": (200, 4), "3,120": (60, 2)}  # people, answers to a cell
MOVED = {"even": 0.0, "2 of 100": 0.02, "4 of 100": 0.04, "8 of 100": 0.08}  # √(pooled FGB* / 2)
INTERACTION = 0.1  # share of a response's style that depends on person and template together
NARROW = np.array([36.0, 6.0, 3.0, *[0.6] * (STYLES - 3)])  # templates, as `narrow` in `coverage`
UNIFORM = 0.05  # share of a style that is the same everywhere, so that no style is too rare for `draw`
MAX_DIFFERENCES = (0.05, 0.2, 0.4)  # limits of the largest difference
QUESTIONS = {"size": (0.02, 0.05), "limit 3": (0.03,)}
GATED = 0.04
AT_LIMIT = 0.05  # of 100, the second model's bias that is on the limit
GATE_RISE = AT_LIMIT**2 / GATED**2 - 1  # of pooled FGB*, from 4 to 5 of 100
ROUNDING = 1e-12
MOST_AFTER_STOPPING = 300  # runs whose interval after stopping is computed, which takes longest
BOUNDED = ("average 0.3", "log of lengths, normal")  # of `page_errors.COLUMNS`
EVEN_PAGE_ROUNDS = 32  # 16 templates, two answers to each
DISTANCES = (0.0, 1.0, 2.0, 3.0, 6.0)  # of a baseline's bias above its limit, in standard errors at the end
MIXTURE_SCALE = 0.1  # information at which the mixture's boundary is tightest, as a fraction of the whole
FIRST = np.repeat([1.0, 0.0], STYLES)


def spread_of(moved: float) -> float:
    """Return pooled FGB* of a bias that is given as a share of answers.

    >>> round(spread_of(0.05), 4)
    0.005
    """
    return 2 * moved**2


@dataclass(frozen=True)
class Population:
    """New people and templates.

    Attributes:
        of_person: a style vector of each person, (people, styles).
        of_template: a style vector of each template, (templates, styles).
        of_cell: a style vector of each person on each template, (people, templates, styles).
    """

    of_person: np.ndarray
    of_template: np.ndarray
    of_cell: np.ndarray

    @classmethod
    def new(cls, n_people: int, rng: np.random.Generator) -> "Population":
        """Return new people on new templates."""
        return cls(
            of_person=rng.dirichlet(np.full(STYLES, 0.3), n_people),
            of_template=(1 - UNIFORM) * rng.dirichlet(NARROW, TEMPLATES) + UNIFORM / STYLES,
            of_cell=rng.dirichlet(np.full(STYLES, 0.3), (n_people, TEMPLATES)),
        )

    def share(self, moved: float) -> float:
        """Return the share of a response's style that depends on the person alone, at a bias."""
        return math.sqrt(spread_of(moved) / self.of_person.var(axis=0, ddof=1).sum())

    def mean_styles(self, moved: float) -> np.ndarray:
        """Return the mean style vectors of a model with a bias, (people × templates, styles).

        The variance between people of their mean over all such templates is exactly as `moved` says.
        """
        share = self.share(moved)
        rest = (1 - share - INTERACTION) * self.of_template
        return (rest + share * self.of_person[:, None] + INTERACTION * self.of_cell).reshape(-1, STYLES)

    def largest_difference(self, moved: float) -> float:
        """Return the largest difference of anybody's mean over all such templates from the average, in any style."""
        return self.share(moved) * float(np.abs(self.of_person - self.of_person.mean(axis=0)).max())


def estimates_at_looks(vectors: np.ndarray, looks: LookPlan, weights: np.ndarray) -> list[Estimate]:
    """Return pooled FGB*, or its difference between two runs, at each look.

    Args:
        vectors: style vectors, (answers to a cell, people, templates, columns); a round is an answer and a template.
        looks: the planned looks.
        weights: weight of each column.
    """
    result = []
    for n_rounds in looks.rounds:
        n_full, n_more = divmod(n_rounds, TEMPLATES)
        sums = vectors[:n_full].sum(axis=0, dtype=np.float64)
        count = np.full(TEMPLATES, n_full)
        if n_more:
            sums[:, :n_more] += vectors[n_full, :, :n_more]
            count[:n_more] += 1
        has = count > 0
        result.append(spread_of_complete_table(sums[:, has] / count[has, None], weights))
    return result


def spread_of_complete_table(mean: np.ndarray, w: np.ndarray) -> Estimate:
    """Return `pooled_spread` of cell means without gaps, (people, templates, columns), ten times as fast.

    In a complete table all pairs of people have one coefficient, the fitted people are means, and Σ_{d≠e} ‖S_d − S_e‖²
    is 2 D Σ_d ‖S_d‖², if S_d is the sum of a person's cells, less the mean over people.
    """
    n_people, n_templates, _ = mean.shape
    pairs_of_templates = n_templates * (n_templates - 1)
    mean = mean - mean.mean(axis=0)
    people = mean.mean(axis=1)
    squared_sums = n_templates**2 * (people**2) @ w
    value = float((squared_sums - (mean**2 @ w).sum(axis=1)).sum()) / ((n_people - 1) * pairs_of_templates)

    residual = (mean - people[:, None]) * math.sqrt(n_people / (n_people - 1))
    products = (residual * w) @ residual.transpose(0, 2, 1)
    squares = (products**2).sum(axis=(1, 2))
    freedom = n_templates - 1
    coefficient = 1 / (n_people * (n_people - 1) * pairs_of_templates)
    factor = 2 * pairs_of_templates * ((n_people - 1) * coefficient) ** 2
    lengths = np.diagonal(products, axis1=1, axis2=2)
    squared_lengths = (lengths**2).sum(axis=1)
    _, zeta_2 = components(n_templates, squares - squared_lengths, squared_lengths, -lengths.sum(axis=1))
    plain_noise = factor * squares / freedom**2
    covariance = np.einsum("dtc,dte->ce", residual, residual) / freedom
    between = float(w @ covariance**2 @ w) - float(squares.sum()) / freedom**2
    noise = max(factor * float(np.sum(zeta_2)), LEAST_NOISE * float(plain_noise.sum()))
    noise += 2 * coefficient**2 * pairs_of_templates * max(between, 0.0)
    direction = coefficient * freedom * n_people * people
    pulled = np.einsum("dc,dtc->dt", direction * w, residual)
    linear = 4 * n_templates * float((pulled**2).sum()) / freedom
    variance = noise + max(linear - noise, 0.0)
    slope = None
    if (w >= 0).all():
        raw_spread = float(((people**2) @ w).sum()) / (n_people - 1)
        slope = slope_of_variance(value, variance, noise, raw_spread, raw_variance=linear)
    satterthwaite = float(plain_noise.sum() ** 2 / (plain_noise**2 / freedom).sum())
    return Estimate(value, variance, noise, slope, satterthwaite)


def check_against_pooled_spread(rng: np.random.Generator) -> None:
    """Raise ValueError unless `spread_of_complete_table` is equal to `pooled_spread`."""
    n_people = 20
    p = Population.new(n_people, rng).mean_styles(0.05)
    cell = np.tile(np.arange(n_people * TEMPLATES), 2)
    vectors = np.hstack([draw(p, cell, False, rng), draw(p, cell, False, rng)])
    cells = arrange_cells(vectors, cell % TEMPLATES, cell // TEMPLATES, min_count=1)
    for weights in (FIRST, 1 - 2 * FIRST):
        expected = pooled_spread(cells, weights)
        table = vectors.reshape(2, n_people, TEMPLATES, -1).mean(axis=0, dtype=np.float64)
        found = spread_of_complete_table(table, weights)
        for name in ("value", "variance", "noise", "slope", "freedom"):
            pair = np.array([getattr(estimate, name) or 0.0 for estimate in (found, expected)])
            if not math.isclose(*pair, rel_tol=1e-6):
                raise ValueError(f"{name} is {pair[0]}, in pooled_spread {pair[1]}")


def simulate(size: str, moved: float, second: float | None, rng: np.random.Generator) -> list[Estimate]:
    """Return pooled FGB* of a new model at each look; with the bias of a second model, how much it exceeds the limit.

    The excess is pooled FGB* of the second model less (1 + GATE_RISE) × that of the first, paired by prompt. If both
    models are equal, half of the second one's responses have the random numbers of the first, and so repeat them.
    """
    n_people, n_answers = SIZES[size]
    people = Population.new(n_people, rng)
    cell = np.tile(np.arange(n_people * TEMPLATES), n_answers)
    shape = (n_answers, n_people, TEMPLATES, -1)
    looks = plan_looks(TEMPLATES * n_answers)
    vectors = draw(people.mean_styles(moved), cell, False, rng)
    if second is None:
        return estimates_at_looks(vectors.reshape(shape), looks, np.ones(STYLES))
    is_new = rng.random((len(cell), 1)) < (0.5 if second == moved else 1.0)
    after = np.where(is_new, draw(people.mean_styles(second), cell, False, rng), vectors)
    weights = np.repeat([-(1 + GATE_RISE), 1.0], STYLES)
    return estimates_at_looks(np.hstack([vectors, after]).reshape(shape), looks, weights)


def tails(looks: LookPlan) -> dict[str, np.ndarray]:
    """Return the probability below the upper quantile of the intervals at each look, (K,), of each rule."""
    t = looks.fraction
    information = t**2
    one_side = LEVEL / 2

    def spending(share: np.ndarray) -> np.ndarray:
        return scipy.special.ndtr(boundaries(information, one_side * share))

    o_brien_fleming = 2 * scipy.special.ndtr(scipy.special.ndtri(one_side / 2) / np.sqrt(t)) / one_side
    odds = (information + MIXTURE_SCALE) / (MIXTURE_SCALE * LEVEL**2)
    mixture = np.sqrt((1 + MIXTURE_SCALE / information) * np.log(odds))
    return {
        "hsd −4": looks.tail,
        "O'Brien–Fleming": spending(o_brien_fleming),
        "hsd −2": spending(spent_error(t, gamma=-2.0)),
        "Pocock": spending(np.log1p((math.e - 1) * t)),
        "mixture": scipy.special.ndtr(mixture),
        "95 %": np.full(len(t), 1 - one_side),
    }


def intervals_at_looks(runs: list[list[Estimate]], tail: np.ndarray) -> np.ndarray:
    """Return the bounds of the interval of each run at each look, (n, K, 2)."""
    bounds = []
    for run in runs:
        bounds.append(
            [
                replace(estimate, level=Level(tail=float(at_look))).interval
                for estimate, at_look in zip(run, tail, strict=True)
            ]
        )
    return np.array(bounds)


def summary(intervals: np.ndarray, looks: LookPlan, limits: list[float], truth: float | np.ndarray) -> dict[str, float]:
    """Return what a rule reaches in n runs, in %.

    Args:
        intervals: bounds of the intervals of each run at each look, (n, K, 2).
        looks: the planned looks.
        limits: limits of pooled FGB*, or of its difference, between which a range is decided.
        truth: the true value, of each run or of all.

    Returns:
        Mean number of answers; runs that ask half of the answers at most; runs that are decided; runs that decide on a
        range without the truth; intervals at the stop that contain the truth; runs in which the interval of some look
        does not contain the truth, stopped or not.
    """
    decided = np.array([[decided_range(bounds, limits) for bounds in run] for run in intervals], dtype=np.float64)
    is_decided = np.isfinite(decided)
    at = np.where(is_decided.any(axis=1), is_decided.argmax(axis=1), len(looks.rounds) - 1)
    runs = np.arange(len(intervals))
    fraction = looks.fraction[at]
    truth = np.broadcast_to(truth, len(intervals))
    holds = (intervals[:, :, 0] <= truth[:, None]) & (truth[:, None] <= intervals[:, :, 1])
    ranges = (-math.inf, *limits, math.inf)
    below = np.array(ranges)[:-1]
    above = np.array(ranges)[1:]
    chosen = np.where(is_decided[runs, at], decided[runs, at], 0).astype(int)
    is_wrong = is_decided[runs, at] & ((truth < below[chosen] - ROUNDING) | (truth > above[chosen] + ROUNDING))
    row = {
        "answers": fraction.mean(),
        "half at most": (fraction <= 0.5).mean(),
        "decided": is_decided.any(axis=1).mean(),
        "wrong": is_wrong.mean(),
        "holds at the stop": holds[runs, at].mean(),
        "some look misses": (~holds).any(axis=1).mean(),
    }
    return {name: round(100 * float(value), 1) for name, value in row.items()}


def print_rules(
    name: str, runs: list[list[Estimate]], looks: LookPlan, questions: dict[str, list[float]], truth: float
) -> None:
    """Print what each rule reaches in simulated runs, a table for each question."""
    intervals = {rule: intervals_at_looks(runs, tail) for rule, tail in tails(looks).items()}
    for question, limits in questions.items():
        rows = {rule: summary(bounds, looks, limits, truth) for rule, bounds in intervals.items()}
        print(f"\n{name}; {question}, %\n{pd.DataFrame(rows).T.to_string()}", flush=True)
        print("after stopping:", after_stopping(runs[:MOST_AFTER_STOPPING], looks, limits, truth), flush=True)


def after_stopping(runs: list[list[Estimate]], looks: LookPlan, limits: list[float], truth: float) -> dict[str, float]:
    """Return what the interval of `interval_after_stopping` reaches by Evenhand's rule, in %.

    Returns:
        Intervals that contain the truth, lie below it and above it; those that are within the decided range; their
        mean width, as a share of the width of the interval of the look, and of the ordinary one at the end.
    """
    rows = []
    for run in runs:
        for look, estimate in enumerate(run):
            at_look = replace(estimate, level=looks.level(look)).interval
            decided = decided_range(at_look, limits)
            if decided is not None or look == len(run) - 1:
                break
        low, high = interval_after_stopping(estimate, looks, look, limits)
        ordinary = run[-1].interval
        is_consistent = decided is None or decided_range((low, high), limits) == decided
        row = (low <= truth <= high, high < truth, low > truth, is_consistent, high - low)
        rows.append((*row, at_look[1] - at_look[0], ordinary[1] - ordinary[0]))
    *shares, width, of_look, of_end = np.mean(rows, axis=0)
    numbers = dict(zip(("holds", "below", "above", "within the range"), shares, strict=True))
    numbers["width, of the look's"] = width / of_look
    numbers["width, of the end's"] = width / of_end
    return {name: round(100 * float(value), 1) for name, value in numbers.items()}


def stopping(simulations: int, sizes: list[str], seed: int) -> None:
    """Print a table for each size, model and question: what each rule reaches."""
    questions = {question: [spread_of(share) for share in shares] for question, shares in QUESTIONS.items()}
    for size in sizes:
        n_answers = SIZES[size][1]
        looks = plan_looks(TEMPLATES * n_answers)
        for number, (model, moved) in enumerate(MOVED.items()):
            rng = np.random.default_rng((seed, number, n_answers))
            runs = [simulate(size, moved, None, rng) for _ in range(simulations)]
            print_rules(f"{size}; {model}", runs, looks, questions, truth=spread_of(moved))
        gate(simulations, size, seed)


def gate(simulations: int, size: str, seed: int) -> None:
    """Print a table for two equal models, and for two of which the second one's bias is on the limit."""
    looks = plan_looks(TEMPLATES * SIZES[size][1])
    for number, second in enumerate((GATED, AT_LIMIT)):
        rng = np.random.default_rng((seed, len(MOVED) + number, SIZES[size][1]))
        runs = [simulate(size, GATED, second, rng) for _ in range(simulations)]
        truth = spread_of(second) - (1 + GATE_RISE) * spread_of(GATED)
        name = f"{size}; {100 * GATED:.0f} of 100, then {100 * second:.0f}"
        print_rules(name, runs, looks, {"gate": [0.0]}, truth)


def errors_at_looks(simulations: int, looks: LookPlan, rng: np.random.Generator) -> np.ndarray:
    """Return errors of normal estimates with the information t², in standard errors of each look, (n, K)."""
    information = looks.fraction**2
    steps = np.sqrt(np.diff(information, prepend=0.0))
    return (rng.normal(size=(simulations, len(steps))) * steps).cumsum(axis=1) / np.sqrt(information)


def gates_after_stopped_baselines(simulations: int, seed: int) -> pd.DataFrame:
    """Return how often a gate is wrong, in %, whose baseline stopped when its bias was decided, by DISTANCES.

    The second model, which answers all prompts of the baseline, is exactly on the limit of the rise, so that a gate
    that holds is wrong, and so is one that is broken. The errors of after − (1 + rise) × before are then a multiple of
    the difference between the errors of both models, whatever the rise.

    Returns:
        A row for each distance: baselines that stopped early; gates that hold and that are broken by ordinary 95 %
        intervals, the same of the baselines that stopped early, and by intervals that account for the look.
    """
    looks = plan_looks(TEMPLATES * SIZES["3,120"][1])
    quantile = scipy.special.ndtri(looks.tail)
    ordinary = scipy.special.ndtri(1 - LEVEL / 2)
    rng = np.random.default_rng(seed)
    each = np.arange(simulations)
    rows = {}
    for distance in DISTANCES:
        baseline = errors_at_looks(simulations, looks, rng)
        second = errors_at_looks(simulations, looks, rng)
        above_limit = distance * looks.fraction + baseline
        is_decided = np.abs(above_limit) > quantile
        is_decided[:, -1] = True
        stop = is_decided.argmax(axis=1)
        is_early = stop < len(quantile) - 1
        excess = ((second - baseline) / math.sqrt(2))[each, stop]
        rows[distance] = {
            "early": is_early.mean(),
            "ordinary: holds": (excess < -ordinary).mean(),
            "broken": (excess > ordinary).mean(),
            "of the early: holds": (excess < -ordinary)[is_early].mean(),
            "of the early: broken": (excess > ordinary)[is_early].mean(),
            "accounts: holds": (excess < -quantile[stop]).mean(),
            "accounts: broken": (excess > quantile[stop]).mean(),
        }
    return (100 * pd.DataFrame(rows).T).round(1)


def false_findings(simulations: int, permutations: int) -> dict[str, float]:
    """Return the shares of even pages, in %, that show anything at some look, with and without shares of the error."""
    looks = plan_looks(EVEN_PAGE_ROUNDS)
    shown = []
    for seed in range(simulations):
        rng = np.random.default_rng(seed)
        design, test_sets = even_page("plain", rng)
        finished = rounds_of(design.template, design.person, rng)
        p_values = [
            smallest_p_value(design, test_sets, finished < rounds, permutations, rng) for rounds in looks.rounds
        ]
        shown.append(np.array(p_values))
    p = np.array(shown)
    found = {
        "by shares, some look": (p / looks.share <= LEVEL).any(axis=1),
        "by p ≤ 0.05, some look": (p <= LEVEL).any(axis=1),
        "by p ≤ 0.05, at the end": p[:, -1] <= LEVEL,
    }
    return {name: round(100 * float(is_shown.mean()), 1) for name, is_shown in found.items()}


def smallest_p_value(
    design: Design, test_sets: list[SetOfTests], has: np.ndarray, permutations: int, rng: np.random.Generator
) -> float:
    """Return the smallest p-value of a page that has some of the answers, adjusted for everything on it."""
    code = np.unique(design.template[has], return_inverse=True)[1]
    part = Design(code, design.person[has], design.groups)
    test_sets = [replace(test_set, values=test_set.values[has]) for test_set in test_sets]
    found = joint_effects(part, test_sets, permutations, rng)
    return min(min(each.p_joint.min(), each.shift_joint.min(), each.overall_joint) for each in found)


def differences_at_looks(
    template: np.ndarray, person: np.ndarray, values: np.ndarray, are_shares: bool, draws: int, rng: np.random.Generator
) -> tuple[np.ndarray, list[Effects]]:
    """Return the interval of the largest difference from the average at each look, (K, 2), and all effects.

    It is that of `difference_bound`.

    Args:
        template, person: codes of each answer's template and person, (n,).
        values: the numbers of each answer, (n, columns).
        are_shares: whether the numbers are probabilities.
        draws: number of permutations at the last look.
    """
    n_people = int(person.max()) + 1
    finished = rounds_of(template, person, rng)
    looks = plan_looks(int(finished.max()) + 1)
    bounds = []
    effects = []
    for number, rounds in enumerate(looks.rounds):
        has = finished < rounds
        code = np.unique(template[has], return_inverse=True)[1]
        design = Design(code, person[has], np.zeros((0, n_people)))
        test_set = SetOfTests("values", values[has], are_shares=are_shares, has_overall=False)
        level = looks.level(number)
        found = joint_effects(design, [test_set], level.draws(draws), rng, level)[0]
        shown = found.p_joint <= LEVEL
        ends = np.where(shown, np.maximum(np.abs(found.low), np.abs(found.high)), found.at_most)
        bounds.append((found.at_least.max(), np.nanmax(ends)))
        effects.append(found)
    return np.array(bounds), effects


def false_bounds(name: str, simulations: int, permutations: int) -> None:
    """Print how often some look errs, in %, where six of 31 people have another mean of one class or number.

    The limits are just below and above the largest true difference, where a decision is most often wrong, and half and
    twice of it. Of the shown effects of all looks, the share is printed whose interval contains the truth.
    """
    sample, are_shares = COLUMNS[name]
    template, person = np.indices((13, 31)).reshape(2, -1).repeat(2, axis=1)
    looks = plan_looks(26)
    large = np.random.default_rng(0)
    means = np.array([sample(np.full(200_000, each), large).mean() for each in range(31)])
    truth = means - means.mean()
    largest = float(np.abs(truth).max())
    intervals = []
    covered = []
    for seed in range(simulations):
        rng = np.random.default_rng(seed)
        values = sample(person, rng)[:, None]
        bounds, effects = differences_at_looks(template, person, values, are_shares, permutations, rng)
        intervals.append(bounds)
        for found in effects:
            holds = (found.low[:, 0] <= truth) & (truth <= found.high[:, 0])
            covered += holds[found.p_joint[:, 0] <= LEVEL].tolist()
    print(f"\n{name}: intervals of shown effects that hold: {100 * np.mean(covered):.1f} %")
    rows = {}
    for factor in (0.5, 0.999, 1.001, 2.0):
        rows[f"{factor:g} of the truth"] = summary(np.array(intervals), looks, [factor * largest], largest)
    print(pd.DataFrame(rows).T.to_string(), flush=True)


def differences(simulations: int, permutations: int, seed: int) -> None:
    """Print what stopping by the largest difference of anybody reaches, for each model of 3,120 answers, in %."""
    n_people, n_answers = SIZES["3,120"]
    cell = np.tile(np.arange(n_people * TEMPLATES), n_answers)
    looks = plan_looks(TEMPLATES * n_answers)
    for number, (model, moved) in enumerate(MOVED.items()):
        rng = np.random.default_rng((seed, number))
        intervals = []
        largest = []
        for _ in range(simulations):
            people = Population.new(n_people, rng)
            vectors = draw(people.mean_styles(moved), cell, False, rng)
            bounds, _ = differences_at_looks(cell % TEMPLATES, cell // TEMPLATES, vectors, True, permutations, rng)
            intervals.append(bounds)
            largest.append(people.largest_difference(moved))
        rows = {}
        for limit in MAX_DIFFERENCES:
            rows[f"{limit:g}"] = summary(np.array(intervals), looks, [limit], np.array(largest))
        print(f"\n{model}, largest difference {np.mean(largest):.2f}\n{pd.DataFrame(rows).T.to_string()}", flush=True)


def main() -> None:
    options = parse_options(
        __doc__,
        simulations=(300, "of each model"),
        sizes=(list(SIZES), "of the measurement"),
        pages=(False, "false findings of even pages instead"),
        bounds=(False, "errors of the bounds of single differences instead"),
        gates=(False, "gates alone"),
        baselines=(False, "gates whose baseline stopped early instead"),
        differences=(False, "stopping by the largest difference of anybody instead"),
        permutations=(399, "of each look at a page"),
        seed=0,
    )
    if options.pages:
        print("even pages:", false_findings(options.simulations, options.permutations), flush=True)
        return
    if options.bounds:
        for name in BOUNDED:
            false_bounds(name, options.simulations, options.permutations)
        return
    if options.baselines:
        print(gates_after_stopped_baselines(options.simulations, options.seed).to_string(), flush=True)
        return
    if options.differences:
        differences(options.simulations, options.permutations, options.seed)
        return
    check_against_pooled_spread(np.random.default_rng(options.seed))
    if options.gates:
        for size in options.sizes:
            gate(options.simulations, size, options.seed)
        return
    stopping(options.simulations, options.sizes, options.seed)


if __name__ == "__main__":
    main()
