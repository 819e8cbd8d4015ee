"""Tables of changes between two runs, and rank correlations (Smith et al. 2022, C.2)."""

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from evenhand.evaluation.data.corpus import count_phrases_in_corpus
from evenhand.evaluation.data.phrase_files import PhraseGroup
from evenhand.evaluation.metrics.generation_bias.changes.phrases import highest_descriptors, phrase_changes
from evenhand.evaluation.metrics.generation_bias.changes.style_changes import (
    descriptor_clusters,
    descriptor_styles,
    moved_descriptors,
    style_changes,
)
from evenhand.evaluation.metrics.generation_bias.costs.scores import both_nonempty
from evenhand.evaluation.metrics.generation_bias.costs.text_quality import parroting_by_descriptor, repeat_prompts
from evenhand.evaluation.metrics.generation_bias.settings import CorpusSettings
from evenhand.evaluation.metrics.generation_bias.styled_responses import StyledResponses, paired_samples
from evenhand.evaluation.score import AXIS, DESCRIPTOR, RESPONSE, TEXT, BiasScore
from evenhand.evaluation.settings import as_settings
from evenhand.evaluation.statistics.scores import rank_correlation
from evenhand.evaluation.store import Store

log = logging.getLogger("evenhand")

N_DESCRIPTORS, N_SAMPLES = 2, 12  # descriptors with samples, as in Tables 16 and 17; samples of each


def write_changes(
    run: Store,
    before: StyledResponses,
    after: StyledResponses,
    clusters: Mapping[str, Sequence[int]],
    phrases: Mapping[str, PhraseGroup],
    bias_values: pd.DataFrame | None,
    signature: Mapping[str, Any],
) -> list[BiasScore]:
    """Write the tables of Smith et al. 2022, C.2; return the rank correlation of parroting with the bias value.

    Args:
        run: the run into which the tables are written.
        before, after: the two runs over the same prompts.
        clusters: style cluster → columns of its styles.
        phrases: groups of phrases, counted in responses to the descriptors with the highest mean b of the group's axes.
        bias_values: descriptor, axis and before (mean bias value b); None leaves out phrases and rank correlation.
        signature: the signature of the scores.
    """
    run.table("style_changes", lambda: style_changes(before, after))
    styles = [descriptor_styles(side) for side in (before, after)]
    run.table("moved_descriptors", lambda: moved_descriptors(*styles, before.styles))
    parroting = run.table("parroting", lambda: _parroting(before, after, bias_values))
    if bias_values is None:
        return []
    run.table("phrases", lambda: _phrases(before, after, phrases, bias_values))
    names = ("the mean b", "the change of the share that repeats the prompt")
    columns = parroting["mean_b"], parroting["change"]
    return [rank_correlation("parroting_rho", *columns, names=names, signature=signature)]


def _phrases(
    before: StyledResponses, after: StyledResponses, groups: Mapping[str, PhraseGroup], bias_values: pd.DataFrame
) -> pd.DataFrame:
    sets = {name: highest_descriptors(bias_values, group.axes) for name, group in groups.items()}
    phrases = {name: group.phrases for name, group in groups.items()}
    return phrase_changes(before.table[RESPONSE], after.table[RESPONSE], before.table[DESCRIPTOR], phrases, sets)


def _parroting(before: StyledResponses, after: StyledResponses, bias_values: pd.DataFrame | None) -> pd.DataFrame:
    nonempty = both_nonempty(before, after)
    old, new = (run.table[RESPONSE][nonempty].tolist() for run in (before, after))
    prompts, descriptor, axis = (before.table[name][nonempty].tolist() for name in (TEXT, DESCRIPTOR, AXIS))
    table = parroting_by_descriptor(descriptor, axis, repeat_prompts(old, prompts), repeat_prompts(new, prompts))
    if bias_values is None:
        return table.assign(mean_b=np.nan)
    mean_b = bias_values[[DESCRIPTOR, AXIS, "before"]].rename(columns={"before": "mean_b"})
    return table.merge(mean_b, on=[DESCRIPTOR, AXIS], how="left")


def write_corpus(
    run: Store,
    before: StyledResponses,
    after: StyledResponses,
    clusters: Mapping[str, Sequence[int]],
    settings: CorpusSettings,
    signature: Mapping[str, Any],
) -> list[BiasScore]:
    """Write descriptors' frequencies in a corpus with their cluster probabilities; return the correlations of both.

    Smith et al. 2022, B.2.1 and Figures 3, 5 and 6. The metric is `frequency_rho`, with groups `cluster` and `run`
    ("before" or "after").
    """
    sides = [descriptor_clusters(descriptor_styles(side), clusters) for side in (before, after)]
    descriptors = sorted({*sides[0].index.get_level_values(DESCRIPTOR)})
    counts = run.table("corpus_counts", lambda: _counts(settings, descriptors))
    table = run.table("corpus", lambda: _frequencies(*sides, counts))
    return [
        rank_correlation(
            "frequency_rho",
            rows["frequency"],
            rows[side],
            names=("the frequency", "the mean probability"),
            group={"cluster": str(cluster), "run": side},
            signature={**signature, "corpus": as_settings(settings)},
        )
        for cluster, rows in table.groupby("cluster", sort=False)
        for side in ("before", "after")
    ]


def _frequencies(before: pd.DataFrame, after: pd.DataFrame, counts: pd.DataFrame) -> pd.DataFrame:
    common = before.index.intersection(after.index)
    rows = [
        side.loc[common].stack().rename(name).rename_axis([DESCRIPTOR, AXIS, "cluster"])
        for name, side in (("before", before), ("after", after))
    ]
    table = pd.concat(rows, axis=1).reset_index().merge(counts, on=DESCRIPTOR)
    return table.assign(frequency=table["count"] / table["examples"])


def _counts(settings: CorpusSettings, descriptors: Sequence[str]) -> pd.DataFrame:
    """Return how often each descriptor occurs in the corpus: descriptor, count, examples, examples_left_out, corpus."""
    counts = count_phrases_in_corpus(
        settings.path,
        descriptors,
        text_column=settings.text_column,
        subset=settings.subset,
        split=settings.split,
        limit=settings.limit,
    )
    if counts.n_left_out:
        log.info("corpus: %d examples without a text are left out", counts.n_left_out)
    rows = pd.DataFrame({DESCRIPTOR: list(counts.counts), "count": list(counts.counts.values())})
    return rows.assign(examples=counts.n_examples, examples_left_out=counts.n_left_out, corpus=settings.path)


def chosen_samples(bias_values: pd.DataFrame, before: StyledResponses, after: StyledResponses) -> pd.DataFrame:
    """Return random responses of both runs where the mean bias value is highest (Smith et al. 2022, Tables 16, 17)."""
    rng = np.random.default_rng(0)
    ranked = bias_values.sort_values(["before", DESCRIPTOR], ascending=[False, True])
    rows = [np.empty(0, dtype=int)]
    for descriptor in ranked[DESCRIPTOR].head(N_DESCRIPTORS):
        of_descriptor = np.flatnonzero(before.table[DESCRIPTOR] == descriptor)
        rows.append(np.sort(rng.permutation(of_descriptor)[:N_SAMPLES]))
    return paired_samples(np.concatenate(rows), before, after)
