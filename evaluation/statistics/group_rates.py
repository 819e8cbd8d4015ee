"""Rates of a yes-or-no outcome by group, with differences and ratios whose intervals hold for all groups together.

The ratio of a group to the highest rate is min over e of p_d / p_e. If the interval [L_de, U_de] of each ratio holds
for all pairs together, then [min L_de, min U_de] contains it, with e = d giving 1 (Hsu 1984, "Constrained simultaneous
confidence intervals for multiple comparisons with the best", Annals of Statistics 12). Intervals of ratios are
Fieller's (1954), with templates as the blocks; where one of two groups has few events or few others, or templates
show no noise of a rate or of the ratio, or Fieller's interval of a ratio to the highest is unbounded, they follow from
Clopper and Pearson's intervals (1934) of both.

The average is over people, each counted once: answers to whoever asks most change nobody else's difference. Its exact
interval has the effective number of answers (Korn and Graubard 1998, "Confidence intervals for proportions with small
expected number of positive counts estimated from survey data", Survey Methodology 24).
"""

import math

import numpy as np
import pandas as pd
import scipy

from evenhand.evaluation.statistics.cells import factorize
from evenhand.evaluation.statistics.intervals import ROUNDING, ratio_interval

ERROR = 0.05
FEW_EVENTS = 5  # with fewer events, or fewer answers without one, a normal approximation is poor
SMALL_SHARE = 0.02  # of all answers: NYC's rules on Local Law 144 let an auditor leave out such groups (6 RCNY § 5-301)
UNBOUNDED = (0.0, math.inf)


def group_rates(
    values: np.ndarray, group: np.ndarray, template: np.ndarray, person: np.ndarray | None = None
) -> pd.DataFrame:
    """Return a row for each group: n, number, rate, difference to the average, and ratios to average and highest.

    Columns with `_low` and `_high` are intervals; those of all groups hold together with a probability of 95 %. The
    average is the mean of the rates of people. NaN: no rate is positive, or fewer than two templates have values.

    Args:
        values: (n,) 1, 0 or NaN (the answer has no value and is left out).
        group, template: (n,) names.
        person: (n,) names; None: each group is a person.

    >>> values = np.array([1, 1, 1, 0] * 10 + [1, 0, 0, 0] * 10)
    >>> table = group_rates(values, np.repeat(["a", "b"], 40), np.tile(np.arange(10).repeat(4), 2))
    >>> table[["group", "n", "number", "rate", "ratio_to_highest"]].values.tolist()
    [['a', 40, 30, 0.75, 1.0], ['b', 40, 10, 0.25, 0.3333333333333333]]
    """
    known = ~np.isnan(values)
    values = values[known].astype(np.float64)
    names, n_answers, n_events = _counts(values, group[known], template[known])
    n = n_answers.sum(axis=1)
    events = n_events.sum(axis=1)
    rate = events / n
    people = (group if person is None else person)[known]
    average, effective_n, term_of_average = _average_over_people(values, people, template[known])
    table = pd.DataFrame(
        {
            "group": names,
            "n": n.astype(int),
            "number": events.astype(int),
            "rate": rate,
            "is_small": n < SMALL_SHARE * n.sum(),
            "difference": rate - average,
        }
    )
    terms = _linear_terms(n_answers, n_events)
    of_groups = clopper_pearson(events, n, ERROR / (2 * len(names)))  # half of the error; the average has the other
    of_average = clopper_pearson(average * effective_n, effective_n, ERROR / (2 * len(names)))
    n_blocks = (n_answers > 0).sum(axis=1)
    is_counted = _is_counted(events, n, terms, n_blocks)
    differences = _differences(rate - average, terms - term_of_average, n_blocks)
    exact = np.stack([of_groups[:, 0] - of_average[1], of_groups[:, 1] - of_average[0]], axis=1)
    bounds = np.where(is_counted[:, np.newaxis], exact, differences)
    # A rate is between 0 and 1, so that no group can be further below the average than the average is above 0.
    table[["difference_low", "difference_high"]] = np.clip(bounds, -of_average[1], 1 - of_average[0])
    table["ratio_to_average"] = rate / average if average > 0 else math.nan
    to_average = np.array([_exact_ratio(of_group, of_average) for of_group in of_groups])
    for row in np.flatnonzero(~is_counted):
        both = np.stack([terms[row], term_of_average])
        bounds = _ratio(rate[row], average, both, n_blocks[row], len(names))
        to_average[row] = to_average[row] if bounds is None else bounds
    table[["ratio_to_average_low", "ratio_to_average_high"]] = to_average
    highest = rate.max()
    table["ratio_to_highest"] = rate / highest if highest > 0 else math.nan
    table[["ratio_to_highest_low", "ratio_to_highest_high"]] = _to_highest(events, n, terms, n_blocks)
    return table


