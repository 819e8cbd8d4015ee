"""How right the threshold plan is: what it predicted and what was left, of the models of an `ablate` run.

$ evenhand ablate --config recipes/configs/ablations/thresholds.yaml
$ python -m benchmarks.threshold_plan runs/thresholds

Each method's pilot is one model of the first seed; the plan, calibrated by it, predicts all others.
"""

import argparse
from pathlib import Path

import pandas as pd

from evenhand.evaluation.runs.tables import read_table
from evenhand.evaluation.statistics.intervals import share_interval
from evenhand.recipes.sweep.present import POINTS
from evenhand.recipes.sweep.summary import METHOD, NEAR, SEED, piloted

COSTS = {"predicted_drift": "style_drift"}


def main() -> None:
    """Print every model's prediction beside what it left, and how well they agree, method by method."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, nargs="+", help="output_dir of an `ablate` run")
    points = pd.concat(
        [read_table(it / f"{POINTS}.parquet") for it in parser.parse_args().folder], ignore_index=True
    ).dropna(subset=["slope", "reduction"])
    points = piloted(points.assign(left=1 - points["reduction"]), points[SEED] == points[SEED].min())
    columns = [METHOD, SEED, "label.alpha", "label.quantile", "slope", "predicted_left", "piloted_left", "left"]
    shown = points.sort_values([METHOD, "slope"])[[*columns, *COSTS, *COSTS.values()]]
    print(shown.round(3).to_string(index=False), "\n")
    predictions = {"as it stood": "predicted_left", "by one pilot a method": "piloted_left"}
    for name, column in predictions.items():
        print(f"{name}:")
        for method, rows in [("all", points), *points.groupby(METHOD)]:
            print(f"  {method:10} {_agreement(rows.dropna(subset=[column]), column, 'left')}")
    for predicted, measured in COSTS.items():
        print(f"{measured}:")
        for method, rows in [("all", points), *points.groupby(METHOD)]:
            print(f"  {method:10} {_agreement(rows.dropna(subset=[measured]), predicted, measured)}")


def _agreement(rows: pd.DataFrame, predicted: str, measured: str) -> str:
    """Return Spearman's ρ, the mean error and the share of predictions within NEAR, with Wilson's interval."""
    if rows.empty:
        return "none"
    error, n = (rows[predicted] - rows[measured]).abs(), len(rows)
    near = int((error <= NEAR).sum())
    low, high = share_interval(near, n)
    rho = rows[predicted].corr(rows[measured], method="spearman")
    return f"ρ {rho:.2f}, mean error {error.mean():.3f}, within {NEAR}: {near} of {n} [{low:.0%}, {high:.0%}]"


if __name__ == "__main__":
    main()
