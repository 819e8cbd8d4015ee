"""The testbed's grammar: responses in known styles, with a planted dependence of style on descriptor.

`truth` computes exactly, from the plan in `bias_plan.yaml`, each value that a metric estimates from responses. The
phrases are in `phrases.yaml`, small talk without descriptors in `neutral.yaml`.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
import yaml

from evenhand.evaluation import columns
from evenhand.evaluation.data.holistic_bias import load_taxonomy
from evenhand.evaluation.score import BiasScore, Form

FOLDER = Path(__file__).parent
HELD_OUT_FRACTION = 0.15  # approximate share of held-out neutral prompts, chosen by a hash
SPLITS = ("train", "held_out")
MENTION = "{descriptor}"  # the placeholder of the prompt's descriptor in a core
CENSORED = "left-handed"  # replaces descriptors in responses before classification (Smith et al. 2022, A.6)


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


@dataclass(frozen=True)
class Family:
    """The phrases of one style; an utterance is "opener core tail", each sampled uniformly and independently."""

    style: str
    openers: tuple[str, ...]
    cores: tuple[str, ...]
    tails: tuple[str, ...]


@cache
def families() -> tuple[Family, ...]:
    """Return the S style families, in the order of the style classifier's labels."""
    phrases = _read("phrases.yaml")

    def phrases_of(style: str, slot: str) -> tuple[str, ...]:
        shared = [phrase for group in phrases["shared"] if style in group["families"] for phrase in group[slot]]
        return (*phrases["families"][style][slot], *shared)

    result = []
    for style in phrases["families"]:
        family = Family(
            style=style,
            openers=phrases_of(style, "openers"),
            cores=phrases_of(style, "cores"),
            tails=phrases_of(style, "tails"),
        )
        result.append(family)
    return tuple(result)


def styles() -> tuple[str, ...]:
    """Return the S style names, in the order of the style classifier's labels."""
    return tuple(family.style for family in families())


def clusters() -> dict[str, list[str]]:
    """Return the paper's six style clusters (Smith et al. 2022, A.7) with their styles."""
    return {name: list(shares) for name, shares in _read("bias_plan.yaml")["clusters"].items() if name != "OTHER"}


def utterances(family: Family, descriptor: str = CENSORED) -> list[str]:
    """Return all utterances of a style family in response to `descriptor`; they are equally likely."""
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

    base = {}
    gain = {}
    for group in text["template_groups"].values():
        shares = np.zeros(len(index))
        for name, mass in group["base"].items():
            for style, share in text["clusters"][name].items():
                shares[index[style]] = mass * share
        for template in group["templates"]:
            base[template] = np.log(shares / shares.sum())
            gain[template] = group["gain"]
    effects = {}
    for descriptor, pairs in _axes_and_buckets().items():
        # A descriptor of two axes (such as "queer") is one string to a model: it has the mean of both rows.
        rows = [text["axes"].get(axis, {}) for axis, _ in pairs]
        of_rows = []
        for row, (_, bucket) in zip(rows, pairs, strict=True):
            of_rows.append(spread(row.get("*", {})) + spread(row.get(bucket, {})))
        effect = np.mean(of_rows, axis=0)
        for group in text["descriptors"]:
            if descriptor in group["names"]:
                effect = effect + spread(group["effect"])
        z = _normal_numbers(descriptor, 1 + len(index))
        scale = text["strength"] * np.exp(text["strength_jitter"] * z[0])
        axes = {axis for axis, _ in pairs}
        is_biased = descriptor not in text["unbiased"] and not axes <= set(text["unbiased_axes"])
        effects[descriptor] = is_biased * (scale * effect + text["style_jitter"] * z[1:])
    nouns = {}
    for noun in load_taxonomy("paper").nouns:
        of_noun = _normal_numbers(f"noun {noun.singular}", len(index))
        of_gender = _normal_numbers(f"gender {noun.gender}", len(index))
        nouns[noun.singular] = text["noun_strength"] * (of_noun + of_gender)
    return Plan(base, gain, effects, nouns)


def style_distribution(
    templates: Sequence[str], descriptors: Sequence[str], amplification: float = 1.0, nouns: Sequence[str] | None = None
) -> np.ndarray:
    """Return p(style | template, descriptor) for n pairs, (n, S); `amplification` multiplies the planted effects.

    With n `nouns`, p also depends on nouns, for tests of metrics; no shipped model has such effects.
    """
    planted = plan()
    gain = np.array([planted.gain[template] for template in templates])[:, None]
    logits = np.array([planted.base[template] for template in templates])
    logits = logits + amplification * gain * np.array([planted.effects[descriptor] for descriptor in descriptors])
    if nouns is not None:
        logits += np.array([planted.nouns[noun] for noun in nouns])
    weights = np.exp(logits - logits.max(axis=1, keepdims=True))
    return weights / weights.sum(axis=1, keepdims=True)


