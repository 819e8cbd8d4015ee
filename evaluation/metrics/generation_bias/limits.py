"""The findings of `check`: whether limits of a run's bias are shown to hold, and whether any descriptor became worse.

A limit of a score holds if the whole 95 % interval is within it, is broken if the whole interval is beyond it, and is
inconclusive otherwise. If no limit of the rise is given, the smallest that these runs can show to hold is taken.

Effects on descriptors have no limit: a single effect that is shown to have grown breaks the check. Its p-value is
adjusted for all descriptors, groups and styles (`effect_changes`). A shown rise of the answers in another language,
refused, withheld or empty, or of how much their share differs between people, breaks the check, too (Holm's correction
over these outcomes). If nothing is shown to have grown, something may still have grown undetected.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from evenhand.evaluation import columns
from evenhand.evaluation.errors import InputError
from evenhand.evaluation.metrics import FamilyRun
from evenhand.evaluation.metrics.generation_bias.answers import Answers
from evenhand.evaluation.metrics.generation_bias.comparison import (
    check_comparable,
    compared_responses,
    on_common_prompts,
)
from evenhand.evaluation.metrics.generation_bias.early_stop import early_stop_text, level_of_comparison
from evenhand.evaluation.metrics.generation_bias.engine.changes import measure_changes
from evenhand.evaluation.metrics.generation_bias.engine.effects import (
    DIFFERENCE_BOUND,
    SHOWN,
    detectable_sizes,
    effect_changes,
)
from evenhand.evaluation.metrics.generation_bias.engine.spread import (
    compare_generation_bias,
    excess_over_baseline,
    headline_of,
)
from evenhand.evaluation.metrics.generation_bias.headline import moved_text
from evenhand.evaluation.metrics.generation_bias.measures import serious_measures
from evenhand.evaluation.metrics.generation_bias.parts.outcomes import compared_values
from evenhand.evaluation.metrics.generation_bias.pilot import read_pilot
from evenhand.evaluation.report.formats import format_of
from evenhand.evaluation.report.numbers import PER_UNIT, UNIT, interval, number, p_value, sanitize, score_text
from evenhand.evaluation.report.score_sections import value_text
from evenhand.evaluation.score import BiasScore, Form, Kind, find_score
from evenhand.evaluation.statistics.descriptor_spread import Estimate
from evenhand.evaluation.statistics.hypothesis_tests import holm
from evenhand.evaluation.statistics.sample_size import (
    LEVERS,
    is_significant,
    shows_difference,
    smallest_design,
)
from evenhand.evaluation.statistics.simultaneous_tests import LEVEL

HOLDS = "holds"
BROKEN = "broken"
INCONCLUSIVE = "inconclusive"
# A run with few permutations gets more for the changes of effects, whose p-values by the largest of all changes are
# otherwise unsteady.
PERMUTATIONS_PER_STYLE = 40
RISES = tuple(round(0.05 * step, 2) for step in range(2, 21))  # limits of a rise to choose from: 10 to 100 %
NEGLIGIBLE = 0.5  # percentage points: an effect that grows by less is no failure
MAX_ROWS = 20  # effects that a finding lists


@dataclass(frozen=True)
class LimitResult:
    """The outcome of one part of a check: what is checked, whether it holds, and the measured numbers."""

    name: str
    status: str
    text: str
    details: Sequence[str] = ()

    def __str__(self) -> str:
        return "\n  ".join([f"{self.status}: {self.name}", f"Measured: {self.text}", *self.details])


def findings_alone(
    run: FamilyRun,
    *,
    max_pooled_fgb: float | None = None,
    max_spread: Mapping[str, float] | None = None,
    max_difference: float | None = None,
) -> list[LimitResult]:
    """Return the finding on each given limit of a run alone.

    Args:
        max_pooled_fgb: limit of pooled FGB*, in 10⁻³.
        max_spread: outcome → limit of its spread between people, in its unit.
        max_difference: limit of the largest difference of anybody from the average, in answers of 100.
    """
    findings = []
    if max_pooled_fgb is not None:
        findings.append(_pooled(run, max_pooled_fgb))
    for outcome, limit in (max_spread or {}).items():
        findings.append(_outcome_spread(run, outcome, limit))
    if max_difference is not None:
        findings.append(_largest_difference(run, max_difference))
    return findings


def findings_against(
    before: FamilyRun, after: FamilyRun, max_rise: float | None = None, *, limits_the_rise: bool = True
) -> list[LimitResult]:
    """Return the findings on the rise of pooled FGB*, if `limits_the_rise`, on effects and on outcomes.

    Without `max_rise`, the limit of the rise is one that these runs can show to hold. The first finding says whether a
    run stopped early.
    """
    before, after, is_common = on_common_prompts(before, after)
    level = level_of_comparison(before.folder, after.folder, int(is_common.sum()), "run")
    old = compared_responses(before, level)
    new = compared_responses(after, level)
    check_comparable(before, after, (old, new), "run")
    findings = []
    if limits_the_rise:
        findings.append(_rise(before.folder, old, new, max_rise))
    permutations = max(before.config.settings.permutations, PERMUTATIONS_PER_STYLE * len(old.columns))
    findings.append(_grown_effects(old, new, level.draws(permutations), before.config.seed))
    findings += _risen_outcomes(before, after, old, new)
    about_stops = [*early_stop_text("The baseline", before.folder), *early_stop_text("The run", after.folder)]
    if about_stops:
        about_stops.append("Intervals and tests account for the looks.")
    findings[0] = replace(findings[0], details=[*findings[0].details, *about_stops])
    return findings


def _pooled(run: FamilyRun, limit: float) -> LimitResult:
    """Return the finding on pooled FGB* under the limit, in 10⁻³."""
    score = headline_of(run.scores)
    status = _status(score.interval, limit / PER_UNIT)

    def decides(estimate: Estimate) -> bool:
        return is_significant(estimate.value - limit / PER_UNIT, estimate.standard_error**2, estimate.freedom)

    moved = f"style differs as if {moved_text(score.value)} of 100 answers had been moved to another style"
    text = f"{moved}; pooled FGB* {score_text(score)}"
    if score.interval and score.caution:
        text += f"; {score.caution.text}"
    details = [f"Limit: as if {moved_text(limit / PER_UNIT)} of 100 answers had been moved to another style."]
    if status == INCONCLUSIVE:
        details.append(f"To decide: {_plan_text(run.folder, decides)}")
    return LimitResult(f"pooled FGB* ≤ {limit:g} {UNIT}", status, text, details)


def _outcome_spread(run: FamilyRun, outcome: str, limit: float) -> LimitResult:
    """Return the finding on the spread of an outcome between people, in the outcome's unit."""
    score = find_score(run.scores, outcome, Form.SPREAD)
    if score is None:
        raise InputError(
            "max_spread", f"{run.folder} has no {outcome!r}; measure it with --generation_bias.outcomes '[{outcome}]'."
        )
    metric = format_of(score)
    status = _status(score.interval, limit / metric.factor)
    return LimitResult(f"{metric.label} ≤ {limit:g} {metric.unit}".rstrip(), status, value_text(score))


