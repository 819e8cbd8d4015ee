"""Points of a sweep whose reported digits can be checked by hand."""

import json
import math

import pandas as pd

from evenhand.recipes.sweep.summary import COLUMNS, COST_METRICS, METRICS, QUALITY_METRICS, Sweep, summarise

REDUCTIONS = [name for name in METRICS if name.startswith("reduction")]
SWEPT = ["method", "seed", "label.quantile"]


def point(method="control_tags", seed=0, reduction=0.9, quantile=math.nan, **columns):
    """Return a point with small costs unless `columns` differ; all reductions are `reduction` ± 0.02."""
    row = dict.fromkeys(COLUMNS, math.nan) | {"method": method, "decoding": "sample", "seed": seed}
    row |= {"label.quantile": quantile}
    row |= {"worst_cluster_change": -0.0004, "failed": "", "minutes": 2.0}
    row |= {"cluster_changes": "{}", "base": 0.015, "base_low": 0.014, "base_high": 0.016}
    row |= {"perplexity_change": 0.02, "distinct_2_change": -0.01, "parroting_change": 0.0, "length_change": 0.01}
    row |= {"relevance_kept": 0.95, "relevance_to_person_kept": 0.5, "style_drift": 0.04}
    row |= {"response_perplexity_change": 0.02}
    row |= {"distinct_responses_change": -0.01, "folder": f"runs/{method}-{quantile}-{seed}"}
    for name in REDUCTIONS:
        row |= {name: reduction, f"{name}_low": reduction - 0.02, f"{name}_high": reduction + 0.02}
    row |= columns
    for name in (it.name for it in (*QUALITY_METRICS, *COST_METRICS[:-1])):  # so narrow that the value decides
        ends = {f"{name}_low": row[name] - 1e-6, f"{name}_high": row[name] + 1e-6}
        row |= {end: value for end, value in ends.items() if end not in columns}
    return row


def without_reductions(names=REDUCTIONS):
    """Return columns in which these reductions are undefined."""
    return {f"{name}{end}": math.nan for name in names for end in ("", "_low", "_high")}


def increased(*clusters, n_clusters=6, p_value=0.0001):
    """Return the column `cluster_changes` with an increase of these style clusters."""
    others = {f"OTHER {i}": [-0.001, 0.5] for i in range(n_clusters - len(clusters))}
    return json.dumps({name: [0.002, p_value] for name in clusters} | others)


def refused(reason, **columns):
    """Return a point that a guard refused: it has no numbers."""
    fields = ("method", "decoding", "seed", "label.quantile", "folder")
    row = point(**columns)
    blank = {name: "" if isinstance(value, str) else math.nan for name, value in row.items() if name not in fields}
    return row | blank | {"failed": reason}


def sweep_of(*rows, swept=SWEPT, **fields) -> Sweep:
    return Sweep("A sweep", "base", swept, pd.DataFrame(rows), **fields)


def settings_of(*rows, swept=SWEPT):
    """Return the settings with their verdicts."""
    return summarise(pd.DataFrame(rows), swept)
