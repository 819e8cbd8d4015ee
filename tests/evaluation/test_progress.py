"""Nothing is silent for longer than ten seconds."""

import time

from evenhand.evaluation.progress import progress, start_logging, working, write_sign_of_life


def test_a_sign_of_life_comes_after_ten_silent_seconds_and_names_the_innermost_work(caplog):
    with caplog.at_level("INFO", "evenhand"):
        now = time.monotonic()
        write_sign_of_life(now + 1000)  # nothing is computed
        with working("outer"), working("inner"):
            write_sign_of_life(time.monotonic() + 1000)
        with working("outer"):
            write_sign_of_life(time.monotonic() + 1000)
        write_sign_of_life(now + 1000)
    assert [message.partition(":")[0] for message in caplog.messages] == ["inner", "outer"]


def test_progress_is_named_while_it_runs(caplog):
    with caplog.at_level("INFO", "evenhand"), progress(10, "responses", "responses") as advance:
        advance(3)
        caplog.clear()
        write_sign_of_life(time.monotonic() + 1000)
    assert caplog.messages[0].startswith("responses: ")


def test_a_line_resets_the_silence(caplog, monkeypatch):
    import logging

    from evenhand.evaluation import progress as module

    handler = module._LineHandler()
    monkeypatch.setattr(module, "_last_line", 0.0)
    handler.emit(logging.LogRecord("evenhand", logging.INFO, "", 0, "a line", (), None))
    with caplog.at_level("INFO", "evenhand"), working("something"):
        write_sign_of_life(time.monotonic())
    assert not caplog.messages


def test_logging_can_be_started_twice():
    start_logging()
    start_logging()
    import threading

    from evenhand.evaluation.progress import SIGNS_OF_LIFE

    assert [thread.name for thread in threading.enumerate()].count(SIGNS_OF_LIFE) == 1
