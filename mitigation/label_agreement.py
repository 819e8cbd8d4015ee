"""How well the labels of responses would repeat: other responses to the same people label a response alike."""

from dataclasses import dataclass

import numpy as np

from evenhand.evaluation.statistics.cells import to_codes
from evenhand.mitigation.labels import descriptor_means, scaled_projection, shrinkage_factors, value_above_share

PARTS = 3  # two of them give directions, and the third is labelled by both


@dataclass(frozen=True)
class LabelAgreement:
    """How often labels by two parts of the responses agree; NaN if the parts have no person in common.

    Attributes:
        share: the share of the responses whose two labels are equal.
        kappa: the same beyond chance (Cohen 1960): 1 for equal labels, 0 for labels that are equal by chance.
    """

    share: float
    kappa: float


def agreement_of_parts(
    vectors: np.ndarray,
    template: np.ndarray,
    descriptor: np.ndarray,
    share_labelled: float,
    alpha: int = 0,
    *,
    shrunk: bool = False,
    seed: int = 0,
) -> LabelAgreement:
    """Return how alike two thirds of the responses label the last third by bias values.

    The responses are split at random, evenly within cells. Each third is labelled twice, along the directions of each
    of the others; each time, the share with the largest bias values is labelled `bias`. Directions from all responses
    are less noisy than those from a third, so that whole runs would agree somewhat more.

    Args:
        vectors: style vectors, (n, S).
        template, descriptor: integer codes from 0, (n,).
        share_labelled: the share of the responses that is labelled `bias`.
        alpha, shrunk: see `bias_values`.

    Raises:
        InputError: directions are to be shrunk, and there are too few responses to estimate their noise.
    """
    part = np.zeros(len(vectors), dtype=np.int64)
    draw = np.random.default_rng(seed).random(len(vectors))
    part[np.lexsort((draw, template, descriptor))] = np.arange(len(vectors)) % PARTS
    people = [set(descriptor[part == number]) for number in range(PARTS)]
    in_all = np.isin(descriptor, list(set.intersection(*people)))
    if not in_all.any():
        return LabelAgreement(share=np.nan, kappa=np.nan)
    vectors = vectors[in_all]
    part = part[in_all]
    template = to_codes(template[in_all])
    descriptor = to_codes(descriptor[in_all])
    labels = np.zeros((2, len(vectors)), dtype=bool)
    for labelled in range(PARTS):
        rows = part == labelled
        others = [number for number in range(PARTS) if number != labelled]
        for number, other in enumerate(others):
            of_part = part == other
            codes = (to_codes(template[of_part]), descriptor[of_part])  # every part has all people
            m_d = descriptor_means(vectors[of_part], *codes)
            m_bar = m_d.mean(axis=0)
            directions = m_d - m_bar
            if shrunk:
                directions *= shrinkage_factors(vectors[of_part], *codes)[:, None]
            b = scaled_projection(vectors[rows], m_bar, directions[descriptor[rows]], alpha)
            labels[number, rows] = b > value_above_share(b, share_labelled)
    agreement = float((labels[0] == labels[1]).mean())
    shares = labels.mean(axis=1)
    by_chance = float(shares.prod() + (1 - shares).prod())
    kappa = (agreement - by_chance) / (1 - by_chance) if by_chance < 1 else np.nan
    return LabelAgreement(share=agreement, kappa=kappa)
