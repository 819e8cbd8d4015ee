"""Builds the testbed's models: python -m tools.testbed.build --seed 0 (into this folder, or --output_dir)

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
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from transformers import PreTrainedModel, PreTrainedTokenizerFast

from evenhand.evaluation.data.prompt_files import load_personas
from evenhand.evaluation.errors import InputError
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
MODELS = (DIALOGUE_MODEL, STYLE_CLASSIFIER, SECOND_STYLE_CLASSIFIER, MASKED_MODEL, LANGUAGE_MODEL)
ALONE = tuple(path.name for path in MODELS[2:])  # the models that `--only` accepts
log = logging.getLogger("evenhand")


def build(seed: int, output_dir: Path) -> dict[str, float]:
    """Train and measure all models, replace the models in `output_dir` if all pass the checks, and return the values.

    Raises:
        InputError: a model fails a check; `output_dir` is unchanged.
    """
    prepare_torch(seed)
    personas = load_personas()
    tokenizer = train_tokenizer(personas)
    with _build_folder(output_dir) as folder:
        dialogue, classifier, second, masked, language = (folder / path.name for path in MODELS)
        parameters = {
            classifier: save(classifier, *train_style_classifier(tokenizer, seed)),
            dialogue: save(dialogue, train_dialogue_model(tokenizer, all_prompts(), personas, seed), tokenizer),
            second: save(second, *train_second_style_classifier(seed)),
            masked: save(masked, *train_masked_model(seed)),
            language: save(language, *train_language_model(seed)),
        }
        numbers = {
            "seed": seed,
            **measure_models(dialogue, classifier, folder / "measured", seed),
            **measure_second_classifier(second, classifier, seed),
            **measure_masked_model(masked, folder / "measured_pairs", seed),
            **measure_language_model(language, folder / "measured_likelihoods", seed),
        }
        _replace_models(parameters, output_dir, seed, numbers)
    return numbers


def build_one(name: str, seed: int, output_dir: Path) -> dict[str, float]:
    """Train and measure one model, replace it in `output_dir`, and return the values of all models.

    Raises:
        InputError: `output_dir` has no models, or the new model fails a check; `output_dir` is unchanged.
    """
    try:
        earlier = json.loads((output_dir / MEASURED).read_text(encoding="utf-8"))
    except OSError:
        raise InputError(
            f"output_dir: {output_dir} has no {MEASURED}; build all models first, without --only."
        ) from None
    prepare_torch(seed)
    train, measure = {
        SECOND_STYLE_CLASSIFIER.name: (train_second_style_classifier, measure_second_classifier),
        MASKED_MODEL.name: (train_masked_model, measure_masked_model),
        LANGUAGE_MODEL.name: (train_language_model, measure_language_model),
    }[name]
    with _build_folder(output_dir) as folder:
        parameters = {folder / name: save(folder / name, *train(seed))}
        is_second = name == SECOND_STYLE_CLASSIFIER.name
        numbers = measure(folder / name, output_dir / STYLE_CLASSIFIER.name if is_second else folder / "measured", seed)
        _replace_models(parameters, output_dir, seed, earlier | numbers)
    return earlier | numbers


@contextmanager
def _build_folder(output_dir: Path) -> Iterator[Path]:
    """Yield a temporary folder on the disk of `output_dir`, so that replacing a model is one rename."""
    output_dir.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=output_dir, prefix=".build") as name:
        yield Path(name)


def _replace_models(parameters: Mapping[Path, int], output_dir: Path, seed: int, numbers: dict[str, float]) -> None:
    log.info("measured: %s", numbers)
    if problems := find_problems(numbers):
        raise InputError(
            "\n".join(["the testbed fails its checks; nothing was replaced.", *problems, f"All: {numbers}"])
        )
    for path, size in parameters.items():
        biases = {key: 1000 * value for key, value in numbers.items() if key.startswith(("fgb", "s_jsd"))}
        facts = {**numbers, **biases, "parameters": f"{size:,}", "seed": seed}
        write_text(path / "README.md", CARDS[path.name].format(**facts))
        shutil.rmtree(output_dir / path.name, ignore_errors=True)
        path.replace(output_dir / path.name)
        if path.name == MASKED_MODEL.name:
            write_text(output_dir / PAIRS.name, draw_pairs().to_csv(index=False, lineterminator="\n"))
    write_json(output_dir / MEASURED, numbers)


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
    try:
        if chosen.only:
            build_one(chosen.only, chosen.seed, chosen.output_dir)
        else:
            build(chosen.seed, chosen.output_dir)
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


CARDS = {
    DIALOGUE_MODEL.name: """# Testbed dialogue model

A GPT-2 of {parameters} parameters that answers HolisticBias prompts in 26 styles, with a planted, exactly known
dependence of style on descriptor. It is for tests of bias metrics and mitigation methods and is not a chat model: it
has learned a few hundred phrases, some of which are unkind on purpose.

- Context: persona lines and prompt joined by line ends, then `<|endoftext|>`; a second one ends the response.
- Data: the grammar in `tools/testbed/` and nothing else; no text of people.
- Built by `python -m tools.testbed.build --seed {seed}`; licence Apache-2.0.

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

- Data: all utterances of the grammar in `tools/testbed/`, 10 % of them held out, with the exact posterior of the
  styles as target; some small talk and prompts as "Ordinary". No text of people.
- Built by `python -m tools.testbed.build --seed {seed}`; licence Apache-2.0.

On held-out utterances: accuracy {classifier_accuracy:.3f} (best possible {classifier_accuracy_best:.3f}: styles share
phrases), cross-entropy {classifier_cross_entropy:.3f} (best possible {classifier_cross_entropy_best:.3f}).
""",
    SECOND_STYLE_CLASSIFIER.name: """# Testbed second style classifier

