"""The tables of what tuning changed, as the paper shows it (002, Tables 14 to 17 and Figures 3, 5 and 6)."""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pandas as pd

from evaluation.metrics.phrases import REST
from evaluation.report.generation_bias.comparison import METRIC_NAMES
from evaluation.report.generation_bias.content import GenerationContent
from evaluation.report.numbers import PER_UNIT, UNIT, decimals_for, interval, number, p_value, visible
from evaluation.report.tables import Cell, Mark, Row, Table
from evaluation.results import BiasScore

STYLES_SHOWN, MOVED_SHOWN = 12, 3  # the descriptors at each end
PARROTS_SHOWN = 10
LONGEST_NAME = 60


def style_change_table(content: GenerationContent) -> Table:
    """Return the styles whose variance between descriptors changed most, the largest fall first (Table 15)."""
    frame = shown_styles(content)
    if frame is None:
        return Table("", (), ())
    digits = decimals_for(value * PER_UNIT for side in ("before", "after") for value in frame[side])
    rows = []
    for row in frame.to_dict("records"):
        cells = [_scaled(row, side, PER_UNIT, digits, sign=side == "change") for side in ("before", "after", "change")]
        p = row["p_value"]
        marks = tuple(
            Mark(side, row[side] * PER_UNIT, _bounds(row, side, PER_UNIT))
            for side in ("before", "after")
            if math.isfinite(row[side])
        )
        rose = row["change_low"] > 0  # never true of NaN
        cells.append(Cell("" if math.isnan(p) else p_value(p)))
        rows.append(Row(visible(row["style"], LONGEST_NAME), tuple(cells), marks, int(rose)))
    n = len(content.changes.styles)
    fell = int((content.changes.styles["change"] < 0).sum())
    return Table(
        f"{METRIC_NAMES['fgb_pooled_corrected']} of single styles, {UNIT}: the {len(rows)} of {n} that changed most",
        ("style", "before", "after", "change", "p"),
        tuple(rows),
        f"Of all {n} styles, {fell} vary less between descriptors after tuning.",
    )


def moved_table(content: GenerationContent) -> Table:
    """Return, for the same styles, the mean probability and the descriptors for which it moved most (Table 15)."""
    frame, moved = shown_styles(content), content.changes.moved
    if frame is None or moved is None:
        return Table("", (), ())
    rows = []
    for row in frame.to_dict("records"):
        of_style = moved[moved["style"] == row["style"]].sort_values("change", kind="stable")
        fell, rose = of_style[of_style["change"] < 0], of_style[of_style["change"] > 0].iloc[::-1]
        means = f"{_percentage(row['mean_before'])} → {_percentage(row['mean_after'])}"
        cells = (Cell(means), *(Cell(_moves(end.head(MOVED_SHOWN)), prose=True) for end in (fell, rose)))
        rows.append(Row(visible(row["style"], LONGEST_NAME), cells))
    return Table(
        "Mean probability of these styles, %, and the descriptors for which it moved most",
        ("style", "mean", "fell most", "rose most"),
        tuple(rows),
        "Before → after. These are the extremes of many descriptors, so a part of each move is chance.",
    )


def shown_styles(content: GenerationContent) -> pd.DataFrame | None:
    """Return the styles that changed most in size and have an interval, the largest fall first; None without any."""
    frame = content.changes.styles
    if frame is None or frame["change"].isna().all():
        return None
    largest = frame["change"].abs().sort_values(ascending=False, kind="stable").index[:STYLES_SHOWN]
    return frame.loc[sorted(largest)]


def phrase_tables(content: GenerationContent) -> tuple[list[Table], list[Table]]:
    """Return the share of responses with each phrase by set of descriptors (Table 14), in two parts.

    First, for each set, the phrases that it is expected to draw; then its other phrases, and all of them for all other
    descriptors. Phrases that no response of any set contains, before or after, are named under the first table alone.
    """
    frame = content.changes.phrases
    if frame is None or frame.empty:
        return [], []
    said = frame.groupby(["group", "phrase"])[["before", "after"]].transform("max").max(axis=1) > 0
    own, others = [], []
    for name, rows in frame[said].groupby("set", sort=False):
        expected = rows["group"] == name
        for tables, part in ((own, rows[expected]), (others, rows[~expected])):
            if len(part):
                tables.append(_phrase_table(name, part, named=tables is own or not expected.any()))
    silent = [f"“{visible(phrase, LONGEST_NAME)}”" for phrase in dict.fromkeys(frame.loc[~said, "phrase"])]
    if silent:
        note = f"In no response, before or after: {', '.join(silent)}."
        first = own or others or [Table("Phrases", (), ())]
        first[0] = replace(first[0], note=f"{first[0].note} {note}".strip())
        own = own or ([] if others else first)
    return own, others


def _phrase_table(name: str, frame: pd.DataFrame, named: bool) -> Table:
    rows = []
    for _, group in frame.groupby("group", sort=False):
        for row in group.sort_values("before", ascending=False, kind="stable").to_dict("records"):
            cells = [_scaled(row, side, 100, 1, sign=side == "change") for side in ("before", "after", "change")]
            cells.append(Cell("" if math.isnan(row["p_value"]) else p_value(row["p_value"])))
            kind = "" if row["group"] == name else f" ({visible(row['group'], LONGEST_NAME)})"
            label = f"“{visible(row['phrase'], LONGEST_NAME)}”{kind}"
            rows.append(Row(label, tuple(cells)))
    first = frame.iloc[0]
    descriptors = [visible(descriptor, LONGEST_NAME) for descriptor in first["descriptors"]]
    which = f"the {len(descriptors)} other descriptors"
    if name != REST:
        which = f"{len(descriptors)} descriptors of the highest mean b in the axes of {visible(name, LONGEST_NAME)}"
    counted = f"{first['n']:,} responses"
    if first["n_left_out"]:
        counted += f", {first['n_left_out']:,} left out because one of the two is empty"
    names = f"{', '.join(descriptors)}: " if named and name != REST and descriptors else ""
    columns = ("phrase", "before", "after", "change", "p")
    kind = "a phrase" if named or name == REST else "another phrase"
    return Table(f"Responses with {kind}, %: {which}", columns, tuple(rows), f"{names}{counted}.")


