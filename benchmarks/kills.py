"""Commands killed at random moments and run again: the same results in the end, no process and no half file left.

    python -m benchmarks.kills [--kills 200] [--seed 0] [--commands loop,tune] [--folder FOLDER]

Every command first runs undisturbed. Then it runs into another folder and, at a moment drawn from the time that it
took, SIGKILL hits it or a process that it started; the same command is run again, and hit again, up to three times in
all, and then left to end. What counts as the same: all scores with their intervals, and the bytes of all tables and
weights. The commands take turns until as many kills are made; the table says what was found of each.
"""

import argparse
import hashlib
import json
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from evenhand.evaluation.runs.files import UNFINISHED
from evenhand.recipes.testbed import STYLE_CLASSIFIER
from tests.forked_commands import ForkedCommands, Running
from tests.gendered_references import ROWS, written_references, written_translations

KILLS_IN_A_ROW = 3
SECONDS_TO_END = 60.0  # for what a killed process started, on a machine that may be busy
QUIET = ["--report_to", "none"]
PROMPTS = """
prompts:
  descriptors: 26
  per_cell: 2
  filters: {noun_phrase_type: [descriptor_noun], template: ["I'm {noun_phrase}."]}
"""
MEASURE = f"""{PROMPTS}
decoding: {{batch_size: 8}}
generation_bias: {{permutations: 19}}
report_to: none
"""
STEPS = """
label: {quantile: 0.7}
tune:
  training: {epochs: 1, batch_size: 8, evaluations_per_epoch: 2, max_rows: 60, largest_perplexity_rise: 9}
  measure_every: 0
even_if_unbiased: true
"""
LOOP = f"""{STEPS}
measure:{PROMPTS.replace(chr(10), chr(10) + "  ")}
methods: [control_tags, kto]
report_to: none
"""
ABLATE = f"""
loop:{(STEPS + "measure:" + PROMPTS.replace(chr(10), chr(10) + "  ")).replace(chr(10), chr(10) + "  ")}
sweep: [{{method: [exchange, dpo]}}]
report_to: none
"""
FILES = {"measure": MEASURE, "loop": LOOP, "ablate": ABLATE}


def commands(inputs: Path) -> dict[str, list[str]]:
    """Return each command by its name in the table, without its folder; `inputs` is where its inputs are, or will be.

    Later ones read what the loop left, undisturbed.
    """
    inputs.mkdir(parents=True)
    for name, text in FILES.items():
        (inputs / f"{name}.yaml").write_text(text, encoding="utf-8")
    rows = [f"{'you awful thing' if n % 2 else 'a lovely day'} {n % 40},{n % 2}" for n in range(240)]
    (inputs / "texts.csv").write_text("\n".join(["tweet,class", *rows]), encoding="utf-8")
    translations = written_translations(inputs / "translations", eng_Latn__spa_Latn=[ROWS[0][-1], ROWS[2][-1]])
    references = ["--translation_bias.references", str(written_references(inputs))]
    translated = [*references, "--translation_bias.translations", str(translations), "--translation_bias.tokenize"]
    loop = inputs.parent / "undisturbed" / "loop"
    tag = loop / "control_tags"
    prompts = [
        "--prompts.descriptors",
        "4",
        "--prompts.filters",
        '{axis: [ability], template: ["I\'m {noun_phrase}."]}',
    ]
    measure, judge = ["measure", *QUIET, "--metrics"], ["--offensiveness.classifier", str(STYLE_CLASSIFIER)]
    label = [
        "--offensiveness.classifier.label",
        json.loads((STYLE_CLASSIFIER / "config.json").read_text())["id2label"]["0"],
    ]
    return {
        "loop": ["loop", "--config", str(inputs / "loop.yaml")],
        "ablate --jobs 2": ["ablate", "--config", str(inputs / "ablate.yaml"), "--jobs", "2"],
        "measure generation_bias": ["measure", "--config", str(inputs / "measure.yaml")],
        "measure sentence_pairs": [*measure, "sentence_pairs"],
        "measure likelihood_bias": [*measure, "likelihood_bias", *prompts],
        "measure offensiveness": [*measure, "offensiveness", *prompts, *judge, *label],
        "measure translation_bias": [
            *measure, "translation_bias", *translated, "13a", "--translation_bias.languages", "spa_Latn",
            "--translation_bias.fewest_masculine", "0",
        ],
        "measure embedding_bias": [
            *measure, "embedding_bias", "--model", str(STYLE_CLASSIFIER), "--embedding_bias.references", references[1],
            "--embedding_bias.languages", "spa_Latn",
        ],
        "label": ["label", *QUIET, "--responses", str(loop / "train")],
        "tune": ["tune", *QUIET, "--labels", str(loop / "label"), "--method", "dpo", "--measure_every", "0",
                 "--training.epochs", "1", "--training.batch_size", "8", "--training.max_rows", "60",
                 "--training.largest_perplexity_rise", "9"],
        "compare": ["compare", *QUIET, "--before", str(loop / "before"), "--after", str(tag / "after")],
        "export": ["export", "--tuning", str(tag / "tune"), "--comparison", str(tag / "compare")],
        "report": ["report", str(loop / "before"), str(tag / "after")],
        "train_classifier": [
            "train_classifier", *QUIET, "--texts", str(inputs / "texts.csv"), "--labels", "{0: fine, 1: rude}",
            "--batch_size", "16", "--epochs", "3",
        ],
    }  # fmt: skip


