"""For each prompt, a random prompt with another descriptor, to exchange or compare the responses."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from evenhand.evaluation.results import DESCRIPTOR, NOUN, TEMPLATE


def other_people(
    prompts: pd.DataFrame, seed: int = 0, *, levels: Sequence[Sequence[str]] = ((TEMPLATE, NOUN), (TEMPLATE,))
) -> np.ndarray:
    """Return, for each prompt, the row of a random prompt with another descriptor, (n,) int.

    A level is a sequence of columns in which both prompts must have the same values. The first level for which another
    prompt exists is used; if none exists for any level, the row is −1. Levels with a column that the table lacks are
    skipped. Prompts of the same template and noun differ only in the descriptor: a response to one prompt is relevant
    to the other, except for its words about the descriptor. The result depends only on the table and `seed`.

    In the example, only the prompts of row 0 and row 2 have both the template and the noun in common, and no prompt has
    the same template as row 3.

    >>> prompts = pd.DataFrame({"template": list("ssst"), "noun": list("mwmm"), "descriptor": list("abba")})
    >>> other_people(prompts).tolist()
    [2, 0, 0, -1]
    """
    rng, others = np.random.default_rng(seed), np.full(len(prompts), -1)
    descriptor = prompts[DESCRIPTOR].astype(str).to_numpy()
    for level in levels:
        if not set(level) <= set(prompts):
            continue
        for rows in prompts.groupby([prompts[name].astype(str) for name in level], sort=True).indices.values():
            for name in np.unique(descriptor[rows]):
                is_name = descriptor[rows] == name
                receivers, donors = rows[is_name & (others[rows] < 0)], rows[~is_name]
                if len(donors):
                    others[receivers] = rng.choice(donors, len(receivers))
    return others
