"""Changes of effects between responses before and after tuning: removed, kept, new or reversed, and how certain."""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from evenhand.evaluation.metrics.generation_bias.effects.table import (
    OPEN,
    SHOWN,
    arrange_units,
    certainty,
    cluster_indicator,
    outcomes,
    sort_effects,
)
from evenhand.evaluation.metrics.generation_bias.metric import check_arguments, check_same_prompts
from evenhand.evaluation.metrics.generation_bias.styled_responses import StyledResponses
from evenhand.evaluation.statistics import effect_changes as statistics
from evenhand.evaluation.statistics.effects import descriptor_effects

EFFECT_CHANGES = "effect_changes"  # the table of a comparison
REMOVED, REDUCED, KEPT, GROWN, NEW, TURNED = "removed", "reduced", "kept", "grown", "new", "turned round"
TRANSITIONS = (REMOVED, REDUCED, KEPT, GROWN, NEW, TURNED, OPEN)
SIDES = ("before", "after")
COLUMNS = (
    *("kind", "unit", "axis", "outcome", "name", "transition", "mean_before", "mean_after"),
    *("average_before", "average_after", "shrunk_before", "shrunk_after", "certainty_before", "certainty_after"),
    *("change", "shrunk", "low", "high", "detectable", "z", "p", "q", "p_family", "certainty", "n"),
)


def effect_changes(
    before: StyledResponses,
    after: StyledResponses,
    clusters: Mapping[str, Sequence[int]],
    *,
    groups: Mapping[str, Sequence[str]] | None = None,
    permutations: int = 999,
    seed: int = 0,
) -> pd.DataFrame:
    """Return the change of each effect (`effects`) between responses before and after tuning, to the same prompts.

    Responses are paired by row; a pair without two style vectors is left out. An effect or a change is "shown" if its
    `p_family` is at most 0.05; `p_family` is computed separately for all effects before, all effects after, and all
    changes. `transition` is:

        removed       shown before, not after; the change is shown and opposite to the effect before
        reduced       shown before and after in the same direction; the change is shown and opposite to both
        kept          shown before and after in the same direction; no change is shown
        grown         shown before and after in the same direction; the change is shown, in this direction
        new           shown after, not before; the change is shown, in the direction of the effect after
        turned round  shown before and after in opposite directions; the change is shown
        open          anything else

    A "removed" effect may be smaller but not 0: `shrunk_after` estimates the rest.

    Args:
        before: style vectors of the responses before.
        after: style vectors of the same styles, with the same templates and descriptors row by row.
        clusters: as in `effects`.
        groups: as in `effects`.
        permutations: as in `effects`; also the number of random signs.
        seed: as in `effects`.

    Returns:
        kind, unit, axis, outcome, name and n (pairs of responses) as in `effects`; transition; for before and after the
        mean probability, its average over all descriptors on the same templates, the shrunk effect and its certainty;
        change: effect after − effect before, in [−2, 2], 0 without a change; shrunk, low, high: the change shrunk
        toward 0 with its 95 % interval; detectable, z, p, q, p_family and certainty of the change, as in `effects`, by
        random signs of the paired differences. Rows with the largest |shrunk| come first. Empty if no two
        descriptors have a common template.

    Raises:
        InputError: the numbers of rows, the styles, the templates or the descriptors differ.

    In the example, the effect of descriptor a on style s falls from 0.5 to 0, too few data for a shown change.

    >>> frame = pd.DataFrame({"template": "t", "descriptor": ["a", "a", "b", "b"]})
    >>> sides = [
    ...     StyledResponses(frame, vectors, ["s", "r"])
    ...     for vectors in (np.eye(2)[[0, 0, 1, 1]], np.eye(2)[[0, 1, 0, 1]])
    ... ]
    >>> row = effect_changes(*sides, {}, permutations=9).query("unit == 'a' and name == 's'").iloc[0]
    >>> float(row["change"]), row["transition"]  # from +0.5 to 0
    (-0.5, 'open')
    """
    check_same_prompts(before, after)
    check_arguments(before, clusters, permutations)
    units = arrange_units(np.hstack([before.vectors, after.vectors]), before, groups)
    if units is None:
        return pd.DataFrame(columns=list(COLUMNS))
    indicator = cluster_indicator(before.styles, clusters)
    old, new = (
        descriptor_effects(
            units.cells.select_columns(half), units.groups, indicator, permutations, np.random.default_rng(seed)
        )
        for half in np.split(np.arange(2 * len(before.styles)), 2)
    )
    change = statistics.effect_changes(
        units.cells, old, new, units.groups, indicator, permutations, np.random.default_rng(seed)
    )
    table = units.table.merge(outcomes(before.styles, clusters), how="cross")
    for side, found in zip(SIDES, (old, new), strict=True):
        table[f"mean_{side}"], table[f"average_{side}"] = found.mean.ravel(), (found.mean - found.effect).ravel()
        table[f"shrunk_{side}"], table[f"certainty_{side}"] = found.shrunk.ravel(), certainty(found).ravel()
    table["change"] = change.effect.ravel()
    for name in ("shrunk", "low", "high", "detectable", "z", "p", "q", "p_family"):
        table[name] = getattr(change, name).ravel()
    table["certainty"] = certainty(change).ravel()
    shown = (table[name] == SHOWN for name in ("certainty_before", "certainty_after", "certainty"))
    table["transition"] = transitions(old.effect.ravel(), new.effect.ravel(), *shown)
    return sort_effects(table)[list(COLUMNS)]


def transitions(
    before: np.ndarray, after: np.ndarray, shown_before: np.ndarray, shown_after: np.ndarray, change_shown: np.ndarray
) -> np.ndarray:
    """Return the transition of each of n effects between before and after, (n,), as `effect_changes` defines it.

    Args:
        before, after: the effects, (n,).
        shown_before, shown_after, change_shown: whether each effect, or its change, is shown, (n,) bool.
    """
    both, same = shown_before & shown_after, np.sign(before) == np.sign(after)
    with_before, with_after = (np.sign(after - before) == np.sign(side) for side in (before, after))
    conditions = {
        REMOVED: shown_before & ~shown_after & change_shown & ~with_before,
        TURNED: both & ~same & change_shown,
        REDUCED: both & same & change_shown & ~with_before,
        GROWN: both & same & change_shown & with_before,
        KEPT: both & same & ~change_shown,
        NEW: ~shown_before & shown_after & change_shown & with_after,
    }
    return np.select(list(conditions.values()), list(conditions), OPEN)
