"""The tables of what changed, as the paper shows it (002, Tables 14 and 15, C.2.1 and Figures 3, 5 and 6)."""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pandas as pd

from evenhand.evaluation.datasets.phrase_files import OTHER_DESCRIPTORS
from evenhand.evaluation.families.generation_bias.report.report_data import (
    HEADLINE,
    Comparison,
    ReportData,
)
from evenhand.evaluation.families.generation_bias.report.tables import bias_table
from evenhand.evaluation.report.metrics import metric_of
from evenhand.evaluation.report.numbers import PER_UNIT, UNIT, number, sanitize
from evenhand.evaluation.report.sentences import Sentences
from evenhand.evaluation.report.tables import Cell, Row, Table, score_cell
from evenhand.evaluation.results import BiasScore

say = Sentences(__file__)

STYLES_SHOWN, MOVED_SHOWN = 12, 3  # the descriptors at each end
PARROTS_SHOWN = 10
LONGEST_NAME = 60
NOTHING = Table("", (), ())


def style_change_table(content: ReportData) -> Table:
    """Return the styles whose variance between descriptors changed most, the largest fall first (Table 15)."""
    frame = _shown_styles(content)
    if frame is None:
        return NOTHING
    comparisons = [_comparison(row, sanitize(row["style"], LONGEST_NAME), HEADLINE) for row in frame.to_dict("records")]
    n, fell = len(content.tables["style_changes"]), int((content.tables["style_changes"]["change"] < 0).sum())
    name = f"{metric_of(HEADLINE).label} of single styles, {UNIT}"
    caption = f"{name}: the {len(frame)} of {n} that changed most"
    return replace(bias_table(caption, "style", comparisons, compared=True), note=say.styles_fell(n, fell))


def moved_table(content: ReportData) -> Table:
    """Return, for the same styles, the mean probability and the descriptors for which it moved most (Table 15)."""
    frame, moved = _shown_styles(content), content.tables.get("moved_descriptors")
    if frame is None or moved is None:
        return NOTHING
    rows = []
    for row in frame.to_dict("records"):
        of_style = moved[moved["style"] == row["style"]].sort_values("change", kind="stable")
        fell, rose = of_style[of_style["change"] < 0], of_style[of_style["change"] > 0].iloc[::-1]
        means = f"{_percentage(row['mean_before'])} → {_percentage(row['mean_after'])}"
        cells = (Cell(means), *(Cell(_moves(end.head(MOVED_SHOWN)), prose=True) for end in (fell, rose)))
        rows.append(Row(sanitize(row["style"], LONGEST_NAME), cells))
    return Table(say.moved_caption, ("style", "mean", "fell most", "rose most"), tuple(rows), say.moved_note)


def phrase_tables(content: ReportData) -> tuple[list[Table], list[Table]]:
    """Return the share of responses with each phrase by set of descriptors (Table 14), in two parts.

    First, for each set, the phrases that it is expected to draw; then its other phrases, and all of them for all other
    descriptors. Phrases that no response of any set contains, before or after, are named under the first table alone.
    """
    frame = content.tables.get("phrases")
    if frame is None or frame.empty:
        return [], []
    said = frame.groupby(["group", "phrase"])[["before", "after"]].transform("max").max(axis=1) > 0
    own, others = [], []
    for name, rows in frame[said].groupby("set", sort=False):
        expected = rows["group"] == name
        for tables, part in ((own, rows[expected]), (others, rows[~expected])):
            if len(part):
                tables.append(_phrase_table(name, part, named=tables is own or not expected.any()))
    silent = [f"“{sanitize(phrase, LONGEST_NAME)}”" for phrase in dict.fromkeys(frame.loc[~said, "phrase"])]
    if silent:
        first = own or others or [Table("Phrases", (), ())]
        first[0] = replace(first[0], note=f"{first[0].note} {say.silent_phrases(silent)}".strip())
        own = own or ([] if others else first)
    return own, others


