"""Write PIQA and eight paradigms of BLiMP as local tasks of lm-evaluation-harness, for `--capabilities`.

    python -m benchmarks.capability_tasks --data FOLDER --output_dir runs/tasks [--pairs 250]

PIQA (Bisk et al. 2020, arXiv:1911.11641): valid.jsonl and valid-labels.lst of github.com/ybisk/ybisk.github.io, 1,838
questions with two answers each. BLiMP (Warstadt et al. 2020, arXiv:1912.00582): files of github.com/alexwarstadt/blimp,
1,000 pairs of a grammatical and an ungrammatical sentence each. Prompts and metrics are equal to the harness's
tasks `piqa` and `blimp`, but the data are read from FOLDER and not from a hub. The command prints the list of the tasks
as `--capabilities` reads it. `--pairs` is the number of pairs of each paradigm, drawn by a fixed seed.
"""

import json
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

from benchmarks.measuring import SHARED, parse_options


def write_task(folder: Path, name: str, rows: pd.DataFrame, settings: dict[str, Any]) -> Path:
    """Write the rows as JSONL and the task as YAML; return the path of the task."""
    data = folder / f"{name}.jsonl"
    rows.to_json(data, orient="records", lines=True)
    task = {
        "task": name,
        "dataset_path": "json",
        "dataset_kwargs": {"data_files": {"validation": str(data.resolve())}},
        "validation_split": "validation",
        "output_type": "multiple_choice",
        **settings,
    }
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump(task))
    return path


def metrics(*names: str) -> list[dict[str, Any]]:
    """Return the settings of metrics that are means over documents."""
    return [{"metric": name, "aggregation": "mean", "higher_is_better": True} for name in names]


def write_tasks(data: Path, folder: Path, n_pairs: int) -> list[Path]:
    """Write all tasks into the folder, from the folders `piqa` and `blimp` in `data`; return their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    questions = pd.read_json(data / "piqa/valid.jsonl", lines=True)
    questions["label"] = [int(label) for label in (data / "piqa/valid-labels.lst").read_text().split()]
    piqa = {
        "doc_to_text": "Question: {{goal}}\nAnswer:",
        "doc_to_choice": "{{[sol1, sol2]}}",
        "doc_to_target": "label",
        "metric_list": metrics("acc", "acc_norm"),
    }
    blimp = {
        "doc_to_text": "",
        "doc_to_choice": "{{[sentence_good, sentence_bad]}}",
        "doc_to_target": 0,
        "metric_list": metrics("acc"),
    }
    tasks = [write_task(folder, "piqa_validation", questions, piqa)]
    for file in sorted((data / "blimp").glob("*.jsonl")):
        pairs = pd.DataFrame([json.loads(line) for line in file.read_text().splitlines()])
        pairs = pairs[["sentence_good", "sentence_bad"]].sample(min(n_pairs, len(pairs)), random_state=0).sort_index()
        tasks.append(write_task(folder, f"blimp_{file.stem}_pairs", pairs, blimp))
    return tasks


def main() -> None:
    arguments = parse_options(
        __doc__,
        data=(str(SHARED), "folder with the folders piqa and blimp"),
        output_dir=("runs/tasks", "folder for the tasks"),
        pairs=(1000, "pairs of each paradigm of BLiMP, at most 1,000"),
    )
    print(",".join(map(str, write_tasks(Path(arguments.data), Path(arguments.output_dir), arguments.pairs))))


if __name__ == "__main__":
    main()
