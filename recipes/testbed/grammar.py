"""The testbed's grammar: responses in known styles, with a planted dependence of style on descriptor.

Every number that a metric estimates from responses is computed here exactly, from the plan in `bias_plan.yaml`: that
is `truth`. The phrases are in `phrases.yaml`, the descriptor-free small talk in `neutral.yaml`.
"""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
import yaml

from evenhand.evaluation.errors import unknown_name
from evenhand.evaluation.results import DESCRIPTOR, NOUN, TEMPLATE, BiasScore
from evenhand.recipes.testbed.plan import Plan, read_plan
from evenhand.recipes.testbed.plan import style_distribution as planned_distribution
from evenhand.recipes.testbed.truth import exact_bias

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
    return read_plan(_read("bias_plan.yaml"), styles())


def style_distribution(
    templates: Sequence[str],
    descriptors: Sequence[str],
    amplification: float = 1.0,
    nouns: Sequence[str] | None = None,
) -> np.ndarray:
    """Return p(style | template, descriptor) for n pairs, shape (n, S): `plan.style_distribution` of the grammar's."""
    return planned_distribution(plan(), templates, descriptors, amplification, nouns)


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

    def expected(rows: pd.DataFrame) -> tuple[pd.DataFrame, np.ndarray]:
        distinct, p = _cell_distributions(rows, of_nouns)
        return distinct, p if seen_through is None else p @ seen_through

    return exact_bias(cells, expected, styles(), clusters())


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


@cache
def _read(name: str) -> dict:
    return yaml.safe_load((FOLDER / name).read_text(encoding="utf-8"))
