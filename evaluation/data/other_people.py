"""For each prompt, a random prompt with another descriptor, to exchange or compare the responses."""

from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd

from evenhand.evaluation import columns

LEVELS = ((columns.TEMPLATE, columns.NOUN), (columns.TEMPLATE,))
PARTNER = "partner_"  # the columns of another person's prompt, beside each prompt, begin with this


def other_people(prompts: pd.DataFrame, seed: int = 0, *, levels: Sequence[Sequence[str]] = LEVELS) -> np.ndarray:
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
    rng = np.random.default_rng(seed)
    others = np.full(len(prompts), -1)
    descriptor = prompts[columns.DESCRIPTOR].astype(str).to_numpy()
    for rows in _comparable(prompts, levels):
        for name in np.unique(descriptor[rows]):
            is_name = descriptor[rows] == name
            receivers = rows[is_name & (others[rows] < 0)]
            donors = rows[~is_name]
            if len(donors):
                others[receivers] = rng.choice(donors, len(receivers))
    return others


def prompts_of_others(prompts: pd.DataFrame, others: pd.DataFrame) -> pd.DataFrame:
    """Return the prompts as asked by other people, in the order of the rows; a prompt's id stays.

    With a cue, the other person's persona also replaces the prompt's; else the prompt keeps its persona.
    """
    names = [columns.TEXT, columns.PERSONA] if columns.CUE in prompts else [columns.TEXT]
    asked = prompts.copy()
    for name in names:
        asked[name] = others[name].to_numpy()
    return asked


def with_partners(prompts: pd.DataFrame, seed: int) -> pd.DataFrame:
    """Return the prompts, each with the columns of another person's prompt. Their names begin with PARTNER.

    The other prompt has the same template and another descriptor (`other_people`); a prompt to whose template nobody
    else is asked is its own partner. Give the whole table of prompts: a part of it has other partners.
    """
    other = other_people(prompts, seed)
    partners = prompts.iloc[np.where(other < 0, np.arange(len(prompts)), other)]
    return prompts.join(partners.set_index(prompts.index).add_prefix(PARTNER))


def partner_rows(prompts: pd.DataFrame) -> pd.DataFrame:
    """Return, for each prompt, the other person's prompt, with the usual names of columns."""
    names = [name for name in map(str, prompts) if name.startswith(PARTNER)]
    return prompts[names].rename(columns=lambda name: name.removeprefix(PARTNER))


def partner_prompts(prompts: pd.DataFrame) -> pd.DataFrame:
    """Return the prompts with person and partner exchanged; each prompt keeps its id."""
    partners = prompts_of_others(prompts, partner_rows(prompts))
    for name in (columns.TEXT, columns.PERSONA):
        if name in prompts:
            partners[f"{PARTNER}{name}"] = prompts[name]
    return partners


def several_people(prompts: pd.DataFrame, count: int, seed: int = 0) -> np.ndarray:
    """Return, for each prompt, the rows of `count` random prompts with different descriptors, (n, count) int.

    The first of LEVELS for which another descriptor exists is used; if none exists, the rows are −1. If a level has
    fewer than `count` other descriptors, they and the prompt itself are repeated in turn, so that all of the few
    descriptors are about equally frequent among the prompt and its `count` rows.
    """
    rng = np.random.default_rng(seed)
    others = np.full((len(prompts), count), -1)
    descriptor = prompts[columns.DESCRIPTOR].astype(str).to_numpy()
    for rows in _comparable(prompts, LEVELS):
        by_name = {name: rows[descriptor[rows] == name] for name in np.unique(descriptor[rows])}
        if len(by_name) == 1:
            continue
        for row in rows[others[rows, 0] < 0]:
            names = rng.permutation([name for name in by_name if name != descriptor[row]])[:count]
            others[row] = np.resize([*(rng.choice(by_name[name]) for name in names), row], count)
    return others


def _comparable(prompts: pd.DataFrame, levels: Sequence[Sequence[str]]) -> Iterator[np.ndarray]:
    """Yield the rows of prompts with equal values, level by level; levels with a column that is absent are skipped."""
    for level in levels:
        if set(level) <= set(prompts):
            yield from prompts.groupby([prompts[name].astype(str) for name in level], sort=True).indices.values()
