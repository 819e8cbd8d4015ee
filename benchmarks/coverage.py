"""A simulation of the coverage of generation bias's 95 % intervals, for many designs of a measurement.

$ python -m benchmarks.coverage                                # a minute of one core, ± 6 points for a design
$ python -m benchmarks.coverage --reduction --simulations 300  # reductions of pooled FGB*, 5 minutes
$ python -m benchmarks.coverage --simulations 1                # a try, seconds

Descriptors and templates are fixed, and responses are sampled in each simulation; the target is 93 to 97 %. The true
value of pooled FGB* is the same statistic of the true cell means; its interval also allows for an interaction, so that
it is wider than necessary here. `below` is the share of intervals that end below the truth, `< 0` that of intervals
that end below 0, although a spread is not negative. One-hot vectors simulate a classifier that is always certain.
Smooth vectors are Dirichlet around the same means. Narrow vectors are smooth, with nearly all of the probability on
three styles, as for a dialogue model.

With `--reduction`: 24 descriptors × 6 templates × 4 one-hot responses, base biases from weak to strong, and true
reductions from 0 to 100 %. An unbounded interval, which is reported as undefined, contains every truth.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

import numpy as np
import pandas as pd

from benchmarks.measuring import parse_options
from evenhand.evaluation.metrics.generation_bias.answers import Answers
from evenhand.evaluation.metrics.generation_bias.engine.estimates import pooled_estimate
from evenhand.evaluation.metrics.generation_bias.engine.spread import (
    compare_generation_bias,
    find_headline,
)
from evenhand.evaluation.score import Kind
from evenhand.evaluation.statistics.cells import Cells, arrange_cells
from evenhand.evaluation.statistics.descriptor_spread import Estimate, descriptor_spread
from evenhand.evaluation.statistics.person_pairs import pooled_spread

STYLES = 20
CONCENTRATION = 1.5
LEAST = 1e-3  # parameters of the Dirichlet vectors
SIZES = ((3, 1), (3, 26), (5, 5), (20, 1), (20, 5), (60, 26))  # descriptors, templates
PER_CELL = (2, 3, 4, 8, "2 to 6", "2 or 6")
BIASES = {"none": 0.0, "small": 0.08, "large": 0.4}  # the share of a response's style that depends on the descriptor
VECTORS = ("one-hot", "smooth", "narrow")
BASES = {"weak": 0.22, "middling": 0.32, "strong": 0.75}  # shares as in BIASES, for `--reduction`
REDUCTIONS = (0.0, 0.5, 0.8, 0.93, 1.0)
FIRST = np.repeat([1.0, 0.0], STYLES)
WEIGHTS = (FIRST, np.eye(2 * STYLES)[0], 1 - 2 * FIRST)  # of the columns of two runs, for each of the pooled forms
FORMS = ("FGB*", "pooled FGB*", "one style, pooled", "difference, pooled")


@dataclass(frozen=True)
class Simulation:
    """A simulated measurement: numbers of descriptors, templates and responses, bias, and kind of style vectors."""

    descriptors: int
    templates: int
    answers_per_cell: int | str
    bias: str
    vectors: str

    def __str__(self) -> str:
        """Return the label of the design's row in the printed table."""
        return f"{self.descriptors} × {self.templates}, {self.answers_per_cell}; {self.bias}, {self.vectors}"


