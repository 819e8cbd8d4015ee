"""Heat map of effects as a matplotlib figure, for notebooks, papers and W&B."""

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from evenhand.evaluation.data.prompts import require_columns
from evenhand.evaluation.errors import InputError
from evenhand.evaluation.metrics.generation_bias.effects.table import SHOWN

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MAX_DESCRIPTORS, MAX_STYLES = 40, 12
COLOURS = "PuOr_r"  # purple: less than the average, orange: more; distinct for colour-blind readers


def effects_figure(
    effects: pd.DataFrame, *, outcome: str = "cluster", max_descriptors: int = MAX_DESCRIPTORS
) -> "Figure":
    """Return a heat map of effects, descriptors × style clusters: differences from the average in percentage points.

    The differences are shrunk toward 0; a dot marks a shown effect. The descriptors with the largest effects are in
    the map, sorted by axis.

    Args:
        effects: the result of `effects`, or of `effect_changes` for a map of changes.
        outcome: "cluster" or "style"; without clusters, styles. The 12 clusters or styles with the largest effects are
            in the map.
        max_descriptors: largest number of descriptors in the map.

    Raises:
        InputError: the table lacks a column, or has no effect on a descriptor.
    """
    from matplotlib.figure import Figure

    require_columns(list(effects), ("kind", "unit", "axis", "outcome", "name", "shrunk", "certainty"), "effects")
    rows = effects[effects["kind"] == "descriptor"]
    if not len(rows):
        raise InputError(
            "effects: the table has no effect on a descriptor; give responses to two descriptors on a common template."
        )
    rows = rows[rows["outcome"] == (outcome if (rows["outcome"] == outcome).any() else "style")]
    size = rows["shrunk"].abs()
    columns = size.groupby(rows["name"]).max().nlargest(MAX_STYLES).index.sort_values()
    largest = size.groupby(rows["unit"]).max().nlargest(max_descriptors).index
    axis = rows.drop_duplicates("unit").set_index("unit")["axis"].loc[largest]
    units = sorted(largest, key=lambda unit: (axis[unit], unit))
    values = 100 * rows.pivot(index="unit", columns="name", values="shrunk").loc[units, columns].to_numpy()
    shown = rows.assign(shown=rows["certainty"] == SHOWN).pivot(index="unit", columns="name", values="shown")
    limit = max(np.abs(values).max(), 1e-9)
    figure = Figure(figsize=(2.6 + 0.6 * len(columns), 1.4 + 0.24 * len(units)), layout="constrained")
    axes = figure.add_subplot()
    image = axes.imshow(values, cmap=COLOURS, vmin=-limit, vmax=limit, aspect="auto")
    y, x = np.nonzero(shown.loc[units, columns].to_numpy(dtype=bool))
    axes.plot(x, y, "o", color="black", markersize=4)
    axes.set_xticks(range(len(columns)), columns, rotation=45, ha="right", parse_math=False)
    axes.set_yticks(range(len(units)), [f"{unit} ({axis[unit]})" for unit in units], parse_math=False)
    figure.colorbar(image, label="difference from the average, percentage points; dot: shown")
    return figure
