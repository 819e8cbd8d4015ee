"""Conversion of scores to a table and to a figure, for notebooks."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import pandas as pd

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.score import BiasScore, group_columns, signature_line

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def score_table(scores: Sequence[BiasScore]) -> pd.DataFrame:
    """Return a table with one row for each score.

    Columns: metric, form, kind, a column for each key of the groups (`group_columns`), value, low, high, ideal,
    p_value, n, n_of, n_left_out, reason, caution, signature. Numbers are in natural units and unrounded; `signature` is
    the citable line of `signature_line`.

    >>> table = score_table([BiasScore("fgb", 0.25, 0.0, (0.0, 1.0), n=8, interval=(0.2, 0.3), group={"axis": "age"})])
    >>> table[["metric", "axis", "value", "low", "high", "n"]].to_dict("records")
    [{'metric': 'fgb', 'axis': 'age', 'value': 0.25, 'low': 0.2, 'high': 0.3, 'n': 8}]
    """
    rows = []
    for score in scores:
        low, high = score.interval or (None, None)
        row = {
            "metric": score.metric,
            "form": score.form.value,
            "kind": score.kind.value,
            **group_columns(score.group),
            "value": score.value,
            "low": low,
            "high": high,
            "ideal": score.ideal,
            "p_value": score.p_value,
            "n": score.n,
            "n_of": score.n_of,
            "n_left_out": score.n_left_out,
            "reason": score.reason,
            "caution": None if score.caution is None else score.caution.value,
            "signature": signature_line(score),
        }
        rows.append(row)
    return pd.DataFrame(rows)


def score_figure(scores: Sequence[BiasScore]) -> "Figure":
    """Return a figure with a dot and a 95 % interval for each defined score, and a line at the ideal, in natural units.

    The scores should have a common scale, such as the scores of one metric by axis.

    Raises:
        InputError: no score has a value.

    >>> figure = score_figure([BiasScore("fgb", 0.25, 0.0, (0.0, 1.0), n=8, interval=(0.2, 0.3))])
    >>> [text.get_text() for text in figure.axes[0].get_yticklabels()]
    ['fgb']
    """
    from matplotlib.figure import Figure

    defined = [score for score in scores if not math.isnan(score.value)]
    if not defined:
        raise InputError("scores", "no score has a value; see the column reason of score_table(scores).")
    figure = Figure(figsize=(7, 0.6 + 0.32 * len(defined)), layout="constrained")
    axes = figure.add_subplot()
    for y, score in enumerate(reversed(defined)):
        low, high = score.interval or (score.value, score.value)
        axes.plot([low, high], [y, y], color="#5b7fa6", linewidth=2, solid_capstyle="round")
        axes.plot(score.value, y, "o", color="#1f4e79", markersize=6)
    for ideal in {score.ideal for score in defined} - {None}:
        axes.axvline(ideal, color="#999999", linewidth=1, linestyle=":")
    labels = []
    for score in reversed(defined):
        labels.append(", ".join([score.name, *(str(value) for value in score.group.values())]))
    axes.set_yticks(range(len(defined)), labels, parse_math=False)  # a name may contain "$"
    axes.set_ylim(-0.6, len(defined) - 0.4)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel("value, 95 % interval; dotted: ideal")
    return figure