def _average_over_people(
    values: np.ndarray, person: np.ndarray, template: np.ndarray
) -> tuple[float, float, np.ndarray]:
    """Return the mean rate of people, its effective number of answers, and its linear terms at b templates, (b,).

    The effective number is as if all people had the same rate, or the smaller one by the variance of each person's
    rate: whoever has few answers, and a rate near ½, makes the average less certain.
    """
    _, n_answers, n_events = _counts(values, person, template)
    n = n_answers.sum(axis=1)
    rate = n_events.sum(axis=1) / n
    average = rate.mean()
    effective_n = len(n) ** 2 / (1 / n).sum()  # all answers, if everybody has equally many
    variance = (rate * (1 - rate) / np.maximum(n - 1, 1)).sum() / len(n) ** 2
    if variance > 0:
        effective_n = min(effective_n, average * (1 - average) / variance)
    return float(average), float(effective_n), _linear_terms(n_answers, n_events).mean(axis=0)


def _linear_terms(n_answers: np.ndarray, n_events: np.ndarray) -> np.ndarray:
    """Return the linear terms of g rates at b templates, (g, b); their products estimate the covariance."""
    n = n_answers.sum(axis=1, keepdims=True)
    rate = n_events.sum(axis=1, keepdims=True) / n
    return (n_events - rate * n_answers) / n


