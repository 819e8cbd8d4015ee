"""A test of whether commands that fill their disk fail with a clear error and give the same results when restarted.

    python -m benchmarks.full_disk [--points 5] [--commands loop,tune] [--folder FOLDER]

`--points 2 --commands label` takes 40 seconds; needs Linux and root, as the run folder is a tmpfs of 16 MB. Every
command has a reference run. Then, `--points` times, a file leaves from none to nearly all of the space that the command
needs: the command must end with status 2 and one line that tells users to free space. Without that file, the restarted
command must end with the results of the reference run, and must not change stages that were finished before.
"""

import os
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.fault_commands import FLAGS, Command, compare_with_reference, reference_runs
from benchmarks.measuring import parse_options
from tests.forked_commands import ForkedCommands

SIZE = 16 << 20
FILLER = "filler"
OVERWRITE_BYTES = 1 << 18  # needed by a command that overwrites existing files
ERROR_TEXT = "no space is left on its disk. Free some and run again"
COLUMNS = (
    "disk full",
    "enough space",
    "no clear error",
    "finished stages changed",
    "failed",
    "other results",
    "left over",
)


@contextmanager
def small_disk(folder: Path) -> Iterator[None]:
    """Mount a tmpfs of SIZE bytes at a folder; unmount it at the end of the block."""
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "none", str(folder)], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def free_bytes(disk: Path) -> int:
    """Return the number of free bytes on a disk."""
    status = os.statvfs(disk)
    return status.f_bavail * status.f_frsize


def finish_times(folder: Path) -> dict[Path, int]:
    """Return the modification time of each stage's manifest, by path."""
    return {path: path.stat().st_mtime_ns for path in folder.rglob("run.json")}


def run_on_full_disk(
    command: Command, forked: ForkedCommands, disk: Path, reference: Path, fraction: float
) -> tuple[Counter[str], list[str]]:
    """Run a command with too little disk space, then with enough; return counts of COLUMNS, and errors.

    `fraction` is the first run's disk space as a share of the command's output.
    """
    folder, errors = disk / "run", []
    shutil.rmtree(folder, ignore_errors=True)
    free = free_bytes(disk)
    command.prepare(folder)
    finished_before = finish_times(folder)
    needed = sum(path.stat().st_size for path in reference.rglob("*") if path.is_file()) - (free - free_bytes(disk))
    needed = needed if needed > 0 else OVERWRITE_BYTES
    with (disk / FILLER).open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, free_bytes(disk) - int(fraction * needed))
    first = command.start(forked, folder)
    status, stderr = first.wait(), first.stderr
    if status == 2 and ERROR_TEXT in stderr.strip().splitlines()[-1] and "Traceback" not in stderr:
        counts = Counter({"disk full": 1})
    elif status == 0:
        counts = Counter({"enough space": 1})
    else:
        counts = Counter({"disk full": 1, "no clear error": 1})
        errors.append(f"status {status}: {stderr[-3000:]}")
    finished_on_full_disk = finish_times(folder)
    (disk / FILLER).unlink()
    last = command.start(forked, folder)
    if last.wait() != 0:
        return counts + Counter({"failed": 1}), [*errors, f"then status {last.status()}: {last.stderr[-3000:]}"]
    finished_after = finish_times(folder)
    finished = {**finished_before, **finished_on_full_disk}
    changed = [str(path) for path, time in finished.items() if finished_after.get(path) != time]
    differences, lines = compare_with_reference(folder, reference)
    counts += differences + Counter({COLUMNS[3]: bool(changed)})
    return counts, [*errors, *(f"changed: {path}" for path in changed), *lines]


def main() -> None:
    """Run each command with a filled disk and print the table; exit with status 1 if there is an error."""
    options = parse_options(__doc__, points=(5, "amounts of free space for each command"), **FLAGS)
    with reference_runs(options, COLUMNS) as bench, small_disk(bench.root / "disk"):
        for name, command in bench.commands.items():
            for point in range(options.points):
                reference, fraction = bench.root / "reference" / name, point / options.points
                found = run_on_full_disk(command, bench.forked, bench.root / "disk", reference, fraction)
                bench.add(name, f"{name}, space for {point}/{options.points}", *found)


if __name__ == "__main__":
    main()
