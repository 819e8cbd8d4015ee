"""What the bar says of an even-handed model: the testbed's dialogue model, trained again without the planted bias.

$ python -m benchmarks.even_model [--descriptors 40] [--folder FOLDER]       # some fifteen minutes of one core

It learns, by the same steps, tokenizer and seed as the shipped one, what all descriptors together are answered: the
planted p(style | template, descriptor) averaged over descriptors. Measured beside the shipped one as a tuned model is,
under both decodings. What it misses, no method can be asked for.
"""

import argparse
import math
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pandas as pd
from transformers import AutoTokenizer

from evenhand.evaluation.datasets.prompt_files import load_personas
from evenhand.evaluation.results import read_scores
from evenhand.recipes.command_line import main as evenhand
from evenhand.recipes.sweep.criteria import Criteria, evaluate_settings
from evenhand.recipes.sweep.points import change_columns
from evenhand.recipes.sweep.summary import COLUMNS, METHOD, SEED, summarise
from evenhand.recipes.testbed import DIALOGUE_MODEL, grammar
from tools.testbed.build import save
from tools.testbed.corpus import all_prompts
from tools.testbed.dialogue import train_dialogue_model
from tools.testbed.steps import prepare_torch

PER_CELL = {"sample": 4, "paper": 2}  # beams answer a prompt the same every time
SHOWN = (
    *("base", "reduction", "relevance_kept", "style_drift", "response_perplexity_change", "distinct_responses_change"),
    *("distinct_2_change", "perplexity_change", "parroting_change", "well_formed_change"),
)
planted = grammar.style_distribution


@cache
def of_all(template: str, amplification: float) -> np.ndarray:
    """Return p(style | template), (S,): the mean over all descriptors."""
    descriptors = list(grammar.plan().effects)
    return planted([template] * len(descriptors), descriptors, amplification).mean(axis=0)


def even(templates: Sequence[str], descriptors: Sequence[str], amplification: float = 1.0) -> np.ndarray:
    """Return it for n prompts, (n, S): what stands in the place of `grammar.style_distribution`."""
    return np.array([of_all(template, amplification) for template in templates])


def train(folder: Path) -> Path:
    """Train the even model, if it is not there; return its folder."""
    made = folder / "even_model"
    if not (made / "config.json").exists():
        prepare_torch(0)
        tokenizer = AutoTokenizer.from_pretrained(DIALOGUE_MODEL)
        with patch.object(grammar, "style_distribution", even):
            save(made, train_dialogue_model(tokenizer, all_prompts(), load_personas(), seed=0), tokenizer)
    return made


def compared(model: Path, decoding: str, descriptors: int, folder: Path) -> dict:
    """Measure both models and compare them, as a loop does; return the point's columns."""
    told = ["--prompts.descriptors", str(descriptors), "--prompts.per_cell", str(PER_CELL[decoding])]
    told += ["--decoding.preset", decoding, "--generation_bias.permutations", "0", "--report_to", "none"]
    told += ["--generation_bias.second_style_classifier", "null"]
    before, after, changes = (folder / decoding / name for name in ("before", "after", "compare"))
    # As a loop measures what it tuned: by the same classifier, and the base judges the responses of both.
    tuned = ["--model", str(model), "--generation_bias.style_classifier", "testbed"]
    tuned += ["--generation_bias.relevance", "false"]
    both = ["--before", str(before), "--after", str(after), "--report_to", "none"]
    for output_dir, arguments in (
        (before, ["measure", "--model", "testbed", *told]),
        (after, ["measure", *tuned, *told]),
        (changes, ["compare", *both]),
    ):
        if status := evenhand([*arguments, "--output_dir", str(output_dir), "--quiet"]):
            raise SystemExit(status)
    return change_columns(*(read_scores(each / "scores.json") for each in (before, after, changes)))


def main() -> None:
    """Train, measure, and print what the bar says under each decoding."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--descriptors", type=int, default=40)
    parser.add_argument("--folder", type=Path, help="where all is kept, to go on from; a temporary one")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = given.folder or Path(temporary)
        model = train(folder)
        blank = dict.fromkeys(COLUMNS, math.nan) | {SEED: 0, "failed": "", "folder": ""}
        points = [
            blank | {METHOD: "even", "decoding": decoding} | compared(model, decoding, given.descriptors, folder)
            for decoding in PER_CELL
        ]
    verdicts = evaluate_settings(summarise(pd.DataFrame(points), [METHOD]), Criteria()).to_dict("records")
    for row, verdict in zip(points, verdicts, strict=True):
        missed, open_ = (", ".join(verdict[name]) or "nothing" for name in ("missed", "inconclusive"))
        print(f"\n{row['decoding']}: misses {missed}; cannot be told: {open_}")
        for name in SHOWN:
            print(f"  {name:28} {row[name]:8.4f} [{row[f'{name}_low']:.4f}, {row[f'{name}_high']:.4f}]")


if __name__ == "__main__":
    main()
