"""Commands on a disk that is full at one point or another, and again once there is room: the same results in the end.

    python -m benchmarks.full_disk [--points 5] [--commands loop,tune] [--folder FOLDER]

Needs Linux and root: the run folder is a tmpfs of 16 MB. Every command first runs undisturbed. Then, for so many
points, a file leaves less room than the command needs, from nothing at all to nearly enough; it must end with status 2
and one line that says to free some. That file is removed and the same command runs again, to the results of the
undisturbed run; what it had finished before stays as it was. The table says what was found of each.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.disturbed import Command, commands, differing, left_over, run_undisturbed
from tests.forked_commands import ForkedCommands

SIZE = 16 << 20
FILLER = "filler"
WRITTEN_OVER = 1 << 18  # bytes that a command needs which writes over what is there
TOLD = "no space is left on its disk. Free some and run again"
COLUMNS = (
    "out of room",
    "room enough",
    "no clear line",
    "finished work touched",
    "failed",
    "other results",
    "left over",
)


@contextmanager
def small_disk(folder: Path) -> Iterator[None]:
    """Mount a tmpfs of SIZE bytes at a folder, until the block ends."""
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "none", str(folder)], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def room(disk: Path) -> int:
    """Return how many bytes are free."""
    found = os.statvfs(disk)
    return found.f_bavail * found.f_frsize


def finished(folder: Path) -> dict[Path, int]:
    """Return when each stage was finished."""
    return {path: path.stat().st_mtime_ns for path in folder.rglob("run.json")}


def filled(
    command: Command, forked: ForkedCommands, disk: Path, undisturbed: Path, share: float
) -> tuple[Counter[str], list[str]]:
    """Run a command where there is room for a share of what it writes, and again with room for all."""
    folder, wrong = disk / "run", []
    shutil.rmtree(folder, ignore_errors=True)
    free = room(disk)
    command.prepare(folder)
    before = finished(folder)
    needed = sum(path.stat().st_size for path in undisturbed.rglob("*") if path.is_file()) - (free - room(disk))
    needed = needed if needed > 0 else WRITTEN_OVER
    with (disk / FILLER).open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, room(disk) - int(share * needed))
    first = command.start(forked, folder)
    status, told = first.wait(), first.stderr
    if status == 2 and TOLD in told.strip().splitlines()[-1] and "Traceback" not in told:
        counts = Counter({"out of room": 1})
    elif status == 0:
        counts = Counter({"room enough": 1})
    else:
        counts = Counter({"out of room": 1, "no clear line": 1})
        wrong.append(f"status {status}: {told[-3000:]}")
    done = finished(folder)
    (disk / FILLER).unlink()
    last = command.start(forked, folder)
    if last.wait() != 0:
        return counts + Counter({"failed": 1}), [*wrong, f"then status {last.status()}: {last.stderr[-3000:]}"]
    now = finished(folder)
    touched = [str(path) for path, when in {**before, **done}.items() if now.get(path) != when]
    others, left = differing(folder, undisturbed), left_over(folder, undisturbed)
    counts += Counter({COLUMNS[3]: bool(touched), "other results": bool(others), "left over": len(left)})
    wrong += [f"touched: {path}" for path in touched]
    return counts, [*wrong, *(f"differs: {name}" for name in others), *(f"left over: {name}" for name in left)]


def main() -> None:
    """Fill the disk and print the table; status 1 if anything is wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--points", type=int, default=5, help="that each command runs out of room at")
    parser.add_argument("--commands", default="", help="names of the table, by commas; all")
    parser.add_argument(
        "--folder", type=Path, help="where they run; undisturbed runs that are there are used again; a temporary one"
    )
    given = parser.parse_args()
    place = given.folder or Path(tempfile.mkdtemp(prefix="full-disk-"))
    known = commands(place)
    chosen = given.commands.split(",") if given.commands else list(known)
    table, wrong = {name: Counter() for name in chosen}, []
    with ForkedCommands(Path(tempfile.mkdtemp(prefix="commands-", dir=place))) as forked, small_disk(place / "disk"):
        run_undisturbed(forked, place, known, chosen)
        for name in chosen:
            for point in range(given.points):
                undisturbed = place / "undisturbed" / name
                counts, found = filled(known[name], forked, place / "disk", undisturbed, point / given.points)
                table[name] += counts
                wrong += found
                where = f"{name}, room for {point}/{given.points}"
                print(f"{where}: {dict(counts)}", *found, sep="\n    ", flush=True)
    print("\n| command | " + " | ".join(COLUMNS) + " |\n| --- |" + " ---: |" * len(COLUMNS))
    for name, counts in [*table.items(), ("all", sum(table.values(), Counter()))]:
        print(f"| `{name}` | " + " | ".join(str(counts[column]) for column in COLUMNS) + " |")
    if not given.folder:
        shutil.rmtree(place)
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
