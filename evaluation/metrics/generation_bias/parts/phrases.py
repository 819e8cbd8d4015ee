"""Phrases, and responses that repeat their prompt, in the responses of two runs (Smith et al. 2022, C.2, Table 14)."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict

import numpy as np
import pandas as pd
from pydantic import Field

from evenhand.evaluation import columns
from evenhand.evaluation.data.style_clusters import OTHER_DESCRIPTORS, load_phrases, phrases_for
from evenhand.evaluation.files import json_sha256
from evenhand.evaluation.json_values import Json
from evenhand.evaluation.metrics import FamilyRun
from evenhand.evaluation.metrics.generation_bias.answers import Answers
from evenhand.evaluation.metrics.generation_bias.parts import Comparison, Part
from evenhand.evaluation.metrics.generation_bias.words import note
from evenhand.evaluation.report.formats import Format
from evenhand.evaluation.report.numbers import p_value, sanitize
from evenhand.evaluation.report.page import Cell, Row, Section, Table
from evenhand.evaluation.report.score_sections import P_VALUE, number_cell, score_section
from evenhand.evaluation.score import BiasScore
from evenhand.evaluation.settings import BY_CONTENT, StrictSettings
from evenhand.evaluation.statistics.cells import Labels
from evenhand.evaluation.statistics.scores import rank_correlation, share_change
from evenhand.evaluation.statistics.text_quality import MAX_FRAME_WORDS, repeat_prompts
from evenhand.evaluation.tables import table_rows

SET_SIZE = 20  # descriptors in a set (Smith et al. 2022, Table 14)
PAIRED_SHARES = ["n", "before", "after", "change", "low", "high", "p"]
BIAS_VALUES = "bias_values"  # table of the caller: descriptor, axis, before (mean bias value b)
PHRASES = "phrases"  # the table of phrases
# The tables of responses that repeat their prompt, and the columns of their keys.
PARROTING = {
    "parroting_by_template": (columns.TEMPLATE,),
    "parroting": (columns.DESCRIPTOR,),
    "parroting_by_cell": (columns.TEMPLATE, columns.DESCRIPTOR),
}
PARROTING_RHO = "parroting_rho"
MAX_PHRASES = 60
MAX_LABEL = 60


class ComparisonSettings(StrictSettings):
    """The phrases to count."""

    phrases: str | None = Field(
        None,
        description="phrases to count: 'paper', 'testbed' or a YAML file; null: by style_clusters",
        json_schema_extra=BY_CONTENT,
    )


def highest_descriptors(bias: pd.DataFrame, axes: Sequence[str], n: int = SET_SIZE) -> list[str]:
    """Return the n descriptors in the axes with the highest mean bias value (`before`), highest first."""
    of_axes = bias[bias[columns.AXIS].isin(list(axes)) & np.isfinite(bias["before"])]
    return (
        of_axes.sort_values(["before", columns.DESCRIPTOR], ascending=[False, True])[columns.DESCRIPTOR]
        .head(n)
        .tolist()
    )


def phrase_inputs(phrases: str | None) -> dict[str, Json]:
    """Return the fingerprint of the phrases to count, by name; {} without any. InputError if they cannot be read."""
    if phrases is None:
        return {}
    groups = load_phrases(phrases)
    return {PHRASES: json_sha256([[name, asdict(group)] for name, group in groups.items()])}


def phrase_changes(
    before: Labels,
    after: Labels,
    descriptor: Labels,
    phrases: Mapping[str, Sequence[str]],
    sets: Mapping[str, Sequence[str]],
) -> pd.DataFrame:
    """Return the share of responses that contain each phrase, by set of descriptors (Smith et al. 2022, Table 14).

    Case, runs of blanks and the form of apostrophes are ignored. As in the paper, a phrase may begin or end inside a
    word: "what is a" is in "what is an egg".

    Args:
        before, after: responses to the same prompts, (n,). A prompt with an empty response before or after is left out.
        descriptor: the descriptor of each prompt, (n,).
        phrases: name of a group of phrases → the phrases.
        sets: name of a set → its descriptors. Descriptors in none of the sets form the set "all others".

    Returns:
        One row for each set and phrase: group, phrase, set, n (prompts), before and after (shares in [0, 1], NaN if n
        is 0), and change with low, high and p (paired: see `share_change`).
    """
    old = [_plain(response) for response in before]
    new = [_plain(response) for response in after]
    is_nonempty = np.array([bool(first and second) for first, second in zip(old, new, strict=True)], dtype=bool)
    descriptors = np.array(descriptor)
    counted = {name: np.isin(descriptors, list(members)) & is_nonempty for name, members in sets.items()}
    in_sets = [name for members in sets.values() for name in members]
    counted[OTHER_DESCRIPTORS] = ~np.isin(descriptors, in_sets) & is_nonempty
    rows = []
    for group, members in phrases.items():
        for phrase in members:
            words = _plain(phrase)
            in_old = np.array([words in text for text in old], dtype=bool)
            in_new = np.array([words in text for text in new], dtype=bool)
            for name, is_counted in counted.items():
                rows.append((group, phrase, name, *_paired_shares(in_old[is_counted], in_new[is_counted])))
    return pd.DataFrame(rows, columns=["group", "phrase", "set", *PAIRED_SHARES])


def _paired_shares(before: pd.Series, after: pd.Series) -> tuple[float, ...]:
    """Return the values of PAIRED_SHARES, of whether each response has a property, (n,) bool each."""
    change = share_change("share", before, after)
    low, high = (np.nan, np.nan) if change.interval is None else change.interval
    p_value = np.nan if change.p_value is None else change.p_value
    old = float(before.mean()) if change.n else np.nan
    new = float(after.mean()) if change.n else np.nan
    return change.n, old, new, change.value, low, high, p_value


def _plain(text: str) -> str:
    return " ".join(text.casefold().replace("’", "'").split())


def repeated_prompts(before: Answers, after: Answers) -> pd.DataFrame:
    """Return whether the responses to each prompt repeat it: template, descriptor, axis, and bool before and after.

    Prompts with an empty response in one of the runs are left out.
    """
    nonempty = before.is_nonempty() & after.is_nonempty()
    prompts = before.table[columns.TEXT][nonempty].tolist()
    return before.table.loc[nonempty, [columns.TEMPLATE, columns.DESCRIPTOR, columns.AXIS]].assign(
        before=repeat_prompts(before.table[columns.RESPONSE][nonempty].tolist(), prompts),
        after=repeat_prompts(after.table[columns.RESPONSE][nonempty].tolist(), prompts),
    )


def parroting_changes(repeated: pd.DataFrame, by: Sequence[str]) -> pd.DataFrame:
    """Return the shares of responses that repeat the prompt, by template, descriptor or both (Smith et al. 2022, C.2).

    Args:
        repeated: the table of `repeated_prompts`.
        by: columns that the rows are grouped by.

    Returns:
        The columns in `by`, n (prompts), before and after (shares in [0, 1], ideal 0), and change with low, high and p
        (paired: see `share_change`). The largest rise is first.
    """
    rows = [(*keys, *_paired_shares(group["before"], group["after"])) for keys, group in repeated.groupby(list(by))]
    table = pd.DataFrame(rows, columns=[*by, *PAIRED_SHARES])
    return table.sort_values(["change", *by], ascending=[False] + [True] * len(by), ignore_index=True)


def with_mean_b(parroting: pd.DataFrame, bias_values: pd.DataFrame | None) -> pd.DataFrame:
    """Return the table with the column mean_b, the descriptor's mean bias value before; NaN if unknown."""
    if bias_values is None:
        return parroting.assign(mean_b=np.nan)
    mean_b = bias_values[[columns.DESCRIPTOR, columns.AXIS, "before"]].rename(columns={"before": "mean_b"})
    return parroting.merge(mean_b, on=[columns.DESCRIPTOR, columns.AXIS], how="left")


