"""The command `plan`: designs of a more precise measurement, and the time of each design, from a finished run."""

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pandas as pd

from evenhand.evaluation import columns
from evenhand.evaluation.errors import InputError
from evenhand.evaluation.facts import Finding
from evenhand.evaluation.metrics import FamilyRun
from evenhand.evaluation.metrics.generation_bias.answers import read_answers
from evenhand.evaluation.metrics.generation_bias.engine.effects import REQUESTED_EFFECTS, SHOWN, detectable_sizes
from evenhand.evaluation.metrics.generation_bias.parts.effects import shown_effects
from evenhand.evaluation.metrics.generation_bias.pilot import read_pilot
from evenhand.evaluation.report.numbers import MINUTE, NO_NUMBER, PER_UNIT, UNIT, interval, number
from evenhand.evaluation.report.page import typed
from evenhand.evaluation.report.words import sentence
from evenhand.evaluation.score import display_name
from evenhand.evaluation.statistics.descriptor_spread import Estimate
from evenhand.evaluation.statistics.sample_size import (
    LEVERS,
    Pilot,
    interval_width,
    shows_difference,
    smallest_design,
    smallest_detectable_spread,
)
from evenhand.recipes.command_settings import PlanSettings
from evenhand.recipes.finished_runs import read_measurement
from evenhand.recipes.settings import GENERATION_BIAS

WORDS = Path(__file__).with_name("plan.j2")
COLUMNS = ["", "descriptors", "templates", "responses to each", "in total", "minutes", "pooled FGB*", "effect"]


def plan(settings: PlanSettings) -> None:
    """Print the designs (numbers of descriptors, templates and responses) that reach each goal, with their times.

    How long the answers of a file took is unknown.

    Raises:
        InputError: the folder has no run of generation bias, its bias has no interval, or a reduction is planned
            although no bias was measured.
    """
    measured, record = read_measurement(settings.run, "run", GENERATION_BIAS)
    pilot = read_pilot(settings.run)
    seconds = record["seconds"]["total"] / pilot.design.n  # answers without a style took time, too
    run = FamilyRun(settings.run)
    effect = detectable_sizes(shown_effects(run))[0]
    estimate = {"value": pilot.estimate.value, "interval": pilot.estimate.interval}
    estimate["in_language"] = run.has(REQUESTED_EFFECTS)
    found = [Finding("measured", {"model_name": display_name(measured.model.name), **estimate})]
    if pilot.design.share_of_pairs < 1:
        found.append(Finding("pairs_with_answers", {"share": pilot.design.share_of_pairs}))
    if settings.max_difference is not None:
        found.append(_even_plan(settings, int(read_answers(settings.run).has_value().sum())))
    planned = list(goals(settings, pilot))
    if planned:
        found.append(Finding("last_columns"))
    print("\n".join(map(words, found)))
    for goal, is_enough in planned:
        found = {lever: smallest_design(pilot, lever, is_enough) for lever in LEVERS}
        designs = {"this run": pilot.design, **{lever: new for lever, new in found.items() if new is not None}}
        rows = []
        for label, design in designs.items():
            ratio = pilot.design.templates * pilot.design.responses / (design.templates * design.responses)
            numbers = design.descriptors, design.templates, f"{design.responses:.3g}", f"{design.n:,}"
            spread = number(smallest_detectable_spread(pilot.predict(design)) * PER_UNIT)
            minutes = number(design.n * seconds / MINUTE, 1) if measured.can_be_asked else NO_NUMBER
            smallest = number(100 * effect * np.sqrt(ratio), 1)
            rows.append((label, *numbers, minutes, spread, smallest))
        print(f"\n{words(goal)}")
        print(pd.DataFrame(rows, columns=COLUMNS).to_string(index=False))
        for lever in (lever for lever, new in found.items() if new is None):
            print(words(Finding("unreachable", {"lever": lever, "limit": pilot.limits.get(lever)})))


