"""A benchmark of the accuracy of generation bias on the testbed, whose bias is known: means and coverage of intervals.

python -m benchmarks.accuracy --figure docs/fgb_against_responses.png
python -m benchmarks.accuracy --nouns --trials 8 --answers_per_cell 2 4 8 16 32       # responses depend on nouns
"""

from itertools import product
from pathlib import Path

import matplotlib
import numpy as np

from benchmarks.measuring import parse_options
from evenhand.evaluation.data.holistic_bias import generate_prompts, load_taxonomy
from evenhand.evaluation.data.prompts import sample_cells, sample_descriptors, select_prompts
from evenhand.evaluation.data.style_clusters import load_style_clusters
from evenhand.evaluation.models.styles import load_style_classifier, style_vectors
from evenhand.evaluation.score import AXIS, DESCRIPTOR, NOUN, TEMPLATE, TEXT, Form, find_score
from evenhand.evaluation.statistics.cells import arrange_cells, to_codes
from evenhand.evaluation.statistics.intervals import Z
from evenhand.evaluation.statistics.person_pairs import pooled_spread
from evenhand.evaluation.statistics.spread import descriptor_spread
from evenhand.recipes import testbed
from tools.testbed import grammar

matplotlib.use("Agg")
import matplotlib.pyplot as plt

DESCRIPTORS, UTTERANCES = 200, 400
FORMS = {"FGB": Form.PLAIN, "FGB*": Form.CORRECTED, "pooled FGB*": Form.POOLED_CORRECTED}


def main() -> None:
    nouns = (False, "responses depend on the noun too")
    arguments = parse_options(__doc__, trials=200, answers_per_cell=[2, 4, 8, 16], nouns=nouns, figure=Path)

    prompts = select_prompts(
        generate_prompts(load_taxonomy("paper")), noun_phrase_type=["descriptor_noun", "noun_descriptor"]
    )
    prompts = sample_descriptors(prompts, DESCRIPTORS, 0)[[TEXT, TEMPLATE, AXIS, DESCRIPTOR, NOUN]]

    # A response's style vector is the classifier's vector of a random utterance of the style's family.
    rng = np.random.default_rng(0)
    classifier = load_style_classifier(str(testbed.STYLE_CLASSIFIER))
    vectors = []
    for family in grammar.families():
        utterances = grammar.utterances(family)
        sample = rng.choice(len(utterances), UTTERANCES, replace=False)
        vectors.append(style_vectors(classifier, [utterances[i] for i in sample]))
    vectors = np.stack(vectors)  # (families, utterances, styles)
    truth = grammar.truth(prompts, vectors.mean(axis=1), with_nouns=arguments.nouns)
    true = {name: find_score(truth, "fgb", form).value for name, form in FORMS.items()}

    # Each form is (weights of columns, whether to pool, true value); a cluster's summed probability is a column.
    n_styles = vectors.shape[2]
    clusters = load_style_clusters("testbed", classifier.labels)
    sums = [vectors[:, :, list(styles)].sum(axis=2, keepdims=True) for styles in clusters.values()]
    vectors = np.concatenate([vectors, *sums], axis=2)
    columns = np.eye(vectors.shape[2])
    everything = columns[:n_styles].sum(axis=0)
    forms = {"FGB*": (everything, False, true["FGB*"]), "pooled FGB*": (everything, True, true["pooled FGB*"])}
    for i, cluster in enumerate(clusters):
        value = find_score(truth, "scgb", Form.POOLED_CORRECTED, cluster=cluster).value
        forms[f"pooled SCGB* {cluster}"] = (columns[n_styles + i], True, value)

    results = {n: {name: [] for name in ("FGB", *forms)} for n in arguments.answers_per_cell}
    for n, trial in product(arguments.answers_per_cell, range(arguments.trials)):
        rows = sample_cells(prompts, n, trial)
        noun = rows[NOUN] if arguments.nouns else None
        style = grammar.sample_columns(grammar.style_distribution(rows[TEMPLATE], rows[DESCRIPTOR], nouns=noun), rng)
        responses = vectors[style, rng.integers(UTTERANCES, size=len(style))]
        arranged = arrange_cells(responses, to_codes(rows[TEMPLATE]), to_codes(rows[DESCRIPTOR]))
        for name, (weights, pooled, _) in forms.items():
            if pooled:
                results[n][name].append(pooled_spread(arranged, weights))
                continue
            spread = descriptor_spread(arranged, weights)
            results[n][name].append(spread.corrected)
            results[n]["FGB"].append(spread.plain)

    cells = f"{DESCRIPTORS} × {len(grammar.plan().base)} cells"
    print(f"{cells}, {arguments.trials} trials; ×10⁻³; mean ± standard deviation of one measurement")
    print("| responses per cell |", " | ".join(FORMS), "|")
    print("| truth |", " | ".join(f"{1e3 * true[name]:.2f}" for name in FORMS), "|")
    for n in arguments.answers_per_cell:
        values = {name: 1e3 * np.array([estimate.value for estimate in results[n][name]]) for name in FORMS}
        print(f"| {n} |", " | ".join(f"{v.mean():.2f} ± {v.std():.2f}" for v in values.values()), "|")
    print("coverage of the 95 % intervals (for FGB: of its expectation, which includes noise)")
    for n in (n for n in arguments.answers_per_cell if n >= 4):
        shares = []
        for name, estimates in results[n].items():
            target = forms[name][2] if name in forms else np.mean([estimate.value for estimate in estimates])
            hits = [e.interval is not None and e.interval[0] <= target <= e.interval[1] for e in estimates]
            shares.append(f"{name} {np.mean(hits):.1%}")
        print(f"{n} responses per cell:", ", ".join(shares))
    if arguments.figure:
        save_figure(results, true, arguments.figure)


def save_figure(results: dict, true: dict[str, float], path: Path) -> None:
    """Save a plot of FGB and FGB* against the number of responses per cell, with their true values."""
    figure, axes = plt.subplots(figsize=(7, 3.6), constrained_layout=True)
    colours = {"FGB": "#b35806", "FGB*": "#2166ac", "pooled FGB*": "#4d4d4d"}
    for name, colour in colours.items():
        values = [1e3 * np.array([estimate.value for estimate in by_form[name]]) for by_form in results.values()]
        mean, spread = np.mean(values, axis=1), np.std(values, axis=1)
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
