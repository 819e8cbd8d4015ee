"""Stands for the command `vllm`: writes its arguments and processes into the file STUB_VLLM, and serves answers.

With STUB_VLLM_FAILS, it prints a message and ends, or is ended by the signal of this name. Each token of a prompt has
the log-probability −1.
"""

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

from tests.fault_server import serving


def install(folder):
    """Write the command into a folder, for PATH."""
    folder.mkdir(exist_ok=True)
    command = folder / "vllm"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m tests.stub_vllm "$@"\n')
    command.chmod(0o755)


def processes(file):
    """Return the ids of the processes of the server that wrote the file."""
    return json.loads(file.read_text())["processes"]


def is_running(pid):
    """Return whether a process exists and is no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def main():
    failure = os.environ.get("STUB_VLLM_FAILS", "")
    if failure.startswith("SIG"):
        os.kill(os.getpid(), signal.Signals[failure])
    if failure:
        sys.exit("no GPU \x1b[31mhere")
    worker = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)"])
    (port,) = [int(each.partition("=")[2]) for each in sys.argv if each.startswith("--port=")]
    with serving(logprobs=lambda ids: [-1.0] * (len(ids) - 1), port=port):
        started = {"arguments": sys.argv[1:], "processes": [os.getpid(), worker.pid]}
        Path(os.environ["STUB_VLLM"]).write_text(json.dumps(started))
        threading.Event().wait()


if __name__ == "__main__":
    main()
