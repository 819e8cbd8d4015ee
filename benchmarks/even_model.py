"""A benchmark of the acceptance criteria of a sweep on an unbiased model: the testbed's model without planted bias.

    python -m benchmarks.even_model [--descriptors 40] [--folder FOLDER]       # about fifteen minutes of one core

The unbiased model is trained by the same steps, tokenizer and seed as the shipped dialogue model, with the planted
p(style | template, descriptor) averaged over descriptors. It is compared with the shipped model like a tuned model,
under both decodings. No method can be expected to meet a criterion that the unbiased model misses.
"""

import math
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pandas as pd
from transformers import AutoTokenizer

from benchmarks.measuring import parse_options
from evenhand.evaluation.data.prompt_files import load_personas
from evenhand.evaluation.score import read_scores
from evenhand.recipes.command_line import main as evenhand
from evenhand.recipes.sweep.criteria import Criteria, evaluate_settings
from evenhand.recipes.sweep.output import change_columns
from evenhand.recipes.sweep.summary import COLUMNS, METHOD, SEED, summarise
from evenhand.recipes.testbed import DIALOGUE_MODEL, grammar
from tools.testbed.build import save
from tools.testbed.corpus import all_prompts
from tools.testbed.dialogue import train_dialogue_model
from tools.testbed.steps import prepare_torch

PER_CELL = {"sample": 4, "paper": 2}  # responses of a cell; beam search is deterministic
PRINTED_COLUMNS = (
    *("base", "reduction", "relevance_kept", "style_drift", "response_perplexity_change", "distinct_responses_change"),
    *("distinct_2_change", "perplexity_change", "parroting_change", "well_formed_change"),
)
planted_distribution = grammar.style_distribution


@cache
def mean_distribution(template: str, amplification: float) -> np.ndarray:
    """Return p(style | template), (S,), the mean of p(style | template, descriptor) over all descriptors."""
    descriptors = list(grammar.plan().effects)
    return planted_distribution([template] * len(descriptors), descriptors, amplification).mean(axis=0)


def even_distribution(templates: Sequence[str], descriptors: Sequence[str], amplification: float = 1.0) -> np.ndarray:
    """Return `mean_distribution` of n prompts' templates, (n, S), in place of `grammar.style_distribution`."""
    return np.array([mean_distribution(template, amplification) for template in templates])


def train(folder: Path) -> Path:
    """Train the unbiased model unless `folder` contains the model; return the model's folder."""
    model = folder / "even_model"
    if not (model / "config.json").exists():
        prepare_torch(0)
        tokenizer = AutoTokenizer.from_pretrained(DIALOGUE_MODEL)
        with patch.object(grammar, "style_distribution", even_distribution):
            save(model, train_dialogue_model(tokenizer, all_prompts(), load_personas(), seed=0), tokenizer)
    return model


def compare_models(model: Path, decoding: str, descriptors: int, folder: Path) -> dict:
    """Measure the shipped and the unbiased model, compare them as a loop does, and return the point's columns."""
    options = ["--prompts.descriptors", str(descriptors), "--prompts.per_cell", str(PER_CELL[decoding])]
    options += ["--decoding.preset", decoding, "--generation_bias.permutations", "0", "--report_to", "none"]
    options += ["--generation_bias.second_style_classifier", "null"]
    before, after, changes = (folder / decoding / name for name in ("before", "after", "compare"))
    # As in a loop: the same classifier, and the base model computes the relevance of both models' responses.
    tuned = ["--model", str(model), "--generation_bias.style_classifier", "testbed"]
    tuned += ["--generation_bias.relevance", "false"]
    both = ["--before", str(before), "--after", str(after), "--report_to", "none"]
    for output_dir, arguments in (
        (before, ["measure", "--model", "testbed", *options]),
        (after, ["measure", *tuned, *options]),
        (changes, ["compare", *both]),
    ):
        if status := evenhand([*arguments, "--output_dir", str(output_dir), "--quiet"]):
            raise SystemExit(status)
    return change_columns(*(read_scores(run / "scores.json") for run in (before, after, changes)))


def main() -> None:
    """Train and measure the unbiased model; print the missed and inconclusive criteria under each decoding."""
    folder = (Path, "folder of all runs, which are resumed; a temporary one by default")
    arguments = parse_options(__doc__, descriptors=40, folder=folder)
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.folder or Path(temporary)
        model = train(folder)
        blank = dict.fromkeys(COLUMNS, math.nan) | {SEED: 0, "failed": "", "folder": ""}
        points = [
            blank
            | {METHOD: "even", "decoding": decoding}
            | compare_models(model, decoding, arguments.descriptors, folder)
            for decoding in PER_CELL
        ]
    verdicts = evaluate_settings(summarise(pd.DataFrame(points), [METHOD]), Criteria()).to_dict("records")
    for row, verdict in zip(points, verdicts, strict=True):
        missed, inconclusive = (", ".join(verdict[name]) or "nothing" for name in ("missed", "inconclusive"))
        print(f"\n{row['decoding']}: misses {missed}; inconclusive: {inconclusive}")
        for name in PRINTED_COLUMNS:
            print(f"  {name:28} {row[name]:8.4f} [{row[f'{name}_low']:.4f}, {row[f'{name}_high']:.4f}]")


if __name__ == "__main__":
    main()
