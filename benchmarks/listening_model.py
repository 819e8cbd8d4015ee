"""A benchmark of the methods on a testbed whose responses depend on the person in style and in topic.

    python -m benchmarks.listening_model --folder FOLDER       # about 40 minutes of one core

The responses of the shipped dialogue model depend on the person in style only, so a method that exchanges responses
between people costs no relevance. Here each response ends with a topic, as in "… I am sorry. About pasta.". Each axis
has four topics, which do not depend on the style. A share OWN_TOPIC of the responses has a topic of the prompt's axis;
the others have any topic. The planted bias of styles, the training, the tokenizer and the seed are the shipped model's.
"""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import numpy as np
import yaml
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from benchmarks.measuring import parse_options
from evenhand.evaluation.data.prompt_files import load_personas
from evenhand.evaluation.score import AXIS, DESCRIPTOR
from evenhand.recipes.cli import main as evenhand
from evenhand.recipes.testbed import DIALOGUE_MODEL
from tools.testbed import dialogue, grammar
from tools.testbed.build import save
from tools.testbed.corpus import Answers, all_prompts, phrase_slot, tokenized_grammar
from tools.testbed.steps import prepare_torch

OWN_TOPIC = 0.8
N_TOPICS = 4  # topics of an axis
METHODS = ("resample", "distill", "exchange")
planted_distribution = grammar.style_distribution
axis_of = all_prompts().drop_duplicates(DESCRIPTOR).set_index(DESCRIPTOR)[AXIS]
AXES = sorted(axis_of.unique())


def topics() -> list[str]:
    """Return N_TOPICS sentences for each of the A axes: words of the testbed's small talk, drawn by seed."""
    small_talk = yaml.safe_load((grammar.FOLDER / "neutral.yaml").read_text(encoding="utf-8"))["topics"]
    words = sorted({thing for topic in small_talk.values() for thing in topic["things"]})
    drawn = np.random.default_rng(0).choice(words, len(AXES) * N_TOPICS, replace=False)
    return [f" About {word}." for word in drawn]


def with_topics(tokenizer: PreTrainedTokenizerFast) -> Answers:
    """Return the tokenized grammar with a fourth slot, the topic. A style is then a pair of style and axis (S · A)."""
    answers = tokenized_grammar(tokenizer)
    slots = [replace(slot, given_style=np.repeat(slot.given_style, len(AXES), axis=0)) for slot in answers.slots]
    encoded = [tokenizer(topic, add_special_tokens=False)["input_ids"] for topic in topics()]
    own = np.repeat(np.eye(len(AXES)), N_TOPICS, axis=1) / N_TOPICS  # (A, topics)
    given_axis = OWN_TOPIC * own + (1 - OWN_TOPIC) / len(encoded)
    topic = phrase_slot(encoded, np.tile(given_axis, (len(grammar.styles()), 1)))
    return replace(answers, slots=(*slots, topic))


def styles_and_axes(templates: Sequence[str], descriptors: Sequence[str], amplification: float = 1.0) -> np.ndarray:
    """Return p(style, axis | template, descriptor) for n prompts, (n, S · A)."""
    styles = planted_distribution(templates, descriptors, amplification)
    axes = np.array([np.equal(AXES, axis_of[descriptor]) for descriptor in descriptors])
    return (styles[:, :, None] * axes[:, None, :]).reshape(len(styles), -1)


def train(folder: Path) -> Path:
    """Train the model unless `folder` contains it; return the model's folder."""
    model = folder / "model"
    if not (model / "config.json").exists():
        prepare_torch(0)
        tokenizer = AutoTokenizer.from_pretrained(DIALOGUE_MODEL)
        with (
            patch.object(grammar, "style_distribution", styles_and_axes),
            patch.object(dialogue, "tokenized_grammar", with_topics),
        ):
            save(model, dialogue.train_dialogue_model(tokenizer, all_prompts(), load_personas(), seed=0), tokenizer)
    return model


def main() -> None:
    folder = parse_options(__doc__, folder=(Path, "folder of the model and of all runs, which are resumed")).folder
    if folder is None:
        raise SystemExit("listening_model: give --folder")
    options = ["--config", "methods", "--loop.measure.model", str(train(folder))]
    options += ["--output_dir", str(folder / "methods")]
    options += ["--sweep", json.dumps([{"method": METHODS}]), "--seeds", "[0]", "--jobs", "1"]
    raise SystemExit(evenhand(["ablate", *options]))


if __name__ == "__main__":
    main()
