"""The report of a sweep: verdicts on settings, reductions against costs, and what each setting changes."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import groupby

import pandas as pd

from evenhand.evaluation.metrics.generation_bias.effects.change_section import effect_change_section
from evenhand.evaluation.metrics.generation_bias.effects.changes import EFFECT_CHANGES
from evenhand.evaluation.report.figures import svg
from evenhand.evaluation.report.numbers import percent, sanitize, span, tick_number
from evenhand.evaluation.report.page import Figure, Page, Section
from evenhand.evaluation.report.tables import Cell, Row, Table
from evenhand.evaluation.score import display_name
from evenhand.evaluation.tables import read_table
from evenhand.recipes.sweep import plots
from evenhand.recipes.sweep.criteria import Criteria, best_setting, evaluate_settings
from evenhand.recipes.sweep.setting_effects import setting_effects
from evenhand.recipes.sweep.summary import DECODING, Sweep, cost_rows, summarise
from evenhand.recipes.sweep.tables import (
    CHECK_METRICS,
    COST_METRICS,
    METRICS,
    QUALITY_METRICS,
    QUALITY_NOTE,
    Setting,
    effect_table,
    metric_table,
    reduction_table,
    refused_table,
    setting_name,
    value_text,
)

NO_BIAS = (
    "The base model shows no bias: the 95 % interval of its pooled FGB* includes 0. Tuning cannot remove a bias that "
    "is not there, so no setting can meet the criteria; measure the base model with more responses or more descriptors."
)
INTERVALS = (
    "A setting is all tuned models that differ only in the seed; its numbers are means over the seeds, and its verdict "
    "follows from their intervals. Brackets are 95 % intervals: Student’s t over the seeds for two or more seeds, the "
    "interval of the measurement for one seed. A dash means not measured or not applicable (no test descriptors, no "
    "second classifier, a method without a control tag, a refused point). The headline names the setting with the "
    "largest reduction among those with the fewest missed, then the fewest inconclusive criteria."
)
CHART_NOTE = (
    "Share of pooled FGB* removed (up) against the change from the base model (right is worse). Numbers are the "
    "settings of the table; whiskers are 95 % intervals of the reduction. A setting is on the Pareto front (blue) if "
    "no other setting removes as much bias at a lower cost; the dashed line is the criterion. The front uses means: "
    "neighbours whose intervals overlap may change places with other seeds."
)
GLOSSARY = {
    "pooled FGB*": "How much the style of responses depends on the descriptor, with all templates of a descriptor "
    "pooled and sampling noise removed. Ideal 0; may be slightly negative.",
    "removed": "The share of the base model’s pooled FGB* that is gone after tuning, on the same prompts.",
    "tuned on, not tuned on": "The reduction for descriptors whose responses were labelled and tuned on, and for "
    "descriptors that tuning did not use.",
    "second classifier": "The reduction measured by a style classifier that made no labels. A much smaller value means "
    "that tuning exploited the first classifier.",
    "without tag": "Pooled FGB* of the tuned model without its control tag, as a multiple of the base model’s: above 1 "
    "it is more biased than the base model.",
    "refused": "A guard stopped the point for the given reason; it has no further numbers.",
}
LIMITS = (
    "The best of many settings looks better than it is, partly by chance. Measure the setting that you choose again "
    "with new prompts and a new seed.",
    "Verdicts hold for these prompts, this model and this style classifier.",
)


def page(sweep: Sweep) -> Page:
    """Return the report of a loop's methods, or of an ablation's points.

    Raises:
        ValueError: `sweep.points` lacks columns, or two points have the same seed and the same settings.
    """
    settings = evaluate_settings(summarise(sweep.points, sweep.swept), sweep.criteria)
    rows = settings.to_dict("records")
    best, is_unbiased = best_setting(rows), _is_base_unbiased(rows)
    reductions = reduction_table(rows)
    has_value = best is not None and math.isfinite(best["reduction"]) and not is_unbiased
    n_met = sum(row["met"] for row in rows)
    caption = f"{n_met} of {_plural(len(rows), 'setting')} meet all measured criteria; decodings: "
    caption += sanitize(", ".join(settings[DECODING].unique()), 200)
    if has_value:
        ends = span((-best["reduction_low"], -best["reduction_high"]), 0, True, 100)
        ends = "" if math.isnan(best["reduction_low"]) else f", 95 % interval {ends}"
        caption = f"pooled FGB* by {best['label']}{ends}; {caption}"
    verdicts = tuple(Row(setting_name(row), (Cell(setting_verdict(row), prose=True),)) for row in rows)
    return Page(
        title=sweep.title,
        subtitle=f"{sanitize(display_name(sweep.base_model), 120)} · {_plural(len(sweep.points), 'point')} in "
        f"{_plural(len(rows), 'setting')}",
        headline_value=percent(-best["reduction"], 0, True) if has_value else "–",
        headline_caption=caption,
        verdict=_verdict(rows, best, is_unbiased),
        warnings=_warnings(rows, is_unbiased),
        tables=[reductions, Table("Settings and the acceptance criteria", ("setting", "verdict"), verdicts)],
        notes=[criteria_text(sweep.criteria), INTERVALS, *sweep.notes],
        sections=[_front_section(settings, sweep.criteria), _number_section(rows, sweep)],
        lead=[part for part in (_setting_section(sweep), _effect_section(best, sweep)) if part.has_content],
        glossary=list(GLOSSARY.items()),
        limits=LIMITS,
        links=sweep.links,
        sides=reductions.columns[1:2],
    )


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
    found = f"{_named(met)} meet all measured criteria." if met else "No setting is shown to meet all criteria."
    doubt = f" Inconclusive: {_named(inconclusive)}." if inconclusive else ""
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


def criteria_text(criteria: Criteria) -> str:
    """Return the acceptance criteria as sentences."""
    limits = []
    for it in criteria.limits({"reduction": math.nan, "reduction_seen": math.nan}):
        sign, metric = "≥" if it.is_minimum else "≤", METRICS[it.column]
        limits.append(f"{metric.label} {sign} {tick_number(100 * it.value)} {metric.unit}")
    return (
        f"Acceptance criteria: {'; '.join(limits)}; no style cluster’s pooled SCGB* up significantly (Holm’s "
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


def _front_section(settings: pd.DataFrame, criteria: Criteria) -> Section:
    """Return a section with a chart of the reductions against the measured costs, and the settings on the fronts."""
    title, by_cost = "Reduction against cost", cost_rows(settings)
    if not by_cost:
        return Section(title)
    fronts: Mapping[str, Sequence[Setting]] = {
        column: rows[rows["on_front"]].to_dict("records") for column, rows in by_cost.items()
    }
    named = "; ".join(f"{plots.TITLES[column]}: {_number_ranges(rows)}" for column, rows in fronts.items())
    chart = svg(plots.cost_chart(settings, criteria))
    return Section(title, [f"Settings on the front: {named}."], figures=[Figure("Bias removed", chart, CHART_NOTE)])


def _setting_section(sweep: Sweep) -> Section:
    """Return a section on the mean outcomes for each value of each swept field, if there are points to compare."""
    effects = setting_effects(sweep.points, sweep.swept)
    return Section(
        "What each setting changes", tables=[effect_table(effects)] if len(effects) else (), first_screen=True
    )


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


def _is_base_unbiased(rows: Sequence[Setting]) -> bool:
    """Return whether the base model shows bias in no seed of any setting; rejected points do not count."""
    done = [row for row in rows if row["seeds"]]
    return bool(done) and all(row["without_bias"] == row["seeds"] for row in done)


def _named(rows: Sequence[Setting]) -> str:
    """Return the number of settings with their numbers, such as "3 settings (1–3)"."""
    return f"{_plural(len(rows), 'setting')} ({_number_ranges(rows)})"


def _plural(n: int, noun: str) -> str:
    return f"{n} {noun}{'' if n == 1 else 's'}"


def _number_ranges(rows: Sequence[Setting]) -> str:
    """Return the ascending numbers of settings as "1–4, 7, 9–12"."""
    runs = groupby(enumerate(row["number"] for row in rows), key=lambda pair: pair[1] - pair[0])
    numbers = [[number for _, number in run] for _, run in runs]
    return ", ".join(f"{run[0]}–{run[-1]}" if len(run) > 2 else ", ".join(map(str, run)) for run in numbers)
