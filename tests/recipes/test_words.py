"""The words of commands: each macro of their templates has a sentence here, and a file has the words.

After a change of words: python -m tests.recipes.test_words
"""

import re
from pathlib import Path

import pytest

from evenhand.evaluation.facts import Finding
from evenhand.evaluation.metrics import load_family
from evenhand.evaluation.report.words import sentence
from evenhand.recipes import plan, watch
from tests.named_scores import named_score

FOLDER = Path(__file__).with_name("golden")
(SCREEN,) = load_family("screen").templates()
DESIGN = {"descriptors": 40, "templates": 26, "responses": 4.25, "share_of_pairs": 1.0, "folder": "runs/m"}
ESTIMATE = {"model_name": "org/model", "value": 0.0026, "interval": (0.001, 0.004)}
PLAN = [
    Finding("measured", {"in_language": False, **ESTIMATE}),
    Finding("measured", {"in_language": True, **ESTIMATE}),
    Finding("pairs_with_answers", {"share": 0.25}),
    Finding("last_columns"),
    Finding("goal_of_width", {"width": 0.0015, "width_now": 0.003}),
    Finding("goal_of_reduction", {"reduction": 0.25}),
    Finding("unreachable", {"lever": "responses", "limit": None}),
    Finding("unreachable", {"lever": "templates", "limit": 26}),
    Finding("even_after", {"limit": 2.5, "n": 41000.2, "n_now": 1200}),
    Finding("never_even", {"limit": 2.0, "unit": "deaf\n<b>", "is_shown": False}),
    Finding("narrower", {"n": 4420, "seconds": None, **DESIGN}),
    Finding("narrower", {"n": 1105, "seconds": 7200.0, **DESIGN, "share_of_pairs": 0.25}),
    Finding("no_narrower"),
]
COUNTS = {"n_answers": 2100, "n_people": 6}
WATCH = [
    Finding("state", {"log": "log.jsonl", "n_named": 0, **COUNTS}),
    Finding("state", {"log": "log.jsonl", "n_named": 1, **COUNTS}),
    Finding("verdict", {"n_named": 0, **COUNTS}),
    Finding("verdict", {"n_named": 2, **COUNTS}),
    Finding("size", COUNTS),
    Finding("people_named", COUNTS),
    Finding("named", {"person": "deaf\x1b", "outcome": "refusal", "direction": "more often", "answers": 1038}),
    Finding("without_person", {"n": 1200}),
    Finding("unreadable", {"n": 3}),
    Finding("unclear", {"n": 1}),
    Finding("no_value", {"outcome": "refusal"}),
    Finding("rule", {"margin": 2.0, "error": 0.01}),
    Finding("about_evidence"),
    Finding("blocks", {"n": 4200}),
]


def divergence(value):
    return named_score("divergence", value, 0.0, (0.0, 2.3), 26, (value - 0.02, value + 0.02))


SCREENS = [
    Finding("beginnings_limit"),
    Finding(
        "grown_people", {"n": 1, "n_of": 10, "negligible": 0.02, "before": divergence(0.1), "after": divergence(0.2)}
    ),
    Finding("grown_person", {"person": "deaf\x1b", "change": {"value": 0.1, "interval": (0.05, 0.15)}}),
]
PAGES = {"plan": (PLAN, plan.WORDS), "watch": (WATCH, watch.WORDS), "check_screen": (SCREENS, SCREEN)}


def text(name):
    findings, template = PAGES[name]
    return "\n".join(sentence(finding, template) for finding in findings) + "\n"


@pytest.mark.parametrize("name", PAGES)
def test_the_words(name):
    assert text(name) == (FOLDER / f"{name}.txt").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["plan", "watch"])
def test_each_sentence_of_a_template_is_in_a_file(name):
    findings, template = PAGES[name]
    used = template.with_suffix(".py").read_text(encoding="utf-8")
    macros = re.findall(r"{% macro (\w+)\(found\) %}", template.read_text(encoding="utf-8"))
    kinds = {finding.kind for finding in findings}
    assert kinds <= {*macros}
    assert [macro for macro in macros if macro not in kinds and f'"{macro}"' in used] == []
    assert [kind for kind in kinds if f'"{kind}"' not in used] == []


if __name__ == "__main__":
    for name in PAGES:
        (FOLDER / f"{name}.txt").write_text(text(name), encoding="utf-8")
