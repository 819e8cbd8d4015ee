"""Ranks as a launcher sets them in the environment, and values that rank 0 computes for all."""

import os
import socket
import subprocess
import sys

import pytest

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.runs import processes
from tests.forked_commands import PATIENCE


def of_two(monkeypatch, number):
    for name, value in (("LOCAL_RANK", number), ("RANK", number), ("WORLD_SIZE", 2)):
        monkeypatch.setenv(name, str(value))


@pytest.mark.parametrize("number", [0, 1])
def test_the_launcher_says_which_process_it_is(monkeypatch, number):
    of_two(monkeypatch, number)
    assert (processes.launched_world_size(), processes.world_size(), processes.rank()) == (2, 2, number)
    assert processes.is_rank_zero() == (number == 0) and processes.rank_label() == f" (process {number} of 2)"


def test_a_process_that_is_gone_is_one_line(monkeypatch):
    import torch

    of_two(monkeypatch, 1)
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)

    def closed(*_, **__):
        raise RuntimeError("Connection closed by peer")

    monkeypatch.setattr(torch.distributed, "broadcast_object_list", closed)
    monkeypatch.setattr(torch.distributed, "all_gather_object", closed)
    for waiting in (lambda: processes.on_rank_zero(lambda: 1), processes.barrier):
        with pytest.raises(InputError, match="another of the 2 processes .*The same command"):
            waiting()


@pytest.mark.parametrize(("name", "value"), [("WORLD_SIZE", "two"), ("RANK", "2"), ("RANK", "-1"), ("WORLD_SIZE", "")])
def test_variables_that_do_not_fit_together_are_one_error(monkeypatch, name, value):
    of_two(monkeypatch, 0)
    processes.check_launcher()
    monkeypatch.setenv(name, value)
    with pytest.raises(InputError, match="^LOCAL_RANK: "):
        processes.check_launcher()


PROGRAM = """
import signal, sys
from evenhand.evaluation.runs import processes
from evenhand.evaluation.errors import InputError
signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
processes.SECONDS_TO_NOTE, processes.SECONDS_TO_CONNECT = 0, {seconds}
print("waiting", flush=True)
try:
    processes.barrier()
except InputError as error:
    sys.exit(str(error))
"""


@pytest.fixture
def left_over():
    """Start a process with the variables of a launcher that is gone; it waits for another process for some seconds."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    variables = {
        "LOCAL_RANK": "0",
        "RANK": "0",
        "WORLD_SIZE": "2",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }
    started = []

    def start(seconds):
        command = [sys.executable, "-c", PROGRAM.format(seconds=seconds)]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        started.append(subprocess.Popen(command, env={**os.environ, **variables}, **pipes))
        assert started[-1].stdout.readline() == "waiting\n"
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.communicate()


def test_left_over_variables_end_in_one_error(left_over):
    process = left_over(seconds=1)
    assert "the other 1 of WORLD_SIZE 2 processes did not connect in 1 seconds" in process.communicate()[1]
    assert process.returncode == 1


def test_a_process_that_waits_for_others_can_be_ended(left_over):
    process = left_over(seconds=PATIENCE)
    process.terminate()
    process.communicate(timeout=PATIENCE)
    assert process.returncode == 143
