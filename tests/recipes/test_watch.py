"""`watch` goes on with a growing log, names each person once, and refuses what it cannot go on with."""

import codecs
import json

import numpy as np
import pytest

from evenhand.evaluation.errors import InputError
from evenhand.recipes.command_settings import WatchSettings
from evenhand.recipes.watch import watch
from evenhand.recipes.watch_state import DAYS, STATE

NO, YES = "Sorry, but I can't help with that.", "Sure, here it is."


def append(log, n, gap, seed):
    """Append answers to six people, of whom "deaf <b>" is refused more often by `gap`."""
    rng = np.random.default_rng(seed)
    people = ["deaf <b>", "blind", "tall", "old", "young", "short"]
    with log.open("a") as file:
        for _ in range(n):
            person = people[rng.integers(6)]
            refused = rng.random() < 0.1 + (gap if person == "deaf <b>" else 0)
            row = {"text": "Help me.", "descriptor": person, "template": f"r{rng.integers(5)}"}
            file.write(json.dumps({**row, "response": NO if refused else YES, "vip": bool(rng.integers(2))}) + "\n")


@pytest.fixture
def settings(tmp_path):
    return WatchSettings(logs=tmp_path / "log.jsonl", output_dir=tmp_path / "watch")


def state_of(settings):
    return json.loads((settings.output_dir / STATE).read_text())


def test_a_log_that_grows_names_a_person_once(settings):
    append(settings.logs, 600, 0.0, 0)
    assert watch(settings) == 0
    append(settings.logs, 1500, 0.6, 1)
    with settings.logs.open("a") as file:
        file.write('{"text": "half a li')  # is still being written
    assert watch(settings) == 1
    assert watch(settings) == 0  # rings once
    named = state_of(settings)["named"]
    assert [(entry["person"], entry["outcome"]) for entry in named] == [("deaf <b>", "refusal")]
    assert 600 < named[0]["answers"] <= 2100
    page = (settings.output_dir / "report.html").read_text()
    assert "deaf <b>" not in page and "deaf &lt;b&gt;" in page


def test_an_outcome_of_which_no_answer_has_a_value_is_said(settings, capsys):
    """The requests, “Help me.”, are too short to tell their language, so that no answer is known to be in another."""
    append(settings.logs, 60, 0.0, 0)
    assert watch(settings.replaced(outcomes=["refusal", "other_language"])) == 0
    said = "No answer has a value of “other_language”, so that nobody can be named for it."
    assert said in capsys.readouterr().out
    assert said in (settings.output_dir / "report.html").read_text(encoding="utf-8")


def test_the_language_of_a_request_is_told_from_its_own_text(settings):
    """One of nine requests is Spanish, in a call of all of them and in its own; one may be in two languages.

    All are answered in English: one of the eight whose language is known, in another one.
    """
    english = ["How do I change my internet plan today?", "My internet is slow, what can I do?"]
    requests = [*english * 3, english[0], "¿Dónde está mi paquete ahora?", "Cancelar mi plan premium"]
    answer = "I am sorry to hear that, please tell me your number."
    lines = []
    for number, text in enumerate(requests):
        row = {"text": text, "descriptor": "ab"[number % 2], "template": "t", "response": answer}
        lines.append(json.dumps(row) + "\n")
    settings.logs.write_text("".join(lines))
    whole = settings.replaced(outcomes=["other_language"])
    watch(whole)
    pieces = whole.replaced(logs=settings.logs.with_name("pieces.jsonl"), output_dir=settings.logs.with_name("pieces"))
    for line in lines:
        with pieces.logs.open("a") as file:
            file.write(line)
        watch(pieces)
    assert state_of(whole)["counts"] == state_of(pieces)["counts"] == [[[4.0, 0.0]], [[4.0, 1.0]]]


def test_an_outcome_that_is_given_twice_is_refused(settings):
    append(settings.logs, 10, 0.0, 0)
    with pytest.raises(InputError, match="^outcomes: .*repeated"):
        watch(settings.replaced(outcomes=["refusal", "refusal"]))


def test_calls_in_pieces_are_as_one_call(settings, tmp_path):
    append(settings.logs, 400, 0.5, 2)
    lines = settings.logs.read_text().splitlines(keepends=True)
    pieces = WatchSettings(logs=tmp_path / "pieces.jsonl", output_dir=tmp_path / "in_pieces")
    for start in range(0, 400, 130):
        with pieces.logs.open("a") as file:
            file.writelines(lines[start : start + 130])
        watch(pieces)
    watch(settings)
    whole, parts = state_of(settings), state_of(pieces)
    assert whole["log_wealth"] == parts["log_wealth"] and whole["open_blocks"] == parts["open_blocks"]
    assert whole["counts"] == parts["counts"]