def descriptor_means(templates: Sequence[str], descriptors: Sequence[str]) -> np.ndarray:
    """Return the true m_d, p(style | t, d) averaged over T templates, (D, S) (Smith et al. 2022, C.1)."""
    pairs = [(template, descriptor) for descriptor in descriptors for template in templates]
    cells = style_distribution([t for t, _ in pairs], [d for _, d in pairs])
    return cells.reshape(len(descriptors), len(templates), -1).mean(axis=1)


def style_map(classify: Callable[[list[str]], np.ndarray]) -> np.ndarray:
    """Return K: the classifier's expected style vector for an utterance of each family, shape (S families, S styles).

    The result is exact: `classify` scores every utterance after cleaning (Smith et al. 2022, A.6), which replaces the
    descriptors.
    """
    return np.stack([np.asarray(classify(utterances(family))).mean(axis=0) for family in families()])


def sample_responses(prompts: pd.DataFrame, seed: int) -> list[str]:
    """Return one sampled response of the grammar for each of n prompt rows (columns template, descriptor)."""
    rng = np.random.default_rng(seed)
    sampled_styles = sample_columns(style_distribution(prompts[columns.TEMPLATE], prompts[columns.DESCRIPTOR]), rng)
    responses = []
    for style, descriptor, (u, v, w) in zip(
        sampled_styles, prompts[columns.DESCRIPTOR], rng.random((len(sampled_styles), 3)), strict=True
    ):
        family = families()[style]
        opener = family.openers[int(u * len(family.openers))]
        core = family.cores[int(v * len(family.cores))].replace(MENTION, descriptor)
        responses.append(f"{opener} {core} {family.tails[int(w * len(family.tails))]}")
    return responses


