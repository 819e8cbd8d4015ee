"""Grids of settings, {dotted setting: a value or a list of values}: their points, and the settings at a point."""

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

from evenhand.evaluation.errors import InputError


def grid_points(grids: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the points of each grid, {setting: value}: all combinations of its values.

    >>> grid_points([{"model": ["a", "b"], "seed": 1}])
    [{'model': 'a', 'seed': 1}, {'model': 'b', 'seed': 1}]
    """
    lists = [[values if isinstance(values, list) else [values] for values in grid.values()] for grid in grids]
    return [dict(zip(grid, it, strict=True)) for grid, of in zip(grids, lists, strict=True) for it in product(*of)]


def set_point(settings: dict[str, Any], point: Mapping[str, Any]) -> None:
    """Set the values of a point in nested settings of a loop; InputError if a group of settings does not exist."""
    for name, value in point.items():
        *parents, last = name.split(".")
        group: Any = settings
        for parent in parents:
            group = group.get(parent)
            if not isinstance(group, dict):
                raise InputError("sweep", f"{name!r} is not a setting in use; see `evenhand loop --help`.")
        group[last] = value