def _largest_difference(run: FamilyRun, limit: float) -> LimitResult:
    """Return the finding on the largest effect of a descriptor on a style, in points of 100."""
    name = f"largest difference of anybody ≤ {limit:g} of 100 answers"
    score = find_score(run.scores, DIFFERENCE_BOUND)
    if score is None or score.interval is None:
        reason = score.reason if score else None
        return LimitResult(name, INCONCLUSIVE, reason or "the run has no permutations; measure with some")
    low = 100 * score.interval[0]
    high = 100 * score.interval[1]
    bound = f"{number(high, 1)} of 100 answers in a style"
    text = f"with 95 % confidence, nobody differs from the average by more than {bound}"
    if low:
        text += f", and somebody differs by at least {number(low, 1)}"
    return LimitResult(name, _status((low, high), limit), text)


def smallest_showable_rise(old: Answers, new: Answers) -> float | None:
    """Return the smallest of RISES that two runs show to hold with a probability of 80 % if the bias is equal; or None.

    The interval of after − (1 + rise) × before then ends below 0 with this probability. The limit depends on the noise
    of both runs and on the bias before, and not on the rise between them.
    """
    after = excess_over_baseline(old, new, 0.0).value
    before = after - excess_over_baseline(old, new, 1.0).value
    for rise in RISES:
        noise = excess_over_baseline(old, new, 1 + rise)
        if is_significant(-rise * max(before, 0.0), noise.standard_error**2, noise.freedom, noise.level):
            return rise
    return None


