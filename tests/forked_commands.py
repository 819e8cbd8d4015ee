"""Commands in processes of their own that can be killed, forked from one process that has imported everything.

Importing torch and what stands on it takes ten seconds; a test that kills the loop in each of its stages would spend
most of its time on that.
"""

import gc
import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ENVIRONMENT = {**os.environ, "HF_HUB_OFFLINE": "1", "WANDB_MODE": "offline", "OMP_NUM_THREADS": "1"}
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
    """Starts `evenhand` commands one after another; as a context it ends what it started."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.started = folder, 0
        command = [sys.executable, "-m", "tests.forked_commands"]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        self.server = subprocess.Popen(command, cwd=ROOT, env=ENVIRONMENT, start_new_session=True, **pipes)

    def __enter__(self) -> "ForkedCommands":
        return self

    def __exit__(self, *_: object) -> None:
        os.killpg(self.server.pid, signal.SIGKILL)
        self.server.communicate()

    def start(self, *arguments: str, cwd: Path = ROOT) -> Running:
        """Start a command; one at a time."""
        self.started += 1
        folder = self.folder / str(self.started)
        folder.mkdir()
        self.server.stdin.write(json.dumps([str(folder), str(cwd), arguments]) + "\n")
        self.server.stdin.flush()
        return Running(folder, int(self.server.stdout.readline()))

    def run(self, *arguments: str, cwd: Path = ROOT) -> Running:
        """Run a command to its end, which must be a good one."""
        running = self.start(*arguments, cwd=cwd)
        assert running.wait() == 0, running.stderr
        return running


def wait_until(condition) -> None:
    """Wait until the condition holds, for as long as a slow machine may take."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def serve() -> None:
    """Fork a process for each line: a folder for what it leaves, where it works, and the arguments."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # libraries print when they are imported
    from wandb.sdk.data_types._private import MEDIA_TMP

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

    gc.collect()
    gc.freeze()  # a collection in the child, and there is one at its end, would copy and go through all of it
    for line in sys.stdin:
        folder, cwd, arguments = json.loads(line)
        pid = os.fork()
        if pid == 0:
            # TRL imported wandb, whose folder for media each process takes away as it ends.
            Path(MEDIA_TMP.name).mkdir(exist_ok=True)
            os.chdir(cwd)
            for stream in ("stdout", "stderr"):
                file = os.open(f"{folder}/{stream}", os.O_WRONLY | os.O_CREAT)
                os.dup2(file, getattr(sys, stream).fileno())
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            sys.argv = ["evenhand", *arguments]  # as from a shell, with the command's signal handlers
            sys.exit(cli.main())
        print(pid, file=answers, flush=True)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        Path(folder, "status.part").write_text(str(status))
        Path(folder, "status.part").rename(Path(folder, "status"))


if __name__ == "__main__":
    serve()
