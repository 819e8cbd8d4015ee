"""An acknowledged vote is on the disk; a failed vote leaves the file unchanged; names have one normal form."""

import errno
import json
import os
import unicodedata

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.rating.votes import MAX_NAME_LENGTH, Vote, Votes, rater_name, read_votes
from tests.evaluation.rating.rated_pairs import NAMES


def vote(rater="anna", prompt_id="p1", question="preference", choice="after"):
    return Vote(rater, prompt_id, question, choice, "before", "2026-01-01T00:00:00+00:00")


@pytest.fixture
def path(tmp_path):
    return tmp_path / "votes.jsonl"


def test_votes_are_equal_after_a_round_trip(path):
    with Votes(path) as votes:
        votes.add(vote())
        votes.add(vote(prompt_id="p2", choice=None))
        votes.add(vote("ben"))
    with Votes(path) as votes:
        assert len(votes) == 3
        assert votes.items("anna") == {("p1", "preference"), ("p2", "preference")}
    table = read_votes(path)
    assert table["rater"].tolist() == ["anna", "anna", "ben"]
    assert table["choice"].isna().tolist() == [False, True, False]


def test_a_second_vote_is_an_error_and_leaves_the_file_unchanged(path):
    with Votes(path) as votes:
        votes.add(vote())
        content = path.read_bytes()
        with pytest.raises(ValueError, match="p1, preference"):
            votes.add(vote(choice="before"))
    assert path.read_bytes() == content


def test_undo_is_appended_and_removes_the_last_vote_of_the_rater(path):
    with Votes(path) as votes:
        votes.add(vote())
        votes.add(vote(prompt_id="p2"))
        votes.add(vote("ben"))
        content = path.read_bytes()
        assert votes.undo("anna", "now")
        assert path.read_bytes().startswith(content)
        assert votes.items("anna") == {("p1", "preference")}
        votes.add(vote(prompt_id="p2", choice="before"))
    table = read_votes(path)
    assert table[["rater", "prompt_id", "choice"]].to_numpy().tolist() == [
        ["anna", "p1", "after"], ["ben", "p1", "after"], ["anna", "p2", "before"],
    ]  # fmt: skip


def test_each_vote_is_synced_before_it_counts(path, monkeypatch):
    synced = []
    monkeypatch.setattr(os, "fsync", lambda file: synced.append(path.read_bytes()))
    with Votes(path) as votes:
        votes.add(vote())
        assert json.loads(synced[-1])["prompt_id"] == "p1"


@pytest.mark.parametrize("end", [1, -2])
def test_an_incomplete_last_line_is_removed(path, end):
    with Votes(path) as votes:
        votes.add(vote())
    whole = path.read_bytes()
    path.write_bytes(whole + whole.replace(b"p1", b"p2")[:end])
    assert len(read_votes(path)) == 1
    with Votes(path) as votes:
        assert path.read_bytes() == whole
        votes.add(vote(prompt_id="p3"))
    assert read_votes(path)["prompt_id"].tolist() == ["p1", "p3"]


def test_a_vote_that_cannot_be_synced_is_removed(path, monkeypatch):
    def full(file):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with Votes(path) as votes:
        votes.add(vote())
        content = path.read_bytes()
        monkeypatch.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="No space left"):
            votes.add(vote(prompt_id="p2"))
        monkeypatch.undo()
        assert path.read_bytes() == content
        votes.add(vote(prompt_id="p2"))


@pytest.mark.parametrize(
    "line", ["no json", "[]", '{"rater": "x"}', '{"undo": true, "rater": "x", "prompt_id": "p", "question": "q"}']
)
def test_an_error_has_the_number_of_an_invalid_line(path, line):
    with Votes(path) as votes:
        votes.add(vote())
    path.write_bytes(path.read_bytes() + line.encode() + b"\n")
    with pytest.raises(InputError, match=r"votes.jsonl, line 2: "):
        read_votes(path)


AWKWARD = (
    " \t\n\x00\x1c\x85\u00a0\u2000\u2028\u200b\u200d\ufeff\u00ad\U000e0100\ud800"  # spaces and invisible characters
    "aeo\u0301\u0302\u0323\u030a\u212b\u1112\u1161\u11ab"  # characters that compose
)


@settings(max_examples=100, deadline=None)
@given(st.text(AWKWARD, max_size=90) | st.text(st.characters(), max_size=90))
@example("Ann \u200b B")
@example("Zoe\u200b\u0301")
@example("x" * 59 + " \u200b y")
def test_the_normal_form_is_idempotent(text):
    name = rater_name(text)
    assert rater_name(name) == name
    assert len(name) <= MAX_NAME_LENGTH
    assert name == " ".join(name.split()) == unicodedata.normalize("NFC", name)
    assert not any(unicodedata.category(character).startswith("C") for character in name)


@pytest.mark.parametrize("name", NAMES)
def test_awkward_names_have_one_normal_form(name):
    assert rater_name(name)
    assert rater_name(rater_name(name)) == rater_name(name)
