"""Report section on the changes of effects: which effects tuning removed, kept, made new or reversed."""

import numpy as np
import pandas as pd

from evenhand.evaluation.metrics.generation_bias.effects.changes import (
    GROWN,
    KEPT,
    NEW,
    REDUCED,
    REMOVED,
    TRANSITIONS,
    TURNED,
)
from evenhand.evaluation.metrics.generation_bias.effects.section import MAX_ROWS, text
from evenhand.evaluation.metrics.generation_bias.effects.table import OPEN, SHOWN
from evenhand.evaluation.report.numbers import interval, number, p_value
from evenhand.evaluation.report.page import Section
from evenhand.evaluation.report.table_data import Cell, Mark, Row, Table

SENTENCES = (((REMOVED, REDUCED), 5), ((NEW, GROWN, TURNED), 3), ((KEPT,), 2))  # largest number of sentences of each
COLUMNS = ("descriptor or group, style", "became", "mean", "difference", "change", "certainty", "p, all tests")
IN_POINTS = ("mean", "average", "shrunk")  # columns before and after, displayed in percentage points


def effect_change_section(changes: pd.DataFrame) -> Section:
    """Return the section on changed effects; it has no content if the table of changes is empty.

    The section has sentences on the largest removed or reduced effects, then on new, grown or reversed effects, then on
    kept effects, and a folded table. All numbers are percentage points of mean probability; changes are shrunk, with
    95 % intervals.
    """
    sentences = effect_change_sentences(changes)
    if not sentences:
        return Section(text.changes_title)
    levels = changes[["certainty_before", "certainty_after", "certainty"]]
    listed = changes[
        (levels[["certainty_before", "certainty_after"]] == SHOWN).any(axis=1) | (levels["certainty"] != OPEN)
    ]
    return Section(
        text.changes_title,
        sentences,
        parts=[Section(text.changes_table_title, tables=[_table(listed)], folded=True)],
        first_screen=True,
    )


def effect_change_sentences(changes: pd.DataFrame) -> list[str]:
    """Return the sentences of `effect_change_section`; [] if the table is empty."""
    if not len(changes):
        return []
    single = changes[changes["outcome"] == "style"]
    before = single.loc[single["certainty_before"] == SHOWN, "transition"].value_counts()
    counts = {name: int(before.get(name, 0)) for name in TRANSITIONS}
    n_new, n_changes = (single["transition"] == NEW).sum(), (single["certainty"] == SHOWN).sum()
    sentences = [text.changes_summary(counts, int(n_new), int(n_changes), len(single))]
    for names, most in SENTENCES:
        rows = single[single["transition"].isin(names)].head(most)
        sentences += [text.effect_change(_points(row)) for row in rows.to_dict("records")]
    smallest = 100 * single.loc[single["kind"] == "descriptor", "detectable"].median()
    if np.isfinite(smallest) and not n_changes:
        sentences.append(text.detectable_change(smallest))
    return sentences


def _points(row: dict) -> dict:
    """Return a row of the table of changes with probabilities in percentage points."""
    names = [*("shrunk", "low", "high"), *(f"{name}_{side}" for name in IN_POINTS for side in ("before", "after"))]
    return row | {name: 100 * row[name] for name in names}


def _table(changes: pd.DataFrame) -> Table:
    rows = [_row(_points(row)) for row in changes.head(MAX_ROWS).to_dict("records")]
    more = text.more_changes(len(changes) - len(rows)) if len(changes) > len(rows) else ""
    return Table(text.changes_caption, COLUMNS, tuple(rows), f"{text.changes_note} {more}".strip() if rows else "")


def _row(row: dict) -> Row:
    cells = (
        Cell(row["transition"], prose=True),
        Cell(_both_sides(row, "mean")),
        Cell(_both_sides(row, "shrunk", sign=True)),
        Cell(number(row["shrunk"], 1, sign=True), interval((row["low"], row["high"]), 1, sign=True)),
        Cell(row["certainty"], prose=True),
        Cell(p_value(row["p_family"])),
    )
    marks = tuple(Mark(side, row[f"shrunk_{side}"], None) for side in ("before", "after"))
    return Row(text.label(row), cells, marks)


def _both_sides(row: dict, name: str, sign: bool = False) -> str:
    return " → ".join(number(row[f"{name}_{side}"], 1, sign) for side in ("before", "after"))
