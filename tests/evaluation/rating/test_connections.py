"""The rating server over sockets: requests that end early, late or not at all."""

import logging
import socket
import threading
import time

import pytest
import uvicorn

from evenhand.evaluation.rating import server as rating_server
from evenhand.evaluation.rating.server import listen, rating_app, server_config
from tests.evaluation.rating.rated_pairs import rating

TOKEN = "t0k3n"
PATIENCE = 20  # seconds


class Served:
    """A rating server in a thread, and the errors that it logs."""

    def __init__(self, app, listening, caplog):
        self.address = listening.getsockname()
        self.caplog = caplog
        self.server = uvicorn.Server(server_config(app))
        logging.getLogger("uvicorn.error").addHandler(
            caplog.handler
        )  # uvicorn's loggers do not reach the root's handlers
        self.thread = threading.Thread(target=self.server.run, kwargs={"sockets": [listening]})
        self.thread.start()

    def errors(self):
        """Stop the server, and return what it logged once no request is left."""
        self.server.should_exit = True
        self.thread.join(PATIENCE)
        assert not self.thread.is_alive()
        return [record.getMessage() for record in self.caplog.records if record.name == "uvicorn.error"]

    def post(self, length):
        """Send the head of a vote, and return the connection once the server waits for its body."""
        connection = socket.create_connection(self.address, PATIENCE)
        host = f"{self.address[0]}:{self.address[1]}"
        head = f"POST /{TOKEN}/vote HTTP/1.1\r\nHost: {host}\r\nOrigin: http://{host}\r\nContent-Length: {length}\r\n"
        connection.sendall(f"{head}Expect: 100-continue\r\n\r\n".encode())
        assert connection.recv(1 << 12).startswith(b"HTTP/1.1 100 ")
        return connection


@pytest.fixture
def judged(tmp_path):
    return rating(tmp_path)


@pytest.fixture
def served(judged, caplog):
    with listen("127.0.0.1", 0) as listening:
        it = Served(rating_app(judged, TOKEN, "127.0.0.1"), listening, caplog)
        yield it
        it.errors()
        logging.getLogger("uvicorn.error").removeHandler(caplog.handler)


def received(connection):
    """Return all bytes until the server closes the connection."""
    return b"".join(iter(lambda: connection.recv(1 << 12), b""))


def test_a_disconnect_in_mid_body_is_no_error_of_the_server(served, judged):
    with served.post(100) as connection:
        connection.sendall(b"rater=anna&choice=le")
    assert served.errors() == []
    assert len(judged.votes) == 0


def test_a_body_shorter_than_announced_is_given_up(served, judged, monkeypatch):
    monkeypatch.setattr(rating_server, "BODY_SECONDS", 0.5)
    with served.post(100) as connection:
        connection.settimeout(5)
        connection.sendall(b"rater=anna&choice=left")
        response = received(connection)
    assert response.startswith(b"HTTP/1.1 408 ")
    assert response.endswith(b"This is no vote: it did not arrive whole in 0.5 seconds.")
    assert served.errors() == []
    assert len(judged.votes) == 0


def test_the_limit_is_of_the_whole_body(served, monkeypatch):
    """A byte now and then does not keep a connection open."""
    monkeypatch.setattr(rating_server, "BODY_SECONDS", 0.5)
    with served.post(100) as connection:
        connection.settimeout(0.1)
        for _ in range(50):
            try:
                connection.sendall(b"x")
                response = received(connection)
                break
            except TimeoutError:
                time.sleep(0.01)
        else:
            pytest.fail("the connection is still open")
    assert response.startswith(b"HTTP/1.1 408 ")


def test_a_body_that_is_not_utf8_is_refused_without_an_error(served):
    with served.post(8) as connection:
        connection.sendall(b"rater=\xff\xfe")
        assert connection.recv(1 << 12).startswith(b"HTTP/1.1 400 ")
    assert served.errors() == []
