"""Reports in a real browser: their controls, accessibility, no errors and no requests."""

from dataclasses import replace

import pandas as pd
import pytest

from evenhand.evaluation.files import write_text
from evenhand.evaluation.report.answers_page import ShownAnswers, answers_html
from evenhand.evaluation.report.html import page_html
from evenhand.evaluation.report.page import Cell, Figure, Mark, Row, Section, Table
from tests.browser import PHONE
from tests.evaluation.report.test_page import PAGE
from tests.forked_commands import wait_until
from tests.report_pages import picture

CSS = "css selector"
VALUES = {"nine": "−9.5", "ten": "10.0", "thousand": "1,000.0", "none": "–", "two": "+2.0", "<script>": "0.5"}
VALUES |= {f"row {place}": f"{place}.5" for place in range(20, 24)}
ROWS = tuple(
    Row(label, (Cell(text, "[−1.0, 3.0]" if label == "two" else ""),), (Mark("before", place, None),))
    for place, (label, text) in enumerate(VALUES.items())
)
TALL = Table("Numbers", ("type", "value"), ROWS)
HOSTILE = ('<script>window.hit = 1</script>"><img src=x onerror="window.hit = 1">', "</script><b>b</b><!-- &amp;")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pages")
    report = replace(
        PAGE,
        sections=[
            Section("The scores", tables=[TALL]),
            Section("Plotted", figures=[Figure("A picture", picture("a picture"))]),
        ],
    )
    write_text(folder / "report.html", page_html(report))
    write_text(folder / "responses.html", responses_page())
    return folder


@pytest.fixture(autouse=True)
def nothing_goes_wrong(browser):
    yield
    assert browser.look().errors == [] and browser.left_the_machine == []


def responses_page() -> str:
    """Return a page of sixty responses to one descriptor and two hostile responses to another."""
    texts = pd.DataFrame({"axis": ["age"] * 60 + ["ability"] * 2, "descriptor": ["old"] * 60 + ["deaf"] * 2})
    responses = [f"Answer {i}." for i in range(60)] + list(HOSTILE)
    labels = {"style": ["Calm"] * 61 + ["Angry"], "outcome": ["refusal", *[""] * 61]}
    sides = {"answer": ShownAnswers(responses, labels)}
    return answers_html("All answers", "a model", texts.assign(text="I'm so."), sides)


def saved_file(browser, text, of="main"):
    """Click the first button with this text in a part of the page; return the file that it saves."""
    button = next(it for it in browser.driver.find_elements(CSS, f"{of} button") if it.text == text)
    before = set(browser.downloads.iterdir())
    button.click()
    wait_until(lambda: saved(browser, before))
    return saved(browser, before)[0]


def saved(browser, before):
    """Return the files that the browser has saved since the folder had those of `before`."""
    new = set(browser.downloads.iterdir()) - before
    return [it for it in new if it.suffix != ".crdownload" and it.name[0] != "." and it.stat().st_size]


def choose(select, text):
    next(it for it in select.find_elements(CSS, "option") if it.text == text).click()


def labels(driver):
    return [it.text for it in driver.find_elements(CSS, ".scroll tbody th") if it.is_displayed()]


def test_a_table_is_sorted_by_number_and_by_name(browser, folder):
    driver = browser.open(folder / "report.html")
    name, value = driver.find_elements(CSS, ".scroll thead button")
    value.click()
    assert labels(driver)[:2] == ["thousand", "row 23"] and labels(driver)[-2:] == ["nine", "none"]
    assert value.find_element("xpath", "..").get_attribute("aria-sort") == "descending"
    value.click()
    assert labels(driver)[:3] == ["nine", "<script>", "two"] and labels(driver)[-1] == "none"
    name.click()
    assert labels(driver)[0] == "two" and value.find_element("xpath", "..").get_attribute("aria-sort") is None


