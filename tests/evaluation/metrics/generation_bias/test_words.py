"""The words of generation bias: each kind of finding has a sentence, and no sentence contradicts a fact."""

import ast
import itertools
import math
import re
from dataclasses import fields, is_dataclass
from pathlib import Path

import pytest

import evenhand.evaluation.metrics.generation_bias as family
from evenhand.evaluation.facts import Finding
from evenhand.evaluation.metrics.generation_bias.decision import decision
from evenhand.evaluation.metrics.generation_bias.headline import headline_value, size_change, size_finding
from evenhand.evaluation.metrics.generation_bias.verdict import StyleScores, comparison_verdict
from evenhand.evaluation.metrics.generation_bias.words import FILES, advice_text, note, words
from evenhand.evaluation.report.words import has_sentence
from tests.evaluation.metrics.generation_bias.conftest import POOLED, score
from tests.evaluation.metrics.generation_bias.golden_pages import (
    FOLDER,
    PAGES,
    REFUSAL,
    SORRY,
    SPANISH,
    SPREADS,
    change,
    level,
    person,
    run_verdict,
    style,
    texts,
)
from tests.evaluation.metrics.generation_bias.golden_sentences import SENTENCES

OVERALL = ("shown", "unclear", "not shown", "no interval")
# What denies that people over all differ, and what denies that a single person does.
DENIES_ALL = re.compile(r"do not show|[Nn]o difference in style is shown|too few, or")
DENIES_SINGLE = re.compile(r"do not show|too few|[Nn]o single person|nor for single|neither|No person")
DOUBTS_ALL = re.compile("unclear")


