"""The findings of `check` on two screens: for whom the predictions of first tokens depend more on the person.

Predictions are computed, so that the only noise is that of templates. The changes of all people are tested together.
"""

import numpy as np

from evenhand.evaluation import columns
from evenhand.evaluation.errors import InputError
from evenhand.evaluation.facts import BROKEN, HOLDS, Finding, LimitResult
from evenhand.evaluation.metrics import FamilyRun
from evenhand.evaluation.metrics.screen.divergences import (
    DIVERGENCE,
    divergence_changes,
    divergence_scores,
    joined_divergences,
)
from evenhand.evaluation.metrics.screen.prompts import MIN_TEMPLATES
from evenhand.evaluation.score import find_score
from evenhand.evaluation.statistics.ranks import mean_intervals
from evenhand.recipes.command_settings import CheckSettings
from evenhand.recipes.finished_runs import read_measurement
from evenhand.recipes.settings import family_config

SCREEN = "screen"
NEGLIGIBLE = 0.02  # nats: a divergence that grows by less is no failure
MAX_ROWS = 20  # people that a finding lists


def screen_findings(settings: CheckSettings) -> list[LimitResult]:
    """Return the finding on the people whose divergence has grown since the baseline.

    Raises:
        InputError: there is no baseline, a limit is given that a screen has not, or the runs are not comparable.
    """
    if any((settings.max_pooled_fgb, settings.max_difference, settings.max_spread, settings.max_rise is not None)):
        raise InputError(
            "run", f"{settings.run} is a screen, without the numbers that are limited; leave out the limits."
        )
    if settings.against is None:
        raise InputError("against", "give --against RUN, a screen of the baseline over the same prompts.")
    runs = []
    for folder, field in ((settings.against, "against"), (settings.run, "run")):
        runs.append(FamilyRun(folder, family_config(read_measurement(folder, field, SCREEN)[0], SCREEN)))
    before, after = runs
    return [grown_divergences(before, after)]


def grown_divergences(before: FamilyRun, after: FamilyRun) -> LimitResult:
    """Return whether anybody's divergence is shown to have grown by more than a negligible amount."""
    joined = joined_divergences(before, after)
    rows = divergence_changes(joined)
    changes = rows.pivot_table(index=columns.DESCRIPTOR, columns=columns.TEMPLATE, values=DIVERGENCE)
    changes = changes.dropna(axis="columns")  # templates at which both runs ask everybody the same
    if changes.shape[1] < MIN_TEMPLATES:
        raise InputError("against", "it has only one template in common with the run; screen the same prompts.")
    intervals = mean_intervals(changes.to_numpy(), seed=before.config.seed)
    means = changes.mean(axis=1).to_numpy()
    grown = np.flatnonzero(intervals[:, 0] > NEGLIGIBLE)
    details = []
    for row in grown[np.argsort(-means[grown])][:MAX_ROWS]:
        change = {"value": float(means[row]), "interval": tuple(map(float, intervals[row]))}
        details.append(Finding("grown_person", {"person": changes.index[row], "change": change}))
    levels = {}
    for run, side, of_run in ((before, "before", joined.before), (after, "after", joined.after)):
        compared = of_run[of_run[columns.TEMPLATE].isin(changes.columns)]
        levels[side] = find_score(divergence_scores(compared, run.signature(DIVERGENCE)), DIVERGENCE)
    counts = {"n": len(grown), "n_of": len(changes), "negligible": NEGLIGIBLE}
    return LimitResult(
        limit=Finding("beginnings_limit"),
        status=BROKEN if len(grown) else HOLDS,
        measured=Finding("grown_people", {**counts, **levels}),
        details=details,
    )
