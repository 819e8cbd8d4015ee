"""Ranks of people by a mean over templates, with intervals that hold for all people together.

Source: Mogstad, Romano, Shaikh and Wilhelm (2024), "Inference for ranks with applications to mobility across
neighbourhoods and academic achievement across countries", Review of Economic Studies 91, §3: ranks follow from
simultaneous intervals of all pairwise differences.
"""

import numpy as np

from evenhand.evaluation.statistics.intervals import ROUNDING, student_quantile

ERROR = 0.05  # probability that not all intervals hold
PAIRS_AT_ONCE = 2_000
MIN_TEMPLATES = 6  # with 3 or 5 templates and nobody different, drawn signs order somebody in up to 8 of 10 screens


def rank_intervals(values: np.ndarray, draws: int = 999, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return the lowest and the highest rank that each person may have, (people,) each; rank 1 has the largest mean.

    With a probability of about 1 − ERROR, the true ranks of all people lie within their intervals. Person e is surely
    above d if the interval of their difference excludes 0. The intervals of all pairs hold together: their common
    quantile is that of the largest absolute studentised difference when templates' signs are drawn at random
    (`_critical`). Values that differ by a rounding error are equal.

    Args:
        values: (people, templates), one value of each person at each template; no NaN; at least two templates.

    >>> rank_intervals(np.array([[9.0, 9.1, 8.9, 9.2, 9.3], [1.0, 1.1, 0.9, 1.2, 1.0], [1.1, 1.0, 1.0, 1.1, 1.1]]))
    (array([1, 2, 2]), array([1, 3, 3]))
    """
    n_people, n_templates = values.shape
    first, second = np.triu_indices(n_people, k=1)
    signs = _random_signs(n_templates, draws, seed)
    observed = np.zeros(len(first))
    largest = np.zeros(draws)
    rounding = ROUNDING * max(1.0, float(np.abs(values).max(initial=0.0)))
    for start in range(0, len(first), PAIRS_AT_ONCE):
        pairs = slice(start, start + PAIRS_AT_ONCE)
        differences = values[first[pairs]] - values[second[pairs]]
        differences[np.abs(differences) <= rounding] = 0.0
        observed[pairs], of_pairs = _observed_and_largest(differences, signs)
        largest = np.maximum(largest, of_pairs)
    critical = _critical(largest, len(first), n_templates)
    first_is_above = observed > critical
    second_is_above = observed < -critical
    n_above = np.bincount(second[first_is_above], minlength=n_people)
    n_above += np.bincount(first[second_is_above], minlength=n_people)
    n_below = np.bincount(first[first_is_above], minlength=n_people)
    n_below += np.bincount(second[second_is_above], minlength=n_people)
    return 1 + n_above, n_people - n_below


def mean_intervals(values: np.ndarray, draws: int = 999, seed: int = 0) -> np.ndarray:
    """Return intervals of the means over templates that hold together for all rows, (rows, 2).

    With a probability of about 1 − ERROR, every mean lies within its interval; the quantile is as in
    `rank_intervals`.

    Args:
        values: (rows, templates); no NaN; at least two templates.

    >>> mean_intervals(np.array([[1.0, 1.0, 1.0], [0.0, 0.0, 0.0]])).tolist()
    [[1.0, 1.0], [0.0, 0.0]]
    """
    signs = _random_signs(values.shape[1], draws, seed)
    _, largest = _observed_and_largest(values, signs)
    critical = _critical(largest, *values.shape)
    mean = values.mean(axis=1)
    half = critical * np.sqrt(values.var(axis=1) / (values.shape[1] - 1))
    return np.stack([mean - half, mean + half], axis=1)


def _critical(largest: np.ndarray, n_rows: int, n_templates: int) -> float:
    """Return the quantile of the largest absolute studentised mean of n_rows rows, from draws of signs, (draws,).

    Fewer than MIN_TEMPLATES have too few patterns of signs: then it is Student's quantile, by Bonferroni's correction.
    """
    if n_templates < MIN_TEMPLATES:
        return student_quantile(n_templates - 1, 1 - ERROR / (2 * max(1, n_rows)))
    return float(np.quantile(largest, 1 - ERROR, method="higher"))


def _random_signs(n_templates: int, draws: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).choice([-1.0, 1.0], size=(n_templates, draws))


def _observed_and_largest(values: np.ndarray, signs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the studentised mean of each row, (rows,), and the largest absolute one of each draw of signs, (draws,).

    Signs are drawn for deviations from the mean, so that the draws follow the null hypothesis.
    """
    n_templates = values.shape[1]
    mean = values.mean(axis=1, keepdims=True)
    centered = values - mean
    mean_square = (centered**2).mean(axis=1, keepdims=True)
    drawn = centered @ signs / n_templates
    statistics = np.abs(_studentised(drawn, mean_square - drawn**2, n_templates))
    return _studentised(mean, mean_square, n_templates)[:, 0], statistics.max(axis=0, initial=0.0)


def _studentised(mean: np.ndarray, variance: np.ndarray, n: int) -> np.ndarray:
    """Return means of n values divided by their standard errors; 0 where the mean is 0, also without variance."""
    error = np.sqrt(np.maximum(variance, 0.0) / (n - 1))
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(mean == 0, 0.0, mean / error)
