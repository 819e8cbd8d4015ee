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
