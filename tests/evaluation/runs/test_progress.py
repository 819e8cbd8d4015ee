"""Lines of progress in a log: no silence, progress within a batch, and the time left of a whole command."""

import time

import pytest

from evenhand.evaluation.runs import progress as module
from evenhand.evaluation.runs.progress import planned_work, progress, report_part, working


@pytest.fixture
def lines(monkeypatch):
    """The messages of the log, a list that grows, with lines every 0.05 seconds instead of every 15."""
    messages = []
    monkeypatch.setattr(module.log, "info", lambda text, *arguments: messages.append(text % arguments))
    monkeypatch.setattr(module, "SECONDS_BETWEEN_LINES", 0.05)
    monkeypatch.setattr(module, "SECONDS_BETWEEN_CHECKS", 0.01)
    return messages


def wait_for(lines, text):
    """Return the first line with the text, written while this function waits."""
    n = len(lines)
    for _ in range(500):
        if found := [line for line in lines[n:] if text in line]:
            return found[0]
        time.sleep(0.01)
    raise AssertionError(lines)


def test_a_batch_without_an_end_is_not_silent(lines):
    with progress(100, "responses", "responses") as advance:
        assert wait_for(lines, "so far").startswith("responses: 0 of 100 responses,")
        report_part(12.7, "responses")
        assert "s left" in wait_for(lines, "responses: 12 of 100")
        report_part(3, "dialogues")  # of another step
        assert wait_for(lines, "responses: 12 of 100")
        advance(32)
        assert wait_for(lines, "responses: 32 of 100")
    assert lines[-1].startswith("responses: 32 responses in ")
    n = len(lines)
    time.sleep(0.2)
    assert len(lines) == n  # the thread ended with the step
    report_part(1, "responses")  # without a step, nothing happens


def test_the_innermost_step_is_shown(lines):
    with working("measure"):
        assert wait_for(lines, "measure: ").endswith("s so far")
        with working("styles"), progress(None, "corpus", "examples") as advance:
            advance(5)
            assert "examples/s" in wait_for(lines, "corpus: 5")
        assert wait_for(lines, "measure: ")


@pytest.mark.parametrize("label", ["", " (process 0 of 2)"])
def test_the_time_left_of_the_command_includes_later_steps(lines, monkeypatch, label):
    monkeypatch.setattr(module.processes, "rank_label", lambda: label)
    outer, inner = {"first": 10.0, "second": 90.0}, {"responses": 8.0, "styles": 2.0}
    with planned_work(outer), working("first"), planned_work(inner):
        with progress(100, f"responses{label}", "responses") as advance:
            time.sleep(1.0)
            advance(50)
            line = wait_for(lines, "left in all")
        # Half of a step of cost 8 took a second: 1 s are left of the step, and 2 + 90 units of 0.25 s.
        step, left = float(line.split(", ")[2].split()[0]), float(line.split("about ")[1].split()[0])
        assert step == pytest.approx(1, abs=1) and left == pytest.approx(24, rel=0.5)
        with progress(10, "unplanned", "texts") as advance:
            advance(1)
            assert "in all" not in wait_for(lines, "unplanned: 1")
    assert not module._plans and not module._steps
