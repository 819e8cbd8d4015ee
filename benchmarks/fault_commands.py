"""Functions of `faults`: commands on small inputs, reference runs, comparison of results.

A command takes seconds. Its reference run has no fault; a run with faults must end with the same results.
"""

import argparse
import hashlib
import json
import math
import os
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import psutil

from evenhand.evaluation import families
from evenhand.evaluation.runs.files import UNFINISHED
from evenhand.recipes.testbed import STYLE_CLASSIFIER
from tests.forked_commands import ForkedCommands, Running, wait_until
from tests.gendered_references import ROWS, written_references, written_translations

QUIET = ["--report_to", "none"]
RATERS = 20
SECONDS_TO_END = 60.0  # time for the children of a killed process to end on a busy machine
FLAGS = {
    "commands": ("", "names of the table, separated by commas; all by default"),
    "folder": (Path, "folder of all runs; its reference runs are reused; a temporary one by default"),
}
MEASUREMENT = """
prompts:
  descriptors: 16
  per_cell: 2
  filters: {noun_phrase_type: [descriptor_noun], template: ["I'm {noun_phrase}."]}
decoding: {batch_size: 8}
generation_bias: {permutations: 9, second_style_classifier: null, neutral_dialogue: INPUTS/dialogue.jsonl}
"""
TUNING = """
training: {epochs: 1, batch_size: 8, evaluations_per_epoch: 2, max_rows: 60, max_perplexity_increase: 9}
measure_every: 0
"""
STEPS = f"""
measure:{MEASUREMENT.replace(chr(10), chr(10) + "  ")}
label: {{quantile: 0.7}}
tune:{TUNING.replace(chr(10), chr(10) + "  ")}
allow_no_bias: true
measure_without_tag: false
"""
FILES = {
    "measure.yaml": MEASUREMENT,
    "tune.yaml": TUNING,
    "loop.yaml": f"{STEPS}methods: [control_tags]",
    "ablate.yaml": f"loop:{STEPS.replace(chr(10), chr(10) + '  ')}\nsweep: [{{method: exchange}}]",
    "dialogue.jsonl": "\n".join(
        json.dumps({"text": f"How was day {day}?", "response": f"It was day {day} of many."}) for day in range(40)
    ),
    "texts.csv": "\n".join(
        ["tweet,class", *(f"{('a lovely day', 'you awful thing')[n % 2]} {n % 40},{n % 2}" for n in range(240))]
    ),
}

# Commands that do not read the reference run of the loop.
INDEPENDENT = {"train_classifier", *(f"measure {family}" for family in families.names())}


@dataclass(frozen=True)
class Command:
    """A command: arguments without the run folder, the flag for the folder, and a folder to copy before the start."""

    arguments: Sequence[str]
    flag: str = "--output_dir"
    initial_folder: Path | None = None

    def prepare(self, folder: Path) -> Path:
        """Copy the initial folder, if the command has one, and return `folder`."""
        if self.initial_folder:
            shutil.copytree(self.initial_folder, folder)
        return folder

    def start(self, forked: ForkedCommands, folder: Path) -> Running:
        """Start the command in a folder, again if it already ran in that folder."""
        return forked.start(*self.arguments, self.flag, str(folder))


@dataclass(frozen=True)
class Bench:
    """The folder of all runs, the commands, a server that starts them, CPU seconds of the reference runs.

    `chosen` has the names of the commands to test, `table` the counts by kind of fault, and `errors` a line for each
    error.
    """

    root: Path
    commands: dict[str, Command]
    chosen: Sequence[str]
    forked: ForkedCommands
    seconds: Mapping[str, float]
    table: dict[str, Counter[str]]
    errors: list[str]

    def add(self, name: str, title: str, counts: Counter[str], errors: Sequence[str]) -> None:
        """Add a run's counts and errors to the table and the list of errors, and print both."""
        self.table[name] = self.table.get(name, Counter()) + counts
        self.errors.extend(errors)
        print(f"{title}: {dict(counts)}", *errors, sep="\n    ", flush=True)


@contextmanager
def reference_runs(options: argparse.Namespace, columns: Sequence[str], leave_out: str = "-") -> Iterator[Bench]:
    """Yield the chosen commands after their reference runs; at the end, print the table and exit.

    Args:
        options: `commands` and `folder`, see FLAGS.
        leave_out: part of the names of commands that run only if they are chosen.
    """
    root = options.folder or Path(tempfile.mkdtemp(prefix="faults-"))
    commands = make_commands(root)
    names = options.commands.split(",") if options.commands else [name for name in commands if leave_out not in name]
    with ForkedCommands(Path(tempfile.mkdtemp(prefix="commands-", dir=root))) as forked:
        seconds = run_references(forked, root, commands, names)
        yield (bench := Bench(root, commands, names, forked, seconds, {}, []))
    print("\n| fault | " + " | ".join(columns) + " |\n| --- |" + " ---: |" * len(columns))
    for name, row in [*sorted(bench.table.items()), ("all", sum(bench.table.values(), Counter()))]:
        print(f"| {name} | " + " | ".join(str(row[column]) for column in columns) + " |")
    if not options.folder and not bench.errors:
        shutil.rmtree(root)
    sys.exit(bool(bench.errors))


