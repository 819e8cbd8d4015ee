"""The part of the spread over descriptors that is due to the person, and the part that is due to the word.

HolisticBias has several words for the same people: the descriptors of a bucket ("deaf", "hard-of-hearing"). Let the
mean vector of descriptor d of bucket b be m_d = μ + u_b + w_d, with u_b what the person does and w_d what the word does
on top. The half distance of two descriptors without noise (`person_pairs`) has the expectation

    E θ_dd' = Var(w)            for two words of one bucket,
            = Var(w) + Var(u)   for words of different buckets.

Means over pairs of both kinds are unbiased estimates of the word's part and of the whole; their difference is the
person's part. Templates may have effects of their own, since two words are compared on their common templates.

Buckets differ in size, and a bucket of n words has n (n − 1) pairs. With a weight of 1/n for each of them, the word's
part is the variance within buckets, Σ_b (n_b − 1) s²_b / Σ_b (n_b − 1) less noise, in which no large bucket counts
for nearly all (Searle, Casella and McCulloch 1992, "Variance Components", §3.6). The estimate is this project's.
"""

import math
from dataclasses import dataclass, replace

import numpy as np

from evenhand.evaluation.statistics.cells import Cells
from evenhand.evaluation.statistics.intervals import ANY, Interval
from evenhand.evaluation.statistics.jackknife import jackknife_error
from evenhand.evaluation.statistics.person_pairs import half_distances

MIN_BUCKETS = 5  # with two words or more; the jackknife of fewer is no standard error
FEW_BUCKETS = f"fewer than {MIN_BUCKETS} buckets have two descriptors with two common templates"


@dataclass(frozen=True)
class Component:
    """An estimate of a variance, which may be slightly negative, and its 95 % interval over new buckets."""

    value: float
    interval: Interval | None


def person_and_word(cells: Cells, bucket: np.ndarray) -> tuple[Component, Component] | None:
    """Return the parts of person and word in the variance of descriptors' means over templates.

    Intervals are jackknife intervals over buckets, which cover the noise of responses and of the sample of buckets.
    Their degrees of freedom are those of buckets with unequal weights (`_freedom`).
    They cover 91 to 97 % if the parts of people or words are spread over many. Where a few people differ much and the
    others not at all, they are too short, since a jackknife does not see who is not in the sample: 71 to 81 % (person)
    and 85 to 95 % (word).

    None if fewer than MIN_BUCKETS buckets have two descriptors with two common templates, or no descriptors of
    different buckets have them.

    Args:
        cells: responses by cell, one or more in each; descriptors without two templates in common with another one are
            excluded.
        bucket: code of the bucket of each descriptor code, (D,).
    """
    half_distance, codes = half_distances(cells)
    bucket = bucket[codes]
    is_pair = np.isfinite(half_distance)
    is_same = bucket[:, None] == bucket
    is_compared = (is_pair & is_same).any(axis=1)  # with another word of the bucket
    if len(np.unique(bucket[is_compared])) < MIN_BUCKETS or not (is_pair & ~is_same).any():
        return None
    n_words = np.bincount(bucket)
    person, word = _parts(half_distance, bucket)
    without_each = []
    for code in np.unique(bucket):
        kept = np.flatnonzero(bucket != code)
        without_each.append(_parts(half_distance[np.ix_(kept, kept)], bucket[kept]))
    person_without, word_without = np.transpose(without_each)
    return (
        _part(person, person_without, weight=n_words),
        _part(word, word_without, weight=np.maximum(n_words - 1, 0)),
    )


def _part(value: float, without_each: np.ndarray, weight: np.ndarray) -> Component:
    """Return a part with its jackknife interval, from its value without each bucket and the buckets' weights."""
    error = jackknife_error([without_each])
    if not error.value:
        return Component(value, None)
    return Component(value, replace(error, freedom=_freedom(weight)).interval(value, ANY))


def _freedom(weight: np.ndarray) -> float:
    """Return the degrees of freedom of a sum of variances that have these weights (Satterthwaite 1946), at least 1.

    One is subtracted for the mean. By simulation, weights of n words (person) and of n − 1 (word) cover 91 to 97 %.

    >>> _freedom(np.array([2, 2, 2, 0]))  # as for three buckets of equal weight
    2.0
    """
    return max(float(weight.sum() ** 2 / (weight**2).sum()) - 1, 1.0)


def _parts(half_distance: np.ndarray, bucket: np.ndarray) -> tuple[float, float]:
    """Return the parts of person and word from half distances, (D, D); NaN of two people who are not compared."""
    is_pair = np.isfinite(half_distance)
    is_same = bucket[:, None] == bucket
    within = is_pair & is_same
    n_words = np.bincount(bucket)[bucket]
    weight = np.broadcast_to(1 / n_words, within.shape)
    word = float(np.average(half_distance[within], weights=weight[within]))
    between = half_distance[is_pair & ~is_same]
    both = float(between.mean()) if len(between) else math.nan
    return both - word, word
