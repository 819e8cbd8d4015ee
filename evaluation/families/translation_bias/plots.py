"""Drawings of translations: the gap of every pair of languages, and both genders of a language on one line.

Papers 003 and 004, Figure 6 and Figures 3, 4 and 8. Masculine is orange, feminine is blue, which the colour-blind tell
apart. The cells of the map have a fixed size, so that their numbers always fit; what is wider than the page is
scrolled.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from markupsafe import Markup, escape

from evenhand.evaluation.datasets.gendered_translations import ENGLISH_LANGUAGE, languages
from evenhand.evaluation.report.numbers import number, undefined, visible
from evenhand.evaluation.report.plots import Scale, svg_circle, svg_line, svg_text, tick_text, ticks
from evenhand.evaluation.results import BiasScore

LONGEST_NAME = 40  # letters of a language
# Of the map, in pixels: a cell, about the width of a letter of a label, and the slant of the column labels in degrees.
WIDE, HIGH, LETTER, SLANT = 36, 19, 6.1, 40
SHADES = 8  # of each colour
FULL = 0.95  # the quantile of the sizes of gaps that has the full colour: one far pair would leave the others pale
# Of the rows, in rem: the axis above all; a row; within it its label, and the lines of the genders.
HEAD, EACH, LABEL = 1.6, 2.9, 1.1
LINES = {"masculine": 1.65, "feminine": 2.3, "both": 1.98}
SIGNS = {"masculine": "○", "feminine": "●", "both": "◇"}
ROLES = {"masculine": "before", "feminine": "after", "both": "truth"}  # classes of the style sheet

_COLOURS = "{name}{{--before:#a64b00}}@media (prefers-color-scheme:dark){{{name}{{--before:#f0a35c}}}}"
_STYLE = Markup(
    "<style>"
    + _COLOURS.format(name="svg.gaps")
    + "svg.gaps text{font-size:11px;fill:var(--ink)}svg.gaps .n{font-size:10px;text-anchor:middle}"
    "svg.gaps .s{font-weight:700}svg.gaps .tick{fill:var(--muted);font-size:10px}svg.gaps rect{fill:var(--shade)}"
    # At half its strength the ink on the fullest colour still has a contrast above 4.5, by day and by night.
    + "".join(
        f"svg.gaps .{side}{level}{{fill:color-mix(in srgb,var(--{role}) {round(48 * level / SHADES)}%,var(--paper))}}"
        for side, role in (("m", "before"), ("f", "after"))
        for level in range(SHADES + 1)
    )
    + "</style>"
)
_ROW_STYLE = Markup("<style>" + _COLOURS.format(name="svg.genders") + "</style>")


@dataclass(frozen=True)
class Lane:
    """One gender of a row, in shown units: where its sign stands, what is drawn thin and, if any, thick; a median."""

    middle: float
    thin: tuple[float, float] | None = None
    thick: tuple[float, float] | None = None
    median: float | None = None


@dataclass(frozen=True)
class GenderRow:
    """A language with its genders ("masculine", "feminine", "both"); `aside` stands at the right end of its label."""

    label: str
    lanes: Mapping[str, Lane]
    aside: str = ""


def language_name(code: str) -> str:
    """Return the English name of a language, or its code if it is none of the paper's."""
    return visible(_names().get(code, code), LONGEST_NAME)


@cache
def _names() -> dict[str, str]:
    return {one.code: one.name for one in (*languages(), ENGLISH_LANGUAGE)}


def gender_rows(told: str, rows: Sequence[GenderRow], *, decimals: int, ideal: float | None = None) -> Markup:
    """Return a row for each language: ○ masculine above ● feminine, on one scale, ◇ both between them.

    Args:
        told: what is drawn, for those who cannot see it.
        rows: at least one lane has to be among them.
        decimals: of the numbers that are read out.
        ideal: where a line is drawn.
    """
    height = HEAD + EACH * len(rows)
    x = _frame([lane for row in rows for lane in row.lanes.values()], ideal)

    def up(rem: float) -> float:
        return round(100 * rem / height, 3)

    parts = [svg_text(tick_text(tick), x(tick), up(HEAD - 0.4), "tick middle") for tick in ticks(x, about=6)]
    parts += [svg_line(x(tick), up(HEAD), x(tick), 100, "grid") for tick in ticks(x, about=6)]
    if ideal is not None:
        parts.append(svg_line(x(ideal), up(HEAD), x(ideal), 100, "zero"))
    texts = []
    for place, row in enumerate(rows):
        top = HEAD + EACH * place
        parts.append(svg_line(0, up(top), 100, up(top), "grid"))
        parts.append(svg_text(row.label, 0, up(top + LABEL), "label strong"))
        parts.append(svg_text(row.aside, 100, up(top + LABEL), "label end"))
        for gender, lane in row.lanes.items():
            parts += _lane(lane, gender, x, up(top + LINES[gender]), up(0.3))
        shown = ", ".join(f"{gender} {number(lane.middle, decimals)}" for gender, lane in row.lanes.items())
        texts.append(f"{row.label}: {shown}")
    told = f"{told}. {'; '.join(texts)}"
    return Markup('<svg height="{}rem" class="genders" role="img" aria-label="{}"><title>{}</title>{}{}</svg>').format(
        round(height, 2), told, told, _ROW_STYLE, Markup("").join(parts)
    )


