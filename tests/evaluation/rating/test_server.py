"""The rating pages, asked as a browser asks and as it does not."""

import errno
import html
import os
import re

import pytest
from starlette.testclient import TestClient

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.rating.pairs import left_side, other_side
from evenhand.evaluation.rating.server import MAX_BODY_BYTES, listen, load_token, rating_app
from evenhand.evaluation.rating.votes import read_votes
from tests.evaluation.rating.awkward_names import NAMES
from tests.evaluation.rating.rated_pairs import rating
from tests.parsed_page import ParsedPage
from tests.report_pages import HOSTILE

TOKEN, ORIGIN = "t0k3n", "http://127.0.0.1:8237"


@pytest.fixture
def judged(tmp_path):
    return rating(tmp_path)


@pytest.fixture
def client(judged):
    return browser(judged)


def browser(judged, host="127.0.0.1"):
    return TestClient(rating_app(judged, TOKEN, host), base_url=ORIGIN, follow_redirects=False)


def shown(client, rater="anna"):
    return client.get(f"/{TOKEN}/rate", params={"rater": rater})


def form_of(page):
    """The hidden fields of a page's form."""
    found = re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)">', page.text)
    return {name: html.unescape(value) for name, value in found}


def answer(client, choice, form=None, headers=None, rater="anna"):
    """Press a button on the page that the rater is shown, or on one that was open before."""
    data = (form or form_of(shown(client, rater))) | {"choice": choice}
    return client.post(f"/{TOKEN}/vote", data=data, headers={"Origin": ORIGIN} if headers is None else headers)


def test_a_whole_session(client, judged, tmp_path):
    assert "Which response is better?" in client.get(f"/{TOKEN}/").text
    for choice in ("left", "right", "skip", "left"):
        back = answer(client, choice)
        assert (back.status_code, back.headers["location"]) == (303, f"/{TOKEN}/rate?rater=anna")
    assert "That was all" in shown(client).text
    votes = read_votes(tmp_path / "votes.jsonl")
    first, second = judged.pairs["prompt_id"]
    left = [left_side("anna", prompt_id, 0) for prompt_id in (first, first, second, second)]
    assert votes["left"].tolist() == left
    assert votes["prompt_id"].tolist() == [first, first, second, second]
    assert votes["question"].tolist() == ["preference", "humanness"] * 2
    choices = votes["choice"].astype(object).where(votes["choice"].notna(), None).tolist()
    assert choices == [left[0], other_side(left[1]), None, left[3]]


def test_each_side_shows_the_response_that_its_vote_means(client, judged):
    for _ in judged.items():
        form = form_of(page := shown(client))
        texts = re.findall(r'<span class="answer" dir="auto">(\w+) \d</span>', page.text)
        left = left_side("anna", form["prompt_id"], 0)
        assert texts == [{"before": "old", "after": "new"}[side] for side in (left, other_side(left))]
        answer(client, "left")


@pytest.mark.parametrize("name", NAMES)
def test_a_vote_is_for_the_side_that_the_page_showed(tmp_path, name):
    """Twelve pairs, so that of a name in two forms some pair draws another side for each."""
    client = browser(rating(tmp_path, n=12))
    for place in range(24):
        page, button = shown(client, name), ("left", "right", "left")[place % 3]
        left, right = re.findall(r'<span class="answer" dir="auto">(old|new) \d+</span>', page.text)
        form, side = form_of(page), {"old": "before", "new": "after"}
        answer(client, button, form)
        votes = read_votes(tmp_path / "votes.jsonl")
        assert len(votes) == place + 1
        expected = [form["rater"], form["prompt_id"], side[left if button == "left" else right], side[left]]
        assert votes[["rater", "prompt_id", "choice", "left"]].iloc[-1].tolist() == expected
    assert "That was all" in shown(client, name).text


def test_a_vote_under_a_name_that_no_page_gave_is_refused(client, judged):
    assert answer(client, "left", form_of(shown(client)) | {"rater": " anna"}).status_code == 400
    assert answer(client, "undo", form_of(shown(client)) | {"rater": "anna\u200b"}).status_code == 400
    assert len(judged.votes) == 0


@pytest.mark.parametrize("body", [b"rater=\xff&choice=left", b"rater=%ff&choice=left", b"\xff"])
def test_a_body_that_is_not_utf8_is_refused(client, judged, body):
    response = client.post(f"/{TOKEN}/vote", content=body, headers={"Origin": ORIGIN})
    assert (response.status_code, response.text) == (400, "This is no vote: it is not UTF-8.")
    assert response.headers["cache-control"] == "no-store"
    assert len(judged.votes) == 0


def test_raters_are_shown_the_same_pairs_and_go_on_each_by_themselves(client):
    answer(client, "left")
    assert form_of(shown(client))["question"] == "humanness"
    assert form_of(shown(client, "ben"))["question"] == "preference"
    assert form_of(shown(client, "ben"))["prompt_id"] == form_of(shown(client))["prompt_id"]


def test_a_page_does_not_say_whose_responses_they_are(client):
    assert not re.search("before|after", re.sub("<(style|script).*?</", "", shown(client).text, flags=re.S))


def test_a_second_vote_is_refused(client, tmp_path):
    form = form_of(shown(client))
    assert answer(client, "left", form).status_code == 303
    again = answer(client, "right", form)
    assert (again.status_code, again.text) == (409, "This was answered before; the first answer counts.")
    assert len(read_votes(tmp_path / "votes.jsonl")) == 1


