"""Points of a sweep whose every shown digit can be checked by hand."""

import math

import pandas as pd

from evenhand.recipes.sweep.bar import Bar, judged
from evenhand.recipes.sweep.summary import COLUMNS, REDUCTIONS, Sweep, summarise

SWEPT = ["method", "seed", "label.quantile"]


def point(method="control_tags", seed=0, reduction=0.9, quantile=math.nan, **given):
    """One point that meets the bar but for what is given; all reductions are `reduction` ± 0.02."""
    row = dict.fromkeys(COLUMNS, math.nan) | {"method": method, "seed": seed, "label.quantile": quantile}
    row |= {"worst_cluster": "CARE", "worst_cluster_change": -0.0004, "clusters_rose": "", "failed": "", "minutes": 2.0}
    row |= {"perplexity_change": 0.02, "distinct_2_change": -0.01, "parroting_change": 0.0, "length_change": 0.01}
    row |= {"trusted": False, "folder": f"runs/{method}-{quantile}-{seed}"}
    for name in REDUCTIONS:
        row |= {name: reduction, f"{name}_low": reduction - 0.02, f"{name}_high": reduction + 0.02}
    if not math.isnan(quantile):
        row |= {"predicted_left": 0.05, "predicted_low": 0.03, "predicted_high": 0.08, "trusted": True}
    return row | given


def refused(reason, **given):
    """A point that a guard refused: no numbers."""
    kept = ("method", "seed", "label.quantile", "folder")
    row = point(**given)
    blank = {name: "" if isinstance(value, str) else math.nan for name, value in row.items() if name not in kept}
    return row | blank | {"trusted": False, "failed": reason}


def sweep_of(*rows, swept=SWEPT, **given) -> Sweep:
    return Sweep("A sweep", "base", swept, pd.DataFrame(rows), **given)


def settings_of(*rows, swept=SWEPT):
    """The settings, judged by the default bar."""
    return judged(summarise(pd.DataFrame(rows), swept), Bar())
