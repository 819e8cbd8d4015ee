"""The rating pages, with requests of browsers and of attackers."""

import errno
import html
import os
import re

import pytest
from starlette.testclient import TestClient

from evenhand.evaluation.rating.pairs import left_side, other_side
from evenhand.evaluation.rating.server import MAX_BODY_BYTES, load_token, rating_app
from evenhand.evaluation.rating.votes import read_votes
from tests.evaluation.rating.rated_pairs import NAMES, rating
from tests.parsed_page import ParsedPage
from tests.report_pages import HOSTILE

TOKEN, ORIGIN = "t0k3n", "http://127.0.0.1:8237"


@pytest.fixture
def rated(tmp_path):
    return rating(tmp_path)


@pytest.fixture
def client(rated):
    return browser(rated)


def browser(rated, host="127.0.0.1"):
    return TestClient(rating_app(rated, TOKEN, host), base_url=ORIGIN, follow_redirects=False)


def rating_page(client, rater="anna"):
    return client.get(f"/{TOKEN}/rate", params={"rater": rater})


def form_of(page):
    """Return the hidden fields of a page's form."""
    fields = re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)">', page.text)
    return {name: html.unescape(value) for name, value in fields}


def answer(client, choice, form=None, headers=None, rater="anna"):
    """Press a button on the rater's current page, or on an older page by its form."""
    data = (form or form_of(rating_page(client, rater))) | {"choice": choice}
    return client.post(f"/{TOKEN}/vote", data=data, headers={"Origin": ORIGIN} if headers is None else headers)


def test_a_whole_session(client, rated, tmp_path):
    assert "Which response is better?" in client.get(f"/{TOKEN}/").text
    for choice in ("left", "right", "skip", "left"):
        back = answer(client, choice)
        assert (back.status_code, back.headers["location"]) == (303, f"/{TOKEN}/rate?rater=anna")
    assert "That was all" in rating_page(client).text
    votes = read_votes(tmp_path / "votes.jsonl")
    first, second = rated.pairs["prompt_id"]
    left = [left_side("anna", prompt_id, 0) for prompt_id in (first, first, second, second)]
    assert votes["left"].tolist() == left
    assert votes["prompt_id"].tolist() == [first, first, second, second]
    assert votes["question"].tolist() == ["preference", "humanness"] * 2
    choices = votes["choice"].astype(object).where(votes["choice"].notna(), None).tolist()
    assert choices == [left[0], other_side(left[1]), None, left[3]]


def test_a_vote_is_for_the_displayed_response(client, rated):
    for _ in rated.items():
        form = form_of(page := rating_page(client))
        texts = re.findall(r'<span class="answer" dir="auto">(\w+) \d</span>', page.text)
        left = left_side("anna", form["prompt_id"], 0)
        assert texts == [{"before": "old", "after": "new"}[side] for side in (left, other_side(left))]
        answer(client, "left")


@pytest.mark.parametrize("name", NAMES[:5])
def test_a_vote_is_for_the_side_that_the_page_showed(tmp_path, name):
    """Twelve pairs, so that two forms of a name have different sides in some pair."""
    client = browser(rating(tmp_path, n=12))
    for index in range(24):
        page, button = rating_page(client, name), ("left", "right", "left")[index % 3]
        left, right = re.findall(r'<span class="answer" dir="auto">(old|new) \d+</span>', page.text)
        form, side = form_of(page), {"old": "before", "new": "after"}
        answer(client, button, form)
        votes = read_votes(tmp_path / "votes.jsonl")
        assert len(votes) == index + 1
        expected = [form["rater"], form["prompt_id"], side[left if button == "left" else right], side[left]]
        assert votes[["rater", "prompt_id", "choice", "left"]].iloc[-1].tolist() == expected
    assert "That was all" in rating_page(client, name).text


def test_a_vote_with_a_name_that_is_not_normal_is_rejected(client, rated):
    assert answer(client, "left", form_of(rating_page(client)) | {"rater": "anna\u200b"}).status_code == 400
    assert len(rated.votes) == 0


@pytest.mark.parametrize("body", [b"rater=%ff&choice=left", b"\xff"])
def test_a_body_that_is_not_utf8_is_rejected(client, rated, body):
    response = client.post(f"/{TOKEN}/vote", content=body, headers={"Origin": ORIGIN})
    assert response.status_code == 400 and "UTF-8" in response.text
    assert response.headers["cache-control"] == "no-store"
    assert len(rated.votes) == 0


def test_votes_are_undone_and_second_votes_rejected(client, tmp_path):
    first = form_of(rating_page(client))
    assert "Undo" not in rating_page(client).text  # no vote yet
    answer(client, "left")
    assert answer(client, "undo").status_code == 303
    assert form_of(rating_page(client)) == first
    assert answer(client, "undo").status_code == 303  # without a vote: no effect
    assert answer(client, "right", first).status_code == 303
    assert answer(client, "left", first).status_code == 409
    assert len(read_votes(tmp_path / "votes.jsonl")) == 1


