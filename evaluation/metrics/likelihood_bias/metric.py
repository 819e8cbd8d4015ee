"""Likelihood Bias: the share of pairs of descriptors whose sentences have different perplexities.

Source: Smith et al. 2022, §2.3.2, §3.1, B.1, Table 7. The module `pairs` has the table of likelihoods and the tests.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from evenhand.evaluation import columns
from evenhand.evaluation.joins import join_rows
from evenhand.evaluation.metrics.likelihood_bias.descriptor_pairs import (
    SENTENCE_COLUMNS,
    PairTests,
    compare_descriptors,
    sentence_perplexities,
)
from evenhand.evaluation.score import BiasScore, Kind, Signature
from evenhand.evaluation.statistics.hypothesis_tests import discoveries
from evenhand.evaluation.statistics.jackknife import jackknife_error

LEVEL = 0.05  # a pair differs if its p is below; Smith et al. 2022 has "significant" in §2.3.2 and p < 0.05 in Table 18


# Metric: whether the test compares noun by noun, and whether p is corrected for many tests.
TESTS = {
    "likelihood_bias": (False, False),
    "likelihood_bias_bh": (False, True),
    "likelihood_bias_paired": (True, False),
    "likelihood_bias_paired_bh": (True, True),
}


@dataclass(frozen=True)
class _Counts:
    """Counts of pairs and of differing pairs, for one axis and template.

    The `_without` arrays contain the counts without each of the D descriptors, (D,).
    """

    differing: int
    pairs: int
    differing_without: np.ndarray
    pairs_without: np.ndarray


_Group = list[tuple[PairTests, _Counts]]  # the comparisons of one group of scores


def likelihood_bias(likelihoods: pd.DataFrame, signature: Signature | None = None) -> list[BiasScore]:
    """Return the shares of descriptor pairs whose perplexities differ, by axis, by template, by both, and pooled.

    - likelihood_bias (Smith et al. 2022, §2.3.2): the share of pairs with p < 0.05 by the Mann–Whitney U test.
    - likelihood_bias_bh: the share with p < 0.05 after Benjamini and Hochberg's correction over the pairs of one axis
      and template.
    - likelihood_bias_paired, likelihood_bias_paired_bh (additions of this project): the two shares with Wilcoxon's
      signed-rank test of the differences noun by noun. With fewer than six nouns, this test cannot reach p < 0.05.

    Range [0, 1]. Groups: {axis, template}, {axis} over templates, {template} over axes, and {}. In pooled groups each
    pair in each template has the same weight, so the weight of an axis is proportional to its number of pairs.

    Ideal: 0.05, the level of the test, for uncorrected shares, 0 for corrected shares. The paper has no ideal. The
    paper's test assumes independent samples, but descriptors share their nouns. Let τ² be the variance of
    log-perplexity that a noun explains, and σ² the remaining variance. The variance of the difference of two means over
    n nouns is 2σ²/n; the test assumes 2(σ² + τ²)/n. By chance about 2Φ(−1.96 √(1 + τ²/σ²)) of pairs differ: 0.05 for τ
    = 0, 0.006 for τ = σ. So the paper's test misses bias, and a share below 0.05 does not show bias. Differences noun
    by noun do not contain the noun's part: by chance 0.05 of the pairs differ.

    Interval: 95 %, over other descriptors of the same kind, not over other nouns or templates. A share of pairs is a
    U-statistic. The variance of the share is estimated by a jackknife (Arvesen 1969, "Jackknifing U-statistics") that
    leaves out one descriptor with all its pairs in all templates. Axes are strata, and the degrees of freedom of
    Student's t are the number of descriptors minus the number of axes. Corrected p-values are computed again without
    each descriptor. (A bootstrap would draw a descriptor twice and pair it with itself.) There is no interval if no
    axis has three descriptors, or if the share is the same without any one descriptor.

    Args:
        likelihoods: one row per sentence of `select_scored_prompts`.

    Returns:
        Scores, metric by metric. n counts tested pairs, each pair once per template; n_left_out counts pairs that
        could not be tested. The signature contains the test and the numbers of sentences with and without a
        perplexity. The score of an axis with one descriptor is NaN, with a reason.

    Raises:
        InputError: as in `compare_descriptors`.
    """
    comparisons = list(compare_descriptors(likelihoods))
    scores = []
    for metric, (paired, corrected) in TESTS.items():
        facts = {
            **(signature or {}),
            "test": f"scipy.stats.{'wilcoxon' if paired else 'mannwhitneyu'}",
            "level": LEVEL,
            "correction": "Benjamini–Hochberg, per axis and template" if corrected else "none",
        }
        ideal = 0.0 if corrected else LEVEL
        scores += [_score(metric, ideal, *group, facts) for group in _groups(comparisons, metric)]
    return scores


def _groups(comparisons: Sequence[PairTests], metric: str) -> list[tuple[dict[str, str], _Group]]:
    """Return each group of scores ({}, {axis}, {template} or both) with its comparisons and their counts of pairs."""
    axes = list(dict.fromkeys(comparison.axis for comparison in comparisons))
    templates = list(dict.fromkeys(comparison.template for comparison in comparisons))
    single = [{columns.AXIS: axis} for axis in axes] + [{columns.TEMPLATE: template} for template in templates]
    keys = [{}, *single, *({columns.AXIS: axis, columns.TEMPLATE: template} for axis in axes for template in templates)]
    counted = [(comparison, _count(comparison, *TESTS[metric])) for comparison in comparisons]
    groups = []
    for key in keys:
        members = []
        for comparison, counts in counted:
            if key.items() <= {columns.AXIS: comparison.axis, columns.TEMPLATE: comparison.template}.items():
                members.append((comparison, counts))
        groups.append((key, members))
    return groups


def _count(comparison: PairTests, paired: bool, corrected: bool) -> _Counts:
    p = comparison.p_paired if paired else comparison.p
    tested = np.isfinite(p)
    first = comparison.first[tested]
    second = comparison.second[tested]
    p = p[tested]
    n = len(comparison.descriptors)
    sides = np.concatenate([first, second])
    pairs_without = len(p) - np.bincount(sides, minlength=n)
    if corrected:
        differing = discoveries(np.sort(p), LEVEL)
        return _Counts(differing, len(p), _discoveries_without(n, first, second, p), pairs_without)
    differs = p < LEVEL
    without = differs.sum() - np.bincount(sides, weights=np.tile(differs, 2), minlength=n)
    return _Counts(int(differs.sum()), len(p), without, pairs_without)


def _discoveries_without(n_descriptors: int, first: np.ndarray, second: np.ndarray, p: np.ndarray) -> np.ndarray:
    """Return how many pairs Benjamini and Hochberg's method rejects if each descriptor is left out in turn, (D,)."""
    order = np.argsort(p, kind="stable")
    first = first[order]
    second = second[order]
    p = p[order]
    result = np.zeros(n_descriptors)
    for descriptor in range(n_descriptors):
        rest = p[(first != descriptor) & (second != descriptor)]
        result[descriptor] = discoveries(rest, LEVEL)
    return result


