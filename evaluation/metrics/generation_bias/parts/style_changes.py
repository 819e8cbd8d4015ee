"""Change of each style: its variance, its mean, and the descriptors that moved most (Smith et al. 2022, Table 15)."""

import numpy as np
import pandas as pd

from evenhand.evaluation import columns
from evenhand.evaluation.metrics import FamilyRun
from evenhand.evaluation.metrics.generation_bias.answers import Answers
from evenhand.evaluation.metrics.generation_bias.parts import Comparison, Part
from evenhand.evaluation.metrics.generation_bias.parts.all_answers import of_all_answers
from evenhand.evaluation.metrics.generation_bias.words import note
from evenhand.evaluation.report.numbers import PER_UNIT, sanitize
from evenhand.evaluation.report.page import Cell, Row, Section, Table
from evenhand.evaluation.report.score_sections import number_cell
from evenhand.evaluation.score import BiasScore, Kind
from evenhand.evaluation.tables import table_rows

STYLE_CHANGES = "style_changes"  # the table
N_DESCRIPTORS = 5  # at each end, as in the paper
MIN_CHANGE = 3e-5  # of the variance of a style in the table


def style_changes(before: Answers, after: Answers) -> pd.DataFrame:
    """Return the change of each style's variance over descriptors and of its mean, in responses to the same prompts.

    The variance is the style's part of FGB: 1/T Σ_t Var_d(mean_i p_tdis), ddof = 0, over the templates with two
    descriptors or more. The mean is over descriptors, each of which is a mean over its templates. Prompts with an empty
    response before or after are left out.

    Returns:
        One row per style, the largest decrease of the variance first: style, variance and variance_change (natural
        units), mean and mean_change (shares), and decreased and increased, the five descriptors whose mean probability
        of the style falls and rises most, largest first; fewer if it falls or rises for fewer.
    """
    has_both = before.has_value() & after.has_value()
    old = _cell_means(before.rows(has_both))
    new = _cell_means(after.rows(has_both))
    old_variance = _variances(old)
    variance_change = _variances(new) - old_variance
    old_means = old.groupby(level=columns.DESCRIPTOR).mean()
    moves = new.groupby(level=columns.DESCRIPTOR).mean() - old_means
    rows = []
    for style in before.columns:
        ordered = moves[style].sort_values(kind="stable")
        falls = ordered[ordered < 0].head(N_DESCRIPTORS)
        rises = ordered[ordered > 0].tail(N_DESCRIPTORS)
        rows.append(
            {
                "style": style,
                "variance": old_variance[style],
                "variance_change": variance_change[style],
                "mean": old_means[style].mean(),
                "mean_change": moves[style].mean(),
                "decreased": ", ".join(falls.index),
                "increased": ", ".join(rises.index[::-1]),
            }
        )
    return pd.DataFrame(rows).sort_values(["variance_change", "style"], ignore_index=True)


def _cell_means(responses: Answers) -> pd.DataFrame:
    """Return the mean style vector of each template and descriptor, with both as the index."""
    keys = [responses.table[name].astype(str).rename(name) for name in (columns.TEMPLATE, columns.DESCRIPTOR)]
    vectors = pd.DataFrame(responses.values.astype(np.float64), columns=list(responses.columns))
    return vectors.groupby(keys).mean()


def _variances(cell_means: pd.DataFrame) -> pd.Series:
    """Return each style's variance over descriptors, mean over the templates with two descriptors or more."""
    by_template = cell_means.groupby(level=columns.TEMPLATE)
    is_compared = by_template.size() > 1
    return by_template.var(ddof=0)[is_compared].mean()


class StyleChangesPart(Part):
    """Which styles depend less, or more, on the descriptor after tuning, and for whom they changed."""

    def compare(self, comparison: Comparison) -> list[BiasScore]:
        comparison.store.table(STYLE_CHANGES, lambda: style_changes(comparison.old, comparison.new))
        return []

    def change_sections(self, before: FamilyRun, after: FamilyRun, changes: FamilyRun) -> list[Section]:
        if not changes.has(STYLE_CHANGES):
            return []
        table = changes.table(STYLE_CHANGES)
        n_less = int((table["variance_change"] < 0).sum())
        shown = table[table["variance_change"].abs() >= MIN_CHANGE]
        about = note("about_variances", omitted_below=MIN_CHANGE if len(shown) < len(table) else None)
        sentence = note("variances_fell", n_less=n_less, n=len(table))
        rows = []
        for row in table_rows(shown):
            cells = (
                number_cell(PER_UNIT * row["variance"], 2),
                number_cell(PER_UNIT * row["variance_change"], 2, sign=True),
                number_cell(100 * row["mean"], 2),
                number_cell(100 * row["mean_change"], 2, sign=True),
                Cell(sanitize(row["decreased"], 200), prose=True),
                Cell(sanitize(row["increased"], 200), prose=True),
            )
            rows.append(Row(sanitize(row["style"], 60), cells))
        columns = (
            "style",
            "variance",
            "change of variance",
            "mean, %",
            "change of mean",
            "falls most for",
            "rises most for",
        )
        shown_table = Table("", columns, tuple(rows), about)
        section = Section("Change of each style", [sentence], tables=[shown_table], folded=True)
        return of_all_answers([section], changes.scores, Kind.DIFFERENCE)
