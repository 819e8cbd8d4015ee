"""Simulations of the effects in a report: false effects, missed effects and the coverage of intervals.

    python -m benchmarks.effects                   all tables; about 25 minutes of one core
    python -m benchmarks.effects --simulations 20  a first look; 3 minutes
    python -m benchmarks.effects --change          changes between two runs (`CHANGES`); about 20 minutes of one core

Simulated responses (`DESIGNS`): styles sampled per template, one-hot or smooth vectors, two to eight responses per
cell. Without effects, the share of simulations with a shown effect is the family-wise error (at most 5 %). With planted
effects, the tables contain: the share of simulations in which a shown effect is false; the share of false effects among
the effects worth a look (false discovery rate, at most 10 %); the share of planted effects that each test detects; and
the share of shrunk intervals that contain the truth, among all effects and among shown effects.

Changes: the model after tuning equals the model before, or all descriptors' mean styles changed equally, or half of the
effects were removed, or each effect was halved. A true change of less than half a percentage point counts as none; the
power is over changes of ten points or more.

The testbed's grammar (paper edition, four responses to a cell): how many of the twenty largest planted effects are
shown, and how many shown effects have the wrong sign.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd

from benchmarks.measuring import parse_options
from evenhand.evaluation.metrics.generation_bias.effects import DISCOVERY_LEVEL, FAMILY_LEVEL, effects
from evenhand.evaluation.metrics.generation_bias.styled_responses import StyledResponses
from evenhand.evaluation.statistics.cells import Cells, arrange_cells
from evenhand.evaluation.statistics.effect_changes import effect_changes
from evenhand.evaluation.statistics.effects import descriptor_effects
from tools.testbed import grammar
from tools.testbed.corpus import all_prompts

PERMUTATIONS = 199
PER_CELL = 4  # responses to a cell of a testbed
NEGLIGIBLE = 0.005  # a true effect below half a percentage point is none; a shown one of these is false
PLANTED = 0.02  # share of the descriptor–style pairs that have a planted effect
LOG_ODDS = 1.2  # log odds of a planted effect: it multiplies or divides small probabilities by about exp(1.2) = 3.3


@dataclass(frozen=True)
class Design:
    """A simulated measurement; `counts` samples the number of responses to each cell, (templates, descriptors)."""

    name: str
    descriptors: int
    templates: int
    styles: int
    counts: Callable[[np.random.Generator, tuple[int, int]], np.ndarray]
    smooth: bool = False
    rare: bool = False


def even(n: int) -> Callable[[np.random.Generator, tuple[int, int]], np.ndarray]:
    return lambda rng, shape: np.full(shape, n)


def uneven(rng: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
    return rng.integers(2, 9, size=shape)


DESIGNS = (
    Design("40 × 26 × 2", 40, 26, 27, even(2)),
    Design("40 × 26 × 2, smooth", 40, 26, 27, even(2), smooth=True),
    Design("40 × 26 × 2, rare styles", 40, 26, 27, even(2), rare=True),
    Design("60 × 26 × 4", 60, 26, 27, even(4)),
    Design("60 × 26 × 4, rare styles", 60, 26, 27, even(4), rare=True),
    Design("60 × 10 × 2 to 8", 60, 10, 27, uneven),
    Design("60 × 10 × 2 to 8, smooth", 60, 10, 27, uneven, smooth=True),
    Design("120 × 10 × 8", 120, 10, 12, even(8)),
)


CHANGES = ("nothing", "all alike", "half of the effects removed", "all effects halved")
CHANGE_DESIGNS = (DESIGNS[0], DESIGNS[2], DESIGNS[5], DESIGNS[7])
LARGE_CHANGE = 0.1


def probabilities(design: Design, planted: bool, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Return the probabilities of styles without effects, (templates, 1, S), and the log odds of effects, (D, S)."""
    concentration = 0.15 if design.rare else 0.6
    templates = 0.5 * rng.dirichlet(np.full(design.styles, concentration), size=design.templates)
    p = (templates + 0.5 * rng.dirichlet(np.full(design.styles, concentration / 2)))[:, None, :]
    odds = np.zeros((design.descriptors, design.styles))
    if planted:
        chosen = rng.random(odds.shape) < PLANTED
        odds[chosen] = rng.choice([-LOG_ODDS, LOG_ODDS], chosen.sum())
    return p, odds


