"""Styles of responses against the frequencies of descriptors in corpora (Smith et al. 2022, Figures 3, 5, 6)."""

import logging
import math
from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure as Chart

from evenhand.evaluation.data.corpus import count_phrases_in_corpus
from evenhand.evaluation.metrics.generation_bias.settings import CorpusSettings
from evenhand.evaluation.metrics.generation_bias.styled_responses import StyledResponses
from evenhand.evaluation.report.figures import INK, WIDE, new_chart, set_ticks, styled, svg, tick_percent
from evenhand.evaluation.report.numbers import sanitize
from evenhand.evaluation.report.page import Figure, Section
from evenhand.evaluation.score import AXIS, DESCRIPTOR, TEMPLATE, BiasScore, display_name
from evenhand.evaluation.statistics.scores import rank_correlation
from evenhand.evaluation.store import Store

log = logging.getLogger("evenhand")

CORPUS = "corpus"  # the table of frequencies and probabilities
PROBABILITY = "probability"  # its column of the probabilities of a single run
NOTE = (
    "A dot is a descriptor: its usages per example of the corpus (half a usage is added, to show unused descriptors), "
    "and the mean probability of the style cluster over templates (Smith et al. 2022, Figures 3, 5 and 6)."
)


def frequency_scores(
    run: Store,
    sides: Mapping[str, StyledResponses],
    clusters: Mapping[str, Sequence[int]],
    settings: CorpusSettings,
    signature: Mapping[str, Any],
) -> list[BiasScore]:
    """Return Spearman's ρ of descriptors' frequencies in each corpus and their probabilities of each cluster (B.2.1).

    The metric is `frequency_rho`, with the groups `cluster` and, if there are several, `run` (the side) and `corpus`.
    The table `corpus` gets the frequencies, and the probabilities in a column for each side.
    """
    first, names = next(iter(sides.values())), ("the frequency", "the mean probability")

    def count() -> pd.DataFrame:
        options, tables = settings.model_dump(), []
        for path in options.pop("paths"):
            counts = count_phrases_in_corpus(path, sorted(set(first.table[DESCRIPTOR])), **options)
            if counts.n_left_out:
                log.info("corpus: %d examples of %s without a text are left out", counts.n_left_out, path)
            rows = pd.DataFrame({DESCRIPTOR: list(counts.counts), "count": list(counts.counts.values())})
            tables.append(rows.assign(examples=counts.n_examples, corpus=path))
        return pd.concat(tables, ignore_index=True)

    def frequencies() -> pd.DataFrame:
        means = [cluster_means(side, clusters).stack().rename(name) for name, side in sides.items()]
        table = pd.concat(means, axis=1, join="inner").rename_axis([DESCRIPTOR, AXIS, "cluster"]).reset_index()
        table = table.merge(run.table("corpus_counts", count), on=DESCRIPTOR)
        return table.assign(frequency=table["count"] / table["examples"])

    signature, table = {**signature, "corpus": settings.model_dump()}, run.table(CORPUS, frequencies)
    scores = []
    for (cluster, corpus), rows in table.groupby(["cluster", "corpus"], sort=False):
        for side in sides:
            group = {"cluster": str(cluster)} | ({"run": side} if len(sides) > 1 else {})
            group |= {"corpus": display_name(corpus)} if len(settings.paths) > 1 else {}
            of = {"names": names, "group": group, "signature": signature}
            scores.append(rank_correlation("frequency_rho", rows["frequency"], rows[side], **of))
    return scores


def cluster_means(responses: StyledResponses, clusters: Mapping[str, Sequence[int]]) -> pd.DataFrame:
    """Return the mean summed probability of each cluster's styles, averaged by template first, (D, C).

    The index is (descriptor, axis). Responses without a style vector are left out.
    """
    sums = {name: responses.vectors[:, list(styles)].sum(axis=1, dtype=np.float64) for name, styles in clusters.items()}
    keys = [responses.table[name].to_numpy() for name in (DESCRIPTOR, AXIS, TEMPLATE)]
    means = pd.DataFrame(sums).groupby(keys).mean().groupby(level=[0, 1]).mean().dropna()
    return means.rename_axis([DESCRIPTOR, AXIS])


def frequency_section(table: pd.DataFrame) -> Section:
    """Return the charts of a run's table `corpus`, one for each corpus, as a section."""
    figures = [
        Figure(sanitize(f"Style and frequency in {display_name(corpus)}", 120), svg(frequency_chart(rows)), NOTE)
        for corpus, rows in table.groupby("corpus", sort=False)
    ]
    return Section("Frequency in the corpus", figures=figures, folded=True)


@styled
def frequency_chart(table: pd.DataFrame) -> Chart:
    """Return a panel for each style cluster, with each descriptor's probability against its frequency."""
    panels = list(table.groupby("cluster", sort=False))
    n_rows = math.ceil(len(panels) / 3)
    label = "Probability of style clusters against the frequency of the descriptor in the corpus"
    chart, grid = new_chart(label, WIDE, 20 + 220 * n_rows, nrows=n_rows, ncols=3, squeeze=False)
    for axes, panel in zip_longest(grid.flat, panels):
        if panel is None:
            axes.set_axis_off()
            continue
        cluster, rows = panel
        axes.scatter((rows["count"] + 0.5) / rows["examples"], rows[PROBABILITY], s=12, color=INK, alpha=0.5)
        axes.set(title=sanitize(str(cluster), 60), xscale="log")
        set_ticks(axes, "y", 4, tick_percent)
    return chart
