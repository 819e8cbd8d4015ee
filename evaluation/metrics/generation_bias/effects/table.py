"""Effects of each descriptor, and of groups of descriptors, on each style and style cluster, with their certainty.

An effect is the difference between a descriptor's (or a group's) mean probability of a style and the average over
descriptors on the same templates (design.md). Effects here are probabilities; reports show percentage points.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from evenhand.evaluation.metrics.generation_bias.metric import check_arguments
from evenhand.evaluation.metrics.generation_bias.styled_responses import StyledResponses
from evenhand.evaluation.score import AXIS, DESCRIPTOR, TEMPLATE
from evenhand.evaluation.statistics.cells import Cells, arrange_cells, factorize, select_cells, to_codes
from evenhand.evaluation.statistics.effects import Effects, descriptor_effects

SHOWN, WORTH_A_LOOK, OPEN = "shown", "worth a look", "open"
FAMILY_LEVEL, DISCOVERY_LEVEL = 0.05, 0.10
COLUMNS = (
    *("kind", "unit", "axis", "outcome", "name", "mean", "average", "effect", "shrunk", "low", "high"),
    *("detectable", "z", "p", "q", "p_family", "certainty", "n"),
)


def effects(
    responses: StyledResponses,
    clusters: Mapping[str, Sequence[int]],
    *,
    groups: Mapping[str, Sequence[str]] | None = None,
    permutations: int = 999,
    seed: int = 0,
) -> pd.DataFrame:
    """Return a table of effects, one row per unit (a descriptor or group) and outcome (a style or style cluster).

    Args:
        responses: style vectors by template and descriptor; one response per cell is enough, rows of NaN are left out.
        clusters: style cluster → columns of its styles.
        groups: kind of group ("axis", "bucket") → the group of each response, (n,); default: the axis. A descriptor
            that occurs in several groups of a kind belongs to the first of these groups in sorted order. A group of
            one descriptor, or of the same descriptors as an earlier group, is left out.
        permutations: number of permutations within templates; 999 resolve `p_family` to 0.001.
        seed: seed of the permutations.

    Returns:
        kind ("descriptor" or a key of `groups`), unit (name of the descriptor or group), axis, outcome ("style" or
        "cluster"), name; mean: mean probability; average: mean probability over all descriptors on the same templates;
        effect: mean − average, in [−1, 1], 0 without bias; shrunk, low, high: the effect shrunk toward 0 with its 95 %
        interval; detectable: the size of an effect that is shown with a probability of 80 %; z, p, q, p_family: as in
        `statistics.effects.Effects`;
        certainty: "shown" (p_family ≤ 0.05: with a probability of 95 % none of these effects is false), "worth a look"
        (q ≤ 0.10: about one in ten of these is false) or "open"; n: responses of the unit. Rows with the largest
        |shrunk| come first. Empty if no two descriptors have a common template.

    Raises:
        InputError: a cluster has a column that no style has, or `permutations` is not a whole number from 0.

    >>> frame = pd.DataFrame({"template": "t", "descriptor": ["a", "a", "b", "b"]})
    >>> styled = StyledResponses(frame, np.eye(2).repeat(2, axis=0), ["s", "r"])
    >>> effects(styled, {}, permutations=9).query("kind == 'descriptor'")[["unit", "name", "effect"]].values.tolist()
    [['a', 's', 0.5], ['a', 'r', -0.5], ['b', 's', -0.5], ['b', 'r', 0.5]]
    """
    check_arguments(responses, clusters, permutations)
    units = arrange_units(responses.vectors, responses, groups)
    if units is None:
        return pd.DataFrame(columns=list(COLUMNS))
    indicator = cluster_indicator(responses.styles, clusters)
    found = descriptor_effects(units.cells, units.groups, indicator, permutations, np.random.default_rng(seed))
    table = units.table.merge(outcomes(responses.styles, clusters), how="cross")
    for name in ("mean", "effect", "shrunk", "low", "high", "detectable", "z", "p", "q", "p_family"):
        table[name] = getattr(found, name).ravel()
    table["average"] = table["mean"] - table["effect"]
    table["certainty"] = certainty(found).ravel()
    return sort_effects(table)[list(COLUMNS)]


@dataclass(frozen=True)
class Units:
    """Responses by template and descriptor, and the units (descriptors and groups of descriptors) of effects.

    cells: responses; descriptors without a template that another descriptor has are left out. table: kind, unit, axis
    and n (responses) of each unit. groups: the weight of each descriptor in each group, (g, D).
    """

    cells: Cells
    table: pd.DataFrame
    groups: np.ndarray


def arrange_units(
    vectors: np.ndarray, responses: StyledResponses, groups: Mapping[str, Sequence[str]] | None
) -> Units | None:
    """Return the responses as cells with the units of `effects`; None if no two descriptors have a common template.

    Args:
        vectors: a row for each response; rows with NaN are left out.
        responses: template, descriptor and axis of each row.
        groups: as in `effects`.
    """
    descriptor, names = factorize(responses.table[DESCRIPTOR])
    cells = arrange_cells(vectors, to_codes(responses.table[TEMPLATE]), descriptor, min_count=1)
    cells = select_cells(cells, np.bincount(cells.template)[cells.template] > 1)  # compared with other descriptors
    present = np.unique(cells.descriptor)
    if len(present) < 2:
        return None
    if len(present) < len(names):  # the others have no style vector, or lack a template
        cells, names = replace(cells, descriptor=np.searchsorted(present, cells.descriptor)), names[present]
    n = np.bincount(cells.descriptor, cells.count)
    axis = _first_group(responses.table[DESCRIPTOR], responses.table[AXIS]).reindex(names)
    tables = [pd.DataFrame({"kind": "descriptor", "unit": names, "axis": axis.to_numpy(), "n": n})]
    memberships, seen = [np.zeros((0, len(names)))], set()
    for kind, values in (groups or {"axis": responses.table[AXIS]}).items():
        group = _first_group(responses.table[DESCRIPTOR], values).reindex(names)
        members = pd.get_dummies(group, dtype=float).T
        members = members[[_is_new(tuple(np.flatnonzero(row)), seen) for row in members.to_numpy()]]
        memberships.append((members.div(members.sum(axis=1), axis=0)).to_numpy())
        first_axis = axis.groupby(group).first()
        tables.append(
            pd.DataFrame(
                {
                    "kind": kind,
                    "unit": members.index.to_numpy(),
                    "axis": first_axis[members.index].to_numpy(),
                    "n": members.to_numpy() @ n,
                }
            )
        )
    return Units(cells, pd.concat(tables, ignore_index=True), np.concatenate(memberships))


def cluster_indicator(styles: Sequence[str], clusters: Mapping[str, Sequence[int]]) -> np.ndarray:
    """Return the matrix (S, k) that is 1 where a style belongs to a cluster, else 0."""
    indicator = np.zeros((len(styles), len(clusters)))
    for number, columns in enumerate(clusters.values()):
        indicator[list(columns), number] = 1
    return indicator


def outcomes(styles: Sequence[str], clusters: Mapping[str, Sequence[int]]) -> pd.DataFrame:
    """Return a table of the outcome ("style" or "cluster") and the name of each column of `Effects`."""
    rows = [("style", style) for style in styles] + [("cluster", cluster) for cluster in clusters]
    return pd.DataFrame(rows, columns=["outcome", "name"])


def certainty(found: Effects) -> np.ndarray:
    """Return the level of certainty of each effect, (u, c): "shown", "worth a look" or "open"."""
    return np.select([found.p_family <= FAMILY_LEVEL, found.q <= DISCOVERY_LEVEL], [SHOWN, WORTH_A_LOOK], OPEN)


def sort_effects(table: pd.DataFrame) -> pd.DataFrame:
    """Return the table of effects sorted by |shrunk|, largest first."""
    order = np.lexsort((np.arange(len(table)), -table["shrunk"].abs()))
    return table.loc[order].reset_index(drop=True)


def _is_new(members: tuple[int, ...], seen: set[tuple[int, ...]]) -> bool:
    """Return whether a group has several members and is not in `seen`; add the group to `seen`."""
    is_new = len(members) > 1 and members not in seen
    seen.add(members)
    return is_new


def _first_group(descriptor: Sequence[str], group: Sequence[str]) -> pd.Series:
    """Return the group of each descriptor that has one; of several groups, the first in sorted order."""
    pairs = pd.DataFrame({"descriptor": list(map(str, descriptor)), "group": list(group)}).dropna()
    return pairs.astype(str).groupby("descriptor")["group"].min()
