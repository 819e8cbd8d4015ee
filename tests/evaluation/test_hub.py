"""What is said of a hub that answers, that cannot be reached, that is switched off, and that gets an upload."""

import json
import socket
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread

import pytest
from huggingface_hub import constants

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.hub import check_upload, hub, offline_reason, upload
from evenhand.evaluation.models.revisions import model_revision

ACCOUNTS = {"reader": "read", "writer": "write"}


class Hub(BaseHTTPRequestHandler):
    """Answers who has a token; refuses all that would change something."""

    def do_HEAD(self):
        self.send_error(405)

    def do_GET(self):
        if "whoami" not in self.path:
            self.send_error(404)
            return
        token = self.headers.get("Authorization", "").removeprefix("Bearer ")
        role = ACCOUNTS.get(token)
        body = json.dumps({"name": token, "auth": {"accessToken": {"role": role}}}).encode()
        self.send_response(200 if role else 401)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self):
        self.send_error(403)

    def log_message(self, *_):
        pass


@pytest.fixture(autouse=True)
def online(monkeypatch):
    """Let each test ask anew whether the hub can be reached."""
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    offline_reason.cache_clear()
    yield
    offline_reason.cache_clear()


@pytest.fixture
def reached(monkeypatch):
    server = HTTPServer(("127.0.0.1", 0), Hub)
    thread = Thread(target=server.serve_forever)
    thread.start()
    monkeypatch.setattr(constants, "ENDPOINT", f"http://127.0.0.1:{server.server_port}")
    yield
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def unreached(monkeypatch):
    with socket.socket() as bound:  # nothing listens at its port
        bound.bind(("127.0.0.1", 0))
        monkeypatch.setattr(constants, "ENDPOINT", f"http://127.0.0.1:{bound.getsockname()[1]}")
        yield


def test_a_hub_that_answers_with_an_error_is_reached(reached):
    assert offline_reason() == ""
    assert not constants.HF_HUB_OFFLINE


@pytest.mark.parametrize(
    ("variable", "proxy"), [("all_proxy", "http://127.0.0.1:9"), ("http_proxy", "socks5h://[::1]:9")]
)
def test_a_proxy_that_only_the_client_knows_is_left_to_it(unreached, monkeypatch, variable, proxy):
    for name in ("all_proxy", "http_proxy", "https_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    monkeypatch.setenv(variable, proxy)
    assert offline_reason() == ""


def test_without_a_connection_the_client_works_offline_and_a_missing_model_says_what_to_do(unreached):
    with pytest.raises(InputError, match="^model: .*org/name.*Connection refused.*hf download org/name.*--server"):
        model_revision("org/name")
    assert constants.HF_HUB_OFFLINE
    assert hub().is_offline_mode()


def test_a_hub_that_the_user_switched_off_is_not_asked(monkeypatch, unreached):
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert offline_reason().startswith("HF_HUB_OFFLINE is set")


def test_nothing_is_exported_for_an_upload_that_cannot_succeed(monkeypatch, reached):
    monkeypatch.setenv("HF_TOKEN", "writer")
    check_upload("somebody/even", "push_to_hub")
    with pytest.raises(InputError, match="^push_to_hub: .*NAME/MODEL"):
        check_upload("somebody/even/model", "push_to_hub")
    monkeypatch.setenv("HF_TOKEN", "reader")
    with pytest.raises(InputError, match="^push_to_hub: .*'reader' may only read.*hf auth login"):
        check_upload("somebody/even", "push_to_hub")
    monkeypatch.setenv("HF_TOKEN", "nobody")
    with pytest.raises(InputError, match="^push_to_hub: .*invalid.*hf auth login"):
        check_upload("somebody/even", "push_to_hub")


def test_an_upload_without_a_connection_is_refused(unreached):
    with pytest.raises(InputError, match="^push_to_hub: the hub .* cannot be reached"):
        check_upload("somebody/even", "push_to_hub")


def test_a_refused_upload_says_where_the_export_is(monkeypatch, reached, tmp_path):
    monkeypatch.setenv("HF_TOKEN", "writer")
    with pytest.raises(InputError, match=f"^push_to_hub: 'them/even' .*403.*{tmp_path}"):
        upload("them/even", tmp_path, "Exported", "push_to_hub")
