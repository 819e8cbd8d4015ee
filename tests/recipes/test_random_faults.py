"""Eighteen random faults of one small command. `benchmarks.faults` draws more faults, of all commands."""

import random

import pytest

from benchmarks.fault_commands import Bench, make_commands, run_references
from benchmarks.faults import KINDS, run_faults

pytestmark = pytest.mark.slow

COMMAND = "measure translation_bias"
PER_KIND = 3
FORKED = ("SIGKILL", "SIGTERM", "SIGINT", "bit", "truncated", "moved")  # the other kinds start further processes


def test_a_command_survives_faults_or_names_the_damage(commands, tmp_path):
    made = make_commands(tmp_path)
    bench = Bench(tmp_path, made, [COMMAND], commands, run_references(commands, tmp_path, made, [COMMAND]), {}, [])
    run_faults(bench, PER_KIND * len(FORKED), list(FORKED), random.Random(0))
    assert bench.errors == [] and {*bench.table} == {*FORKED} <= {*KINDS}
    for kind, counts in bench.table.items():
        assert counts["faults"] == PER_KIND == counts["same results"] + counts["one line"], (kind, counts)
        assert kind in ("bit", "truncated") or not counts["one line"]
