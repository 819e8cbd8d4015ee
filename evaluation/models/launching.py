"""Servers that Evenhand starts for a measurement: vLLM or `transformers serve`, on a free port of this machine.

A supervisor (`supervisor.py`) runs the server, and ends it when Evenhand's process ends, however it ends.
"""

import json
import logging
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from urllib.error import URLError
from urllib.request import ProxyHandler, build_opener

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.json_values import Json
from evenhand.evaluation.model_settings import ModelSettings
from evenhand.evaluation.models.revisions import local_path
from evenhand.evaluation.runs import processes
from evenhand.evaluation.runs.progress import working
from evenhand.evaluation.untrusted_text import escape_hidden

log = logging.getLogger("evenhand")

HOST = "127.0.0.1"
SUPERVISOR = Path(__file__).with_name("supervisor.py")
SECONDS_BETWEEN_CHECKS = 0.5
SECONDS_TO_START = 2 * 3600  # of a model of hundreds of GB that is downloaded first
SECONDS_TO_END = 60
LOG_LINES = 5  # of the server's log, in an error
LOG_CHARACTERS = 1000


class LaunchedServer:
    """A server that was started, and answers.

    Attributes:
        address: the URL of its API.
        log: the file of its output.
    """

    def __init__(self, model: ModelSettings) -> None:
        """Start the server that `model.launch` names, and wait until it answers.

        Raises:
            InputError: the command is not installed, the server ends, or several processes would each start one.
        """
        check_launch(model)
        port = _free_port()
        self.address = f"http://{HOST}:{port}/v1"
        command = server_command(model, port)
        with tempfile.NamedTemporaryFile(prefix=f"evenhand-{model.launch}-", suffix=".log", delete=False) as file:
            self.log = Path(file.name)
            log.info("starting %s; its log is %s", " ".join(command), self.log)
            self.process = subprocess.Popen(
                [sys.executable, "-I", str(SUPERVISOR), *command],
                stdin=subprocess.PIPE,
                stdout=file,
                stderr=file,
                start_new_session=True,
            )
        try:
            with working(f"starting {model.launch}"):
                self._wait(f"http://{HOST}:{port}/health")
        except BaseException:
            self.close()
            raise

    def _wait(self, health: str) -> None:
        """Wait until the server answers."""
        deadline = time.monotonic() + SECONDS_TO_START
        opener = build_opener(ProxyHandler({}))  # a proxy does not reach this machine's own address
        while self.process.poll() is None and time.monotonic() < deadline:
            with suppress(URLError, OSError), opener.open(health, timeout=10) as answer:
                if answer.status == 200:
                    return
            time.sleep(SECONDS_BETWEEN_CHECKS)
        lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines()[-LOG_LINES:]
        said = escape_hidden(" ".join(lines))[-LOG_CHARACTERS:]
        what = "ended before it answered"
        if self.process.poll() is None:
            what = f"has not answered for {SECONDS_TO_START / 3600:g} hours"
        raise InputError("model.launch", f"the server {what}: “{said}”; its log is {self.log}.")

    def close(self) -> None:
        """End the server, and wait until it has ended."""
        if self.process.stdin is not None:
            self.process.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(SECONDS_TO_END)


def check_launch(model: ModelSettings) -> None:
    """Raise InputError if the server of a model cannot be started, without starting it."""
    if processes.launched_world_size() > 1:
        raise InputError(
            "model.launch", "a launcher started several processes; start one, and set tensor_parallel_size."
        )
    server_command(model, port=0)


def server_command(model: ModelSettings, port: int) -> list[str]:
    """Return the command line that starts the server of a model.

    Raises:
        InputError: the command is not installed, or cannot serve the model's revision.
    """
    name = str(local_path(model.name))
    listen = [f"--host={HOST}", f"--port={port}"]
    given = flags(model.launch_arguments or {})
    if model.launch == "transformers":
        if model.revision is not None:
            raise InputError("model.revision", "`transformers serve` takes none; give launch: vllm, or a folder.")
        return [_executable("transformers"), "serve", name, *listen, *given]
    # By default, vLLM has the decoding of the checkpoint's generation config where a request has none.
    fixed = [f"--served-model-name={model.name}", "--generation-config=vllm", *listen]
    if model.revision is not None:
        fixed.append(f"--revision={model.revision}")
    return [_executable("vllm"), "serve", name, *fixed, *given]


def flags(arguments: Mapping[str, Json]) -> list[str]:
    """Return arguments as flags of a command line.

    >>> flags({"tensor_parallel_size": 8, "enforce_eager": True, "async_scheduling": False, "hf_overrides": {"a": 1}})
    ['--tensor-parallel-size=8', '--enforce-eager', '--no-async-scheduling', '--hf-overrides={"a": 1}']
    """
    found = []
    for name, value in arguments.items():
        flag = name.replace("_", "-")
        if value is True:
            found.append(f"--{flag}")
        elif value is False:
            found.append(f"--no-{flag}")
        else:
            text = value if isinstance(value, str) else json.dumps(value)
            found.append(f"--{flag}={text}")
    return found


def _executable(name: str) -> str:
    """Return the path of a command: of this environment, else the first in PATH."""
    here = Path(sys.executable).with_name(name)
    found = str(here) if here.exists() else shutil.which(name)
    if found is None:
        raise InputError(
            "model.launch", f"the command {name} is not installed; install it, or put its folder into PATH."
        )
    return found


def _free_port() -> int:
    with socket.socket() as free:
        free.bind((HOST, 0))
        return free.getsockname()[1]
