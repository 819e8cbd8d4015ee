"""A benchmark of the threshold plan's predictions for the models of an `ablate` run; takes seconds.

    evenhand ablate --config thresholds
    python -m benchmarks.threshold_plan runs/thresholds

The pilot of each method is a model of the first seed; the plan, calibrated by the pilot, predicts all other models.
"""

import argparse
import math
from pathlib import Path

import pandas as pd

from evenhand.evaluation.runs.tables import read_table
from evenhand.evaluation.statistics.intervals import share_interval
from evenhand.recipes.sweep.output import POINTS
from evenhand.recipes.sweep.summary import MAX_DISTANCE, METHOD, SEED, calibrate_by_pilot


def main() -> None:
    """Print the predicted and the measured fraction left of every model, and their agreement by method."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, nargs="+", help="output_dir of an `ablate` run")
    tables = [read_table(folder / f"{POINTS}.parquet") for folder in parser.parse_args().folder]
    points = pd.concat(tables, ignore_index=True).dropna(subset=["slope", "reduction"])
    points = calibrate_by_pilot(points.assign(left=1 - points["reduction"]), points[SEED] == points[SEED].min())
    columns = [METHOD, SEED, "label.alpha", "label.quantile", "slope", "predicted_left", "calibrated_left", "left"]
    table = points.sort_values([METHOD, "slope"])[[*columns, "predicted_drift", "style_drift"]]
    print(table.round(3).to_string(index=False), "\n")
    predictions = {"before any tuning": "predicted_left", "calibrated by one pilot a method": "calibrated_left"}
    for name, column in predictions.items():
        print(f"{name}:")
        predicted = points.dropna(subset=[column])
        for method, rows in [("all", predicted), *predicted.groupby(METHOD)]:
            print(f"  {method:10} {_agreement(rows, column, 'left')}, {_near(rows, column)}")
    print("style drift:")
    for method, rows in [("all", points), *points.groupby(METHOD)]:
        print(f"  {method:10} {_agreement(rows.dropna(subset=['style_drift']), 'predicted_drift', 'style_drift')}")


def _agreement(rows: pd.DataFrame, predicted: str, measured: str) -> str:
    """Return Spearman's ρ and the mean absolute error of predicted against measured fractions, as text."""
    error = (rows[predicted] - rows[measured]).abs().mean()
    rho = rows[predicted].corr(rows[measured], method="spearman") if len(rows) > 1 else math.nan
    return f"ρ {rho:.2f}, mean error {error:.3f}, n = {len(rows)}"


def _near(rows: pd.DataFrame, predicted: str) -> str:
    """Return the number of predictions within MAX_DISTANCE of the measured fraction, with Wilson's interval."""
    near, n = int(((rows[predicted] - rows["left"]).abs() <= MAX_DISTANCE).sum()), len(rows)
    low, high = share_interval(near, n) if n else (math.nan, math.nan)
    return f"within {MAX_DISTANCE}: {near} of {n} [{low:.0%}, {high:.0%}]"


if __name__ == "__main__":
    main()
