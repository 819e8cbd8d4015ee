"""The testbed's grammar: responses in known styles, with a planted dependence of style on descriptor.

Every number that a metric estimates from responses is computed here exactly, from the plan in `bias_plan.yaml`: that
is `truth`. The phrases are in `phrases.yaml`, the descriptor-free small talk in `neutral.yaml`.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
import yaml

from evenhand.evaluation.datasets.holistic_bias import load_taxonomy
from evenhand.evaluation.errors import unknown_name
from evenhand.evaluation.results import AXIS, DESCRIPTOR, NOUN, TEMPLATE, BiasScore

FOLDER = Path(__file__).parent
HELD_OUT_SHARE = 0.15  # of the neutral prompts
SPLITS = ("train", "held_out")
MENTION = "{descriptor}"  # in a core: where it mentions the prompt's descriptor
CENSORED = "left-handed"  # what a response's descriptor mentions become before classification (002 A.6)


@dataclass(frozen=True)
class Family:
    """One style's phrases; an utterance is "opener core tail", each drawn uniformly and independently."""

    style: str
    openers: tuple[str, ...]
    cores: tuple[str, ...]
    tails: tuple[str, ...]


@dataclass(frozen=True)
class Plan:
    """The planted bias over S styles: what `bias_plan.yaml` says, as arrays.

    `base` maps a template to log base probabilities (S,), `gain` a template to the factor on the effects, `effects` a
    descriptor to its effect (S,), and `nouns` a noun to its own (S,).
    """

    base: Mapping[str, np.ndarray]
    gain: Mapping[str, float]
    effects: Mapping[str, np.ndarray]
    nouns: Mapping[str, np.ndarray]


@cache
def families() -> tuple[Family, ...]:
    """Return the S style families, in the order of the style classifier's labels."""
    phrases = _read("phrases.yaml")

    def all_of(style: str, slot: str) -> tuple[str, ...]:
        shared = [phrase for group in phrases["shared"] if style in group["families"] for phrase in group[slot]]
        return (*phrases["families"][style][slot], *shared)

    return tuple(Family(s, all_of(s, "openers"), all_of(s, "cores"), all_of(s, "tails")) for s in phrases["families"])


def styles() -> tuple[str, ...]:
    """Return the S style names, in the order of the style classifier's labels."""
    return tuple(family.style for family in families())


def clusters() -> dict[str, list[str]]:
    """Return the paper's six style clusters (002 A.7): name to the styles in it."""
    return {name: list(shares) for name, shares in _read("bias_plan.yaml")["clusters"].items() if name != "OTHER"}


def utterances(family: Family, descriptor: str = CENSORED) -> list[str]:
    """Return all the family's utterances as answers to `descriptor`; they are equally likely."""
    return [
        f"{opener} {core} {tail}".replace(MENTION, descriptor)
        for opener in family.openers
        for core in family.cores
        for tail in family.tails
    ]


@cache
def plan() -> Plan:
    """Return the planted bias for the paper edition's templates and descriptors."""
    text = _read("bias_plan.yaml")
    index = {style: i for i, style in enumerate(styles())}

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
        rows = [text["axes"][axis] for axis, _ in places]
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
        biased = descriptor not in text["unbiased"]
        effects[descriptor] = biased * (scale * effect + text["style_jitter"] * z[1:])
    nouns = {
        noun.singular: text["noun_strength"]
        * sum(_normal_numbers(name, len(index)) for name in (f"noun {noun.singular}", f"gender {noun.gender}"))
        for noun in load_taxonomy("paper").nouns
    }
    return Plan(base, gain, effects, nouns)


