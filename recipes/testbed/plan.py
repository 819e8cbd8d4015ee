"""A planted bias: a distribution of styles for each template and descriptor, read from a plan file.

`bias_plan.yaml` documents the format. Styles come from a grammar, or are the emotions of comments that people wrote.
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
    """Return p(style | template, descriptor) for n pairs, shape (n, S); `amplification` multiplies the effects.

    With n `nouns` it depends on nouns too, to test metrics on nouns with effects; no shipped model has such effects.

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
    """Return the (axis, bucket) pairs of each descriptor in the paper edition; "" for one that follows its noun."""
    taxonomy = load_taxonomy("paper")
    pairs: dict[str, list[tuple[str, str]]] = {}
    for term in taxonomy.descriptors:
        pairs.setdefault(term.text, []).append((term.axis, term.bucket))
    for entry in taxonomy.standalone:
        descriptor = entry.singular.replace("{article}", "").replace("{noun}", "").strip()
        pairs.setdefault(descriptor, []).append((entry.axis, ""))
    return pairs
