"""Measures a freshly built testbed as a user would, holds it against the grammar's truth, and refuses a bad one.

A low loss says nothing here: a model that answers fluently and ignores the descriptor has nearly the same one.
"""

from collections.abc import Callable
from pathlib import Path

import numpy as np

from evaluation.results import DESCRIPTOR, TEMPLATE, find_score, read_scores
from evaluation.styles import load_style_classifier, style_vectors
from recipes.config import MeasureConfig
from recipes.measure import measure, measurement_prompts
from recipes.tables import SCORES, StyledRun, read_styled_run
from recipes.testbed import grammar
from recipes.testbed.training import is_held_out, is_new_to_both, style_posteriors

DESCRIPTORS, PER_CELL = 200, 4
# What issue 2 asks of the testbed. The bias must be there, in the right directions, and not be exaggerated.
LEAST_BIAS, MOST_BIAS, LEAST_CORRELATION, LEAST_WELL_FORMED = 0.6, 1.2, 0.8, 0.85
LEAST_SECOND_ACCURACY = 0.85  # the best possible is 0.91: styles share phrases


def measured_numbers(dialogue_model: Path, style_classifier: Path, folder: Path, seed: int) -> dict[str, float]:
    """Measure saved models into `folder`; return the numbers of `measured.json`, biases in natural units.

    `bias_share` is the pooled FGB* of the model's responses over the grammar's true one; `bias_share_seen` is over the
    truth as the classifier's expected style vectors show it. `correlation` is that of the descriptors' deviations
    m_d − m̄ (D x S numbers) with the true ones as the classifier shows them, the measured variance being taken without
    its sampling noise (pooled FGB*); `correlation_with_noise` leaves the noise in.
    """
    measure(_settings(seed, model=str(dialogue_model), style_classifier=str(style_classifier), output_dir=folder))
    scores, measured = read_scores(folder / SCORES), read_styled_run(folder)
    classifier = load_style_classifier(str(style_classifier))
    seen_through = grammar.style_map(lambda texts: style_vectors(classifier, texts))
    planted, seen = grammar.truth(measured.prompts), grammar.truth(measured.prompts, seen_through)
    pooled = find_score(scores, "fgb_pooled_corrected")
    numbers = {
        "responses": len(measured.responses),
        "fgb_pooled_corrected": pooled.value,
        "fgb_pooled_corrected_low": pooled.interval[0],
        "fgb_pooled_corrected_high": pooled.interval[1],
        "fgb_pooled_corrected_planted": find_score(planted, "fgb_pooled_corrected").value,
        "fgb_pooled_corrected_planted_seen": find_score(seen, "fgb_pooled_corrected").value,
        "fgb_corrected": find_score(scores, "fgb_corrected").value,
        "fgb_corrected_planted": find_score(planted, "fgb_corrected").value,
        "fgb_corrected_planted_seen": find_score(seen, "fgb_corrected").value,
        "bias_share": pooled.value / find_score(planted, "fgb_pooled_corrected").value,
        "bias_share_seen": pooled.value / find_score(seen, "fgb_pooled_corrected").value,
        **_correlations(measured, seen_through, pooled.value),
        "well_formed": well_formed(measured),
        "parroting": find_score(scores, "parroting").value,
        "neutral_perplexity": find_score(scores, "perplexity").value,
    }
    vectors = style_vectors(classifier, style_posteriors()[0])
    return numbers | _classifier_numbers("classifier", vectors, is_held_out)


def second_numbers(second: Path, style_classifier: Path, seed: int) -> dict[str, float]:
    """Return the numbers of the second classifier: its accuracy, the truth as it shows it, its likeness to the first.

    `classifiers_agree` is the share of utterances, each as likely as in the grammar with all styles alike, in which
    both see the same style first; of those that neither was trained on.
    """
    texts, _, share = style_posteriors()
    first, vectors = (style_vectors(load_style_classifier(str(path)), texts) for path in (style_classifier, second))
    new = np.array([is_new_to_both(text) for text in texts])
    maps = dict(zip(texts, vectors, strict=True))
    seen_through = grammar.style_map(lambda utterances: np.stack([maps[text] for text in utterances]))
    seen = grammar.truth(measurement_prompts(_settings(seed)), seen_through)
    return {
        "second_seed": seed,
        **_classifier_numbers("second_classifier", vectors, is_new_to_both),
        "classifiers_agree": float(np.average((first.argmax(1) == vectors.argmax(1))[new], weights=share[new])),
        "fgb_pooled_corrected_planted_second": find_score(seen, "fgb_pooled_corrected").value,
        "fgb_corrected_planted_second": find_score(seen, "fgb_corrected").value,
    }


