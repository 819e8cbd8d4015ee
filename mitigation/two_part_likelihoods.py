"""Log-likelihoods of responses whose first tokens one model writes, and the rest another."""

from collections.abc import Sequence

import numpy as np

from evenhand.evaluation.models.batches import longest_first, max_positions
from evenhand.evaluation.models.likelihood.tokens import conditional_log_likelihoods
from evenhand.evaluation.models.loading import DialogueModel


def two_part_log_likelihoods(
    opener: DialogueModel,
    model: DialogueModel,
    first_tokens: int,
    heads: Sequence[list[int]],
    tails: Sequence[list[int]],
) -> tuple[np.ndarray, np.ndarray]:
    """Return log p(tail | head) of each row in nats, (n,), and the number of tokens of the tail, (n,).

    `opener` predicts the first tokens, and `model` the others; both have the same tokenizer. A row that is too long for
    `model` has NaN, as of `pair_log_likelihoods`.
    """
    lengths = [len(head) + len(tail) for head, tail in zip(heads, tails, strict=True)]
    openings = [tail[:first_tokens] for tail in tails]
    rests = [tail[first_tokens:] for tail in tails]
    begun = [head + opening for head, opening in zip(heads, openings, strict=True)]
    limit = max_positions(model.model.config)
    fits = [row for row in longest_first(lengths) if lengths[row] <= limit]
    total = np.full(len(heads), np.nan)
    total[fits] = 0.0
    for part, before, after in ((opener, heads, openings), (model, begun, rests)):
        order = [row for row in fits if after[row]]
        for rows, sums in conditional_log_likelihoods(part, before, after, order):
            total[rows] += sums
    return total, np.array([len(tail) for tail in tails])
