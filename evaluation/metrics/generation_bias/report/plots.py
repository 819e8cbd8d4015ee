"""Charts of style probabilities against the frequency of descriptors in a corpus."""

import math

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from evenhand.evaluation.report.figures import (
    AFTER,
    BEFORE,
    PANEL,
    add_margin,
    label_points,
    new_chart,
    set_ticks,
    styled,
    tick_percent,
)
from evenhand.evaluation.report.numbers import sanitize

NAMED_POINTS, MAX_LABEL = 5, 28  # points with a label in a chart; characters of a label
SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


@styled
def corpus_charts(corpus: pd.DataFrame) -> list[Figure]:
    """Return a chart for each style cluster: mean probability by descriptor against the descriptor's frequency.

    Source: Smith et al. 2022, Figures 3, 5 and 6. The frequency has a logarithmic scale; descriptors that never occur
    are apart at the left end. The most frequent descriptor and the descriptors with the highest probability before
    tuning have labels.
    """
    return [_corpus_chart(str(cluster), rows) for cluster, rows in corpus.groupby("cluster", sort=False)]


def _corpus_chart(cluster: str, rows: pd.DataFrame) -> Figure:
    label = f"Mean probability of {sanitize(cluster, 120)} for each descriptor, against its frequency in the corpus"
    figure, axes = new_chart(label, *PANEL)
    occurs = rows["frequency"] > 0
    logs = np.log10(rows["frequency"].where(occurs))
    low, high = add_margin(*(logs.min(), logs.max()) if occurs.any() else (-1.0, 0.0))
    never = low - 0.12 * (high - low)
    rows = rows.assign(x=logs.fillna(never)).sort_values("before", ascending=False, kind="stable")
    for side, color in (("before", BEFORE), ("after", AFTER)):
        axes.plot(rows["x"], rows[side], "o", color=color, markersize=5, alpha=0.55, markeredgewidth=0)
    axes.set(title=sanitize(cluster, MAX_LABEL), xlabel="usages per example of the corpus", ylim=(0, None))
    axes.set_xlim(low if occurs.all() else never - 0.06 * (high - low), high)
    set_ticks(axes, "y", 3, tick_percent)
    powers = range(math.ceil(low), math.floor(high) + 1)
    powers = list(powers)[:: max(1, len(powers) // 4)]
    ticks = dict(zip(powers, (f"10{str(power).translate(SUPERSCRIPTS)}" for power in powers), strict=True))
    ticks |= {} if occurs.all() else {never: "never"}
    axes.set_xticks(list(ticks), list(ticks.values()))
    named = rows[np.isfinite(rows["before"])]
    named = pd.concat([named.head(NAMED_POINTS - 1), named.sort_values("x").tail(1)]).drop_duplicates("descriptor")
    texts = [sanitize(name, MAX_LABEL) for name in named["descriptor"]]
    label_points(axes, list(zip(named["x"], named["before"], strict=True)), texts)
    return figure
