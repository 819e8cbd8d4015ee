"""The rating's server, with requests of browsers and of attackers, and its file of votes."""

import errno
import json
import os

import pytest
from starlette.testclient import TestClient

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.rating.pairs import left_side, other_side
from evenhand.evaluation.rating.server import load_token, rating_app
from evenhand.evaluation.rating.votes import Vote, Votes, read_votes
from tests.evaluation.rating.rated_pairs import rating
from tests.report_pages import HOSTILE

TOKEN, ORIGIN = "t0k3n", "http://127.0.0.1:8237"


@pytest.fixture
def client(tmp_path):
    return browser(rating(tmp_path))


def browser(rated, host="127.0.0.1"):
    return TestClient(rating_app(rated, TOKEN, host), base_url=ORIGIN)


def answer(client, choice=None, shown=None, rater="anna"):
    """Send the answer to what a page shows; return the response."""
    item = {name: (shown or {}).get(name, "") for name in ("prompt_id", "question")}
    return client.post(f"/{TOKEN}/answer", json={"rater": rater, "choice": choice, **item})


def test_a_whole_session(tmp_path):
    rated = rating(tmp_path)
    client = browser(rated)
    page = client.get(f"/{TOKEN}/")
    assert page.status_code == 200
    assert '<script src="rating.js"' in page.text and client.get(f"/{TOKEN}/rating.js").status_code == 200
    shown = answer(client).json()
    for number, choice in enumerate(("left", "right", "skip", "left")):
        left = left_side("anna", shown["prompt_id"], 0)
        displayed = [shown[side].split()[0] for side in ("left", "right")]
        assert displayed == [{"before": "old", "after": "new"}[side] for side in (left, other_side(left))]
        assert (shown["done"], shown["total"]) == (number, 4)
        shown = answer(client, choice, shown).json()
    assert shown == {"rater": "anna", "done": 4, "total": 4}
    votes = read_votes(tmp_path / "votes.jsonl")
    first, second = rated.pairs["prompt_id"]
    left = [left_side("anna", prompt_id, 0) for prompt_id in (first, first, second, second)]
    assert votes["left"].tolist() == left
    assert votes["prompt_id"].tolist() == [first, first, second, second]
    assert votes["question"].tolist() == ["preference", "humanness"] * 2
    choices = votes["choice"].astype(object).where(votes["choice"].notna(), None).tolist()
    assert choices == [left[0], other_side(left[1]), None, left[3]]


def test_votes_are_undone_and_second_votes_ignored(client, tmp_path):
    first = answer(client).json()
    answer(client, "left", first)
    assert answer(client, "undo").json() == first
    assert answer(client, "undo").json() == first  # without a vote: no effect
    second = answer(client, "right", first).json()
    assert answer(client, "left", first).json() == second  # an old page
    assert answer(client, "left", {"prompt_id": "p9"}).json() == second
    assert len(read_votes(tmp_path / "votes.jsonl")) == 1
    answer(browser(rating(tmp_path)), "left", second)  # a restarted server goes on
    assert len(read_votes(tmp_path / "votes.jsonl")) == 2


@pytest.mark.parametrize("body", [b"", b"\xff", b'{"rater": " "}', b'{"rater": "anna", "choice": "before"}'])
def test_an_invalid_answer_is_rejected(client, tmp_path, body):
    assert client.post(f"/{TOKEN}/answer", content=body).status_code == 400
    assert not (tmp_path / "votes.jsonl").exists()


@pytest.mark.parametrize("path", ["/", "/answer", "/t0k3nn/", "//"])
def test_without_the_token_nothing_is_found(client, path):
    for response in (client.get(path), client.post(path, json={"rater": "anna"})):
        assert response.status_code in (404, 405) and TOKEN not in response.text


def test_other_host_names_are_rejected_on_the_loopback_address(tmp_path):
    other_name = {"Host": "rebound.example:8237"}
    assert browser(rating(tmp_path)).get(f"/{TOKEN}/", headers=other_name).status_code == 400
    assert browser(rating(tmp_path)).get(f"/{TOKEN}/", headers={"Host": "localhost:8237"}).status_code == 200
    assert browser(rating(tmp_path), "0.0.0.0").get(f"/{TOKEN}/", headers=other_name).status_code == 200


@pytest.mark.parametrize("text", [text for text in HOSTILE if "\ud800" not in text])  # which no table can hold
def test_hidden_characters_are_shown_as_codes(tmp_path, text):
    client = browser(rating(tmp_path, before=[text] * 2, after=["x"] * 2, text=[text] * 2))
    shown = answer(client).json()
    assert not {"\x1b", "\x07", "\u202e", "\u2066"} & set(shown["prompt"] + shown["left"] + shown["right"])
    if "script" in text:
        assert shown["prompt"] == text


def test_tokens_are_private_and_kept(tmp_path):
    token = load_token(tmp_path)
    assert len(token) == 32
    assert load_token(tmp_path) == token
    assert (tmp_path / "token").stat().st_mode & 0o777 == 0o600


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
    votes.add(votes.by_rater("anna")[-1], undo=True)
    assert path.read_bytes().startswith(content)
    assert votes.by_rater("anna") == [vote()]
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
    assert path.read_bytes() == content and votes.by_rater("anna") == [vote()]


def test_a_long_body_is_refused_before_it_is_read(client):
    sent = []

    def parts():
        for number in range(1000):
            sent.append(number)
            yield b"x" * 1000

    response = client.post(f"/{TOKEN}/answer", content=parts())
    assert response.status_code == 413
    assert answer(client).status_code == 200


@pytest.mark.parametrize("line", ["5", "[]", '"vote"', "{", '{"rater": "anna"}', json.dumps(vars(vote())) + "x"])
def test_a_line_that_is_no_vote_is_named(path, line):
    Votes(path).add(vote())
    with path.open("a") as file:
        file.write(f"{line}\n")
    with pytest.raises(InputError, match="line 2: not a vote"):
        Votes(path)


@pytest.mark.parametrize("left", [None, 10])
def test_no_vote_is_written_to_a_file_that_another_program_deleted_or_shortened(tmp_path, path, left):
    """The missing bytes would be zeros, and no vote in the file could be read."""
    client = browser(rating(tmp_path))
    shown = answer(client, "left", answer(client).json()).json()
    content = path.read_bytes()
    path.unlink()
    if left is not None:
        path.write_bytes(content[:left])
    assert answer(client, "left", shown).status_code == 507
    assert (path.read_bytes() if path.exists() else None) == (None if left is None else content[:left])
    path.write_bytes(content)
    assert answer(client, "left", shown).json()["done"] == 2
    assert len(read_votes(path)) == 2
