"""A planted bias: a distribution of styles for each template and descriptor, and its exact generation bias.

`bias_plan.yaml` documents the format. Styles come from a grammar, or are the emotions of human comments.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pandas as pd

from evenhand.evaluation.data.holistic_bias import load_taxonomy
from evenhand.evaluation.errors import unknown_name
from evenhand.evaluation.score import AXIS, DESCRIPTOR, TEMPLATE, BiasScore

Cut = tuple[str, dict[str, str], list[int]]  # metric, group of its score, columns of the style vectors


@dataclass(frozen=True)
class Plan:
    """The planted bias over S styles, as arrays.

    Attributes:
        base: the log base probabilities of a template, (S,).
        gain: the factor of a template on the effects.
        effects: the effect of a descriptor on the logits, (S,).
        nouns: the effect of a noun on the logits, (S,).
    """

    base: Mapping[str, np.ndarray]
    gain: Mapping[str, float]
    effects: Mapping[str, np.ndarray]
    nouns: Mapping[str, np.ndarray]


def read_plan(text: Mapping[str, Any], styles: Sequence[str]) -> Plan:
    """Return the planted bias for the paper edition's templates and descriptors from the contents of a plan file."""
    index = {style: i for i, style in enumerate(styles)}

    def spread(effect: Mapping[str, float]) -> np.ndarray:
        row = np.zeros(len(index))
        for name, value in effect.items():
            for style in text["clusters"].get(name, [name]):
                row[index[style]] += value
        return row

    base, gain = {}, {}
    for group in text["template_groups"].values():
        shares = np.zeros(len(index))
        for name, mass in group["base"].items():
            for style, share in text["clusters"][name].items():
                shares[index[style]] = mass * share
        for template in group["templates"]:
            base[template], gain[template] = np.log(shares / shares.sum()), group["gain"]
    effects = {}
    for descriptor, pairs in _axes_and_buckets().items():
        # A descriptor of two axes (such as "queer") is one string to a model: it has the mean of both rows.
        rows = [text["axes"].get(axis, {}) for axis, _ in pairs]
        effect = np.mean(
            [
                spread(row.get("*", {})) + spread(row.get(bucket, {}))
                for row, (_, bucket) in zip(rows, pairs, strict=True)
            ],
            axis=0,
        )
        for group in text["descriptors"]:
            if descriptor in group["names"]:
                effect = effect + spread(group["effect"])
        z = _normal_numbers(descriptor, 1 + len(index))
        scale = text["strength"] * np.exp(text["strength_jitter"] * z[0])
        axes = {axis for axis, _ in pairs}
        is_biased = descriptor not in text["unbiased"] and not axes <= set(text["unbiased_axes"])
        effects[descriptor] = is_biased * (scale * effect + text["style_jitter"] * z[1:])
    nouns = {
        noun.singular: text["noun_strength"]
        * sum(_normal_numbers(name, len(index)) for name in (f"noun {noun.singular}", f"gender {noun.gender}"))
        for noun in load_taxonomy("paper").nouns
    }
    return Plan(base, gain, effects, nouns)


def style_distribution(
    plan: Plan,
    templates: Sequence[str],
    descriptors: Sequence[str],
    amplification: float = 1.0,
    nouns: Sequence[str] | None = None,
) -> np.ndarray:
    """Return p(style | template, descriptor) for n pairs, (n, S); `amplification` multiplies the planted effects.

    With n `nouns`, p also depends on nouns, for tests of metrics; no shipped model has such effects.

    Raises:
        InputError: the paper edition lacks a template, descriptor or noun.
    """
    base = _looked_up("template", templates, plan.base)
    gain = _looked_up("template", templates, plan.gain)
    logits = base + amplification * gain[:, None] * _looked_up("descriptor", descriptors, plan.effects)
    if nouns is not None:
        logits += _looked_up("noun", nouns, plan.nouns)
    weights = np.exp(logits - logits.max(axis=1, keepdims=True))
    return weights / weights.sum(axis=1, keepdims=True)


def _looked_up(kind: str, names: Sequence[str], values: Mapping[str, np.ndarray | float]) -> np.ndarray:
    distinct, rows = np.unique(np.asarray(names, dtype=object).astype(str), return_inverse=True)
    for name in distinct.tolist():
        if name not in values:
            raise unknown_name(kind, name, values)
    return np.array([values[name] for name in distinct])[rows]


