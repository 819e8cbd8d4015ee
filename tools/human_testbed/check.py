"""Measures a freshly built testbed of human sentences as a user would, and holds it against the truth of its bank."""

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
from tools.testbed.check import (
    LEAST_BIAS,
    LEAST_CORRELATION,
    MOST_BIAS,
    SILENT,
    correlations,
    out_of_limits,
)

FOR_A_READER = 40  # responses
LIMITS = [
    ("bias_share", LEAST_BIAS, MOST_BIAS, "the share of the planted bias that the model learned"),
    ("correlation", LEAST_CORRELATION, np.inf, "the correlation of its bias directions with the planted ones"),
]


def measured_numbers(
    folder: Path,
    dialogue_model: Path,
    classifiers: Sequence[Path],
    neutral: Path,
    prompts: PromptSettings,
    told: dict,
) -> dict[str, float]:
    """Measure saved models into `folder / "measured"`; return the numbers of `measured.json`, in natural units.

    `told` has data (folder) and seed. `bias_share` is pooled FGB* over the true one, the bank's expected style vectors
    by the same classifier; `…_second` is the same by a second. `correlation` is that of the descriptors' deviations
    m_d − m̄ with the true ones, sampling noise taken out. `in_bank` is the share of responses that are comments of the
    bank. `comment_perplexity` is that of comments held out, as answers to measured prompts.
    """
    judges = [ModelSettings(name=str(path)) for path in classifiers]
    measure(
        MeasureSettings(
            model=ModelSettings(name=str(dialogue_model)),
            prompts=prompts,
            generation_bias=GenerationSettings(
                style_classifier=judges[0],
                second_style_classifier=judges[1] if len(judges) > 1 else None,
                style_clusters="go_emotions",
                neutral_dialogue=str(neutral),
            ),
            split="all",
            seed=told["seed"],
            **SILENT,
            output_dir=folder / "measured",
        )
    )
    scores, measured = read_scores(folder / "measured" / SCORES), read_styled_run(folder / "measured")
    bank, emotions = data.bank(told["data"]), data.emotions(told["data"])
    planted, numbers = comments.plan(emotions), {"seed": told["seed"], "responses": len(measured.responses)}
    for path, (name, group) in zip(classifiers, (("", {}), ("_second", {"classifier": "second"})), strict=False):
        seen = comments.seen_emotions(bank, emotions, partial(style_vectors, load_style_classifier(str(path))))
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
    numbers["comment_perplexity"] = _perplexity(dialogue_model, measured, data.held_out_comments(told["data"]))
    numbers["bank_perplexity"] = _perplexity(dialogue_model, measured, bank[TEXT].tolist())
    _write_for_a_reader(folder / "responses.txt", measured, told["seed"])
    return numbers


def refusals(numbers: dict[str, float]) -> list[str]:
    """Return what is wrong with the models that gave these numbers; nothing if they will do."""
    return out_of_limits(numbers, LIMITS)


def _true_means(planted: comments.Plan, seen: np.ndarray, templates: list[str], descriptors: list[str]) -> np.ndarray:
    """Return the expected m_d of D descriptors over T templates, (D, R)."""
    cells = pd.DataFrame(product(descriptors, templates), columns=[DESCRIPTOR, TEMPLATE])
    return comments.expected_vectors(planted, seen, cells).reshape(len(descriptors), len(templates), -1).mean(axis=1)


def _perplexity(dialogue_model: Path, measured: StyledRun, texts: list[str]) -> float:
    """Return the perplexity of these texts as answers to measured prompts, one each."""
    model, prompts = load_dialogue_model(str(dialogue_model)), measured.prompts[TEXT]
    asked = prompts.sample(len(texts), replace=True, random_state=0).tolist()
    total, tokens = response_perplexity(model, asked, texts)
    return float(np.exp(-total.sum() / tokens.sum()))


def _write_for_a_reader(path: Path, measured: StyledRun, seed: int) -> None:
    rows = np.random.default_rng(seed).choice(len(measured), FOR_A_READER, replace=False)
    shown = select_texts(measured, np.sort(rows))
    told = [f"{prompt}\n    {response}" for prompt, response in zip(shown[TEXT], shown[RESPONSE], strict=True)]
    write_text(path, "\n".join(told) + "\n")
