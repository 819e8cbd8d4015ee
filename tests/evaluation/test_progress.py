"""Progress of a long computation in a log."""

from evenhand.evaluation import progress as module
from evenhand.evaluation.progress import progress


def test_lines_in_a_log_have_number_rate_and_time_left(monkeypatch):
    lines = []
    monkeypatch.setattr(module.log, "info", lambda text, *arguments: lines.append(text % arguments))
    monkeypatch.setattr(module, "SECONDS_BETWEEN_LINES", 0.0)
    with progress(100, "responses", "responses", done=10) as advance:
        advance(15)
        advance(75)
    with progress(None, "corpus", "examples") as advance:
        advance(5)
    assert lines[0].startswith("responses:  25%") and "25/100 [" in lines[0] and "responses/s" in lines[0]
    assert "100/100" in lines[-2] and lines[-1].startswith("corpus: 5 examples [")