def style_distribution(
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
    known = plan()
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


def descriptor_means(templates: Sequence[str], descriptors: Sequence[str]) -> np.ndarray:
    """Return the true m_d (002 C.1) of D descriptors, p(style | t, d) averaged over T templates, shape (D, S)."""
    pairs = [(template, descriptor) for descriptor in descriptors for template in templates]
    cells = style_distribution([t for t, _ in pairs], [d for _, d in pairs])
    return cells.reshape(len(descriptors), len(templates), -1).mean(axis=1)


def style_map(classify: Callable[[list[str]], np.ndarray]) -> np.ndarray:
    """Return K: the classifier's expected style vector for an utterance of each family, shape (S families, S styles).

    Exact: `classify` sees every utterance as cleaning leaves it (002 A.6), and cleaned text is free of descriptors.
    """
    return np.stack([np.asarray(classify(utterances(family))).mean(axis=0) for family in families()])


def sample_responses(prompts: pd.DataFrame, seed: int) -> list[str]:
    """Draw one response of the grammar for each of n prompt rows (columns template, descriptor)."""
    rng = np.random.default_rng(seed)
    drawn = draw(style_distribution(prompts[TEMPLATE], prompts[DESCRIPTOR]), rng)
    responses = []
    for style, descriptor, (u, v, w) in zip(drawn, prompts[DESCRIPTOR], rng.random((len(drawn), 3)), strict=True):
        family = families()[style]
        opener = family.openers[int(u * len(family.openers))]
        core = family.cores[int(v * len(family.cores))].replace(MENTION, descriptor)
        responses.append(f"{opener} {core} {family.tails[int(w * len(family.tails))]}")
    return responses


def draw(weights: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Draw one column for each of n rows of non-negative weights (n, k), in proportion to them."""
    cumulative = weights.cumsum(axis=1)
    return (cumulative <= rng.random(len(weights))[:, None] * cumulative[:, -1:]).sum(axis=1)


def neutral_dialogue(split: str, n: int, seed: int) -> pd.DataFrame:
    """Draw n pairs of small talk without a descriptor (columns text, response); no prompt is in both splits.

    Raises:
        InputError: `split` is neither "train" nor "held_out".
    """
    if split not in SPLITS:
        raise unknown_name("split", split, SPLITS)
    rng = np.random.default_rng(seed)
    pairs = neutral_pairs(split)
    drawn = [pairs[i] for i in rng.integers(len(pairs), size=n)]
    return pd.DataFrame(drawn, columns=["text", "response"])


def truth(cells: pd.DataFrame, seen_through: np.ndarray | None = None, *, of_nouns: bool = False) -> list[BiasScore]:
    """Compute the exact generation bias of the grammar over the given cells (002 A.7), with no sampling at all.

    `cells` has columns template, descriptor and, for the cuts by axis, axis; rows that repeat count once. With p_tds
    a cell's distribution: fgb = 1/T Σ_t Σ_s Var_d(p_tds), with ddof = 0 as the paper; fgb_corrected is the same with
    ddof = 1, which is what the noise-corrected estimator estimates; fgb_pooled_corrected = Σ_s Var_d(mean_t p_tds),
    ddof = 1. pgb, scgb and their corrected and pooled forms by cluster, fgb by axis and by style likewise.
    `seen_through` is a style map (S families, R styles of a classifier): the truth is then that of the classifier's
    expected style vectors. Clusters and styles are cut only where R styles are the grammar's own.
    `of_nouns`: nouns have effects, and the rows are all sentences of the cells, with a column noun; p_tds is the mean
    over a cell's own nouns, which are of one gender where the descriptor is.
    """
    scores = _cut_scores(cells, seen_through, {}, of_nouns)
    if AXIS in cells:
        for axis, rows in cells.groupby(AXIS, sort=True):
            cut = _cut_scores(rows, seen_through, {"axis": str(axis)}, of_nouns)
            scores += [score for score in cut if "cluster" not in score.group]
    return scores


def _cell_distributions(cells: pd.DataFrame, of_nouns: bool) -> tuple[pd.DataFrame, np.ndarray]:
    """Return the distinct cells (columns template, descriptor) and the style distribution of each, (n, S)."""
    names = [TEMPLATE, DESCRIPTOR]
    if not of_nouns:
        cells = cells[names].drop_duplicates()
        return cells, style_distribution(cells[TEMPLATE], cells[DESCRIPTOR])
    rows = cells[[*names, NOUN]].drop_duplicates()
    p = pd.DataFrame(style_distribution(rows[TEMPLATE], rows[DESCRIPTOR], nouns=rows[NOUN]))
    means = p.groupby([rows[name].to_numpy() for name in names]).mean()
    return means.index.to_frame(index=False, name=names), means.to_numpy()


def _cut_scores(
    cells: pd.DataFrame, seen_through: np.ndarray | None, group: dict[str, str], of_nouns: bool
) -> list[BiasScore]:
    cells, p = _cell_distributions(cells, of_nouns)
    if seen_through is not None:
        p = p @ seen_through
    cuts: list[tuple[str, dict[str, str], list[int]]] = [("fgb", {}, list(range(p.shape[1])))]
    if not group and p.shape[1] == len(styles()):
        cuts += [("fgb", {"style": style}, [i]) for i, style in enumerate(styles())]
        for name, members in clusters().items():
            columns = [styles().index(member) for member in members]
            p = np.column_stack([p, p[:, columns].sum(axis=1)])
            cuts += [("pgb", {"cluster": name}, columns), ("scgb", {"cluster": name}, [p.shape[1] - 1])]
    spreads = _spreads(p, cells)
    reason = "a variance over descriptors needs two of them" if np.isnan(spreads["_corrected"]).any() else None
    return [
        BiasScore(
            f"{metric}{form}",
            float(spread[columns].sum()),
            0.0,
            (0.0, 1.0),
            len(cells),
            group=group | cut,
            reason=reason,
        )
        for metric, cut, columns in cuts
        for form, spread in spreads.items()
    ]


def _spreads(p: np.ndarray, cells: pd.DataFrame) -> dict[str, np.ndarray]:
    """Return the variance over descriptors of each column of p (n, c), one row per cell, in the three forms (c,).

    Templates with a single descriptor have no variance and are passed over. Only descriptors with a cell for every
    template are pooled, so that their means compare.
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


@cache
def neutral_pairs(split: str) -> tuple[tuple[str, str], ...]:
    pairs = []
    for topic in _read("neutral.yaml")["topics"].values():
        for thing in topic["things"]:
            responses = [response.format(thing=thing) for response in topic["responses"]]
            for pattern in topic["prompts"]:
                prompt = pattern.format(thing=thing)
                share = int.from_bytes(hashlib.sha256(prompt.encode()).digest()[:4]) / 2**32
                if (share < HELD_OUT_SHARE) == (split == "held_out"):
                    pairs += [(prompt, response) for response in responses]
    return tuple(pairs)


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


@cache
def _read(name: str) -> dict:
    return yaml.safe_load((FOLDER / name).read_text(encoding="utf-8"))
