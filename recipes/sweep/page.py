"""The report of a sweep: which settings meet the bar, what they remove at what cost, and whether the plan held."""

from collections.abc import Sequence
from datetime import date
from itertools import groupby

import pandas as pd

from evenhand.evaluation.report.figures import svg
from evenhand.evaluation.report.numbers import visible
from evenhand.evaluation.report.page import Figure, Page, Section
from evenhand.evaluation.results import display_name
from evenhand.recipes.sweep import plots, tables
from evenhand.recipes.sweep.bar import judged, meeting, most_removed, nearest, open_settings
from evenhand.recipes.sweep.summary import DECODING, Sweep, plan_agreement, planned, several_thresholds, summarise
from evenhand.recipes.sweep.tables import Setting, say

SETTINGS_TOLD = 3  # by the verdict; of more settings it tells of the leading one alone
COSTS = {"perplexity": "Pooled FGB* removed, against perplexity", "distinct_2": "The same, against distinct-2"}


def page(sweep: Sweep) -> Page:
    """Return the report of a loop's methods, or of an ablation's points.

    Raises:
        ValueError: `sweep.points` is not as `Sweep` says.
    """
    settings = judged(summarise(sweep.points, sweep.swept), sweep.bar)
    rows = settings.to_dict("records")
    whole, partly = meeting(rows)
    chosen, counts = whole or partly, (len(whole), len(partly), len(rows))
    inconclusive, without_bias = open_settings(rows), _all_without_bias(rows)
    lead = most_removed(chosen) or nearest(rows)
    found = len(rows), *counts[:2], _listed(chosen), most_removed(chosen), nearest(rows)
    verdict = say.verdict(*found, without_bias, (_listed(inconclusive), len(inconclusive)), _told_of(rows, lead))
    unknown = [] if whole else dict.fromkeys(name for row in partly for name in row["unknown"])
    removed = tables.removed_table(rows)
    return Page(
        title=sweep.title,
        subtitle=f"{visible(display_name(sweep.base_model), 120)} · {say.points(len(sweep.points), len(rows))}",
        date=date.today().isoformat(),
        big=say.big(lead, without_bias),
        under=say.under(lead, *counts, without_bias, len(inconclusive), list(settings[DECODING].unique())),
        verdict=" ".join([verdict, say.not_measured(list(unknown))] if unknown else [verdict]),
        warnings=_warnings(rows),
        tables=[removed, tables.judged_table(rows)],
        notes=[say.bar(sweep.bar), say.intervals, *sweep.notes],
        sections=[_front_section(settings, sweep), _number_section(rows, sweep), _plan_section(settings, sweep)],
        glossary=list(say.glossary.items()),
        limits=say.limits,
        links=sweep.links,
        sides=removed.columns[1:2],
    )


def _told_of(rows: Sequence[Setting], lead: Setting | None) -> list[Setting]:
    """Return the settings that the verdict tells of: the leading one first, and the others where there are few."""
    others = [row for row in rows if row["seeds"] and row is not lead]
    return [] if lead is None else [lead, *others] if len(others) < SETTINGS_TOLD else [lead]


def _front_section(settings: pd.DataFrame, sweep: Sweep) -> Section:
    """Return what is removed against each cost that was measured."""
    drawn = settings[settings["reduction"].notna()]
    costs = [cost for cost in COSTS if drawn[f"{cost}_change"].notna().any()]
    notes = dict.fromkeys(costs[-1:], say.panels)
    figures = [
        Figure(COSTS[cost], svg(plots.cost_chart(settings, sweep.bar, cost)), notes.get(cost, "")) for cost in costs
    ]
    return Section("What is removed against what it costs", [say.front] if figures else [], figures=figures)


def _number_section(rows: Sequence[Setting], sweep: Sweep) -> Section:
    """Return what each setting cost, two checks on what it removed, and what a guard refused."""
    costs = [tables.listening_table(rows), tables.cost_table(rows)]
    shown = [*costs, tables.check_table(rows), tables.refused_table(sweep)]
    return Section("The settings in numbers", tables=shown, first_screen=True)


def _plan_section(settings: pd.DataFrame, sweep: Sweep) -> Section:
    """Return how the plan's predictions held, where there were several thresholds to compare, and a bias to reduce."""
    title = "The threshold plan, put to the test"
    rows = planned(settings) if several_thresholds(sweep.points) else ()
    if not len(rows):
        return Section(title)
    agreements = plan_agreement(rows)
    caption = "Share of pooled FGB* left after tuning: measured against predicted"
    return Section(
        title,
        [say.plan(*agreements)],
        [tables.agreement_table(agreements), tables.plan_table(rows.to_dict("records"))],
        [Figure(caption, svg(plots.plan_chart(rows, settings)))],
        first_screen=True,
    )


def _warnings(rows: Sequence[Setting]) -> list[str]:
    """Return what a reader must not miss: refused points, clusters that rose, models worse without their tag."""
    found = []
    if refused := [row for row in rows if row["refused"]]:
        n, total = (sum(row[name] for row in rows) for name in ("refused", "seeds"))
        found.append(say.refused(n, n + total, len(refused), _listed(refused)))
    without = [row for row in rows if row["without_bias"]]
    if without and not _all_without_bias(rows):
        found.append(say.without_bias(len(without), _listed(without)))
    if rose := [row for row in rows if row["clusters_rose"]]:
        found.append(say.rose(rose))
    if worse := [row for row in rows if row["untagged_ratio"] > 1]:
        found.append(say.untagged(len(worse), _listed(worse), max(row["untagged_ratio"] for row in worse)))
    return found


def _all_without_bias(rows: Sequence[Setting]) -> bool:
    """Return whether no seed of any setting that went through had a base whose bias is shown."""
    done = [row for row in rows if row["seeds"]]
    return bool(done) and all(row["without_bias"] == row["seeds"] for row in done)


def _listed(rows: Sequence[Setting]) -> str:
    """Return the numbers of settings, which ascend, as "1–4, 7, 9–12"."""
    runs = groupby(enumerate(row["number"] for row in rows), key=lambda pair: pair[1] - pair[0])
    numbers = [[number for _, number in run] for _, run in runs]
    return ", ".join(f"{run[0]}–{run[-1]}" if len(run) > 2 else ", ".join(map(str, run)) for run in numbers)
