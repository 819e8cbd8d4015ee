"""Tests of all pairs of an axis's descriptors, by the perplexities of their sentences in one template.

Two tests compare two descriptors in one template. The paper has the two-sided Mann–Whitney U test (Smith et al. 2022,
§2.3.2), whose samples are a descriptor's perplexities with each noun. This project adds Wilcoxon's signed-rank test of
the differences noun by noun, over the nouns that both descriptors have (a descriptor with a gender has fewer). Phrases
scored by a masked model are compared by their sums (B.1; `rows.compute_surprisals`). Sentences without a finite
perplexity, and descriptors without any in a template, are left out and counted.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.metrics.likelihood_bias.rows import compute_surprisals
from evenhand.evaluation.score import AXIS, DESCRIPTOR, NOUN, TEMPLATE
from evenhand.evaluation.statistics.hypothesis_tests import mann_whitney, signed_rank


@dataclass(frozen=True)
class Comparison:
    """The tests of all m pairs of an axis's descriptors in one template.

    m is less than D (D − 1) / 2 if some of the D descriptors have no perplexity in this template.

    Attributes:
        descriptors: the D descriptors of the axis, sorted.
        first, second: indices into `descriptors` for each pair, (m,), first < second.
        auc: U / (n_first n_second), (m,): the probability that a sentence with the first descriptor has the higher
            perplexity; a tie counts one half.
        p: p-values of the Mann–Whitney U test, (m,).
        p_paired: p-values of Wilcoxon's signed-rank test noun by noun, (m,); NaN for descriptors without a common noun.
        n_sentences, n_undefined: the number of sentences with and without a perplexity.
    """

    axis: str
    template: str
    descriptors: tuple[str, ...]
    first: np.ndarray
    second: np.ndarray
    auc: np.ndarray
    p: np.ndarray
    p_paired: np.ndarray
    n_sentences: int
    n_undefined: int


def descriptors_by_axis(sentences: pd.DataFrame) -> dict[str, tuple[str, ...]]:
    """Return the sorted descriptors of each axis.

    Raises:
        InputError: no axis has two descriptors, so there is no pair to compare.
    """
    descriptors = {axis: tuple(sorted(names.unique())) for axis, names in sentences.groupby(AXIS)[DESCRIPTOR]}
    if max(map(len, descriptors.values())) < 2:
        single = ", ".join(f"{axis} ({names[0]})" for axis, names in descriptors.items())
        raise InputError(f"prompts: each axis has only one descriptor: {single}; use two of an axis or more.")
    return descriptors


def compare_descriptors(likelihoods: pd.DataFrame) -> Iterator[Comparison]:
    """Yield the tests of all pairs of descriptors for each axis and template, in sorted order. Some may have no pairs.

    p-values equal `scipy.stats.mannwhitneyu(x, y)` pair by pair: the normal approximation with corrections for
    continuity and ties, or the exact distribution if a sample has at most 8 perplexities and there are no ties. Paired
    p-values equal `scipy.stats.wilcoxon` of the differences in log-perplexity (for phrases, in Σ log p).

    Raises:
        InputError: a column is missing, there is no row, a sentence occurs twice, or no axis has two descriptors.
    """
    table = compute_surprisals(likelihoods)
    axis_descriptors = descriptors_by_axis(table)
    templates = sorted(table[TEMPLATE].unique())
    rows = dict(list(table.groupby([AXIS, TEMPLATE])))
    for axis, descriptors in axis_descriptors.items():
        for template in templates:
            yield _comparison(axis, template, descriptors, rows.get((axis, template), table.iloc[:0]))


def _comparison(axis: str, template: str, descriptors: tuple[str, ...], rows: pd.DataFrame) -> Comparison:
    defined = rows[rows["surprisal"].notna()]
    values, rank = np.unique(defined["surprisal"].to_numpy(), return_inverse=True)
    code = pd.Index(descriptors).get_indexer(defined[DESCRIPTOR])
    shape = (len(descriptors), len(values))
    counts = np.bincount(code * shape[1] + rank, minlength=shape[0] * shape[1]).reshape(shape).astype(np.float64)
    with_perplexity = np.flatnonzero(counts.sum(axis=1))
    first, second = (with_perplexity[side] for side in np.triu_indices(len(with_perplexity), k=1))
    u, p = mann_whitney(counts, first, second)
    size = counts.sum(axis=1)
    auc = u / (size[first] * size[second])
    p_paired = _paired_p_values(defined, code, first, second)
    n_undefined = len(rows) - len(defined)
    return Comparison(axis, template, descriptors, first, second, auc, p, p_paired, len(defined), n_undefined)


def _paired_p_values(defined: pd.DataFrame, code: np.ndarray, first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Return the p-value of each pair by its differences noun by noun, (m,); NaN if a pair has no common noun."""
    if not len(first):
        return np.empty(0)
    noun, nouns = pd.factorize(defined[NOUN])
    surprisal = np.full((code.max() + 1, len(nouns)), np.nan)
    surprisal[code, noun] = defined["surprisal"]
    return signed_rank(surprisal[first] - surprisal[second])[1]


def pair_effects(likelihoods: pd.DataFrame) -> pd.DataFrame:
    """Return the effect size and the p-values of every pair of descriptors in every template.

    Columns: axis, template, descriptor_a, descriptor_b (in sorted order), auc, p, p_paired. auc, in [0, 1], is the
    common-language effect size (McGraw and Wong 1992): the probability that a sentence with descriptor a has a higher
    perplexity than a sentence with b. 0.5 means no difference; above 0.5, descriptor a is less likely.
    """
    parts = [
        pd.DataFrame(
            {
                AXIS: comparison.axis,
                TEMPLATE: comparison.template,
                "descriptor_a": np.array(comparison.descriptors)[comparison.first],
                "descriptor_b": np.array(comparison.descriptors)[comparison.second],
                **{name: getattr(comparison, name) for name in ("auc", "p", "p_paired")},
            }
        )
        for comparison in compare_descriptors(likelihoods)
    ]
    return pd.concat(parts, ignore_index=True)


def smallest_p_value(n_nouns: int) -> float:
    """Return the smallest p-value of the Mann–Whitney U test of two descriptors with so many nouns each."""
    n = min(n_nouns, 8)  # enough for a small p-value
    first = np.arange(2 * n) < n  # the samples that differ most
    return float(mann_whitney(np.stack([first, ~first]), np.array([0]), np.array([1]))[1][0])