@pytest.mark.parametrize("fields", [{"choice": "before"}, {"rater": " "}])
def test_an_invalid_vote_is_rejected(client, rated, fields):
    assert answer(client, "left", form_of(rating_page(client)) | fields).status_code in (303, 400)
    data = form_of(rating_page(client)) | {"choice": "left"} | fields
    assert client.post(f"/{TOKEN}/vote", data=data, headers={"Origin": ORIGIN}).status_code == 400


def test_a_vote_on_an_unknown_item_is_rejected(client, rated):
    assert answer(client, "left", form_of(rating_page(client)) | {"prompt_id": "p9"}).status_code == 409
    assert len(rated.votes) == 0


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Origin": "http://evil.example"},
        {"Origin": "http://127.0.0.1:8237.evil.example"},
        {"Origin": "http://rebound.example:8237", "Host": "rebound.example:8237"},
    ],
)
def test_answers_from_other_sites_are_rejected(client, rated, headers):
    assert answer(client, "left", headers=headers).status_code == 403
    assert len(rated.votes) == 0


@pytest.mark.parametrize("path", ["/", "/rate?rater=anna", "/t0k3nn/rate", "//", "/vote"])
def test_without_the_token_all_paths_are_forbidden(client, path):
    for response in (client.get(path), client.post(path, headers={"Origin": ORIGIN})):
        assert response.status_code == 403
        assert TOKEN not in response.text


def test_other_host_names_and_long_bodies_are_rejected(rated, client):
    other_name = {"Host": "rebound.example:8237"}
    assert browser(rated).get(f"/{TOKEN}/", headers=other_name).status_code == 403
    assert browser(rated).get(f"/{TOKEN}/", headers={"Host": "localhost:8237"}).status_code == 200
    assert browser(rated, "0.0.0.0").get(f"/{TOKEN}/", headers=other_name).status_code == 200
    data = {"choice": "left", "rater": "x" * MAX_BODY_BYTES}
    assert client.post(f"/{TOKEN}/vote", data=data, headers={"Origin": ORIGIN}).status_code == 413
    headers = {"Origin": ORIGIN, "Transfer-Encoding": "chunked"}
    assert client.post(f"/{TOKEN}/vote", content=iter([b"choice=left"]), headers=headers).status_code == 413


def test_the_content_security_policy_allows_only_the_script_of_the_page(client):
    pages = [rating_page(client) for _ in range(2)]
    nonces = [re.search("script-src 'nonce-([^']+)'", page.headers["content-security-policy"])[1] for page in pages]
    assert nonces[0] != nonces[1]
    for page, nonce in zip(pages, nonces, strict=True):
        assert "default-src 'none'" in page.headers["content-security-policy"]
        assert page.text.count("<script") == page.text.count(f'<script nonce="{nonce}">') == 1
        assert page.headers["cache-control"] == "no-store"
        assert "access-control-allow-origin" not in page.headers
        assert "set-cookie" not in page.headers
        assert not re.search(r'(src|href)="(?!data:,)|url\(|@import', page.text)


@pytest.mark.parametrize("text", [text for text in HOSTILE if "\ud800" not in text])  # which no table can hold
def test_hostile_responses_are_escaped(tmp_path, text):
    rated = rating(tmp_path, before=[text] * 2, after=["x"] * 2, text=[text] * 2)
    client = browser(rated)
    page = rating_page(client, text or "nobody").text
    parsed = ParsedPage(re.sub("<script.*?</script>", "", page, flags=re.S))
    assert {"a", "b", "img"}.isdisjoint(parsed.tags)
    assert not [name for _, name, _ in parsed.attributes if name.startswith("on")]
    assert not {"\x1b", "\u202e", "\u2066"} & set(page)
    if "script" in text:
        assert text in parsed.text


def test_empty_responses_and_line_ends(tmp_path):
    client = browser(rating(tmp_path, before=[""] * 2, after=[" \n"] * 2))
    assert rating_page(client).text.count("<em>empty response</em>") == 2
    client = browser(rating(tmp_path, before=["one\n\ntwo"] * 2))
    assert ">one\n\ntwo<" in rating_page(client).text


def test_a_full_disk_is_an_error_and_saves_no_vote(client, rated, monkeypatch):
    def full(file):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    response = answer(client, "left")
    assert response.status_code == 507
    assert "No space left" in response.text
    assert len(rated.votes) == 0


def test_tokens_are_private_and_kept(tmp_path):
    token = load_token(tmp_path)
    assert len(token) == 32
    assert load_token(tmp_path) == token
    assert (tmp_path / "token").stat().st_mode & 0o777 == 0o600
