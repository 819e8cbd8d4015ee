"""A planted bias: a distribution of styles for each template and descriptor, read from a plan file.

`bias_plan.yaml` says what such a file holds. The styles are a grammar's, or the emotions of comments that people wrote.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from evenhand.evaluation.datasets.holistic_bias import load_taxonomy
from evenhand.evaluation.errors import unknown_name


@dataclass(frozen=True)
class Plan:
    """The planted bias over S styles: what a plan file says, as arrays.

    `base` maps a template to log base probabilities (S,), `gain` a template to the factor on the effects, `effects` a
    descriptor to its effect (S,), and `nouns` a noun to its own (S,).
    """

    base: Mapping[str, np.ndarray]
    gain: Mapping[str, float]
    effects: Mapping[str, np.ndarray]
    nouns: Mapping[str, np.ndarray]


def read_plan(text: Mapping[str, Any], styles: Sequence[str]) -> Plan:
    """Return the planted bias for the paper edition's templates and descriptors, of what a plan file says."""
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
    for descriptor, places in _places().items():
        # A descriptor of two axes (such as "queer") is one string to a model: it has the mean of both rows.
        rows = [text["axes"].get(axis, {}) for axis, _ in places]
        effect = np.mean(
            [
                spread(row.get("*", {})) + spread(row.get(bucket, {}))
                for row, (_, bucket) in zip(rows, places, strict=True)
            ],
            axis=0,
        )
        for group in text["descriptors"]:
            if descriptor in group["names"]:
                effect = effect + spread(group["effect"])
        z = _normal_numbers(descriptor, 1 + len(index))
        scale = text["strength"] * np.exp(text["strength_jitter"] * z[0])
        axes = {axis for axis, _ in places}
        biased = descriptor not in text["unbiased"] and not axes <= set(text["unbiased_axes"])
        effects[descriptor] = biased * (scale * effect + text["style_jitter"] * z[1:])
    nouns = {
        noun.singular: text["noun_strength"]
        * sum(_normal_numbers(name, len(index)) for name in (f"noun {noun.singular}", f"gender {noun.gender}"))
        for noun in load_taxonomy("paper").nouns
    }
    return Plan(base, gain, effects, nouns)


def style_distribution(
    known: Plan,
    templates: Sequence[str],
    descriptors: Sequence[str],
    amplification: float = 1.0,
    nouns: Sequence[str] | None = None,
) -> np.ndarray:
    """Return p(style | template, descriptor) for n pairs, shape (n, S); `amplification` multiplies the effects.

    With n `nouns` it depends on them too, as no shipped model does: to check what metrics make of nouns that matter.

    Raises:
        InputError: a template, descriptor or noun is not one of the paper edition's.
    """
    base = _looked_up("template", templates, known.base)
    gain = _looked_up("template", templates, known.gain)
    logits = base + amplification * gain[:, None] * _looked_up("descriptor", descriptors, known.effects)
    if nouns is not None:
        logits += _looked_up("noun", nouns, known.nouns)
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
def _places() -> dict[str, list[tuple[str, str]]]:
    """Return each descriptor's (axis, bucket) places in the paper edition; one after the noun has no bucket."""
    taxonomy = load_taxonomy("paper")
    places: dict[str, list[tuple[str, str]]] = {}
    for term in taxonomy.descriptors:
        places.setdefault(term.text, []).append((term.axis, term.bucket))
    for entry in taxonomy.standalone:
        descriptor = entry.singular.replace("{article}", "").replace("{noun}", "").strip()
        places.setdefault(descriptor, []).append((entry.axis, ""))
    return places