def test_undo_shows_the_last_one_again(client):
    first = form_of(shown(client))
    assert "Undo" not in shown(client).text  # there is nothing yet
    answer(client, "left")
    assert answer(client, "undo").status_code == 303
    assert form_of(shown(client)) == first
    assert answer(client, "undo").status_code == 303  # of nothing: nothing
    assert answer(client, "right").status_code == 303


@pytest.mark.parametrize(
    "fields",
    [{"choice": "before"}, {"choice": ""}, {"rater": " "}, {"rater": ""}],
)
def test_what_is_no_vote_is_refused(client, judged, fields):
    assert answer(client, "left", form_of(shown(client)) | fields).status_code in (303, 400)
    data = form_of(shown(client)) | {"choice": "left"} | fields
    assert client.post(f"/{TOKEN}/vote", data=data, headers={"Origin": ORIGIN}).status_code == 400


@pytest.mark.parametrize("fields", [{"prompt_id": "p9"}, {"question": "style"}])
def test_a_vote_on_nothing_that_is_asked_is_refused(client, judged, fields):
    assert answer(client, "left", form_of(shown(client)) | fields).status_code == 409
    assert len(judged.votes) == 0


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Origin": "null"},
        {"Origin": "http://evil.example"},
        {"Origin": "http://127.0.0.1:9999"},
        {"Origin": "http://127.0.0.1:8237.evil.example"},
        {"Origin": "http://rebound.example:8237", "Host": "rebound.example:8237"},
    ],
)
def test_answers_from_other_sites_are_refused(client, judged, headers):
    assert answer(client, "left", headers=headers).status_code == 403
    assert len(judged.votes) == 0


@pytest.mark.parametrize("path", ["/", "/rate?rater=anna", "/t0k3/", "/t0k3nn/rate", "/%74%30k3/", "//", "/vote"])
def test_without_the_token_there_is_nothing(client, path):
    for response in (client.get(path), client.post(path, headers={"Origin": ORIGIN})):
        assert response.status_code == 403
        assert TOKEN not in response.text


def test_a_name_that_points_here_is_refused_where_only_this_machine_is_served(judged):
    other_name = {"Host": "rebound.example:8237"}
    assert browser(judged).get(f"/{TOKEN}/", headers=other_name).status_code == 403
    assert browser(judged).get(f"/{TOKEN}/", headers={"Host": "localhost:8237"}).status_code == 200
    assert browser(judged, "0.0.0.0").get(f"/{TOKEN}/", headers=other_name).status_code == 200


def test_a_body_that_is_too_long_is_refused(client):
    data = {"choice": "left", "rater": "x" * MAX_BODY_BYTES}
    assert client.post(f"/{TOKEN}/vote", data=data, headers={"Origin": ORIGIN}).status_code == 413
    headers = {"Origin": ORIGIN, "Transfer-Encoding": "chunked"}
    assert client.post(f"/{TOKEN}/vote", content=iter([b"choice=left"]), headers=headers).status_code == 413


def test_a_page_allows_its_own_script_alone(client):
    pages = [shown(client) for _ in range(2)]
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
def test_hostile_responses_are_text(tmp_path, text):
    judged = rating(tmp_path, before=[text] * 2, after=["x"] * 2, text=[text] * 2)
    client = browser(judged)
    page = shown(client, text or "nobody").text
    parsed = ParsedPage(re.sub("<script.*?</script>", "", page, flags=re.S))
    assert {"a", "b", "img"}.isdisjoint(parsed.tags)
    assert not [name for _, name, _ in parsed.attributes if name.startswith("on")]
    assert not {"\x1b", "\u202e", "\u2066"} & set(page)
    if "script" in text:
        assert text in parsed.text


def test_an_empty_response_is_said_to_be_one(tmp_path):
    client = browser(rating(tmp_path, before=[""] * 2, after=[" \n"] * 2))
    assert shown(client).text.count("<em>says nothing</em>") == 2


def test_lines_of_a_response_stay_lines(tmp_path):
    client = browser(rating(tmp_path, before=["one\n\ntwo"] * 2))
    assert ">one\n\ntwo<" in shown(client).text


def test_a_full_disk_is_told_and_nothing_is_kept(client, judged, monkeypatch):
    def full(file):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    response = answer(client, "left")
    assert response.status_code == 507
    assert "no space is left" in response.text
    assert len(judged.votes) == 0


def test_without_a_name_the_way_leads_to_the_first_page(client):
    assert shown(client, "  ").headers["location"] == f"/{TOKEN}/"


def test_the_token_stays_and_is_the_users_own(tmp_path):
    token = load_token(tmp_path)
    assert len(token) == 32
    assert load_token(tmp_path) == token
    assert (tmp_path / "token").stat().st_mode & 0o777 == 0o600


def test_a_token_is_written_whole_or_not_at_all(tmp_path, monkeypatch):
    def full(file):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        with pytest.raises(InputError, match="no space is left"):
            load_token(tmp_path)
    assert not list(tmp_path.iterdir())
    assert len(load_token(tmp_path)) == 32


def test_a_port_that_is_taken_is_one_error():
    with listen("127.0.0.1", 0) as listening, pytest.raises(InputError, match="port: .*--port 0 takes a free one"):
        listen("127.0.0.1", listening.getsockname()[1])
