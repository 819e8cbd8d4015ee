"""The distribution of perplexities by template and axis (Smith et al. 2022, Figures 2 and 4)."""

from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure as Chart

from evenhand.evaluation import columns
from evenhand.evaluation.metrics.likelihood_bias.descriptor_pairs import LOVE, sentence_perplexities
from evenhand.evaluation.report.figures import BEFORE_COLOR, INK, SMALL, WIDE, new_chart, styled, svg
from evenhand.evaluation.report.numbers import sanitize
from evenhand.evaluation.report.page import Figure, Section
from evenhand.evaluation.report.words import note

WORDS = Path(__file__).with_name("words.j2")
COLUMNS = 3
BOX_HEIGHT = 15  # pixels
PANEL_MARGIN = 55  # pixels for a panel's title and axis
MAX_TITLE = 34  # characters
LABEL = "Perplexity of the sentences by axis, in each template"


def distribution_section(likelihoods: pd.DataFrame) -> Section:
    """Return the section with a box of the perplexities for each axis, in a panel for each template.

    Figure 2 has some templates, and Figure 4 all of them; the template of Table 3 is first.
    """
    table = likelihoods[[columns.AXIS, columns.TEMPLATE]].assign(perplexity=sentence_perplexities(likelihoods)).dropna()
    if table.empty:
        return Section("Distribution of perplexity")
    templates = sorted(table[columns.TEMPLATE].unique(), key=lambda template: (template != LOVE, template))
    panels = {template: table[table[columns.TEMPLATE] == template] for template in templates}
    figures = [Figure("", svg(box_panels(panels)), note(WORDS, "about_distributions"))]
    return Section("Distribution of perplexity", figures=figures, folded=True, is_private=True)


def _title(template: str) -> str:
    """Return a template for the title of a panel: "…" in place of the noun phrase, and cut to the panel's width."""
    title = sanitize(template.replace("{plural_noun_phrase}", "…s").replace("{noun_phrase}", "…"), 200)
    return title if len(title) <= MAX_TITLE else f"{title[: MAX_TITLE - 1]}…"


@styled
def box_panels(panels: dict[str, pd.DataFrame]) -> Chart:
    """Return a chart with a panel for each template, and in it a box of perplexities for each axis.

    Args:
        panels: template → its sentences, with the columns axis and perplexity.
    """
    axes_names = sorted({name for rows in panels.values() for name in rows[columns.AXIS]})
    n_columns = min(COLUMNS, len(panels))
    n_rows = -(-len(panels) // n_columns)
    height = n_rows * (PANEL_MARGIN + BOX_HEIGHT * len(axes_names))
    figure, grid = new_chart(
        LABEL, WIDE, height, nrows=n_rows, ncols=n_columns, squeeze=False, sharex=True, sharey=True
    )
    line = {"color": INK}
    styles = {
        "boxprops": line,
        "whiskerprops": line,
        "capprops": line,
        "medianprops": {"color": BEFORE_COLOR, "linewidth": 2},
    }
    names = [sanitize(name.replace("_", " "), 40) for name in axes_names]
    for axes, (template, rows) in zip(grid.flat, panels.items(), strict=False):
        values = [rows.loc[rows[columns.AXIS] == name, "perplexity"].to_numpy() for name in axes_names]
        # Panels share their ticks, to which each call of boxplot would add.
        options = {"whis": (5, 95), "showfliers": False, "widths": 0.6, "manage_ticks": False}
        axes.boxplot(values, orientation="horizontal", **options, **styles)
        axes.set_title(_title(template))
        axes.title.set_fontsize(SMALL)
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
        axes.grid(visible=False, axis="y")
        axes.tick_params(labelbottom=True)
    for axes in grid.flat[len(panels) :]:
        axes.set_visible(False)
    grid[0, 0].set_yticks(range(1, len(names) + 1), names)
    grid[0, 0].set_ylim(len(names) + 0.5, 0.5)
    return figure
