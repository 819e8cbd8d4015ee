"""A rating session in a real Chromium, by keyboard: what a rater sees, what is kept, and what leaves the machine."""

import re
import signal
import socket
from contextlib import contextmanager

import pytest

from evenhand.evaluation.rating.response_pairs import left_side
from evenhand.evaluation.rating.votes import read_votes
from tests.forked_commands import PATIENCE, wait_until
from tests.measured_runs import write_measured

pytest.importorskip("selenium", reason="needs selenium (pip install '.[test]')")
from selenium.common.exceptions import WebDriverException
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import WebDriverWait

QUESTIONS = ("preference", "humanness", "interestingness")
HOSTILE = ("<script>document.title = 'broken'</script>", '"><img src=x onerror="document.title=\'broken\'">')
RESPONSES = (*HOSTILE, "a word", "another")


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """The flags of a rating of two runs with four pairs, two of them with hostile responses."""
    folder = tmp_path_factory.mktemp("runs")
    for side in ("before", "after"):
        write_measured(folder / side, [(1.0, 0.0, 0.0)] * 4, [f"{side} says {text}" for text in RESPONSES])
    return [str(folder / "before"), str(folder / "after")]


@contextmanager
def served(commands, runs, folder, port):
    """Run `evenhand rate`; yield the running command and the link that it prints."""
    running = commands.start("rate", *runs, "--output_dir", str(folder), "--port", str(port))
    try:
        printed = running.folder / "stdout"
        wait_until(lambda: (printed.exists() and "\n" in printed.read_text()) or running.status() is not None)
        yield running, re.search(r"http://\S+", running.stdout)[0]
    finally:
        running.kill()


@pytest.fixture
def port():
    with socket.create_server(("127.0.0.1", 0)) as free:
        return free.getsockname()[1]


def enter(browser, link, name="Anna"):
    browser.driver.get(link)
    browser.driver.find_element(By.ID, "rater").send_keys(name, Keys.ENTER)
    wait(browser, lambda: progress(browser))


def progress(browser):
    return browser.driver.find_element(By.ID, "progress").text


def press(browser, key):
    """Press a key, and wait for the next question."""
    before = progress(browser)
    browser.driver.find_element(By.TAG_NAME, "body").send_keys(key)
    wait(browser, lambda: progress(browser) != before)


def wait(browser, condition):
    """Wait; what a driver cannot tell while pages change is asked again."""
    waiting = WebDriverWait(browser.driver, PATIENCE, ignored_exceptions=[WebDriverException])
    waiting.until(lambda _: condition())


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_session_by_keyboard(commands, runs, tmp_path, browser, port, scheme):
    folder = tmp_path / "rate"
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    browser.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
    with served(commands, runs, folder, port) as (running, link):
        browser.driver.get(link)
        assert browser.serious() == []
        enter(browser, link)
        keys = [Keys.ARROW_LEFT, Keys.ARROW_RIGHT, "s", "u", Keys.ARROW_LEFT, *[Keys.ARROW_LEFT] * 9]
        shown = set()
        for place, key in enumerate(keys):
            if place == 1:
                assert browser.serious() == []
            shown |= {card.text for card in browser.driver.find_elements(By.CSS_SELECTOR, "#cards button")}
            assert browser.driver.find_elements(By.CSS_SELECTOR, "main img, main script") == []
            assert "broken" not in browser.driver.title
            press(browser, key)
            assert len((folder / "votes.jsonl").read_text().splitlines()) == place + 1
        assert "That was all" in browser.driver.find_element(By.ID, "thanks").text
        assert browser.serious() == []
        assert shown == {f"{side} says {text}" for side in ("before", "after") for text in RESPONSES}
        seen = browser.look()
        assert (seen.errors, seen.left_the_machine) == ([], [])
        assert len(seen.requests) > len(keys)  # requests are recorded at all
        assert running.kill(signal.SIGINT) == 0
    votes = read_votes(folder / "votes.jsonl")
    assert len(votes) == 4 * len(QUESTIONS)
    left = [left_side("Anna", prompt_id, 0) for prompt_id in votes["prompt_id"]]
    chose_left = (votes["choice"] == left).tolist()
    assert chose_left == [True, False, *[True] * 10]
    assert not votes["choice"].isna().any()  # the skipped vote was undone


def test_a_server_that_is_killed_loses_nothing(commands, runs, tmp_path, browser, port):
    folder = tmp_path / "rate"
    with served(commands, runs, folder, port) as (running, link):
        enter(browser, link)
        press(browser, Keys.ARROW_LEFT)
        running.kill()
        held, shown = (folder / "votes.jsonl").read_bytes(), progress(browser)
        browser.driver.find_element(By.TAG_NAME, "body").send_keys(Keys.ARROW_RIGHT)
        wait(browser, lambda: "does not answer" in browser.driver.find_element(By.ID, "error").text)
        assert progress(browser) == shown
    with served(commands, runs, folder, port) as (_, again):
        assert again == link
        press(browser, Keys.ARROW_RIGHT)
        assert progress(browser) == "Anna · 2 of 12 answers"
    assert (folder / "votes.jsonl").read_bytes().startswith(held)
    assert read_votes(folder / "votes.jsonl")["question"].tolist() == ["preference", "humanness"]