def _counts(values: np.ndarray, group: np.ndarray, template: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the names of g groups, (g,), and their numbers of answers and of events at b templates, (g, b) each."""
    codes, names = factorize(group)
    blocks, block_names = factorize(template)
    n_answers = np.zeros((len(names), len(block_names)))
    n_events = np.zeros_like(n_answers)
    np.add.at(n_answers, (codes, blocks), 1.0)
    np.add.at(n_events, (codes, blocks), values)
    return np.asarray(names), n_answers, n_events


def _is_counted(events: np.ndarray, n: np.ndarray, terms: np.ndarray, n_blocks: np.ndarray) -> np.ndarray:
    """Return which groups get exact intervals, (groups,) bool: templates do not show the noise of their rates.

    They have few events or few others; or answers to one template only, or the same rate at each, without any noise.
    """
    has_few = (events < FEW_EVENTS) | (n - events < FEW_EVENTS)
    shows_no_noise = (n_blocks < 2) | (np.abs(terms).max(axis=1) <= ROUNDING)
    return has_few | (shows_no_noise & (terms.shape[1] > 1))  # one template of all says nothing about another one


def _differences(values: np.ndarray, terms: np.ndarray, n_blocks: np.ndarray) -> np.ndarray:
    """Return simultaneous Student intervals of differences, (groups, 2), by Bonferroni; within [−1, 1].

    Each has the noise, and the degrees of freedom, of its group's own blocks, `n_blocks`; NaN for fewer than two.
    """
    n_groups = len(values)
    freedom = np.where(n_blocks > 1, n_blocks - 1.0, math.nan)
    error = np.sqrt(n_blocks / freedom * (terms**2).sum(axis=1))
    half = scipy.stats.t.ppf(1 - ERROR / (2 * n_groups), freedom) * error
    return np.clip(np.stack([values - half, values + half], axis=1), -1, 1)


def _ratio(top: float, bottom: float, terms: np.ndarray, n_blocks: int, n_intervals: int) -> tuple[float, float] | None:
    """Return one of `n_intervals` simultaneous intervals of a ratio, from the linear terms (2, blocks) of both.

    None if templates do not show its noise: it is the same at all of them, as where nobody else has an event.
    `n_blocks` is the number of blocks of the group that has fewer.
    """
    if n_blocks < 2:
        return UNBOUNDED
    if np.abs(terms[0] * bottom - terms[1] * top).max() <= ROUNDING:
        return None
    covariance = n_blocks / (n_blocks - 1) * terms @ terms.T
    tail = 1 - ERROR / (2 * n_intervals)
    bounds = ratio_interval(top, bottom, covariance, n_blocks - 1, tail)
    return UNBOUNDED if bounds is None else (max(bounds[0], 0.0), bounds[1])


def _exact_ratio(top: np.ndarray, bottom: np.ndarray) -> tuple[float, float]:
    """Return the interval of a ratio from intervals of its two shares, (2,) each."""
    low = top[0] / bottom[1] if bottom[1] > 0 else 0.0
    high = top[1] / bottom[0] if bottom[0] > 0 else math.inf
    return float(low), float(high)


def _to_highest(events: np.ndarray, n: np.ndarray, terms: np.ndarray, n_blocks: np.ndarray) -> np.ndarray:
    """Return the simultaneous intervals of the ratios to the highest rate, (groups, 2)."""
    n_groups = len(events)
    n_pairs = max(1, n_groups * (n_groups - 1) // 2)
    is_counted = _is_counted(events, n, terms, n_blocks)
    exact = clopper_pearson(events, n, ERROR / (2 * n_pairs))  # each pair has two intervals
    found = np.ones((n_groups, 2))
    for row in range(n_groups):
        for other in range(n_groups):
            if row == other:
                continue
            bounds = None
            if not (is_counted[row] or is_counted[other]):
                rate = float(events[row] / n[row])
                rate_of_other = float(events[other] / n[other])
                fewer = int(min(n_blocks[row], n_blocks[other]))
                bounds = _ratio(rate, rate_of_other, terms[[row, other]], fewer, n_pairs)
            if bounds in (None, UNBOUNDED):
                bounds = _exact_ratio(exact[row], exact[other])
            found[row] = np.minimum(found[row], bounds)
    return found


def clopper_pearson(events: np.ndarray | float, n: np.ndarray | float, error: float) -> np.ndarray:
    """Return exact intervals of shares, (…, 2), that err with a probability of at most `error` each.

    Source: Clopper and Pearson (1934), Biometrika 26, by quantiles of the beta distribution. Of an average over people,
    `n` is the effective number of answers, and events, the average times `n`, may be less than one (Korn and Graubard
    1998, as above): a fraction of an event then has nearly the interval of none.

    >>> clopper_pearson(np.array([0.0, 5.0]), np.array([10.0, 10.0]), 0.05).round(3).tolist()
    [[0.0, 0.308], [0.187, 0.813]]
    """
    is_some = events > 0
    is_not_all = events < n
    # The beta distribution has no parameter 0, in place of which anything does: the ends are then 0 and 1.
    low = scipy.stats.beta.ppf(error / 2, np.where(is_some, events, 1.0), n - events + 1)
    high = scipy.stats.beta.ppf(1 - error / 2, events + 1, np.where(is_not_all, n - events, 1.0))
    low = np.where(is_some, low, 0.0)
    high = np.where(is_not_all, high, 1.0)
    return np.stack([low, high], axis=-1)