def _normal_numbers(name: str, n: int) -> np.ndarray:
    seed = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8])
    return np.random.default_rng(seed).standard_normal(n)


@cache
def _axes_and_buckets() -> dict[str, list[tuple[str, str]]]:
    """Return each descriptor's (axis, bucket) pairs in the paper edition; "" if the descriptor follows its noun."""
    taxonomy = load_taxonomy("paper")
    pairs: dict[str, list[tuple[str, str]]] = {}
    for term in taxonomy.descriptors:
        pairs.setdefault(term.text, []).append((term.axis, term.bucket))
    for entry in taxonomy.standalone:
        descriptor = entry.singular.replace("{article}", "").replace("{noun}", "").strip()
        pairs.setdefault(descriptor, []).append((entry.axis, ""))
    return pairs


def exact_bias(
    cells: pd.DataFrame,
    expected: Callable[[pd.DataFrame], tuple[pd.DataFrame, np.ndarray]],
    styles: Sequence[str],
    clusters: Mapping[str, Sequence[str]],
) -> list[BiasScore]:
    """Return the true values of the metrics of generation bias from the expected style vectors of cells.

    `grammar.truth` has the formulas.

    Args:
        cells: columns template, descriptor and, for scores by axis, axis; repeated rows count once.
        expected: returns the n distinct cells of such rows and the expected style vector of each, (n, R).
        styles: the S styles; scores by style and cluster exist only if R = S.
        clusters: names of style clusters and their styles.
    """
    distinct, p = expected(cells)
    cuts: list[Cut] = [("fgb", {}, list(range(p.shape[1])))]
    if p.shape[1] == len(styles):
        cuts += [("fgb", {"style": style}, [i]) for i, style in enumerate(styles)]
        for name, members in clusters.items():
            columns = [list(styles).index(member) for member in members]
            p = np.column_stack([p, p[:, columns].sum(axis=1)])
            cuts += [("pgb", {"cluster": name}, columns), ("scgb", {"cluster": name}, [p.shape[1] - 1])]
    scores = _cut_scores(distinct, p, cuts)
    if AXIS in cells:
        for axis, rows in cells.groupby(AXIS, sort=True):
            distinct, p = expected(rows)
            scores += _cut_scores(distinct, p, [("fgb", {"axis": str(axis)}, list(range(p.shape[1])))])
    return scores


def _cut_scores(cells: pd.DataFrame, p: np.ndarray, cuts: Sequence[Cut]) -> list[BiasScore]:
    """Return the plain, corrected and pooled score of each cut, from the expected style vectors of cells."""
    spreads = _spreads(p, cells)
    reason = "a variance over descriptors needs two descriptors" if np.isnan(spreads["_corrected"]).any() else None
    return [
        BiasScore(
            f"{metric}{form}",
            float(spread[columns].sum()),
            0.0,
            (0.0, 1.0),
            len(cells),
            group=group,
            reason=reason,
        )
        for metric, group, columns in cuts
        for form, spread in spreads.items()
    ]


def _spreads(p: np.ndarray, cells: pd.DataFrame) -> dict[str, np.ndarray]:
    """Return the variance over descriptors of each column of `p`, as in FGB, FGB* and pooled FGB*, (c,) each.

    A template with a single descriptor has no variance and is skipped. Pooled values use only descriptors with a cell
    for every template, so that their means are comparable.

    Args:
        p: expected style vectors (n, c), one row per cell.
        cells: n rows.
    """
    template, descriptor = (np.unique(cells[name], return_inverse=True)[1] for name in (TEMPLATE, DESCRIPTOR))
    grid = np.full((template.max() + 1, descriptor.max() + 1, p.shape[1]), np.nan)
    grid[template, descriptor] = p
    compared = [rows[~np.isnan(rows[:, 0])] for rows in grid]
    compared = [rows for rows in compared if len(rows) > 1]
    means = grid.mean(axis=0)
    means = means[~np.isnan(means[:, 0])]
    undefined = np.full(p.shape[1], np.nan)
    return {
        "": np.mean([rows.var(axis=0) for rows in compared], axis=0) if compared else undefined,
        "_corrected": np.mean([rows.var(axis=0, ddof=1) for rows in compared], axis=0) if compared else undefined,
        "_pooled_corrected": means.var(axis=0, ddof=1) if len(means) > 1 else undefined,
    }