def with_effects(p: np.ndarray, odds: np.ndarray) -> np.ndarray:
    """Return the probabilities of styles with effects of log odds `odds`, (templates, descriptors, styles)."""
    p = p * np.exp(odds)
    return p / p.sum(axis=2, keepdims=True)


def true_effects(design: Design, p: np.ndarray) -> np.ndarray:
    return (p - p.mean(axis=1, keepdims=True)).mean(axis=0) * (0.75 if design.smooth else 1.0)


def responses_to(design: Design, p: np.ndarray, counts: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return style vectors sampled from the probabilities, `counts` for each template and descriptor."""
    rows = np.repeat(p.reshape(-1, design.styles), counts, axis=0)
    vectors = np.eye(design.styles)[grammar.sample_columns(rows, rng)]
    noise = rng.dirichlet(np.full(design.styles, 0.3), size=len(vectors)) if design.smooth else vectors
    return 0.75 * vectors + 0.25 * noise


def simulated(design: Design, planted: bool, rng: np.random.Generator) -> tuple[Cells, np.ndarray]:
    """Return simulated responses by cell, and the true effect of each descriptor on each style, (D, styles)."""
    p = with_effects(*probabilities(design, planted, rng))
    counts = design.counts(rng, p.shape[:2]).ravel()
    template, descriptor = (np.repeat(each.ravel(), counts) for each in np.indices(p.shape[:2]))
    return arrange_cells(responses_to(design, p, counts, rng), template, descriptor, 1), true_effects(design, p)


def after_change(p: np.ndarray, odds: np.ndarray, change: str, rng: np.random.Generator) -> np.ndarray:
    """Return the probabilities of styles after one of CHANGES, (templates, descriptors, styles).

    "all alike" moves the same probability between styles for all descriptors.
    """
    after = with_effects(p, odds)
    if change == "half of the effects removed":
        return with_effects(p, odds * (rng.random(odds.shape) < 0.5))
    if change == "all effects halved":
        return with_effects(p, odds / 2)
    for style in rng.permutation(p.shape[2])[: p.shape[2] // 2] if change == "all alike" else ():
        moved = 0.9 * after[:, :, style].min(axis=1, keepdims=True)
        after[:, :, style] -= moved
        after[:, :, rng.integers(p.shape[2])] += moved
    return after


def numbers_of_change(design: Design, change: str, seed: int) -> dict[str, float]:
    """Return error rates, power and coverage of the effect changes between two simulated measurements."""
    rng = np.random.default_rng(seed)
    p, odds = probabilities(design, True, rng)
    sides = with_effects(p, odds), after_change(p, odds, change, rng)
    counts = design.counts(rng, sides[0].shape[:2]).ravel()
    template, descriptor = (np.repeat(each.ravel(), counts) for each in np.indices(sides[0].shape[:2]))
    vectors = np.concatenate([responses_to(design, side, counts, rng) for side in sides], axis=1)
    cells = arrange_cells(vectors, template, descriptor, 1)
    nothing = np.zeros((0, design.descriptors)), np.zeros((design.styles, 0))
    before, after = (
        descriptor_effects(cells.select_columns(half), *nothing, 0, rng)
        for half in np.split(np.arange(2 * design.styles), 2)
    )
    result = effect_changes(cells, before, after, *nothing, PERMUTATIONS, rng)
    truth = true_effects(design, sides[1]) - true_effects(design, sides[0])
    shown, look = result.p_family <= FAMILY_LEVEL, result.q <= DISCOVERY_LEVEL
    none, large = np.abs(truth) < NEGLIGIBLE, np.abs(truth) >= LARGE_CHANGE
    covered = (result.low <= truth) & (truth <= result.high)
    return {
        "a false change shown": (shown & none).any(),
        "false discoveries": (look & none).sum() / max(look.sum(), 1),
        "large changes": large.sum() / 100,
        "found, shown": shown[large].mean() if large.any() else np.nan,
        "found, worth a look": look[large].mean() if large.any() else np.nan,
        "intervals cover": covered.mean(),
        "… of the shown": covered[shown].mean() if shown.any() else np.nan,
    }


def numbers(design: Design, planted: bool, seed: int) -> dict[str, float]:
    """Return error rates, power and coverage of the effects in one simulated measurement."""
    rng = np.random.default_rng(seed)
    cells, truth = simulated(design, planted, rng)
    result = descriptor_effects(
        cells, np.zeros((0, design.descriptors)), np.zeros((design.styles, 0)), PERMUTATIONS, rng
    )
    shown, look = result.p_family <= FAMILY_LEVEL, result.q <= DISCOVERY_LEVEL
    none, real = np.abs(truth) < NEGLIGIBLE, np.abs(truth) >= 4 * NEGLIGIBLE
    covered = (result.low <= truth) & (truth <= result.high)

    row = {"a false effect shown": (shown & none).any()}
    if planted:
        row |= {
            "false discoveries": (look & none).sum() / max(look.sum(), 1),
            "found, shown": shown[real].mean(),
            "found, worth a look": look[real].mean(),
            "intervals cover": covered.mean(),
            "… of the shown": covered[shown].mean() if shown.any() else np.nan,
        }
    return row


def on_the_testbed(descriptors: int, seed: int) -> dict[str, float]:
    """Return counts of shown planted effects of the testbed, and interval coverage, in responses sampled from its plan.

    The style vectors are one-hot in the true styles.
    """
    styles = list(grammar.styles())
    rng = np.random.default_rng(seed)
    prompts = all_prompts()[["template", "descriptor", "axis"]].drop_duplicates(["template", "descriptor"])
    chosen = rng.choice(prompts["descriptor"].unique(), descriptors, replace=False)
    prompts = prompts[prompts["descriptor"].isin(chosen)]
    p = grammar.style_distribution(prompts["template"], prompts["descriptor"])
    of_template = pd.DataFrame(p, index=prompts.index).groupby(prompts["template"]).transform("mean").to_numpy()
    truth = pd.DataFrame(p - of_template, columns=styles).groupby(prompts["descriptor"].to_numpy()).mean().stack()
    rows = prompts.loc[prompts.index.repeat(PER_CELL)]
    vectors = np.eye(len(styles), dtype=np.float32)[grammar.sample_columns(np.repeat(p, PER_CELL, axis=0), rng)]
    responses = StyledResponses(rows, vectors, styles)
    table = effects(responses, {}, seed=seed).query("kind == 'descriptor'").set_index(["unit", "name"])
    truth = truth.reindex(table.index)
    shown, largest = table["certainty"] == "shown", truth.abs().nlargest(20).index
    return {
        "descriptors": descriptors,
        "shown": int(shown.sum()),
        "of the 20 largest planted": int(shown[largest].sum()),
        "wrong sign": int((np.sign(truth[shown]) != np.sign(table["effect"][shown])).sum()),
        "intervals cover": ((table["low"] <= truth) & (truth <= table["high"])).mean(),
    }


def tables(simulations: int) -> Iterator[tuple[str, pd.DataFrame]]:
    for planted, title in ((False, "No effect at all"), (True, "Planted effects")):
        rows = {
            design.name: pd.DataFrame([numbers(design, planted, seed) for seed in range(simulations)]).mean()
            for design in DESIGNS
        }
        yield title, pd.DataFrame(rows).T.mul(100).round(1)
    counts = [on_the_testbed(descriptors, 0) for descriptors in (60, 200)]
    yield "The testbed's grammar", pd.DataFrame(counts)


def tables_of_changes(simulations: int) -> Iterator[tuple[str, pd.DataFrame]]:
    for change in CHANGES:
        rows = {
            design.name: pd.DataFrame([numbers_of_change(design, change, seed) for seed in range(simulations)]).mean()
            for design in CHANGE_DESIGNS
        }
        yield f"Changed: {change}", pd.DataFrame(rows).T.mul(100).round(1)


def main() -> None:
    arguments = parse_options(
        __doc__,
        simulations=(200, "per design"),
        change=(False, "changes between two runs instead"),
    )
    found = (tables_of_changes if arguments.change else tables)(arguments.simulations)
    for title, table in found:
        print(f"\n{title}, %" if "testbed" not in title else f"\n{title}", flush=True)
        print(table.to_string(), flush=True)


if __name__ == "__main__":
    main()
