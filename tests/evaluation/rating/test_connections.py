"""The rating server with slow, incomplete and invalid requests over sockets."""

import logging
import socket
import threading

import pytest
import uvicorn

from evenhand.evaluation.rating import server as rating_server
from evenhand.evaluation.rating.server import listen, rating_app, server_config
from tests.evaluation.rating.rated_pairs import rating

TOKEN = "t0k3n"
TIMEOUT = 20  # seconds


class RunningServer:
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
        self.thread.join(TIMEOUT)
        assert not self.thread.is_alive()
        return [record.getMessage() for record in self.caplog.records if record.name == "uvicorn.error"]

    def post(self, length):
        """Send the head of a vote, and return the connection once the server waits for its body."""
        connection = socket.create_connection(self.address, TIMEOUT)
        host = f"{self.address[0]}:{self.address[1]}"
        head = f"POST /{TOKEN}/vote HTTP/1.1\r\nHost: {host}\r\nOrigin: http://{host}\r\nContent-Length: {length}\r\n"
        connection.sendall(f"{head}Expect: 100-continue\r\n\r\n".encode())
        assert connection.recv(1 << 12).startswith(b"HTTP/1.1 100 ")
        return connection


@pytest.fixture
def rated(tmp_path):
    return rating(tmp_path)


@pytest.fixture
def served(rated, caplog):
    with listen("127.0.0.1", 0) as listening:
        server = RunningServer(rating_app(rated, TOKEN, "127.0.0.1"), listening, caplog)
        yield server
        server.errors()
        logging.getLogger("uvicorn.error").removeHandler(caplog.handler)


def read_all(connection):
    """Return all bytes until the server closes the connection."""
    return b"".join(iter(lambda: connection.recv(1 << 12), b""))


def test_the_server_logs_no_error_if_a_client_disconnects(served, rated):
    with served.post(100) as connection:
        connection.sendall(b"rater=anna&choice=le")
    assert served.errors() == []
    assert len(rated.votes) == 0


def test_a_body_shorter_than_its_length_times_out(served, rated, monkeypatch):
    monkeypatch.setattr(rating_server, "BODY_SECONDS", 0.5)
    with served.post(100) as connection:
        connection.settimeout(5)
        connection.sendall(b"rater=anna&choice=left")
        response = read_all(connection)
    assert response.startswith(b"HTTP/1.1 408 ")
    assert b"0.5 seconds" in response
    assert served.errors() == []
    assert len(rated.votes) == 0
