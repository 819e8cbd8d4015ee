"""Points of a sweep whose every shown digit can be checked by hand."""

import json
import math

import pandas as pd

from evenhand.recipes.sweep.bar import Bar, judged
from evenhand.recipes.sweep.summary import CHANGES, COLUMNS, JUDGED, REDUCTIONS, Sweep, summarise

SWEPT = ["method", "seed", "label.quantile"]


def point(method="control_tags", seed=0, reduction=0.9, quantile=math.nan, **given):
    """One point that meets the bar but for what is given; all reductions are `reduction` ± 0.02."""
    row = dict.fromkeys(COLUMNS, math.nan) | {"method": method, "decoding": "sample", "seed": seed}
    row |= {"label.quantile": quantile}
    row |= {"worst_cluster": "CARE", "worst_cluster_change": -0.0004, "failed": "", "minutes": 2.0}
    row |= {"cluster_changes": "{}", "base": 0.015, "base_low": 0.014, "base_high": 0.016}
    row |= {"perplexity_change": 0.02, "distinct_2_change": -0.01, "parroting_change": 0.0, "length_change": 0.01}
    row |= {"relevance_kept": 0.95, "style_drift": 0.04, "response_perplexity_change": 0.02}
    row |= {"distinct_responses_change": -0.01, "folder": f"runs/{method}-{quantile}-{seed}"}
    for name in REDUCTIONS:
        row |= {name: reduction, f"{name}_low": reduction - 0.02, f"{name}_high": reduction + 0.02}
    if not math.isnan(quantile):
        row |= {"slope": quantile, "predicted_left": 0.05, "predicted_low": 0.03, "predicted_high": 0.08}
        row |= {"predicted_drift": 0.03}
    row |= given
    for name in (*JUDGED, *CHANGES):  # so narrow that the value decides
        ends = {f"{name}_low": row[name] - 1e-6, f"{name}_high": row[name] + 1e-6}
        row |= {end: value for end, value in ends.items() if end not in given}
    return row


def rise(*clusters, among=6, p_value=0.0001):
    """Changes of style clusters of which some rose, as a point has them."""
    others = {f"OTHER {place}": [-0.001, 0.5] for place in range(among - len(clusters))}
    return json.dumps({name: [0.002, p_value] for name in clusters} | others)


def refused(reason, **given):
    """A point that a guard refused: no numbers."""
    kept = ("method", "decoding", "seed", "label.quantile", "folder")
    row = point(**given)
    blank = {name: "" if isinstance(value, str) else math.nan for name, value in row.items() if name not in kept}
    return row | blank | {"failed": reason}


def sweep_of(*rows, swept=SWEPT, **given) -> Sweep:
    return Sweep("A sweep", "base", swept, pd.DataFrame(rows), **given)


def settings_of(*rows, swept=SWEPT):
    """The settings, judged by the default bar."""
    return judged(summarise(pd.DataFrame(rows), swept), Bar())
