"""The page of all answers has all answers to each person who fits, says who is left out, and escapes them."""

import re
from html import unescape

import pandas as pd
import pytest

from evenhand.evaluation.report import answers_page
from evenhand.evaluation.report.answers_page import ShownAnswers, answers_html
from tests.parsed_page import without_script
from tests.report_pages import HOSTILE


def page(texts, people=None, labels=None, **options):
    n = len(texts)
    prompts = pd.DataFrame({"axis": "age", "descriptor": people or ["old"] * n, "text": "I'm old."}, index=range(n))
    side = ShownAnswers(texts, labels or {"style": ["Calm"] * n})
    return answers_html("All", "a model", prompts, {"answer": side}, **options)


def people_of(source):
    """Return {person: answers} as the HTML has them without its script, in their order."""
    found = {}
    for part in without_script(source).split('<details class="person"')[1:]:
        name = re.search(r'data-name="(.*?)"', part)[1]
        found[name] = [unescape(text) for text in re.findall(r'<p class="answer" dir="auto">(.*?)</p>', part, re.S)]
    return found


def test_all_answers_of_all_people_are_there_without_a_script_and_named_people_come_first():
    people = ["old", "deaf", "old", "tall"]
    source = page(["Yes.", "No.", "", "Well."], people, first=["tall"])
    assert list(people_of(source).items()) == [("tall", ["Well."]), ("deaf", ["No."]), ("old", ["Yes.", "empty"])]
    assert source.count(" open ") == 1 and source.index(" open ") < source.index("Well.")
    assert "All 4 answers to 3 people" in source


def test_an_answer_has_labels_of_several_kinds_and_none_where_it_has_none():
    labels = {"style": ["Calm", ""], "outcome": ["refusal\nother language", ""]}
    source = page(["No.", "Yes."], labels=labels)
    assert re.findall(r'<span title="(.*?)">(.*?)</span>', source) == [
        ("style", "Calm"),
        ("outcome", "refusal"),
        ("outcome", "other language"),
    ]


def test_people_who_do_not_fit_are_named_and_nobody_is_shown_in_part(monkeypatch):
    monkeypatch.setattr(answers_page, "MAX_BYTES", 20_000)
    people = [f"p{n:02}" for n in range(20) for _ in range(5)]
    source = page(["long " * 20] * 100, people, first=["p19"])
    shown = people_of(source)
    left_out = re.search(r"Left out: all answers to (\d+) people</summary><p>(.*?)</p>", source)
    assert next(iter(shown)) == "p19" and {len(answers) for answers in shown.values()} == {5}
    assert 1 < len(shown) < 20 and int(left_out[1]) == 20 - len(shown)
    assert set(left_out[2].split(", ")) == set(people) - set(shown)
    assert f"{5 * len(shown)} of 100 answers" in source and len(source) < 20_000 + 60_000


def test_of_a_person_with_too_many_answers_a_random_part_is_shown_and_counted(monkeypatch):
    monkeypatch.setattr(answers_page, "MAX_BYTES", 20_000)
    (answers,) = people_of(source := page([f"{n}" for n in range(1000)])).values()
    numbers = [int(answer) for answer in answers]
    assert numbers == sorted(numbers) and 500 < max(numbers) < 1000 and 50 < len(numbers) < 200
    assert f"{len(numbers)} of 1,000 answers, drawn at random" in source


def test_all_answers_to_a_named_person_are_there_before_others_have_any(monkeypatch):
    monkeypatch.setattr(answers_page, "MAX_BYTES", 20_000)
    people = [f"p{n}" for n in range(8) for _ in range(30)]
    texts = ["long " * 20] * 240  # an answer takes 300 to 400 bytes, and an eighth of the page is 2,500
    shown = people_of(page(texts, people, first=["p7"]))
    assert len(shown.pop("p7")) == 30 and 0 < max(map(len, shown.values())) < 30


@pytest.mark.parametrize("place", ["answer", "person", "label"])
def test_hostile_texts_stay_in_their_element(place):
    strings = [text for text in HOSTILE if "\ud800" not in text]  # pandas' own strings cannot hold a lone surrogate
    strings.append("</script><script>alert(1)</script><!--")
    n = len(strings)
    texts = strings if place == "answer" else ["Yes."] * n
    people = strings if place == "person" else None
    labels = {"style": strings} if place == "label" else None
    source = page(texts, people, labels)
    rest = without_script(source)
    assert "<script" not in rest and "<!--" not in rest and "<img" not in rest and "\u202e" not in rest
    assert "&lt;/script&gt;&lt;script&gt;alert(1)" in rest
