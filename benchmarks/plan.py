"""A simulation of interval widths: predicted by `evenhand plan`, and of the measurements that follow.

    python -m benchmarks.plan    3 minutes of one core

A simulated pilot (40 descriptors × 26 templates × 4 responses, planted effects as in `benchmarks.effects`) predicts the
width of the 95 % interval of pooled FGB* for more responses, templates or descriptors. The output compares mean
predicted widths with mean widths of simulated measurements of the same design. For reductions, the output is the share
of simulated comparisons that show the reduction with the design from `smallest_design` (the plan's goal is 80 %).
"""

import numpy as np
import pandas as pd

from benchmarks.effects import Design as Simulated
from benchmarks.effects import even, probabilities, responses_to, with_effects
from benchmarks.measuring import parse_options
from evenhand.evaluation.statistics.cells import Cells, arrange_cells
from evenhand.evaluation.statistics.resolution import Design
from evenhand.evaluation.statistics.sample_size import (
    Pilot,
    design_of,
    interval_width,
    shows_reduction,
    smallest_design,
)
from evenhand.evaluation.statistics.u_statistics import Estimate, descriptor_spread

STYLES, PILOT = 27, Design(40, 26, 4)
DESIGNS = (PILOT, Design(40, 26, 2), Design(40, 26, 8), Design(40, 26, 16), Design(40, 10, 4), Design(120, 26, 4))
REDUCTIONS = (0.5, 0.9)
STRENGTHS = {"weak": 1.0, "strong": 2.0}  # factor of the effects' log odds: pooled FGB* is about 1.6 and 9 × 10⁻³


def measured(design: Design, strength: str, seed: int, draw: int, reduction: float = 0.0) -> Cells:
    """Return simulated responses of the random model `seed`, and of the same model with FGB* reduced by a fraction."""
    simulated = Simulated("", design.descriptors, design.templates, STYLES, even(int(design.responses)))
    p, odds = probabilities(simulated, True, np.random.default_rng(seed))
    p = with_effects(p, STRENGTHS[strength] * odds)
    rng = np.random.default_rng([seed, draw])
    average = p.mean(axis=1, keepdims=True)
    after = average + np.sqrt(1 - reduction) * (p - average)
    counts = np.full(p.shape[:2], int(design.responses)).ravel()
    vectors = [responses_to(simulated, side, counts, rng) for side in (p, after)]
    template, descriptor = (np.repeat(each.ravel(), counts) for each in np.indices(p.shape[:2]))
    return arrange_cells(np.concatenate(vectors, axis=1), template, descriptor)


def pooled(cells: Cells, before: float = 1.0, after: float = 0.0) -> Estimate:
    weights = np.repeat([before, after], STYLES)
    return descriptor_spread(cells, weights, pooled=True).corrected


def predicted_and_measured(design: Design, strength: str, simulations: int) -> dict[str, object]:
    widths = {"predicted": [], "measured": []}
    for seed in range(simulations):
        pilot = measured(PILOT, strength, seed, 0)
        widths["predicted"].append(interval_width(Pilot(design_of(pilot), pooled(pilot)).predict(design)))
        widths["measured"].append(interval_width(pooled(measured(design, strength, seed, 1))))
    means = {name: 1000 * np.mean(values) for name, values in widths.items()}
    name = f"{design.descriptors} × {design.templates} × {design.responses}"
    return {"design": name, "bias": strength, **means, "ratio": means["predicted"] / means["measured"]}


def shown_reductions(reduction: float, simulations: int) -> dict[str, object]:
    shown, designs = [], []
    for seed in range(simulations):
        pilot = measured(PILOT, "weak", seed, 0)
        design = smallest_design(
            Pilot(design_of(pilot), pooled(pilot)), "responses", lambda estimate: shows_reduction(estimate, reduction)
        )
        if design is None or design.responses > 64:  # a pilot that happens to measure hardly any bias
            continue
        difference = pooled(measured(design, "weak", seed, 1, reduction), -1.0, 1.0)
        shown.append(difference.interval[1] < 0)
        designs.append(design.responses)
    return {"reduction": reduction, "responses to each": np.median(designs), "n": len(shown), "shown": np.mean(shown)}


def main() -> None:
    simulations = parse_options(__doc__, simulations=(40, "per design")).simulations
    rows = [predicted_and_measured(design, strength, simulations) for strength in STRENGTHS for design in DESIGNS]
    print(pd.DataFrame(rows).round(2).to_string(index=False), flush=True)
    print(pd.DataFrame([shown_reductions(each, simulations) for each in REDUCTIONS]).round(2).to_string(index=False))


if __name__ == "__main__":
    main()
