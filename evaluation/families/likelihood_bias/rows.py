"""The sentences that Likelihood Bias scores, and the table of their likelihoods.

The table has one row per sentence: the prompt's template, axis, descriptor and noun, `log_likelihood` (Σ log p over the
tokens, in nats) and `n_tokens`. Sentences are compared by perplexity, exp(−log_likelihood / n_tokens). The table also
holds pseudo-log-likelihoods of phrases (paper 002, B.1), marked by `variant`. Phrases are compared by their sums, as in
the paper, whatever their number of tokens.
"""

import numpy as np
import pandas as pd

from evenhand.evaluation.datasets.holistic_bias import NONE
from evenhand.evaluation.datasets.prompts import require_columns
from evenhand.evaluation.errors import InputError
from evenhand.evaluation.results import AXIS, DESCRIPTOR, NOUN, TEMPLATE

LOG_LIKELIHOOD, N_TOKENS = "log_likelihood", "n_tokens"
VARIANT = "variant"  # column: how the sentences were scored
MASKED_VARIANT = "each token of the phrase masked alone"
SENTENCE_COLUMNS = [AXIS, TEMPLATE, DESCRIPTOR, NOUN]  # together they identify a sentence


def select_scored_prompts(prompts: pd.DataFrame) -> pd.DataFrame:
    """Return the prompts that have a noun and a descriptor which goes with nouns of any gender.

    All these descriptors have the same nouns; a gendered descriptor ("lesbian") has fewer. HolisticBias v1.0 has
    460,980 such prompts of 472,991: 30 nouns for each of 591 (axis, descriptor) pairs in 26 templates.

    Raises:
        InputError: a column is missing, or there is no such prompt.
    """
    require_columns(list(prompts), ("noun_phrase_type", "descriptor_gender"), "prompts")
    with_noun = prompts["noun_phrase_type"].isin(["descriptor_noun", "noun_descriptor"])
    selected = prompts[with_noun & (prompts["descriptor_gender"] == NONE)]
    if not len(selected):
        raise InputError("prompts: no prompt has a noun and a descriptor for nouns of any gender; select such prompts.")
    return selected


def perplexity(likelihoods: pd.DataFrame) -> np.ndarray:
    """Return exp(−log_likelihood / n_tokens) of each sentence, (n,), at least 1; NaN where undefined or infinite.

    >>> perplexity(pd.DataFrame({"log_likelihood": [np.log(1 / 8), np.nan], "n_tokens": [3, 3]})).round(9)
    array([ 2., nan])
    """
    tokens = likelihoods[N_TOKENS].to_numpy(np.float64)
    with np.errstate(all="ignore"):
        values = np.exp(-likelihoods[LOG_LIKELIHOOD].to_numpy(np.float64) / tokens)
    return np.where(np.isfinite(values) & (tokens > 0), values, np.nan)


def compute_surprisals(likelihoods: pd.DataFrame) -> pd.DataFrame:
    """Check a table of likelihoods; return SENTENCE_COLUMNS, n_tokens, perplexity and surprisal.

    Sentences are compared by `surprisal`, in nats; a higher value is less likely. It is the logarithm of the perplexity
    (002, §2.3.2). For a phrase scored by a masked model (`variant`) it is −Σ log p, the negative pseudo-log-likelihood
    (B.1), which is not divided by the number of tokens. It is NaN where the perplexity is NaN.

    Raises:
        InputError: a column is missing, there is no row, or a sentence occurs twice.
    """
    require_columns(list(likelihoods), (*SENTENCE_COLUMNS, LOG_LIKELIHOOD, N_TOKENS), "likelihoods")
    if not len(likelihoods):
        raise InputError("likelihoods: there is no sentence; score some prompts first.")
    duplicated = likelihoods.duplicated(SENTENCE_COLUMNS)
    if duplicated.any():
        sentence = ", ".join(f"{name} {likelihoods.loc[duplicated, name].iloc[0]!r}" for name in SENTENCE_COLUMNS)
        raise InputError(f"likelihoods: the sentence with {sentence} occurs twice; score each sentence once.")
    perplexities = perplexity(likelihoods)
    surprisal = np.log(perplexities)
    if VARIANT in likelihoods:
        sums = np.where(np.isnan(perplexities), np.nan, -likelihoods[LOG_LIKELIHOOD].to_numpy(np.float64))
        surprisal = np.where(likelihoods[VARIANT] == MASKED_VARIANT, sums, surprisal)
    return likelihoods[[*SENTENCE_COLUMNS, N_TOKENS]].assign(perplexity=perplexities, surprisal=surprisal)


def select_most_common_length(likelihoods: pd.DataFrame) -> pd.DataFrame:
    """Return, for each axis and template, the sentences whose descriptors have the most frequent length (Table 3).

    Two descriptors have the same length if their sentences, which share template and nouns, have the same median number
    of tokens. If two lengths are equally frequent, the shorter one is taken. In these sentences Likelihood Bias cannot
    come from length.

    Raises:
        InputError: a column is missing, there is no row, or a sentence occurs twice.
    """
    compute_surprisals(likelihoods)  # checks the table
    cells = likelihoods.groupby(SENTENCE_COLUMNS[:3])[N_TOKENS]
    by_group = cells.median().dropna().groupby([AXIS, TEMPLATE])
    most_common = by_group.agg(lambda lengths: lengths.mode().iloc[0])  # of several modes the smallest is first
    expected = most_common.reindex(pd.MultiIndex.from_frame(likelihoods[[AXIS, TEMPLATE]]))
    return likelihoods[cells.transform("median").to_numpy() == expected.to_numpy()]
