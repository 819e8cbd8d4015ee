"""An acknowledged vote is on the disk; a failed vote leaves the file unchanged."""

import errno
import json
import os

import pytest

from evenhand.evaluation.rating.server import Vote, Votes, read_votes


def vote(rater="anna", prompt_id="p1", question="preference", choice="after"):
    return Vote(rater, prompt_id, question, choice, "before", "2026-01-01T00:00:00+00:00")


@pytest.fixture
def path(tmp_path):
    return tmp_path / "votes.jsonl"


def test_votes_are_read_again_without_undone_ones(path):
    votes = Votes(path)
    for new in (vote(), vote(prompt_id="p2", choice=None), vote("ben")):
        votes.add(new)
    content = path.read_bytes()
    votes.add(votes.of("anna")[-1], undo=True)
    assert path.read_bytes().startswith(content)
    assert votes.of("anna") == [vote()]
    votes.add(vote(prompt_id="p2", choice="before"))
    votes.add(vote("ben", prompt_id="p2", choice=None))
    assert Votes(path).by_key == votes.by_key
    table = read_votes(path)
    assert table["rater"].tolist() == ["anna", "ben", "anna", "ben"]
    assert table["prompt_id"].tolist() == ["p1", "p1", "p2", "p2"]
    assert table["choice"].isna().tolist() == [False, False, False, True]


def test_each_vote_is_synced_before_it_counts(path, monkeypatch):
    synced = []
    monkeypatch.setattr(os, "fsync", lambda file: synced.append(path.read_bytes()))
    Votes(path).add(vote())
    assert json.loads(synced[-1])["prompt_id"] == "p1"


@pytest.mark.parametrize("end", [1, -2])
def test_an_incomplete_last_line_is_removed(path, end):
    Votes(path).add(vote())
    whole = path.read_bytes()
    path.write_bytes(whole + whole.replace(b"p1", b"p2")[:end])
    assert len(read_votes(path)) == 1
    Votes(path).add(vote(prompt_id="p3"))
    assert path.read_bytes().startswith(whole)
    assert read_votes(path)["prompt_id"].tolist() == ["p1", "p3"]


def test_a_vote_that_cannot_be_synced_is_removed(path, monkeypatch):
    def full(file):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    votes = Votes(path)
    votes.add(vote())
    content = path.read_bytes()
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        votes.add(vote(prompt_id="p2"))
    assert path.read_bytes() == content and votes.of("anna") == [vote()]
