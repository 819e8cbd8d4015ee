"""Chart with one line per language, on which both genders are marked (papers 003 and 004, Figures 3, 4 and 8).

Masculine is orange and feminine is blue; colour-blind readers can distinguish these colours.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from matplotlib.figure import Figure

from evenhand.evaluation.data.gendered_translations import ENGLISH_LANGUAGE, load_languages
from evenhand.evaluation.report.figures import (
    AFTER,
    INK,
    MUTED,
    OVER,
    PAPER,
    WIDE,
    ZERO,
    add_margin,
    add_tooltip,
    new_chart,
    set_ticks,
    styled,
)
from evenhand.evaluation.report.numbers import number, sanitize, tick_number

MAX_NAME = 40  # characters of a language's name
HEAD, ROW = 70, 34  # pixels: legend and axis; the row of a language
# For each gender: distance below the middle of the row, marker, colour of the line, colour of the fill.
GENDERS = {
    "masculine": (-0.16, "o", OVER, PAPER),
    "feminine": (0.16, "o", AFTER, AFTER),
    "both": (0.0, "D", INK, PAPER),
}


@dataclass(frozen=True)
class Lane:
    """The marks of one gender in a row, in reported units: position of the marker, thin and thick interval, median."""

    middle: float
    thin: tuple[float, float] | None = None
    thick: tuple[float, float] | None = None
    median: float | None = None


@dataclass(frozen=True)
class GenderRow:
    """A language with the marks of its genders ("masculine", "feminine", "both"), and a note at the right end."""

    label: str
    lanes: Mapping[str, Lane]
    note: str = ""


def language_name(code: str) -> str:
    """Return the English name of a language, or its code if the language is not in the paper."""
    return sanitize(_names().get(code, code), MAX_NAME)


@cache
def _names() -> dict[str, str]:
    return {language.code: language.name for language in (*load_languages(), ENGLISH_LANGUAGE)}


@styled
def gender_chart(title: str, rows: Sequence[GenderRow], *, decimals: int, ideal: float | None = None) -> Figure:
    """Return a chart with a row for each language: masculine (○) above, both (◇) in the middle, feminine (●) below.

    Args:
        decimals: decimals of the numbers in the text alternative and the tooltips.
        ideal: position of a vertical line; None for no line.
    """
    texts = [
        ", ".join(f"{gender} {number(lane.middle, decimals)}" for gender, lane in row.lanes.items()) for row in rows
    ]
    label = f"{title}. {'; '.join(f'{row.label}: {text}' for row, text in zip(rows, texts, strict=True))}"
    figure, axes = new_chart(label, WIDE, HEAD + ROW * len(rows))
    if ideal is not None:
        axes.axvline(ideal, color=ZERO)
    for i, (row, text) in enumerate(zip(rows, texts, strict=True)):
        for gender, lane in row.lanes.items():
            offset, marker, color, face = GENDERS[gender]
            y = i + offset
            for interval, width in ((lane.thin, 2), (lane.thick, 7)):
                if interval:
                    axes.hlines(y, *interval, color=color, linewidth=width)
            if lane.median is not None:
                axes.plot([lane.median] * 2, [y - 0.13, y + 0.13], color=PAPER, linewidth=2)
            style = {"markerfacecolor": face, "markeredgecolor": color, "markeredgewidth": 2, "linestyle": ""}
            (mark,) = axes.plot(lane.middle, y, marker, markersize=7, label=gender, **style)
            add_tooltip(mark, f"{row.label}: {text}")
        position = {"xycoords": ("axes fraction", "data"), "textcoords": "offset points"}
        axes.annotate(row.note, (1, i), (6, 0), **position, verticalalignment="center")
    axes.set(ylim=(len(rows) - 0.4, -0.6), xlim=add_margin(*axes.dataLim.intervalx))
    axes.set_yticks(range(len(rows)), [row.label for row in rows], color=INK)
    set_ticks(axes, "x", 8, tick_number)
    axes.grid(visible=False, axis="y")
    axes.tick_params(axis="x", labelcolor=MUTED)
    handles = dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True))
    figure.legend(handles.values(), handles, loc="outside upper left", ncols=len(handles), handlelength=1)
    return figure
