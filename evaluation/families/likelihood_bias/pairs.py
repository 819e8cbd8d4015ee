"""Every pair of an axis's descriptors, compared by the perplexities of their sentences with one template.

For each axis and template, a two-sided Mann–Whitney U test of the perplexities of two descriptors, one per noun (paper
002, §2.3.2), and, as both have the same nouns, Wilcoxon's signed-rank test of the differences noun by noun (ours).
Phrases scored by a masked model are compared by their sums (B.1; `rows.checked_sentences`). A sentence whose perplexity
is NaN or infinite is left out and counted, and so is a descriptor in a template where it has no perplexity at all.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd

from evenhand.evaluation.errors import InputError, unknown_name
from evenhand.evaluation.families.likelihood_bias.rows import checked_sentences
from evenhand.evaluation.results import AXIS, DESCRIPTOR, NOUN, TEMPLATE
from evenhand.evaluation.statistics.mann_whitney import mann_whitney
from evenhand.evaluation.statistics.multiple_testing import benjamini_hochberg
from evenhand.evaluation.statistics.wilcoxon import signed_rank


@dataclass(frozen=True)
class Comparison:
    """All pairs of an axis's descriptors in one template.

    descriptors: the D of the axis, sorted. first, second: of each pair, indices into them, (m,), first < second.
    auc: U / (n_first n_second), the probability that a sentence with the first has the higher perplexity, ties
    counting half, (m,); p and p_bh: p-value, and that of Benjamini and Hochberg (1995) over these m pairs, (m,).
    p_paired and p_paired_bh: those of the test noun by noun; NaN where two have no noun in common. n_sentences with a
    perplexity, n_undefined without. m < D (D − 1) / 2 where descriptors have no perplexity here.
    """

    axis: str
    template: str
    descriptors: tuple[str, ...]
    first: np.ndarray
    second: np.ndarray
    auc: np.ndarray
    p: np.ndarray
    p_bh: np.ndarray
    p_paired: np.ndarray
    p_paired_bh: np.ndarray
    n_sentences: int
    n_undefined: int


def compare_descriptors(likelihoods: pd.DataFrame) -> Iterator[Comparison]:
    """Yield the comparison of each axis and template, in sorted order; also those without any pair.

    p-values equal those of `scipy.stats.mannwhitneyu(x, y)` pair by pair: the normal approximation with corrections
    for continuity and ties, or the exact distribution where a sample has 8 perplexities or fewer and nothing is tied.
    The paired ones equal those of `scipy.stats.wilcoxon` of the differences in log-perplexity (Σ log p of phrases).

    Raises:
        InputError: a column is missing, there is no row, a sentence stands twice, or no axis has two descriptors.
    """
    table = checked_sentences(likelihoods)
    of_axis = {axis: tuple(sorted(names.unique())) for axis, names in table.groupby(AXIS)[DESCRIPTOR]}
    if max(map(len, of_axis.values())) < 2:
        alone = ", ".join(f"{axis} ({names[0]})" for axis, names in of_axis.items())
        raise InputError(f"likelihoods: each axis has one descriptor alone: {alone}; give two of an axis to compare.")
    templates = sorted(table[TEMPLATE].unique())
    rows = dict(list(table.groupby([AXIS, TEMPLATE])))
    for axis, descriptors in of_axis.items():
        for template in templates:
            yield _comparison(axis, template, descriptors, rows.get((axis, template), table.iloc[:0]))


def _comparison(axis: str, template: str, descriptors: tuple[str, ...], rows: pd.DataFrame) -> Comparison:
    defined = rows[rows["surprisal"].notna()]
    values, rank = np.unique(defined["surprisal"].to_numpy(), return_inverse=True)
    code = pd.Index(descriptors).get_indexer(defined[DESCRIPTOR])
    shape = (len(descriptors), len(values))
    counts = np.bincount(code * shape[1] + rank, minlength=shape[0] * shape[1]).reshape(shape).astype(np.float64)
    known = np.flatnonzero(counts.sum(axis=1))
    first, second = (known[side] for side in np.triu_indices(len(known), k=1))
    u, p = mann_whitney(counts, first, second)
    size = counts.sum(axis=1)
    auc = u / (size[first] * size[second])
    paired = _paired(defined, code, first, second)
    return Comparison(
        *(axis, template, descriptors, first, second, auc, p, _corrected(p), paired, _corrected(paired)),
        n_sentences=len(defined),
        n_undefined=len(rows) - len(defined),
    )


def _paired(defined: pd.DataFrame, code: np.ndarray, first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Return the p-value of each pair's differences noun by noun, (m,); NaN without a noun in common."""
    if not len(first):
        return np.empty(0)
    noun, nouns = pd.factorize(defined[NOUN])
    surprisal = np.full((code.max() + 1, len(nouns)), np.nan)
    surprisal[code, noun] = defined["surprisal"]
    return signed_rank(surprisal[first] - surprisal[second])[1]


def _corrected(p: np.ndarray) -> np.ndarray:
    """Return Benjamini and Hochberg's p-values over the pairs that were tested, NaN for the others."""
    result, tested = np.full(len(p), np.nan), np.isfinite(p)
    result[tested] = benjamini_hochberg(p[tested])
    return result


def pair_effects(likelihoods: pd.DataFrame) -> pd.DataFrame:
    """Return the effect size and p-values of every pair of descriptors in every template.

    Columns: axis, template, descriptor_a, descriptor_b (a before b in sorted order), auc, p, p_bh, p_paired,
    p_paired_bh. auc is the common-language effect size (McGraw and Wong 1992), in [0, 1]: the probability that a
    sentence with a has a higher perplexity than one with b. 0.5 is no difference, and above 0.5 the model finds a less
    likely.

    Raises:
        InputError: as `compare_descriptors`.
    """
    parts = [
        pd.DataFrame(
            {
                AXIS: found.axis,
                TEMPLATE: found.template,
                "descriptor_a": np.array(found.descriptors)[found.first],
                "descriptor_b": np.array(found.descriptors)[found.second],
                "auc": found.auc,
                "p": found.p,
                "p_bh": found.p_bh,
                "p_paired": found.p_paired,
                "p_paired_bh": found.p_paired_bh,
            }
        )
        for found in compare_descriptors(likelihoods)
    ]
    return pd.concat(parts, ignore_index=True)


def effect_matrix(effects: pd.DataFrame, axis: str) -> pd.DataFrame:
    """Return an axis's effect sizes averaged over templates, descriptor × descriptor, for a heat map.

    Row a, column b: the probability that a sentence with a has the higher perplexity; 0.5 on the diagonal, and NaN
    for two that no template compares. `effects` is from `pair_effects`.

    Raises:
        InputError: no pair is of this axis.
    """
    of_axis = effects[effects[AXIS] == axis]
    if not len(of_axis):
        raise unknown_name("axis", axis, effects[AXIS].unique())
    names = sorted({*of_axis["descriptor_a"], *of_axis["descriptor_b"]})
    mean = of_axis.groupby(["descriptor_a", "descriptor_b"])["auc"].mean().unstack()
    above = mean.reindex(index=names, columns=names).to_numpy()
    matrix = np.where(np.isnan(above), 1 - above.T, above)
    np.fill_diagonal(matrix, 0.5)
    return pd.DataFrame(matrix, index=names, columns=names)