def kinds():
    """Return the kinds of findings that the modules of the family name."""
    found = set()
    for file in Path(family.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("Finding", "note"):
                found |= {each.value for each in ast.walk(node.args[0]) if isinstance(each, ast.Constant)}
    return found


def test_each_kind_of_finding_has_a_sentence():
    assert {"run_verdict", "change_verdict", "person"} <= kinds()
    assert [kind for kind in kinds() if not has_sentence(kind, *FILES)] == []


# The kinds that `page_text`, or the tables of people and of changes, make from other findings.
MADE_BY_PAGES = {
    "about_changes_first",
    "about_first_table",
    "answers_of_person",
    "at_most_answers",
    "average",
    "became_briefly",
    "beside_average",
    "comparison_advice",
    "cost_in_words",
    "cost_unknown",
    "measured",
    "moved_answers",
    "outcome_name",
    "size_in_words",
    "style_changed",
    "style_of_everybody",
    "style_of_one_person",
    "top_of_size",
    "top_of_size_change",
}


@pytest.mark.parametrize("name", [*PAGES, *SENTENCES])
def test_the_words(name):
    """After a change of words: python -m tests.evaluation.metrics.generation_bias.golden_pages"""
    assert texts()[name] == (FOLDER / f"{name}.txt").read_text(encoding="utf-8")


def found_in(value):
    """Return the kinds of all findings in a value."""
    if isinstance(value, Finding):
        return {value.kind} | found_in(value.values)
    if isinstance(value, dict):
        value = list(value.values())
    if is_dataclass(value):
        value = [getattr(value, each.name) for each in fields(value)]
    if isinstance(value, (list, tuple)):
        return set().union(*map(found_in, value))
    return set()


def test_the_words_of_each_kind_are_in_a_file():
    assert kinds() - found_in([PAGES, SENTENCES]) <= MADE_BY_PAGES


def is_well_formed(text):
    """Return whether a text is sentences without a trace of a template or of an undefined number."""
    return text.endswith(".") and not re.search(r"nan|None|\{|\}|  | [.,;]|\.\.", text)


@pytest.mark.parametrize(
    ("overall", "largest", "mixes", "in_language"),
    list(itertools.product(OVERALL, (None, SORRY), ((), ("tall",)), (False, True))),
)
def test_no_verdict_on_styles_contradicts_what_is_shown(overall, largest, mixes, in_language):
    """Over all people and of single people; the mixes of styles are tested for all answers only."""
    text = words(style(overall, largest, () if in_language else mixes, in_language, "English"))
    assert is_well_formed(text), text
    is_unknown = overall == "no interval" and largest is None and (in_language or not mixes)
    assert bool(DENIES_ALL.search(text)) <= (overall == "not shown" or is_unknown), text
    assert bool(DOUBTS_ALL.search(text)) == (overall == "unclear"), text
    if largest is not None:
        assert "“with dementia”" in text and not DENIES_SINGLE.search(text), text
    elif mixes and not in_language:
        assert "“tall”" in text and not DENIES_SINGLE.search(text), text


def test_without_any_style_nothing_is_said_of_people():
    texts = {words(style("no styles", in_language=in_language, language="English")) for in_language in (False, True)}
    assert texts == {"No answer has a style, so nothing is known of differences in style."}


@pytest.mark.parametrize("serious", [[], [SPANISH]])
@pytest.mark.parametrize("overall", OVERALL)
def test_a_verdict_names_the_serious_findings_first(overall, serious):
    text = words(run_verdict(serious, style(overall, in_language=bool(serious)), SPREADS, ["length"]))
    assert is_well_formed(text) and text.startswith("15 of 52") == bool(serious), text


CERTAINTIES = ("shown", "inconclusive")


@pytest.mark.parametrize(
    ("before", "after", "of_change"), list(itertools.product(CERTAINTIES, CERTAINTIES, (None, *CERTAINTIES)))
)
def test_a_person_before_and_after(before, after, of_change):
    sides = (level(0.5, 0.07, 26, certainty=before), level(0.06, 0.01, 3, certainty=after))
    text = words(change("deaf", REFUSAL, *sides, of_change))
    assert is_well_formed(text), text
    assert ("may be chance" in text) == (of_change == "inconclusive"), text
    assert ("change is shown" in text or "changed is shown" in text) == (of_change == "shown"), text
    assert ("not after" in text) == (before == "shown" and after != "shown"), text
    assert ("not before" in text) == (after == "shown" and before != "shown"), text


def test_a_reader_can_subtract():
    """The sentence has the counts (15 of 52), the share (29 of 100) and the average (4 of 100), and no other number."""
    assert re.findall(r"\d+", words(SPANISH)) == ["15", "52", "29", "100", "4", "100"]
    for scale in (SORRY, person("tall", REFUSAL, mean=0.5, average=0.1, hits=26)):
        assert "[" not in words(scale)


LEVELS = {"nobody": (0.0004, (-0.0005, 0.0013)), "somebody": (0.0098, (0.008, 0.0105)), "undefined": (math.nan, None)}
CHANGES = {"fell": (-0.005, (-0.007, -0.003)), "unchanged": (0.0, (-0.001, 0.001)), "rose": (0.005, (0.003, 0.007))}
REASON = "few answers"


def headline(value, interval):
    return score(POOLED, value, interval, reason=REASON if math.isnan(value) else None)


@pytest.mark.parametrize(("before", "after", "name"), list(itertools.product(LEVELS, LEVELS, CHANGES)))
def test_a_comparison_says_what_both_levels_and_the_change_say(before, after, name):
    old = headline(*LEVELS[before])
    new = headline(*LEVELS[after])
    difference = score(f"{POOLED}_difference", *CHANGES[name])
    reductions = []
    if before == "somebody":
        interval = {"fell": (0.1, 0.9), "unchanged": (-0.1, 0.6), "rose": (-0.9, -0.1)}[name]
        reductions.append(score(f"{POOLED}_reduction", -difference.value / old.value, interval))
    reduction = reductions[0] if reductions else None
    found = comparison_verdict(StyleScores(old, new, difference, reduction), [], are_tested=True)
    is_shown = found.values.get("direction") in ("rose", "fell")
    verdict = words(found)
    if found.values.get("direction") == "rose":  # which the advice says
        verdict = f"{advice_text(decision('rose', None, [], [], max_size=5, max_cost=10), [])} {verdict}".strip()
    size = size_change(old, new, reduction, is_shown=is_shown)
    assert is_well_formed(verdict) and is_well_formed(words(size)) == is_shown, (verdict, words(size))
    if "undefined" in (before, after):
        assert REASON in verdict and "less" not in verdict and "more" not in verdict, verdict
        return
    nothing_to_remove = before == "nobody" and name != "rose"
    assert ("less between" in verdict) == (name == "fell" and not nothing_to_remove), verdict
    assert ("more between" in verdict) == (name == "rose"), verdict
    assert ("over all people is shown before" in verdict) == nothing_to_remove, verdict
    assert ("%" in headline_value(size)) == (before == "somebody" and name != "unchanged")
    assert (headline_value(size) == "") == (not is_shown)
    # One number for a change: the verdict has none.
    assert not re.search(r"\d", verdict), verdict


def test_of_single_people_nothing_is_said_if_none_was_tested():
    difference = score(f"{POOLED}_difference", *CHANGES["fell"])
    found = StyleScores(headline(*LEVELS["somebody"]), headline(*LEVELS["somebody"]), difference, None)
    texts = [words(comparison_verdict(found, [], are_tested=are_tested)) for are_tested in (False, True)]
    assert "single" not in texts[0] and texts[1].startswith(texts[0]) and "single" in texts[1]


@pytest.mark.parametrize(("name", "expected"), [("nobody", "none to medium"), ("somebody", "large"), ("undefined", "")])
def test_the_size_in_words_is_of_the_ends_of_the_interval(name, expected):
    size = size_finding(headline(*LEVELS[name]), is_shown=name == "somebody")
    assert note("size_in_words", size=size.values["size"]) == expected
    assert ("of 100" in headline_value(size)) == (name == "somebody") == is_well_formed(words(size))


def test_names_of_people_cannot_break_a_sentence():
    hostile = person("</p>{{ 7 * 7 }}\n\x1b", REFUSAL, mean=0.5, average=0.1, hits=26)
    text = words(hostile)
    assert "\n" not in text and "\x1b" not in text and "{{ 7 * 7 }}" in text


def test_only_something_serious_is_not_to_be_shipped():
    cases = {(case, is_log) for case in ("language", "denied", "tone", "other", "nothing") for is_log in (False, True)}
    advised = {case for case in cases if words(Finding("run_advice", dict(zip(("case", "is_log"), case, strict=True))))}
    assert advised == {("language", False), ("denied", False)}


def test_findings_on_a_log_do_not_say_that_people_said_the_same():
    for case in ("language", "denied", "tone", "other"):
        texts = [words(Finding("meaning", {"case": case, "is_log": is_log})) for is_log in (False, True)]
        assert texts[0] != texts[1] and "say the same" not in texts[1] and "same request" not in texts[1]
