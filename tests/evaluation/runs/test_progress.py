"""Nothing is silent for long, and a log that nobody watches stays short."""

import logging
import threading
import time

import pytest

from evenhand.evaluation.runs import progress as module
from evenhand.evaluation.runs.progress import SIGNS_OF_LIFE, progress, start_logging, working, write_sign_of_life
from evenhand.mitigation.training import StepCallback


def test_a_sign_of_life_comes_after_ten_silent_seconds_and_names_the_innermost_work(caplog):
    with caplog.at_level("INFO", "evenhand"):
        now = time.monotonic()
        write_sign_of_life(now + 10_000)  # nothing is computed
        with working("outer"), working("inner"):
            write_sign_of_life(time.monotonic() + 10_000)
        with working("outer"):
            write_sign_of_life(time.monotonic() + 10_000)
        write_sign_of_life(now + 10_000)
    assert [message.partition(":")[0] for message in caplog.messages] == ["inner", "outer"]


def test_progress_is_named_while_it_runs(caplog):
    with caplog.at_level("INFO", "evenhand"), progress(10, "responses", "responses") as bar:
        bar.update(3)
        caplog.clear()
        write_sign_of_life(time.monotonic() + 10_000)
    assert caplog.messages[0].startswith("responses: ")


def test_a_line_resets_the_silence(caplog, monkeypatch):
    now = time.monotonic()
    handler = module._LineHandler()
    monkeypatch.setattr(module, "_last_line", 0.0)
    handler.emit(logging.LogRecord("evenhand", logging.INFO, "", 0, "a line", (), None))
    with caplog.at_level("INFO", "evenhand"), working("something"):
        write_sign_of_life(now)
    assert not caplog.messages


@pytest.mark.parametrize(
    ("is_terminal", "ci", "is_watched"), [(True, "", True), (True, "true", False), (False, "", False)]
)
def test_a_log_of_ci_has_a_line_a_minute(monkeypatch, is_terminal, ci, is_watched):
    monkeypatch.setattr(module.sys.stderr, "isatty", lambda: is_terminal)
    monkeypatch.setenv("CI", ci)
    assert module.is_watched() is is_watched
    assert module.seconds_between_lines() == (10 if is_watched else 60)


def test_a_bar_in_a_log_writes_its_last_line_and_none_within_a_minute(monkeypatch, caplog):
    monkeypatch.setattr(module, "is_watched", lambda: False)
    monkeypatch.setattr(module, "SECONDS_IN_A_LOG", 10_000.0)  # a slow machine's minute
    with caplog.at_level("INFO", "evenhand"), progress(100, "answers", "answers") as bar:
        for _ in range(100):
            bar.update(1)
        assert not caplog.messages
    assert len(caplog.messages) == 1 and "100/100" in caplog.messages[0]


def test_the_time_before_the_first_step_of_training_does_not_count(monkeypatch):
    monkeypatch.setattr(module, "is_watched", lambda: False)
    with progress(10, "tuning", "steps", done=4) as bar:
        bar.start_t -= 10_000  # validation before the first step
        bar.last_print_t -= 10_000
        step = StepCallback(bar)
        step.on_step_begin(None, None, None)
        assert bar.format_dict["elapsed"] < 5000
        bar.update(1)
        bar.start_t -= 10_000  # a long step counts
        bar.last_print_t -= 10_000
        step.on_step_begin(None, None, None)
        assert bar.format_dict["elapsed"] > 5000


def test_logging_can_be_started_twice():
    start_logging()
    start_logging()
    assert [thread.name for thread in threading.enumerate()].count(SIGNS_OF_LIFE) == 1
