"""Measurements of newly built testbed models with `evenhand measure`, and checks against the grammars' true values.

A low loss is no sufficient check: a model that ignores descriptors has nearly as low a loss as a correct model.
"""

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import torch
from torch import nn

from evenhand.evaluation import columns
from evenhand.evaluation.metrics.generation_bias.answers import Answers, read_answers
from evenhand.evaluation.metrics.generation_bias.settings import Settings as GenerationSettings
from evenhand.evaluation.metrics.likelihood_bias.metric import likelihood_bias
from evenhand.evaluation.metrics.sentence_pairs import Settings as PairSettings
from evenhand.evaluation.metrics.sentence_pairs.metric import pair_scores
from evenhand.evaluation.model_settings import ModelSettings, StyleClassifierSettings
from evenhand.evaluation.models.classifier_kinds import load_style_classifier
from evenhand.evaluation.models.loading import load_masked_model
from evenhand.evaluation.models.styles import style_vectors
from evenhand.evaluation.prompt_settings import PromptSettings
from evenhand.evaluation.score import SCORES, BiasScore, Form, find_score, read_scores
from evenhand.evaluation.tables import read_table
from evenhand.recipes.measure import measure
from evenhand.recipes.settings import MeasureSettings
from evenhand.recipes.testbed import DIALOGUE_MODEL, NEUTRAL_DIALOGUE, STYLE_CLASSIFIER
from tools.testbed import frequencies, grammar, pairs
from tools.testbed.classifiers import is_held_out, is_new_to_both, style_posteriors
from tools.testbed.masked import masked_batches

DESCRIPTORS = 200
PER_CELL = 4
GRAMMAR = {"descriptor_gender": "(none)"}  # the filter of the sentences of `frequencies`
# The smallest and the largest value. The bias must be large enough, in the right directions, and not exaggerated.
LIMITS = [
    ("bias_share", 0.6, 1.2, "the share of the planted bias that the model learned"),
    ("correlation", 0.8, np.inf, "the correlation of its bias directions with the planted ones"),
    ("well_formed", 0.85, np.inf, "the share of its responses that the grammar could have given"),
    ("second_classifier_accuracy", 0.85, np.inf, "the accuracy of the second style classifier"),  # 0.91 is possible
    ("pair_bias_share_strong", 0.8, 1.2, "the share of the strongly planted S_JSD that is measured"),
    ("pair_bias_share_weak", 0.8, 1.2, "the share of the weakly planted S_JSD that is measured"),
    ("s_jsd_none", -0.00045, 0.00045, "S_JSD where none is planted"),  # a twentieth of the weak one
    ("s_jsd_none_low", -np.inf, 0, "the lower end of its interval"),
    ("s_jsd_none_high", 0, np.inf, "the upper end of its interval"),
    ("cps_none_low", -np.inf, 50, "the lower end of the interval of CPS where nothing is planted"),
    ("cps_none_high", 50, np.inf, "the upper end of the interval of CPS where nothing is planted"),
    ("masked_divergence", -np.inf, 0.05, "the masked model's divergence from the grammar, nats"),
    ("likelihood_bias_share_strong", 0.8, 1.2, "the share of the strong Likelihood Bias measured"),
    ("likelihood_bias_share_weak", 0.8, 1.2, "the share of the weak Likelihood Bias measured"),
    ("likelihood_bias_none", 0.02, 0.09, "Likelihood Bias where none is planted"),  # 0.05 by chance
    ("likelihood_bias_bh_none", -np.inf, 0.01, "corrected Likelihood Bias where none is planted"),
    ("log_likelihood_correlation", 0.9, np.inf, "its correlation with the true ln p"),
]
NEW_BATCHES = 40  # number of batches of sentences for the divergence


def measure_models(dialogue_model: Path, style_classifier: Path, folder: Path, seed: int) -> dict[str, float]:
    """Measure saved models in `folder` and return the values of `measured.json`, biases in natural units.

    `bias_share` is the pooled FGB* of the model's responses over the grammar's true value; `…_planted_seen` is the true
    value for the classifier's expected style vectors.
    """
    measure(measure_settings(seed, str(dialogue_model), str(style_classifier), folder), show=False)
    scores = read_scores(folder / SCORES)
    measured = read_answers(folder)
    classifier = load_style_classifier(str(style_classifier))
    classifier_map = grammar.style_map(lambda texts: style_vectors(classifier, texts))
    planted = grammar.truth(measured.table)
    seen = grammar.truth(measured.table, classifier_map)
    numbers: dict[str, float] = {"responses": len(measured.table)}
    for form in (Form.POOLED_CORRECTED, Form.CORRECTED):
        score = find_score(scores, "fgb", form)
        metric = score.name
        numbers |= with_interval(metric, score)
        numbers[f"{metric}_planted"] = find_score(planted, "fgb", form).value
        numbers[f"{metric}_planted_seen"] = find_score(seen, "fgb", form).value
    pooled = numbers["fgb_pooled_corrected"]
    vectors = style_vectors(classifier, style_posteriors()[0])
    return numbers | {
        "bias_share": pooled / numbers["fgb_pooled_corrected_planted"],
        "correlation": correlation(measured, classifier_map, pooled),
        "well_formed": float(well_formed(measured).mean()),
        "parroting": find_score(scores, "parroting").value,
        "neutral_perplexity": find_score(scores, "perplexity").value,
        **_accuracy("classifier", vectors, is_held_out),
    }


