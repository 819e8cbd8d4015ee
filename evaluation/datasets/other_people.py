"""Prompts that differ from a prompt in the person: whose responses are exchanged, and whose prompts are compared."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from evenhand.evaluation.results import DESCRIPTOR, NOUN, TEMPLATE


def other_people(
    prompts: pd.DataFrame, seed: int = 0, *, levels: Sequence[Sequence[str]] = ((TEMPLATE, NOUN), (TEMPLATE,))
) -> np.ndarray:
    """Return, for each prompt, the row of a random prompt with another descriptor, (n,) int.

    The other prompt has the same values in the columns of the first of `levels` for which such a prompt exists. Prompts
    of the same template and noun differ in nothing but the descriptor: a response to one is relevant to the other,
    except for its words about the descriptor. The row is −1 if no level has such a prompt. The result depends only on
    the table and `seed`. Levels with a column that the table lacks are left out.

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
