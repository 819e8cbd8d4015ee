"""The report of a sweep: one table of settings with reductions and costs, and charts of one against the other."""

import math
from collections.abc import Sequence
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure as Chart

from evenhand.evaluation.metrics.generation_bias.engine.estimates import root
from evenhand.evaluation.report.figures import (
    AFTER_COLOR,
    INK,
    MUTED,
    PAPER,
    WIDE,
    ZERO,
    new_chart,
    set_ticks,
    styled,
    svg,
    tick_percent,
)
from evenhand.evaluation.report.formats import glossary
from evenhand.evaluation.report.numbers import number, percent
from evenhand.evaluation.report.page import SCORES_TITLE, Cell, Figure, Mark, Page, Row, Section, Step, Table
from evenhand.evaluation.score import display_name
from evenhand.evaluation.tables import table_rows
from evenhand.recipes.sweep.published import capability_formats, published_tables
from evenhand.recipes.sweep.setting_tables import SettingRow, base_rows, metric_cell, metric_table, setting_name
from evenhand.recipes.sweep.summary import (
    AXIS_FGB,
    CHECK_METRICS,
    COST_METRICS,
    DECODING,
    METHOD,
    METRICS,
    QUALITY_METRICS,
    REDUCTION_METRICS,
    SEED,
    Sweep,
    columns_of_kind,
    largest_reduction,
    loss,
    pareto_front,
    published_columns,
    setting_fields,
    setting_label,
    swept_value_text,
)
from evenhand.recipes.sweep.threshold_figure import threshold_charts
from evenhand.recipes.sweep.thresholds import threshold_table
from evenhand.recipes.sweep.words import limits, note

# Titles of the chart's panels. More is worse.
PANELS = {
    "relevance_kept": "relevance lost",
    "relevance_to_person_kept": "response to the person lost",
    "response_perplexity_change": "perplexity of responses",
    "perplexity_change": "perplexity of ordinary dialogue",
    "style_drift": "style drift",
    "length_change": "length, up or down",
}
PANELS_IN_A_ROW = 3
# Titles of the panels of `value_chart`.
BY_VALUE = {
    "reduction": "bias removed",
    "relevance_to_person_kept": "response to the person kept",
    "response_perplexity_change": PANELS["response_perplexity_change"],
}
# The columns of the first table of costs; the other costs are in a table further down.
MAIN_COSTS = tuple(metric for metric in (*QUALITY_METRICS, *COST_METRICS) if metric.name in PANELS)
FURTHER_COSTS = tuple(metric for metric in (*QUALITY_METRICS, *COST_METRICS) if metric.name not in PANELS)
MAX_NAMED = 3  # settings that the first sentences describe one by one
HEADLINE_COSTS = ("relevance_kept", "relevance_to_person_kept", "response_perplexity_change", "perplexity_change")


def page(sweep: Sweep) -> Page:
    """Return the report of a loop's methods, or of an ablation's points."""
    settings = sweep.summary
    rows = sweep.settings
    best = largest_reduction(rows)
    decodings = ", ".join(settings[DECODING].unique())
    removed_table = reduction_table(rows)
    cost_table = metric_table("What it cost, % of the base model’s", rows, MAIN_COSTS, note("about_quality"))
    tasks = capability_formats(sweep.points)
    capability = [*base_rows(rows, [task.name for task in tasks]), *rows] if tasks else []
    further = [
        metric_table("Further costs, % of the base model’s", rows, FURTHER_COSTS),
        metric_table("Checks, and the time of tuning", rows, CHECK_METRICS),
    ]
    if tasks:
        further.append(metric_table("Tasks of lm-evaluation-harness, %", capability, tasks))
    published = published_tables(rows, published_columns(sweep.points), columns_of_kind(sweep.points, AXIS_FGB))
    charts = [value_chart(settings, sweep.swept, name) for name in sweep.swept]
    figures = [Figure(str(chart.get_label()), svg(chart), note("about_values")) for chart in charts if chart]
    cost_figures = []
    if len(rows) > 1:
        cost_figures.append(Figure("Bias removed", svg(cost_chart(settings)), note("about_costs")))
    by_threshold = threshold_charts(rows, sweep.swept).values()
    about = note("about_threshold_figure")
    threshold_figures = [Figure(str(chart.get_label()), svg(chart), about) for chart in by_threshold]
    thresholds = threshold_table(rows)
    return Page(
        title=sweep.title,
        subtitle=note("subtitle", model=display_name(sweep.base_model), n=len(sweep.points), n_settings=len(rows)),
        headline_value=percent(_relative_change(best), 0, True) if _is_shown(best) else "",
        headline_caption="; ".join([*_caption(best, len(rows)), f"decoding: {decodings}"]),
        verdict=_verdict(rows, best, sweep),
        steps=_steps(best, sweep),
        warnings=_warnings(rows, sweep),
        notes=[
            *([note("in_language", n=sweep.n_in_language, n_of=len(sweep.points))] if sweep.n_in_language else []),
            note("about_settings" if len(sweep.points) > 1 else "about_one_point"),
            *sweep.notes,
        ],
        sections=[
            Section(SCORES_TITLE, tables=[removed_table, cost_table], first_screen=True),
            Section(
                "Thresholds",
                tables=[] if thresholds is None else [thresholds],
                figures=threshold_figures,
                first_screen=True,
            ),
            Section("Reduction against cost", figures=cost_figures),
            Section("By value of a setting", figures=figures),
            Section("Further costs and checks", tables=further, folded=True),
            Section("As published", tables=published, folded=True),
        ],
        glossary=[("pooled FGB*", note("about_pooled")), *glossary(METRICS.values())],
        limits=limits(),
        links=sweep.links,
        sides=removed_table.columns[1:2],
    )


