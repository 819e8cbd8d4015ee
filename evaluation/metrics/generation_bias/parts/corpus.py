"""Styles of responses against the frequencies of descriptors in corpora (Smith et al. 2022, Figures 3, 5, 6)."""

import logging
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import cycle, zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
import pandas as pd
from pydantic import AfterValidator, Field

from evenhand.evaluation import columns
from evenhand.evaluation.data.style_clusters import load_style_clusters
from evenhand.evaluation.doors import spelled
from evenhand.evaluation.errors import InputError
from evenhand.evaluation.files import files_sha256
from evenhand.evaluation.json_values import Json
from evenhand.evaluation.metrics import FamilyConfig, FamilyRun
from evenhand.evaluation.metrics.generation_bias.answers import Answers
from evenhand.evaluation.metrics.generation_bias.parts import ClassifiedRun, Comparison, JointTests, Part
from evenhand.evaluation.metrics.generation_bias.words import note
from evenhand.evaluation.models.base import Model
from evenhand.evaluation.models.classifier_kinds import classifier_labels
from evenhand.evaluation.report.formats import Format
from evenhand.evaluation.report.numbers import sanitize
from evenhand.evaluation.report.page import Figure, Section
from evenhand.evaluation.report.score_sections import score_section
from evenhand.evaluation.runs.store import Store
from evenhand.evaluation.score import BiasScore, display_name
from evenhand.evaluation.settings import BY_CONTENT, WITHOUT_FLAG, Count, StrictSettings
from evenhand.evaluation.statistics.scores import rank_correlation
from evenhand.evaluation.tables import table_rows

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Chart

log = logging.getLogger("evenhand")

CORPUS = "corpus"  # the table of frequencies and probabilities
CORPUS_COUNTS = "corpus_counts"  # the table of the numbers of usages
PROBABILITY = "probability"  # the column of the probabilities of a single run
FREQUENCY_RHO = "frequency_rho"
N_NAMED = 3  # descriptors with a name in a panel
MARKS = "osD^vP*X<>hdp"  # of axes


def _check_paths(paths: list[str]) -> list[str]:
    if len(set(paths)) < len(paths):
        raise ValueError("a corpus occurs twice; give each once")
    return paths


class CorpusSettings(StrictSettings):
    """Corpora in which descriptors are counted."""

    paths: Annotated[list[str], AfterValidator(_check_paths)] = Field(
        default_factory=list,
        description="JSONL, CSV, Parquet or text files, folders, or hub datasets to count descriptors in, each by "
        "itself",
        json_schema_extra=BY_CONTENT,
    )
    text_column: str = Field("text", description="column of the texts", json_schema_extra=WITHOUT_FLAG)
    subset: str | None = Field(None, description="subset of a hub dataset", json_schema_extra=WITHOUT_FLAG)
    split: str = Field("train", description="split of a hub dataset", json_schema_extra=WITHOUT_FLAG)
    limit: Count | None = Field(
        None, description="maximum number of examples to read; null: all", json_schema_extra=WITHOUT_FLAG
    )


class Settings(StrictSettings):
    """The corpora of a measurement."""

    corpus: CorpusSettings | None = Field(None, description="texts in which descriptors are counted")


class ComparisonSettings(StrictSettings):
    """The corpora of a comparison."""

    corpus: CorpusSettings = Field(default_factory=CorpusSettings, description="where descriptors are counted")


def corpus_inputs(settings: CorpusSettings | None) -> dict[str, Json]:
    """Return the fingerprints of the corpora, by name; {} without one. InputError if one does not exist."""
    if settings is None or not settings.paths:
        return {}
    from evenhand.evaluation.data.language.phrase_counts import find_corpus_files  # imports datasets

    found = {path: find_corpus_files(path) for path in settings.paths}
    hashes = []
    for path, files in found.items():
        names = {os.path.relpath(file, path): Path(file) for file in files or ()}
        hashes.append(files_sha256(names) if names else path)
    return {CORPUS: hashes}


