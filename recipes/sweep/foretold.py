"""What a threshold should remove, foretold from labels before anything is tuned.

On SmolLM2, a method that evens out only the responses labelled `bias` removes about the share of all that it could
remove which these responses have of the divergence between people (docs/thresholds.md).
"""

import logging
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from evenhand.evaluation import columns
from evenhand.evaluation.runs.record import FINISHED, run_state
from evenhand.evaluation.tables import read_table
from evenhand.mitigation.labels import BIAS, DIVERGENCE, LABELS
from evenhand.recipes.point import Point

log = logging.getLogger("evenhand")

SHARE_LABELLED = "share_labelled_bias"
SHARE_OF_DIVERGENCE = "share_of_divergence"


def foretold_curve(points: Sequence[Point]) -> pd.DataFrame:
    """Return a row for each labelling: value, seed, and the labelled responses' share of all and of the divergence.

    A labelling by bias values has the divergence of another labelling of the same responses; without one, its row is
    left out. Rows are sorted by value, seed and share, the largest share first.
    """
    tables: dict[Path, pd.DataFrame] = {}
    known: dict[Path, pd.Series] = {}
    for point in points:
        if point.label is None or run_state(point.label.output_dir) != FINISHED:
            continue
        table = read_table(point.label.output_dir / f"{LABELS}.parquet").set_index(columns.PROMPT_ID)
        tables[point.label.output_dir] = table
        if DIVERGENCE in table:
            known[point.label.run] = table[DIVERGENCE]
    rows = {}
    for point in points:
        if point.label is None or point.label.output_dir not in tables or point.label.run not in known:
            continue
        divergence = known[point.label.run]
        is_bias = tables[point.label.output_dir][columns.LABEL] == BIAS
        rows[point.label.output_dir] = {
            "value": point.label.value,
            "seed": point.seed,
            SHARE_LABELLED: is_bias.mean(),
            SHARE_OF_DIVERGENCE: divergence[is_bias[is_bias].index].sum() / divergence.sum(),
        }
    curve = pd.DataFrame(list(rows.values()), columns=["value", "seed", SHARE_LABELLED, SHARE_OF_DIVERGENCE])
    return curve.sort_values(["value", "seed", SHARE_LABELLED], ascending=[True, True, False], ignore_index=True)


def log_foretold_curve(points: Sequence[Point]) -> None:
    """Log the foretold curve, one line for each labelling; nothing if no labelling is by the divergence."""
    for row in foretold_curve(points).to_dict("records"):
        log.info(
            "foretold, %s, seed %d: %.0f %% of the responses have %.0f %% of the divergence; evening out only these "
            "should remove this share of what evening out all removes",
            row["value"],
            row["seed"],
            100 * row[SHARE_LABELLED],
            100 * row[SHARE_OF_DIVERGENCE],
        )
