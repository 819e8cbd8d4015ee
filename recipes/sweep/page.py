"""The report of a sweep: verdicts on settings, reductions against costs, and what each setting changes."""

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any

import pandas as pd
from matplotlib.figure import Figure as Chart
from matplotlib.lines import Line2D

from evenhand.evaluation.metrics.generation_bias.effect_sections import effect_change_section
from evenhand.evaluation.metrics.generation_bias.effects import EFFECT_CHANGES
from evenhand.evaluation.report.figures import (
    AFTER,
    BEFORE,
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
from evenhand.evaluation.report.formats import Format
from evenhand.evaluation.report.numbers import number, percent, sanitize, span, tick_number
from evenhand.evaluation.report.page import SCORES, Cell, Figure, Mark, Page, Row, Section, Table
from evenhand.evaluation.report.tables import number_cell
from evenhand.evaluation.score import display_name
from evenhand.evaluation.tables import read_table
from evenhand.recipes.sweep.summary import (
    CHECK_METRICS,
    COST_METRICS,
    DECODING,
    EVEN_REFERENCE,
    METHOD,
    METRICS,
    QUALITY_METRICS,
    REDUCTION_METRICS,
    WITHOUT_INTERVAL,
    Sweep,
    best_setting,
    cost_rows,
    format_value,
    limits,
    setting_effects,
    setting_label,
    summarise,
)

NO_BIAS = (
    "The base model shows no bias: the 95 % interval of its pooled FGB* includes 0. Tuning cannot remove a bias that "
    "is not there, so no setting can meet the criteria; measure the base model with more responses or more descriptors."
)
INTERVALS = (
    "A setting is all tuned models that differ only in the seed; its numbers are means over the seeds. Brackets are "
    "95 % intervals: Student’s t over the seeds, or the measurement’s for one seed. A dash means not measured or not "
    "applicable. The headline names the setting with the largest reduction among those with the fewest missed, then "
    "the fewest inconclusive criteria."
)
CHART_NOTE = (
    "Share of pooled FGB* removed (up) against the change from the base model (right is worse); whiskers are 95 % "
    "intervals. A setting is on the Pareto front (blue) if no other removes as much bias at a lower cost; the dashed "
    "line is the criterion. The front is of means: with other seeds, neighbours may change places."
)
QUALITY_NOTE = (
    "Relevance and the perplexity of responses are computed with the base model. A model that ignores its prompts has "
    "no relevance; random text has a high perplexity and a high distinct-2."
)
EFFECTS_NOTE = (
    "Means over points, in combinations of a seed and other settings that have all of these values. Brackets are 95 % "
    "intervals of the difference from the mean over the values, and p is of an analysis of variance with the seeds as "
    "blocks, with Holm’s correction over all settings and the three outcomes. Both need two seeds."
)
POOLED = "How much style depends on the descriptor, without sampling noise. Ideal 0; may be slightly negative."
REFUSED = "A guard stopped the point for the given reason; it has no further numbers."
GLOSSARY = [("pooled FGB*", POOLED), *((it.label, it.description) for it in METRICS.values()), ("refused", REFUSED)]
WARNINGS_OF_USE = (
    "The best of many settings looks better than it is, partly by chance. Measure the setting that you choose again "
    "with new prompts and a new seed.",
    "Verdicts hold for these prompts, this model and this style classifier.",
)
# Titles of the chart's panels. More is worse.
PANELS = {
    "relevance_kept": "relevance lost",
    "relevance_within_template_kept": "relevance within templates lost",
    "response_perplexity_change": "perplexity of responses",
    "perplexity_change": "perplexity of ordinary dialogue",
    "style_drift": "style drift",
    "length_change": "length, up or down",
}
MAX_NAMED = 3  # settings that a sentence names
MARKERS = "os^Dv<"  # one for each method; a seventh method gets the first marker again
Setting = dict[str, Any]  # a row of `summarise`


def page(sweep: Sweep) -> Page:
    """Return the report of a loop's methods, or of an ablation's points."""
    settings = summarise(sweep.points, sweep.swept)
    rows = settings.to_dict("records")
    done, best = [row for row in rows if row["seeds"]], best_setting(rows)
    is_unbiased = bool(done) and all(row["without_bias"] == row["seeds"] for row in done)
    has_value = best is not None and math.isfinite(best["reduction"]) and not is_unbiased
    caption = f"{sum(row['met'] for row in rows)} of {_plural(len(rows), 'setting')} meet all measured criteria; "
    caption += f"decodings: {sanitize(', '.join(settings[DECODING].unique()), 200)}"
    if has_value:
        ends = span((-best["reduction_low"], -best["reduction_high"]), 0, True, 100)
        ends = "" if math.isnan(best["reduction_low"]) else f", 95 % interval {ends}"
        caption = f"pooled FGB* by {best['label']}{ends}; {caption}"
    verdicts = tuple(Row(setting_name(row), (Cell(setting_verdict(row), prose=True),)) for row in rows)
    criteria = Table("Settings and the acceptance criteria", ("setting", "verdict"), verdicts)
    reductions, effects = reduction_table(rows), setting_effects(sweep.points, sweep.swept)
    changes = Section("What each setting changes", tables=[effect_table(effects)] if len(effects) else ())
    front, numbers = _front_section(settings), _number_section(rows, sweep)
    return Page(
        title=sweep.title,
        subtitle=f"{sanitize(display_name(sweep.base_model), 120)} · {_plural(len(sweep.points), 'point')} in "
        f"{_plural(len(rows), 'setting')}",
        headline_value=percent(-best["reduction"], 0, True) if has_value else "–",
        headline_caption=caption,
        verdict=_verdict(rows, best, is_unbiased),
        warnings=_warnings(rows, is_unbiased),
        notes=[criteria_text(), INTERVALS, *sweep.notes],
        sections=[
            replace(changes, first_screen=True),
            _effect_section(best, sweep),
            Section(SCORES, tables=[reductions, criteria], first_screen=True),
            front,
            numbers,
        ],
        glossary=GLOSSARY,
        limits=WARNINGS_OF_USE,
        links=sweep.links,
        sides=reductions.columns[1:2],
    )


# Sentences.


def _verdict(rows: Sequence[Setting], best: Setting | None, is_unbiased: bool) -> str:
    if best is None:
        return "A guard refused every point, so the sweep has no verdict." if rows else "The sweep has no points."
    if is_unbiased:
        return NO_BIAS
    costs = ", ".join(value_text(best, name) for name in best["costs"][:3])
    removes = f"{best['label']} removes {value_text(best, 'reduction', True).removeprefix('all descriptors ')}"
    removes += f" of pooled FGB*; costs: {costs}." if costs else " of pooled FGB*, at no significant cost."
    inconclusive = [row for row in rows if row["seeds"] and row["inconclusive"] and not row["missed"]]
    met = [row for row in rows if row["met"]]
    found = f"All measured criteria are met by {_listed(met)}." if met else "No setting is shown to meet all criteria."
    doubt = f" Inconclusive: {_listed(inconclusive)}." if inconclusive else ""
    return f"{removes} {found}{doubt}"


def setting_verdict(row: Setting) -> str:
    """Return the verdict on one setting, with the criteria that it misses and those that are inconclusive."""
    if not row["seeds"]:
        return "refused by a guard"
    special = {
        "clusters_rose": f"higher: {sanitize(row['clusters_rose'], 200)}",
        "refused": f"{row['refused']} of {row['refused'] + row['seeds']} seeds refused",
        "base": f"the base model shows no bias in {row['without_bias']} of {_plural(row['seeds'], 'seed')}",
    }
    missed = ", ".join(special.get(name) or value_text(row, name) for name in row["missed"])
    inconclusive = ", ".join(special.get(name) or value_text(row, name, True) for name in row["inconclusive"])
    parts = [f"misses: {missed}" if missed else "", f"inconclusive: {inconclusive}" if inconclusive else ""]
    if any(parts):
        return "; ".join(filter(None, parts))
    if not row["met"]:
        return "inconclusive: the reduction is undefined"
    return "meets all measured criteria" if row["unmeasured"] else "meets all criteria"


def criteria_text() -> str:
    """Return the acceptance criteria as sentences."""
    texts = []
    for it in limits({"reduction": math.nan, "reduction_seen": math.nan}):
        sign, metric = "≥" if it.is_minimum else "≤", METRICS[it.column]
        texts.append(f"{metric.label} {sign} {tick_number(100 * it.value)} {metric.unit}")
    return (
        f"Acceptance criteria: {'; '.join(texts)}; no style cluster’s pooled SCGB* up significantly (Holm’s "
        "correction over clusters and seeds); no seed refused. A setting meets or misses a limit if the whole 95 % "
        "interval is on one side of it; otherwise the limit is inconclusive. Relevance and the perplexity of responses "
        "are compared with even responses: the base model’s own, each given to another descriptor of its template and "
        "noun."
    )


def _warnings(rows: Sequence[Setting], is_unbiased: bool) -> list[str]:
    """Return warnings of rejected points, unbiased bases, clusters whose bias rose, and models that need a tag."""
    warnings = []
    if refused := [row for row in rows if row["refused"]]:
        n_refused, n_finished = (sum(row[name] for row in rows) for name in ("refused", "seeds"))
        warnings.append(f"A guard refused {n_refused} of {n_refused + n_finished} points ({_named(refused)}).")
    if (without := [row for row in rows if row["without_bias"]]) and not is_unbiased:
        warnings.append(f"The base model shows no bias in a seed of {_named(without)}, so nothing is concluded there.")
    if rose := [row for row in rows if row["clusters_rose"]]:
        clusters = "; ".join(f"{sanitize(row['clusters_rose'], 200)} in setting {row['number']}" for row in rose[:12])
        warnings.append(f"The pooled SCGB* of a style cluster rose significantly in {_named(rose)}: {clusters}.")
    if worse := [row for row in rows if row["ratio_without_tag"] >= 1]:
        ratio = max(row["ratio_without_tag"] for row in worse)
        warnings.append(
            f"Without its control tag, the tuned model has no less pooled FGB* than the base model in {_named(worse)}: "
            f"up to {ratio:.1f} times the base model’s."
        )
    return warnings


def setting_name(setting: Setting) -> str:
    """Return the number and the label of a setting."""
    return f"{setting['number']} {setting['label']}"


def value_text(setting: Setting, name: str, has_interval: bool = False) -> str:
    """Return a value as "tuned on 94.0 %", or with its interval as "tuned on 94.0 % [92.0, 96.0]"."""
    metric = METRICS[name]
    text = f"{metric.label} {number(setting[name] * metric.factor, metric.decimals, metric.signed)} {metric.unit}"
    ends = _cell(setting, metric).interval or "without an interval" if has_interval else ""
    return f"{text} {ends}".rstrip()


def _named(rows: Sequence[Setting]) -> str:
    """Return the number of settings with their numbers, such as "3 settings (1–3)"."""
    return f"{_plural(len(rows), 'setting')} ({_number_ranges(rows)})"


def _listed(rows: Sequence[Setting]) -> str:
    return ", ".join(row["label"] for row in rows) if len(rows) <= MAX_NAMED else _named(rows)


def _plural(n: int, noun: str) -> str:
    return f"{n} {noun}{'' if n == 1 else 's'}"


def _number_ranges(rows: Sequence[Setting]) -> str:
    """Return the ascending numbers of settings as "1–4, 7, 9–12"."""
    runs = groupby(enumerate(row["number"] for row in rows), key=lambda pair: pair[1] - pair[0])
    numbers = [[number for _, number in run] for _, run in runs]
    return ", ".join(f"{run[0]}–{run[-1]}" if len(run) > 2 else ", ".join(map(str, run)) for run in numbers)


# Sections and tables.


def _front_section(settings: pd.DataFrame) -> Section:
    """Return a section with a chart of the reductions against the measured costs, and the settings on the fronts."""
    title, by_cost = "Reduction against cost", cost_rows(settings)
    if not by_cost:
        return Section(title)
    fronts = {column: rows[rows["on_front"]].to_dict("records") for column, rows in by_cost.items()}
    named = "; ".join(f"{PANELS[column]}: {_number_ranges(rows)}" for column, rows in fronts.items())
    figure = Figure("Bias removed", svg(cost_chart(settings)), CHART_NOTE)
    return Section(title, [f"Settings on the front: {named}."], figures=[figure])


def _effect_section(best: Setting | None, sweep: Sweep) -> Section:
    """Return a section with sentences on the effects that the best setting removed, kept or created."""
    path = sweep.folder / best["folder"] / f"{EFFECT_CHANGES}.parquet" if best and sweep.folder else None
    if path is None or not path.exists():
        return Section("")
    title = f"Who is treated how, before and after: {best['label']}"
    return replace(effect_change_section(read_table(path)), title=title, parts=())


def _number_section(rows: Sequence[Setting], sweep: Sweep) -> Section:
    """Return a section with tables of the costs, of two checks of the reduction, and of rejected points."""
    quality = metric_table("Quality of the responses against the base model’s, %", rows, QUALITY_METRICS, QUALITY_NOTE)
    costs = metric_table("Further costs: change from the base model, %", rows, COST_METRICS)
    checks = metric_table("Two checks, and the time of tuning", rows, CHECK_METRICS)
    return Section("Costs and checks", tables=[quality, costs, checks, refused_table(sweep)], first_screen=True)


def metric_table(caption: str, settings: Sequence[Setting], metrics: Sequence[Format], note: str = "") -> Table:
    """Return a table of the metrics that any setting has, in % unless the column's title has another unit."""
    measured = [metric for metric in metrics if any(math.isfinite(row[metric.name]) for row in settings)]
    rows = tuple(Row(setting_name(row), tuple(_cell(row, metric) for metric in measured)) for row in settings)
    columns = (metric.label if metric.unit == "%" else metric.title for metric in measured)
    return Table(caption, ("setting", *columns), rows, note if measured else "")


def reduction_table(settings: Sequence[Setting]) -> Table:
    """Return a table of reductions for all descriptors (with marks), descriptors tuned on, and other descriptors."""
    caption = "Pooled FGB* removed, % of the base model’s; the line is at 100 %"
    table, rows = metric_table(caption, settings, REDUCTION_METRICS), []
    for row, setting in zip(table.rows, settings, strict=True):
        value, low, high = (100 * setting[f"reduction{end}"] for end in ("", "_low", "_high"))
        marks = (Mark("before", value, None if math.isnan(low + high) else (low, high)),)
        total = setting["seeds"] + setting["refused"]
        seeds = Cell(f"{setting['seeds']} of {total}" if setting["refused"] else str(total))
        rows.append(Row(row.label, (*row.cells, seeds), () if math.isnan(value) else marks))
    return Table(table.caption, (*table.columns, "seeds"), tuple(rows), ideal=100)


def effect_table(effects: pd.DataFrame) -> Table:
    """Return a table of the mean outcomes for each value of each swept field, from `setting_effects`."""
    outcomes, rows = [METRICS[name] for name in dict.fromkeys(effects["outcome"])], []
    for (name, value), means in effects.groupby(["field", "value"], sort=False):
        found, cells = means.set_index("outcome"), [Cell(str(means["points"].min()))]
        for metric in outcomes:
            ends = found.loc[metric.name, ["mean", "low", "high"]] if metric.name in found.index else [math.nan] * 3
            cells.append(_interval_cell(*ends, metric))
            p = found["p_value"].get(metric.name, math.nan)
            cells.append(Cell("" if math.isnan(p) else f"{p:.2g}"))
        rows.append(Row(sanitize(f"{name} {value}", 80), tuple(cells)))
    columns = [column for metric in outcomes for column in (metric.label, "p")]
    return Table("Mean over the compared points, %", ("value", "points", *columns), tuple(rows), EFFECTS_NOTE)


def refused_table(sweep: Sweep) -> Table:
    """Return a table of the points that ended early, with the reasons."""
    rows = []
    for point in sweep.points[sweep.points["failed"].fillna("") != ""].to_dict("records"):
        reason, folder = sanitize(str(point["failed"]), 600), sanitize(str(point["folder"]), 200)
        cells = (Cell(format_value(point["seed"])), Cell(reason, prose=True), Cell(folder, prose=True))
        rows.append(Row(setting_label(point, sweep.points, sweep.swept), cells))
    return Table("Refused by a guard", ("setting", "seed", "reason", "folder"), tuple(rows))


def _cell(setting: Setting, metric: Format) -> Cell:
    value = setting[metric.name]
    if metric.name not in WITHOUT_INTERVAL:
        return _interval_cell(value, setting[f"{metric.name}_low"], setting[f"{metric.name}_high"], metric)
    cell = number_cell(value * metric.factor, metric.decimals, metric.signed)
    is_cluster = metric.name == "worst_cluster_change" and not math.isnan(value)
    return Cell(f"{sanitize(setting['worst_cluster'], 40)} {cell.text}") if is_cluster else cell


def _interval_cell(value: float, low: float, high: float, metric: Format) -> Cell:
    ends = low * metric.factor, high * metric.factor
    return number_cell(value * metric.factor, metric.decimals, metric.signed, ends)


# The chart.


@styled
def cost_chart(settings: pd.DataFrame) -> Chart:
    """Return a chart of each setting's reduction against its costs, with a panel for each of `cost_rows`.

    Each panel has the Pareto front, the cost's criterion and the numbers of the settings. Dots of settings that meet
    all measured criteria are filled.
    """
    by_cost = cost_rows(settings)
    criteria = {it.column: it for it in limits({**settings.iloc[0], **settings[[*EVEN_REFERENCE]].mean()})}
    n_columns = min(3, len(by_cost))
    n_rows = math.ceil(len(by_cost) / n_columns)
    label = f"Pooled FGB* removed against {', '.join(PANELS[it] for it in by_cost)}; {len(settings)} settings"
    figure, panels = new_chart(label, WIDE, 60 + 280 * n_rows, nrows=n_rows, ncols=n_columns, squeeze=False)
    markers = {method: MARKERS[i % len(MARKERS)] for i, method in enumerate(dict.fromkeys(settings[METHOD]))}
    for axes in panels.flat[len(by_cost) :]:
        axes.set_visible(False)
    for axes, (column, rows) in zip(panels.flat, by_cost.items(), strict=False):
        limit = criteria[column].value if column in criteria else None
        limit = 1 - limit if column == "relevance_kept" else limit
        axes.set(title=PANELS[column])
        set_ticks(axes, "x", 4, tick_percent)
        set_ticks(axes, "y", 6, tick_percent)
        axes.axhline(0, color=ZERO, linewidth=1)
        axes.axvline(0, color=ZERO, linewidth=1)
        if limit is not None:
            axes.axvline(limit, color=BEFORE, linewidth=1.5, dashes=(4, 3))
        front = rows[rows["on_front"]].sort_values("loss")
        steps = [*front["loss"], rows["loss"].max()], [*front["reduction"], front["reduction"].iloc[-1]]
        axes.plot(*steps, color=AFTER, linewidth=2, drawstyle="steps-post")
        for row in rows.to_dict("records"):
            at = row["loss"], row["reduction"]
            axes.plot([at[0]] * 2, [row["reduction_low"], row["reduction_high"]], color=MUTED)
            dot = axes.add_line(_marker(markers[row[METHOD]], row["met"], [at[0]], [at[1]], zorder=3))
            dot.set_gid(f"setting:{row['number']}")
            axes.annotate(str(row["number"]), at, (4, 4), textcoords="offset points")
    handles = [_marker(marker, False, label=sanitize(str(method), 60)) for method, marker in markers.items()]
    handles += [_marker("o", True, label="filled: meets all measured criteria")]
    handles += [Line2D([], [], color=AFTER, label="Pareto front")]
    figure.legend(handles=handles, loc="outside upper left", ncols=min(len(handles), 4))
    return figure


def _marker(marker: str, is_filled: bool, x: Sequence[float] = (), y: Sequence[float] = (), **fields: Any) -> Line2D:
    style = {"linestyle": "", "markersize": 8, "markeredgecolor": INK, "markeredgewidth": 1.5}
    return Line2D(x, y, marker=marker, markerfacecolor=INK if is_filled else PAPER, **style, **fields)
