"""Responses of `transformers serve` on loopback, which depend on the seed only if requests come one at a time."""

import socket
from contextlib import suppress
from importlib.util import find_spec
from urllib.error import URLError
from urllib.request import urlopen

import pytest

from evenhand.evaluation.model_settings import ModelSettings
from evenhand.evaluation.models.server_client import build_requests, fetch_answers, parse_response
from tests.forked_commands import wait_until
from tests.tiny_checkpoints import qwen

pytestmark = pytest.mark.skipif(find_spec("fastapi") is None, reason="transformers' extra `serving` is not installed")

# The program `transformers`.
SERVE = """
import sys

from transformers.cli.transformers import main

sys.argv = ["transformers", "serve", "--host", "127.0.0.1", "--port", "{port}", "--device", "cpu"]
sys.exit(main())
"""


def is_ready(port):
    with suppress(URLError, OSError), urlopen(f"http://127.0.0.1:{port}/health") as answer:
        return answer.status == 200
    return False


def test_each_prompt_has_one_answer_which_its_seed_fixes_without_concurrency(commands, tmp_path):
    qwen(tmp_path / "qwen")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    prompts, responses, arguments = [f"I'm person {row}." for row in range(6)], [], {"temperature": 1, "max_tokens": 8}
    process = commands.start("-c", SERVE.format(port=port))
    try:
        wait_until(lambda: process.status() is not None or is_ready(port))
        for concurrency in (1, 1, 8):
            url = f"http://127.0.0.1:{port}/v1"
            model = ModelSettings(name=str(tmp_path / "qwen"), server=url, concurrency=concurrency)
            requests = build_requests(model, prompts, [""] * 6, range(6), "", arguments)
            batches = fetch_answers(model, requests, lambda answer, body: parse_response(answer, body).text)
            answers = {row: text for rows, texts in batches for row, text in zip(rows, texts, strict=True)}
            responses.append([answers[row] for row in range(6)])
    finally:
        process.kill()
    assert responses[0] == responses[1] and len(set(responses[0])) > 3
