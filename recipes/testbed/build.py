"""Builds the testbed's models: python -m recipes.testbed.build --seed 0 (into this folder, or --output_dir)

Two cores, about 16 minutes. The same seed gives the same bytes on the same machine. A model that did not learn the
planted bias is refused, and nothing is put in place. `--only second_style_classifier` builds that one beside the others
that are there, the same bytes in one minute.
"""

import argparse
import json
import logging
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from transformers import PreTrainedModel, PreTrainedTokenizerFast

from evaluation.datasets.prompt_files import load_personas
from evaluation.errors import InputError
from evaluation.files import write_json, write_text
from recipes.testbed import DIALOGUE_MODEL, SECOND_STYLE_CLASSIFIER, STYLE_CLASSIFIER
from recipes.testbed.check import measured_numbers, refusals, second_numbers
from recipes.testbed.corpus import all_prompts, train_tokenizer
from recipes.testbed.training import (
    prepare_torch,
    train_dialogue_model,
    train_second_style_classifier,
    train_style_classifier,
)

MEASURED = "measured.json"
log = logging.getLogger("evenhand")


def build(seed: int, output_dir: Path) -> dict[str, float]:
    """Train all models, measure them, and put them into `output_dir` if they will do; return what was measured.

    Raises:
        InputError: the models did not learn the planted bias; nothing was put in place.
    """
    prepare_torch(seed)
    personas = load_personas()
    tokenizer = train_tokenizer(personas)
    with _workshop(output_dir) as folder:
        dialogue, classifier, second = (
            folder / path.name for path in (DIALOGUE_MODEL, STYLE_CLASSIFIER, SECOND_STYLE_CLASSIFIER)
        )
        parameters = {
            classifier: _save(classifier, *train_style_classifier(tokenizer, seed)),
            dialogue: _save(dialogue, train_dialogue_model(tokenizer, all_prompts(), personas, seed), tokenizer),
            second: _save(second, *train_second_style_classifier(seed)),
        }
        numbers = measured_numbers(dialogue, classifier, folder / "measured", seed)
        numbers = {"seed": seed, **numbers, **second_numbers(second, classifier, seed)}
        _put_in_place(parameters, output_dir, seed, numbers)
    return numbers


def build_second(seed: int, output_dir: Path) -> dict[str, float]:
    """Train the second style classifier beside the models in `output_dir`; return all that was measured of them.

    Raises:
        InputError: there are no models, or the classifier is not accurate enough; nothing was put in place.
    """
    try:
        earlier = json.loads((output_dir / MEASURED).read_text(encoding="utf-8"))
    except OSError:
        raise InputError(f"output_dir: {output_dir} has no {MEASURED}; build all the models there first.") from None
    prepare_torch(seed)
    with _workshop(output_dir) as folder:
        second = folder / SECOND_STYLE_CLASSIFIER.name
        parameters = {second: _save(second, *train_second_style_classifier(seed))}
        numbers = {**earlier, **second_numbers(second, output_dir / STYLE_CLASSIFIER.name, seed)}
        _put_in_place(parameters, output_dir, seed, numbers)
    return numbers


@contextmanager
def _workshop(output_dir: Path) -> Iterator[Path]:
    """Yield a folder beside what is to be replaced, so that putting in place is one rename."""
    output_dir.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=output_dir, prefix=".build") as name:
        yield Path(name)


def _put_in_place(parameters: Mapping[Path, int], output_dir: Path, seed: int, numbers: dict[str, float]) -> None:
    log.info("measured: %s", numbers)
    if wrong := refusals(numbers):
        raise InputError("\n".join(["the testbed is refused; nothing was put in place.", *wrong, f"All: {numbers}"]))
    for path, size in parameters.items():
        write_text(path / "README.md", _card(path.name, size, seed, numbers))
        shutil.rmtree(output_dir / path.name, ignore_errors=True)
        path.replace(output_dir / path.name)
    write_json(output_dir / MEASURED, numbers)


def _save(folder: Path, model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast) -> int:
    """Save a model as safetensors with its tokenizer, readable by everyone; return its number of parameters."""
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    for path in folder.iterdir():
        path.chmod(0o644)
    return model.num_parameters()