def test_a_table_is_filtered_by_columns(browser, folder):
    rows = [Row(f"d{n}", (Cell("age" if n % 2 else "body type", prose=True), Cell(f"{n}"))) for n in range(9)]
    section = Section("Effects", tables=[Table("Effects", ("unit", "axis", "value"), tuple(rows), filters=("axis",))])
    write_text(folder / "lead.html", page_html(replace(PAGE, sections=[section])))
    driver = browser.open(folder / "lead.html")

    def names():
        return [it.text for it in driver.find_elements(CSS, ".tall tbody th") if it.is_displayed()]

    choose(driver.find_element(CSS, "select.filter"), "age")
    assert names() == ["d1", "d3", "d5", "d7"]
    driver.find_element(CSS, ".tools:has(.filter) input").send_keys("D5")
    assert names() == ["d5"] and driver.find_element(CSS, ".tools [role=status]").text == "1 of 9"


def test_tables_are_saved(browser, folder):
    browser.open(folder / "report.html")
    lines = saved_file(browser, "CSV").read_text().splitlines()
    assert lines[0] == "type,value,value low,value high"
    assert lines[1:6] == ["nine,-9.5,,", "ten,10.0,,", "thousand,1000.0,,", "none,–,,", "two,+2.0,-1.0,3.0"]


def test_contents_are_open_on_wide_screens_and_folded_on_a_phone(browser, folder):
    driver = browser.open(folder / "report.html")
    assert [it.text for it in driver.find_elements(CSS, ".toc a")][:2] == ["The scores", "Plotted"]
    browser.open(folder / "report.html", PHONE)
    assert not driver.find_element(CSS, ".toc a").is_displayed()
    driver.find_element(CSS, ".toc summary").click()
    assert driver.find_element(CSS, ".toc a").is_displayed()
    wide = driver.execute_script("return document.documentElement.scrollWidth - innerWidth")
    assert wide <= 0


def test_answers_are_filtered_and_stay_text(browser, folder):
    browser.open(folder / "report.html").get((folder / "responses.html").as_uri() + "#descriptor=deaf")
    status = browser.driver.find_element(CSS, "#search [role=status]")
    assert status.text == "2 of 62 answers"  # a link presets the filter
    assert shown_answers(browser.driver) == list(HOSTILE)
    browser.open(folder / "report.html").get((folder / "responses.html").as_uri() + "#descriptor=nobody")
    assert "No answers to “nobody”" in browser.driver.find_element(CSS, "#search [role=status]").text
    driver = browser.open(folder / "responses.html")
    status = driver.find_element(CSS, "#search [role=status]")
    assert status.text == "62 of 62 answers" and shown_answers(driver) == list(HOSTILE)  # the first person is open
    person, _, outcome, style = driver.find_elements(CSS, "#search select")
    choose(person, "old")
    assert len(shown_answers(driver)) == 60
    choose(outcome, "refusal")
    assert shown_answers(driver) == ["Answer 0."]
    choose(outcome, "Any outcome")
    words = driver.find_element(CSS, "#search [type=search]")
    words.send_keys("answer 7.")
    assert shown_answers(driver) == ["Answer 7."]
    words.clear()
    words.send_keys("so")
    choose(person, "Everybody")
    choose(style, "Angry")
    assert shown_answers(driver) == [HOSTILE[1]] and status.text == "1 of 62 answers"
    assert driver.execute_script("return window.hit") is None and driver.find_elements(CSS, ".answer b") == []


def shown_answers(driver):
    return [answer.text for answer in driver.find_elements(CSS, ".answer") if answer.is_displayed()]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages_are_accessible(scheme, browser):
    assert browser.faults(page_html(PAGE), scheme) == []
    assert browser.faults(responses_page(), scheme) == []


def test_an_inaccessible_page_is_detected(browser):
    faults = browser.faults('<title>A page</title><img src="nowhere.png" style="width: 1000px">')
    assert [it.partition(":")[0] for it in faults] == ["html-has-lang", "image-alt", "wider than 390 pixels", "file"]
    browser.forget()
