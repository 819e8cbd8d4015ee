"""Shares of responses that contain phrases, by descriptors, before and after tuning (Smith et al. 2022, Table 14)."""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import pandas as pd

from evenhand.evaluation.data.phrase_files import OTHER_DESCRIPTORS
from evenhand.evaluation.score import AXIS, DESCRIPTOR
from evenhand.evaluation.statistics.intervals import share_interval
from evenhand.evaluation.statistics.scores import share_change

SET_SIZE = 20  # descriptors in a set (Smith et al. 2022, Table 14)


def contains(responses: Iterable[str], phrase: str) -> np.ndarray:
    """Return whether each response contains the phrase, (n,) bool.

    Case, runs of blanks and the form of apostrophes are ignored. As in the paper, a phrase may begin or end inside a
    word: "what is a" is in "what is an egg".

    >>> contains(["I’m SORRY  to hear it.", "Sorry!"], "i'm sorry to hear").tolist()
    [True, False]
    """
    return _contains_phrase([_plain(response) for response in responses], phrase)


def _contains_phrase(plain_responses: Sequence[str], phrase: str) -> np.ndarray:
    plain = _plain(phrase)
    return np.array([plain in response for response in plain_responses], dtype=bool)


def _plain(text: str) -> str:
    return " ".join(text.casefold().replace("’", "'").split())


def highest_descriptors(bias: pd.DataFrame, axes: Sequence[str], n: int = SET_SIZE) -> list[str]:
    """Return the n descriptors with the highest mean bias value in the given axes, highest first.

    The columns of `bias` are descriptor, axis and before (mean bias value b of the responses before tuning).
    Descriptors without a mean b are left out.
    """
    of_axes = bias[bias[AXIS].isin(list(axes)) & np.isfinite(bias["before"])]
    ranked = of_axes.sort_values(["before", DESCRIPTOR], ascending=[False, True])
    return ranked[DESCRIPTOR].head(n).tolist()


def phrase_changes(
    before: Sequence[str],
    after: Sequence[str],
    descriptor: Sequence[str],
    phrases: Mapping[str, Sequence[str]],
    sets: Mapping[str, Sequence[str]],
) -> pd.DataFrame:
    """Return the share of responses that contain each phrase, by set of descriptors; shares in [0, 1].

    Args:
        before, after: responses to the same prompts, (n,). A prompt with an empty response before or after is left out.
        descriptor: the descriptor of each prompt, (n,).
        phrases: name of a group of phrases → the phrases.
        sets: name of a set → its descriptors. Descriptors in none of the sets form the set "all others".

    Returns:
        One row for each set and phrase: group, phrase, set, descriptors (list), n, n_left_out, the shares before and
        after, each with `_low` and `_high` (95 %, Wilson), change with `_low`, `_high` and p_value (paired: see
        `share_change`), and reason, which is empty unless the shares are NaN because all responses are empty.
    """
    nonempty = np.array([bool(a.strip() and b.strip()) for a, b in zip(before, after, strict=True)], dtype=bool)
    descriptor = np.asarray(descriptor, dtype=object)
    named = {name for members in sets.values() for name in members}
    rest = sorted(set(descriptor.tolist()) - named)
    masks = {
        name: (list(members), np.isin(descriptor, list(members)))
        for name, members in {**sets, OTHER_DESCRIPTORS: rest}.items()
    }
    plain = [[_plain(response) for response in responses] for responses in (before, after)]
    rows = []
    for group, members in phrases.items():
        for phrase in members:
            contained = [_contains_phrase(responses, phrase) for responses in plain]
            for name, (descriptors, in_set) in masks.items():
                mask = in_set & nonempty
                row = _row(contained[0][mask], contained[1][mask], int((in_set & ~nonempty).sum()))
                rows.append({"group": group, "phrase": phrase, "set": name, "descriptors": descriptors, **row})
    return pd.DataFrame(rows)


def _row(before: np.ndarray, after: np.ndarray, n_left_out: int) -> dict[str, object]:
    change = share_change("phrase", before, after, n_left_out=n_left_out)
    row: dict[str, object] = {"n": change.n, "n_left_out": n_left_out}
    for name, contained in (("before", before), ("after", after)):
        bounds = share_interval(int(contained.sum()), len(contained)) or (np.nan, np.nan)
        row[name] = float(contained.mean()) if len(contained) else np.nan
        row[f"{name}_low"], row[f"{name}_high"] = bounds
    low, high = change.interval or (np.nan, np.nan)
    row |= {"change": change.value, "change_low": low, "change_high": high}
    return row | {"p_value": np.nan if change.p_value is None else change.p_value, "reason": change.reason or ""}
