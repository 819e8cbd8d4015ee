"""Tables of likelihoods for tests, from log-perplexities."""

from collections.abc import Callable, Iterable, Mapping

import numpy as np
import pandas as pd

COLUMNS = ["axis", "template", "descriptor", "noun", "log_likelihood", "n_tokens"]


def make_table(
    log_perplexity: Mapping[tuple[str, str, str], Iterable[float]], n_tokens: Callable[[str], int] = lambda name: 1
) -> pd.DataFrame:
    """Return likelihoods from {(axis, template, descriptor): log-perplexity for each noun}; tokens by descriptor."""
    rows = [
        (*cell, f"noun {i}", -value * n_tokens(cell[2]), n_tokens(cell[2]))
        for cell, values in log_perplexity.items()
        for i, value in enumerate(values)
    ]
    return pd.DataFrame(rows, columns=COLUMNS)


def random_table(seed: int, descriptors: int = 12, templates: int = 2, nouns: int = 30, shift: float = 0.0):
    """Return one axis; the perplexities of the first third of its descriptors are shifted."""
    rng = np.random.default_rng(seed)
    return make_table(
        {
            ("age", f"t{t}", f"d{d:02}"): rng.normal(size=nouns) + shift * (d < descriptors // 3)
            for t in range(templates)
            for d in range(descriptors)
        }
    )