def _steps(best: SettingRow, sweep: Sweep) -> list[Step]:
    """Return what to do next: read the best comparison; then plan more or, if bias is shown to be removed, export."""
    steps = []
    comparisons = [link for link in sweep.links if link.text.startswith(f"{best['label']}, seed ")]
    if comparisons and (sweep.advice or len(sweep.points) == 1):
        steps.append(Step(note("read_comparison"), link=comparisons[0]))
    if not best["reduction_low"] > 0 and sweep.base_folder:
        steps.append(Step(note("plan_more"), ["evenhand", "plan", Path(sweep.base_folder)]))
    elif sweep.tuning:
        steps.append(Step(note("export_tuned"), ["evenhand", "export", Path(sweep.tuning)]))
    return steps


def _relative_change(best: SettingRow) -> float:
    """Return the relative change of the difference in style, as a comparison has it; its square is pooled FGB*."""
    remaining, _ = root(1 - best["reduction"], None)
    return remaining - 1


def _is_shown(best: SettingRow) -> bool:
    """Return whether a reduction has an interval that does not contain 0; otherwise no number is at the top."""
    return best["reduction_low"] > 0 or best["reduction_high"] < 0


def _caption(best: SettingRow, n_settings: int) -> list[str]:
    """Return what the largest reduction of the difference in style is, and of its square; [] if there is none."""
    if not math.isfinite(best["reduction"]):
        return []
    changes = {"change": _relative_change(best), "squared": -best["reduction"]}
    kind = "headline" if _is_shown(best) else "headline_by_chance"
    return [note(kind, label=best["label"], n_settings=n_settings, **changes)]


def _verdict(rows: Sequence[SettingRow], best: SettingRow, sweep: Sweep) -> str:
    """Return what the comparisons of a few points advise; of more, or without advice, what settings remove and cost."""
    shows_bias = bool((sweep.points["base_low"] > 0).any())
    removing = [row for row in rows if math.isfinite(row["reduction"])]
    sentences = list(sweep.advice) if len(sweep.advice) <= MAX_NAMED else []
    if not removing:
        return " ".join([*sentences, note("unbounded" if shows_bias else "no_bias")])
    named = removing if len(removing) <= MAX_NAMED else [best]
    for row in [] if sentences else named:
        text = note(
            "effect_of_setting",
            label=row["label"],
            removed=metric_value_text(row, "reduction").removeprefix(f"{METRICS['reduction'].label} "),
            low=row["reduction_low"],
            high=row["reduction_high"],
            costs=[metric_value_text(row, name) for name in HEADLINE_COSTS if math.isfinite(row[name])],
        )
        sentences.append(text)
    # Without an interval, too, it is not shown that one removes more.
    n_alike = sum(not row["reduction_high"] < best["reduction_low"] for row in removing if row is not best)
    if n_alike:
        counts = {"n_alike": n_alike, "n_others": len(removing) - 1}
        sentences.append(note("not_shown_best", label=best["label"], **counts))
    return " ".join(sentences)


def _warnings(rows: Sequence[SettingRow], sweep: Sweep) -> list[str]:
    """Return warnings of points to come, rejected points, clusters whose bias rose, and models that need a tag."""
    warnings = []
    if len(sweep.points) < sweep.n_points:
        warnings.append(note("so_far", n=len(sweep.points), n_of=sweep.n_points))
    for reason, points in sweep.points[sweep.points["failed"] != ""].groupby("failed", sort=False):
        labels = (setting_label(row, sweep.points, sweep.swept) for row in table_rows(points))
        counts = {"n": len(points), "n_of": len(sweep.points)}
        warnings.append(note("refused", settings=list(dict.fromkeys(labels)), reason=reason, **counts))
    for row in rows:
        name = setting_name(row)
        if row["clusters_rose"]:
            warnings.append(note("clusters_rose", clusters=row["clusters_rose"], setting=name))
        if row["ratio_without_tag"] >= 1:
            warnings.append(note("needs_tag", ratio=row["ratio_without_tag"], setting=name))
    return warnings


def metric_value_text(setting: SettingRow, name: str) -> str:
    """Return a value with its interval, such as "tuned on 94.0 % [92.0, 96.0]"."""
    metric = METRICS[name]
    text = f"{metric.label} {number(setting[name] * metric.factor, metric.decimals, metric.signed)} {metric.unit}"
    return f"{text} {metric_cell(setting, metric).interval or 'without an interval'}"