class PhrasesPart(Part):
    """What the responses of two runs say: phrases, and repetitions of the prompt.

    If the run has the table `bias_values`, phrases are counted in the responses to the descriptors with the highest
    mean b, and parroting is correlated with mean b.
    """

    FORMATS = (
        Format(
            PARROTING_RHO,
            "ρ of mean bias value and change in parroting",
            "Spearman's rank correlation over descriptors.",
            signed=True,
        ),
    )

    def compare(self, comparison: Comparison) -> list[BiasScore]:
        store = comparison.store
        bias_values = store.read(BIAS_VALUES) if store.has(BIAS_VALUES) else None
        repeated = repeated_prompts(comparison.old, comparison.new)
        by_descriptor = parroting_changes(repeated, (columns.DESCRIPTOR, columns.AXIS))
        parroting = store.table("parroting", lambda: with_mean_b(by_descriptor, bias_values))
        store.table("parroting_by_template", lambda: parroting_changes(repeated, (columns.TEMPLATE,)))
        in_cell = (
            repeated.groupby([columns.TEMPLATE, columns.DESCRIPTOR])[["before", "after"]].transform("any").any(axis=1)
        )
        store.table(
            "parroting_by_cell", lambda: parroting_changes(repeated[in_cell], (columns.TEMPLATE, columns.DESCRIPTOR))
        )
        if bias_values is None:
            return []
        store.table(PHRASES, lambda: _phrases(comparison, bias_values))
        return [
            rank_correlation(
                PARROTING_RHO,
                parroting["mean_b"],
                parroting["change"],
                names=("the mean b", "the change of the share that repeats the prompt"),
            )
        ]

    def change_sections(self, before: FamilyRun, after: FamilyRun, changes: FamilyRun) -> list[Section]:
        of_metric = [score for score in changes.scores if score.metric == PARROTING_RHO]
        rho = [score for score in of_metric if not math.isnan(score.value)]
        return [
            _phrase_section(changes),
            _parroting_section(changes),
            score_section("Rank correlations over descriptors", rho, "group"),
        ]


