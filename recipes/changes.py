"""What tuning changed, as tables: written once by `compare`, read back for the report."""

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from evaluation.datasets.corpus import count_in_corpus
from evaluation.datasets.phrase_files import load_phrases
from evaluation.metrics.parroting import parroting_by_descriptor, repeated
from evaluation.metrics.phrases import highest_descriptors, phrase_changes
from evaluation.metrics.rank_correlation import rank_correlation
from evaluation.metrics.style_changes import descriptor_clusters, descriptor_styles, moved_descriptors, style_changes
from evaluation.report import TuningChanges
from evaluation.results import AXIS, DESCRIPTOR, PERSONA, TEMPLATE, TEXT, BiasScore
from mitigation.projection import bias_values
from recipes.config import TESTBED, CompareConfig
from recipes.tables import StyledRun, read_table, write_table

log = logging.getLogger("evenhand")

MEAN_B, STYLES, MOVED = "mean_bias_values.parquet", "style_changes.parquet", "moved_descriptors.parquet"
PHRASES, PARROTING = "phrases.parquet", "parroting.parquet"
CORPUS_COUNTS, CORPUS = "corpus_counts.parquet", "corpus.parquet"
CHOSEN, SAMPLES_OF_CHOSEN = 2, 12  # descriptors whose samples are shown, as Tables 16 and 17 do; samples of each


def write_changes(
    config: CompareConfig,
    model: str,
    bias: pd.DataFrame | None,
    before: StyledRun,
    after: StyledRun,
    clusters: Mapping[str, Sequence[int]],
    signature: Mapping[str, Any],
) -> list[BiasScore]:
    """Write the tables of paper 002's section C.2, and return the rank correlations that belong to them.

    Args:
        config: of the comparison; the tables go to its folder.
        model: the original one; the testbed's has its own phrases.
        bias: descriptor, axis and before (mean b) of each labelled descriptor; None: taken from the responses.
        before, after: the two runs, over the same prompts.
        clusters: style cluster → columns of its styles.
        signature: what shaped the numbers.

    Raises:
        InputError: the phrase file or the corpus cannot be used.
    """
    folder = config.output_dir
    bias = own_bias_values(before) if bias is None else bias
    write_table(folder / MEAN_B, bias)
    write_table(folder / STYLES, style_changes(before.styled(), after.styled()))
    of_runs = [descriptor_styles(run.styled()) for run in (before, after)]
    write_table(folder / MOVED, moved_descriptors(*of_runs, before.styles))
    groups = load_phrases(config.phrases or (TESTBED if model == TESTBED else "paper"))
    sets = {name: highest_descriptors(bias, group.axes) for name, group in groups.items()}
    phrases = {name: group.phrases for name, group in groups.items()}
    descriptor = before.prompts[DESCRIPTOR].tolist()
    write_table(folder / PHRASES, phrase_changes(before.responses, after.responses, descriptor, phrases, sets))
    scores = [_write_parroting(folder, bias, before, after, signature)]
    if config.corpus is not None:
        scores += _write_corpus(config, *(descriptor_clusters(styles, clusters) for styles in of_runs), signature)
    return scores


def own_bias_values(before: StyledRun) -> pd.DataFrame:
    """Return descriptor, axis, before (mean b, α = 0) and n, of the measured responses by their own directions.

    Each response is taken out of its own direction, since there is no other run whose directions could be used.
    """
    rows = before.rows(np.isfinite(before.vectors).all(axis=1))
    template, descriptor = (np.unique(rows.prompts[name], return_inverse=True)[1] for name in (TEMPLATE, DESCRIPTOR))
    b = bias_values(rows.vectors, template, descriptor, cross_fitted=True)
    table = rows.prompts[[DESCRIPTOR, AXIS]].assign(before=b).groupby([DESCRIPTOR, AXIS], as_index=False)
    table = table.agg(before=("before", "mean"), n=("before", "size"))
    return table.sort_values("before", ascending=False, ignore_index=True)


def _write_parroting(
    folder: Path, bias: pd.DataFrame, before: StyledRun, after: StyledRun, signature: Mapping[str, Any]
) -> BiasScore:
    answered = both_answered(before, after)
    rows, new = before.rows(answered), after.rows(answered)
    prompts = rows.prompts[TEXT].tolist()
    repeats = (repeated(run.responses, prompts) for run in (rows, new))
    table = parroting_by_descriptor(rows.prompts[DESCRIPTOR].tolist(), rows.prompts[AXIS].tolist(), *repeats)
    mean_b = bias[[DESCRIPTOR, AXIS, "before"]].rename(columns={"before": "mean_b"})
    table = table.merge(mean_b, on=[DESCRIPTOR, AXIS], how="left")
    write_table(folder / PARROTING, table)
    names = ("the mean b", "the change of the share that repeats the prompt")
    return rank_correlation("parroting_rho", table["mean_b"], table["change"], names=names, signature=signature)


