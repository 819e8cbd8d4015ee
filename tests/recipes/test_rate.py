"""`evenhand rate`: pairs of two runs, imported votes, and the summary."""

import json
import re

import pytest

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.rating import server
from evenhand.evaluation.rating.votes import Vote, Votes
from evenhand.evaluation.score import find_score, read_scores
from evenhand.evaluation.tables import read_table
from evenhand.recipes.command_settings import RateSettings
from evenhand.recipes.rate import rate
from tests.measured_runs import write_measured

N = 6
VECTORS = [(1.0, 0.0, 0.0)] * N


@pytest.fixture
def runs(tmp_path, monkeypatch):
    """The settings of a rating of two runs, whose server returns at once."""
    monkeypatch.setattr(server, "serve", lambda app, listening: None)
    sides = {
        side: write_measured(tmp_path / side, VECTORS, [f"{side} {i}" for i in range(N - 1)] + ["same"])
        for side in ("before", "after")
    }
    return {**sides, "port": 0, "report_to": "none", "output_dir": tmp_path / "rate"}


def settings(runs, **changes):
    return RateSettings(**runs | changes)


def test_pairs_are_sampled_and_the_link_is_printed(runs, capsys):
    rate(settings(runs))
    folder = runs["output_dir"]
    pairs = read_table(folder / "pairs.parquet")
    assert sorted(pairs["prompt_id"]) == [f"p{i}" for i in range(N - 1)]  # the responses of the last pair are equal
    assert json.loads((folder / "run.json").read_text())["left_out"] == {
        "template": 0,
        "descriptor": 0,
        "unanswered": 0,
        "offensive": None,
        "alike": 1,
    }
    token = (folder / "token").read_text()
    assert re.search(rf"http://127\.0\.0\.1:\d+/{re.escape(token)}/", capsys.readouterr().out)


def test_a_second_start_keeps_pairs_token_and_votes(runs):
    rate(settings(runs))
    folder = runs["output_dir"]
    Votes(folder / "votes.jsonl").add(Vote("anna", "p0", "preference", "after", "after", "now"))
    before = {name: (folder / name).read_bytes() for name in ("pairs.parquet", "token", "votes.jsonl", "run.json")}
    rate(settings(runs, host="127.0.0.1"))
    assert before == {name: (folder / name).read_bytes() for name in before}
    with pytest.raises(InputError, match="pairs"):
        rate(settings(runs, pairs=3))


def test_votes_are_summarised(runs):
    rate(settings(runs, pairs=4))
    folder = runs["output_dir"]
    votes = Votes(folder / "votes.jsonl")
    for i, pair in enumerate(read_table(folder / "pairs.parquet")["prompt_id"]):
        votes.add(Vote("w", pair, "preference", "after" if i < 3 else "before", "after", "now"))
    rate(settings(runs, summary=True))
    score = find_score(read_scores(folder / "summary" / "scores.json"), "win_rate", question="preference")
    assert (score.value, score.n, score.p_value) == (0.75, 4, 0.625)
    assert len(score.signature["votes"]) == 64
    assert "75\u00a0%" in (folder / "summary" / "report.html").read_text()
    rate(settings(runs, pairs=4))  # the manifest of the pairs does not record summaries


def test_a_summary_is_of_the_runs_that_are_given(runs, tmp_path):
    rate(settings(runs, pairs=4))
    Votes(runs["output_dir"] / "votes.jsonl").add(Vote("w", "p0", "preference", "after", "after", "now"))
    rate(settings(runs, summary=True))
    for changed in ({"before": tmp_path / "other"}, {"pairs": 3}, {"seed": 1}):
        with pytest.raises(InputError, match=f"^{next(iter(changed))}: "):
            rate(settings(runs, summary=True, **changed))