def test_a_column_of_the_log_is_an_outcome(settings):
    append(settings.logs, 50, 0.0, 3)
    watch(settings.model_copy(update={"outcomes": ["vip"]}))
    assert sum(count[0][0] for count in state_of(settings)["counts"]) == 50
    with pytest.raises(InputError, match="outcomes: .*margin|vip"):
        watch(settings)  # other outcomes


def test_what_it_cannot_go_on_with(settings, tmp_path):
    with pytest.raises(InputError, match="logs"):
        watch(settings)
    append(settings.logs, 50, 0.0, 3)
    watch(settings)
    with pytest.raises(InputError, match=r"^margin: .*has 2\.0"):
        watch(settings.model_copy(update={"margin": 5.0}))
    state = state_of(settings)
    settings.logs.write_text("")
    append(settings.logs, 60, 0.0, 4)
    with pytest.raises(InputError, match="another file"):
        watch(settings)
    for content in ("[]", "{}", '{"offset": 1}'):
        (settings.output_dir / STATE).write_text(content)
        with pytest.raises(InputError, match="no state of this version"):
            watch(settings)
    (settings.output_dir / STATE).write_text(json.dumps({**state, "people": None}))
    with pytest.raises(InputError, match="damaged"):
        watch(settings)
    (settings.output_dir / STATE).write_text(json.dumps(state))
    (settings.output_dir / DAYS).write_text('{"date": "2026-')
    with pytest.raises(InputError, match=r"days\.jsonl, line 1 is damaged"):
        watch(settings)
    bad = WatchSettings(logs=tmp_path / "bad.jsonl", output_dir=tmp_path / "bad", outcomes=["grade"])
    bad.logs.write_text(json.dumps({"text": "a", "descriptor": "x", "response": "b", "grade": 3}) + "\n")
    with pytest.raises(InputError, match="'grade' has 3"):
        watch(bad)


@pytest.mark.parametrize("person", [{}, {"descriptor": None}, {"descriptor": " "}])
@pytest.mark.parametrize("key", [{"prompt_id": "0123456789abcdef"}, {"text": "Help me."}])
def test_answers_that_nobody_is_known_to_have_got_are_counted_and_left_out(settings, key, person, capsys):
    row = {"prompt_id": "0123456789abcdef", "text": "Help me.", "descriptor": "deaf", "response": YES}
    settings.logs.write_text(json.dumps(row) + "\n")
    assert watch(settings) == 0
    assert list(state_of(settings)["open_blocks"]) == ["(unspecified)"]
    with settings.logs.open("a") as file:
        file.write(json.dumps({**key, **person, "response": YES}) + "\n" + json.dumps({**row, **key}) + "\n")
    assert watch(settings) == 0
    state = state_of(settings)
    assert (state["answers"], state["people"], state["without_person"]) == (2, ["deaf"], 1)
    assert "1 answer does not say who asked" in capsys.readouterr().out


def test_spellings_that_look_alike_are_one_person(settings):
    names = ["deaf\u202e", "deaf", " deaf "]
    rows = [{"prompt_id": "0123456789abcdef", "descriptor": name, "response": YES} for name in names]
    settings.logs.write_text("".join(json.dumps(row) + "\n" for row in rows))
    watch(settings)
    assert state_of(settings)["people"] == ["deaf"]
    assert "\u202e" not in (settings.output_dir / "report.html").read_text()


def test_a_value_that_is_none_is_nobody(settings):
    rows = [{"text": "Help me.", "descriptor": name, "response": YES} for name in ("nan", "none")]
    settings.logs.write_text("".join(json.dumps(row) + "\n" for row in rows))
    watch(settings)
    state = state_of(settings)
    assert (state["people"], state["without_person"]) == (["none"], 1)


def test_people_of_no_religion_are_people(settings):
    row = {"text": "Help me.", "descriptor": "none", "response": YES}
    settings.logs.write_text(json.dumps(row) + "\n")
    watch(settings)
    assert state_of(settings)["people"] == ["none"]


def test_a_line_that_was_broken_off_does_not_stop_the_watch(settings):
    append(settings.logs, 5, 0.0, 0)
    with settings.logs.open("ab") as file:
        file.write(b'{"text": "half a li\n\xff\n[1]\n\n')
    append(settings.logs, 5, 0.0, 1)
    watch(settings)
    assert state_of(settings)["answers"] == 10 and state_of(settings)["unreadable"] == 3
    assert "3 lines are no JSON objects" in (settings.output_dir / "report.html").read_text()


def test_a_line_that_is_no_answer_is_left_out_and_a_number_is_a_person(settings):
    row = {"text": "Help me.", "descriptor": "deaf", "response": YES, "who": {"rated": True}}
    changed = ({}, {"text": None}, {"descriptor": 65}, {"response": 7}, {"descriptor": ["deaf"]}, {"descriptor": 65.0})
    settings.logs.write_text("".join(json.dumps({**row, **values}) + "\n" for values in [*changed, {"who": None}]))
    watch(settings.replaced(columns={"vip": "who.rated"}, outcomes=["vip"]))
    state = state_of(settings)
    assert (state["people"], state["answers"]) == (["deaf", "65"], 4)
    assert (state["unreadable"], state["without_person"]) == (2, 1)
    assert state["counts"] == [[[1, 1]], [[2, 2]]]  # the last answer is not rated


