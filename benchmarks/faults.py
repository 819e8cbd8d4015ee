"""A test of whether commands survive faults, which are drawn by seed from all kinds and commands.

    python -m benchmarks.faults [--faults 200] [--seed 0] [--commands label,tune] [--kinds bit,moved] [--folder FOLDER]

`--faults 20 --commands train_classifier` takes two minutes. Every command has a reference run without faults. Each
fault gets a folder of its own. After the fault, the same command must end with the results of the reference run (all
scores with their intervals, the bytes of all tables and weights), or name the damage in one line with status 2. No
process may survive, and no temporary file and no traceback may remain. The kinds of fault are the keys of KINDS. A full
disk and a read-only folder need Linux and root.
"""

import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from signal import SIGINT, SIGKILL, SIGTERM, Signals
from threading import Thread

import psutil

from benchmarks.fault_commands import (
    FLAGS,
    QUIET,
    Bench,
    Command,
    compare_with_reference,
    end_orphans,
    reference_runs,
    wait_cpu_seconds,
)
from benchmarks.measuring import parse_options
from tests.fault_server import serving
from tests.forked_commands import ENVIRONMENT, PATIENCE, ROOT, ForkedCommands, Running, wait_until

DISK_SIZE = 16 << 20
DISK_FULL = "no space is left on its disk. Free some and run again"
OVERWRITE_BYTES = 1 << 18  # needed by a command that overwrites existing files
# Files that no manifest has a hash of: the lock, votes, which are added line by line, and reports and figures, which
# `evenhand report` writes again.
NOT_DAMAGED = (".lock", ".jsonl", ".html", ".md", ".svg", ".png")
# Faults of a server: an answer that is tried again, and an answer that ends the command in one line.
TRANSIENT = ("rate", "broken", "cut", "none", "reset", "hang", "drip")
FATAL = ("bad", "elsewhere", "compressed")
KEY = "canary-key-0123456789"  # must be in no file and no message
SERVED, TWO_PROCESSES = "measure (a server)", "measure generation_bias"
COLUMNS = ("faults", "ended before", "same results", "one line", "other results", "orphans", "left over", "errors")
LAUNCHER = [sys.executable, "-m", "accelerate.commands.launch", "--num_processes", "2"]
LAUNCHER += ["--config_file", "recipes/configs/accelerate/ddp.yaml"]


class Fault:
    """One fault of a command in a folder.

    Attributes:
        bench, name, folder, rng: the bench, the name of the command, the folder of the run, the random generator.
        counts: numbers by COLUMNS.
        errors: a line for each error.
    """

    def __init__(self, bench: Bench, name: str, folder: Path, rng: random.Random) -> None:
        self.bench, self.name, self.folder, self.rng = bench, name, folder, rng
        self.counts, self.errors = Counter(faults=1), []

    @property
    def command(self) -> Command:
        """The command, or the served measurement."""
        return self.bench.commands[self.name]

    def add_error(self, line: str) -> None:
        """Count and record an error."""
        self.counts["errors"] += 1
        self.errors.append(line)

    def moment(self) -> float:
        """Return a random moment of the command, in CPU seconds, uniform over the run without faults."""
        return self.rng.uniform(0, self.bench.seconds[self.name])

    def check_refusal(self, running: Running, text: str = "") -> None:
        """Record an error unless a command ended with status 2 and with one line, which contains `text`."""
        lines = running.stderr.strip().splitlines() or [""]
        refused = running.status() == 2 and lines[-1].startswith("evenhand ") and text in lines[-1]
        if not refused or "Traceback" in running.stderr:
            self.add_error(f"status {running.status()}: {running.stderr[-2000:]}")

    def repeat(self, *, may_refuse: bool = False) -> None:
        """Run the same command again; check its results, or with `may_refuse` that one line names the damage."""
        last = self.command.start(self.bench.forked, self.folder)
        if last.wait() == 2 and may_refuse:
            self.check_refusal(last)
            self.counts["one line"] += not self.errors
            return
        if last.status() != 0 or "Traceback" in last.stderr:
            self.add_error(f"status {last.status()}: {last.stderr[-2000:]}")
            return
        differences, lines = compare_with_reference(self.folder, self.bench.root / "reference" / self.name)
        self.counts += differences
        self.errors += lines
        self.counts["same results"] += not self.counts["other results"]

    def count_orphans(self) -> None:
        """Record processes of the command that did not end."""
        orphans = end_orphans(self.bench.forked.server.pid)
        self.counts["orphans"] += len(orphans)
        self.errors += [f"still running: {orphan}" for orphan in orphans]


