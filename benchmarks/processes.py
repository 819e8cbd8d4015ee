"""How much faster two processes measure than one, each on one thread, and that their tables are the same.

$ python -m benchmarks.processes --descriptors 200 --per_cell 4

Seconds are of the steps that are shared out, models loaded in them, without imports. Those on the clock say something
on a quiet machine alone; those of the processors (of the process that took most) do on a busy one, too.
"""

import argparse
import filecmp
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

STEPS = ("responses", "likelihoods of responses", "styles", "second styles")
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
LAUNCHER = ["-m", "accelerate.commands.launch", "--config_file", "recipes/configs/accelerate/ddp.yaml"]
TIMED = "timed"  # the argument by which this module starts itself as `evenhand`


def main() -> None:
    """Measure the testbed's model by one process and by two; print seconds, ratios and the load of the machine."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--descriptors", type=int, default=200)
    parser.add_argument("--per_cell", type=int, default=4)
    told = parser.parse_args()
    asked = ["--prompts.descriptors", str(told.descriptors), "--prompts.per_cell", str(told.per_cell)]
    with tempfile.TemporaryDirectory() as temporary:
        folders = [Path(temporary) / name for name in ("one", "two")]
        one, two = (measured(folder, n, asked) for n, folder in enumerate(folders, 1))
        for step in STEPS:
            for kind in ("clock", "processor"):
                ratio = one[kind][step] / two[kind][step]
                print(f"{step}, {kind}: {one[kind][step]:.1f} s → {two[kind][step]:.1f} s, {ratio:.2f} times as fast")
        names = ["scores.json", *sorted(path.name for path in folders[0].glob("*.parquet"))]
        same = [filecmp.cmp(folders[0] / name, folders[1] / name, shallow=False) for name in names]
        print(f"{sum(same)} of {len(same)} files the same to the byte; load {os.getloadavg()[0]:.1f}")


def measured(folder: Path, processes: int, asked: Sequence[str]) -> dict[str, dict[str, float]]:
    """Return the seconds of each step of a measurement by so many processes, the most of any process."""
    launcher = [*LAUNCHER, "--num_processes", str(processes)] if processes > 1 else []
    command = [sys.executable, *launcher, "-m", "benchmarks.processes", TIMED, "measure", *asked]
    command += ["--show", "false", "--report_to", "none", "--output_dir", str(folder)]
    subprocess.run(command, env=ENVIRONMENT, check=True)
    found = [json.loads(file.read_text(encoding="utf-8")) for file in folder.parent.glob(f"{folder.name}-*.json")]
    return {kind: {step: max(one[kind][step] for one in found) for step in STEPS} for kind in ("clock", "processor")}


def timed(arguments: Sequence[str]) -> int:
    """Run `evenhand` and write the seconds of this process' steps beside the run's folder."""
    from evenhand.evaluation.runs.run import Run
    from evenhand.recipes.command_line import main as evenhand

    seconds: dict[str, dict[str, float]] = {"clock": {}, "processor": {}}
    plain = Run.step

    @contextmanager
    def step(run: Run, name: str) -> Iterator[None]:
        clock, processor = time.perf_counter(), time.process_time()
        with plain(run, name):
            yield
        seconds["clock"][name] = time.perf_counter() - clock
        seconds["processor"][name] = time.process_time() - processor

    Run.step = step
    status = evenhand(arguments)
    folder, rank = Path(arguments[-1]), os.environ.get("RANK", "0")
    folder.with_name(f"{folder.name}-{rank}.json").write_text(json.dumps(seconds), encoding="utf-8")
    return status


if __name__ == "__main__":
    if sys.argv[1:2] == [TIMED]:
        sys.exit(timed(sys.argv[2:]))
    main()
