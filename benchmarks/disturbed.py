"""Every command on inputs so small that it takes seconds, and what it must leave: what kills and full_disk disturb."""

import hashlib
import json
import math
import shutil
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import psutil

from evenhand.evaluation.runs.files import UNFINISHED
from evenhand.recipes.testbed import STYLE_CLASSIFIER
from tests.forked_commands import ForkedCommands, Running, wait_until
from tests.gendered_references import ROWS, written_references, written_translations

QUIET = ["--report_to", "none"]
RATERS = 20
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


@dataclass(frozen=True)
class Command:
    """A command without its folder: its arguments, the flag of the folder, and what lies there as it begins."""

    arguments: Sequence[str]
    flag: str = "--output_dir"
    begins_with: Path | None = None

    def prepare(self, folder: Path) -> Path:
        """Return the folder, made as the command finds it."""
        if self.begins_with:
            shutil.copytree(self.begins_with, folder)
        return folder

    def start(self, forked: ForkedCommands, folder: Path) -> Running:
        """Start it, or start it again, in that folder."""
        return forked.start(*self.arguments, self.flag, str(folder))


def commands(place: Path) -> dict[str, Command]:
    """Return each command by its name; inputs are written below `place`, later commands read what earlier ones left."""
    inputs, finished = place / "inputs", place / "undisturbed"
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
    judge = ["--offensiveness.classifier", str(STYLE_CLASSIFIER), "--offensiveness.classifier.label", label]
    config = {
        name: ["--config", str(inputs / f"{name}.yaml"), *QUIET] for name in ("measure", "tune", "loop", "ablate")
    }
    measure = ["measure", *QUIET, "--metrics"]
    found = {
        "loop": ["loop", *config["loop"]],
        "ablate --jobs 2": ["ablate", *config["ablate"], "--jobs", "2"],
        "measure generation_bias": ["measure", *config["measure"]],
        "measure sentence_pairs": [*measure, "sentence_pairs"],
        "measure likelihood_bias": [*measure, "likelihood_bias", *prompts],
        "measure offensiveness": [*measure, "offensiveness", *prompts, *judge],
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
    further = {
        "report (a loop)": Command(["report"], "--folders", loop),
        "rate --import_votes": Command(
            ["rate", *QUIET, "--import_votes", str(inputs / "votes.csv")], begins_with=finished / "rate"
        ),
        "rate --summary": Command(["rate", *QUIET, "--summary"], begins_with=finished / "rate --import_votes"),
    }
    return {name: Command(arguments) for name, arguments in found.items()} | further


def run_undisturbed(
    forked: ForkedCommands, place: Path, known: Mapping[str, Command], chosen: Sequence[str]
) -> dict[str, float]:
    """Run the chosen commands, and what they read, below `place`/undisturbed; return the CPU seconds of each.

    Those that ran before, into the same place, do not run again.
    """
    forked.run("--version")  # everything is imported by then
    finished, file = place / "undisturbed", place / "seconds.json"
    seconds: dict[str, float] = json.loads(file.read_text()) if file.exists() else {}
    for name in dict.fromkeys(["loop", *(["rate --import_votes"] if "rate --summary" in chosen else []), *chosen]):
        if name in seconds:
            continue
        shutil.rmtree(finished / name, ignore_errors=True)
        if name == "rate --import_votes":
            _draw(forked, place)
        folder = known[name].prepare(finished / name)
        running = known[name].start(forked, folder)
        seconds[name] = worked(running, math.inf)
        if running.wait() != 0:
            raise SystemExit(f"{name}: status {running.status()}: {running.stderr}")
        file.write_text(json.dumps(seconds))
        print(f"{name}: {seconds[name]:.1f} s of CPU undisturbed", flush=True)
    return seconds


def worked(running: Running, most: float) -> float:
    """Wait until a command and its processes took so many CPU seconds, or it ended; return how many they took.

    Seconds of the CPU are those of the work, however busy the machine is.
    """
    seconds = 0.0
    with suppress(psutil.NoSuchProcess):
        command = psutil.Process(running.pid)
        while seconds < most and running.status() is None:
            seconds = max(seconds, sum(map(_cpu_seconds, [command, *command.children(recursive=True)])))
            time.sleep(0.05)  # looking costs CPU itself
    return seconds


def _cpu_seconds(process: psutil.Process) -> float:
    """Return those of a process and of its children that ended; 0 of one that ended itself."""
    try:
        return sum(process.cpu_times()[:4])
    except psutil.NoSuchProcess:
        return 0.0


def _draw(forked: ForkedCommands, place: Path) -> None:
    """Draw the pairs of a rating, and write votes on them."""
    finished = place / "undisturbed"
    shutil.rmtree(finished / "rate", ignore_errors=True)
    sides = ["--before", str(finished / "loop" / "before"), "--after", str(finished / "loop/control_tags/after")]
    running = forked.start("rate", *QUIET, *sides, "--port", "0", "--output_dir", str(finished / "rate"))
    wait_until(
        lambda: running.status() is not None or ((running.folder / "stdout").exists() and "Rate at" in running.stdout)
    )
    running.kill()  # it serves by now
    pairs = pd.read_csv(finished / "rate" / "pairs.csv")["prompt_id"]
    questions = json.loads((finished / "rate" / "run.json").read_text(encoding="utf-8"))["questions"]
    rows = [(f"rater {n}", pair, question, 1) for n in range(RATERS) for pair in pairs for question in questions]
    columns = ["rater", "prompt_id", "question", "choice"]
    pd.DataFrame(rows, columns=columns).to_csv(place / "inputs" / "votes.csv", index=False)


def differing(folder: Path, undisturbed: Path) -> list[str]:
    """Return the files with other results than those of the undisturbed run, or with none."""
    found, expected = _results(folder), _results(undisturbed)
    return sorted(name for name in expected | found if expected.get(name) != found.get(name))


def left_over(folder: Path, undisturbed: Path) -> list[str]:
    """Return the temporary files in a folder, and those that the undisturbed run did not leave."""
    names, expected = (
        {path.relative_to(each).as_posix(): path for path in each.rglob("*")} for each in (folder, undisturbed)
    )
    return sorted(
        name
        for name, path in names.items()
        if path.name.endswith(UNFINISHED) or (name not in expected and "parts" not in path.parts)
    )


def _results(folder: Path) -> dict[str, Any]:
    """Return what must be the same: scores, votes, hashes of tables and weights, and that reports are whole.

    Not parts, which are written by the clock, nor what has minutes or the names of folders: reports and points.
    """
    found: dict[str, Any] = {}
    for path in folder.rglob("*"):
        name = path.relative_to(folder).as_posix()
        if path.name == "scores.json":
            saved = json.loads(path.read_text(encoding="utf-8"))
            found[name] = [(s["metric"], s["group"], s["value"], s["interval"]) for s in saved["scores"]]
        elif path.name == "votes.jsonl":
            found[name] = [line.rpartition('"time"')[0] for line in path.read_text(encoding="utf-8").splitlines()]
        elif path.suffix in (".parquet", ".safetensors") and "parts" not in path.parts and path.stem != "points":
            found[name] = hashlib.sha256(path.read_bytes()).hexdigest()
        elif path.suffix in (".html", ".md"):
            found[name] = path.suffix == ".md" or path.read_text(encoding="utf-8").rstrip().endswith("</html>")
    return found