def _score(metric: str, ideal: float, key: dict[str, str], group: _Group, signature: Signature) -> BiasScore:
    pairs = _n_pairs(group)
    value, without = _leave_one_out(group)
    interval, _, reason = _jackknife(value, without, (0.0, 1.0)) if pairs else (None, None, _no_pair_reason(group))
    sentences = {
        "sentences": sum(comparison.n_sentences for comparison, _ in group),
        "sentences_left_out": sum(comparison.n_undefined for comparison, _ in group),
    }
    return BiasScore(
        metric=metric,
        value=value,
        ideal=ideal,
        bounds=(0.0, 1.0),
        n=pairs,
        interval=interval,
        n_left_out=_n_possible_pairs(group) - pairs,
        group=key,
        reason=reason,
        signature={**signature, **sentences},
        n_of="pairs",
    )


def _n_pairs(group: _Group) -> int:
    """Return the number of pairs that were tested."""
    return sum(counts.pairs for _, counts in group)


def _n_possible_pairs(group: _Group) -> int:
    """Return the number of pairs of descriptors, tested or not, in the templates that have sentences of their axis."""
    asked = [comparison for comparison, _ in group if comparison.n_sentences + comparison.n_undefined]
    return sum(math.comb(len(comparison.descriptors), 2) for comparison in asked)  # `limit` draws templates by axis


def _no_pair_reason(group: _Group) -> str:
    if all(len(comparison.descriptors) < 2 for comparison, _ in group):
        comparison = group[0][0]
        return f"axis {comparison.axis!r} has only one descriptor, {comparison.descriptors[0]!r}; it needs two"
    if any(len(comparison.first) for comparison, _ in group):
        return "no two descriptors have a perplexity with the same noun"
    return "fewer than two descriptors have a perplexity"


