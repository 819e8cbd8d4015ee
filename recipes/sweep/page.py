"""The report of a sweep: verdicts on settings, reductions against costs, and the threshold plan's predictions."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby

import pandas as pd

from evenhand.evaluation.families.generation_bias.effects.change_section import effect_change_section
from evenhand.evaluation.families.generation_bias.effects.changes import EFFECT_CHANGES
from evenhand.evaluation.report.figures import svg
from evenhand.evaluation.report.numbers import sanitize
from evenhand.evaluation.report.page import Figure, Page, Section
from evenhand.evaluation.runs.tables import read_table
from evenhand.evaluation.score import BiasScore, display_name
from evenhand.recipes.sweep import plots, tables
from evenhand.recipes.sweep.criteria import best_setting, evaluate_settings, inconclusive_settings, settings_that_meet
from evenhand.recipes.sweep.setting_effects import setting_effects
from evenhand.recipes.sweep.summary import (
    DECODING,
    Sweep,
    cost_rows,
    has_several_predictions,
    measure_agreement,
    predicted_settings,
    summarise,
)
from evenhand.recipes.sweep.tables import Setting, text

MAX_IN_VERDICT = 3  # settings; if more were not refused, the verdict describes only the best one


def base_note(seed: int, decoding: str, pooled: str, scores: Sequence[BiasScore]) -> str:
    """Return a sentence with the scores of a base model."""
    return text.base_scores(seed, decoding, pooled, scores)


def page(sweep: Sweep) -> Page:
    """Return the report of a loop's methods, or of an ablation's points.

    Raises:
        ValueError: `sweep.points` lacks columns, or two points have the same seed and the same settings.
    """
    settings = evaluate_settings(summarise(sweep.points, sweep.swept), sweep.criteria)
    rows = settings.to_dict("records")
    met, partly_met = settings_that_meet(rows)
    inconclusive, base_is_unbiased = inconclusive_settings(rows), _is_base_unbiased(rows)
    best = best_setting(rows)
    named = _settings_in_verdict(rows, best)
    counts = len(met), len(partly_met), len(rows), len(inconclusive), base_is_unbiased
    verdict = text.verdict(named, *counts, _number_ranges(met or partly_met), _number_ranges(inconclusive))
    unmeasured = [] if met else list(dict.fromkeys(name for row in partly_met for name in row["unmeasured"]))
    reductions = tables.reduction_table(rows)
    return Page(
        title=sweep.title,
        subtitle=f"{sanitize(display_name(sweep.base_model), 120)} · {text.point_count(len(sweep.points), len(rows))}",
        headline_value=text.headline(best, base_is_unbiased),
        headline_caption=text.headline_caption(best, named[1:], *counts, list(settings[DECODING].unique())),
        verdict=f"{verdict} {text.unmeasured(unmeasured)}" if unmeasured else verdict,
        warnings=_warnings(rows),
        tables=[reductions, tables.verdict_table(rows)],
        notes=[text.criteria(sweep.criteria), text.headline_rule, text.interval_note, *sweep.notes],
        sections=[
            _front_section(settings, sweep),
            _number_section(rows, sweep),
            _plan_section(settings, sweep),
        ],
        lead=[part for part in (_setting_section(sweep), _effect_section(best, sweep)) if part.has_content],
        glossary=list(text.glossary.items()),
        limits=text.limits,
        links=sweep.links,
        sides=reductions.columns[1:2],
    )


def _settings_in_verdict(rows: Sequence[Setting], best: Setting | None) -> list[Setting]:
    """Return the settings that the verdict describes, the best one first."""
    others = [row for row in rows if row["seeds"] and row is not best]
    return [] if best is None else [best, *others] if len(others) < MAX_IN_VERDICT else [best]


def _effect_section(best: Setting | None, sweep: Sweep) -> Section:
    """Return a section with sentences on the effects that the best setting removed, kept or created."""
    path = sweep.folder / best["folder"] / f"{EFFECT_CHANGES}.parquet" if best and sweep.folder else None
    if path is None or not path.exists():
        return Section("")
    section = effect_change_section(read_table(path))
    return replace(section, title=text.effects_title(best["label"]), parts=())


def _front_section(settings: pd.DataFrame, sweep: Sweep) -> Section:
    """Return a section with a chart of the reductions against the measured costs, and the settings on the fronts."""
    title, by_cost = "Reduction against cost", cost_rows(settings)
    if not by_cost:
        return Section(title)
    fronts = {column: rows[rows["on_front"]].to_dict("records") for column, rows in by_cost.items()}
    chart = svg(plots.cost_chart(settings, sweep.swept, sweep.criteria))
    return Section(
        title,
        [text.front_note, text.fronts({column: _number_ranges(rows) for column, rows in fronts.items()})],
        figures=[Figure("Pooled FGB* removed, against costs", chart, text.chart_note)],
    )


def _setting_section(sweep: Sweep) -> Section:
    """Return a section on the mean outcomes for each value of each swept field, if there are points to compare."""
    effects = setting_effects(sweep.points, sweep.swept)
    if not len(effects):
        return Section("")
    sentences = []
    for outcome, rows in effects.groupby("outcome", sort=False):
        sentences.append(
            text.setting_effects(outcome, [it.to_dict("records") for _, it in rows.groupby("field", sort=False)])
        )
    caption = "Mean outcomes for each value of a setting"
    figures = [Figure(caption, svg(plots.effect_chart(effects)))]
    return Section("What each setting changes", sentences, [tables.effect_table(effects)], figures, first_screen=True)


def _number_section(rows: Sequence[Setting], sweep: Sweep) -> Section:
    """Return a section with tables of the costs, of two checks of the reduction, and of rejected points."""
    sections = [tables.response_quality_table(rows), tables.cost_table(rows), tables.check_table(rows)]
    return Section("Costs and checks", tables=[*sections, tables.refused_table(sweep)], first_screen=True)


def _plan_section(settings: pd.DataFrame, sweep: Sweep) -> Section:
    """Return a section that compares the threshold plan's predictions with the results, if there are several."""
    title = "Predictions of the threshold plan"
    rows = predicted_settings(settings) if has_several_predictions(sweep.points) else ()
    if not len(rows):
        return Section(title)
    agreements = measure_agreement(rows)
    caption = "Share of pooled FGB* left after tuning: measured against predicted"
    return Section(
        title,
        [text.plan_verdict(*agreements)],
        [tables.agreement_table(agreements), tables.plan_table(rows.to_dict("records"))],
        [Figure(caption, svg(plots.plan_chart(rows, settings)))],
        first_screen=True,
    )


