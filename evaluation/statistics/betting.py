"""Tests of an endless stream of answers, which may be looked at after each answer with one error rate for ever.

Answers to the same kind of request form a stratum. In each stratum, a block collects answers until a person would be in
it a second time; the next block starts with this answer. When a block is complete, each person in it bets on their own
value against the mean of the others who have not been named. The null hypothesis of a person, an outcome and a
direction is: given all complete blocks, the expected value of the person exceeds (or falls below) the expected mean of
these others by at most `margin`. Under it, the wealth of the bet is a nonnegative supermartingale with start 1, so that
it ever reaches 1/α with a probability of at most α (Ville 1939). All wealths change at complete blocks only, so that
all have one filtration.

Sources: Waudby-Smith and Ramdas (2024), Estimating means of bounded random variables by betting, §4 (the bets); Vovk
and Wang (2021), E-values: calibration, combination and applications, §5 (closure of arithmetic means).
"""

from collections.abc import Sequence

import numpy as np

# Shares of the wealth that are bet. Their mean is a bet, too; small ones find small differences, late.
BETS = np.array([0.05, 0.1, 0.2, 0.4, 0.6, 0.9])
HIGHER, LOWER = 0, 1  # directions, as positions of an axis
MAX_LOG_WEALTH = 700.0  # e^700 is near the largest float, and far above what names anybody


def log_factors(values: np.ndarray, is_named: np.ndarray, margin: float) -> np.ndarray:
    """Return the logarithms of what a complete block multiplies the wealth of each bet by.

    The factor of a bet λ on "higher" is 1 + λ (x − m − margin) / (1 + margin), where x is the person's value and m the
    mean of the others'. It is positive, and its expectation is at most 1 under the null hypothesis.

    Args:
        values: the value of each person and outcome in the block, (n, o), in [0, 1]; NaN: the answer has no value.
        is_named: whether a person has been named for an outcome before the block, (n, o); others are not compared with
            these people, so that three people who differ make nobody else differ.
        margin: difference up to which people count as equal, in [0, 1).

    Returns:
        (n, o, 2, b), by direction and bet; 0 for a person without a value, or without others that have one.

    >>> block = np.array([[1.0], [0.0], [0.0]])
    >>> nobody = np.zeros_like(block, dtype=bool)
    >>> round(float(log_factors(block, nobody, margin=0.0)[0, 0, HIGHER, -1]), 3)  # log(1 + 0.9)
    0.642
    """
    has_value = ~np.isnan(values)
    is_compared_with = has_value & ~is_named
    compared = np.where(is_compared_with, values, 0.0)
    n_others = is_compared_with.sum(axis=0) - is_compared_with
    mean_of_others = (compared.sum(axis=0) - compared) / np.maximum(n_others, 1)
    difference = np.where(has_value, values, 0.0) - mean_of_others
    gain = np.stack([difference, -difference], axis=-1) - margin
    factors = np.log1p(gain[..., np.newaxis] * BETS / (1 + margin))
    is_bet = has_value & (n_others > 0)
    return np.where(is_bet[..., np.newaxis, np.newaxis], factors, 0.0)


def evidence(log_wealth: np.ndarray) -> np.ndarray:
    """Return the mean wealth over bets, (k, o, 2), of log wealths (k, o, 2, b): an e-process of each hypothesis."""
    return np.exp(np.minimum(log_wealth, MAX_LOG_WEALTH)).mean(axis=-1)


def weights_of_people(k: int) -> np.ndarray:
    """Return the weights 6 / (π² i²) of the first k people of an endless number, (k,); the sum over all people is 1."""
    return 6 / (np.pi * np.arange(1, k + 1)) ** 2