def check_clusters(clusters: Mapping[str, Sequence[int]]) -> None:
    """Raise InputError if there is no style cluster whose probability could be compared with frequencies."""
    if not clusters:
        raise InputError(
            "generation_bias.corpus",
            "frequencies are compared with style clusters, and the classifier has none; give "
            f"{spelled('generation_bias.style_clusters', 'FILE')}.",
        )


def frequency_scores(
    store: Store,
    sides: Mapping[str, Answers],
    clusters: Mapping[str, Sequence[int]],
    settings: CorpusSettings,
) -> list[BiasScore]:
    """Return Spearman's ρ of descriptors' frequencies in each corpus and their probabilities of each cluster (B.2.1).

    The metric is `frequency_rho`, with the groups `cluster` and, if there are several, `run` (the side) and `corpus`.
    The table `corpus` gets the frequencies, and the probabilities in a column for each side.

    Raises:
        InputError: there is no cluster, or a corpus cannot be read.
    """
    check_clusters(clusters)
    first = next(iter(sides.values()))
    descriptors = sorted(set(first.table[columns.DESCRIPTOR]))

    def frequencies() -> pd.DataFrame:
        means = {name: cluster_means(side, clusters).stack() for name, side in sides.items()}
        table = (
            pd.concat(means, axis=1, join="inner")
            .rename_axis([columns.DESCRIPTOR, columns.AXIS, columns.CLUSTER])
            .reset_index()
        )
        counts = store.table(CORPUS_COUNTS, lambda: corpus_counts(settings, descriptors))
        table = table.merge(counts, on=columns.DESCRIPTOR)
        return table.assign(frequency=table["count"] / table["examples"])

    names = ("the frequency", "the mean probability")
    scores = []
    for (cluster, corpus), rows in store.table(CORPUS, frequencies).groupby([columns.CLUSTER, "corpus"], sort=False):
        for side in sides:
            group = {columns.CLUSTER: str(cluster)}
            if len(sides) > 1:
                group["run"] = side
            if len(settings.paths) > 1:
                group["corpus"] = display_name(str(corpus))
            rho = rank_correlation(FREQUENCY_RHO, rows["frequency"], rows[side], names=names, group=group)
            scores.append(replace(rho, signature={CORPUS: settings.model_dump()}))
    return scores


def corpus_counts(settings: CorpusSettings, descriptors: Sequence[str]) -> pd.DataFrame:
    """Return the number of usages of each descriptor in each corpus: descriptor, count, examples, corpus."""
    from evenhand.evaluation.data.language.phrase_counts import count_phrases_in_corpus  # imports datasets

    tables = []
    for path in settings.paths:
        counts = count_phrases_in_corpus(
            path,
            descriptors,
            text_column=settings.text_column,
            subset=settings.subset,
            split=settings.split,
            limit=settings.limit,
        )
        if counts.n_left_out:
            log.info("corpus: %d examples of %s without a text are left out", counts.n_left_out, path)
        rows = pd.DataFrame({columns.DESCRIPTOR: list(counts.counts), "count": list(counts.counts.values())})
        tables.append(rows.assign(examples=counts.n_examples, corpus=path))
    return pd.concat(tables, ignore_index=True)


def cluster_means(responses: Answers, clusters: Mapping[str, Sequence[int]]) -> pd.DataFrame:
    """Return the mean summed probability of each cluster's styles, averaged by template first, (D, C).

    The index is (descriptor, axis). Responses without a style vector are left out.
    """
    sums = {name: responses.values[:, list(styles)].sum(axis=1, dtype=np.float64) for name, styles in clusters.items()}
    keys = [responses.table[name].to_numpy() for name in (columns.DESCRIPTOR, columns.AXIS, columns.TEMPLATE)]
    means = pd.DataFrame(sums).groupby(keys).mean().groupby(level=[0, 1]).mean().dropna()
    return means.rename_axis([columns.DESCRIPTOR, columns.AXIS])