@pytest.mark.parametrize(
    ("content", "match"), [("no JSON\n", "no line"), (json.dumps({"text": "a", "response": "b"}) + "\n", "who asked")]
)
def test_a_log_of_another_kind_is_refused_at_the_first_call(settings, content, match):
    settings.logs.write_text(content)
    with pytest.raises(InputError, match=match):
        watch(settings)
    assert not (settings.output_dir / STATE).exists()


def test_any_measure_that_is_a_share_is_an_outcome(settings):
    rows = [{"text": "Help me.", "descriptor": "old", "response": text} for text in ("Help me!", "Sure.", "Old? Sure.")]
    settings.logs.write_text("".join(json.dumps(row) + "\n" for row in rows))
    watch(settings.model_copy(update={"outcomes": ["parroting", "mention"]}))
    assert state_of(settings)["counts"] == [[[3, 1], [3, 1]]]


def test_a_failed_request_was_neither_withheld_nor_refused(settings):
    """Nobody knows what an answer would have been that did not come."""
    rows = [("old", {"error": {"code": 500}}), ("old", {"error": {"code": "content_filter"}}), ("tall", {})]
    lines = []
    for who, error in rows:
        lines.append({"text": "Help me.", "descriptor": who, "response": None if error else YES, **error})
    settings.logs.write_text("".join(json.dumps(line) + "\n" for line in lines))
    watch(settings.model_copy(update={"outcomes": ["filtered", "refusal"]}))
    assert state_of(settings)["counts"] == [[[1, 1], [0, 0]], [[1, 0], [1, 0]]]


@pytest.mark.parametrize("columns", [{}, {"text": "question"}])
def test_an_error_names_the_setting_of_watch(settings, columns):
    settings.logs.write_text(json.dumps({"descriptor": "x", "response": "b"}) + "\n")
    with pytest.raises(InputError) as error:
        watch(settings.replaced(columns=columns))
    assert "responses.columns" not in str(error.value) and "columns" in str(error.value)


def test_new_lines_that_lack_a_known_outcome_have_no_value(settings):
    """As where nobody has rated the last answers yet; in the first lines, it may be a wrong name."""
    settings = settings.replaced(outcomes=["vip"])
    append(settings.logs, 20, 0.0, 3)
    watch(settings)
    known = state_of(settings)["counts"]
    with settings.logs.open("a") as file:
        file.write(json.dumps({"text": "Help me.", "descriptor": "tall", "template": "r1", "response": YES}) + "\n")
    assert watch(settings) == 0
    assert state_of(settings)["answers"] == 21 and state_of(settings)["counts"] == known


def test_the_first_line_may_have_a_byte_order_mark(settings):
    append(settings.logs, 3, 0.0, 0)
    settings.logs.write_bytes(codecs.BOM_UTF8 + settings.logs.read_bytes())
    watch(settings)
    assert (state_of(settings)["answers"], state_of(settings)["unreadable"]) == (3, 0)


def test_new_lines_may_lack_named_columns_and_have_unclear_values(settings):
    """Of the new lines, one has an unclear value, and one neither a rating nor a name."""
    settings = settings.replaced(outcomes=["vip"], columns={"descriptor": "who", "vip": "rated.vip"})
    row = {"text": "Help me.", "response": YES}
    settings.logs.write_text(json.dumps({**row, "who": "old", "rated": {"vip": True}}) + "\n")
    watch(settings)
    for added in ({"who": "old"}, {"who": "tall", "rated": {"vip": "perhaps"}}, {}):
        with settings.logs.open("a") as file:
            file.write(json.dumps({**row, **added}) + "\n")
        assert watch(settings) == 0
    state = state_of(settings)
    assert (state["people"], state["answers"], state["without_person"]) == (["old", "tall"], 3, 1)
    assert (state["counts"], state["unclear"]) == ([[[1, 1]], [[0, 0]]], 1)


def test_a_template_may_be_missing_or_a_number(settings):
    rows = [
        {"text": "Help me.", "descriptor": "old", "response": YES, "template": name} for name in ("a", None, 7, " ")
    ]
    settings.logs.write_text("".join(json.dumps(row) + "\n" for row in rows))
    watch(settings)
    state = state_of(settings)
    assert (state["answers"], state["unreadable"]) == (4, 0)
    assert list(state["open_blocks"]) == ["a", "(unspecified)", "7"]


def test_small_settings_are_not_rounded_to_0(settings):
    append(settings.logs, 3, 0.0, 0)
    watch(settings.replaced(error=0.0004, margin=0.04))
    page = (settings.output_dir / "report.html").read_text()
    assert "0.04 of 100 answers" in page and "0.04\u00a0%" in page
