"""The scored sentences of Likelihood Bias: which prompts they are, and the table that holds what a model makes of them.

One row per sentence: the prompts' columns template, axis, descriptor and noun, and `log_likelihood` (Σ log p over its
tokens, in nats) and `n_tokens`; perplexity is exp(−log_likelihood / n_tokens). Sentences are compared by it. All of it
serves pseudo-log-likelihoods of a phrase (paper 002, B.1) as well, by `variant`; they are compared by their sums, as in
the paper, whatever the number of tokens.
"""

import numpy as np
import pandas as pd

from evenhand.evaluation.datasets.holistic_bias import NONE
from evenhand.evaluation.datasets.prompts import need
from evenhand.evaluation.errors import InputError
from evenhand.evaluation.results import AXIS, DESCRIPTOR, NOUN, TEMPLATE

LOG_LIKELIHOOD, N_TOKENS = "log_likelihood", "n_tokens"
VARIANT, MASKED = "variant", "each token of the phrase masked alone"  # the column of how they were scored; one way
SENTENCE = [AXIS, TEMPLATE, DESCRIPTOR, NOUN]  # what tells one scored sentence from another


def scored_prompts(prompts: pd.DataFrame) -> pd.DataFrame:
    """Return the prompts that Likelihood Bias scores: a noun with a descriptor that goes with nouns of any gender.

    So each descriptor brings the same nouns; one of one gender ("lesbian") would bring fewer than its peers. On
    HolisticBias v1.0: 460,980 of 472,991 prompts, 30 nouns for each of 591 (axis, descriptor) in 26 templates.

    Raises:
        InputError: a column is missing, or no prompt is of that kind.
    """
    need(list(prompts), ("noun_phrase_type", "descriptor_gender"), "prompts")
    with_noun = prompts["noun_phrase_type"].isin(["descriptor_noun", "noun_descriptor"])
    scored = prompts[with_noun & (prompts["descriptor_gender"] == NONE)]
    if not len(scored):
        raise InputError("prompts: none has a noun and a descriptor for nouns of any gender; select some that do.")
    return scored


def perplexity(likelihoods: pd.DataFrame) -> np.ndarray:
    """Return exp(−log_likelihood / n_tokens) of each sentence, (n,), 1 or more; NaN where it is undefined or infinite.

    >>> perplexity(pd.DataFrame({"log_likelihood": [np.log(1 / 8), np.nan], "n_tokens": [3, 3]})).round(9)
    array([ 2., nan])
    """
    tokens = likelihoods[N_TOKENS].to_numpy(np.float64)
    with np.errstate(all="ignore"):
        values = np.exp(-likelihoods[LOG_LIKELIHOOD].to_numpy(np.float64) / tokens)
    return np.where(np.isfinite(values) & (tokens > 0), values, np.nan)


def checked_sentences(likelihoods: pd.DataFrame) -> pd.DataFrame:
    """Return SENTENCE, n_tokens, perplexity and surprisal of a table of likelihoods, once it is found to be sound.

    Sentences are compared by `surprisal`, in nats, higher being less likely; NaN where the perplexity is. It is the
    logarithm of the perplexity (002, §2.3.2), but of a phrase whose tokens a masked model hid (`variant`) it is
    −Σ log p, the negative of its pseudo-log-likelihood (B.1), which knows no number of tokens.

    Raises:
        InputError: a column is missing, there is no row, or a sentence stands twice.
    """
    need(list(likelihoods), (*SENTENCE, LOG_LIKELIHOOD, N_TOKENS), "likelihoods")
    if not len(likelihoods):
        raise InputError("likelihoods: there is no sentence; score some prompts first.")
    twice = likelihoods.duplicated(SENTENCE)
    if twice.any():
        named = ", ".join(f"{name} {likelihoods.loc[twice, name].iloc[0]!r}" for name in SENTENCE)
        raise InputError(f"likelihoods: the sentence of {named} stands twice; score each one once.")
    found = perplexity(likelihoods)
    surprisal = np.log(found)
    if VARIANT in likelihoods:
        sums = np.where(np.isnan(found), np.nan, -likelihoods[LOG_LIKELIHOOD].to_numpy(np.float64))
        surprisal = np.where(likelihoods[VARIANT] == MASKED, sums, surprisal)
    return likelihoods[[*SENTENCE, N_TOKENS]].assign(perplexity=found, surprisal=surprisal)


def same_length(likelihoods: pd.DataFrame) -> pd.DataFrame:
    """Return the sentences of descriptors of one length: in each axis and template, the most frequent (Table 3).

    Descriptors have the same number of tokens if their sentences, which share template and nouns, have the same
    median number; of two lengths of as many descriptors the shorter is kept. Scored in this way, Likelihood Bias
    cannot come from length.

    Raises:
        InputError: a column is missing, there is no row, or a sentence stands twice.
    """
    checked_sentences(likelihoods)
    cells = likelihoods.groupby(SENTENCE[:3])[N_TOKENS]
    by_group = cells.median().dropna().groupby([AXIS, TEMPLATE])
    commonest = by_group.agg(lambda lengths: lengths.mode().iloc[0])  # of several modes the smallest is first
    wanted = commonest.reindex(pd.MultiIndex.from_frame(likelihoods[[AXIS, TEMPLATE]]))
    return likelihoods[cells.transform("median").to_numpy() == wanted.to_numpy()]