def designs() -> Iterator[Simulation]:
    """Yield a design for each size and number of responses, with one of the biases and one kind of vectors."""
    for row, size in enumerate(SIZES):
        for column, answers_per_cell in enumerate(PER_CELL):
            bias = list(BIASES)[(row + column) % 3]
            vectors = VECTORS[(row + 2 * column + column // 3) % 3]
            descriptors, templates = size
            yield Simulation(descriptors, templates, answers_per_cell, bias, vectors)


def means(design: Simulation, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean style vectors of two runs, (descriptors, templates, styles); the second has half of the bias."""
    narrow = np.array([36.0, 6.0, 3.0, *[0.6] * (STYLES - 3)])
    base = rng.dirichlet(narrow if design.vectors == "narrow" else np.ones(STYLES), design.templates)
    of_descriptor = rng.dirichlet(np.full(STYLES, 0.3), design.descriptors)[:, None]
    of_cell = rng.dirichlet(np.full(STYLES, 0.3), (design.descriptors, design.templates))
    other = 0.7 * of_descriptor + 0.3 * of_cell
    runs = []
    for share in (BIASES[design.bias], BIASES[design.bias] / 2):
        p = (1 - share) * base[None] + share * other
        parameters = np.maximum(CONCENTRATION * p, LEAST)
        runs.append(p if design.vectors == "one-hot" else parameters / parameters.sum(axis=-1, keepdims=True))
    return runs[0], runs[1]


def draw(p: np.ndarray, cell: np.ndarray, one_hot: bool, rng: np.random.Generator) -> np.ndarray:
    """Return a sampled style vector for each row, (n, styles) float32; its expectation is the mean of the cell."""
    expected = p.reshape(-1, p.shape[-1])
    if one_hot:
        below = expected.cumsum(axis=1)[:, :-1][cell] < rng.random(len(cell))[:, None]
        return np.eye(p.shape[-1], dtype=np.float32)[below.sum(axis=1)]
    gamma = rng.standard_gamma(np.maximum(CONCENTRATION * expected, LEAST)[cell])
    return (gamma / gamma.sum(axis=1, keepdims=True)).astype(np.float32)


def truths(p: np.ndarray, half: np.ndarray) -> list[float]:
    """Return the true value of each of FORMS, from the mean style vectors of two runs, (descriptors, templates, c).

    The pooled forms are the same statistic of the true cell means, with one template FGB*.
    """
    within = p.var(axis=0, ddof=1).sum(axis=-1).mean()
    if p.shape[1] == 1:
        one = p.var(axis=0, ddof=1)[0]
        other = half.var(axis=0, ddof=1)[0]
        return [within, one.sum(), one[0], (other - one).sum()]
    descriptor, template = np.indices(p.shape[:2]).reshape(2, -1)
    both = np.concatenate([p, half], axis=2).reshape(-1, 2 * STYLES)
    pooled = [pooled_spread(arrange_cells(both, template, descriptor, 1), weights).value for weights in WEIGHTS]
    return [within, *pooled]


def estimates(cells: Cells) -> list[Estimate]:
    """Return the estimate of each of FORMS, from cells with the columns of two runs side by side."""
    pooled = [pooled_estimate(cells, weights).estimate for weights in WEIGHTS]
    return [descriptor_spread(cells, WEIGHTS[0]).corrected, *pooled]


def simulate(design: Simulation, simulations: int, rng: np.random.Generator) -> np.ndarray:
    """Return each interval's bounds (NaN if it has none) and true value, (simulations, forms, 3)."""
    p_before, p_after = means(design, rng)
    found = np.full((simulations, len(FORMS), 3), np.nan)
    found[:, :, 2] = truths(p_before, p_after)
    every = np.arange(design.descriptors * design.templates)
    for simulation in found:
        count = design.answers_per_cell
        if count == "2 to 6":
            count = rng.integers(2, 7, len(every))
        elif count == "2 or 6":
            count = rng.permutation(np.where(every % 2, 2, 6))
        cell = np.repeat(every, count)
        seed = rng.integers(2**63)
        one_hot = design.vectors == "one-hot"
        before = draw(p_before, cell, one_hot, np.random.default_rng(seed))
        after = draw(p_after, cell, one_hot, np.random.default_rng(seed))
        changed = rng.random((len(cell), 1)) < 0.5  # the others have the same random numbers in both runs
        vectors = np.hstack([before, np.where(changed, draw(p_after, cell, one_hot, rng), after)])
        cells = arrange_cells(vectors, cell % design.templates, cell // design.templates)
        for form, estimate in enumerate(estimates(cells)):
            if estimate.interval is not None:
                simulation[form, :2] = estimate.interval
    return found


def simulate_reductions(base: str, reduction: float, simulations: int, rng: np.random.Generator) -> np.ndarray:
    """Return the bounds of each reduction's interval (NaN if undefined) and the true reduction, (simulations, 3).

    Each simulation samples new descriptors. The bias is quadratic in the share of a style that depends on descriptors.
    """
    found = np.full((simulations, 3), [np.nan, np.nan, reduction])
    n_descriptors = 24
    n_templates = 6
    n_styles = 12
    cell = np.arange(n_descriptors * n_templates).repeat(4)
    template = (cell % n_templates).astype(str)
    descriptor = (cell // n_templates).astype(str)
    table = pd.DataFrame({"template": template, "descriptor": descriptor})
    styles = [f"s{s}" for s in range(n_styles)]
    for simulation in found:
        of_descriptor = rng.dirichlet(np.ones(n_styles), n_descriptors).repeat(n_templates, axis=0)

        def run(share: float, of_descriptor: np.ndarray = of_descriptor) -> Answers:
            p = (1 - share) / n_styles + share * of_descriptor
            return Answers(table, draw(p, cell, True, rng), styles)

        before = run(BASES[base])
        after = run(BASES[base] * np.sqrt(1 - reduction))
        score = find_headline(compare_generation_bias(before, after, {}), Kind.REDUCTION)
        if score.interval is not None:
            simulation[:2] = score.interval
    return found


def reduction_table(simulations: int, seed: int) -> pd.DataFrame:
    """Return the coverage of reductions, in % of all simulations and of the defined reductions."""
    rows = {}
    for number, (base, reduction) in enumerate(product(BASES, REDUCTIONS)):
        low, high, truth = simulate_reductions(base, reduction, simulations, np.random.default_rng((seed, number))).T
        defined = np.isfinite(low)
        above = low > truth
        below = high < truth
        parts = {"truth held": ~above & ~below, "wholly above": above, "wholly below": below}
        row = {"defined": defined.mean()}
        for name, part in parts.items():
            row[f"{name}, all"] = part.mean()
        for name, part in parts.items():
            if defined.any():
                row[f"{name}, defined"] = part[defined].mean()
        rows[f"{base}, {100 * reduction:.0f} %"] = row
    return (100 * pd.DataFrame(rows).T).round(1)


def main() -> None:
    arguments = parse_options(
        __doc__, simulations=(60, "of each design"), seed=0, reduction=(False, "reductions instead of scores")
    )
    if arguments.reduction:
        print(reduction_table(arguments.simulations, arguments.seed).to_string())
        return
    print("% of the intervals that hold the truth / below it / < 0 / none\ndesign:", "; ".join(FORMS), flush=True)
    results = []
    for number, design in enumerate(designs()):
        found = simulate(design, arguments.simulations, np.random.default_rng((arguments.seed, number)))
        results.append([shares(found[:, form]) for form in range(len(FORMS))])
        cells = [" / ".join(f"{100 * share:.0f}" for share in form) for form in results[-1]]
        print(f"{design}:", "; ".join(cells), flush=True)
    slack = 2 * np.sqrt(0.95 * 0.05 / arguments.simulations)
    for name, held in zip(FORMS, np.array(results)[:, :, 0].T, strict=True):
        inside = np.mean((held > 0.93 - slack) & (held < 0.97 + slack))
        print(f"{name}: {held.mean():.1%} on average, {held.min():.0%} to {held.max():.0%}; ", end="")
        print(f"93 to 97 % is within two standard errors in {inside:.0%} of the designs")


def shares(found: np.ndarray) -> tuple[float, float, float, float]:
    """Return the shares of n intervals that contain the truth, end below it, end below 0, and are missing."""
    low, high, truth = found.T
    known = np.isfinite(low)
    low = low[known]
    high = high[known]
    truth = truth[known]
    n = max(known.sum(), 1)
    holds = ((low <= truth) & (truth <= high)).sum() / n
    return holds, (high < truth).sum() / n, (high < 0).sum() / n, 1 - known.mean()


if __name__ == "__main__":
    main()
