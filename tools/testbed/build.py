"""Builds the testbed's models: python -m tools.testbed.build --seed 0 (into recipes/testbed, or --output_dir)

The build takes about 21 minutes on two cores. On one machine, equal seeds give equal bytes. If a new model fails the
check, existing models stay. `--only second_style_classifier`, `--only masked_model` and `--only language_model` build a
single model with the same bytes as the whole build, in one to four minutes.
"""

import argparse
import json
import logging
import shutil
import sys
import tempfile
from pathlib import Path

from transformers import PreTrainedModel, PreTrainedTokenizerFast

from evenhand.evaluation.data.readers.prompt_files import load_personas
from evenhand.evaluation.files import write_json, write_text
from evenhand.recipes.testbed import (
    DIALOGUE_MODEL,
    LANGUAGE_MODEL,
    MASKED_MODEL,
    PAIRS,
    SECOND_STYLE_CLASSIFIER,
    STYLE_CLASSIFIER,
)
from tools.testbed.check import (
    find_problems,
    measure_language_model,
    measure_masked_model,
    measure_models,
    measure_second_classifier,
)
from tools.testbed.classifiers import train_second_style_classifier, train_style_classifier
from tools.testbed.corpus import all_prompts, train_tokenizer
from tools.testbed.dialogue import train_dialogue_model
from tools.testbed.language import train_language_model
from tools.testbed.masked import train_masked_model
from tools.testbed.pairs import draw_pairs
from tools.testbed.steps import prepare_torch

MEASURED = "measured.json"
# The models that `--only` accepts: functions that train and that measure one.
ALONE = {
    SECOND_STYLE_CLASSIFIER.name: (train_second_style_classifier, measure_second_classifier),
    MASKED_MODEL.name: (train_masked_model, measure_masked_model),
    LANGUAGE_MODEL.name: (train_language_model, measure_language_model),
}
CARD = """# Testbed: {title}

{about} {parameters:,} parameters. It is an instrument for tests of metrics and methods: it knows no other sentences,
and its numbers say nothing about any real model or people.

- Data: the grammar in `tools/testbed` and nothing else, its exact distributions as targets; no text of people.
- Built by `python -m tools.testbed.build --seed {seed}`; licence Apache-2.0.
- What it learned of what was planted: `measured.json` in the folder above. The design: `SOURCE.md`.
"""
ABOUT = {
    DIALOGUE_MODEL.name: "A GPT-2 that answers HolisticBias prompts in 26 styles, with a planted, exactly known "
    "dependence of style on descriptor. Some of its phrases are unkind on purpose. Persona lines and prompt are joined "
    "by line ends and end with `<|endoftext|>`; a second one ends the response.",
    STYLE_CLASSIFIER.name: "A BERT that gives the probabilities of the grammar's 26 styles for a short response whose "
    "mentions of the descriptor were replaced by “left-handed” (Smith et al. 2022, A.6).",
    SECOND_STYLE_CLASSIFIER.name: "A ModernBERT, on whole words in lower case, that gives the same 26 styles. It "
    "labels no response; it measures models that were tuned on labels of the first classifier, and was trained on "
    "utterances that the first never saw.",
    MASKED_MODEL.name: "A BERT that fills in the words of short sentences about groups of people. Some bias types have "
    "a planted stereotype of exactly known size, others have none. The pairs are in `pairs.csv`.",
    LANGUAGE_MODEL.name: "A GPT-2 that gives each sentence of HolisticBias with a noun and an ungendered descriptor a "
    "probability. In some axes the frequencies of descriptors differ by exactly known amounts, in others not.",
}
log = logging.getLogger("evenhand")


def build(seed: int, output_dir: Path, only: str | None = None) -> list[str]:
    """Train and measure all models or one; replace those in `output_dir` if all pass; return the failed checks."""
    prepare_torch(seed)
    output_dir.mkdir(parents=True, exist_ok=True)
    numbers = {"seed": seed}
    if only:
        numbers = json.loads((output_dir / MEASURED).read_text(encoding="utf-8"))
    # On the disk of `output_dir`, so that replacing a model is one rename.
    with tempfile.TemporaryDirectory(dir=output_dir, prefix=".build") as name:
        folder = Path(name)
        sizes = {}
        classifier = folder / STYLE_CLASSIFIER.name
        if not only:
            personas = load_personas()
            dialogue = folder / DIALOGUE_MODEL.name
            tokenizer = train_tokenizer(personas)
            style_model, style_tokenizer = train_style_classifier(tokenizer, seed)
            sizes[classifier] = save(classifier, style_model, style_tokenizer)
            dialogue_model = train_dialogue_model(tokenizer, all_prompts(), personas, seed)
            sizes[dialogue] = save(dialogue, dialogue_model, tokenizer)
            numbers |= measure_models(dialogue, classifier, folder / "measured", seed)
        for name, (train, measure) in ALONE.items():
            if only in (None, name):
                path = folder / name
                model, model_tokenizer = train(seed)
                sizes[path] = save(path, model, model_tokenizer)
                # The second classifier is compared with the first; the others are measured in a folder.
                other = folder / f"measured_{name}"
                if name == SECOND_STYLE_CLASSIFIER.name:
                    other = output_dir / STYLE_CLASSIFIER.name if only else classifier
                numbers |= measure(path, other, seed)
        log.info("measured: %s", numbers)
        problems = find_problems(numbers)
        if problems:
            return problems
        for path, parameters in sizes.items():
            title = path.name.replace("_", " ")
            card = CARD.format(title=title, about=ABOUT[path.name], parameters=parameters, seed=seed)
            write_text(path / "README.md", card)
            shutil.rmtree(output_dir / path.name, ignore_errors=True)
            path.replace(output_dir / path.name)
        write_text(output_dir / PAIRS.name, draw_pairs().to_csv(index=False, lineterminator="\n"))
        write_json(output_dir / MEASURED, numbers)
    return []


def save(folder: Path, model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast) -> int:
    """Save a model as safetensors with its tokenizer, readable by everyone; return its number of parameters."""
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    for path in folder.iterdir():
        path.chmod(0o644)
    return model.num_parameters()


def main(arguments: list[str] | None = None) -> int:
    """Build the models with the options of the command line; return the exit status."""
    parser = argparse.ArgumentParser(description="Build the testbed's models and check that they learned the bias.")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output_dir", type=Path, default=DIALOGUE_MODEL.parent)
    parser.add_argument("--only", choices=ALONE, help="build only this model")
    chosen = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    problems = build(chosen.seed, chosen.output_dir, chosen.only)
    if problems:
        lines = ["The testbed fails its checks; nothing was replaced.", *problems]
        print("\n".join(lines), file=sys.stderr)
    return int(bool(problems))


if __name__ == "__main__":
    sys.exit(main())
