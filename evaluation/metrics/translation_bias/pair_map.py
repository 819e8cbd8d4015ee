"""The map of the gaps of pairs of languages (Costa-jussà et al. 2023, Figure 6)."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.figure import Figure as Chart

from evenhand.evaluation.data.gendered_translations import ENGLISH_LANGUAGE, LANG, language_name
from evenhand.evaluation.metrics.translation_bias.metric import GAP
from evenhand.evaluation.report.figures import INK, MUTED, PAPER, SMALL, WIDE, new_chart, styled
from evenhand.evaluation.report.numbers import number, sanitize
from evenhand.evaluation.score import BiasScore

LABEL = "Gap between masculine and feminine sentences, by source and target language"
COLOURS = "PuOr_r"  # masculine sentences are translated better: orange; readable with red-green blindness
MARGINS = (240, 150)  # pixels for the names and the scale beside the map, and for those above and below it
MAX_SQUARE = 60  # pixels
MIN_NUMBERED = 34  # pixels: smaller squares have no number


def pair_gaps(scores: Sequence[BiasScore]) -> pd.DataFrame:
    """Return the gaps of all pairs of languages: a row for each source, a column for each target, both FLORES codes.

    The value is in points, NaN for a pair without translations or with an undefined gap. English is first.
    """
    english = ENGLISH_LANGUAGE.code
    rows = []
    for score in scores:
        if score.metric == GAP and LANG in score.group:
            languages = score.group[LANG].split("-")
            source = english if score.group["direction"] == "en-xx" else languages[0]
            target = english if score.group["direction"] == "xx-en" else languages[-1]
            rows.append((source, target, score.value))
    table = pd.DataFrame(rows, columns=["source", "target", "gap"]).pivot(
        index="source", columns="target", values="gap"
    )
    codes = sorted({*table.index, *table.columns}, key=lambda code: (code != english, language_name(code)))
    sources = [code for code in codes if code in table.index]
    targets = [code for code in codes if code in table.columns]
    return table.reindex(index=sources, columns=targets)


@styled
def pair_map(gaps: pd.DataFrame) -> Chart:
    """Return the map of the gaps: a coloured square for each source (row) and target (column).

    Args:
        gaps: the result of `pair_gaps`, with a gap that is not NaN.
    """
    values = gaps.to_numpy(float)
    n_sources, n_targets = values.shape
    square = min(MAX_SQUARE, (WIDE - MARGINS[0]) / n_targets)
    chart, axes = new_chart(LABEL, MARGINS[0] + square * n_targets, MARGINS[1] + square * n_sources)
    limit = max(float(np.nanmax(np.abs(values))), 1e-9)
    image = axes.imshow(values, cmap=COLOURS, vmin=-limit, vmax=limit)
    size = min(SMALL, 0.8 * square)
    axes.set_xticks(range(n_targets), _names(list(gaps.columns)), rotation=90, fontsize=size)
    axes.set_yticks(range(n_sources), _names(list(gaps.index)), fontsize=size)
    axes.xaxis.tick_top()
    axes.set(xlabel="into", ylabel="from")
    axes.grid(visible=False)
    if square >= MIN_NUMBERED:
        for row, column in zip(*np.nonzero(np.isfinite(values)), strict=True):
            value = float(values[row, column])
            color = PAPER if abs(value) > 0.6 * limit else INK
            axes.text(column, row, number(value, 1, True), ha="center", va="center", fontsize=SMALL, color=color)
    scale = chart.colorbar(image, shrink=0.8, label="gap, points")
    scale.outline.set_edgecolor(MUTED)
    return chart


def _names(codes: Sequence[str]) -> list[str]:
    return [sanitize(language_name(str(code)), 40) for code in codes]
