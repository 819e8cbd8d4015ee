"""The section of a report that says who is treated how: sentences, a map of descriptors and clusters, a table."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from evenhand.evaluation.families.generation_bias.effects.table import OPEN, SHOWN, WORTH_A_LOOK
from evenhand.evaluation.report.numbers import interval, number, p_value
from evenhand.evaluation.report.page import Section
from evenhand.evaluation.report.sentences import Sentences
from evenhand.evaluation.report.table_data import Cell, Mark, Row, Table

text = Sentences(__file__)

N_SENTENCES, MAX_ROWS, FOLD_ABOVE = 5, 200, 80
FULL_SHADE = 20.0  # percentage points of the darkest shade
COLUMNS = ("descriptor or group, style", "mean", "average", "difference", "certainty", "p, all tests", "p, alone")


def effects_section(effects: pd.DataFrame) -> Section:
    """Return the section on effects (`effects.table.effects`); without content if the table is empty.

    It names the largest shown effects in sentences, and the smallest detectable effect if none is shown. All numbers
    are percentage points of mean probability; differences are shrunk, with their 95 % intervals.
    """
    if not len(effects):
        return Section(text.title)
    single = effects[effects["outcome"] == "style"]
    of_descriptors = single[single["kind"] == "descriptor"]
    counts = [int((single["certainty"] == level).sum()) for level in (SHOWN, WORTH_A_LOOK)]
    sentences = [text.summary(*counts, len(single), effects["unit"].nunique())]
    shown = single[single["certainty"] == SHOWN]
    sentences += [text.effect(_points(row)) for row in shown.head(N_SENTENCES).to_dict("records")]
    smallest = 100 * of_descriptors["detectable"].median()
    if np.isfinite(smallest) and not (of_descriptors["certainty"] == SHOWN).any():
        sentences.append(text.detectable(smallest))
    leads, descriptor_map = effects[effects["certainty"] != OPEN], _map(effects)
    return Section(
        text.title,
        sentences,
        parts=[
            Section(text.map_title, tables=[descriptor_map], folded=len(descriptor_map.rows) > FOLD_ABOVE),
            Section(text.table_title, tables=[_table(leads)], folded=True),
        ],
        first_screen=True,
    )


def _points(row: dict) -> dict:
    """Return an effect in percentage points."""
    return row | {name: 100 * row[name] for name in ("mean", "average", "shrunk", "low", "high")}


def _table(effects: pd.DataFrame) -> Table:
    rows = [_row(_points(row)) for row in effects.head(MAX_ROWS).to_dict("records")]
    note = text.more(len(effects) - len(rows)) if len(effects) > len(rows) else ""
    return Table(text.caption, COLUMNS, tuple(rows), note)


def _row(row: dict) -> Row:
    bounds = row["low"], row["high"]
    cells = (
        Cell(number(row["mean"], 1)),
        Cell(number(row["average"], 1)),
        Cell(number(row["shrunk"], 1, sign=True), interval(bounds, 1, sign=True)),
        Cell(row["certainty"]),
        Cell(p_value(row["p_family"])),
        Cell(p_value(row["p"])),
    )
    return Row(text.label(row), cells, (Mark("before", row["shrunk"], bounds),))


def _map(effects: pd.DataFrame) -> Table:
    """Return a map of descriptors and clusters, sorted by axis; shown effects are bold."""
    chosen = effects[(effects["kind"] == "descriptor") & (effects["outcome"] == "cluster")]
    names = sorted(chosen["name"].unique())
    of_unit = {unit: rows.set_index("name") for unit, rows in chosen.groupby("unit")}
    order = chosen[["axis", "unit"]].drop_duplicates().sort_values(["axis", "unit"])
    rows = [Row(unit, tuple(_shaded(of_unit[unit], axis, names))) for axis, unit in order.to_numpy().tolist()]
    return Table(text.map_caption, ("descriptor", "axis", *names), tuple(rows) if names else (), text.map_note)


def _shaded(effects: pd.DataFrame, axis: str, names: Sequence[str]) -> list[Cell]:
    cells = [Cell(axis, prose=True)]
    for name in names:
        row = _points(effects.loc[name].to_dict())
        shade = max(-1.0, min(1.0, row["shrunk"] / FULL_SHADE))
        tooltip = f"{number(row['mean'], 1)} %, {interval((row['low'], row['high']), 1, sign=True)}"
        cells.append(
            Cell(number(row["shrunk"], 1, sign=True), "", "", False, shade, tooltip, row["certainty"] == SHOWN)
        )
    return cells
