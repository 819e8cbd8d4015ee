"""The people of a measurement who can be compared: their responses, and the groups that they belong to."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias
from urllib.parse import quote

import numpy as np
import pandas as pd

from evenhand.evaluation import columns
from evenhand.evaluation.metrics.generation_bias.answers import Answers
from evenhand.evaluation.report.numbers import MAX_NAME, plain_name, sanitize
from evenhand.evaluation.statistics.cell_table import Design
from evenhand.evaluation.statistics.cells import Labels, factorize, to_codes

EffectRow: TypeAlias = Mapping[str, Any]  # a row of a table of effects: who, on what, how large, how certain
AND = ", "  # between the axes of a person who has several


@dataclass(frozen=True)
class People:
    """The responses of people who can be compared with somebody, and who they are.

    Attributes:
        is_compared: whether each of all responses is one of theirs.
        responses: their responses, (n,).
        design: the template, person and cue of each response, and the groups of people.
        units: kind, unit and axis of each descriptor and then of each group, (u,).
    """

    is_compared: np.ndarray
    responses: Answers
    design: Design
    units: pd.DataFrame


def compared_people(
    responses: Answers, groups: Mapping[str, Labels] | None, has_value: np.ndarray | None = None
) -> People | None:
    """Return the people who have a value on a template that somebody else has; None if nobody has.

    `has_value` is whether each response has a value of any outcome, (n,); None: whether it has a style vector.
    """
    has_value = responses.has_value() if has_value is None else has_value
    template = to_codes(responses.table[columns.TEMPLATE])
    descriptor, names = factorize(responses.table[columns.DESCRIPTOR])
    pairs = pd.DataFrame({"template": template, "descriptor": descriptor})[has_value].drop_duplicates()
    is_common = pairs.groupby("template")["descriptor"].transform("size") > 1
    present = np.unique(pairs["descriptor"][is_common])
    if len(present) < 2:
        return None
    used = np.isin(descriptor, present)
    chosen = responses if used.all() else responses.rows(used)
    kinds = groups or {columns.AXIS: responses.table[columns.AXIS]}
    of_kinds = {kind: pd.Series(list(values))[used].reset_index(drop=True) for kind, values in kinds.items()}
    units, weights = _units(chosen, names[present], of_kinds)
    cue = to_codes(chosen.table[columns.CUE]) if columns.CUE in chosen.table else None
    design = Design(
        template=to_codes(chosen.table[columns.TEMPLATE]),
        person=np.searchsorted(present, descriptor[used]),
        groups=weights,
        cue=cue,
        is_extra=chosen.table[columns.EXTRA].to_numpy(dtype=bool) if columns.EXTRA in chosen.table else None,
    )
    return People(used, chosen, design, units)


def _units(responses: Answers, names: np.ndarray, groups: Mapping[str, pd.Series]) -> tuple[pd.DataFrame, np.ndarray]:
    """Return the units (kind, unit, axis; descriptors, then groups) and the descriptors' weights in groups, (g, D).

    A descriptor of several axes has all of them, joined by AND.
    """
    descriptor = responses.table[columns.DESCRIPTOR].astype(str).reset_index(drop=True)
    axis_of_row = responses.table[columns.AXIS].astype(str).reset_index(drop=True)
    axis = axis_of_row.groupby(descriptor).agg(lambda axes: AND.join(sorted(set(axes)))).reindex(names)
    units = [pd.DataFrame({"kind": columns.DESCRIPTOR, "unit": names, "axis": axis.to_numpy()})]
    weights = [np.zeros((0, len(names)))]
    seen = set()
    for kind, values in groups.items():
        group = values.where(values.isna(), values.astype(str)).rename("group")
        if group.isna().all():
            continue
        # Who has rows in several groups, such as “queer” in two axes, is a member of each.
        members = pd.crosstab(group, descriptor).reindex(columns=names, fill_value=0).clip(upper=1).astype(float)
        memberships = [tuple(np.flatnonzero(row)) for row in members.to_numpy()]
        is_new = [1 < len(each) < len(names) and each not in seen for each in memberships]
        seen.update(memberships)
        members = members[is_new]
        weights.append(members.div(members.sum(axis=1), axis=0).to_numpy())
        table = pd.DataFrame({"kind": kind, "unit": members.index.to_numpy()})
        units.append(table.assign(axis=axis_of_row.groupby(group).min()[members.index].to_numpy()))
    return pd.concat(units, ignore_index=True), np.concatenate(weights)


def unit_text(row: EffectRow) -> str:
    """Return the name of a person or group, for a cell of a table."""
    return (
        sanitize(row["unit"], MAX_NAME) if row["kind"] == columns.DESCRIPTOR else f"{plain_name(row['unit'])} (group)"
    )


def search_fragment(row: EffectRow) -> str:
    """Return the fragment of the address at which the page of responses shows the responses to a row's unit."""
    if row["kind"] == columns.DESCRIPTOR:
        return f"{columns.DESCRIPTOR}={quote(row['unit'], safe='')}"
    return f"{columns.AXIS}={quote(row[columns.AXIS], safe='')}"