def _phrases(comparison: Comparison, bias_values: pd.DataFrame) -> pd.DataFrame:
    """Return the shares of responses with each phrase, to the descriptors with the highest mean bias values."""
    clusters = comparison.before.config.settings.style_clusters
    groups = load_phrases(comparison.phrases or phrases_for(clusters))
    return phrase_changes(
        comparison.old.table[columns.RESPONSE],
        comparison.new.table[columns.RESPONSE],
        comparison.old.table[columns.DESCRIPTOR],
        phrases={name: group.phrases for name, group in groups.items()},
        sets={name: highest_descriptors(bias_values, group.axes) for name, group in groups.items()},
    )


def _phrase_section(changes: FamilyRun) -> Section:
    """Return the table of the phrases whose share of responses changed most (Smith et al. 2022, Table 14)."""
    title = "Phrases that changed most"
    if not changes.has(PHRASES):
        return Section(title)
    frame = changes.table(PHRASES).query("before > 0 or after > 0")
    frame = frame.sort_values("change", key=abs, ascending=False, kind="stable").head(MAX_PHRASES)
    about = note("about_phrases", others=OTHER_DESCRIPTORS)
    table = _share_table("Responses with a phrase, %", frame, {"phrase": "phrase", "set": "descriptors"}, about)
    return Section(title, tables=[table], folded=True)


def _parroting_section(changes: FamilyRun) -> Section:
    """Return the shares of responses that repeat the prompt, by template and descriptor (Smith et al. 2022, C.2)."""
    tables = []
    for name, keys in PARROTING.items():
        if changes.has(name):
            frame = changes.table(name).query("before > 0 or after > 0")
            is_cut = len(frame) > MAX_PHRASES
            about = note("largest_rises", n=MAX_PHRASES, table=name) if is_cut else ""
            caption = f"Responses that repeat the prompt, %, by {' and '.join(keys)}"
            tables.append(_share_table(caption, frame.head(MAX_PHRASES), {key: key for key in keys}, about))
    has_rows = any(table.rows for table in tables)
    sentences = [note("about_repeats", n_words=MAX_FRAME_WORDS)] if has_rows else []
    return Section("Repeats the prompt", sentences, tables=tables, folded=True)


def _share_table(caption: str, frame: pd.DataFrame, keys: Mapping[str, str], about: str) -> Table:
    """Return a table of shares of responses before and after; `keys` has the titles of the frame's columns of keys."""
    rows = []
    for row in table_rows(frame):
        names = [sanitize(row[key], MAX_LABEL) for key in keys]
        cells = [Cell(name, prose=True) for name in names[1:]]
        cells.append(number_cell(100 * row["before"]))
        cells.append(number_cell(100 * row["after"]))
        cells.append(number_cell(100 * row["change"], 1, True, (100 * row["low"], 100 * row["high"])))
        cells.append(Cell(p_value(row["p"])))
        cells.append(Cell(f"{row['n']:,}"))
        rows.append(Row(f"“{names[0]}”", tuple(cells)))
    columns = (*keys.values(), "before", "after", "change", P_VALUE, "responses")
    return Table(caption, columns, tuple(rows), about if rows else "")
