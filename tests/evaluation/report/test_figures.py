"""Charts as images: equal bytes for equal charts, and no markup from labels."""

import base64
import re
import xml.etree.ElementTree as ElementTree

import pytest

from evenhand.evaluation.report.figures import box_figure, svg
from evenhand.evaluation.report.numbers import sanitize
from tests.report_pages import HOSTILE

SVG = "{http://www.w3.org/2000/svg}"


def parsed(name: str) -> ElementTree.Element:
    (data,) = re.findall('base64,([^"]*)"', str(svg(box_figure("Numbers", {name: [1, 2, 3]}))))
    return ElementTree.fromstring(base64.b64decode(data))


def test_charts_have_equal_bytes_without_a_date():
    assert svg(box_figure("Numbers", {"a": [1, 2]})) == svg(box_figure("Numbers", {"a": [1, 2]}))
    assert not re.search(r"20\d\d-\d\d-\d\d|Matplotlib v", ElementTree.tostring(parsed("a"), encoding="unicode"))


@pytest.mark.parametrize("name", [*(sanitize(it, 40) for it in HOSTILE), "$x^2$ and $", r"\frac{1}{2} __x__"])
def test_labels_are_escaped(name):
    root = parsed(name)
    assert not {"script", "img"} & {it.tag.removeprefix(SVG) for it in root.iter()}
    assert not any(attribute.startswith("on") for it in root.iter() for attribute in it.attrib)
    assert not name or sanitize(name, 60) in [it.text or "" for it in root.iter(f"{SVG}text")]


def test_a_box_has_its_quartiles_median_mean_and_ends_at_5_and_95_percent():
    """Of 1 to 20 and 190: 5 and 95 % are at places 1 and 19, the quartiles at 5 and 15, from 0; the mean is 400/21."""
    figure = box_figure("Gap, in nats", {"a": [*range(1, 21), 190], "b": [0.0, 0.0]}, ideal=0.0)
    (axes,) = figure.axes
    assert axes.get_xlabel() == figure.get_label() == "Gap, in nats"
    assert [text.get_text() for text in axes.get_yticklabels()] == ["a", "b"]
    lines = [list(line.get_xdata()) for line in axes.lines]
    box, low, high, low_cap, high_cap, median, mean = lines[:7]
    assert (min(box), max(box)) == (6, 16) and low == [6, 2] and high == [16, 20]
    assert (set(low_cap), set(high_cap), set(median)) == ({2}, {20}, {11})
    assert mean == [pytest.approx(400 / 21)]
    assert axes.lines[6].get_marker() == "o"
    assert lines[-1] == [0.0, 0.0] and list(axes.lines[-1].get_ydata()) == [0, 1]  # the ideal, over the whole height