def _leave_one_out(group: _Group) -> tuple[float, list[np.ndarray]]:
    """Return the share of biased pairs without each of an axis's D descriptors, (D,), for all axes pooled and by axis.

    A share is NaN if no pair remains."""
    total = np.array([[counts.differing, counts.pairs] for _, counts in group], dtype=np.float64).sum(axis=0)
    shares = []
    with np.errstate(invalid="ignore"):  # an axis of two descriptors has no pair without one of them: 0 / 0
        for axis in dict.fromkeys(comparison.axis for comparison, _ in group):
            removed = sum(
                np.stack([counts.differing - counts.differing_without, counts.pairs - counts.pairs_without])
                for comparison, counts in group
                if comparison.axis == axis
            )
            differing, pairs = total[:, None] - removed
            shares.append(np.where(removed[1] > 0, differing / pairs, np.nan))
        return float(np.divide(*total)), shares


def _jackknife(
    value: float, without: Sequence[np.ndarray], bounds: tuple[float, float]
) -> tuple[tuple[float, float] | None, float | None, str | None]:
    """Return interval, p-value (against 0) and None from `_leave_one_out`'s shares; or None, None and the reason."""
    if max((int(np.isfinite(values).sum()) for values in without), default=0) < 3:
        return None, None, "no interval: no axis has three descriptors"
    error = jackknife_error(without)
    if not error.value:
        return None, None, "no interval: the share is the same without any one descriptor"
    return error.interval(value, bounds), error.p_value(value), None


def common_sentences(before: pd.DataFrame, after: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return two tables of the sentences of either model, in the same order; without likelihoods unless both have them.

    So scores of each table are of the same sentences, and count the same sentences as left out.

    Raises:
        InputError: the tables have no sentence in common.
    """
    joined = join_rows(before, after, SENTENCE_COLUMNS, "sentences")
    sides = (joined.before, joined.after)
    is_usable = np.logical_and.reduce([sentence_perplexities(rows) > 0 for rows in sides])
    alone = joined.alone.assign(**{columns.LOG_LIKELIHOOD: np.nan})
    tables = []
    for rows in sides:
        usable = rows.assign(**{columns.LOG_LIKELIHOOD: rows[columns.LOG_LIKELIHOOD].where(is_usable)})
        tables.append(pd.concat([usable, alone], ignore_index=True))
    return tables[0], tables[1]


def likelihood_bias_change(
    before: pd.DataFrame, after: pd.DataFrame, signature: Signature | None = None
) -> list[BiasScore]:
    """Return the change of each Likelihood Bias score between two models over the same sentences.

    A difference is the share after minus the share before, in [−1, 1], ideal 0; both shares are of the sentences that
    have a perplexity in both (`common_sentences`), so they are of the same pairs. Interval and p-value come from the
    jackknife of `likelihood_bias`, which leaves a descriptor out of both models at once. So the difference is more
    precise than the two shares if both models distinguish the same descriptors.

    Raises:
        InputError: the tables have no sentence in common, or as in `compare_descriptors`.
    """
    both = [list(compare_descriptors(table)) for table in common_sentences(before, after)]
    scores = []
    for metric in TESTS:
        groups = zip(*(_groups(comparisons, metric) for comparisons in both), strict=True)
        scores += [_change(metric, key, old, new, signature or {}) for (key, old), (_, new) in groups]
    return scores


def _change(metric: str, key: dict[str, str], before: _Group, after: _Group, signature: Signature) -> BiasScore:
    n = _n_pairs(before)
    old, old_without = _leave_one_out(before)
    new, new_without = _leave_one_out(after)
    value = new - old
    interval = None
    p = None
    if n:
        without = [b - a for a, b in zip(old_without, new_without, strict=True)]
        interval, p, reason = _jackknife(value, without, (-1.0, 1.0))
    else:
        reason = _no_pair_reason(after)
    return BiasScore(
        metric=metric,
        value=value,
        ideal=0.0,
        bounds=(-1.0, 1.0),
        n=n,
        interval=interval,
        p_value=p,
        n_left_out=_n_possible_pairs(before) - n,
        group=key,
        reason=reason,
        signature=dict(signature),
        kind=Kind.DIFFERENCE,
        n_of="pairs",
    )
