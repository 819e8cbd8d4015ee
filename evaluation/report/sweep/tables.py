"""The tables of a sweep's report; the terminal, Markdown and HTML all show these."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import pandas as pd

from evaluation.metrics.paired_change import share_interval
from evaluation.report.numbers import PER_UNIT, UNIT, interval, number, p_value, visible
from evaluation.report.sweep import wording
from evaluation.report.sweep.summary import Agreement, SweepContent
from evaluation.report.tables import Cell, Row, Table

NONE = "–"
# Columns of words; all others hold numbers.
WORDS = {"setting", "judged", "trusted", "reason", "folder", "method and fields", "settings"}

# column of the summary: its name in the table, its factor, its decimals, whether its sign is always shown
REMOVED = {
    "reduction": ("all descriptors", 100, 1, False),
    "reduction_seen": ("tuned on", 100, 1, False),
    "reduction_unseen": ("not tuned on", 100, 1, False),
}
COSTS = {
    "perplexity_change": ("perplexity, %", 100, 1, True),
    "distinct_2_change": ("distinct-2, %", 100, 1, True),
    "parroting_change": ("repeats, points", 100, 2, True),
    "length_change": ("length, %", 100, 1, True),
    "worst_cluster_change": (f"worst cluster, {UNIT}", PER_UNIT, 2, True),
    "untagged_ratio": ("untagged, × base", 1, 2, False),
    "reduction_confirmed": ("removed, 2nd classifier, %", 100, 1, False),
    "minutes": ("minutes", 1, 1, False),
}


def removed_table(summary: pd.DataFrame, content: SweepContent) -> Table:
    """Return what each setting removed, and how it is judged."""

    def first(row: dict[str, Any]) -> tuple[Cell, ...]:
        return _name_cell(row, summary, content), Cell(_seeds(row))

    table = _measures("Pooled FGB* removed, % of the base model’s", summary, REMOVED, ("setting", "seeds"), first)
    rows = tuple(
        Row(row.label, (*row.cells, Cell(wording.judged(setting, content.bar))), direction=row.direction)
        for row, setting in zip(table.rows, summary.to_dict("records"), strict=True)
    )
    return Table(table.caption, (*table.columns, "judged"), rows)


def cost_table(summary: pd.DataFrame, content: SweepContent) -> Table:
    """Return what each setting cost, and two checks on it."""
    caption = "What it cost: change from the base model"
    return _measures(caption, summary, COSTS, ("setting",), lambda row: (_name_cell(row, summary, content),))


def refused_table(content: SweepContent) -> Table:
    """Return every point that a guard refused, with the reason."""
    points = content.points[content.points["failed"].fillna("") != ""]
    rows = tuple(
        Row(
            wording.setting_label(point, content.points, content.swept),
            (
                Cell(wording.value_text(point["seed"])),
                Cell(visible(str(point["failed"]), 600)),
                Cell(visible(str(point["folder"]), 200)),
            ),
        )
        for point in points.to_dict("records")
    )
    return Table("Refused by a guard", ("setting", "seed", "reason", "folder"), rows)


def plan_table(rows: pd.DataFrame, summary: pd.DataFrame, content: SweepContent) -> Table:
    """Return predicted beside measured for the settings of `planned`."""
    lines = tuple(
        Row(
            str(row["number"]),
            (
                _name_cell(row, summary, content),
                _cell(row["predicted_left"], row["predicted_low"], row["predicted_high"], 100, 1),
                _cell(row["left"], row["left_low"], row["left_high"], 100, 1),
                _cell(row["left"] - row["predicted_left"], math.nan, math.nan, 100, 1, sign=True),
                _cell(_ratio(row), math.nan, math.nan, 1, 2),
                Cell("yes" if row["trusted"] else "no"),
            ),
        )
        for row in rows.to_dict("records")
    )
    columns = ("#", "setting", "predicted", "measured", "difference, points", "measured ÷ predicted", "trusted")
    return Table("Pooled FGB* left after tuning, % of the base model’s", columns, lines)


def agreement_table(agreements: Sequence[Agreement]) -> Table:
    """Return how often the plan's predictions held, with Wilson intervals, and how well it ranked the settings."""
    rows = []
    for found in agreements:
        shares = [_share(part, found.n) for part in (found.near, found.factor)]
        ranking = found.correlation
        undefined = Cell("undefined", reason=ranking.reason)
        rho = undefined if math.isnan(ranking.value) else Cell(number(ranking.value))
        p = Cell(NONE) if ranking.p_value is None else Cell(p_value(ranking.p_value))
        rows.append(Row(found.name, (Cell(str(found.n)), *shares, rho, p)))
    columns = ("settings", "n", "within 0.1, %", "within a factor of two, %", "Spearman ρ", "p")
    return Table("How the predictions held", columns, tuple(rows))


def _measures(
    caption: str,
    summary: pd.DataFrame,
    measures: dict[str, tuple[str, float, int, bool]],
    names: tuple[str, ...],
    first: Callable[[dict[str, Any]], tuple[Cell, ...]],
) -> Table:
    """Return a table of the measures that any setting has; a setting of which a cluster rose is marked."""
    shown = {name: how for name, how in measures.items() if summary[name].notna().any()}
    rows = tuple(
        Row(
            str(setting["number"]),
            (*first(setting), *(_measured(setting, name, *how[1:]) for name, how in shown.items())),
            direction=1 if setting["clusters_rose"] else 0,
        )
        for setting in summary.to_dict("records")
    )
    return Table(caption, ("#", *names, *(name for name, *_ in shown.values())), rows)


def _measured(setting: dict[str, Any], name: str, factor: float, digits: int, sign: bool) -> Cell:
    if name == "worst_cluster_change":  # the largest over seeds, so without an interval; its name takes that place
        cell = _cell(setting[name], math.nan, math.nan, factor, digits, sign)
        return Cell(cell.text, visible(setting["worst_cluster"], 40)) if cell.text != NONE else cell
    if name in ("minutes", "untagged_ratio"):  # how they differ by seed is nobody's question
        return _cell(setting[name], math.nan, math.nan, factor, digits, sign)
    return _cell(setting[name], setting[f"{name}_low"], setting[f"{name}_high"], factor, digits, sign)


def _name_cell(setting: dict[str, Any], summary: pd.DataFrame, content: SweepContent) -> Cell:
    return Cell(wording.setting_label(setting, summary, content.swept))


def _seeds(setting: dict[str, Any]) -> str:
    total = setting["seeds"] + setting["refused"]
    return f"{setting['seeds']} of {total}" if setting["refused"] else str(total)


def _cell(value: float, low: float, high: float, factor: float, digits: int, sign: bool = False) -> Cell:
    if math.isnan(value):
        return Cell(NONE)
    bounds = None if math.isnan(low) or math.isnan(high) else (low * factor, high * factor)
    return Cell(number(value * factor, digits, sign), interval(bounds, digits, sign))


def _ratio(row: dict[str, Any]) -> float:
    return row["left"] / row["predicted_left"] if row["predicted_left"] > 0 else math.nan


def _share(part: int, n: int) -> Cell:
    if not n:
        return Cell(NONE)
    low, high = share_interval(part, n)
    return Cell(number(100 * part / n, 0), interval((100 * low, 100 * high), 0))
