"""A benchmark of the CPU time and peak memory of generation bias for 234,000 style vectors of 217 styles.

$ python -m benchmarks.scoring                                 # half a minute of one core
$ python -m benchmarks.scoring --descriptors 60 --styles 20    # a try, seconds

All cuts, intervals and the permutation test are included. The vectors are random.
"""

import numpy as np
import pandas as pd

from benchmarks.measuring import parse_options, peak_memory, timed
from evenhand.evaluation.metrics.generation_bias.answers import Answers
from evenhand.evaluation.metrics.generation_bias.engine.spread import generation_bias

TEMPLATES = 26
PER_CELL = 15
AXES = 13
CLUSTERS = 6  # Smith et al. 2022: A.5, A.7


def main() -> None:
    """Score random style vectors of the paper's size and print CPU time and peak memory."""
    options = parse_options(__doc__, descriptors=(600, "at least 13, one of each axis"), styles=(217, "at least 18"))
    n_styles = options.styles
    rng = np.random.default_rng(0)
    cell = rng.permutation(np.repeat(np.arange(options.descriptors * TEMPLATES), PER_CELL))
    vectors = rng.gamma(0.05, size=(len(cell), n_styles)).astype(np.float32) + 1e-6
    vectors /= vectors.sum(axis=1, keepdims=True)
    descriptor = cell // TEMPLATES
    columns = {"template": cell % TEMPLATES, "descriptor": descriptor, "axis": descriptor % AXES}
    responses = Answers(pd.DataFrame(columns).astype(str), vectors, [f"style {i}" for i in range(n_styles)])
    clusters = {f"cluster {i}": range(3 * i, 3 * i + 3) for i in range(CLUSTERS)}
    seconds, scores = timed(generation_bias, responses, clusters)
    size = f"{len(cell):,} × {n_styles} style vectors, {len(scores)} scores"
    print(f"{size}: {seconds:.1f} s of CPU, peak {peak_memory():.2f} GiB")


if __name__ == "__main__":
    main()
