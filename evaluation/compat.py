"""All uses of what other packages do not declare as public, each with the reason and what it is tested with.

A new version of such a package may change these; pyproject.toml bounds the versions.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from sacrebleu.metrics.base import Metric


def segment_statistics(metric: "Metric", hypotheses: list[str], references: Sequence[tuple[Any, ...]]) -> np.ndarray:
    """Return sacrebleu's statistics of n sentences, (n, k) integers, whose sums are the statistics of a corpus.

    `references` has a list for the first reference of each sentence, one for the second, and so on; None for none.

    sacrebleu's score objects have the statistics of BLEU, but not those of chrF, and its own bootstrap draws other
    sentences for each language. Its significance tests use this method, too (sacrebleu 2.6).
    """
    return np.array(metric._extract_corpus_statistics(hypotheses, references), dtype=np.int64)


def score_of_statistics(metric: "Metric", statistics: np.ndarray) -> float:
    """Return the score, in [0, 100], of a corpus with these summed statistics, (k,); see `segment_statistics`."""
    return float(metric._compute_score_from_stats(statistics.tolist()).score)
