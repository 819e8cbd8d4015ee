"""Commands killed at random moments and run again: the same results in the end, no process and no half file left.

    python -m benchmarks.kills [--kills 200] [--seed 0] [--commands loop,tune] [--folder FOLDER]

Every command first runs undisturbed. Then it runs into another folder and, at a moment drawn from the CPU time that it
took, SIGKILL hits it or a process that it started; the same command is run again, and hit again, up to three times in
all, and then left to end. What counts as the same: all scores with their intervals, and the bytes of all tables
and weights. The command that took the least time so far is next, until as many kills are made; the table says
what was found of each.
"""

import argparse
import os
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import psutil

from benchmarks.disturbed import Command, commands, differing, left_over, run_undisturbed, worked
from tests.forked_commands import ForkedCommands, Running

KILLS_IN_A_ROW = 3
SECONDS_TO_END = 60.0  # for what a killed process started, on a machine that may be busy
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


def killed(running: Running, moment: float, rng: random.Random) -> str | None:
    """Kill a command or a process of its own after so many CPU seconds; return what is wrong with how it ended, or "".

    None where it ended before. A child is hit as often as each other process; its parent then has to end by itself.
    """
    worked(running, moment)
    try:
        command = psutil.Process(running.pid)
        hit = rng.choice([command, *command.children(recursive=True)])
        if running.status() is not None:
            return None
        hit.kill()
    except psutil.NoSuchProcess:
        running.wait()
        return None
    status = running.wait()
    told = hit is not command and (status not in (0, 2) or "Traceback" in running.stderr)
    return f"a child of it was killed, status {status}: {running.stderr[-2000:]}" if told else ""


def orphans(server: int) -> list[psutil.Process]:
    """Return those of the server's processes that live on though they were given time to end, and end them."""

    def others() -> list[psutil.Process]:
        found = []
        for process in psutil.process_iter():
            with suppress(ProcessLookupError, psutil.NoSuchProcess):
                if os.getpgid(process.pid) == server != process.pid and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
        return found

    deadline = time.monotonic() + SECONDS_TO_END
    while (left := others()) and time.monotonic() < deadline:
        time.sleep(0.05)
    for orphan in left:
        with suppress(psutil.NoSuchProcess):
            orphan.kill()
    return left


def disturbed(
    command: Command,
    forked: ForkedCommands,
    folder: Path,
    undisturbed: Path,
    seconds: float,
    kills: int,
    rng: random.Random,
) -> tuple[Counter[str], list[str]]:
    """Run a command into a folder with up to so many kills; return what was counted, and what is wrong."""
    counts, wrong = Counter(runs=1), []
    command.prepare(folder)
    for _ in range(kills):
        moment = rng.uniform(0, seconds)
        found = killed(command.start(forked, folder), moment, rng)
        if found is None:
            break
        counts += Counter({"kills": 1, COLUMNS[1]: moment < 0.1 * seconds, COLUMNS[2]: moment > 0.9 * seconds})
        left = orphans(forked.server.pid)
        counts["orphans"] += len(left)
        wrong += [*filter(None, [found]), *(f"lives on: {orphan}" for orphan in left)]
    last = command.start(forked, folder)
    if last.wait() != 0:
        counts["failed"] += 1
        return counts, [*wrong, f"status {last.status()}: {last.stderr.strip().splitlines()[-1:]}"]
    others, left = differing(folder, undisturbed), left_over(folder, undisturbed)
    counts["other results"] += bool(others)
    counts["left over"] += len(left)
    wrong += [*(f"differs: {name}" for name in others), *(f"left over: {name}" for name in left)]
    return counts, wrong


def main() -> None:
    """Make the kills and print the table; status 1 if anything is wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0, help="of the moments, and of which process is hit")
    parser.add_argument("--commands", default="", help="names of the table, by commas; all")
    parser.add_argument(
        "--folder",
        type=Path,
        help="where they run, and stay; undisturbed runs that are there are used again; a temporary one",
    )
    given = parser.parse_args()
    rng, place = random.Random(given.seed), given.folder or Path(tempfile.mkdtemp(prefix="kills-"))
    known = commands(place)
    # Votes that were all added before the kill are refused the second time, as they should be.
    chosen = given.commands.split(",") if given.commands else [name for name in known if "import" not in name]
    shutil.rmtree(place / "killed", ignore_errors=True)
    table, wrong = {name: Counter() for name in chosen}, []
    spent = dict.fromkeys(chosen, 0.0)
    with ForkedCommands(Path(tempfile.mkdtemp(prefix="commands-", dir=place))) as forked:
        seconds = run_undisturbed(forked, place, known, chosen)
        while (made := sum(counts["kills"] for counts in table.values())) < given.kills:
            name = min(chosen, key=spent.__getitem__)
            begun = time.monotonic()
            folder = place / "killed" / f"{name} {table[name]['runs']}"
            kills = min(KILLS_IN_A_ROW, given.kills - made)
            undisturbed = place / "undisturbed" / name
            counts, found = disturbed(known[name], forked, folder, undisturbed, seconds[name], kills, rng)
            table[name] += counts
            spent[name] += time.monotonic() - begun
            wrong += found
            print(f"{folder.name}: {dict(counts)}", *found, sep="\n    ", flush=True)
            if not found:
                shutil.rmtree(folder)

    print("\n| command | " + " | ".join(COLUMNS) + " |\n| --- |" + " ---: |" * len(COLUMNS))
    for name, counts in [*table.items(), ("all", sum(table.values(), Counter()))]:
        print(f"| `{name}` | " + " | ".join(str(counts[column]) for column in COLUMNS) + " |")
    if not given.folder and not wrong:
        shutil.rmtree(place)
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