def words(finding: Finding) -> str:
    """Return the sentence about a finding on the size of a study."""
    return sentence(finding, WORDS)


def narrower_text(folder: Path) -> str:
    """Return what intervals of half the width would cost, as a sentence; InputError as `narrower`."""
    return words(narrower(folder))


def narrower(folder: Path) -> Finding:
    """Return what intervals of half the width would cost: the answers, and the time by what a finished run took.

    Raises:
        InputError: as `read_pilot`.
    """
    pilot = read_pilot(folder)
    measured, record = read_measurement(folder, "run", GENERATION_BIAS)
    target = interval_width(pilot.estimate) / 2
    found = (
        smallest_design(pilot, lever, lambda estimate: interval_width(estimate) <= target)
        for lever in ("descriptors", "responses")
    )
    designs = [design for design in found if design is not None]
    if not designs:
        return Finding("no_narrower")
    design = min(designs, key=lambda design: design.n)
    values = {
        "n": design.n,
        "descriptors": design.descriptors,
        "templates": design.templates,
        "responses": design.responses,
        "share_of_pairs": design.share_of_pairs,
        "seconds": None,
        "folder": typed(str(folder)),
    }
    if measured.can_be_asked:
        values["seconds"] = record["seconds"]["total"] * design.n / pilot.design.n
    return Finding("narrower", values)


def _even_plan(settings: PlanSettings, n: int) -> Finding:
    """Return how many responses show that every descriptor is within so many points of the average.

    The half width of the bounds, at_most − |effect|, falls with the root of the number of responses; the shrunk effects
    are taken as true.
    """
    limit = settings.max_difference / 100
    rows = shown_effects(FamilyRun(settings.run))
    rows = rows[(rows["kind"] == columns.DESCRIPTOR) & (rows["outcome"] == columns.STYLE)]
    if not len(rows):
        raise InputError("max_difference", f"{settings.run} has no effects; measure with generation_bias.permutations.")
    room = limit - rows["shrunk"].abs()
    if (room <= 0).any():
        worst = rows.loc[room.idxmin()]
        unit = {"unit": worst["unit"], "is_shown": worst["certainty"] == SHOWN}
        return Finding("never_even", {"limit": settings.max_difference, **unit})
    factor = float((((rows["at_most"] - rows["effect"].abs()) / room) ** 2).max())
    return Finding("even_after", {"limit": settings.max_difference, "n": n * factor, "n_now": n})


def goals(settings: PlanSettings, pilot: Pilot) -> Iterator[tuple[Finding, Callable[[Estimate], bool]]]:
    """Yield each goal, and a function that returns whether a predicted estimate reaches the goal.

    Without any in the settings, the goal is half of the interval's width.
    """
    width = interval_width(pilot.estimate)
    has_goal = any(goal is not None for goal in (settings.interval, settings.reduction, settings.max_difference))
    target = width / 2 if settings.interval is None else settings.interval / PER_UNIT
    if settings.interval is not None or not has_goal:
        goal = Finding("goal_of_width", {"width": target, "width_now": width})
        yield goal, lambda estimate: interval_width(estimate) <= target
    if settings.reduction is not None:
        if not pilot.estimate.interval[0] > 0:
            raise InputError(
                "reduction",
                f"{settings.run} shows no bias (pooled FGB* {_spread(pilot)}), so none can be reduced; plan "
                "with --interval.",
            )
        kept = 1 - settings.reduction / 100
        goal = Finding("goal_of_reduction", {"reduction": settings.reduction / 100})
        yield goal, lambda estimate: shows_difference(estimate, kept * max(estimate.value, 0.0))


def _spread(pilot: Pilot) -> str:
    low, high = pilot.estimate.interval
    return f"{number(pilot.estimate.value * PER_UNIT)} {interval((low * PER_UNIT, high * PER_UNIT))} {UNIT}"
