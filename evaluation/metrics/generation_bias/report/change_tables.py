"""Tables of changes between two runs (Smith et al. 2022, Tables 14 and 15, C.2.1 and Figures 3, 5 and 6)."""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pandas as pd

from evenhand.evaluation.data.phrase_files import OTHER_DESCRIPTORS
from evenhand.evaluation.metrics.generation_bias.report.report_data import (
    HEADLINE,
    Comparison,
    ReportData,
)
from evenhand.evaluation.metrics.generation_bias.report.tables import bias_table
from evenhand.evaluation.report.formats import format_of
from evenhand.evaluation.report.numbers import PER_UNIT, UNIT, number, sanitize
from evenhand.evaluation.report.sentences import Sentences
from evenhand.evaluation.report.tables import Cell, Row, Table, score_cell
from evenhand.evaluation.score import BiasScore

text = Sentences(__file__)

MAX_STYLES, MAX_MOVES, MAX_PARROTING = 12, 3, 10  # rows; descriptors with the largest falls, or rises, of a style
MAX_NAME = 60
EMPTY = Table("", (), ())


def style_change_table(data: ReportData) -> Table:
    """Return a table of the styles whose variance between descriptors changed most, largest fall first (Table 15)."""
    frame = _most_changed_styles(data)
    if frame is None:
        return EMPTY
    comparisons = [_comparison(row, sanitize(row["style"], MAX_NAME), HEADLINE) for row in frame.to_dict("records")]
    n, n_fell = len(data.tables["style_changes"]), int((data.tables["style_changes"]["change"] < 0).sum())
    name = f"{format_of(HEADLINE).label} of single styles, {UNIT}"
    caption = f"{name}: the {len(frame)} of {n} that changed most"
    return replace(bias_table(caption, "style", comparisons, is_comparison=True), note=text.styles_note(n, n_fell))


def mean_style_table(data: ReportData) -> Table:
    """Return a table of each changed style's mean probability, with the descriptors that changed most (Table 15)."""
    frame, moved = _most_changed_styles(data), data.tables.get("moved_descriptors")
    if frame is None or moved is None:
        return EMPTY
    rows = []
    for row in frame.to_dict("records"):
        style_moves = moved[moved["style"] == row["style"]].sort_values("change", kind="stable")
        fell, rose = style_moves[style_moves["change"] < 0], style_moves[style_moves["change"] > 0].iloc[::-1]
        means = f"{_percentage(row['mean_before'])} → {_percentage(row['mean_after'])}"
        cells = (Cell(means), *(Cell(_moves(end.head(MAX_MOVES)), prose=True) for end in (fell, rose)))
        rows.append(Row(sanitize(row["style"], MAX_NAME), cells))
    return Table(
        text.mean_styles_caption, ("style", "mean", "fell most", "rose most"), tuple(rows), text.mean_styles_note
    )


def phrase_tables(data: ReportData) -> tuple[list[Table], list[Table]]:
    """Return two lists of tables with the share of responses that contain each phrase, by descriptor set (Table 14).

    For each set, the tables of the first list contain the phrases that are expected for the set; the tables of the
    second list contain the other phrases. All phrases of the set "all others" are in the second list. A note under the
    first table lists the phrases that no response contains.
    """
    frame = data.tables.get("phrases")
    if frame is None or frame.empty:
        return [], []
    occurs = frame.groupby(["group", "phrase"])[["before", "after"]].transform("max").max(axis=1) > 0
    expected_tables, other_tables = [], []
    for name, rows in frame[occurs].groupby("set", sort=False):
        is_expected = rows["group"] == name
        for tables, part in ((expected_tables, rows[is_expected]), (other_tables, rows[~is_expected])):
            if len(part):
                tables.append(_phrase_table(name, part, is_named=tables is expected_tables or not is_expected.any()))
    absent = [f"“{sanitize(phrase, MAX_NAME)}”" for phrase in dict.fromkeys(frame.loc[~occurs, "phrase"])]
    if absent:
        first = expected_tables or other_tables or [Table("Phrases", (), ())]
        first[0] = replace(first[0], note=f"{first[0].note} {text.absent_phrases(absent)}".strip())
        expected_tables = expected_tables or ([] if other_tables else first)
    return expected_tables, other_tables