def signalled(sent: Signals) -> Callable[[Fault], None]:
    """Return the fault that sends a signal to a command, up to three times, each time to the next start."""

    def apply(fault: Fault) -> None:
        fault.command.prepare(fault.folder)
        for _ in range(fault.rng.randint(1, 3)):
            if not interrupt(fault, sent):
                break
        fault.repeat()

    return apply


def interrupt(fault: Fault, sent: Signals) -> bool:
    """Start the command and send it a signal at a random moment; return False if the command ended before.

    SIGKILL may go to a child process of the command, which must then end without a traceback.
    """
    running = fault.command.start(fault.bench.forked, fault.folder)
    wait_cpu_seconds(running, fault.moment())
    with suppress(psutil.NoSuchProcess):
        command = psutil.Process(running.pid)
        children = command.children(recursive=True) if sent == SIGKILL else []
        # Python replaces a killed resource tracker; the replacement prints a traceback for each unknown semaphore.
        children = [child for child in children if "resource_tracker" not in " ".join(child.cmdline())]
        target = fault.rng.choice([command, *children])
        if running.status() is None:
            target.send_signal(sent)
            status = running.wait()
            if "Traceback" in running.stderr or (target is not command and status not in (0, 2)):
                fault.add_error(f"after {sent.name}, status {status}: {running.stderr[-2000:]}")
            fault.count_orphans()
            return True
    running.wait()
    fault.counts["ended before"] += 1
    return False


def moved(fault: Fault) -> None:
    """Kill the command, rename its folder and repeat the command there."""
    fault.command.prepare(fault.folder)
    interrupt(fault, SIGKILL)
    if fault.folder.exists():
        fault.folder = fault.folder.rename(fault.folder.with_name(f"{fault.folder.name} moved"))
    fault.repeat()


def damaged(damage: Callable[[bytes, random.Random], bytes]) -> Callable[[Fault], None]:
    """Return the fault that damages a random file of a finished run."""

    def apply(fault: Fault) -> None:
        shutil.copytree(fault.bench.root / "reference" / fault.name, fault.folder)
        file = fault.rng.choice(hashed_files(fault.folder))
        file.write_bytes(damage(file.read_bytes(), fault.rng))
        fault.repeat(may_refuse=True)
        fault.errors = [f"{line} (damaged: {file.relative_to(fault.folder)})" for line in fault.errors]

    return apply