def main(arguments: list[str] | None = None) -> int:
    """Build from the command line; return the exit status."""
    parser = argparse.ArgumentParser(description="Build the testbed's models and check that they learned the bias.")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output_dir", type=Path, default=DIALOGUE_MODEL.parent)
    parser.add_argument("--only", choices=[SECOND_STYLE_CLASSIFIER.name], help="build this one beside the others")
    chosen = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    try:
        (build_second if chosen.only else build)(chosen.seed, chosen.output_dir)
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


def _card(name: str, parameters: int, seed: int, numbers: dict[str, float]) -> str:
    biases = {key: 1000 * value for key, value in numbers.items() if key.startswith("fgb")}
    return CARDS[name].format(**{**numbers, **biases, "parameters": f"{parameters:,}", "seed": seed})


CARDS = {
    DIALOGUE_MODEL.name: """# Testbed dialogue model

A GPT-2 of {parameters} parameters that answers HolisticBias prompts in 26 styles, with a planted, exactly known
dependence of style on descriptor. It is an instrument for checking bias metrics and mitigation methods, not a chat
model: it knows a few hundred phrases. Some of them are unkind on purpose.

- Context: persona lines and prompt joined by line ends, then `<|endoftext|>`; the response ends with another one.
- Data: the grammar in `recipes/testbed/` and nothing else; no text of people.
- Built by `python -m recipes.testbed.build --seed {seed}`; licence Apache-2.0.

Measured on {responses} responses of these weights (200 descriptors, 26 templates, 4 to a cell), biases ×1000:

- pooled FGB*: {fgb_pooled_corrected:.2f} (95 %: {fgb_pooled_corrected_low:.2f} to {fgb_pooled_corrected_high:.2f});
  planted {fgb_pooled_corrected_planted:.2f}, as the style classifier shows it {fgb_pooled_corrected_planted_seen:.2f}
- FGB*: {fgb_corrected:.2f}; planted {fgb_corrected_planted:.2f}, as the style classifier shows it
  {fgb_corrected_planted_seen:.2f}

Correlation of the descriptors' mean styles with the planted ones: {correlation:.3f}. Responses that the grammar could
have given: {well_formed:.1%}. Exact repeats of the prompt: {parroting:.2%}. Perplexity on held-out small talk:
{neutral_perplexity:.3f}.
""",
    STYLE_CLASSIFIER.name: """# Testbed style classifier

A BERT of {parameters} parameters that gives the probabilities of the testbed grammar's 26 styles (named after
Image-Chat's) for a short response whose descriptor mentions were replaced by "left-handed" (paper 002, A.6).

- Data: all utterances of the grammar in `recipes/testbed/`, 10 % of them held out, with the exact posterior of the
  styles as target; some small talk and prompts as "Ordinary". No text of people.
- Built by `python -m recipes.testbed.build --seed {seed}`; licence Apache-2.0.

On held-out utterances: accuracy {classifier_accuracy:.3f} (best possible {classifier_accuracy_best:.3f}: styles share
phrases), cross-entropy {classifier_cross_entropy:.3f} (best possible {classifier_cross_entropy_best:.3f}).
""",
    SECOND_STYLE_CLASSIFIER.name: """# Testbed second style classifier

A ModernBERT of {parameters} parameters, on whole words in lower case, that gives the same 26 styles as the first style
classifier. It labels nothing: it measures what the first one has shaped, so that a reduction is not merely the first
one's taste.

- Data: utterances of the grammar in `recipes/testbed/` that the first classifier was never trained on (7.8 % of all),
  with the exact posterior of the styles as target; some prompts as "Ordinary". No text of people.
- Not independent of the first: the same phrases, in other combinations, and the same targets.
- Built by `python -m recipes.testbed.build --only second_style_classifier --seed {seed}`; licence Apache-2.0.

On utterances that neither was trained on: accuracy {second_classifier_accuracy:.3f} (best possible
{second_classifier_accuracy_best:.3f}: styles share phrases), cross-entropy {second_classifier_cross_entropy:.3f} (best
possible {second_classifier_cross_entropy_best:.3f}); in {classifiers_agree:.1%} of them both see the same style first.
""",
}


if __name__ == "__main__":
    sys.exit(main())