def sample_columns(weights: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return the index of a sampled column for each of n rows, with probabilities proportional to `weights` (n, k)."""
    cumulative = weights.cumsum(axis=1)
    return (cumulative <= rng.random(len(weights))[:, None] * cumulative[:, -1:]).sum(axis=1)


def neutral_dialogue(split: str, n: int, seed: int) -> pd.DataFrame:
    """Return n sampled pairs of small talk without descriptors (columns text, response); splits share no prompt."""
    rng = np.random.default_rng(seed)
    pairs = neutral_pairs(split)
    return pd.DataFrame([pairs[i] for i in rng.integers(len(pairs), size=n)], columns=["text", "response"])


def truth(
    cells: pd.DataFrame, classifier_map: np.ndarray | None = None, *, with_nouns: bool = False
) -> list[BiasScore]:
    """Return the exact generation bias of the grammar over cells (Smith et al. 2022, A.7), without sampling.

    p_tds is the probability of style s in cell (t, d). fgb = 1/T Σ_t Σ_s Var_d(p_tds), with ddof = 0 as in the paper;
    the form CORRECTED has ddof = 1, the value that the noise-corrected estimator estimates; POOLED_CORRECTED is
    the spread of descriptors without the interaction of descriptor and template (`_spreads`). pgb and scgb, by cluster,
    and fgb by axis and by style are defined likewise.

    Args:
        cells: columns template, descriptor and, for scores by axis, axis; repeated rows count once.
        classifier_map: the result of `style_map`, (S families, R styles of a classifier). If it is given, the result is
            the bias of the classifier's expected style vectors, and scores by cluster and by style exist only if the
            classifier has the grammar's styles.
        with_nouns: whether the effects of nouns are included. If so, `cells` has a row for each sentence and a column
            noun, and p_tds is the mean over the nouns of a cell. A gendered descriptor has only nouns of its gender.
    """

    def expected(rows: pd.DataFrame) -> tuple[pd.DataFrame, np.ndarray]:
        distinct, p = _cell_distributions(rows, with_nouns)
        return distinct, p if classifier_map is None else p @ classifier_map

    distinct, p = expected(cells)
    cuts = [("fgb", {}, list(range(p.shape[1])))]
    if p.shape[1] == len(styles()):
        cuts += [("fgb", {"style": style}, [i]) for i, style in enumerate(styles())]
        for name, members in clusters().items():
            names = [styles().index(member) for member in members]
            p = np.column_stack([p, p[:, names].sum(axis=1)])
            cuts += [("pgb", {"cluster": name}, names), ("scgb", {"cluster": name}, [p.shape[1] - 1])]
    scores = _cut_scores(distinct, p, cuts)
    if columns.AXIS in cells:
        for axis, rows in cells.groupby(columns.AXIS, sort=True):
            distinct, p = expected(rows)
            scores += _cut_scores(distinct, p, [("fgb", {"axis": str(axis)}, list(range(p.shape[1])))])
    return scores


def _cell_distributions(cells: pd.DataFrame, with_nouns: bool) -> tuple[pd.DataFrame, np.ndarray]:
    """Return the distinct cells (columns template, descriptor) and the style distribution of each, (n, S)."""
    names = [columns.TEMPLATE, columns.DESCRIPTOR]
    if not with_nouns:
        cells = cells[names].drop_duplicates()
        return cells, style_distribution(cells[columns.TEMPLATE], cells[columns.DESCRIPTOR])
    rows = cells[[*names, columns.NOUN]].drop_duplicates()
    p = pd.DataFrame(style_distribution(rows[columns.TEMPLATE], rows[columns.DESCRIPTOR], nouns=rows[columns.NOUN]))
    means = p.groupby([rows[name].to_numpy() for name in names]).mean()
    return means.index.to_frame(index=False, name=names), means.to_numpy()


def _cut_scores(
    cells: pd.DataFrame, p: np.ndarray, cuts: Sequence[tuple[str, dict[str, str], list[int]]]
) -> list[BiasScore]:
    """Return the plain, corrected and pooled score of each cut (metric, group, columns of the style vectors `p`)."""
    spreads = _spreads(p, cells)
    reason = None
    if np.isnan(spreads[Form.CORRECTED]).any():
        reason = "a variance over descriptors needs two descriptors"
    scores = []
    for metric, group, styles in cuts:
        for form, spread in spreads.items():
            score = BiasScore(
                metric=metric,
                value=float(spread[styles].sum()),
                ideal=0.0,
                bounds=(0.0, 1.0),
                n=len(cells),
                group=group,
                reason=reason,
                form=form,
            )
            scores.append(score)
    return scores


def _spreads(p: np.ndarray, cells: pd.DataFrame) -> dict[Form, np.ndarray]:
    """Return the variance over descriptors of each column of `p`, (c,), for each of FGB, FGB* and pooled FGB*.

    A template with a single descriptor has no variance and is skipped. The pooled value is the mean over pairs of
    descriptors of ½ δ_t δ_s over different common templates t and s, with δ_t their difference on template t.

    Args:
        p: expected style vectors (n, c), one row per cell.
        cells: n rows.
    """
    template = np.unique(cells[columns.TEMPLATE], return_inverse=True)[1]
    descriptor = np.unique(cells[columns.DESCRIPTOR], return_inverse=True)[1]
    grid = np.full((template.max() + 1, descriptor.max() + 1, p.shape[1]), np.nan)
    grid[template, descriptor] = p
    compared = [rows[~np.isnan(rows[:, 0])] for rows in grid]
    compared = [rows for rows in compared if len(rows) > 1]
    plain = np.full(p.shape[1], np.nan)
    corrected = np.full(p.shape[1], np.nan)
    if compared:
        plain = np.mean([rows.var(axis=0) for rows in compared], axis=0)
        corrected = np.mean([rows.var(axis=0, ddof=1) for rows in compared], axis=0)
    return {Form.PLAIN: plain, Form.CORRECTED: corrected, Form.POOLED_CORRECTED: _pooled_spread(grid)}


def _pooled_spread(grid: np.ndarray) -> np.ndarray:
    """Return the pooled value of each column, (c,), from expected style vectors (T, D, c), NaN without a cell."""
    products = []
    for one in range(grid.shape[1] - 1):
        difference = grid[:, one + 1 :] - grid[:, [one]]
        k = np.isfinite(difference).sum(axis=0)
        sums = np.nansum(difference, axis=0) ** 2 - np.nansum(difference**2, axis=0)
        is_compared = k[:, 0] > 1
        products.append(0.5 * sums[is_compared] / (k * (k - 1))[is_compared])
    products = np.concatenate(products) if products else np.zeros((0, grid.shape[2]))
    return products.mean(axis=0) if len(products) else np.full(grid.shape[2], np.nan)


@cache
def neutral_pairs(split: str) -> tuple[tuple[str, str], ...]:
    """Return all (prompt, response) pairs of small talk in a split."""
    pairs = []
    for topic in _read("neutral.yaml")["topics"].values():
        for thing in topic["things"]:
            responses = [response.format(thing=thing) for response in topic["responses"]]
            for pattern in topic["prompts"]:
                prompt = pattern.format(thing=thing)
                uniform = int.from_bytes(hashlib.sha256(prompt.encode()).digest()[:4]) / 2**32
                if (uniform < HELD_OUT_FRACTION) == (split == "held_out"):
                    pairs += [(prompt, response) for response in responses]
    return tuple(pairs)


def _normal_numbers(name: str, n: int) -> np.ndarray:
    seed = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8])
    return np.random.default_rng(seed).standard_normal(n)


@cache
def _axes_and_buckets() -> dict[str, list[tuple[str, str]]]:
    """Return each descriptor's (axis, bucket) pairs in the paper edition; "" if the descriptor follows its noun."""
    taxonomy = load_taxonomy("paper")
    pairs: dict[str, list[tuple[str, str]]] = {}
    for term in taxonomy.descriptors:
        pairs.setdefault(term.descriptor, []).append((term.axis, term.bucket))
    for entry in taxonomy.standalone:
        descriptor = entry.noun_phrase.replace("{article}", "").replace("{noun}", "").strip()
        pairs.setdefault(descriptor, []).append((entry.axis, ""))
    return pairs


@cache
def _read(name: str) -> dict:
    return yaml.safe_load((FOLDER / name).read_text(encoding="utf-8"))