def hashed_files(folder: Path) -> list[Path]:
    """Return the files of a finished run that are not empty and have a hash in a manifest, sorted."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.stat().st_size)
    hashed = [path for path in files if not {"parts", "checkpoints"} & {*path.parts}]
    return [path for path in hashed if not path.name.endswith(NOT_DAMAGED)]


def flip_bit(content: bytes, rng: random.Random) -> bytes:
    """Return the content with one bit flipped."""
    flipped = bytearray(content)
    flipped[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    return bytes(flipped)


def truncate(content: bytes, rng: random.Random) -> bytes:
    """Return the beginning of the content, shorter by at least one byte."""
    return content[: rng.randrange(len(content))]


def second_process(fault: Fault) -> None:
    """Start the command a second time in its folder while the first process runs; one of them may be refused."""
    fault.command.prepare(fault.folder)
    with ForkedCommands(Path(tempfile.mkdtemp(dir=fault.bench.root))) as other:
        other.run("--version")
        first = fault.command.start(fault.bench.forked, fault.folder)
        wait_cpu_seconds(first, fault.moment())
        second = fault.command.start(other, fault.folder)
        first.wait()
        if second.wait() == 2:
            fault.check_refusal(second)
        elif second.status() != 0:
            fault.add_error(f"status {second.status()}: {second.stderr[-2000:]}")
    fault.repeat()


@contextmanager
def small_disk(folder: Path) -> Iterator[Path]:
    """Mount a tmpfs of DISK_SIZE bytes at a folder and yield the folder; unmount it at the end of the block."""
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK_SIZE}", "none", str(folder)], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def disk_full(fault: Fault) -> None:
    """Run the command on a disk with a random share of the space that it needs, then with enough space."""
    with small_disk(fault.folder) as disk:
        fault.folder = fault.command.prepare(disk / "run")
        reference = fault.bench.root / "reference" / fault.name
        initial = sum(path.stat().st_size for path in disk.rglob("*") if path.is_file())
        needed = sum(path.stat().st_size for path in reference.rglob("*") if path.is_file()) - initial
        space = int(fault.rng.random() * (needed if needed > 0 else OVERWRITE_BYTES))
        with (disk / "filler").open("wb") as file:
            free = os.statvfs(disk).f_bavail * os.statvfs(disk).f_frsize
            os.posix_fallocate(file.fileno(), 0, free - space)
        first = fault.command.start(fault.bench.forked, fault.folder)
        if first.wait() == 0:
            fault.counts["ended before"] += 1
        else:
            fault.check_refusal(first, DISK_FULL)
        (disk / "filler").unlink()
        fault.repeat()


def read_only(fault: Fault) -> None:
    """Run the command in a folder that cannot be written, then in the same folder with permission."""
    with small_disk(fault.folder) as disk:
        fault.folder = fault.command.prepare(disk / "run")
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        first = fault.command.start(fault.bench.forked, fault.folder)
        first.wait()
        subprocess.run(["mount", "-o", "remount,rw", str(disk)], check=True)
        fault.check_refusal(first)
        fault.repeat()


def served(bench: Bench, url: str) -> Command:
    """Return the measurement of a model on a server."""
    flags = ["--model", "m", "--model.server", url, "--generation_bias.style_classifier", "testbed"]
    return Command(["measure", "--config", str(bench.root / "inputs" / "measure.yaml"), *QUIET, *flags])


def bad_server(fault: Fault) -> None:
    """Measure on a server that fails, repeat without faults, and check that the API key is in no file or message."""
    bench, reference = fault.bench, fault.bench.root / "reference" / SERVED
    kind = fault.rng.choice([*TRANSIENT, *FATAL])
    with serving() as (good_url, _):
        bench.commands[SERVED] = served(bench, good_url)
        if not (reference / "run.json").exists():
            running = bench.commands[SERVED].start(bench.forked, reference)
            if running.wait() != 0:
                raise SystemExit(f"{SERVED}: {running.stderr}")
        with serving() as (elsewhere, elsewhere_seen), serving(kind, share=0.3) as (url, seen):
            seen["elsewhere"] = elsewhere
            first = served(bench, url).start(bench.forked, fault.folder)
            if first.wait() != 0:
                fault.check_refusal(first)
            if kind in TRANSIENT and first.status() != 0:
                fault.add_error(f"{kind} is transient, but ended the command: {first.stderr[-500:]}")
            if elsewhere_seen["bodies"] or elsewhere_seen["keys"]:
                fault.add_error("a request followed a redirect to another host")
        fault.repeat()
    texts = [first.stdout, first.stderr]
    texts += [path.read_bytes().decode(errors="replace") for path in fault.folder.rglob("*") if path.is_file()]
    if any(KEY in text for text in texts):
        fault.add_error("the key is in a file or a message")
    fault.errors = [f"{line} ({kind})" for line in fault.errors]


def lost_process(fault: Fault) -> None:
    """Kill one of the two processes of a command at a random moment; then repeat the command in one process."""
    arguments = [*LAUNCHER, "-m", "evenhand", *fault.command.arguments, fault.command.flag, str(fault.folder)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    launched = subprocess.Popen(arguments, cwd=ROOT, env=ENVIRONMENT, start_new_session=True, **pipes)
    output: list[str] = []
    reader = Thread(target=lambda: output.append(launched.communicate()[0]))
    reader.start()
    try:
        parts = fault.folder / "parts"
        wait_until(lambda: launched.poll() is not None or parts.exists())
        ranks = psutil.Process(launched.pid).children() if launched.poll() is None else []
        if ranks:
            fault.rng.choice(ranks).kill()
            reader.join(PATIENCE)
        survivors = [rank for rank in ranks if rank.is_running() and rank.status() != psutil.STATUS_ZOMBIE]
        fault.counts["ended before"] += not ranks
        fault.counts["orphans"] += len(survivors)
        fault.errors += [f"still running: {rank}" for rank in survivors]
    finally:
        with suppress(ProcessLookupError):
            os.killpg(launched.pid, SIGKILL)
        reader.join()
    fault.repeat()


KINDS: dict[str, Callable[[Fault], None]] = {
    "SIGKILL": signalled(SIGKILL),
    "SIGTERM": signalled(SIGTERM),
    "SIGINT": signalled(SIGINT),
    "disk full": disk_full,
    "read-only": read_only,
    "second process": second_process,
    "bit": damaged(flip_bit),
    "truncated": damaged(truncate),
    "moved": moved,
    "server": bad_server,
    "lost process": lost_process,
}
ROOT_ONLY = ("disk full", "read-only")


def draw(bench: Bench, kinds: list[str], rng: random.Random) -> Iterator[tuple[str, str]]:
    """Yield (kind, name of the command) without end: all pairs in random order, again and again."""
    names = list(bench.seconds)
    own = {"server": [SERVED], "lost process": [name for name in names if name == TWO_PROCESSES]}
    hashed = [name for name in bench.chosen if hashed_files(bench.root / "reference" / name)]
    own |= dict.fromkeys(("bit", "truncated"), hashed)
    pairs = [(kind, name) for kind in kinds for name in own.get(kind, [name for name in names if name in bench.chosen])]
    while pairs:
        yield from rng.sample(pairs, len(pairs))


def run_faults(bench: Bench, n: int, kinds: list[str], rng: random.Random) -> None:
    """Apply n faults, and add each to the bench's table, by kind."""
    for number, (kind, name) in zip(range(n), draw(bench, kinds, rng), strict=False):
        fault = Fault(bench, name, bench.root / "reference" / f"{name} fault {number}", rng)
        try:
            KINDS[kind](fault)
        except AssertionError:
            fault.add_error(f"a command did not end within {PATIENCE:g} seconds")
            fault.count_orphans()
        bench.add(kind, f"{number} {kind}: {name}", fault.counts, fault.errors)
        if not fault.errors:
            shutil.rmtree(fault.folder, ignore_errors=True)


def main() -> None:
    """Apply faults and print the table; exit with status 1 if there is an error."""
    options = parse_options(
        __doc__,
        faults=(200, "number of faults"),
        seed=(0, "seed of kinds, commands, moments and places"),
        kinds=("", f"kinds separated by commas, of: {', '.join(KINDS)}; all by default"),
        **FLAGS,
    )
    ENVIRONMENT["EVENHAND_API_KEY"] = KEY
    kinds = options.kinds.split(",") if options.kinds else [k for k in KINDS if k not in ROOT_ONLY or not os.geteuid()]
    # A repeated import of votes is refused if all votes were added before the fault, as it should be.
    with reference_runs(options, COLUMNS, leave_out="import") as bench:
        run_faults(bench, options.faults, kinds, random.Random(options.seed))


if __name__ == "__main__":
    main()