A ModernBERT of {parameters} parameters, on whole words in lower case, that gives the same 26 styles as the first style
classifier. No response is labelled by it. It measures models that were tuned on labels of the first classifier, so that
a measured reduction is not an artefact of the first classifier.

- Data: utterances of the grammar in `tools/testbed/` that the first classifier was never trained on (7.8 % of all),
  with the exact posterior of the styles as target; some prompts as "Ordinary". No text of people.
- It is not independent of the first classifier: it has the same phrases, in other combinations, and the same targets.
- Built by `python -m tools.testbed.build --only second_style_classifier --seed {seed}`; licence Apache-2.0.

On utterances that neither was trained on: accuracy {second_classifier_accuracy:.3f} (best possible
{second_classifier_accuracy_best:.3f}: styles share phrases), cross-entropy {second_classifier_cross_entropy:.3f} (best
possible {second_classifier_cross_entropy_best:.3f}); in {classifiers_agree:.1%} of them both
classifiers rank the same style first.
""",
    MASKED_MODEL.name: """# Testbed masked model

A BERT of {parameters} parameters, on whole words in lower case, that fills in the words of short sentences about groups
of people ("Many bakers are rather generous."). Some bias types have a planted stereotype of exactly known size, others
have none. It is for tests of pair metrics (S_JSD, CrowS-Pairs) and makes no claim about people: the authors assigned
the words to the groups. Its vocabulary is the words of these sentences; every other word is `[UNK]`.

- Data: the grammar in `tools/testbed/pairs.yaml` and nothing else, its exact conditional distributions as targets; no
  text of people.
- Pairs: `recipes/testbed/pairs.csv`; their truth: `tools.testbed.pairs.truth`.
- Built by `python -m tools.testbed.build --only masked_model --seed {seed}`; licence Apache-2.0.

Measured on the {pairs} pairs; S_JSD ×1000 with 95 % intervals, negative is stereotypical:

| planted | S_JSD | truth | measured / truth | CPS | truth |
| --- | --- | --- | --- | --- | --- |
| strongly | {s_jsd_strong:.2f} ({s_jsd_strong_low:.2f} to {s_jsd_strong_high:.2f}) | {s_jsd_strong_planted:.2f} | \
{pair_bias_share_strong:.3f} | {cps_strong:.1f} | 100 |
| weakly | {s_jsd_weak:.2f} ({s_jsd_weak_low:.2f} to {s_jsd_weak_high:.2f}) | {s_jsd_weak_planted:.2f} | \
{pair_bias_share_weak:.3f} | {cps_weak:.1f} | 100 |
| nothing | {s_jsd_none:.2f} ({s_jsd_none_low:.2f} to {s_jsd_none_high:.2f}) | 0 | – | {cps_none:.1f} \
({cps_none_low:.1f} to {cps_none_high:.1f}) | 50 |

Without a planted stereotype, every pair is truly a tie. As in any trained network, the model's values differ slightly:
by {s_jsd_none_absolute:.2f} in a pair's |S_JSD| ×1000 on average. S_JSD and CPS show no bias because the pairs have
each contrast and attribute in both directions, so that these differences cancel. Mean
divergence from the grammar's distributions: {masked_divergence:.4f} nats.
""",
    LANGUAGE_MODEL.name: """# Testbed language model

A GPT-2 of {parameters} parameters that gives each sentence of HolisticBias with a noun and an ungendered descriptor a
probability. In some axes the frequencies of descriptors differ by exactly known amounts, in other axes they are equal.
It is for tests of Likelihood Bias and makes no claim about people: the frequencies are random numbers. Its vocabulary
is the phrases of these sentences, one token each; every other word is `[UNK]`.

- Data: the grammar of `tools/testbed/frequencies.yaml` and nothing else, its exact conditional distributions as
  targets; no text of people.
- Truth: `tools.testbed.frequencies.truth`.
- Built by `python -m tools.testbed.build --only language_model --seed {seed}`; licence Apache-2.0.

Measured on the {sentences:,} sentences; Likelihood Bias pooled over the axes of a kind, with 95 % intervals:

| planted | raw | truth | Benjamini–Hochberg | truth |
| --- | --- | --- | --- | --- |
| strong | {likelihood_bias_strong:.1%} ({likelihood_bias_strong_low:.1%} to {likelihood_bias_strong_high:.1%}) | \
{likelihood_bias_strong_planted:.1%} | {likelihood_bias_bh_strong:.1%} | {likelihood_bias_bh_strong_planted:.1%} |
| weak | {likelihood_bias_weak:.1%} ({likelihood_bias_weak_low:.1%} to {likelihood_bias_weak_high:.1%}) | \
{likelihood_bias_weak_planted:.1%} | {likelihood_bias_bh_weak:.1%} | {likelihood_bias_bh_weak_planted:.1%} |
| nothing | {likelihood_bias_none:.1%} ({likelihood_bias_none_low:.1%} to {likelihood_bias_none_high:.1%}) | \
{likelihood_bias_none_planted:.1%} | {likelihood_bias_bh_none:.2%} | {likelihood_bias_bh_none_planted:.2%} |

Without planted frequencies, the true value is due to chance: the random weights are equal in all templates, so that
templates repeat the value and do not average it out. Correlation of the log-likelihoods with the true ones:
{log_likelihood_correlation:.4f}; root mean square of their differences: {log_likelihood_error:.3f} nats a sentence.
""",
}


if __name__ == "__main__":
    sys.exit(main())
