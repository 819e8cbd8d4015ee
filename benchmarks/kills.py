"""A test of whether commands that are killed at random moments and restarted give the same results.

    python -m benchmarks.kills [--kills 200] [--seed 0] [--commands loop,tune] [--folder FOLDER]

`--kills 3 --commands label` takes a minute. Every command has a reference run without kills. Then it runs in another
folder; after a random part of the reference run's CPU time, SIGKILL ends the command or one of its child processes. The
command is restarted, killed up to three times in all, and then runs to its end. The results must equal the reference
run's (all scores with their intervals, the bytes of all tables and weights), without remaining processes or temporary
files. The command with the least time so far is next.
"""

import os
import random
import shutil
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import psutil

from benchmarks.fault_commands import FLAGS, Bench, compare_with_reference, reference_runs, wait_cpu_seconds
from benchmarks.measuring import parse_options
from tests.forked_commands import Running

MAX_KILLS_OF_A_RUN = 3
SECONDS_TO_END = 60.0  # time for the children of a killed process to end on a busy machine
COLUMNS = (
    "kills",
    "in the first tenth",
    "in the last tenth",
    "runs",
    "failed",
    "other results",
    "orphans",
    "left over",
)


def kill_after(running: Running, cpu_seconds: float, rng: random.Random) -> str | None:
    """Kill a command or one of its child processes after these CPU seconds; return an error, or "" without error.

    Return None if the command ended before. Each process is equally likely. After the kill of a child, the command must
    end without a traceback.
    """
    wait_cpu_seconds(running, cpu_seconds)
    try:
        command = psutil.Process(running.pid)
        target = rng.choice([command, *command.children(recursive=True)])
        if running.status() is not None:
            return None
        target.kill()
    except psutil.NoSuchProcess:
        running.wait()
        return None
    status = running.wait()
    is_error = target is not command and (status not in (0, 2) or "Traceback" in running.stderr)
    return f"after the kill of a child process, status {status}: {running.stderr[-2000:]}" if is_error else ""


def end_orphans(server: int) -> list[psutil.Process]:
    """Return the server's child processes that have not ended after SECONDS_TO_END, and kill them."""

    def children() -> list[psutil.Process]:
        processes = []
        for process in psutil.process_iter():
            with suppress(ProcessLookupError, psutil.NoSuchProcess):
                if os.getpgid(process.pid) == server != process.pid and process.status() != psutil.STATUS_ZOMBIE:
                    processes.append(process)
        return processes

    deadline = time.monotonic() + SECONDS_TO_END
    while (orphans := children()) and time.monotonic() < deadline:
        time.sleep(0.05)
    for orphan in orphans:
        with suppress(psutil.NoSuchProcess):
            orphan.kill()
    return orphans


def run_with_kills(
    bench: Bench, name: str, folder: Path, max_kills: int, rng: random.Random
) -> tuple[Counter[str], list[str]]:
    """Run a command in a folder with up to `max_kills` kills; return counts of COLUMNS, and errors."""
    command, forked, seconds = bench.commands[name], bench.forked, bench.seconds[name]
    counts, errors = Counter(runs=1), []
    command.prepare(folder)
    for _ in range(max_kills):
        moment = rng.uniform(0, seconds)
        error = kill_after(command.start(forked, folder), moment, rng)
        if error is None:
            break
        counts += Counter({"kills": 1, COLUMNS[1]: moment < 0.1 * seconds, COLUMNS[2]: moment > 0.9 * seconds})
        orphans = end_orphans(forked.server.pid)
        counts["orphans"] += len(orphans)
        errors += [*filter(None, [error]), *(f"still running: {orphan}" for orphan in orphans)]
    last = command.start(forked, folder)
    if last.wait() != 0:
        counts["failed"] += 1
        return counts, [*errors, f"status {last.status()}: {last.stderr.strip().splitlines()[-1:]}"]
    differences, lines = compare_with_reference(folder, bench.root / "reference" / name)
    return counts + differences, errors + lines


def main() -> None:
    """Run commands with kills and print the table; exit with status 1 if there is an error."""
    options = parse_options(__doc__, kills=200, seed=(0, "seed of the moments and of the killed processes"), **FLAGS)
    rng = random.Random(options.seed)
    # A restarted import of votes is rejected if all votes were added before the kill, as it should be.
    with reference_runs(options, COLUMNS, leave_out="import") as bench:
        shutil.rmtree(bench.root / "killed", ignore_errors=True)
        time_spent = dict.fromkeys(bench.commands, 0.0)
        while (n_kills := sum(counts["kills"] for counts in bench.table.values())) < options.kills:
            name = min(time_spent, key=time_spent.__getitem__)
            start = time.monotonic()
            folder = bench.root / "killed" / f"{name} {bench.table[name]['runs']}"
            max_kills = min(MAX_KILLS_OF_A_RUN, options.kills - n_kills)
            counts, errors = run_with_kills(bench, name, folder, max_kills, rng)
            time_spent[name] += time.monotonic() - start
            bench.add(name, folder.name, counts, errors)
            if not errors:
                shutil.rmtree(folder)


if __name__ == "__main__":
    main()
