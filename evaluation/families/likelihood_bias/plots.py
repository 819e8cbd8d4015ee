"""Maps of likelihoods: axes by templates as shades and as distributions, and every pair of an axis's descriptors.

Paper 002, Figures 2 and 4. Cells have a fixed size, so that a label always fits its row; what is wider than the page
is scrolled. The cells say what they hold when pointed at.
"""

import math
from collections.abc import Iterable, Sequence

import numpy as np
import pandas as pd
from markupsafe import Markup, escape

from evenhand.evaluation.report.numbers import number, visible
from evenhand.evaluation.report.plots import Scale, tick_text

# All in pixels.
SQUARE, SMALL_LETTER = 11, 5.6  # a pair of descriptors; about the width of a letter beside it
WIDE, HIGH, LETTER = 44, 20, 6.1  # a cell of axis by template; about the width of a letter of its labels
SLANT = 40  # degrees, of the labels above the columns
SHADES = 8  # of each colour
NAME, SENTENCE = 40, 56  # letters of a descriptor or axis, and of a template

_STYLE = Markup(
    "<style>"
    "svg.map{--over:#a64b00;font-size:11px}"
    "@media (prefers-color-scheme:dark){svg.map{--over:#f0a35c}}"
    "svg.map text{font-size:11px;fill:var(--ink)}svg.map .tick{fill:var(--muted);font-size:10px}"
    "svg.pairs text{font-size:10px}svg.pairs rect{width:10px;height:10px;fill:var(--shade)}"
    "svg.shares rect{fill:var(--after)}svg.shares .none{fill:none}"
    "svg.spreads rect{fill:transparent}svg.spreads rect.band{fill:var(--shade)}svg.spreads line.s{stroke:var(--zero)}"
    "svg.spreads line.q{stroke:var(--after);stroke-width:5}svg.spreads line.m{stroke:var(--ink);stroke-width:2}"
    + "".join(
        f"svg.pairs .{sign}{level}{{fill:color-mix(in srgb,var({colour}) {round(100 * level / SHADES)}%,var(--shade))}}"
        for sign, colour in (("o", "--over"), ("u", "--after"))
        for level in range(1, SHADES + 1)
    )
    + "</style>"
)


def short(template: str) -> str:
    """Return a template with its slot as in the paper's Figure 4: {NP} or, for a plural, {PNP}."""
    return visible(template.replace("{plural_noun_phrase}", "{PNP}").replace("{noun_phrase}", "{NP}"), SENTENCE)


def axis_name(axis: str) -> str:
    """Return an axis's name as it is shown."""
    return visible(axis.replace("_", " "), NAME)


def share_map(told: str, shares: pd.DataFrame) -> Markup:
    """Return a map of shares, templates × axes: the number in each cell, and the more the darker; "–" where undefined.

    The drawing is as high as its rows, whose order is kept.
    """
    left, top, parts = _labels(shares)
    for row, template in enumerate(shares.index):
        for column, axis in enumerate(shares.columns):
            x, y, share = left + WIDE * column, top + HIGH * row, shares.iat[row, column]
            known = math.isfinite(share)
            shown = number(100 * share, 0) if known else "–"
            # At half its strength the ink on the darkest shade still has a contrast above 4.5, by day and by night.
            fill = Markup('fill-opacity="{:.2f}"').format(0.48 * share) if known else Markup('class="none"')
            parts.append(
                Markup(
                    '<rect x="{}" y="{}" width="{}" height="{}" {}/><text x="{}" y="{}" class="middle">{}'
                    "<title>{}, {}: {}</title></text>"
                ).format(
                    *(x, y, WIDE - 1, HIGH - 1, fill, x + WIDE / 2, y + 14, shown),
                    *(axis_name(axis), short(template), f"{shown} %" if known else "undefined"),
                )
            )
    return _drawing("shares", left + WIDE * len(shares.columns), top + HIGH * len(shares), told, parts)


def spread_map(told: str, quantiles: Sequence[pd.DataFrame]) -> Markup:
    """Return how numbers above 0 are spread, templates × axes: from the 5 % to the 95 % quantile, box and median.

    Args:
        told: what is drawn, for those who cannot see it.
        quantiles: five frames, templates × axes: 5, 25, 50, 75 and 95 %. All cells have one logarithmic scale.
    """
    logs = np.log10(np.stack([frame.to_numpy(np.float64) for frame in quantiles], axis=2))
    left, top, parts = _labels(quantiles[0])
    known = logs[np.isfinite(logs)]
    low, high = (float(known.min()), float(known.max())) if len(known) else (0.0, 1.0)
    scale = Scale(low - 0.02, high + 0.02, 3, WIDE - 4)
    bottom = top + HIGH * len(quantiles[0])
    for column in range(len(quantiles[0].columns)):
        x = left + WIDE * column
        if column % 2 == 0:
            size = (x, top, WIDE, bottom - top)
            parts.append(Markup('<rect x="{}" y="{}" width="{}" height="{}" class="band"/>').format(*size))
        for place, tick in enumerate(_powers(scale)):  # one below the other, as they would not fit side by side
            parts.append(_line(x + scale(tick), top, x + scale(tick), bottom, "grid"))
            parts.append(_text(_plain_power(tick), x + scale(tick), bottom + 11 + 11 * place, "tick middle"))
    for row, template in enumerate(quantiles[0].index):
        for column, axis in enumerate(quantiles[0].columns):
            x, y, five = left + WIDE * column, top + HIGH * row + HIGH / 2, logs[row, column]
            if np.isfinite(five).all():
                places = [round(x + scale(float(value)), 1) for value in five]
                values = [tick_text(float(f"{10.0 ** float(value):.3g}")) for value in (five[2], five[0], five[4])]
                title = "{}, {}: median {}, 90 % between {} and {}".format(axis_name(axis), short(template), *values)
                parts.append(
                    Markup("<g><title>{}</title>{}{}{}{}</g>").format(
                        title,
                        Markup('<rect x="{}" y="{}" width="{}" height="{}"/>').format(x, y - HIGH / 2, WIDE, HIGH),
                        _line(places[0], y, places[4], y, "s"),
                        _line(places[1], y, places[3], y, "q"),
                        _line(places[2], y - 6, places[2], y + 6, "m"),
                    )
                )
    return _drawing("spreads", left + WIDE * len(quantiles[0].columns), bottom + 26, told, parts)


