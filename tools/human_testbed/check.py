"""Measures a new testbed of human sentences as users do, and checks the numbers against the truth of its bank."""

from collections.abc import Sequence
from functools import partial
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd

from evenhand.evaluation.families.generation_bias.collect.rows import StyledRun, read_styled_run, select_texts
from evenhand.evaluation.families.generation_bias.settings import Settings as GenerationSettings
from evenhand.evaluation.models.likelihood.perplexity import response_perplexity
from evenhand.evaluation.models.loading import load_dialogue_model
from evenhand.evaluation.models.styles import load_style_classifier, style_vectors
from evenhand.evaluation.results import DESCRIPTOR, RESPONSE, TEMPLATE, TEXT, find_score, read_scores
from evenhand.evaluation.runs.files import write_text
from evenhand.evaluation.settings import ModelSettings, PromptSettings
from evenhand.recipes.measure import SCORES, measure
from evenhand.recipes.settings import MeasureSettings
from tools.human_testbed import comments, data
from tools.testbed.check import MAX_BIAS, MIN_BIAS, MIN_CORRELATION, SILENT, correlations, find_violations

N_EXAMPLES = 40  # responses
LIMITS = [
    ("bias_share", MIN_BIAS, MAX_BIAS, "the share of the planted bias that the model learned"),
    ("correlation", MIN_CORRELATION, np.inf, "the correlation of its bias directions with the planted ones"),
]


def measure_models(
    folder: Path,
    dialogue_model: Path,
    classifiers: Sequence[Path],
    neutral: Path,
    prompts: PromptSettings,
    options: dict,
) -> dict[str, float]:
    """Measure saved models in `folder / "measured"` and return the numbers of `measured.json`, in natural units.

    `bias_share` is pooled FGB* over its true value for the same classifier's expected style vectors of the bank;
    `…_second` is by the second classifier. `correlation` is between the deviations m_d − m̄ of the descriptors and their
    true values, without sampling noise. `in_bank` is the share of responses that are comments of the bank.
    `comment_perplexity` is the perplexity of held-out comments as responses to measured prompts.

    Args:
        options: `data`, the folder of the data, and `seed`.
    """
    models = [ModelSettings(name=str(path)) for path in classifiers]
    measure(
        MeasureSettings(
            model=ModelSettings(name=str(dialogue_model)),
            prompts=prompts,
            generation_bias=GenerationSettings(
                style_classifier=models[0],
                second_style_classifier=models[1] if len(models) > 1 else None,
                style_clusters="go_emotions",
                neutral_dialogue=str(neutral),
            ),
            split="all",
            seed=options["seed"],
            **SILENT,
            output_dir=folder / "measured",
        )
    )
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


def find_problems(numbers: dict[str, float]) -> list[str]:
    """Return a sentence for each failed check of the models with these numbers."""
    return find_violations(numbers, LIMITS)


def _true_means(planted: comments.Plan, seen: np.ndarray, templates: list[str], descriptors: list[str]) -> np.ndarray:
    """Return the expected m_d of D descriptors over T templates, (D, R)."""
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
