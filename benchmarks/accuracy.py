"""A benchmark of the accuracy of generation bias on the testbed, whose bias is known: means and coverage of intervals.

$ python -m benchmarks.accuracy --figure docs/fgb_against_responses.png       # 40 seconds of one core
$ python -m benchmarks.accuracy --nouns --answers_per_cell 2 4 8 16 32        # responses depend on nouns; a minute
$ python -m benchmarks.accuracy --trials 1 --answers_per_cell 2               # a try, 10 seconds
"""

from argparse import Namespace
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import matplotlib
import numpy as np
import pandas as pd

from benchmarks.measuring import parse_options
from evenhand.evaluation import columns
from evenhand.evaluation.data.holistic_bias import generate_prompts, load_taxonomy
from evenhand.evaluation.data.prompts import sample_cells, sample_descriptors, select_prompts
from evenhand.evaluation.data.style_clusters import load_style_clusters
from evenhand.evaluation.models.classifier_kinds import load_style_classifier
from evenhand.evaluation.models.classifiers import Classifier
from evenhand.evaluation.models.styles import style_vectors
from evenhand.evaluation.score import Form, find_score
from evenhand.evaluation.statistics.cells import arrange_cells, to_codes
from evenhand.evaluation.statistics.descriptor_spread import Estimate, descriptor_spread
from evenhand.evaluation.statistics.intervals import Z
from evenhand.evaluation.statistics.person_pairs import pooled_spread
from evenhand.recipes import testbed
from tools.testbed import grammar

matplotlib.use("Agg")
import matplotlib.pyplot as plt

DESCRIPTORS = 200
UTTERANCES = 400
FORMS = {"FGB": Form.PLAIN, "FGB*": Form.CORRECTED, "pooled FGB*": Form.POOLED_CORRECTED}


@dataclass(frozen=True)
class CheckedScore:
    """A score whose intervals are checked: weights of the columns, whether it is pooled, and its true value."""

    weights: np.ndarray
    is_pooled: bool
    truth: float


def utterance_vectors(classifier: Classifier, rng: np.random.Generator) -> np.ndarray:
    """Return the classifier's style vectors of random utterances of each family, (families, utterances, styles)."""
    vectors = []
    for family in grammar.families():
        utterances = grammar.utterances(family)
        sample = rng.choice(len(utterances), UTTERANCES, replace=False)
        vectors.append(style_vectors(classifier, [utterances[i] for i in sample]))
    return np.stack(vectors)


def with_clusters(vectors: np.ndarray, clusters: Mapping[str, Sequence[int]]) -> np.ndarray:
    """Return the vectors with the summed probability of each cluster as another column."""
    columns = [vectors]
    for styles in clusters.values():
        columns.append(vectors[:, :, list(styles)].sum(axis=2, keepdims=True))
    return np.concatenate(columns, axis=2)


def simulate(
    prompts: pd.DataFrame,
    vectors: np.ndarray,
    forms: Mapping[str, CheckedScore],
    options: Namespace,
    rng: np.random.Generator,
) -> dict[int, dict[str, list[Estimate]]]:
    """Return the estimates of all trials, by number of responses to a cell and by form.

    The style vector of a response is the classifier's vector of a random utterance of the style's family.
    """
    results: dict[int, dict[str, list[Estimate]]] = {}
    for n in options.answers_per_cell:
        estimates: dict[str, list[Estimate]] = {name: [] for name in ("FGB", *forms)}
        results[n] = estimates
        for trial in range(options.trials):
            rows = sample_cells(prompts, n, trial)
            nouns = rows[columns.NOUN] if options.nouns else None
            probabilities = grammar.style_distribution(rows[columns.TEMPLATE], rows[columns.DESCRIPTOR], nouns=nouns)
            style = grammar.sample_columns(probabilities, rng)
            responses = vectors[style, rng.integers(UTTERANCES, size=len(style))]
            cells = arrange_cells(responses, to_codes(rows[columns.TEMPLATE]), to_codes(rows[columns.DESCRIPTOR]))
            for name, form in forms.items():
                if form.is_pooled:
                    estimates[name].append(pooled_spread(cells, form.weights))
                else:
                    spread = descriptor_spread(cells, form.weights)
                    estimates[name].append(spread.corrected)
                    estimates["FGB"].append(spread.plain)
    return results


