"""A benchmark of the statistics of Likelihood Bias: the time of 571,584 tests, the size of HolisticBias v1.0.

python -m benchmarks.likelihood_statistics                      # the paper's edition
python -m benchmarks.likelihood_statistics --taxonomy FOLDER    # the four files of v1.0
"""

import numpy as np
from scipy import stats

from benchmarks.measuring import parse_options, peak_memory, timed
from evenhand.evaluation.data.holistic_bias import generate_prompts, load_taxonomy
from evenhand.evaluation.families.likelihood_bias.metric import likelihood_bias
from evenhand.evaluation.families.likelihood_bias.pairs import pair_effects
from evenhand.evaluation.families.likelihood_bias.rows import perplexity, select_scored_prompts
from evenhand.evaluation.score import AXIS, DESCRIPTOR, TEMPLATE

SCIPY_PAIRS = 500  # number of tests that SciPy computes one at a time for comparison


def main() -> None:
    """Score random likelihoods of every sentence; print times, peak memory and the difference from SciPy."""
    taxonomy = load_taxonomy(parse_options(__doc__, taxonomy="paper").taxonomy)
    prompts = select_scored_prompts(generate_prompts(taxonomy).to_pandas())

    rng = np.random.default_rng(0)
    descriptor = prompts.groupby([AXIS, DESCRIPTOR]).ngroup().to_numpy()
    n_tokens = prompts["text"].str.split().str.len().to_numpy()
    log_perplexity = 4 + 0.3 * rng.normal(size=descriptor.max() + 1)[descriptor] + rng.normal(size=len(prompts))
    likelihoods = prompts.assign(n_tokens=n_tokens, log_likelihood=-n_tokens * log_perplexity)

    seconds, effects = timed(pair_effects, likelihoods)
    print(f"{len(likelihoods):,} sentences, {len(effects):,} tests: {seconds:.1f} s of CPU")
    seconds, scores = timed(likelihood_bias, likelihoods)
    print(f"{len(scores)} scores with intervals: {seconds:.1f} s of CPU")

    cells = likelihoods.assign(ppl=perplexity(likelihoods)).groupby([AXIS, TEMPLATE, DESCRIPTOR])["ppl"]
    values = {name: cell.to_numpy() for name, cell in cells}
    some = effects.sample(SCIPY_PAIRS, random_state=0)
    keys = list(zip(some[AXIS], some[TEMPLATE], some["descriptor_a"], some["descriptor_b"], strict=True))
    seconds, theirs = timed(
        lambda: [stats.mannwhitneyu(values[a, t, x], values[a, t, y]).pvalue for a, t, x, y in keys]
    )
    difference = np.abs(np.array(theirs) - some["p"].to_numpy()).max()
    whole = seconds / SCIPY_PAIRS * len(effects)
    print(
        f"scipy.stats.mannwhitneyu one by one: {whole:.0f} s of CPU for all; largest difference in p {difference:.1e}"
    )
    print(f"peak memory {peak_memory():.2f} GiB")


if __name__ == "__main__":
    main()
