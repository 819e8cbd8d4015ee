"""Commands in processes of their own that can be killed, forked from one process that has imported everything.

Importing torch and what stands on it takes ten seconds, which is more than most commands of the tests take. One server
has imported it for all workers of pytest-xdist. It forks a process for each connection, which forks a process for each
command, one at a time; the server ends once there are no connections.
"""

import gc
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import redirect_stdout, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from filelock import FileLock

ROOT = Path(__file__).resolve().parents[1]
OF_TESTS = {  # of this process, too (conftest)
    "HF_HUB_OFFLINE": "1",
    "WANDB_MODE": "offline",
    "WANDB_SILENT": "true",
    "WANDB__SERVICE_WAIT": "1800",  # seconds; a loaded machine can be very slow
    "TOKENIZERS_PARALLELISM": "false",
    "EVENHAND_DTYPE": "float32",  # what `auto` means: expected values are the same on every CPU
}
ENVIRONMENT = {**os.environ, **OF_TESTS, "OMP_NUM_THREADS": "1"}
IDLE = 60.0  # seconds without a connection after which the server ends
PATIENCE = 1800.0  # seconds; a loaded machine can be very slow


@dataclass
class Running:
    """A command that was started: its process, and the folder of what it prints and of its status."""

    folder: Path
    pid: int

    def status(self) -> int | None:
        """The exit status, negative for a signal; None while it runs."""
        file = self.folder / "status"
        return int(file.read_text()) if file.exists() else None

    def wait(self) -> int:
        """The exit status, once it has ended."""
        wait_until(lambda: self.status() is not None)
        return self.status()

    def kill(self, sent: int = signal.SIGKILL) -> int:
        """Send it a signal, and return the exit status once it has ended."""
        with suppress(ProcessLookupError):
            os.kill(self.pid, sent)
        return self.wait()

    @property
    def stdout(self) -> str:
        return (self.folder / "stdout").read_text(encoding="utf-8")

    @property
    def stderr(self) -> str:
        return (self.folder / "stderr").read_text(encoding="utf-8")


class ForkedCommands:
    """Starts `evenhand` commands, one at a time. At the end of a `with` block, it ends those that still run.

    Attributes:
        folder: where a folder for each command is made.
        shared: a folder with the port of the server, the same for all that use it.
    """

    def __init__(self, folder: Path, shared: Path) -> None:
        self.folder = folder
        self.shared = shared
        self.started = 0
        known = shared / "commands.port"
        with FileLock(shared / "commands.lock"):
            if not (known.exists() and self._connect(int(known.read_text()))):
                port = start_server()
                assert self._connect(port)
                known.write_text(str(port))

    def _connect(self, port: int) -> bool:
        """Whether there was a server to connect to."""
        with suppress(OSError):
            self.connection = socket.create_connection(("127.0.0.1", port))
            self.lines = self.connection.makefile("rw")
            self.pid = int(self.lines.readline() or 0)
            return self.pid > 0
        return False

    def __enter__(self) -> "ForkedCommands":
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self.lines.close()
        self.connection.close()

    def start(self, *arguments: str, cwd: Path = ROOT, processes: int = 1, own: Path | None = None) -> Running:
        """Start a command; one at a time.

        Args:
            arguments: those of `evenhand`, or "-c" and a program.
            cwd: where it works.
            processes: how many there are, started as by torchrun.
            own: a folder for EVENHAND_PATH, with which all modules of this project are imported anew.
        """
        self.started += 1
        folder = self.folder / str(self.started)
        folder.mkdir()
        self.lines.write(json.dumps([str(folder), str(cwd), processes, own and str(own), arguments]) + "\n")
        self.lines.flush()
        return Running(folder, int(self.lines.readline()))

    def run(self, *arguments: str, **options) -> Running:
        """Run a command to its end, which must be a good one."""
        running = self.start(*arguments, **options)
        assert running.wait() == 0, running.stderr
        return running

    def write_program(self, file: Path) -> None:
        """Write a shell script that does what the program `evenhand` does."""
        call = f'"{sys.executable}" -m tests.forked_commands "{self.shared}" "$@"'
        file.write_text(f'#!/bin/sh\nPYTHONPATH="{ROOT}" exec {call}\n')
        file.chmod(0o755)


def start_server() -> int:
    """Start the server and return its port."""
    command = [sys.executable, "-m", "tests.forked_commands"]
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "text": True}
    server = subprocess.Popen(command, cwd=ROOT, env=ENVIRONMENT, start_new_session=True, **pipes)
    return int(server.stdout.readline())