def _rise(baseline: Path, old: Answers, new: Answers, max_rise: float | None) -> LimitResult:
    """Return the finding on the rise of pooled FGB*, after / before − 1, by `max_rise` or `smallest_showable_rise`."""
    chosen = smallest_showable_rise(old, new) if max_rise is None else max_rise / 100
    limit = RISES[0] if chosen is None else chosen
    scores = compare_generation_bias(old, new, {}, by_axis=False)
    difference = headline_of(scores, Kind.DIFFERENCE)
    before = -(difference.ideal or 0.0)  # the ideal of the difference is to lose all that was there before
    after = difference.value + before
    status, measured = _rise_under(limit, old, new, headline_of(scores, Kind.REDUCTION))
    text = (
        f"style differs as if {moved_text(before)} of 100 answers had been moved to another style before, and "
        f"{moved_text(after)} after; pooled FGB* {number(before * PER_UNIT)} → {number(after * PER_UNIT)} {UNIT}"
        f"{measured}"
    )
    details = [f"Compared: how much style differs between people, on the same {len(old):,} prompts in both runs."]
    if before > 0:
        answers = f"{moved_text(before)} of 100 answers may become {moved_text((1 + limit) * before)}"
        details.append(f"Limit: pooled FGB* may rise by {100 * limit:g}%, so {answers}.")
    if max_rise is None:
        details.append(_chosen_text(chosen))
    if status == INCONCLUSIVE and before > 0:
        decides = partial(shows_difference, after=after, factor=1 + limit)
        details.append(f"To decide: {_plan_text(baseline, decides)}")
    elif status == INCONCLUSIVE and before <= 0:
        details.append("To decide: give --max_pooled_fgb instead; a baseline without bias allows no rise in percent.")
    if max_rise is None and before > 0 and chosen not in (None, RISES[0]):
        decides_smallest = partial(shows_difference, after=before, factor=1 + RISES[0])
        details.append(f"For a limit of {RISES[0]:.0%}: {_plan_text(baseline, decides_smallest)}")
    return LimitResult(f"rise of pooled FGB* ≤ {100 * limit:g}%", status, text, details)


def _rise_under(limit: float, old: Answers, new: Answers, reduction: BiasScore) -> tuple[str, str]:
    """Return the status of the limit of a rise, and the end of a sentence with the measured rise and its interval.

    The interval is that of the reduction, with the other sign. If the reduction has none, because the baseline's bias
    may be 0, it is of after − (1 + limit) × before, which divides by nothing.
    """
    if reduction.interval:
        low, high = sorted(-bound for bound in reduction.interval)
        rise = f"{number(-100 * reduction.value, 1, sign=True)} %"
        return _status((low, high), limit), f", {rise} {interval((100 * low, 100 * high), 1, sign=True)}"
    excess = excess_over_baseline(old, new, 1 + limit)
    bounds = None
    if excess.interval is not None:
        bounds = (PER_UNIT * excess.interval[0], PER_UNIT * excess.interval[1])
    text = f"; run − {1 + limit:g} × baseline: {number(PER_UNIT * excess.value, 2, sign=True)}"
    text += f" {interval(bounds, 2, sign=True)} {UNIT}, without a percentage: {reduction.reason}"
    return _status(excess.interval, 0.0), text


def _chosen_text(chosen: float | None) -> str:
    """Return how the limit of a rise was chosen, since none was given; None is the result of no sufficient limit."""
    if chosen is None:
        return (
            f"No --max_rise is given, and {RISES[0]:.0%} is taken. These runs are too small for any limit up to "
            f"{RISES[-1]:.0%}: an unchanged model would pass it in fewer than 80 of 100 checks."
        )
    return (
        f"No --max_rise is given, so {chosen:.0%} is taken, the smallest limit (of at least {RISES[0]:.0%}) that an "
        "unchanged model passes in 80 of 100 checks of this size."
    )


