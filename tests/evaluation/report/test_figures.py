"""Charts as SVG: equal bytes for equal charts, no markup from labels, labels that do not cover each other."""

import math
import re
import xml.etree.ElementTree as ElementTree
from itertools import combinations

import pytest
from markupsafe import Markup

from evenhand.evaluation.report.figures import (
    AFTER,
    INK,
    add_tooltip,
    label_points,
    new_chart,
    place_labels,
    set_ticks,
    styled,
    svg,
    tick_percent,
)
from evenhand.evaluation.report.numbers import sanitize
from tests.report_pages import HOSTILE

SVG = "{http://www.w3.org/2000/svg}"


@styled
def chart(name: str = "a name"):
    figure, axes = new_chart(f"Chart of {name}", 400, 200)
    (line,) = axes.plot([0, 1], [0.25, 0.75], color=AFTER, marker="o", clip_on=True)
    add_tooltip(line, name)
    axes.set(xlabel=name, title=name)
    set_ticks(axes, "y", 4, tick_percent)
    label_points(axes, [(0.5, 0.5)], [name])
    return figure


def parsed(text: Markup) -> ElementTree.Element:
    return ElementTree.fromstring(str(text).replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1))


def test_charts_have_equal_bytes_and_their_text():
    text = svg(chart())
    assert text == svg(chart())
    assert "var(--after)" in text and "var(--ink)" in text and AFTER not in text and INK not in text
    assert not re.search(r"20\d\d-\d\d-\d\d|Matplotlib|DejaVu", text)
    root = parsed(svg(chart()))
    assert root.get("role") == "img" and root.get("aria-label") == root.find(f"{SVG}title").text == "Chart of a name"
    texts = [it.text for it in root.iter(f"{SVG}text")]
    assert texts.count("a name") == 3 and "40 %" in texts
    assert "a name" in [it.text for it in root.iter(f"{SVG}title")][1:]


@pytest.mark.parametrize("name", [*(sanitize(it, 40) for it in HOSTILE), "$x^2$ and $", r"\frac{1}{2} __x__"])
def test_labels_are_escaped(name):
    root = parsed(svg(chart(name)))
    assert not {"script", "img", "style"} & {it.tag.removeprefix(SVG) for it in root.iter()}
    assert not any(attribute.startswith("on") for it in root.iter() for attribute in it.attrib)
    texts = [it.text or "" for it in root.iter(f"{SVG}text")]
    assert not name or name in texts


def test_ids_of_two_charts_differ():
    first, second = ({it.get("id") for it in parsed(svg(chart(name))).iter()} - {None} for name in "ab")
    assert first and not first & second


def test_labels_do_not_cover_points_or_each_other():
    dots = [(200 + 9 * (i % 6), 200 + 9 * (i // 6)) for i in range(24)]
    offsets = place_labels(dots, ["12"] * 24, (60, 0, 900, 400))
    boxes = [(x + dx, y + dy) for (x, y), (dx, dy) in zip(dots, offsets, strict=True)]
    assert sum(abs(a[0] - b[0]) < 17 and abs(a[1] - b[1]) < 11 for a, b in combinations(boxes, 2)) <= 4
    ((dx, dy),) = place_labels([(450, 200)], ["1"], (0, 0, 900, 400))
    assert 5 < math.hypot(dx, dy) < 18
    ((_, dy),) = place_labels([(450, 200)], ["1"], (0, 0, 900, 400), [(400, 203, 500, 300)])
    assert dy <= 0