def make_commands(root: Path) -> dict[str, Command]:
    """Write the commands' inputs below `root` and return the commands by name.

    Some commands read the reference runs of other commands.
    """
    inputs, finished = root / "inputs", root / "reference"
    inputs.mkdir(parents=True, exist_ok=True)
    for name, text in FILES.items():
        (inputs / name).write_text(text.replace("INPUTS", str(inputs)) + "\n", encoding="utf-8")
    translations = inputs / "translations"
    if not translations.exists():
        written_translations(translations, eng_Latn__spa_Latn=[ROWS[0][-1], ROWS[2][-1]])
    references = str(written_references(inputs))
    loop = finished / "loop"
    tag = loop / "control_tags"
    filters = '{axis: [ability], template: ["I\'m {noun_phrase}."]}'
    prompts = ["--prompts.descriptors", "4", "--prompts.filters", filters]
    label = json.loads((STYLE_CLASSIFIER / "config.json").read_text())["id2label"]["0"]
    classifier = ["--offensiveness.classifier", str(STYLE_CLASSIFIER), "--offensiveness.classifier.label", label]
    config = {
        name: ["--config", str(inputs / f"{name}.yaml"), *QUIET] for name in ("measure", "tune", "loop", "ablate")
    }
    measure = ["measure", *QUIET, "--metrics"]
    arguments = {
        "loop": ["loop", *config["loop"]],
        "ablate --jobs 2": ["ablate", *config["ablate"], "--jobs", "2"],
        "measure generation_bias": ["measure", *config["measure"]],
        "measure sentence_pairs": [*measure, "sentence_pairs"],
        "measure likelihood_bias": [*measure, "likelihood_bias", *prompts],
        "measure offensiveness": [*measure, "offensiveness", *prompts, *classifier],
        "measure translation_bias": [
            *measure, "translation_bias", "--translation_bias.references", references,
            "--translation_bias.translations", str(translations), "--translation_bias.tokenize", "13a",
            "--translation_bias.languages", "spa_Latn", "--translation_bias.min_masculine_references", "0",
        ],
        "measure embedding_bias": [
            *measure, "embedding_bias", "--model", str(STYLE_CLASSIFIER), "--embedding_bias.references", references,
            "--embedding_bias.languages", "spa_Latn",
        ],
        "label": ["label", *QUIET, "--responses", str(loop / "train")],
        "tune": ["tune", *config["tune"], "--labels", str(loop / "label"), "--method", "kto"],
        "compare": ["compare", *QUIET, "--before", str(loop / "before"), "--after", str(tag / "after")],
        "export": ["export", "--tuning", str(tag / "tune"), "--comparison", str(tag / "compare")],
        "report (two runs)": ["report", str(loop / "before"), str(tag / "after")],
        "train_classifier": [
            "train_classifier", *QUIET, "--texts", str(inputs / "texts.csv"), "--labels", "{0: fine, 1: rude}",
            "--batch_size", "16", "--epochs", "3",
        ],
    }  # fmt: skip
    with_initial_folder = {
        "report (a loop)": Command(["report"], "--folders", loop),
        "rate --import_votes": Command(
            ["rate", *QUIET, "--import_votes", str(inputs / "votes.csv")], initial_folder=finished / "rate"
        ),
        "rate --summary": Command(["rate", *QUIET, "--summary"], initial_folder=finished / "rate --import_votes"),
    }
    return {name: Command(options) for name, options in arguments.items()} | with_initial_folder


def run_references(
    forked: ForkedCommands, root: Path, commands: Mapping[str, Command], names: Sequence[str]
) -> dict[str, float]:
    """Run reference runs of the commands `names`, and of commands whose output they read; return the CPU seconds.

    Finished reference runs below `root` are reused.
    """
    forked.run("--version")  # imports everything
    finished, file = root / "reference", root / "seconds.json"
    seconds: dict[str, float] = json.loads(file.read_text()) if file.exists() else {}
    needed = ["loop"] if not {*names} <= INDEPENDENT else []
    for name in dict.fromkeys([*needed, *(["rate --import_votes"] if "rate --summary" in names else []), *names]):
        if name in seconds:
            continue
        shutil.rmtree(finished / name, ignore_errors=True)
        if name == "rate --import_votes":
            _write_votes(forked, root)
        folder = commands[name].prepare(finished / name)
        running = commands[name].start(forked, folder)
        seconds[name] = wait_cpu_seconds(running, math.inf)
        if running.wait() != 0:
            raise SystemExit(f"{name}: status {running.status()}: {running.stderr}")
        file.write_text(json.dumps(seconds))
        print(f"{name}: {seconds[name]:.1f} s of CPU for the reference run", flush=True)
    return seconds