def _frame(lanes: Sequence[Lane], ideal: float | None) -> Scale:
    spans = (span for lane in lanes for span in ((lane.middle, lane.middle), lane.thin, lane.thick) if span)
    values = [value for span in spans for value in span] + ([] if ideal is None else [ideal])
    margin = 0.03 * (max(values) - min(values)) or 1.0
    return Scale(min(values) - margin, max(values) + margin, 1.0, 99.0)


def _lane(lane: Lane, gender: str, x: Scale, height: float, half: float) -> list[Markup]:
    role, parts = ROLES[gender], []
    for span, css_class in ((lane.thin, f"whisker {role}"), (lane.thick, f"box {role}")):
        if span:
            parts.append(svg_line(x(span[0]), height, x(span[1]), height, css_class))
    if lane.median is not None:
        parts.append(svg_line(x(lane.median), height - half, x(lane.median), height + half, "median"))
    if gender == "both":
        return [*parts, svg_text(SIGNS[gender], x(lane.middle), height, "middle truth")]
    return [*parts, svg_circle(x(lane.middle), height, 4, f"mean {role}" if lane.thick else role)]


def gap_map(told: str, codes: Sequence[str], gaps: Mapping[tuple[str, str], BiasScore]) -> Markup:
    """Return a map of gaps, sources down and targets across: the number in each cell, orange above 0 and blue below.

    A number is bold where its interval excludes 0, and "–" where the gap is undefined; a pair that was not translated
    has no cell.

    Args:
        told: what is drawn, for those who cannot see it.
        codes: of the languages, in the order to draw.
        gaps: by source and target.
    """
    names = [escape(language_name(code)) for code in codes]
    full = _full(gaps.values())
    legend = _legend(full)
    left = 8 + round(LETTER * max(map(len, names)))
    top = 44 + round(LETTER * math.sin(math.radians(SLANT)) * max(map(len, names)))
    parts = []
    for place, name in enumerate(names):
        x, y = left + WIDE * place + WIDE // 2, top + HIGH * place
        parts.append(f'<text transform="translate({x},{top - 5}) rotate(-{SLANT})">{name}</text>')
        parts.append(f'<text x="0" y="{y + 13}">{name}</text>')
        parts += [
            _cell(gaps[source, target], f"{name} → {names[column]}", left + WIDE * column, y, full)
            for source in (codes[place],)
            for column, target in enumerate(codes)
            if (source, target) in gaps
        ]
    size = (left + WIDE * len(codes) + 70, top + HIGH * len(codes) + 2)  # the last label leans to the right
    # The names are escaped above; a format of Markup for each cell would take seconds.
    return Markup(
        '<div class="scroll"><svg class="gaps" style="width:{}px;height:{}px" role="img" aria-label="{}">{}{}{}</svg>'
        "</div>"
    ).format(*size, told, _STYLE, legend, Markup("".join(parts)))


def _full(gaps: Sequence[BiasScore]) -> float:
    sizes = [abs(gap.value) for gap in gaps if math.isfinite(gap.value)]
    return float(np.quantile(sizes, FULL)) if sizes and max(sizes) > 0 else 1.0


def _cell(gap: BiasScore, names: str, x: int, y: int, full: float) -> str:
    """Return a cell; `names` is escaped already."""
    defined = math.isfinite(gap.value)
    bounds = "" if gap.interval is None else f" ({' to '.join(number(it, 1, sign=True) for it in gap.interval)})"
    title = f"{number(gap.value, 1, sign=True)}{bounds}" if defined else str(escape(undefined(gap)))
    sure = " s" if gap.interval and (gap.interval[0] > 0 or gap.interval[1] < 0) else ""
    return (
        f'<g><title>{names}: {title}</title><rect x="{x}" y="{y}" width="{WIDE - 1}" height="{HIGH - 1}"'
        f'{_shade(gap.value, full)}/><text x="{x + WIDE // 2}" y="{y + 13}" class="n{sure}">'
        f"{number(gap.value, 1, sign=True) if defined else '–'}</text></g>"
    )


def _shade(value: float, full: float) -> str:
    if math.isnan(value):
        return ""
    level = round(SHADES * min(1.0, abs(value) / full))
    return f' class="{"m" if value > 0 else "f"}{level}"'


def _legend(full: float) -> Markup:
    """Return the colours from the largest gap towards the feminine to the largest towards the masculine."""
    steps = range(-SHADES, SHADES + 1)
    squares = "".join(
        f'<rect x="{12 * place}" y="0" width="12" height="11"{_shade(full * step / SHADES, full)}/>'
        for place, step in enumerate(steps)
    )
    ends = ((0, number(-full, 1), ""), (6 * len(steps), "0", " middle"), (12 * len(steps), number(full, 1), " end"))
    return Markup(squares) + Markup("").join(
        Markup('<text x="{}" y="22" class="tick{}">{}</text>').format(x, css_class, text) for x, text, css_class in ends
    )
