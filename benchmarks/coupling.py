"""How many fewer responses two runs need if they draw with the same random numbers.

$ python -m benchmarks.coupling BEFORE AFTER    # seconds

Runs are folders of `evenhand measure` on the same prompts and with the same seed, such as those in `stages` of a sweep.
Printed are the share of equal responses, and how many times as many responses independent runs would
need for the same interval: (V_before + V_after) / V_difference, where V is the variance of a response's style vector
within its cell, summed over styles. 95 % intervals are percentiles of a bootstrap over cells.
"""

import numpy as np
from scipy.stats import bootstrap

from benchmarks.measuring import parse_options
from evenhand.evaluation import columns
from evenhand.evaluation.metrics.generation_bias.answers import Answers, read_answers


def squares(before: Answers, after: Answers) -> np.ndarray:
    """Return the sum of squared deviations from the cell's mean for each cell, (3, cells).

    The rows are for the vectors before, the vectors after, and their differences.
    """
    cell = before.table.groupby([columns.TEMPLATE, columns.DESCRIPTOR]).ngroup().to_numpy()
    counts = np.bincount(cell)
    result = []
    for vectors in (before.values, after.values, after.values - before.values):
        means = np.stack([np.bincount(cell, column) / counts for column in vectors.T], axis=1)
        squares_of_row = ((vectors - means[cell]) ** 2).sum(axis=1)
        result.append(np.bincount(cell, squares_of_row))
    return np.stack(result)


def ratio(first: np.ndarray, second: np.ndarray, difference: np.ndarray, axis: int = -1) -> np.ndarray:
    """Return the ratio of the summed squares of two runs to those of their difference."""
    return (first.sum(axis) + second.sum(axis)) / difference.sum(axis)


def main() -> None:
    options = parse_options(__doc__, folders=("before", "after"))
    before = read_answers(options.before)
    after = read_answers(options.after)
    if not before.table[columns.PROMPT_ID].equals(after.table[columns.PROMPT_ID]):
        raise SystemExit(f"{options.after}: other prompts than {options.before}.")
    cells = squares(before, after)
    first, second, difference = cells[:, ~np.isnan(cells).any(axis=0)]  # an empty response has no vector
    found = bootstrap((first, second, difference), ratio, paired=True, n_resamples=2000, rng=0, method="percentile")
    low, high = found.confidence_interval
    value = ratio(first, second, difference)
    equal = (before.table[columns.RESPONSE] == after.table[columns.RESPONSE]).mean()
    print(f"{equal:.1%} equal; {value:.2f} [{low:.2f}, {high:.2f}] times as many responses")


if __name__ == "__main__":
    main()
