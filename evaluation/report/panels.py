"""Panels: small plots with a title above, and numbers at the left and below."""

from collections.abc import Callable, Sequence

from markupsafe import Markup

from evenhand.evaluation.report.plots import Scale, svg_line, svg_text, tick_text, ticks

# Where a panel's own area begins and ends, in percent: room for a title above and for numbers at the left and below.
LEFT, TOP, BOTTOM = 15.0, 13.0, 80.0


def grid(x: Scale, y: Scale, x_name: str, y_text: Callable[[float], str], about: int) -> list[Markup]:
    """Return horizontal lines with their numbers at the left, and the numbers and the name of the x axis below."""
    numbers = [svg_text(tick_text(tick), x(tick), 88, "tick middle") for tick in ticks(x, about)]
    name = svg_text(x_name, (x.start + x.end) / 2, 98, "tick middle")
    return [*numbers, name, *horizontal_lines(y, y_text)]


def horizontal_lines(y: Scale, y_text: Callable[[float], str]) -> list[Markup]:
    """Return horizontal lines with their numbers at the left."""
    lines = []
    for tick in ticks(y, 3):
        lines.append(svg_line(LEFT, y(tick), 100, y(tick), "zero" if tick == 0 else "grid"))
        lines.append(svg_text(y_text(tick), LEFT - 2, y(tick) + 1.8, "tick end"))
    return lines


def widened(low: float, high: float) -> tuple[float, float]:
    """Return the ends of a scale; of a single number, half of one to either side."""
    return (low, high) if high > low else (low - 0.5, high + 0.5)


def polyline(points: Sequence[tuple[float, float]], css_class: str) -> Markup:
    """Return a curve; what lies above the panel's own area is cut off."""
    path = " ".join(f"{x},{y}" for x, y in points)
    return Markup(
        '<svg y="{top}%" height="{height}%" viewBox="0 {top} 100 {height}" preserveAspectRatio="none">'
        '<polyline points="{path}" class="{css_class}"/></svg>'
    ).format(top=TOP, height=100 - TOP, path=path, css_class=css_class)
