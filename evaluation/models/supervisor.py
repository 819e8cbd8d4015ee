"""Runs a command, and ends it with all its processes when standard input closes.

    python supervisor.py COMMAND ARGUMENT…

Standard input is a pipe from the process that started this one. The system closes it when that process ends, however it
ends, so that the command never outlives it. The command has a session of its own: Ctrl-C does not reach it. This file
imports nothing of Evenhand, so that it starts at once.
"""

import os
import signal
import subprocess
import sys
import threading
from contextlib import suppress

SECONDS_TO_END = 30  # after SIGTERM, before SIGKILL


def main(command: list[str]) -> int:
    """Run the command, end it when standard input is closed, and return its exit status."""
    for sent in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(sent, lambda *_: sys.exit(1))
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)
    threading.Thread(target=wait_for_the_end_of_input, daemon=True).start()
    try:
        status = process.wait()
        if status < 0:
            print(f"{command[0]} was ended by {signal.Signals(-status).name}.", flush=True)  # it may have said nothing
        return status
    finally:
        end(process)


def wait_for_the_end_of_input() -> None:
    """Read standard input to its end, then leave `main`."""
    while os.read(0, 1024):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


def end(process: subprocess.Popen) -> None:
    """End a process and all others of its session's group."""
    for sent in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(sent, signal.SIG_IGN)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    with suppress(subprocess.TimeoutExpired):
        process.wait(SECONDS_TO_END)
    with suppress(ProcessLookupError):  # its workers, if they are left
        os.killpg(process.pid, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