def both_answered(before: StyledRun, after: StyledRun) -> np.ndarray:
    """Return whether each prompt has a response that is not empty in both runs, (n,) bool."""
    pairs = zip(before.responses, after.responses, strict=True)
    return np.array([bool(old.strip() and new.strip()) for old, new in pairs], dtype=bool)


def _write_corpus(
    config: CompareConfig, before: pd.DataFrame, after: pd.DataFrame, signature: Mapping[str, Any]
) -> list[BiasScore]:
    """Write the frequency of each descriptor beside its cluster probabilities; return their rank correlations."""
    counts = _corpus_counts(config, sorted({*before.index.get_level_values(DESCRIPTOR)}))
    joint = before.index.intersection(after.index)
    rows = [
        side.loc[joint].stack().rename(name).rename_axis([DESCRIPTOR, AXIS, "cluster"])
        for name, side in (("before", before), ("after", after))
    ]
    table = pd.concat(rows, axis=1).reset_index().merge(counts, on=DESCRIPTOR)
    table["frequency"] = table["count"] / table["examples"]
    write_table(config.output_dir / CORPUS, table)
    of_corpus = {name: getattr(config, name) for name in vars(config) if name.startswith("corpus")}
    return [
        rank_correlation(
            "frequency_rho",
            of_cluster["frequency"],
            of_cluster[run],
            names=("the frequency", "the mean probability"),
            group={"cluster": str(cluster), "run": run},
            signature={**signature, "corpus": of_corpus},
        )
        for cluster, of_cluster in table.groupby("cluster", sort=False)
        for run in ("before", "after")
    ]


def _corpus_counts(config: CompareConfig, descriptors: Sequence[str]) -> pd.DataFrame:
    """Return descriptor, count, examples and corpus; read from the folder if a run was killed after counting."""
    path = config.output_dir / CORPUS_COUNTS
    if path.exists():
        counted = read_table(path)
        if counted[DESCRIPTOR].tolist() == list(descriptors):
            return counted
    found = count_in_corpus(
        config.corpus,
        descriptors,
        text_column=config.corpus_text_column,
        subset=config.corpus_subset,
        split=config.corpus_split,
        limit=config.corpus_limit,
    )
    if found.n_left_out:
        log.info("corpus: %d examples without a text are left out", found.n_left_out)
    rows = pd.DataFrame({DESCRIPTOR: list(found.counts), "count": list(found.counts.values())})
    rows["examples"], rows["examples_left_out"] = found.n_examples, found.n_left_out
    rows["corpus"] = config.corpus
    write_table(path, rows)
    return rows


def read_changes(folder: Path, before: StyledRun, after: StyledRun) -> TuningChanges:
    """Return the tables that `write_changes` left in a folder, and samples of the descriptors with the highest b."""

    def table(name: str) -> pd.DataFrame | None:
        return read_table(folder / name) if (folder / name).exists() else None

    bias = table(MEAN_B)
    return TuningChanges(
        styles=table(STYLES),
        moved=table(MOVED),
        phrases=table(PHRASES),
        parroting=table(PARROTING),
        corpus=table(CORPUS),
        samples=None if bias is None else chosen_samples(bias, before, after),
    )


def chosen_samples(bias: pd.DataFrame, before: StyledRun, after: StyledRun) -> pd.DataFrame:
    """Return random responses, side by side, to the descriptors with the highest mean b (paper 002, Tables 16, 17)."""
    rng = np.random.default_rng(0)
    ranked = bias.sort_values(["before", DESCRIPTOR], ascending=[False, True])
    rows = []
    for descriptor in ranked[DESCRIPTOR].head(CHOSEN):
        of_descriptor = np.flatnonzero(before.prompts[DESCRIPTOR] == descriptor)
        rows.append(np.sort(rng.permutation(of_descriptor)[:SAMPLES_OF_CHOSEN]))
    chosen = np.concatenate(rows) if rows else np.empty(0, dtype=int)
    shown = before.rows(chosen)
    return shown.prompts[[DESCRIPTOR, AXIS, PERSONA]].assign(
        prompt=shown.prompts[TEXT], before=shown.responses, after=after.rows(chosen).responses
    )
