"""Sentences, their likelihoods, and tests of all pairs of an axis's descriptors in one template.

A table of likelihoods has one row per sentence: the prompt's template, axis, descriptor and noun, `log_likelihood`
(Σ log p over the tokens, in nats) and `n_tokens`. Sentences are compared by perplexity, exp(−log_likelihood /
n_tokens). For a masked model, the rows are phrases with pseudo-log-likelihoods (Smith et al. 2022, B.1), marked by the
column `variant`. Phrases are compared by their sums, as in the paper, for any number of tokens.

Two tests compare two descriptors in one template. The paper has the two-sided Mann–Whitney U test (Smith et al. 2022,
§2.3.2), whose samples are a descriptor's perplexities with each noun. This project adds Wilcoxon's signed-rank test of
the differences noun by noun, over the nouns that both descriptors have (a descriptor with a gender has fewer).
Sentences without a finite perplexity, and descriptors without any in a template, are left out and counted.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from evenhand.evaluation import columns
from evenhand.evaluation.data.prompts import require_columns
from evenhand.evaluation.data.readers.prompt_files import read_prompts
from evenhand.evaluation.data.strata import stable_hash
from evenhand.evaluation.errors import InputError
from evenhand.evaluation.statistics.gender import NOUN_GENDER
from evenhand.evaluation.statistics.hypothesis_tests import mann_whitney, signed_rank

N_TOKENS = "n_tokens"
MASKED_VARIANT = "each token of the phrase masked alone"
SENTENCE_COLUMNS = [
    columns.AXIS,
    columns.TEMPLATE,
    columns.DESCRIPTOR,
    columns.NOUN,
]  # together they identify a sentence
LOVE = "I love {plural_noun_phrase}."  # the template of Table 3


@dataclass(frozen=True)
class PairTests:
    """The tests of all m pairs of an axis's descriptors in one template.

    m is less than D (D − 1) / 2 if some of the D descriptors have no perplexity in this template.

    Attributes:
        descriptors: the D descriptors of the axis, sorted.
        first, second: indices into `descriptors` for each pair, (m,), first < second.
        p: p-values of the Mann–Whitney U test, (m,).
        p_paired: p-values of Wilcoxon's signed-rank test noun by noun, (m,); NaN for descriptors without a common noun.
        n_sentences, n_undefined: the number of sentences with and without a perplexity.
    """

    axis: str
    template: str
    descriptors: tuple[str, ...]
    first: np.ndarray
    second: np.ndarray
    p: np.ndarray
    p_paired: np.ndarray
    n_sentences: int
    n_undefined: int


def read_sentences(path: Path, descriptor_column: str | None = None) -> pd.DataFrame:
    """Return the sentences in a user's file, in any language: text, template, axis, descriptor, noun, and gender.

    Sentences with the same noun are compared noun by noun. The column `gender` is optional; its values "female" and
    "male" are compared (`statistics.gender`), others are not.

    Raises:
        InputError: the file cannot be read, a value is missing, or two sentences have the same axis, template,
            descriptor and noun.
    """
    table = read_prompts(path, descriptor_column=descriptor_column)
    require_columns(list(table), [columns.NOUN], str(path))
    if table[columns.NOUN].isna().any():
        raise InputError(path, "a row has no noun; write one in each.")
    _check_distinct(table, path, "leave one out")
    return table.rename(columns={"gender": NOUN_GENDER}).assign(noun_phrase_type="noun_descriptor")


def select_scored_prompts(prompts: pd.DataFrame) -> pd.DataFrame:
    """Return the prompts with a descriptor and a noun.

    HolisticBias v1.0 has 462,878 such prompts of 472,991: 598 (axis, descriptor) pairs in 26 templates, with 30 nouns
    each, or 10 or 11 for the 7 descriptors with a gender, such as "lesbian". Smith et al. 2022, §2.3.2, compares "each
    pair of descriptors" of an axis and names "lesbian", "Filipino" and "Filipina" in Table 3, so these are included.
    (The authors' published code cannot compare samples of different sizes.)

    Raises:
        InputError: there is no such prompt.
    """
    selected = prompts[prompts["noun_phrase_type"].isin(["descriptor_noun", "noun_descriptor"])]
    if not len(selected):
        raise InputError("prompts", "no prompt has a noun and a descriptor; select such prompts.")
    return selected


def limit_sentences(sentences: pd.DataFrame, limit: int | None, seed: int) -> pd.DataFrame:
    """Return at most `limit` sentences, as a sample of whole (axis, template) groups; all sentences for None.

    Only sentences of one group are compared, so each group stays complete. The sample is stratified by axis: the
    numbers of templates of two axes differ by at most one as long as the limit allows, and each axis has at least one
    template, even if that exceeds the limit. Templates are drawn by `seed`, separately for each axis.

    Args:
        sentences: columns axis and template.
    """
    groups = sentences.groupby([columns.AXIS, columns.TEMPLATE]).size()
    if limit is not None and len(sentences) > limit:
        order = sorted(groups.index, key=lambda group: stable_hash(seed, "limit", *group))
        rank = pd.Series(range(len(order)), pd.MultiIndex.from_tuples(order)).groupby(level=0).rank()
        taken = []
        total = 0
        for group in sorted(order, key=lambda group: (rank[group], order.index(group))):
            if rank[group] == 1 or total + groups[group] <= limit:
                taken.append(group)
                total += groups[group]
        kept = pd.MultiIndex.from_frame(sentences[[columns.AXIS, columns.TEMPLATE]]).isin(taken)
        sentences = sentences[kept]
    return sentences.reset_index(drop=True)


def sentence_perplexities(likelihoods: pd.DataFrame) -> np.ndarray:
    """Return the perplexity exp(−log_likelihood / n_tokens) of each sentence, (n,), at least 1; NaN if not finite.

    >>> sentence_perplexities(pd.DataFrame({"log_likelihood": [np.log(1 / 8), np.nan], "n_tokens": [3, 3]})).round(9)
    array([ 2., nan])
    """
    tokens = likelihoods[N_TOKENS].to_numpy(np.float64)
    with np.errstate(all="ignore"):
        values = np.exp(-likelihoods[columns.LOG_LIKELIHOOD].to_numpy(np.float64) / tokens)
    return np.where(np.isfinite(values) & (tokens > 0), values, np.nan)


def compute_surprisals(likelihoods: pd.DataFrame) -> pd.DataFrame:
    """Return SENTENCE_COLUMNS, n_tokens, perplexity and surprisal of each sentence.

    Sentences are compared by `surprisal`, in nats; a sentence with a higher surprisal is less likely. The surprisal is
    the logarithm of the perplexity (Smith et al. 2022, §2.3.2). For a phrase scored by a masked model (`variant`), the
    surprisal is −Σ log p, the negative pseudo-log-likelihood (B.1), which is not divided by the number of tokens. The
    surprisal is NaN if the perplexity is NaN.

    Raises:
        InputError: a sentence occurs twice.
    """
    _check_distinct(likelihoods, "likelihoods", "score each sentence once")
    perplexities = sentence_perplexities(likelihoods)
    surprisal = np.log(perplexities)
    if columns.VARIANT in likelihoods:
        sums = np.where(np.isnan(perplexities), np.nan, -likelihoods[columns.LOG_LIKELIHOOD].to_numpy(np.float64))
        surprisal = np.where(likelihoods[columns.VARIANT] == MASKED_VARIANT, sums, surprisal)
    return likelihoods[[*SENTENCE_COLUMNS, N_TOKENS]].assign(perplexity=perplexities, surprisal=surprisal)


def _check_distinct(sentences: pd.DataFrame, field: object, fix: str) -> None:
    """Raise InputError, about `field` and with what to do, if a sentence occurs twice."""
    duplicated = sentences.duplicated(SENTENCE_COLUMNS)
    if duplicated.any():
        sentence = ", ".join(f"{name} {sentences.loc[duplicated, name].iloc[0]!r}" for name in SENTENCE_COLUMNS)
        raise InputError(field, f"the sentence with {sentence} occurs twice; {fix}.")


def select_most_common_length(likelihoods: pd.DataFrame) -> pd.DataFrame:
    """Return, for each axis and template, the sentences whose descriptors have the most common length (Table 3).

    Two descriptors have the same length if their sentences in a template have the same median number of tokens. If two
    lengths are equally common, the shorter length is taken. Likelihood Bias in the returned sentences is not caused by
    length.
    """
    cells = likelihoods.groupby(SENTENCE_COLUMNS[:3])[N_TOKENS]
    by_group = cells.median().dropna().groupby([columns.AXIS, columns.TEMPLATE])
    most_common = by_group.agg(lambda lengths: lengths.mode().iloc[0])  # the first of several modes is the smallest
    expected = most_common.reindex(pd.MultiIndex.from_frame(likelihoods[[columns.AXIS, columns.TEMPLATE]]))
    return likelihoods[cells.transform("median").to_numpy() == expected.to_numpy()]


def extreme_descriptors(likelihoods: pd.DataFrame, n: int = 3) -> pd.DataFrame:
    """Return the descriptors with the lowest and the highest median perplexity in each axis and template (Table 3).

    The paper's table compares only descriptors of one length (`select_most_common_length`). At most half of an axis's
    descriptors are at either end.

    Returns:
        Columns: axis, template, end ("low", "high"), rank (1 is the most extreme), descriptor, median and mean (of
        perplexity over nouns), n (sentences), compared (descriptors that were ranked).
    """
    defined = compute_surprisals(likelihoods).dropna(subset="perplexity")
    cells = defined.groupby(SENTENCE_COLUMNS[:3])["perplexity"].agg(["median", "mean", "size"]).reset_index()
    cells = cells.rename(columns={"size": "n"}).sort_values(
        [columns.AXIS, columns.TEMPLATE, "median", columns.DESCRIPTOR], ignore_index=True
    )
    medians = cells.groupby([columns.AXIS, columns.TEMPLATE])["median"]
    cells["compared"] = medians.transform("size")
    low = cells.assign(end="low", rank=medians.cumcount() + 1)
    high = cells.assign(end="high", rank=cells["compared"] - medians.cumcount())
    both = pd.concat([low, high])
    both = both[(both["rank"] <= n) & (both["rank"] <= both["compared"] // 2)]
    both = both.sort_values(
        [columns.AXIS, columns.TEMPLATE, "end", "rank"], ascending=[True, True, False, True], ignore_index=True
    )
    return both[[columns.AXIS, columns.TEMPLATE, "end", "rank", columns.DESCRIPTOR, "median", "mean", "n", "compared"]]


def descriptors_by_axis(sentences: pd.DataFrame) -> dict[str, tuple[str, ...]]:
    """Return the sorted descriptors of each axis.

    Raises:
        InputError: no axis has two descriptors, so there is no pair to compare.
    """
    descriptors = {
        axis: tuple(sorted(names.unique())) for axis, names in sentences.groupby(columns.AXIS)[columns.DESCRIPTOR]
    }
    if max(map(len, descriptors.values())) < 2:
        single = ", ".join(f"{axis} ({names[0]})" for axis, names in descriptors.items())
        raise InputError("prompts", f"each axis has only one descriptor: {single}; use two of an axis or more.")
    return descriptors


def compare_descriptors(likelihoods: pd.DataFrame) -> Iterator[PairTests]:
    """Yield the tests of all pairs of descriptors for each axis and template, in sorted order. Some may have no pairs.

    p-values equal `scipy.stats.mannwhitneyu(x, y)` pair by pair: the normal approximation with corrections for
    continuity and ties, or the exact distribution if a sample has at most 8 perplexities and there are no ties. Paired
    p-values equal `scipy.stats.wilcoxon` of the differences in log-perplexity (for phrases, in Σ log p).

    Raises:
        InputError: a sentence occurs twice, or no axis has two descriptors.
    """
    table = compute_surprisals(likelihoods)
    axis_descriptors = descriptors_by_axis(table)
    templates = sorted(table[columns.TEMPLATE].unique())
    rows = dict(list(table.groupby([columns.AXIS, columns.TEMPLATE])))
    for axis, descriptors in axis_descriptors.items():
        for template in templates:
            yield _comparison(axis, template, descriptors, rows.get((axis, template), table.iloc[:0]))


def _comparison(axis: str, template: str, descriptors: tuple[str, ...], rows: pd.DataFrame) -> PairTests:
    defined = rows[rows["surprisal"].notna()]
    values, rank = np.unique(defined["surprisal"].to_numpy(), return_inverse=True)
    code = pd.Index(descriptors).get_indexer(defined[columns.DESCRIPTOR])
    shape = (len(descriptors), len(values))
    counts = np.bincount(code * shape[1] + rank, minlength=shape[0] * shape[1]).reshape(shape).astype(np.float64)
    with_perplexity = np.flatnonzero(counts.sum(axis=1))
    earlier, later = np.triu_indices(len(with_perplexity), k=1)
    first = with_perplexity[earlier]
    second = with_perplexity[later]
    p = mann_whitney(counts, first, second)[1]
    p_paired = _paired_p_values(defined, code, first, second)
    n_undefined = len(rows) - len(defined)
    return PairTests(axis, template, descriptors, first, second, p, p_paired, len(defined), n_undefined)


def _paired_p_values(defined: pd.DataFrame, code: np.ndarray, first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Return the p-value of each pair by its differences noun by noun, (m,); NaN if a pair has no common noun."""
    if not len(first):
        return np.empty(0)
    noun, nouns = pd.factorize(defined[columns.NOUN])
    surprisal = np.full((code.max() + 1, len(nouns)), np.nan)
    surprisal[code, noun] = defined["surprisal"]
    return signed_rank(surprisal[first] - surprisal[second])[1]


def smallest_p_value(n_nouns: int) -> float:
    """Return the smallest p-value of the Mann–Whitney U test of two descriptors with so many nouns each."""
    n = min(n_nouns, 8)  # enough for a small p-value
    first = np.arange(2 * n) < n  # the samples that differ most
    return float(mann_whitney(np.stack([first, ~first]), np.array([0]), np.array([1]))[1][0])
