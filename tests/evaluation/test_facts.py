"""Facts: what was found is data, each kind of finding has a sentence, and no sentence contradicts the score."""

import ast
import inspect
import json
import math
from pathlib import Path
from types import SimpleNamespace

import pytest

from evenhand.evaluation.facts import FACTS, Facts, Finding, read_findings, write_facts
from evenhand.evaluation.metrics import load_family
from evenhand.evaluation.metrics.generation_bias.words import words
from evenhand.evaluation.report.words import has_sentence, sentence
from evenhand.evaluation.runs.tracking import Tracker
from evenhand.evaluation.score import BiasScore, Direction

# The main metric of each family, and whether a value above the ideal is a preference for stereotypes, and so on.
HEADLINES = {
    "offensiveness": ("descriptor_effect", {}),
    "translation_bias": ("translation_gap", {"direction": "en-xx"}),
    "sentence_pairs": ("stereotype_preference", {}),
    "likelihood_bias": ("likelihood_bias", {}),
    "bbq": ("bbq_bias", {"context_condition": "ambig"}),
}
INTERVALS = {
    Direction.ABOVE: (0.1, 0.3),
    Direction.BELOW: (-0.3, -0.1),
    Direction.NOT_SHOWN: (-0.1, 0.3),
    Direction.UNKNOWN: None,
}


def score_of(metric, direction, **fields):
    value = -0.2 if direction is Direction.BELOW else 0.2
    return BiasScore(metric, value, 0.0, (-1.0, 1.0), 8, interval=INTERVALS[direction], **fields)


@pytest.mark.parametrize("name", [*HEADLINES, "answer_accuracy", "embedding_bias"])
def test_each_kind_of_finding_has_a_sentence(name):
    """All kinds that are named in a family's module, and the four directions where the verdict is one."""
    family = load_family(name)()
    source = ast.parse(Path(inspect.getfile(type(family))).read_text())
    calls = [node for node in ast.walk(source) if isinstance(node, ast.Call)]
    findings = [call for call in calls if getattr(call.func, "id", "") == "Finding"]
    kinds = {call.args[0].value for call in findings if isinstance(call.args[0], ast.Constant)}
    if name in HEADLINES:
        kinds |= set(Direction)
    assert kinds
    for kind in kinds:
        assert has_sentence(kind, *family.templates()), kind


@pytest.mark.parametrize("direction", list(Direction))
@pytest.mark.parametrize("name", HEADLINES)
def test_a_verdict_is_what_the_score_shows_and_its_sentence_names_the_score(name, direction):
    metric, group = HEADLINES[name]
    family = load_family(name)()
    run = SimpleNamespace(scores=[score_of(metric, direction, group=group)])
    verdict = family.find_verdict(run)
    assert verdict.kind == direction
    text = family.sentence(verdict)
    assert text.endswith(".") and "\n" not in text and "  " not in text
    assert ("no interval" in text) == (direction is Direction.UNKNOWN)
    assert ("not significant" in text or "no significant" in text or "more than by chance" in text) == (
        direction is Direction.NOT_SHOWN or (name == "likelihood_bias" and direction is Direction.BELOW)
    )


def test_pairs_that_differ_after_the_correction_are_counted():
    """Without an interval nothing is said of chance, but 9 of 10 tested pairs differ."""
    raw = score_of("likelihood_bias", Direction.UNKNOWN)
    corrected = BiasScore("likelihood_bias_bh", 0.9, 0.0, (0.0, 1.0), 10)
    verdict = load_family("likelihood_bias")().find_verdict(SimpleNamespace(scores=[raw, corrected]))
    assert (verdict.kind, verdict.values["n_differing"]) == ("some_pairs", 9)