def wait_until(condition) -> None:
    """Wait until the condition holds, for as long as a slow machine may take."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def serve() -> None:
    """Fork a process for each connection."""
    gc.disable()  # importing leaves no garbage, and searches for it take a quarter of the time
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # libraries print when they are imported
    from evenhand.mitigation import trainers  # noqa: F401
    from evenhand.recipes import (  # noqa: F401
        ablate,
        cli,
        compare,
        export,
        label,
        loop,
        measure,
        rate,
        report,
        train_classifier,
        tune,
    )

    gc.freeze()
    gc.set_threshold(100_000)  # as in the other tests
    gc.enable()
    measure_once(cli.main)
    gc.collect()
    gc.freeze()  # a collection in the child, and there is one at its end, would copy and go through all of it
    listener = socket.create_server(("127.0.0.1", 0))
    listener.settimeout(IDLE)
    with answers:
        print(listener.getsockname()[1], file=answers)
    connected = set()
    while True:
        try:
            connection, _ = listener.accept()
        except TimeoutError:
            connected = {pid for pid in connected if os.waitpid(pid, os.WNOHANG) == (0, 0)}
            if not connected:
                return
            continue
        pid = os.fork()
        if pid == 0:
            listener.close()
            os.setsid()
            serve_connection(connection)
            os._exit(0)
        connection.close()
        connected.add(pid)


def measure_once(main) -> None:
    """Measure a few answers, so that commands need not load for the first time what is loaded when it is used.

    That is half of the time of a short measurement: templates, tables of languages, prompts and parts of libraries.
    """
    few = ["--prompts.descriptors", "14", "--prompts.answers_per_cell", "1", "--generation_bias.permutations", "9"]
    few += ["--prompts.filters", "{template: ['I like {plural_noun_phrase}.']}", "--report_to", "none", "--quiet"]
    few += ["--generation_bias.neutral_dialogue", str(ROOT / "tests" / "neutral_dialogue.jsonl")]
    with tempfile.TemporaryDirectory() as folder, Path(os.devnull).open("w") as nowhere, redirect_stdout(nowhere):
        assert main(["measure", "--config", "testbed", *few, "--output_dir", f"{folder}/run"]) == 0


def serve_connection(connection: socket.socket) -> None:
    """Fork a process for each line (`ForkedCommands.start`), and answer with its number."""
    lines = connection.makefile("rw")
    print(os.getpid(), file=lines, flush=True)
    while line := lines.readline():
        folder, cwd, processes, own, arguments = json.loads(line)
        pid = os.fork()
        if pid == 0:
            connection.close()
            os.chdir(cwd)
            for stream in ("stdout", "stderr"):
                file = os.open(f"{folder}/{stream}", os.O_WRONLY | os.O_CREAT)
                os.dup2(file, getattr(sys, stream).fileno())
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            run_child(arguments, processes, own)
        print(pid, file=lines, flush=True)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        Path(folder, "status.part").write_text(str(status))
        Path(folder, "status.part").rename(Path(folder, "status"))


def run_child(arguments: list[str], processes: int, own: str | None) -> NoReturn:
    """Run a command in this process, which ends with the command's exit status."""
    from wandb.sdk.data_types._private import MEDIA_TMP

    # TRL imported wandb, whose folder for media each process takes away as it ends: each has one of its own.
    MEDIA_TMP.__init__("wandb-media")
    if own:
        os.environ["EVENHAND_PATH"] = own
        for name in [name for name in sys.modules if name.partition(".")[0] == "evenhand"]:
            del sys.modules[name]
    if arguments[0] == "-c":
        exec(arguments[1], {"__name__": "__main__"})
        sys.exit()
    sys.argv = ["evenhand", *arguments]  # as from a shell, with the command's signal handlers
    if processes == 1:
        sys.exit(run_command())
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    together = {"rdzv_backend": "c10d", "rdzv_endpoint": "127.0.0.1:0", "start_method": "fork", "max_restarts": 0}
    elastic_launch(LaunchConfig(1, 1, nproc_per_node=processes, **together), run_rank)()
    sys.exit()


def run_command() -> int:
    """Run `evenhand` with the arguments in `sys.argv`, and return its status."""
    from evenhand.recipes.cli import main

    return main()


def run_rank() -> None:
    """Run `evenhand` in one of several processes; RuntimeError if its status is not 0."""
    status = run_command()
    if status:
        raise RuntimeError(f"status {status}")


def call(shared: str, *arguments: str) -> int:
    """Run a command in the working folder of this process, print its output, and return its exit status."""
    with tempfile.TemporaryDirectory() as folder, ForkedCommands(Path(folder), Path(shared)) as forked:
        running = forked.start(*arguments, cwd=Path.cwd())
        status = running.wait()
        sys.stderr.write(running.stderr)
        sys.stdout.write(running.stdout)
        return status


if __name__ == "__main__":
    if len(sys.argv) > 1:
        sys.exit(call(*sys.argv[1:]))
    serve()
