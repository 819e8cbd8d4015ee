"""An OpenAI-compatible server that answers by a hash of what it is asked, and fails as it is told to.

    python -m tests.fault_server FILE DIES_AFTER

serves in a process of its own, prints its URL, writes the seeds that it answers into the file, a line each, and kills
itself before it answers one more than it may.
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
import time
from collections import Counter
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

ANSWERS = ("I am so sorry to hear that.", "Do you like to cook?", "That is great!", "I have no idea.")


def answer_to(body, own=""):
    """The answer that a body gets: the same to the same prompt and seed, unless the server has a whim of its `own`."""
    seed = body.get("seed")
    read = json.dumps([body.get("messages", body.get("prompt")), seed, own])
    answer = ANSWERS[hashlib.sha256(read.encode()).digest()[0] % len(ANSWERS)]
    return f"{answer}{own} {seed}"


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        told = self.server.config
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with told["lock"]:
            told["keys"].add(self.headers["Authorization"])
            told["bodies"].append(body)
            own = len(told["bodies"]) if told["seedless"] else ""
            fault = told["random"].choice(told["faults"]) if told["random"].random() < told["share"] else None
            fault = "bad" if body["max_tokens"] == "refuse" else fault
            told["failed"][fault] += 1
            if told["file"]:
                if len(told["bodies"]) > told["dies_after"]:
                    os.kill(os.getpid(), signal.SIGKILL)
                print(body["seed"], file=told["file"], flush=True)
        text = answer_to(body, own)
        is_chat = self.path == "/v1/chat/completions"
        choice = {"index": 0, "finish_reason": "stop"} | (
            {"message": {"role": "assistant", "content": text}} if is_chat else {"text": text, **self._scores(body)}
        )
        getattr(self, f"_{fault or 'send'}")(
            {"id": "x", "object": "x", "created": 0, "model": body["model"], "choices": [choice]}
        )

    def _scores(self, body):
        """What is asked for of the prompt's tokens, where this server has it: `echo` or `prompt_logprobs`."""
        way, log_p = self.server.config["says"]
        if way not in body:
            return {}
        found = [None, *log_p(body["prompt"])]
        if way == "prompt_logprobs":
            places = zip(body["prompt"][1:], found[1:], strict=True)
            return {way: [None, *({"7": {"logprob": -9.0}, str(token): {"logprob": it}} for token, it in places)]}
        tokens = [*map(str, body["prompt"]), "generated"]
        return {"logprobs": {"tokens": tokens, "token_logprobs": [*found, -0.5]}}

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
        time.sleep(3)
        self.close_connection = True

    def _refused(self, answer):
        self._send({"error": {"message": f"bad key {self.headers['Authorization']}"}}, 401)

    def _bad(self, answer):
        self._send({"error": {"message": f"no such model, said {self.headers['Authorization']}"}}, 400)

    def _detailed(self, answer):
        self._send({"detail": f"unexpected field, said {self.headers['Authorization']}"}, 422)

    def _elsewhere(self, answer):
        self._send({}, 307, Location="http://elsewhere.example/v1")

    def _large(self, answer):
        self._send({**answer, "padding": "x" * 2_000_000})

    def _compressed(self, answer):
        self._send(answer, Content_Encoding="gzip")

    def _nested(self, answer):
        self._start(200_000)
        self.wfile.write(b"[" * 200_000)

    def _drip(self, answer):
        self._start(1000)
        for _ in range(100):
            self.wfile.write(b" ")
            time.sleep(0.05)

    def _surrogate(self, answer):
        choice = answer["choices"][0]
        choice.get("message", choice)["content" if "message" in choice else "text"] = "half \ud83d of one"
        self._send(answer)

    def _renamed(self, answer):
        self._send({**answer, "model": "another"})

    def log_message(self, *_):
        pass


class Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def handle_error(self, *_):
        """A client that went away is what is tested."""


@contextmanager
def serving(*faults, share=0.3, seedless=False, says=(None, None)):
    """Yield the URL of a server, and what it saw: `bodies`, `keys`, and how often it `failed`, by fault.

    `says` is how it says log p of a prompt's tokens ("echo" or "prompt_logprobs"), and what returns it for all ids but
    the first.
    """
    told = {"faults": faults, "share": share if faults else 0, "seedless": seedless, "random": random.Random(0)}
    told |= {"says": says, "file": None}
    told |= {"lock": threading.Lock(), "bodies": [], "keys": set(), "failed": Counter()}
    server = Server(("127.0.0.1", 0), Handler)
    server.config = told
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/v1", told
    finally:
        server.shutdown()
        server.server_close()


@contextmanager
def serving_alone(file, dies_after=10**9):
    """Yield the URL of a server in a process of its own, which writes the seeds that it answered into a file."""
    command = [sys.executable, "-m", "tests.fault_server", str(file), str(dies_after)]
    with subprocess.Popen(command, cwd=Path(__file__).parents[1], stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process.stdout.readline().strip()
        finally:
            process.kill()


if __name__ == "__main__":
    with serving() as (url, told), Path(sys.argv[1]).open("w") as file:
        told |= {"file": file, "dies_after": int(sys.argv[2])}
        print(url, flush=True)
        threading.Event().wait()