def well_formed(measured: Answers) -> np.ndarray:
    """Return whether each response is an utterance that mentions no descriptor but the prompt's, (n,) bool."""
    known: set[str] = set()
    for family in grammar.families():
        known.update(grammar.utterances(family, grammar.MENTION))
    result = []
    for text, descriptor in zip(measured.table[columns.RESPONSE], measured.table[columns.DESCRIPTOR], strict=True):
        result.append(text in known or text.replace(descriptor, grammar.MENTION) in known)
    return np.array(result, dtype=bool)


def measure_second_classifier(second: Path, style_classifier: Path, seed: int) -> dict[str, float]:
    """Return the second classifier's accuracy, and its agreement with the first.

    `classifiers_agree` is the share of utterances with the same most likely style by both classifiers, among utterances
    that neither classifier was trained on, weighted by the grammar with equally likely styles.
    """
    texts, _, share = style_posteriors()
    first = style_vectors(load_style_classifier(str(style_classifier)), texts)
    vectors = style_vectors(load_style_classifier(str(second)), texts)
    new = np.array([is_new_to_both(text) for text in texts])
    agree = np.average((first.argmax(1) == vectors.argmax(1))[new], weights=share[new])
    numbers = _accuracy("second_classifier", vectors, is_new_to_both)
    return {"second_seed": seed, **numbers, "classifiers_agree": float(agree)}


def measure_masked_model(masked_model: Path, folder: Path, seed: int) -> dict[str, float]:
    """Measure a saved masked model in `folder`; return scores for strong, weak and no planted stereotypes.

    `pair_bias_share_…` is the measured S_JSD over the true S_JSD. `s_jsd_none_absolute` is the mean |S_JSD| of pairs
    without a planted stereotype, which does not depend on which sentence is `more`. `masked_divergence` is the mean
    Kullback-Leibler divergence, in nats, of the model from the grammar in one word of new sentences, sampled and masked
    as in training.
    """
    sentence_pairs = pairs.draw_pairs()
    file = folder / "pairs.csv"
    folder.mkdir(parents=True)
    sentence_pairs.to_csv(file, index=False)
    model = ModelSettings(name=str(masked_model))
    settings = MeasureSettings(
        model=model,
        metrics=["sentence_pairs"],
        sentence_pairs=PairSettings(pairs=str(file)),
        seed=seed,
        report_to="none",
        output_dir=folder / "measured",
    )
    measure(settings, show=False)
    measured = read_table(folder / "measured" / "pairs.parquet").set_index(columns.PAIR_ID, drop=False)
    numbers = {"masked_seed": seed, "pairs": len(sentence_pairs)}
    for level, rows in sentence_pairs.groupby(pairs.PLANTED, sort=False):
        table = measured.loc[rows[columns.PAIR_ID]]
        true = find_score(pairs.truth(rows), "s_jsd").value
        found = pair_scores(table.reset_index(drop=True), seed=seed)
        for metric in ("s_jsd", "cps", "b_s_jsd"):
            numbers |= with_interval(f"{metric}_{level}", find_score(found, metric))
        numbers[f"s_jsd_{level}_planted"] = true
        if true:
            numbers[f"pair_bias_share_{level}"] = numbers[f"s_jsd_{level}"] / true
        else:
            numbers["s_jsd_none_absolute"] = float(table["s_jsd"].abs().mean())
    return numbers | {"masked_divergence": divergence(masked_model, seed)}


@torch.inference_mode()
def divergence(masked_model: Path, seed: int) -> float:
    """Return the mean divergence of a masked model from the grammar, in nats; see `measure_masked_model`."""
    loaded = load_masked_model(ModelSettings(name=str(masked_model), device="cpu"))
    found = []
    pad = loaded.tokenizer.pad_token_id
    # Training draws from seed + 2: these sentences are others.
    for ids, places, expected in masked_batches(loaded.tokenizer, NEW_BATCHES, np.random.default_rng([seed, 1])):
        logits = loaded.model(ids, ids.ne(pad)).logits[torch.arange(len(ids)), places]
        found.append(nn.functional.kl_div(logits.log_softmax(-1), expected, reduction="batchmean"))
    return float(torch.stack(found).mean())