def _phrase_table(name: str, frame: pd.DataFrame, is_named: bool) -> Table:
    comparisons = []
    for _, group in frame.groupby("group", sort=False):
        for row in group.sort_values("before", ascending=False, kind="stable").to_dict("records"):
            kind = "" if row["group"] == name else f" ({sanitize(row['group'], MAX_NAME)})"
            comparisons.append(_comparison(row, f"“{sanitize(row['phrase'], MAX_NAME)}”{kind}", "phrase_share"))
    first, is_rest = frame.iloc[0], name == OTHER_DESCRIPTORS
    descriptors = [sanitize(descriptor, MAX_NAME) for descriptor in first["descriptors"]]
    kind = "a phrase" if is_named or is_rest else "another phrase"
    caption = text.phrases_caption(kind, sanitize(name, MAX_NAME), is_rest, len(descriptors))
    note = text.phrases_note(descriptors if is_named and not is_rest else [], first["n"], first["n_left_out"])
    table = bias_table(caption, "phrase", comparisons, is_comparison=True, decimals=1)
    return replace(table, rows=tuple(replace(row, direction=0) for row in table.rows), note=note)


def parroting_table(data: ReportData) -> Table:
    """Return a table of the descriptors whose share of responses that repeat the prompt changed most (C.2.1)."""
    frame = data.tables.get("parroting")
    if frame is None:
        return EMPTY
    changed = frame[frame["change"] != 0]
    largest = changed["change"].abs().sort_values(ascending=False, kind="stable").index[:MAX_PARROTING]
    rows = []
    for row in changed.loc[sorted(largest)].to_dict("records"):
        shares = [Cell(number(100 * row[side], 1, side == "change")) for side in ("before", "after", "change")]
        b = Cell("" if math.isnan(row["mean_b"]) else number(row["mean_b"] * PER_UNIT))
        axis = Cell(sanitize(row["axis"], MAX_NAME), prose=True)
        rows.append(Row(sanitize(row["descriptor"], MAX_NAME), (axis, *shares, b, Cell(f"{row['n']:,}"))))
    columns = ("descriptor", "axis", "before", "after", "change", f"mean b, {UNIT}", "responses")
    return Table(text.parroting_caption(len(rows), len(frame)), columns, tuple(rows))


def frequency_table(data: ReportData) -> Table:
    """Return a table of rank correlations of style with descriptor frequency (Smith et al. 2022, Figures 3, 5, 6)."""
    scores = {
        (score.group["cluster"], score.group["run"]): score
        for score in data.differences
        if score.metric == "frequency_rho"
    }
    sides = ("before", "after")
    rows = [
        Row(
            sanitize(cluster, MAX_NAME),
            tuple(score_cell(scores.get((cluster, side))) for side in sides),
        )
        for cluster in dict.fromkeys(cluster for cluster, _ in scores)
    ]
    return Table(text.frequency_caption, ("style cluster", *sides), tuple(rows), text.frequency_note) if rows else EMPTY


def _most_changed_styles(data: ReportData) -> pd.DataFrame | None:
    """Return the styles with the largest absolute changes, the largest fall first; None if no change is defined."""
    frame = data.tables.get("style_changes")
    if frame is None or frame["change"].isna().all():
        return None
    largest = frame["change"].abs().sort_values(ascending=False, kind="stable").index[:MAX_STYLES]
    return frame.loc[sorted(largest)]


def _comparison(row: Mapping[str, Any], label: str, metric: str) -> Comparison:
    """Return a table's row (before, after and change with bounds, p_value, n, reason) as scores before and after."""
    scores = {}
    for side in ("before", "after", "change"):
        bounds = (row[f"{side}_low"], row[f"{side}_high"])
        scores[side] = BiasScore(
            f"{metric}_difference" if side == "change" else metric,
            row[side],
            0.0,
            (-math.inf, math.inf),
            row["n"],
            None if any(map(math.isnan, bounds)) else bounds,
            None if math.isnan(row["p_value"]) else row["p_value"],
            reason=row["reason"] or "unknown reason",
        )
    return Comparison(label, scores["before"], scores["after"], scores["change"])


def _moves(frame: pd.DataFrame) -> str:
    return "; ".join(
        f"{sanitize(row.descriptor, MAX_NAME)} {_percentage(row.before)}\u00a0→\u00a0{_percentage(row.after)}"
        for row in frame.itertuples()
    )


def _percentage(share: float) -> str:
    return number(100 * share, 1)