def rejected(evidence: np.ndarray, error: float) -> np.ndarray:
    """Return which hypotheses are rejected, (k, o, 2) bool; the probability of ever rejecting a true one is ≤ `error`.

    A hypothesis is rejected if each set of hypotheses that contains it has a weighted mean of e-values of at least
    1 / error (closure; Vovk and Wang 2021, §5). The worst set contains all others whose e-value is below that. People
    who have not been seen have an e-value of 1 and the rest of the weight: whoever comes later costs nobody evidence.

    Args:
        evidence: e-values (k, o, 2); people in the order in which they were first seen.
        error: probability, over the whole stream, of naming anybody without a reason.
    """
    k, n_outcomes, n_directions = evidence.shape
    threshold = 1 / error
    by_person = weights_of_people(k)
    weights = np.broadcast_to(by_person[:, np.newaxis, np.newaxis], evidence.shape) / (n_outcomes * n_directions)
    surplus = weights * (evidence - threshold)
    worst = np.minimum(surplus, 0.0)
    unseen = (1 - by_person.sum()) * (1 - threshold)
    return surplus + (worst.sum() - worst) + unseen >= 0


class Blocks:
    """The open block of each stratum: person → values of the outcomes.

    Attributes:
        open: stratum → person → values of the outcomes, as numbers that JSON can contain (None: no value).
    """

    def __init__(self, open_blocks: dict[str, dict[str, list[float | None]]] | None = None) -> None:
        self.open = open_blocks or {}

    def add(self, stratum: str, person: str, values: Sequence[float | None]) -> tuple[list[str], np.ndarray] | None:
        """Add an answer; return the people (n,) and values (n, o) of the block that it completes, None if none.

        Which block is complete depends on who asks, never on an answer's values.
        """
        block = self.open.setdefault(stratum, {})
        complete = None
        if person in block:
            if len(block) > 1:
                complete = list(block), np.array(list(block.values()), dtype=float)
            block = self.open[stratum] = {}
        block[person] = list(values)
        return complete


class StreamTest:
    """The test of a stream of answers, which goes on for ever.

    Attributes:
        positions: the position of each person, in the order in which they were first seen.
        log_wealth: logarithms of the wealth of each bet, (k, o, 2, b), by person, outcome, direction and bet.
        is_named: whether a person was named for an outcome and a direction, (k, o, 2).
        blocks: the open blocks.
        n_blocks: the number of complete blocks.
    """

    def __init__(self, n_outcomes: int, *, margin: float, error: float) -> None:
        """Start a test; `margin` is as in `log_factors`, and `error` as in `rejected`."""
        self.margin = margin
        self.error = error
        self.positions: dict[str, int] = {}
        self.log_wealth = np.zeros((0, n_outcomes, 2, len(BETS)))
        self.is_named = np.zeros((0, n_outcomes, 2), dtype=bool)
        self.blocks = Blocks()
        self.n_blocks = 0

    def add(self, stratum: str, person: str, values: np.ndarray) -> list[tuple[str, int, int]]:
        """Add an answer; return whom it names for the first time: person, outcome and direction.

        `values` are those of the outcomes, (o,), in [0, 1]; NaN: the answer has no value.
        """
        if person not in self.positions:
            self.positions[person] = len(self.positions)
            self.log_wealth = np.concatenate([self.log_wealth, np.zeros((1, *self.log_wealth.shape[1:]))])
            self.is_named = np.concatenate([self.is_named, np.zeros((1, *self.is_named.shape[1:]), dtype=bool)])
        complete = self.blocks.add(stratum, person, [None if np.isnan(value) else float(value) for value in values])
        if complete is None:
            return []
        self.n_blocks += 1
        people, of_people = complete
        rows = [self.positions[name] for name in people]
        was_named = np.asarray(self.is_named[rows].any(axis=-1))
        self.log_wealth[rows] += log_factors(of_people, was_named, self.margin)
        is_new = rejected(evidence(self.log_wealth), self.error) & ~self.is_named
        self.is_named |= is_new
        names = list(self.positions)
        return [(names[row], outcome, direction) for row, outcome, direction in np.argwhere(is_new).tolist()]
