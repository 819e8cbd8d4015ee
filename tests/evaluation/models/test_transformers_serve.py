"""`transformers serve` on loopback answers every prompt once, by its seed where requests come one at a time."""

import socket
import subprocess
import sys
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import pytest

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.models import server
from evenhand.evaluation.models.likelihood.served import served_log_likelihoods
from evenhand.evaluation.models.server import build_requests, fetch_answers
from evenhand.evaluation.runs.run import Run
from evenhand.evaluation.runs.tracking import Tracker
from evenhand.evaluation.settings import ModelSettings
from tests.forked_commands import ENVIRONMENT, wait_until
from tests.tiny_checkpoints import qwen

pytestmark = pytest.mark.skipif(find_spec("fastapi") is None, reason="transformers' extra `serving` is not installed")


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """A served chat model, by its folder; the server is ended with the tests."""
    folder = tmp_path_factory.mktemp("served")
    qwen(folder / "qwen")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [Path(sys.executable).with_name("transformers"), "serve", "--host", "127.0.0.1", "--port", str(port)]
    with (
        (folder / "log").open("w") as log,
        subprocess.Popen([*command, "--device", "cpu"], env=ENVIRONMENT, stdout=log, stderr=log) as process,
    ):
        try:
            wait_until(lambda: process.poll() is not None or answering(port))
            assert process.poll() is None, (folder / "log").read_text()
            yield lambda **told: ModelSettings(name=str(folder / "qwen"), server=f"http://127.0.0.1:{port}/v1", **told)
        finally:
            process.kill()


def answering(port):
    with suppress(URLError, OSError), urlopen(f"http://127.0.0.1:{port}/health") as answer:
        return answer.status == 200
    return False


def asked(model, n):
    prompts = [f"I'm person {row}." for row in range(n)]
    return build_requests(model, prompts, [""] * n, range(n), "", {"temperature": 1.0, "max_tokens": 8})


def test_every_prompt_is_answered_once_and_by_its_seed_where_one_is_asked_at_a_time(served):
    found = []
    for concurrency in (1, 1, 8):
        model = served(concurrency=concurrency)
        batches = list(fetch_answers(model, asked(model, 6)))
        assert [row for rows, _ in batches for row in rows] == list(range(6))
        found.append([text for _, texts in batches for text in texts])
    assert found[0] == found[1] and len(set(found[0])) > 3


def test_what_it_cannot_do_is_one_line(served, tmp_path, monkeypatch):
    model, run = served(api="completions"), Run(tmp_path, "a fingerprint", Tracker())
    with pytest.raises(InputError, match=r"`echo`.*`prompt_logprobs`"):
        served_log_likelihoods(run, model, ["I love dogs."])
    monkeypatch.setattr(server, "MAX_FIRST_RETRIES", 0)
    body = {**asked(served(), 1)[0], "model": str(tmp_path / "none")}
    with pytest.raises(InputError, match="status 500"):
        list(fetch_answers(served(), [body]))
