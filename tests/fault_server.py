"""An OpenAI-compatible server whose answers are hashes of the requests, and which fails as configured.

    python -m tests.fault_server FILE DIES_AFTER

serves in a separate process, prints its URL, writes the seed of each answer into the file, and kills itself after
DIES_AFTER answers.
"""

import hashlib
import json
import os
import random
import signal
import socket
import struct
import subprocess
import sys
import threading
from collections import Counter
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

ANSWERS = ("I am so sorry to hear that.", "Do you like to cook?", "That is great!", "I have no idea.")


def answer_to(body, salt=""):
    """Return the answer to a body, which depends on its prompt, its seed and the salt."""
    seed = body.get("seed")
    read = json.dumps([body.get("messages", body.get("prompt")), seed, salt])
    answer = ANSWERS[hashlib.sha256(read.encode()).digest()[0] % len(ANSWERS)]
    return f"{answer}{salt} {seed}"


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self._send({})

    def do_POST(self):
        config = self.server.config
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with config["lock"]:
            config["keys"].add(self.headers["Authorization"])
            config["bodies"].append(body)
            salt = len(config["bodies"]) if config["seedless"] else ""
            fault = config["random"].choice(config["faults"]) if config["random"].random() < config["share"] else None
            fault = "bad" if body.get("max_tokens") == "refuse" else fault
            config["failed"][fault] += 1
            if config["file"]:
                if len(config["bodies"]) > config["dies_after"]:
                    os.kill(os.getpid(), signal.SIGKILL)
                print(body["seed"], file=config["file"], flush=True)
        text = answer_to(body, salt)
        is_chat = self.path == "/v1/chat/completions"
        choice = {"index": 0, "finish_reason": "stop"} | (
            {"message": {"role": "assistant", "content": text}} if is_chat else {"text": text, **self._scores(body)}
        )
        if config["reject"] and not fault and (rejected := config["reject"](body)):
            self._send(rejected[1], rejected[0])
            return
        if config["choice"] and not fault:
            choice |= config["choice"](body) or {}
            fault = None if config["choice"](body) else "bad"
        choices = {"choices": config["choices"](body, choice) if config["choices"] else [choice]}
        if config["body"] and not fault:
            choices = config["body"](body, choice)
        getattr(self, f"_{fault or 'send'}")(
            {"id": "x", "object": "x", "created": 0, "model": body["model"], **choices}
        )

    def _scores(self, body):
        """Return the log-probabilities of the prompt's tokens, if the body requests them."""
        if "echo" not in body or self.server.config["logprobs"] is None:
            return {}
        values = [None, *self.server.config["logprobs"](body["prompt"])]
        tokens = [*map(str, body["prompt"]), "generated"]
        return {"logprobs": {"tokens": tokens, "token_logprobs": [*values, -0.5]}}

    def _send(self, answer, status=200, cut=None, **headers):
        sent = json.dumps(answer).encode()[:cut]
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", "Content-Length": str(len(sent)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(sent)

    def _start(self, length):
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(length))
        self.end_headers()

    def _rate(self, answer):
        self._send({"error": {"message": "slow down"}}, 429, Retry_After="0.02")

    def _broken(self, answer):
        self._send({"error": {"message": f"for {self.headers['Authorization']}"}}, 500, Retry_After="0.02")

    def _cut(self, answer):
        self._send(answer, cut=30)

    def _none(self, answer):
        self._send({**answer, "choices": []})

    def _two(self, answer):
        self._send({**answer, "choices": answer["choices"] * 2})

    def _reset(self, answer):
        # Closed with a linger of nothing, a connection is reset.
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close_connection = True
        self.connection.close()
        self.wfile = self.rfile = open("/dev/null", "r+b", buffering=0)  # noqa: PTH123, SIM115

    def _hang(self, answer):
        self._send({}, Hangs="true")  # `hangs_time_out` makes a time-out of it

    def _silent(self, answer):
        self.server.config["ended"].wait()
        self.close_connection = True

    def _refused(self, answer):
        self._send({"error": {"message": f"bad key {self.headers['Authorization']}"}}, 401)

    def _bad(self, answer):
        self._send({"error": {"message": f"no such model, said {self.headers['Authorization']}"}}, 400)

    def _detailed(self, answer):
        self._send({"detail": f"unexpected field, said {self.headers['Authorization']}"}, 422)

    def _elsewhere(self, answer):
        self._send({}, 307, Location=self.server.config.get("elsewhere", "http://elsewhere.example/v1"))

    def _nested(self, answer):
        self._start(200_000)
        self.wfile.write(b"[" * 200_000)

    def _drip(self, answer):
        self._start(10**9)
        while not self.server.config["ended"].wait(0.05):
            self.wfile.write(b" ")
        self.close_connection = True

    def log_message(self, *_):
        pass


class Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def handle_error(self, *_):
        """Ignore clients that disconnect."""


@contextmanager
def serving(
    *faults, share=0.3, seedless=False, logprobs=None, choice=None, reject=None, choices=None, body=None, port=0
):
    """Yield the URL of a server and its record: `bodies`, `keys`, and how often it `failed`, by fault.

    `logprobs` is a function that returns log p of all ids of a prompt but the first. `choice` is a function of a body
    that returns fields of the answer's choice; the request is rejected if it returns {}. `reject` is a function of a
    body that returns None, or the status and body of a rejection. `choices` is a function of a body and its choice that
    returns the list of choices. `body` is such a function that returns the fields of the answer's body.
    """
    config = {"faults": faults, "share": share if faults else 0, "seedless": seedless, "random": random.Random(0)}
    config |= {"logprobs": logprobs, "choice": choice, "reject": reject, "choices": choices, "body": body, "file": None}
    config |= {"lock": threading.Lock(), "bodies": [], "keys": set(), "failed": Counter(), "ended": threading.Event()}
    server = Server(("127.0.0.1", port), Handler)
    server.config = config
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/v1", config
    finally:
        config["ended"].set()
        server.shutdown()
        server.server_close()


@contextmanager
def serving_alone(file, dies_after=10**9):
    """Yield the URL of a server in a separate process, which writes the seeds of its answers into a file."""
    command = [sys.executable, "-m", "tests.fault_server", str(file), str(dies_after)]
    with subprocess.Popen(command, cwd=Path(__file__).parents[1], stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process.stdout.readline().strip()
        finally:
            process.kill()


if __name__ == "__main__":
    with serving() as (url, config), Path(sys.argv[1]).open("w") as file:
        config |= {"file": file, "dies_after": int(sys.argv[2])}
        print(url, flush=True)
        threading.Event().wait()
