"""A benchmark of two processes against one, with one thread each: the speedup, and the equality of their tables.

    python -m benchmarks.processes --descriptors 200 --per_cell 4

Seconds cover the distributed steps, including the loading of models, without imports. Wall-clock seconds are
meaningful only on an idle machine; CPU seconds (the maximum over processes) also on a busy one.
"""

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

from benchmarks.measuring import parse_options

STEPS = ("responses", "likelihoods of responses", "styles", "second styles")
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
LAUNCHER = ["-m", "accelerate.commands.launch", "--config_file", "recipes/configs/accelerate/ddp.yaml"]
TIMED = "timed"  # the argument with which this module runs `evenhand` in a subprocess


def main() -> None:
    """Measure the testbed's model with one and with two processes; print seconds, ratios and the machine's load."""
    arguments = parse_options(__doc__, descriptors=200, per_cell=4)
    prompts = ["--prompts.descriptors", str(arguments.descriptors), "--prompts.per_cell", str(arguments.per_cell)]
    with tempfile.TemporaryDirectory() as temporary:
        folders = [Path(temporary) / name for name in ("one", "two")]
        one, two = (measure_seconds(folder, n, prompts) for n, folder in enumerate(folders, 1))
        for step in STEPS:
            for kind in ("clock", "processor"):
                ratio = one[kind][step] / two[kind][step]
                print(f"{step}, {kind}: {one[kind][step]:.1f} s → {two[kind][step]:.1f} s, {ratio:.2f} times as fast")
        names = ["scores.json", *sorted(path.name for path in folders[0].glob("*.parquet"))]
        equal = [filecmp.cmp(folders[0] / name, folders[1] / name, shallow=False) for name in names]
        print(f"{sum(equal)} of {len(equal)} files are equal to the byte; load {os.getloadavg()[0]:.1f}")


def measure_seconds(folder: Path, processes: int, prompts: Sequence[str]) -> dict[str, dict[str, float]]:
    """Return each step's seconds in a measurement with several processes, the maximum over processes."""
    launcher = [*LAUNCHER, "--num_processes", str(processes)] if processes > 1 else []
    command = [sys.executable, *launcher, "-m", "benchmarks.processes", TIMED, "measure", *prompts]
    command += ["--show", "false", "--report_to", "none", "--output_dir", str(folder)]
    subprocess.run(command, env=ENVIRONMENT, check=True)
    seconds = [json.loads(file.read_text(encoding="utf-8")) for file in folder.parent.glob(f"{folder.name}-*.json")]
    return {
        kind: {step: max(rank[kind][step] for rank in seconds) for step in STEPS} for kind in ("clock", "processor")
    }


def run_timed(arguments: Sequence[str]) -> int:
    """Run `evenhand`, write the seconds of this process's steps next to the run's folder, and return the status."""
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
        sys.exit(run_timed(sys.argv[2:]))
    main()