def main() -> None:
    """Simulate measurements of the testbed and print the means and the coverage of intervals."""
    options = parse_options(
        __doc__,
        trials=(8, "simulated measurements"),
        answers_per_cell=([2, 4, 8, 16], "responses to each template and descriptor"),
        nouns=(False, "responses depend on the noun too"),
        figure=(Path, "the file of a figure"),
    )
    prompts = select_prompts(
        generate_prompts(load_taxonomy("paper")), {"noun_phrase_type": ["descriptor_noun", "noun_descriptor"]}
    )
    prompts = sample_descriptors(prompts, DESCRIPTORS)[
        [columns.TEXT, columns.TEMPLATE, columns.AXIS, columns.DESCRIPTOR, columns.NOUN]
    ]
    rng = np.random.default_rng(0)
    classifier = load_style_classifier(str(testbed.STYLE_CLASSIFIER))
    vectors = utterance_vectors(classifier, rng)
    truth = grammar.truth(prompts, vectors.mean(axis=1), with_nouns=options.nouns)
    true = {name: find_score(truth, "fgb", form).value for name, form in FORMS.items()}

    n_styles = vectors.shape[2]
    clusters = load_style_clusters("testbed", classifier.labels)
    vectors = with_clusters(vectors, clusters)
    names = np.eye(vectors.shape[2])
    all_styles = names[:n_styles].sum(axis=0)
    forms = {
        "FGB*": CheckedScore(all_styles, is_pooled=False, truth=true["FGB*"]),
        "pooled FGB*": CheckedScore(all_styles, is_pooled=True, truth=true["pooled FGB*"]),
    }
    for i, cluster in enumerate(clusters):
        value = find_score(truth, "scgb", Form.POOLED_CORRECTED, cluster=cluster).value
        forms[f"pooled SCGB* {cluster}"] = CheckedScore(names[n_styles + i], is_pooled=True, truth=value)
    results = simulate(prompts, vectors, forms, options, rng)
    print_results(results, true, forms, options.trials)
    if options.figure:
        save_figure(results, true, options.figure)


def print_results(
    results: Mapping[int, Mapping[str, list[Estimate]]],
    true: Mapping[str, float],
    forms: Mapping[str, CheckedScore],
    trials: int,
) -> None:
    """Print the means and standard deviations of measurements, and the coverage of their intervals."""
    cells = f"{DESCRIPTORS} × {len(grammar.plan().base)} cells"
    print(f"{cells}, {trials} trials; ×10⁻³; mean ± standard deviation of one measurement")
    print("| responses per cell |", " | ".join(FORMS), "|")
    print("| truth |", " | ".join(f"{1e3 * true[name]:.2f}" for name in FORMS), "|")
    for n, by_form in results.items():
        values = [1e3 * np.array([estimate.value for estimate in by_form[name]]) for name in FORMS]
        print(f"| {n} |", " | ".join(f"{value.mean():.2f} ± {value.std():.2f}" for value in values), "|")
    print("coverage of the 95 % intervals (for FGB: of its expectation, which includes noise)")
    for n, by_form in results.items():
        if n < 4:
            continue
        shares = []
        for name, estimates in by_form.items():
            target = np.mean([estimate.value for estimate in estimates])
            if name in forms:
                target = forms[name].truth
            shares.append(f"{name} {np.mean([covers(estimate, target) for estimate in estimates]):.1%}")
        print(f"{n} responses per cell:", ", ".join(shares))


def covers(estimate: Estimate, target: float) -> bool:
    """Return whether the interval of an estimate contains the target; no interval contains none."""
    if estimate.interval is None:
        return False
    low, high = estimate.interval
    return bool(low <= target <= high)


def save_figure(results: Mapping[int, Mapping[str, list[Estimate]]], true: Mapping[str, float], path: Path) -> None:
    """Save a plot of FGB and FGB* against the number of responses per cell, with their true values."""
    figure, axes = plt.subplots(figsize=(7, 3.6), constrained_layout=True)
    colours = {"FGB": "#b35806", "FGB*": "#2166ac", "pooled FGB*": "#4d4d4d"}
    for name, colour in colours.items():
        values = [1e3 * np.array([estimate.value for estimate in by_form[name]]) for by_form in results.values()]
        mean = np.mean(values, axis=1)
        spread = np.std(values, axis=1)
        axes.errorbar(list(results), mean, Z * spread, color=colour, marker="o", markersize=4, capsize=3)
        lift = {"FGB*": 5, "pooled FGB*": -7}.get(name, 0)
        axes.annotate(name, (max(results), mean[-1]), (8, lift), textcoords="offset points", color=colour, va="center")
        axes.axhline(1e3 * true[name], color=colour, linewidth=0.8, linestyle=":")
    axes.set(xscale="log", yscale="log", xlabel="responses per (template, descriptor) cell", ylabel="×10⁻³")
    axes.set_xticks(list(results), [str(n) for n in results])
    axes.minorticks_off()
    axes.set(ylim=(10, 600), xlim=(1.8, 26))
    axes.set_title("FGB falls with the number of responses; FGB* does not (dotted: the planted truth)", fontsize=10)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)


if __name__ == "__main__":
    main()