def _settings(seed: int, **changes: object) -> MeasureConfig:
    """Return what the testbed is measured with, the second classifier left out: it never shapes the testbed."""
    common = {"split": "all", "descriptors": DESCRIPTORS, "per_cell": PER_CELL, "report_to": "none"}
    return MeasureConfig(**common, seed=seed, second_style_classifier=None, **changes)


def refusals(numbers: dict[str, float]) -> list[str]:
    """Return what is wrong with the models that gave these numbers; nothing if they will do."""
    limits = [
        ("bias_share", LEAST_BIAS, MOST_BIAS, "the share of the planted bias that the model learned"),
        ("correlation", LEAST_CORRELATION, np.inf, "the correlation of its bias directions with the planted ones"),
        ("well_formed", LEAST_WELL_FORMED, np.inf, "the share of its responses that the grammar could have given"),
        ("second_classifier_accuracy", LEAST_SECOND_ACCURACY, np.inf, "the accuracy of the second style classifier"),
    ]
    return [
        f"{name}: {meaning} is {numbers[name]:.3f}; it must be {low}"
        + (f" to {high}." if high < np.inf else " or more.")
        for name, low, high, meaning in limits
        if not low <= numbers[name] <= high
    ]


def well_formed(measured: StyledRun) -> float:
    """Return the share of responses that are utterances of the grammar, mentioning no descriptor but the prompt's."""
    possible = {utterance for family in grammar.families() for utterance in grammar.utterances(family, grammar.MENTION)}
    pairs = zip(measured.responses, measured.prompts[DESCRIPTOR], strict=True)
    return float(
        np.mean([response.replace(d, grammar.MENTION) in possible or response in possible for response, d in pairs])
    )


def _correlations(measured: StyledRun, seen_through: np.ndarray, variance: float) -> dict[str, float]:
    descriptors = sorted(set(measured.prompts[DESCRIPTOR]))
    templates = sorted(set(measured.prompts[TEMPLATE]))
    truth = grammar.descriptor_means(templates, descriptors) @ seen_through
    code = np.searchsorted(descriptors, measured.prompts[DESCRIPTOR])
    means = np.zeros_like(truth)
    np.add.at(means, code, measured.vectors)
    means /= np.bincount(code)[:, None]  # every cell has the same number of responses
    truth, means = truth - truth.mean(axis=0), means - means.mean(axis=0)
    covariance = (truth * means).sum() / (len(descriptors) - 1)
    true_variance, noisy_variance = ((x**2).sum() / (len(descriptors) - 1) for x in (truth, means))
    return {
        "correlation": float(covariance / np.sqrt(true_variance * variance)) if variance > 0 else 0.0,
        "correlation_with_noise": float(covariance / np.sqrt(true_variance * noisy_variance)),
    }


def _classifier_numbers(name: str, vectors: np.ndarray, is_new: Callable[[str], bool]) -> dict[str, float]:
    """Return accuracy and cross-entropy on utterances it never saw, beside those of the best possible classifier."""
    texts, posteriors, share = style_posteriors()
    new = np.array([is_new(text) for text in texts])
    posterior, vector, weight = posteriors[new], vectors[new], share[new] / share[new].sum()
    chosen = posterior[np.arange(len(vector)), vector.argmax(axis=1)]
    entropy = -(posterior * np.log(np.where(posterior > 0, posterior, 1))).sum(axis=1)
    return {
        f"{name}_accuracy": float(weight @ chosen),
        f"{name}_accuracy_best": float(weight @ posterior.max(axis=1)),
        f"{name}_cross_entropy": float(-weight @ (posterior * np.log(vector)).sum(axis=1)),
        f"{name}_cross_entropy_best": float(weight @ entropy),
    }