def wait_cpu_seconds(running: Running, limit: float) -> float:
    """Wait until a command with its processes has used `limit` CPU seconds or has ended; return the seconds used.

    CPU seconds measure the work done, also on a busy machine.
    """
    seconds = 0.0
    with suppress(psutil.NoSuchProcess):
        command = psutil.Process(running.pid)
        while seconds < limit and running.status() is None:
            seconds = max(seconds, sum(map(_cpu_seconds, [command, *command.children(recursive=True)])))
            time.sleep(0.05)  # polling uses CPU time itself
    return seconds


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


def _cpu_seconds(process: psutil.Process) -> float:
    """Return the CPU seconds of a process and of its finished children; 0 if the process has ended."""
    try:
        return sum(process.cpu_times()[:4])
    except psutil.NoSuchProcess:
        return 0.0


def _write_votes(forked: ForkedCommands, root: Path) -> None:
    """Start a rating, which samples its pairs, and write a file of votes on them."""
    finished = root / "reference"
    shutil.rmtree(finished / "rate", ignore_errors=True)
    sides = ["--before", str(finished / "loop" / "before"), "--after", str(finished / "loop/control_tags/after")]
    running = forked.start("rate", *QUIET, *sides, "--port", "0", "--output_dir", str(finished / "rate"))
    wait_until(
        lambda: running.status() is not None or ((running.folder / "stdout").exists() and "Rate at" in running.stdout)
    )
    running.kill()  # the server is up, so the pairs are written
    pairs = pd.read_csv(finished / "rate" / "pairs.csv")["prompt_id"]
    questions = json.loads((finished / "rate" / "run.json").read_text(encoding="utf-8"))["questions"]
    rows = [(f"rater {n}", pair, question, 1) for n in range(RATERS) for pair in pairs for question in questions]
    columns = ["rater", "prompt_id", "question", "choice"]
    pd.DataFrame(rows, columns=columns).to_csv(root / "inputs" / "votes.csv", index=False)


def compare_with_reference(folder: Path, reference: Path) -> tuple[Counter[str], list[str]]:
    """Return counts of "other results" (0 or 1) and of "left over" files, and a line for each such file."""
    different, left_over = find_differences(folder, reference), find_left_over(folder, reference)
    counts = Counter({"other results": bool(different), "left over": len(left_over)})
    return counts, [*(f"differs: {name}" for name in different), *(f"left over: {name}" for name in left_over)]


def find_differences(folder: Path, reference: Path) -> list[str]:
    """Return the names of files whose results differ from the reference run's, or that one of the runs lacks."""
    results, expected = _results(folder), _results(reference)
    return sorted(name for name in expected | results if expected.get(name) != results.get(name))


def find_left_over(folder: Path, reference: Path) -> list[str]:
    """Return the names of temporary files, and of files that the reference run does not have."""
    names, expected = (
        {path.relative_to(root).as_posix(): path for path in root.rglob("*")} for root in (folder, reference)
    )
    return sorted(
        name
        for name, path in names.items()
        if path.name.endswith(UNFINISHED) or (name not in expected and "parts" not in path.parts)
    )


def _results(folder: Path) -> dict[str, Any]:
    """Return the results that must not change, by file: scores, votes, hashes of tables and weights, whole reports.

    Parts, whose number depends on time, are left out, and so are the contents of reports and points, which contain
    minutes and folder names.
    """
    results: dict[str, Any] = {}
    for path in folder.rglob("*"):
        name = path.relative_to(folder).as_posix()
        if path.name == "scores.json":
            saved = json.loads(path.read_text(encoding="utf-8"))
            results[name] = [(s["metric"], s["group"], s["value"], s["interval"]) for s in saved["scores"]]
        elif path.name == "votes.jsonl":
            results[name] = [line.rpartition('"time"')[0] for line in path.read_text(encoding="utf-8").splitlines()]
        elif path.suffix in (".parquet", ".safetensors") and "parts" not in path.parts and path.stem != "points":
            results[name] = hashlib.sha256(path.read_bytes()).hexdigest()
        elif path.suffix in (".html", ".md"):
            results[name] = path.suffix == ".md" or path.read_text(encoding="utf-8").rstrip().endswith("</html>")
    return results