def pair_map(told: str, above: pd.DataFrame) -> Markup:
    """Return all pairs of descriptors once, as a triangle of squares with the descriptors down its slope.

    Args:
        told: what is drawn, for those who cannot see it.
        above: of `effect_matrix`, in the order to draw: how often a sentence with the row's descriptor has the higher
            perplexity. 0.5 has no colour, more is orange, less is blue, which the colour-blind tell apart.
    """
    names = [visible(str(name), NAME) for name in above.index]
    safe, values = list(map(escape, names)), above.to_numpy()
    top, parts = 34, _legend()
    for row, name in enumerate(safe):
        y = top + SQUARE * row
        cells = "".join(
            f'<rect x="{SQUARE * column}"{_shade(values[row, column])}><title>{name} – {safe[column]}: '
            f"{_hundred(values[row, column])}</title></rect>"
            for column in range(row)
        )
        label = f'<text x="{SQUARE * row + 3}" y="9">{name}</text>'
        # The names are escaped above; a format of Markup for each square would take seconds.
        parts.append(Markup(f'<g transform="translate(0,{y})">{cells}{label}</g>'))
    width = max(SQUARE * row + 8 + SMALL_LETTER * len(name) for row, name in enumerate(names))
    return _drawing("pairs", max(width, 220), top + SQUARE * len(names) + 2, told, parts)


def _shade(value: float) -> str:
    if math.isnan(value):
        return ' fill-opacity="0"'
    level = round(2 * SHADES * (float(value) - 0.5))
    return f' class="{"o" if level > 0 else "u"}{abs(level)}"' if level else ""


def _hundred(value: float) -> str:
    return "not compared" if math.isnan(value) else f"{100 * value:.0f} of 100"


def _legend() -> list[Markup]:
    steps = range(-SHADES, SHADES + 1)
    squares = "".join(
        f'<rect x="{SQUARE * place}"{_shade(0.5 + step / 2 / SHADES)}/>' for place, step in enumerate(steps)
    )
    ends = ((0, "0", "tick"), (SQUARE * (SHADES + 0.5), "50", "tick middle"), (SQUARE * len(steps), "100", "tick end"))
    return [Markup(squares), *(_text(text, x, 21, css_class) for x, text, css_class in ends)]


def _labels(frame: pd.DataFrame) -> tuple[float, float, list[Markup]]:
    """Return where the cells of a map begin, from the left and from the top, and the labels of its rows and columns."""
    templates, axes = [short(it) for it in frame.index], [axis_name(it) for it in frame.columns]
    left = 8 + round(LETTER * max(map(len, templates), default=0))
    top = 12 + round(LETTER * math.sin(math.radians(SLANT)) * max(map(len, axes), default=0))
    parts = []
    for row, text in enumerate(templates):
        y = top + HIGH * row
        parts.append(_line(0, y, left + WIDE * len(axes), y, "grid"))
        parts.append(_text(text, 0, y + 14, "name"))
    for column, text in enumerate(axes):
        x, y = left + WIDE * column + WIDE / 2 - 2, top - 5
        parts.append(Markup('<text transform="translate({},{}) rotate(-{})">{}</text>').format(x, y, SLANT, text))
    return left, top, parts


def _powers(scale: Scale) -> list[float]:
    """Return the logarithms of at most two round numbers that the scale reaches, far apart."""
    digits = ((0.0,), (0.0, math.log10(2), math.log10(5)))
    for within in digits:
        found = [
            power + digit
            for power in range(math.floor(scale.low), math.ceil(scale.high) + 1)
            for digit in within
            if scale.holds(power + digit)
        ]
        if len(found) > 1:
            return [found[0], found[-1]]
    return found


def _plain_power(log: float) -> str:
    if log < 4 or log != round(log):
        return tick_text(10.0**log)
    return "10" + f"{log:.0f}".translate(str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹"))


def _line(x1: float, y1: float, x2: float, y2: float, css_class: str) -> Markup:
    return Markup('<line x1="{}" y1="{}" x2="{}" y2="{}" class="{}"/>').format(x1, y1, x2, y2, css_class)


def _text(text: str, x: float, y: float, css_class: str) -> Markup:
    return Markup('<text x="{}" y="{}" class="{}">{}</text>').format(round(x, 1), y, css_class, text)


def _drawing(css_class: str, width: float, height: float, told: str, parts: Iterable[Markup]) -> Markup:
    room = 0 if css_class == "pairs" else 70  # for the last column's label, which leans to the right
    return Markup(
        '<div class="scroll" style="margin:.3rem 0"><svg class="map {}" style="width:{}px;height:{}px" role="img" '
        'aria-label="{}">{}{}</svg></div>'
    ).format(css_class, round(width + room), round(height), told, _STYLE, Markup("").join(parts))