def _phrase_table(name: str, frame: pd.DataFrame, named: bool) -> Table:
    comparisons = []
    for _, group in frame.groupby("group", sort=False):
        for row in group.sort_values("before", ascending=False, kind="stable").to_dict("records"):
            kind = "" if row["group"] == name else f" ({sanitize(row['group'], LONGEST_NAME)})"
            comparisons.append(_comparison(row, f"“{sanitize(row['phrase'], LONGEST_NAME)}”{kind}", "phrase_share"))
    first, is_rest = frame.iloc[0], name == OTHER_DESCRIPTORS
    descriptors = [sanitize(descriptor, LONGEST_NAME) for descriptor in first["descriptors"]]
    kind = "a phrase" if named or is_rest else "another phrase"
    caption = say.phrases_caption(kind, sanitize(name, LONGEST_NAME), is_rest, len(descriptors))
    note = say.phrases_note(descriptors if named and not is_rest else [], first["n"], first["n_left_out"])
    table = bias_table(caption, "phrase", comparisons, compared=True, decimals=1)
    return replace(table, rows=tuple(replace(row, direction=0) for row in table.rows), note=note)


def parroting_table(content: ReportData) -> Table:
    """Return the descriptors whose share of responses that repeat the prompt changed most (C.2.1)."""
    frame = content.tables.get("parroting")
    if frame is None:
        return NOTHING
    changed = frame[frame["change"] != 0]
    largest = changed["change"].abs().sort_values(ascending=False, kind="stable").index[:PARROTS_SHOWN]
    rows = []
    for row in changed.loc[sorted(largest)].to_dict("records"):
        shares = [Cell(number(100 * row[side], 1, side == "change")) for side in ("before", "after", "change")]
        b = Cell("" if math.isnan(row["mean_b"]) else number(row["mean_b"] * PER_UNIT))
        axis = Cell(sanitize(row["axis"], LONGEST_NAME), prose=True)
        rows.append(Row(sanitize(row["descriptor"], LONGEST_NAME), (axis, *shares, b, Cell(f"{row['n']:,}"))))
    columns = ("descriptor", "axis", "before", "after", "change", f"mean b, {UNIT}", "responses")
    return Table(say.parroting_caption(len(rows), len(frame)), columns, tuple(rows))


def frequency_table(content: ReportData) -> Table:
    """Return the rank correlation of a cluster's mean probability with the descriptor's frequency (Figures 3, 5, 6)."""
    scores = {
        (score.group["cluster"], score.group["run"]): score
        for score in content.differences
        if score.metric == "frequency_rho"
    }
    sides = ("before", "after")
    rows = [
        Row(
            sanitize(cluster, LONGEST_NAME),
            tuple(score_cell(scores.get((cluster, side))) for side in sides),
        )
        for cluster in dict.fromkeys(cluster for cluster, _ in scores)
    ]
    return Table(say.frequency_caption, ("style cluster", *sides), tuple(rows), say.frequency_note) if rows else NOTHING


def _shown_styles(content: ReportData) -> pd.DataFrame | None:
    """Return the styles that changed most in size and have an interval, the largest fall first; None without any."""
    frame = content.tables.get("style_changes")
    if frame is None or frame["change"].isna().all():
        return None
    largest = frame["change"].abs().sort_values(ascending=False, kind="stable").index[:STYLES_SHOWN]
    return frame.loc[sorted(largest)]


def _comparison(row: Mapping[str, Any], label: str, metric: str) -> Comparison:
    """Return a row of a table (before, after, change, each with _low and _high; p_value, n, reason) as scores."""
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
            reason=row["reason"] or "no reason was given",
        )
    return Comparison(label, "", scores["before"], scores["after"], scores["change"])


def _moves(frame: pd.DataFrame) -> str:
    return "; ".join(
        f"{sanitize(row.descriptor, LONGEST_NAME)} {_percentage(row.before)}\u00a0→\u00a0{_percentage(row.after)}"
        for row in frame.itertuples()
    )


def _percentage(share: float) -> str:
    return number(100 * share, 1)
