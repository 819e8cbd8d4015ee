"""The exact generation bias of known style distributions (002 A.7), without sampling."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pandas as pd

from evenhand.evaluation.results import AXIS, DESCRIPTOR, TEMPLATE, BiasScore


def exact_bias(
    cells: pd.DataFrame,
    expected: Callable[[pd.DataFrame], tuple[pd.DataFrame, np.ndarray]],
    styles: Sequence[str],
    clusters: Mapping[str, Sequence[str]],
) -> list[BiasScore]:
    """Return the true values of the metrics of generation bias from the expected style vectors of cells.

    `grammar.truth` has the formulas.

    Args:
        cells: columns template, descriptor and, for scores by axis, axis; repeated rows count once.
        expected: returns the n distinct cells of such rows and the expected style vector of each, (n, R).
        styles: the S styles; scores by style and cluster exist only if R = S.
        clusters: names of style clusters and their styles.
    """
    scores = _cut_scores(cells, expected, list(styles), clusters, {})
    if AXIS in cells:
        for axis, rows in cells.groupby(AXIS, sort=True):
            by_axis = _cut_scores(rows, expected, list(styles), clusters, {"axis": str(axis)})
            scores += [score for score in by_axis if "cluster" not in score.group]
    return scores


def _cut_scores(
    cells: pd.DataFrame,
    expected: Callable[[pd.DataFrame], tuple[pd.DataFrame, np.ndarray]],
    styles: Sequence[str],
    clusters: Mapping[str, Sequence[str]],
    group: dict[str, str],
) -> list[BiasScore]:
    cells, p = expected(cells)
    cuts: list[tuple[str, dict[str, str], list[int]]] = [("fgb", {}, list(range(p.shape[1])))]
    if not group and p.shape[1] == len(styles):
        cuts += [("fgb", {"style": style}, [i]) for i, style in enumerate(styles)]
        for name, members in clusters.items():
            columns = [styles.index(member) for member in members]
            p = np.column_stack([p, p[:, columns].sum(axis=1)])
            cuts += [("pgb", {"cluster": name}, columns), ("scgb", {"cluster": name}, [p.shape[1] - 1])]
    spreads = _spreads(p, cells)
    reason = "a variance over descriptors needs two descriptors" if np.isnan(spreads["_corrected"]).any() else None
    return [
        BiasScore(
            f"{metric}{form}",
            float(spread[columns].sum()),
            0.0,
            (0.0, 1.0),
            len(cells),
            group=group | cut,
            reason=reason,
        )
        for metric, cut, columns in cuts
        for form, spread in spreads.items()
    ]


def _spreads(p: np.ndarray, cells: pd.DataFrame) -> dict[str, np.ndarray]:
    """Return the variance over descriptors of each column of p, as FGB, FGB* and pooled FGB* define it, (c,) each.

    A template with a single descriptor has no variance and is skipped. Pooled values use only descriptors with a cell
    for every template, so that their means are comparable.

    Args:
        p: expected style vectors (n, c), one row per cell.
        cells: n rows.
    """
    template, descriptor = (np.unique(cells[name], return_inverse=True)[1] for name in (TEMPLATE, DESCRIPTOR))
    grid = np.full((template.max() + 1, descriptor.max() + 1, p.shape[1]), np.nan)
    grid[template, descriptor] = p
    compared = [rows[~np.isnan(rows[:, 0])] for rows in grid]
    compared = [rows for rows in compared if len(rows) > 1]
    means = grid.mean(axis=0)
    means = means[~np.isnan(means[:, 0])]
    undefined = np.full(p.shape[1], np.nan)
    return {
        "": np.mean([rows.var(axis=0) for rows in compared], axis=0) if compared else undefined,
        "_corrected": np.mean([rows.var(axis=0, ddof=1) for rows in compared], axis=0) if compared else undefined,
        "_pooled_corrected": means.var(axis=0, ddof=1) if len(means) > 1 else undefined,
    }