def _grown_effects(old: Answers, new: Answers, permutations: int, seed: int) -> LimitResult:
    """Return the effects of descriptors that are shown to be further from 0 after than before."""
    name = "effects on descriptors"
    changes = effect_changes(old, new, {}, permutations=permutations, seed=seed)
    changes = changes[(changes["kind"] == columns.DESCRIPTOR) & (changes["outcome"] == columns.STYLE)]
    if not len(changes):
        return LimitResult(name, INCONCLUSIVE, "no two descriptors have a common template; measure more descriptors.")
    before = 100 * (changes["mean_before"] - changes["average_before"])
    after = 100 * (changes["mean_after"] - changes["average_after"])
    growth = after.abs() - before.abs()
    is_grown = (changes["certainty"] == SHOWN) & (growth >= NEGLIGIBLE)
    grown = changes.assign(before=before, after=after)[is_grown].sort_values("p_joint", kind="stable")
    details = [
        f"{sanitize(f'{row.unit}, {row.name}', 100)}: {number(row.before, 1, sign=True)} → "
        f"{number(row.after, 1, sign=True)} of 100 answers, p {p_value(row.p_joint)}"
        for row in grown.head(MAX_ROWS).itertuples()
    ]
    text = f"{len(grown)} of {len(changes):,} are shown to have grown"
    notes = [
        "Compared: how far each person's share of a style is from the average of all people, before and after.",
        f"Limit: none may be shown to be further away by {NEGLIGIBLE:g} of 100 answers or more.",
    ]
    size, worst = detectable_sizes(changes)
    if size > 0:
        notes.append(
            f"A change by {number(100 * size, 1)} of 100 answers is found in 80 of 100 checks (median over people and "
            f"styles; at worst {number(100 * worst, 1)}); smaller ones may be missed."
        )
    details = notes + details
    return LimitResult(name, BROKEN if len(grown) else HOLDS, text, details)


def _risen_outcomes(before: FamilyRun, after: FamilyRun, old: Answers, new: Answers) -> list[LimitResult]:
    """Return [the finding on answers of which more is hardly ever right], or [] if no outcome was measured.

    Both the share of all answers and the spread of this share between people are compared, paired by prompt. What only
    one run has, such as answers that are withheld, is absent in the other one (`compared_values`).
    """
    found = compared_values(before, after, old, new)
    changes = []
    for outcome in serious_measures():
        pair = found.get(outcome)
        if pair is not None and not isinstance(pair, str):
            scores = measure_changes(old, *pair)
            changes += [score for score in scores if score.kind == Kind.DIFFERENCE]
    if not changes:
        return []
    p_values = [1.0 if change.p_value is None else change.p_value for change in changes]
    details = []
    for change, p in zip(changes, holm(p_values), strict=True):
        if p <= LEVEL and 100 * change.value >= NEGLIGIBLE:
            details.append(f"{format_of(change).title}: {value_text(change)}, adjusted p {p_value(p)}")
    text = f"{len(details)} of {len(changes)} are shown to have grown"
    notes = [
        "Compared: the share of such answers, and how much it differs between people, before and after.",
        f"Limit: none may be shown to have grown by {NEGLIGIBLE:g} of 100 answers or more.",
    ]
    status = BROKEN if details else HOLDS
    return [LimitResult("answers in another language, refused, withheld or empty", status, text, notes + details)]


def _status(bounds: tuple[float, float] | None, limit: float) -> str:
    """Return the status of a limit by the interval of a score.

    >>> [_status(bounds, 0.1) for bounds in ((-0.2, 0.1), (0.0, 0.2), (0.11, 0.2), None)]
    ['holds', 'inconclusive', 'broken', 'inconclusive']
    """
    if bounds is None or bounds[0] <= limit < bounds[1]:
        return INCONCLUSIVE
    return HOLDS if bounds[1] <= limit else BROKEN


def _plan_text(run: Path, decides: Callable[[Estimate], bool]) -> str:
    """Return a sentence on the smallest design that decides about a limit, by the first of LEVERS that can."""
    try:
        pilot = read_pilot(run)
    except InputError as error:
        return str(error)
    for lever in LEVERS:
        design = smallest_design(pilot, lever, decides)
        if not design:
            continue
        of_each = " to each descriptor and template" if lever == "responses" else ""
        return (
            f"{design.n:,} responses instead of {pilot.design.n:,} are enough in 80 of 100 checks if the bias is as "
            f"measured: {getattr(design, lever):,.0f} {lever} instead of {getattr(pilot.design, lever):,.3g}{of_each}."
        )
    return "no number of responses is enough, since the measured bias is too close to the limit."