def _warnings(rows: Sequence[Setting]) -> list[str]:
    """Return warnings of rejected points, unbiased bases, clusters whose bias rose, and models that need a tag."""
    warnings = []
    if refused := [row for row in rows if row["refused"]]:
        n_refused, n_finished = (sum(row[name] for row in rows) for name in ("refused", "seeds"))
        warnings.append(text.refused(n_refused, n_refused + n_finished, len(refused), _number_ranges(refused)))
    without_bias = [row for row in rows if row["without_bias"]]
    if without_bias and not _is_base_unbiased(rows):
        warnings.append(text.without_bias(len(without_bias), _number_ranges(without_bias)))
    if rose := [row for row in rows if row["clusters_rose"]]:
        warnings.append(text.clusters_rose(rose))
    if worse := [row for row in rows if row["ratio_without_tag"] >= 1]:
        max_ratio = max(row["ratio_without_tag"] for row in worse)
        warnings.append(text.more_bias_without_tag(len(worse), _number_ranges(worse), max_ratio))
    return warnings


def _is_base_unbiased(rows: Sequence[Setting]) -> bool:
    """Return whether the base model shows bias in no seed of any setting; rejected points do not count."""
    done = [row for row in rows if row["seeds"]]
    return bool(done) and all(row["without_bias"] == row["seeds"] for row in done)


def _number_ranges(rows: Sequence[Setting]) -> str:
    """Return the ascending numbers of settings as "1–4, 7, 9–12"."""
    runs = groupby(enumerate(row["number"] for row in rows), key=lambda pair: pair[1] - pair[0])
    numbers = [[number for _, number in run] for _, run in runs]
    return ", ".join(f"{run[0]}–{run[-1]}" if len(run) > 2 else ", ".join(map(str, run)) for run in numbers)
