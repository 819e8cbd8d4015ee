"""Threads sleep while they wait where other programs use the processors, unless the user chose otherwise."""

import os

import pytest

from evenhand.evaluation.runs.waiting_threads import VARIABLES, let_waiting_threads_sleep


@pytest.mark.parametrize(
    ("load", "environment", "is_set"),
    [
        (0.1, {}, False),
        (3.0, {}, True),
        (3.0, {"OMP_NUM_THREADS": "1"}, False),
        (0.6, {"OMP_NUM_THREADS": "2"}, True),
        (3.0, {"GOMP_SPINCOUNT": "5"}, False),
        (3.0, {"OMP_WAIT_POLICY": "active"}, False),
    ],
)
def test_only_where_the_machine_is_busy(load, environment, is_set, monkeypatch):
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    monkeypatch.setattr(os, "getloadavg", lambda: (load, 0.0, 0.0))
    for name in ("OMP_NUM_THREADS", *VARIABLES):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert bool(let_waiting_threads_sleep()) == is_set
    assert (os.environ.get("OMP_WAIT_POLICY") == "passive") == is_set
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