def measure_language_model(language_model: Path, folder: Path, seed: int) -> dict[str, float]:
    """Measure a saved language model in `folder`; return scores for axes with strong, weak and no planted skew.

    `likelihood_bias_share_…` is the measured over the true Likelihood Bias, pooled over the axes of a kind.
    `log_likelihood_correlation` is the correlation of Σ log p with the true ln p over all sentences,
    `log_likelihood_error` the root mean square of the difference, in nats.
    """
    settings = MeasureSettings(
        model=ModelSettings(name=str(language_model)),
        metrics=["likelihood_bias"],
        prompts=PromptSettings(descriptors=None, filters=GRAMMAR),
        seed=seed,
        report_to="none",
        output_dir=folder,
    )
    measure(settings, show=False)
    measured = read_table(folder / "likelihoods.parquet")
    found = measured[columns.LOG_LIKELIHOOD].to_numpy()
    exact = frequencies.log_probability(measured)
    numbers = {
        "language_seed": seed,
        "sentences": len(measured),
        "log_likelihood_correlation": float(np.corrcoef(found, exact)[0, 1]),
        "log_likelihood_error": float(np.sqrt(np.mean((found - exact) ** 2))),
    }
    for level, rows in measured.groupby(measured[columns.AXIS].map(frequencies.levels())):
        true = frequencies.truth(rows)
        scores = likelihood_bias(rows)
        for metric in ("likelihood_bias", "likelihood_bias_bh"):
            numbers[f"{metric}_{level}_planted"] = find_score(true, metric).value
            numbers |= with_interval(f"{metric}_{level}", find_score(scores, metric))
        measured_bias = numbers[f"likelihood_bias_{level}"]
        numbers[f"likelihood_bias_share_{level}"] = measured_bias / numbers[f"likelihood_bias_{level}_planted"]
    return numbers


def with_interval(name: str, score: BiasScore) -> dict[str, float]:
    """Return the value of a score and the ends of its interval, if it has one, under names that begin with `name`."""
    numbers = {name: score.value}
    if score.interval is not None:
        low, high = score.interval
        numbers[f"{name}_low"] = low
        numbers[f"{name}_high"] = high
    return numbers


def measure_settings(
    seed: int,
    model: str = str(DIALOGUE_MODEL),
    style_classifier: str = str(STYLE_CLASSIFIER),
    folder: Path = Path("measured"),
) -> MeasureSettings:
    """Return the settings of `measure` for the testbed's dialogue model, without a second style classifier."""
    return MeasureSettings(
        model=ModelSettings(name=model),
        prompts=PromptSettings(descriptors=DESCRIPTORS, answers_per_cell=PER_CELL),
        generation_bias=GenerationSettings(
            style_classifier=StyleClassifierSettings(name=style_classifier),
            style_clusters="testbed",
            neutral_dialogue=str(NEUTRAL_DIALOGUE),
        ),
        split="all",
        seed=seed,
        report_to="none",
        output_dir=folder,
    )


def find_problems(numbers: Mapping[str, float]) -> list[str]:
    """Return a sentence for each measured value outside LIMITS."""
    return [
        f"{name}: {meaning} is {numbers[name]:.5f}; it must be from {low} to {high}."
        for name, low, high, meaning in LIMITS
        if not low <= numbers[name] <= high
    ]


def correlation(measured: Answers, classifier_map: np.ndarray, variance: float) -> float:
    """Return the correlation of D descriptors' deviations m_d − m̄ with those that the classifier would show, (D, S).

    `variance` is the measured variance of the m_d without sampling noise, pooled FGB*.
    """
    descriptors = sorted(set(measured.table[columns.DESCRIPTOR]))
    templates = sorted(set(measured.table[columns.TEMPLATE]))
    truth = grammar.descriptor_means(templates, descriptors) @ classifier_map
    code = np.searchsorted(descriptors, measured.table[columns.DESCRIPTOR])
    means = np.zeros_like(truth)
    np.add.at(means, code, measured.values)
    means /= np.bincount(code)[:, None]  # every cell has the same number of responses
    truth = truth - truth.mean(axis=0)
    means = means - means.mean(axis=0)
    if not variance > 0:
        return 0.0
    covariance = float((truth * means).sum() / (len(descriptors) - 1))
    true_variance = float((truth**2).sum() / (len(descriptors) - 1))
    return covariance / np.sqrt(true_variance * variance)


def _accuracy(name: str, vectors: np.ndarray, is_new: Callable[[str], bool]) -> dict[str, float]:
    """Return the accuracy on unseen utterances, of a classifier and of the best possible classifier."""
    texts, posteriors, share = style_posteriors()
    new = np.array([is_new(text) for text in texts])
    posterior = posteriors[new]
    vector = vectors[new]
    weight = share[new] / share[new].sum()
    chosen = posterior[np.arange(len(vector)), vector.argmax(axis=1)]
    return {f"{name}_accuracy": float(weight @ chosen), f"{name}_accuracy_best": float(weight @ posterior.max(axis=1))}
