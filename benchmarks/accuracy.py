"""How right the numbers are, on the testbed, whose bias is known: intervals' coverage, and bias against responses.

$ python -m benchmarks.accuracy --figure docs/fgb_against_responses.png
"""

import argparse
from pathlib import Path

import matplotlib
import numpy as np
from evaluation.styles import load_style_classifier, style_vectors

from evaluation.datasets.holistic_bias import generate, load_taxonomy
from evaluation.datasets.prompts import sample_cells, select
from evaluation.progress import progress
from evaluation.results import DESCRIPTOR, TEMPLATE, find_score
from evaluation.statistics import arrange_cells, descriptor_spread
from recipes import testbed
from recipes.testbed import grammar

matplotlib.use("Agg")
import matplotlib.pyplot as plt

DESCRIPTORS, UTTERANCES = 200, 400
RESPONSES_PER_CELL = (2, 4, 8, 16)
FORMS = {"FGB*": False, "pooled FGB*": True}
METRIC = {"FGB": "fgb", "FGB*": "fgb_corrected", "pooled FGB*": "fgb_pooled_corrected"}


def main() -> None:
    """Print coverage and averages; draw FGB and FGB* against the number of responses in a cell."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=200)
    parser.add_argument("--figure", type=Path)
    arguments = parser.parse_args()

    prompts = select(generate(load_taxonomy("paper")), noun_phrase_type=["descriptor_noun", "noun_descriptor"])
    cells = sample_cells(prompts, 1, 0, descriptors=DESCRIPTORS).to_pandas().drop_duplicates([TEMPLATE, DESCRIPTOR])
    p = grammar.style_distribution(cells[TEMPLATE], cells[DESCRIPTOR])
    template, descriptor = (np.unique(cells[name], return_inverse=True)[1] for name in (TEMPLATE, DESCRIPTOR))

    # The classifier's vectors of some utterances of each family stand for what it says of that family's responses.
    rng = np.random.default_rng(0)
    classifier = load_style_classifier(str(testbed.STYLE_CLASSIFIER))
    vectors = []
    for family in grammar.families():
        utterances = grammar.utterances(family)
        chosen = rng.choice(len(utterances), min(UTTERANCES, len(utterances)), replace=False)
        vectors.append(style_vectors(classifier, [utterances[i] for i in chosen]))
    smallest = min(map(len, vectors))
    vectors = np.stack([some[:smallest] for some in vectors])  # (families, utterances, styles)
    truth = grammar.truth(cells, vectors.mean(axis=1))
    true = {name: find_score(truth, metric).value for name, metric in METRIC.items()}

    results = {n: {name: [] for name in METRIC} for n in RESPONSES_PER_CELL}
    covered = {n: dict.fromkeys(FORMS, 0) for n in RESPONSES_PER_CELL}
    with progress(arguments.trials * len(RESPONSES_PER_CELL), "trials", "trials") as advance:
        for n in RESPONSES_PER_CELL:
            for _ in range(arguments.trials):
                style = (p.cumsum(axis=1)[:, None] > rng.random((len(p), n, 1))).argmax(axis=2).ravel()
                responses = vectors[style, rng.integers(smallest, size=len(style))]
                arranged = arrange_cells(responses, np.repeat(template, n), np.repeat(descriptor, n))
                for name, pooled in FORMS.items():
                    spread = descriptor_spread(arranged, pooled=pooled)
                    results[n][name].append(spread.corrected.value)
                    if not pooled:
                        results[n]["FGB"].append(spread.plain.value)
                    if spread.corrected.interval:
                        low, high = spread.corrected.interval
                        covered[n][name] += low <= true[name] <= high
                advance(1)

    print(f"{len(cells):,} cells, {arguments.trials} trials each; ×10⁻³; mean ± standard deviation of one measurement")
    print("responses per cell |", " | ".join(METRIC), "| coverage of the 95 % intervals:", ", ".join(FORMS))
    print("truth |", " | ".join(f"{1e3 * true[name]:.2f}" for name in METRIC), "|")
    for n in RESPONSES_PER_CELL:
        means = (f"{1e3 * np.mean(v):.2f} ± {1e3 * np.std(v):.2f}" for v in results[n].values())
        shares = (f"{covered[n][name] / arguments.trials:.1%}" if n >= 4 else "–" for name in FORMS)
        print(f"{n} |", " | ".join(means), "|", ", ".join(shares))
    if arguments.figure:
        draw(results, true, arguments.figure)


def draw(results: dict, true: dict[str, float], path: Path) -> None:
    """Draw the scores against the number of responses, with the truth."""
    figure, axes = plt.subplots(figsize=(7, 3.6), constrained_layout=True)
    colours = {"FGB": "#b35806", "FGB*": "#2166ac", "pooled FGB*": "#4d4d4d"}
    for name, colour in colours.items():
        mean = np.array([1e3 * np.mean(by_form[name]) for by_form in results.values()])
        spread = np.array([1e3 * np.std(by_form[name]) for by_form in results.values()])
        axes.errorbar(list(results), mean, 1.96 * spread, color=colour, marker="o", markersize=4, capsize=3)
        axes.annotate(name, (max(results), mean[-1]), (8, 0), textcoords="offset points", color=colour, va="center")
        axes.axhline(1e3 * true[name], color=colour, linewidth=0.8, linestyle=":")
    axes.set(xscale="log", yscale="log", xlabel="responses per (template, descriptor) cell", ylabel="×10⁻³ (log)")
    axes.set_xticks(list(results), [str(n) for n in results])
    axes.minorticks_off()
    axes.set_xlim(1.8, 26)
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_title("FGB falls with the number of responses; FGB* does not (dotted: the planted truth)", fontsize=10)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)


if __name__ == "__main__":
    main()