def frequency_chart(table: pd.DataFrame) -> "Chart":
    """Return a panel for each style cluster, with each descriptor's probability against its frequency, by axis."""
    from matplotlib import colormaps

    from evenhand.evaluation.report.figures import SMALL, WIDE, new_chart, set_ticks, tick_percent  # import matplotlib

    names = sorted(table[columns.AXIS].unique())
    colors = colormaps["turbo"](np.linspace(0.05, 0.95, len(names)))
    looks = {
        name: {"color": color, "marker": mark} for name, color, mark in zip(names, colors, cycle(MARKS), strict=False)
    }
    panels = list(table.groupby(columns.CLUSTER, sort=False))
    n_rows = math.ceil(len(panels) / 3)
    label = "Probability of style clusters against the frequency of the descriptor in the corpus"
    height = 80 + 220 * n_rows
    chart, grid = new_chart(label, WIDE, height, nrows=n_rows, ncols=3, squeeze=False)
    for axes, panel in zip_longest(grid.flat, panels):
        if panel is None:
            axes.set_axis_off()
            continue
        cluster, rows = panel
        rows = rows.assign(usages=(rows["count"] + 0.5) / rows["examples"])
        for name, of_axis in rows.groupby(columns.AXIS):
            of = sanitize(str(name).replace("_", " "), 40)
            axes.scatter(of_axis["usages"], of_axis[PROBABILITY], s=16, alpha=0.7, label=of, **looks[str(name)])
        for row in table_rows(rows.nlargest(N_NAMED, PROBABILITY)):
            place = (row["usages"], row[PROBABILITY])
            axes.annotate(
                sanitize(row[columns.DESCRIPTOR], 30), place, (4, 2), textcoords="offset points", fontsize=SMALL - 2
            )
        axes.set(title=sanitize(str(cluster), 60), xscale="log")
        set_ticks(axes, "y", 4, tick_percent)
    handles, labels = grid[0, 0].get_legend_handles_labels()
    chart.legend(handles, labels, loc="outside lower center", ncols=5)
    return chart


class CorpusPart(Part):
    """Whether styles depend on how frequent a descriptor is in corpora."""

    FORMATS = (
        Format(
            FREQUENCY_RHO,
            "ρ of frequency in the corpus and probability",
            "Spearman's rank correlation over descriptors.",
            signed=True,
        ),
    )

    def inputs(self, config: FamilyConfig, model: Model) -> dict[str, Json]:
        inputs = corpus_inputs(config.settings.corpus)
        if inputs:
            labels = classifier_labels(config.settings.style_classifier)
            check_clusters(load_style_clusters(config.settings.style_clusters, labels))
        return inputs

    def score(self, run: ClassifiedRun, tests: JointTests) -> list[BiasScore]:
        settings = run.config.settings.corpus
        if settings is None or not settings.paths:
            return []
        return frequency_scores(run.store, {PROBABILITY: run.responses}, run.clusters, settings)

    def compare(self, comparison: Comparison) -> list[BiasScore]:
        if not comparison.corpus.paths:
            return []
        sides = {"before": comparison.old, "after": comparison.new}
        return frequency_scores(comparison.store, sides, comparison.clusters, comparison.corpus)

    def sections(self, run: FamilyRun) -> list[Section]:
        if not run.has(CORPUS):
            return []
        from evenhand.evaluation.report.figures import styled, svg  # imports matplotlib

        figures = []
        for corpus, rows in run.table(CORPUS).groupby("corpus", sort=False):
            chart = styled(frequency_chart)(rows)
            figures.append(
                Figure(
                    sanitize(f"Style and frequency in {display_name(str(corpus))}", 120),
                    svg(chart),
                    note("about_corpus"),
                )
            )
        return [Section("Frequency in the corpus", figures=figures, folded=True)]

    def change_sections(self, before: FamilyRun, after: FamilyRun, changes: FamilyRun) -> list[Section]:
        rho = [score for score in changes.scores if score.metric == FREQUENCY_RHO]
        return [score_section("Frequency in the corpus", rho, "group")]
