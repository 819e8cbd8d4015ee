"""A simulation of the error, variance and coverage of FGB* for three methods of sampling the nouns of a cell.

    python -m benchmarks.noun_draws                               # minutes of one core

Nouns shift a response's style by a known effect, equal for all descriptors. Half of the nouns are of one gender, and a
fifth of the descriptors has only these nouns. The truth is the expectation over nouns sampled uniformly from a
descriptor's nouns.

- distinct: nouns without replacement, repeated if a cell has more responses; responses are treated as independent.
- independent: nouns with replacement, as in `sample_cells`.
- blocks: nouns with replacement, equal for all descriptors with the same nouns in a template. Effects of nouns that are
  equal for all descriptors cancel from their differences. The estimator uses pairs of responses to *different* nouns,
  also between descriptors: it is unbiased, but no interval of the toolkit applies to it.
"""

import numpy as np

from benchmarks.measuring import parse_options
from evenhand.evaluation.runs.progress import progress
from evenhand.evaluation.statistics.cells import arrange_cells
from evenhand.evaluation.statistics.u_statistics import Estimate, descriptor_spread

DESCRIPTORS, TEMPLATES, STYLES = 40, 8, 10
OF_ONE_GENDER = DESCRIPTORS // 5  # number of descriptors with nouns of one gender only; they come first
POOL = 14  # nouns; the first half is of one gender
NOISE = 0.9  # variance of a one-hot style vector within a (template, descriptor, noun), summed over styles
BIAS = 0.02  # variance between descriptors, of which half differs by template
DRAWS = ("distinct", "independent", "blocks")
FORMS = ("FGB*", "pooled FGB*")


def pool(descriptor: int) -> int:
    """Return n for a descriptor whose nouns are the first n nouns."""
    return POOL // 2 if descriptor < OF_ONE_GENDER else POOL


def drawn_nouns(way: str, per_cell: int, rng: np.random.Generator) -> np.ndarray:
    """Return the sampled noun of each response, (descriptors, templates, per_cell)."""
    nouns = np.empty((DESCRIPTORS, TEMPLATES, per_cell), dtype=int)
    for d, t in np.ndindex(DESCRIPTORS, TEMPLATES):
        n = pool(d)
        if way == "distinct":
            nouns[d, t] = np.concatenate([rng.permutation(n) for _ in range(-(-per_cell // n))])[:per_cell]
        elif way == "blocks" and d not in (0, OF_ONE_GENDER):
            nouns[d, t] = nouns[d - 1, t]
        else:
            nouns[d, t] = rng.integers(n, size=per_cell)
    return nouns


def means(noun_effect: float, rng: np.random.Generator) -> np.ndarray:
    """Return the mean style vector of each (descriptor, template, noun); noun effects include interactions (10 %)."""

    def normal(variance: float, *shape: int) -> np.ndarray:
        return rng.normal(scale=np.sqrt(variance / STYLES), size=(*shape, STYLES))

    of_descriptor = normal(BIAS / 2, DESCRIPTORS, 1, 1) + normal(BIAS / 2, DESCRIPTORS, TEMPLATES, 1)
    of_noun = normal(0.9 * noun_effect, 1, 1, POOL) + normal(0.1 * noun_effect, DESCRIPTORS, 1, POOL)
    return normal(0.1, 1, TEMPLATES, 1) + of_descriptor + of_noun


def truths(mean: np.ndarray) -> list[float]:
    """Return the true FGB* and pooled FGB*, from the cells' expected style vectors."""
    cells = np.stack([mean[d, :, : pool(d)].mean(axis=1) for d in range(DESCRIPTORS)])
    return [cells.var(axis=0, ddof=1).sum(axis=-1).mean(), cells.mean(axis=1).var(axis=0, ddof=1).sum()]


def plain_estimates(x: np.ndarray) -> list[Estimate]:
    """Return the FGB* and pooled FGB* of style vectors (descriptors, templates, per_cell, styles)."""
    descriptor, template, _ = np.indices(x.shape[:3]).reshape(3, -1)
    cells = arrange_cells(x.reshape(-1, STYLES), template, descriptor)
    return [descriptor_spread(cells, pooled=pooled).corrected for pooled in (False, True)]


def block_estimates(x: np.ndarray) -> list[Estimate]:
    """Return FGB* and pooled FGB* without products of two responses to the same noun, and without intervals."""
    n = x.shape[2]
    sums = x.sum(axis=2)
    products = np.einsum("dts,ets->tde", sums, sums) / n**2
    same_noun = np.einsum("dtis,etis->tde", x, x)
    one_gender = np.arange(DESCRIPTORS) < OF_ONE_GENDER
    shared = one_gender[:, None] == one_gender
    unbiased = np.where(shared, (n**2 * products - same_noun) / (n * (n - 1)), products)
    over_templates = sums.mean(axis=1) / n
    pooled = over_templates @ over_templates.T + (unbiased - products).sum(axis=0) / TEMPLATES**2

    def spread(products: np.ndarray) -> float:
        within = np.trace(products)
        return within / DESCRIPTORS - (products.sum() - within) / (DESCRIPTORS * (DESCRIPTORS - 1))

    return [Estimate(value, np.nan) for value in (spread(unbiased.mean(axis=0)), spread(pooled))]


def main() -> None:
    """Print error, deviation and coverage for each noun effect, number of responses and sampling method."""
    arguments = parse_options(__doc__, simulations=200, per_cell=[2, 4, 8], noun_effects=[0.0, 0.05])

    heads = [f"{form}: {what}" for form in FORMS for what in ("error ± s.e.", "s.d.", "held, %")]
    print("×10⁻³; noun effect: variance between nouns, summed over styles")
    print("| noun effect | responses | draw |", " | ".join(heads), "|")
    print("| --- | --- | --- |", " | ".join(["---"] * len(heads)), "|", flush=True)
    n_rows = len(arguments.noun_effects) * len(arguments.per_cell) * len(DRAWS)
    with progress(n_rows * arguments.simulations, "simulations", "simulations") as advance:
        for effect in arguments.noun_effects:
            mean = means(effect, np.random.default_rng(0))
            d, t, _ = np.ogrid[:DESCRIPTORS, :TEMPLATES, :1]
            for per_cell in arguments.per_cell:
                for way in DRAWS:
                    rng, found = np.random.default_rng(1), []
                    for _ in range(arguments.simulations):
                        x = mean[d, t, drawn_nouns(way, per_cell, rng)]
                        x = x + rng.normal(scale=np.sqrt(NOISE / STYLES), size=x.shape)
                        found.append(block_estimates(x) if way == "blocks" else plain_estimates(x))
                        advance(1)
                    cells = [
                        row
                        for form, truth in zip(zip(*found, strict=True), truths(mean), strict=True)
                        for row in summary(form, truth)
                    ]
                    print(f"| {effect} | {per_cell} | {way} |", " | ".join(cells), "|", flush=True)


def summary(estimates: tuple[Estimate, ...], truth: float) -> tuple[str, str, str]:
    """Return the mean error with its standard error, the standard deviation, and the coverage."""
    values = 1e3 * np.array([estimate.value for estimate in estimates])
    intervals = [estimate.interval for estimate in estimates if estimate.interval is not None]
    held = f"{100 * np.mean([low <= truth <= high for low, high in intervals]):.0f}" if intervals else "–"
    error = f"{values.mean() - 1e3 * truth:+.2f} ± {values.std(ddof=1) / np.sqrt(len(values)):.2f}"
    return error, f"{values.std(ddof=1):.2f}", held


if __name__ == "__main__":
    main()