def reduction_table(settings: Sequence[SettingRow]) -> Table:
    """Return the table of settings: what each removes, with marks, and its seeds."""
    caption = "Pooled FGB* removed, % of the base model’s; the line is at 100 %"
    table = metric_table(caption, settings, REDUCTION_METRICS)
    rows = []
    for row, setting in zip(table.rows, settings, strict=True):
        value = 100 * setting["reduction"]
        low = 100 * setting["reduction_low"]
        high = 100 * setting["reduction_high"]
        marks = ()
        if not math.isnan(value):
            marks = (Mark("before", value, None if math.isnan(low) else (low, high)),)
        seeds = Cell(f"{setting['seeds']} of {setting['seeds'] + setting['refused']}")
        rows.append(Row(row.label, (*row.cells, seeds), marks))
    return Table(caption, (*table.columns, "seeds"), tuple(rows), ideal=100)


@styled
def value_chart(settings: pd.DataFrame, swept: Sequence[str], name: str) -> Chart | None:
    """Return a chart of outcomes at each value of a swept field, or None if no settings differ only in its value.

    The values are in order, at equal distances; an undefined value (null) is the last.
    """
    others = [field for field in setting_fields(swept) if field != name]
    lines = [rows for _, rows in settings.groupby(others, dropna=False, sort=False) if len(rows) > 1]
    if name in (METHOD, DECODING, SEED) or not lines:
        return None
    values = sorted(pd.concat(lines)[name].drop_duplicates(), key=_place_in_order)
    figure, panels = new_chart(f"Outcomes by {name.rsplit('.', 1)[-1]}", WIDE, 300, ncols=len(BY_VALUE))
    for axes, (outcome, title) in zip(panels, BY_VALUE.items(), strict=True):
        axes.set(title=title, xlabel=name)
        axes.set_xticks(range(len(values)), [swept_value_text(value) for value in values])
        set_ticks(axes, "y", 5, tick_percent)
        axes.axhline(0, color=ZERO, linewidth=1)
        for line, rows in enumerate(lines):
            shift = 0.2 * (line - (len(lines) - 1) / 2)
            x = pd.Series([place + shift for place in range(len(values))], index=pd.Index(values)).reindex(rows[name])
            rows = rows.assign(x=x.to_numpy()).sort_values("x")
            axes.plot(rows["x"], rows[outcome], color=AFTER_COLOR, linewidth=1, marker="o")
            axes.vlines(rows["x"], rows[f"{outcome}_low"], rows[f"{outcome}_high"], color=MUTED)
            if len(lines) > 1:
                for row in table_rows(rows.dropna(subset=[outcome])):
                    axes.annotate(str(row["number"]), (row["x"], row[outcome]), (5, 1), textcoords="offset points")
    return figure


def _place_in_order(value: object) -> tuple[bool, bool, float, str]:
    """Return the key by which values on an axis are sorted: numbers by size, then other texts, and last null.

    A table with null has its numbers as texts (`sweep.points.point_fields`).
    """
    text = swept_value_text(value)
    try:
        return text == "null", False, float(str(value)), ""
    except ValueError:
        return text == "null", True, 0.0, text


@styled
def cost_chart(settings: pd.DataFrame) -> Chart:
    """Return a chart of each setting's reduction against its costs, with a panel for each cost that was measured.

    Each panel has the Pareto front and the numbers of the settings.
    """
    losses = {column: loss(settings, column) for column in PANELS}
    measured = [column for column in PANELS if losses[column].notna().any()]
    label = f"Pooled FGB* removed against {', '.join(PANELS[column] for column in measured)}; {len(settings)} settings"
    n_rows = max(1, math.ceil(len(measured) / PANELS_IN_A_ROW))
    figure, panels = new_chart(label, WIDE, 310 * n_rows, nrows=n_rows, ncols=PANELS_IN_A_ROW)
    for axes in panels.flat[len(measured) :]:
        axes.set_visible(False)
    for axes, column in zip(panels.flat, measured, strict=False):
        rows = settings.assign(loss=losses[column]).dropna(subset=["loss", "reduction"])
        axes.set(title=PANELS[column])
        set_ticks(axes, "x", 4, tick_percent)
        set_ticks(axes, "y", 6, tick_percent)
        axes.axhline(0, color=ZERO, linewidth=1)
        axes.axvline(0, color=ZERO, linewidth=1)
        front = rows[pareto_front(rows["loss"], rows["reduction"])].sort_values("loss")
        axes.plot(front["loss"], front["reduction"], color=AFTER_COLOR, linewidth=2, drawstyle="steps-post")
        axes.vlines(rows["loss"], rows["reduction_low"], rows["reduction_high"], color=MUTED)
        axes.scatter(rows["loss"], rows["reduction"], s=64, c=PAPER, edgecolors=INK, linewidths=1.5, zorder=3)
        for row in table_rows(rows):
            axes.annotate(str(row["number"]), (row["loss"], row["reduction"]), (4, 4), textcoords="offset points")
    return figure