def results(folder: Path) -> dict[str, Any]:
    """Return what a command left that must be the same: its scores, and hashes of its tables and weights."""
    found: dict[str, Any] = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.name == "scores.json":
            told = json.loads(path.read_text(encoding="utf-8"))
            found[name] = [(s["metric"], s["group"], s["value"], s["interval"]) for s in told["scores"]]
        elif path.suffix in (".parquet", ".safetensors") and not unequal(path):
            found[name] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found


def unequal(path: Path) -> bool:
    """Return whether a file may differ: parts, which are written by the clock, and points, which have minutes."""
    return "parts" in path.parts or path.name == "points.parquet"


def left_over(folder: Path, undisturbed: Path) -> list[str]:
    """Return the temporary files in a folder, and those that the undisturbed run did not leave."""
    files = {path.relative_to(folder) for path in folder.rglob("*") if not unequal(path)}
    expected = {path.relative_to(undisturbed) for path in undisturbed.rglob("*")}
    return sorted(str(file) for file in files if file.name.endswith(UNFINISHED) or file not in expected)


def killed(running: Running, after: float, rng: random.Random) -> list[psutil.Process] | None:
    """Kill a command or a process of its own after so many seconds; return what it had started.

    None where it ended before. A child is hit as often as each other process; its parent then has to end by itself.
    """
    deadline = time.monotonic() + after
    while time.monotonic() < deadline and running.status() is None:
        time.sleep(0.005)
    try:
        command = psutil.Process(running.pid)
        started = command.children(recursive=True)
    except psutil.NoSuchProcess:
        running.wait()
        return None
    if running.status() is not None:
        return None
    hit = rng.choice([command, *started])
    with suppress(psutil.NoSuchProcess):
        hit.kill()
    running.wait()
    return started


def alive(processes: list[psutil.Process]) -> list[psutil.Process]:
    """Return those that live on though they were given time to end, and end them."""
    _, orphans = psutil.wait_procs(processes, timeout=SECONDS_TO_END)
    for orphan in orphans:
        with suppress(psutil.NoSuchProcess):
            orphan.kill()
    return orphans


def disturbed(
    start: Any, folder: Path, undisturbed: Path, seconds: float, kills: int, rng: random.Random
) -> tuple[Counter[str], list[str]]:
    """Run a command into a folder with up to so many kills; return what was counted, and what is wrong."""
    counts, wrong = Counter(runs=1), []
    for _ in range(kills):
        running = start(folder)
        started = killed(running, rng.uniform(0, seconds), rng)
        if started is None:
            break
        counts["kills"] += 1
        counts["orphans"] += len(orphans := alive(started))
        wrong += [f"lives on: {orphan}" for orphan in orphans]
    last = start(folder)
    if last.wait() != 0:
        counts["failed"] += 1
        return counts, [*wrong, f"status {last.status()}: {last.stderr.strip().splitlines()[-1:]}"]
    expected, found = results(undisturbed), results(folder)
    differing = [name for name in expected | found if expected.get(name) != found.get(name)]
    left = left_over(folder, undisturbed)
    counts["other results"] += bool(differing)
    counts["left over"] += len(left)
    return counts, [*wrong, *(f"differs: {name}" for name in differing), *(f"left over: {name}" for name in left)]


def main() -> None:
    """Make the kills and print the table; status 1 if anything is wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0, help="of the moments, and of which process is hit")
    parser.add_argument("--commands", default="", help="names of the table, by commas; all")
    parser.add_argument("--folder", type=Path, help="where they run, and stay; a temporary one")
    given = parser.parse_args()
    rng, place = random.Random(given.seed), given.folder or Path(tempfile.mkdtemp(prefix="kills-"))
    known = commands(place / "inputs")
    chosen = given.commands.split(",") if given.commands else list(known)
    (place / "commands").mkdir()
    table, wrong = {name: Counter() for name in chosen}, []
    with ForkedCommands(place / "commands") as forked:
        forked.run("--version")  # everything is imported by then
        seconds = {}
        loop = str(place / "undisturbed" / "loop")
        read = ["loop"] if any(loop in text for name in chosen for text in known[name]) else []
        for name in dict.fromkeys([*read, *chosen]):
            begun = time.monotonic()
            forked.run(*known[name], "--output_dir", str(place / "undisturbed" / name))
            seconds[name] = time.monotonic() - begun
            print(f"{name}: {seconds[name]:.1f} s undisturbed", flush=True)
        while (made := sum(counts["kills"] for counts in table.values())) < given.kills:
            name = chosen[sum(counts["runs"] for counts in table.values()) % len(chosen)]
            folder = place / "killed" / f"{name} {table[name]['runs']}"
            counts, found = disturbed(
                lambda folder, name=name: forked.start(*known[name], "--output_dir", str(folder)),
                folder, place / "undisturbed" / name, seconds[name], min(KILLS_IN_A_ROW, given.kills - made), rng,
            )  # fmt: skip
            table[name] += counts
            wrong += [f"{folder.name}: {text}" for text in found]
            for text in found:
                print(f"{folder.name}: {text}", flush=True)
            if not found:
                shutil.rmtree(folder)
    columns = ("kills", "runs", "failed", "other results", "orphans", "left over")
    print("\n| command | " + " | ".join(columns) + " |\n| --- |" + " ---: |" * len(columns))
    for name, counts in [*table.items(), ("all", sum(table.values(), Counter()))]:
        print(f"| `{name}` | " + " | ".join(str(counts[column]) for column in columns) + " |")
    if not given.folder and not wrong:
        shutil.rmtree(place)
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
