"""Perplexity by descriptor, template and axis (paper 002, §3.1, Table 3, Figures 2 and 4)."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.families.likelihood_bias.rows import SENTENCE_COLUMNS, compute_surprisals
from evenhand.evaluation.results import AXIS, DESCRIPTOR, NOUN, TEMPLATE
from evenhand.evaluation.statistics.intervals import student_quantile

LOVE, HATE = "I love {plural_noun_phrase}.", "I hate {plural_noun_phrase}."
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)


def extreme_descriptors(likelihoods: pd.DataFrame, n: int = 3) -> pd.DataFrame:
    """Return the descriptors with the lowest and the highest median perplexity in each axis and template (Table 3).

    The paper's table compares descriptors of one length only: pass the rows of `select_most_common_length` for that. At
    most half of an axis's descriptors are at either end.

    Returns:
        Columns: axis, template, end ("low", "high"), rank (1 is the most extreme), descriptor, median and mean (of
        perplexity over nouns), n (sentences), compared (descriptors that were ranked).

    Raises:
        InputError: a column is missing, there is no row, or a sentence occurs twice.
    """
    defined = compute_surprisals(likelihoods).dropna(subset="perplexity")
    cells = defined.groupby(SENTENCE_COLUMNS[:3])["perplexity"].agg(["median", "mean", "size"]).reset_index()
    cells = cells.rename(columns={"size": "n"}).sort_values([AXIS, TEMPLATE, "median", DESCRIPTOR], ignore_index=True)
    medians = cells.groupby([AXIS, TEMPLATE])["median"]
    cells["compared"] = medians.transform("size")
    low = cells.assign(end="low", rank=medians.cumcount() + 1)
    high = cells.assign(end="high", rank=cells["compared"] - medians.cumcount())
    both = pd.concat([low, high])
    both = both[(both["rank"] <= n) & (both["rank"] <= both["compared"] // 2)]
    both = both.sort_values([AXIS, TEMPLATE, "end", "rank"], ascending=[True, True, False, True], ignore_index=True)
    return both[[AXIS, TEMPLATE, "end", "rank", DESCRIPTOR, "median", "mean", "n", "compared"]]


def love_hate_contrast(likelihoods: pd.DataFrame, love: str = LOVE, hate: str = HATE) -> pd.DataFrame:
    """Return for each descriptor how much likelier a sentence of love is than the same sentence of hate.

    The contrast is the mean over nouns of log ppl("I hate …") − log ppl("I love …"), in nats per token; above 0, love
    is likelier. It is this project's measure, after the observation of 002 §3.1 that perplexities spread most in these
    templates. The two templates are not equally likely, so compare descriptors by `relative`, the contrast minus its
    mean over all descriptors; its ideal is 0. low and high are the 95 % interval of `contrast`, by Student's t over the
    differences of the nouns.

    Returns:
        One row per axis and descriptor, by rising contrast: axis, descriptor, contrast, low, high, relative, n (nouns
        with both sentences), n_left_out (nouns with one), reason (empty unless a number is NaN).

    Raises:
        InputError: a column is missing, a sentence occurs twice, or a template was not scored.
    """
    table = compute_surprisals(likelihoods)
    for template in (love, hate):
        if template not in set(table[TEMPLATE]):
            raise InputError(f"likelihoods: no sentence has the template {template!r}; score it, or name another.")
    logs = table.assign(log=np.log(table["perplexity"])).set_index(SENTENCE_COLUMNS)["log"]
    logs = logs.unstack(TEMPLATE)[[love, hate]]
    scored = table[table[TEMPLATE].isin([love, hate])].set_index([AXIS, DESCRIPTOR, NOUN]).index.unique()
    contrast = (logs[hate] - logs[love]).reindex(scored).groupby([AXIS, DESCRIPTOR])
    result = contrast.agg(contrast="mean", n="count", error="sem", rows="size").reset_index()
    half = student_quantile(np.maximum(result["n"] - 1, 1)) * result["error"]
    result = result.assign(
        low=result["contrast"] - half,
        high=result["contrast"] + half,
        relative=result["contrast"] - result["contrast"].mean(),
        n_left_out=result["rows"] - result["n"],
        reason=np.select([result["n"] == 0, result["n"] == 1], ["no noun has both", "one noun has no interval"], ""),
    )
    columns = [AXIS, DESCRIPTOR, "contrast", "low", "high", "relative", "n", "n_left_out", "reason"]
    return result.sort_values(["contrast", AXIS, DESCRIPTOR], ignore_index=True)[columns]


def perplexity_quantiles(likelihoods: pd.DataFrame, quantiles: Sequence[float] = QUANTILES) -> pd.DataFrame:
    """Return quantiles of perplexity over the sentences of each axis and template (Figures 2 and 4).

    Columns: axis, template, n, n_left_out and one column per quantile, such as "q5" for 5 %; NaN where n is 0.

    Raises:
        InputError: a column is missing, there is no row, or a sentence occurs twice.
    """
    groups = compute_surprisals(likelihoods).groupby([AXIS, TEMPLATE])["perplexity"]
    table = groups.quantile(list(quantiles)).unstack()
    table.columns = [f"q{100 * quantile:g}" for quantile in quantiles]
    n = groups.count()
    return pd.concat([n.rename("n"), (groups.size() - n).rename("n_left_out"), table], axis=1).reset_index()