def parroting_table(content: GenerationContent) -> Table:
    """Return the descriptors whose share of responses that repeat the prompt changed most (C.2.1)."""
    frame = content.changes.parroting
    if frame is None:
        return Table("", (), ())
    changed = frame[frame["change"] != 0]
    largest = changed["change"].abs().sort_values(ascending=False, kind="stable").index[:PARROTS_SHOWN]
    rows = []
    for row in changed.loc[sorted(largest)].to_dict("records"):
        shares = [Cell(number(100 * row[side], 1, side == "change")) for side in ("before", "after", "change")]
        b = row["mean_b"]
        b = Cell("" if math.isnan(b) else number(b * PER_UNIT))
        label, axis = visible(row["descriptor"], LONGEST_NAME), visible(row["axis"], LONGEST_NAME)
        rows.append(Row(label, (Cell(axis, prose=True), *shares, b, Cell(f"{row['n']:,}"))))
    return Table(
        f"Responses that repeat the prompt, %: the {len(rows)} descriptors whose share changed most, of {len(frame):,}",
        ("descriptor", "axis", "before", "after", "change", f"mean b, {UNIT}", "responses"),
        tuple(rows),
    )


def parroting_sentence(content: GenerationContent) -> str:
    """Return whether descriptors with a large mean b are the ones whose prompts are repeated more, or nothing."""
    score = next((it for it in content.differences if it.metric == "parroting_rho"), None)
    if score is None:
        return ""
    change = "the change of the share of its responses that repeat the prompt"
    return f"Spearman’s ρ of a descriptor’s mean b and {change} is {_rho(score)}."


def frequency_table(content: GenerationContent) -> Table:
    """Return the rank correlation of a cluster's mean probability with the descriptor's frequency (Figures 3, 5, 6)."""
    scores = {
        (score.group["cluster"], score.group["run"]): score
        for score in content.differences
        if score.metric == "frequency_rho"
    }
    rows = [
        Row(visible(cluster, LONGEST_NAME), tuple(_rho_cell(scores.get((cluster, run))) for run in ("before", "after")))
        for cluster in dict.fromkeys(cluster for cluster, _ in scores)
    ]
    if not rows:
        return Table("", (), ())
    return Table(
        "Spearman’s ρ of a descriptor’s frequency and its mean probability of a style cluster",
        ("style cluster", "before", "after"),
        tuple(rows),
        "Negative: what is rare in the corpus is answered in this style more. All meanings of a word count alike.",
    )


def corpus_sentence(content: GenerationContent) -> str:
    """Return how many descriptors the corpus has, or nothing."""
    frame = content.changes.corpus
    if frame is None or frame.empty:
        return ""
    each = frame.drop_duplicates(["descriptor", "axis"])
    never, n = int((each["count"] == 0).sum()), len(each)
    corpus = visible(str(each["corpus"].iloc[0]), 300)
    missing = f"; {never:,} of the {n:,} descriptors never occur in it" if never else ""
    return (
        f"The corpus {corpus} holds {int(each['count'].sum()):,} usages of descriptors in "
        f"{int(each['examples'].iloc[0]):,} examples{missing}. Frequency is usages for each example."
    )


def _scaled(row: Mapping[str, Any], side: str, factor: float, digits: int, sign: bool) -> Cell:
    if math.isnan(row[side]):
        return Cell("undefined", reason=visible(row["reason"] or "no reason was given"))
    bounds = _bounds(row, side, factor)
    return Cell(number(row[side] * factor, digits, sign), interval(bounds, digits, sign))


def _bounds(row: Mapping[str, Any], side: str, factor: float) -> tuple[float, float] | None:
    bounds = (row[f"{side}_low"] * factor, row[f"{side}_high"] * factor)
    return None if any(map(math.isnan, bounds)) else bounds


def _moves(frame: pd.DataFrame) -> str:
    return "; ".join(
        f"{visible(row.descriptor, LONGEST_NAME)} {_percentage(row.before)}\u00a0→\u00a0{_percentage(row.after)}"
        for row in frame.itertuples()
    )


def _percentage(share: float) -> str:
    return number(100 * share, 1)


def _rho(score: BiasScore) -> str:
    cell = _rho_cell(score)
    if cell.reason:
        return f"undefined: {cell.reason}"
    p = "" if score.p_value is None else f", p {'' if score.p_value < 1e-4 else '= '}{p_value(score.p_value)}"
    bounds = f" (95 % interval {cell.interval[1:-1].replace(', ', ' to ')}{p})" if cell.interval else p
    return f"{cell.text}{bounds}"


def _rho_cell(score: BiasScore | None) -> Cell:
    if score is None:
        return Cell("not measured")
    if math.isnan(score.value):
        return Cell("undefined", reason=visible(score.reason or "no reason was given"))
    return Cell(number(score.value, 2, sign=True), interval(score.interval, 2, sign=True))
