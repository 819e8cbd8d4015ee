"""Reports in a real browser: what a reader can do with them, and that nothing goes wrong or leaves the machine."""

import time
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from evenhand.evaluation.report import plots
from evenhand.evaluation.report.files import write_page
from evenhand.evaluation.report.page import Figure, Section
from evenhand.evaluation.report.responses import responses_html, rows_of
from evenhand.evaluation.report.tables import Cell, Mark, Row, Table
from evenhand.evaluation.runs.files import write_text
from tests.browser import headless
from tests.evaluation.report.test_page import PAGE

CSS = "css selector"
VALUES = {"nine": "−9.5", "ten": "10.0", "thousand": "1,000.0", "none": "–", "two": "+2.0", "<script>": "0.5"}
VALUES |= {f"row {place}": f"{place}.5" for place in range(20, 24)}
ROWS = tuple(
    Row(label, (Cell(text, "[−1.0, 3.0]" if label == "two" else ""),), (Mark("before", place, None),))
    for place, (label, text) in enumerate(VALUES.items())
)
TALL = Table("Numbers, ×10⁻³", ("type", "value"), ROWS)
DRAWING = plots.svg_figure(
    "panel", "a picture", plots.svg_circle(50, 50, 9, "after"), plots.svg_line(0, 0, 9, 9, "zero")
)
HOSTILE = ('<script>window.hit = 1</script>"><img src=x onerror="window.hit = 1">', "</script><b>b</b><!-- &amp;")


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    folder = tmp_path_factory.mktemp("browser")
    with headless(folder) as found:
        report = replace(PAGE, tables=[TALL], sections=[Section("Drawn", figures=[Figure("A picture", DRAWING)])])
        write_page(folder, "report", report)
        write_text(folder / "responses.html", responses_page())
        found.folder = folder
        yield found
        assert found.look().errors == [] and found.left_the_machine == []


def responses_page() -> str:
    """Sixty responses of one descriptor, two of another that would break out of their page."""
    texts = pd.DataFrame({"axis": ["age"] * 60 + ["ability"] * 2, "descriptor": ["old"] * 60 + ["deaf"] * 2})
    said = [f"Answer {place}." for place in range(60)] + list(HOSTILE)
    vectors = np.array([[0.6, 0.4]] * 61 + [[0.1, 0.9]])
    b = np.linspace(-0.01, 0.051, 62)
    rows = rows_of(texts.assign(text="I'm so."), {"response": (said, vectors, ("Calm", "Angry"), b)})
    return responses_html("All responses", "a model", len(rows), lambda places: rows.iloc[places], ["response"])


def opened(browser, name):
    browser.driver.get((browser.folder / name).as_uri())
    return browser.driver


def clicked(browser, text):
    """Return the file that the button saves."""
    button = next(it for it in browser.driver.find_elements(CSS, "button") if it.text == text)
    before = set(browser.downloads.iterdir())
    button.click()
    deadline = time.monotonic() + 600
    while time.monotonic() < deadline:
        new = [
            it for it in set(browser.downloads.iterdir()) - before if it.suffix != ".crdownload" and it.name[0] != "."
        ]
        if new and new[0].stat().st_size:
            return new[0]
        time.sleep(0.1)
    raise AssertionError(f"{text} saved nothing")


def chosen(select, text):
    next(it for it in select.find_elements(CSS, "option") if it.text == text).click()


def labels(driver):
    return [it.text for it in driver.find_elements(CSS, ".scroll tbody th") if it.is_displayed()]


def test_a_table_is_sorted_by_number_and_by_name(browser):
    driver = opened(browser, "report.html")
    name, value = driver.find_elements(CSS, ".scroll thead button")
    value.click()
    assert labels(driver)[:2] == ["thousand", "row 23"] and labels(driver)[-2:] == ["nine", "none"]
    assert value.find_element("xpath", "..").get_attribute("aria-sort") == "descending"
    value.click()
    assert labels(driver)[:3] == ["nine", "<script>", "two"] and labels(driver)[-1] == "none"
    name.click()
    assert labels(driver)[0] == "two" and value.find_element("xpath", "..").get_attribute("aria-sort") is None


def test_a_long_table_is_filtered(browser):
    driver = opened(browser, "report.html")
    driver.find_element(CSS, ".tools input").send_keys("ROW 2")
    assert labels(driver) == ["row 20", "row 21", "row 22", "row 23"]
    assert driver.find_element(CSS, ".tools [role=status]").text == "4 of 10"


def test_tables_and_figures_are_saved(browser):
    opened(browser, "report.html")
    lines = clicked(browser, "CSV").read_text().splitlines()
    assert lines[0] == "type,value,value low,value high"
    assert lines[1:6] == ["nine,-9.5,,", "ten,10.0,,", "thousand,1000.0,,", "none,–,,", "two,+2.0,-1.0,3.0"]
    latex = clicked(browser, "LaTeX").read_text()
    assert "two & +2.0 [$-$1.0, 3.0] \\\\" in latex and "\\begin{tabular}{lr}" in latex
    svg = clicked(browser, "SVG").read_text()
    assert svg.startswith("<svg ") and "class=" not in svg and "stroke:" in svg
    assert clicked(browser, "PNG").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"


def test_contents_are_open_where_there_is_room_and_fold_on_a_phone(browser):
    driver = opened(browser, "report.html")
    assert [it.text for it in driver.find_elements(CSS, ".toc a")][:2] == ["Headline", "Drawn"]
    driver.set_window_size(390, 844)
    driver.refresh()
    assert not driver.find_element(CSS, ".toc a").is_displayed()
    driver.find_element(CSS, ".toc summary").click()
    assert driver.find_element(CSS, ".toc a").is_displayed()
    wide = driver.execute_script("return document.documentElement.scrollWidth - innerWidth")
    driver.set_window_size(1280, 1000)
    assert wide <= 0


def test_responses_are_searched_and_stay_text(browser):
    driver = opened(browser, "responses.html")
    status = driver.find_element(CSS, "#search [role=status]")
    assert status.text == "62 of 62" and len(driver.find_elements(CSS, "#found > li")) == 50
    next(it for it in driver.find_elements(CSS, "button") if it.text == "More").click()
    assert len(driver.find_elements(CSS, "#found > li")) == 62
    descriptor, words = driver.find_elements(CSS, "#search [type=search]")
    descriptor.send_keys("DEAF")
    assert [it.text for it in driver.find_elements(CSS, ".answer")] == list(HOSTILE)
    assert driver.execute_script("return window.hit") is None and driver.find_elements(CSS, "#found b") == []
    descriptor.clear()
    words.send_keys("answer 7.")
    assert [it.text for it in driver.find_elements(CSS, ".answer")] == ["Answer 7."]
    words.clear()
    words.send_keys("so")
    _, style, order = driver.find_elements(CSS, "#search select")
    chosen(style, "Angry")
    assert status.text == "1 of 62"
    chosen(style, "Any style")
    driver.find_element(CSS, "#search [type=number]").send_keys("0.045")
    assert status.text == "7 of 62"  # b rises by 0.001 from −0.01, and seven are 0.045 or more
    chosen(order, "Largest b, response")
    assert "b 51.0 ×10⁻³" in driver.find_element(CSS, "#found .pair .small").text