def test_languages_without_a_test_are_counted_apart():
    """Two languages differ by their test, one does not, and one has no test."""
    gaps = [("a", 0.2, 0.01), ("b", -0.2, 0.02), ("c", 0.2, 0.5), ("d", 0.2, None)]
    scores = []
    for lang, value, p in gaps:
        scores.append(BiasScore("embedding_gap_holm", value, 0.0, (-2, 2), 9, p_value=p, group={"lang": lang}))
    found = load_family("embedding_bias")().find_verdict(SimpleNamespace(scores=scores)).values
    counts = [found[name] for name in ("n_languages", "n_masculine", "n_feminine", "n_untested")]
    assert counts == [4, 1, 1, 1] and found["mean"] == pytest.approx(0.1)


def test_a_sentence_names_only_values_that_the_finding_has():
    score = BiasScore("descriptor_effect", 0.2, 0.0, (-1.0, 1.0), 8)
    load_family("offensiveness")
    assert "descriptor effect" in sentence(Finding("value", {"score": score}))
    with pytest.raises(Exception, match="score"):
        sentence(Finding("value"))
    with pytest.raises(ValueError, match="unheard_of"):
        sentence(Finding("unheard_of"))


def test_facts_are_strict_json(tmp_path):
    score = BiasScore("cps", math.nan, 50.0, (0.0, 100.0), 0, reason="no pair", n_of="pairs", signature={"seed": 0})
    facts = Facts(score, Finding("unknown", {"score": score, "cps": None}), [Finding("easy_tokens", {"limit": 0.9})])
    write_facts(tmp_path / "facts.json", {"sentence_pairs": facts})
    read = json.loads((tmp_path / "facts.json").read_text())
    found = read["families"]["sentence_pairs"]
    assert read["version"] == 1 and found["left_out"] == []
    assert found["cautions"] == [{"kind": "easy_tokens", "limit": 0.9}]
    assert found["verdict"]["kind"] == "unknown" and found["verdict"]["cps"] is None
    expected = {"metric": "cps", "value": None, "n": 0, "n_of": "pairs", "reason": "no pair"}
    assert expected.items() <= found["headline"].items() and "signature" not in found["headline"]


def test_findings_are_read_as_they_were_written(tmp_path):
    person = Finding("person", {"who": Finding("group", {"name": "ability"}), "n": 3})
    write_facts(tmp_path / FACTS, {"a": Facts(headline=None, verdict=Finding("none"), people=[person])})
    (found,) = read_findings(tmp_path / FACTS, "a", "people")
    assert (found.kind, found.values["who"]["name"], found.values["n"]) == ("person", "ability", 3)
    assert read_findings(tmp_path / FACTS, "b", "people") == read_findings(tmp_path / "none", "a", "people") == []


def test_a_decision_read_from_a_file_has_the_same_sentence(tmp_path):
    """Its reasons are findings within a finding."""
    decided = Finding("decision", {"advice": "measure more", "against": [], "open": [Finding("no_fall_shown")]})
    write_facts(tmp_path / FACTS, {"a": Facts(headline=None, verdict=Finding("none"), decision=decided)})
    (found,) = read_findings(tmp_path / FACTS, "a", "decision")
    assert words(found) == words(decided) == "Measure more before you decide: no fall is shown."
    assert read_findings(tmp_path / FACTS, "a", "people") == []


def test_the_summary_of_a_tracker_has_what_each_family_found_and_no_texts():
    """Only kinds, counts and the headline: a name of a person is a text of the user."""
    headline = BiasScore("cps", 61.0, 50.0, (0.0, 100.0), 80)
    undefined = BiasScore("bbq_bias", math.nan, 0.0, (-1.0, 1.0), 0, reason="no answers")
    person = Finding("person", {"who": "a name"})
    decided = Finding("decision", {"advice": "ship"})
    facts = {
        "generation_bias": Facts(headline, Finding("change_verdict"), people=[person], decision=decided),
        "bbq": Facts(undefined, Finding("unknown")),
    }
    summary = {}
    Tracker(lambda: SimpleNamespace(summary=summary)).log_facts(facts)
    assert summary == {
        "generation_bias/verdict": "change_verdict",
        "generation_bias/people named": 1,
        "generation_bias/headline": 61.0,
        "generation_bias/advice": "ship",
        "bbq/verdict": "unknown",
        "bbq/people named": 0,
    }
