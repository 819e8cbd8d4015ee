"""The findings of `check`, as data: whether limits of a run's bias hold, and whether any descriptor became worse.

A limit of a score holds if the whole 95 % interval is within it, is broken if the whole interval is beyond it, and is
inconclusive otherwise. If no limit of the rise is given, the smallest that these runs can show to hold is taken; if the
baseline shows no bias, which has no rise in percent, pooled FGB* of the run itself is limited.

Effects on descriptors have no limit: a single effect that is shown to have grown breaks the check. Its p-value is
adjusted for all descriptors, groups and styles (`effect_changes`). A shown rise of the answers in another language,
refused, withheld or empty, or of how much their share differs between people, breaks the check, too (Holm's correction
over these outcomes). If nothing is shown to have grown, something may still have grown undetected.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from evenhand.evaluation import columns
from evenhand.evaluation.doors import spelled
from evenhand.evaluation.errors import InputError
from evenhand.evaluation.facts import BROKEN, HOLDS, INCONCLUSIVE, Finding, LimitResult
from evenhand.evaluation.metrics import FamilyRun
from evenhand.evaluation.metrics.generation_bias.accepted import accepted_left_out
from evenhand.evaluation.metrics.generation_bias.answers import PROMPTS, RESPONSES, Answers, read_answers
from evenhand.evaluation.metrics.generation_bias.compared_runs import (
    check_comparable,
    compared_responses,
    hardly_common,
    on_common_prompts,
    people_not_compared,
)
from evenhand.evaluation.metrics.generation_bias.early_stop import early_stops, level_of_comparison
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
from evenhand.evaluation.metrics.generation_bias.headline import find_size, moved_share
from evenhand.evaluation.metrics.generation_bias.measures import serious_measures
from evenhand.evaluation.metrics.generation_bias.parts.effects import EFFECTS, read_effects
from evenhand.evaluation.metrics.generation_bias.parts.outcomes import (
    NEGLIGIBLE,
    OUTCOME_EFFECTS,
    compared_values,
    risen_outcomes,
)
from evenhand.evaluation.metrics.generation_bias.pilot import pilot_of
from evenhand.evaluation.metrics.generation_bias.requested_language import compared_in_language, style_group
from evenhand.evaluation.report.formats import format_of
from evenhand.evaluation.report.numbers import PER_UNIT
from evenhand.evaluation.score import BiasScore, Form, Kind, find_score
from evenhand.evaluation.statistics.descriptor_spread import Estimate
from evenhand.evaluation.statistics.sample_size import (
    LEVERS,
    is_significant,
    shows_difference,
    smallest_design,
)
from evenhand.evaluation.tables import table_rows

# A run with few permutations gets more for the changes of effects, whose p-values by the largest of all changes are
# otherwise unsteady.
PERMUTATIONS_PER_STYLE = 40
RISES = tuple(round(0.05 * step, 2) for step in range(2, 21))  # limits of a rise to choose from: 10 to 100 %
WITHOUT_BIAS = 5.0  # thousandths of pooled FGB*: the limit of a run whose baseline shows no bias, if none is given
MAX_ROWS = 20  # effects that a finding lists
# What would decide an open limit: one of these is a detail of each.
TO_DECIDE = (
    "to_decide",
    "to_decide_alone",
    "to_decide_rise",
    "to_decide_spread",
    "to_decide_difference",
    "to_decide_otherwise",
)


def findings_alone(
    run: FamilyRun,
    *,
    max_pooled_fgb: float | None = None,
    max_spread: Mapping[str, float] | None = None,
    max_difference: float | None,
) -> list[LimitResult]:
    """Return the finding on each given limit of a run alone.

    Args:
        max_pooled_fgb: limit of pooled FGB*, in 10⁻³.
        max_spread: outcome → limit of its spread between people, in its unit.
        max_difference: limit of the largest difference of anybody from the average, in answers of 100.
    """
    # Read from scores.json: a limit may be of any outcome, and facts.json has the numbers of the first page only.
    findings = []
    if max_pooled_fgb is not None:
        findings.append(_pooled(run, max_pooled_fgb))
    for outcome, limit in sorted((max_spread or {}).items()):
        findings.append(_outcome_spread(run, outcome, limit))
    if max_difference is not None:
        findings.append(_largest_difference(run, max_difference))
    return findings


def people_without_answers(run: FamilyRun) -> list[LimitResult]:
    """Return the finding on people none of whose answers came, or []: no other finding is about them."""
    responses = run.table(RESPONSES)
    if columns.LEFT_OUT not in responses:
        return []
    n_answers = responses[columns.LEFT_OUT].isna().groupby(run.table(PROMPTS)[columns.DESCRIPTOR].astype(str)).sum()
    names = n_answers.index[n_answers == 0].tolist()
    if not names:
        return []
    measured = Finding("people_without_answers", {"names": names[:MAX_ROWS], "n": len(names)})
    return [LimitResult(Finding("answers_limit"), INCONCLUSIVE, measured, [_decided_by("answers")])]


def findings_against(
    before: FamilyRun, after: FamilyRun, max_rise: float | None, *, limits_the_rise: bool = True
) -> list[LimitResult]:
    """Return the findings on the rise of pooled FGB*, if `limits_the_rise`, on effects and on outcomes.

    Without `max_rise`, the limit of the rise is one that these runs can show to hold, or, if the baseline shows no
    bias, a limit of pooled FGB* of the run. As on the page of a comparison,
    styles are of the answers in the language of the requests, if somebody gets more answers in another one
    (`compared_in_language`). The first finding says whether a run stopped early. If the runs have hardly any common
    prompt, no limit is found to hold.
    """
    few = hardly_common([before, after])
    before, after, is_common = on_common_prompts(before, after)
    level = level_of_comparison(before.folder, after.folder, int(is_common.sum()), "run")
    old = compared_responses(before, level)
    new = compared_responses(after, level)
    check_comparable(before, after, (old, new), "run")
    in_language = compared_in_language(before, after, old, new)
    styled = in_language or (old, new)
    of_styles = []
    if limits_the_rise:
        of_styles.append(_rise(before.folder, after.folder, *styled, max_rise))
    permutations = max(before.config.settings.permutations, PERMUTATIONS_PER_STYLE * len(old.columns))
    of_styles.append(_grown_effects(*styled, level.draws(permutations), before.config.seed))
    if in_language is not None:
        n = int((styled[0].has_value() & styled[1].has_value()).sum())
        about = Finding("limits_in_language", {"n": n, "n_of": len(old)})
        of_styles = [replace(result, details=[about, *result.details]) for result in of_styles]
    findings = of_styles
    findings += _risen_outcomes(before, after, old, new)
    about_stops = [*early_stops("baseline", before.folder), *early_stops("run", after.folder)]
    if about_stops:
        about_stops.append(Finding("intervals_after_looks", {"of": "check"}))
    about_rows = [*not_compared(before, after, is_common), *accepted_left_out(after)]
    findings[0] = replace(findings[0], details=[*findings[0].details, *about_rows, *about_stops])
    return findings if few is None else [_of_few_prompts(result, few) for result in findings]


def _of_few_prompts(result: LimitResult, few: Finding) -> LimitResult:
    """Return the result if few prompts are common: a limit that is broken on these stays broken, and none holds."""
    if result.status == BROKEN:
        return result
    measured = Finding("measured_on_few", {"few": few, "measured": result.measured})
    details = [detail for detail in result.details if detail.kind not in TO_DECIDE]
    return LimitResult(result.limit, INCONCLUSIVE, measured, [*details, Finding("to_decide_alone")])


def not_compared(before: FamilyRun, after: FamilyRun, is_common: np.ndarray) -> list[Finding]:
    """Return how many prompts both runs have, and the people who have none of them; [] if the prompts are the same.

    Args:
        is_common: whether each prompt of either run is in both, (n,) bool.
    """
    if is_common.all():
        return []
    found = [Finding("few_common_prompts", {"n": int(is_common.sum()), "n_of": len(is_common)})]
    return [*found, *people_not_compared(before, after)]


def _pooled(run: FamilyRun, limit: float) -> LimitResult:
    """Return the finding on pooled FGB* under the limit, in 10⁻³."""
    score = headline_of(run.scores)
    status = _status(score.interval, limit / PER_UNIT)
    details = [Finding("pooled_fgb_allowed", {"moved": moved_share(limit / PER_UNIT)}), *accepted_left_out(run)]
    details += _of_all_answers(run)
    if status == INCONCLUSIVE:
        plan = _plan(read_answers(run.folder), run.folder, partial(_is_decided, limit=limit))
        details.append(Finding("to_decide", {"plan": plan}))
    measured = Finding("pooled_fgb", {"size": find_size(score), "score": score})
    return LimitResult(Finding("pooled_fgb_limit", {"thousandths": limit}), status, measured, details)


def _is_decided(estimate: Estimate, *, limit: float) -> bool:
    """Return whether pooled FGB* with this error is shown to be on one side of the limit, in 10⁻³."""
    return is_significant(estimate.value - limit / PER_UNIT, estimate.standard_error**2, estimate.freedom)


def _outcome_spread(run: FamilyRun, outcome: str, limit: float) -> LimitResult:
    """Return the finding on the spread of an outcome between people, in the outcome's unit."""
    score = find_score(run.scores, outcome, Form.SPREAD)
    if score is None:
        raise InputError(
            "max_spread",
            f"{run.folder} has no {outcome!r}; measure it with {spelled('generation_bias.outcomes', f'[{outcome}]')}.",
        )
    status = _status(score.interval, limit / format_of(score).factor)
    limited = Finding("spread_limit", {"score": score, "limit": limit})
    details = []
    if status == INCONCLUSIVE and score.interval:
        details.append(Finding("to_decide_spread", {"score": score}))
    elif status == INCONCLUSIVE:
        details.append(_decided_by("templates"))
    return LimitResult(limited, status, Finding("measured_score", {"score": score}), details)


def _of_all_answers(run: FamilyRun) -> list[Finding]:
    """Return [that a limit is of all answers], or [] if the page of the run is, too."""
    return [Finding("limit_of_all_answers")] if style_group(run.scores) else []


def _largest_difference(run: FamilyRun, limit: float) -> LimitResult:
    """Return the finding on the largest effect of a descriptor on a style, in points of 100."""
    limited = Finding("difference_limit", {"limit": limit})
    score = find_score(run.scores, DIFFERENCE_BOUND)
    if score is None or score.interval is None:
        reason = score.reason if score else None
        measured = Finding("no_difference_bounds", {"reason": reason})
        return LimitResult(limited, INCONCLUSIVE, measured, [_decided_by("templates")])
    low, high = score.interval
    status = _status((100 * low, 100 * high), limit)
    measured = Finding("difference_bounds", {"low": low, "high": high})
    effects = read_effects(run, EFFECTS)
    beyond = effects[100 * effects["at_least"] > limit].sort_values("at_least", ascending=False, kind="stable")
    details = [*accepted_left_out(run), *_of_all_answers(run)]
    for row in table_rows(beyond.head(MAX_ROWS)):
        sizes = {"effect": row["shrunk"], "at_least": row["at_least"]}
        details.append(Finding("effect_beyond", {"unit": row["unit"], "style": row["name"], **sizes}))
    if status == INCONCLUSIVE:
        sizes = {"n": _answers_for(limit, low, 100 * high, score.n), "n_now": score.n, "met": math.ceil(100 * high)}
        details.append(Finding("to_decide_difference", sizes))
    return LimitResult(limited, status, measured, details)


def _answers_for(limit: float, low: float, high: float, n: int) -> int | None:
    """Return about how many answers show that nobody differs by more than the limit, if nobody differs at all.

    The bound is then noise, which shrinks with the square root of the number of answers. None if somebody is shown to
    differ: what more answers would show then depends on by how much.

    >>> _answers_for(limit=5.0, low=0.0, high=10.0, n=2_000)
    8000
    """
    return None if low > 0 else math.ceil(n * (high / limit) ** 2)


def _decided_by(what: str) -> Finding:
    """Return what to measure so that a limit without an interval can be decided: answers, people or templates."""
    return Finding("to_decide_otherwise", {"what": what})


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


def _rise(baseline: Path, run: Path, old: Answers, new: Answers, max_rise: float | None) -> LimitResult:
    """Return the finding on the rise of pooled FGB*, after / before − 1, by `max_rise` or `smallest_showable_rise`.

    Without both, and without a bias of the baseline, it is the finding on pooled FGB* after.
    """
    chosen = smallest_showable_rise(old, new) if max_rise is None else max_rise / 100
    limit = RISES[0] if chosen is None else chosen
    scores = compare_generation_bias(old, new, {}, by_axis=False)
    difference = headline_of(scores, Kind.DIFFERENCE)
    before = -(difference.ideal or 0.0)  # the ideal of the difference is to lose all that was there before
    after = difference.value + before
    reduction = headline_of(scores, Kind.REDUCTION)
    sides = {"before": _size(before), "after": _size(after)}
    if chosen is None and reduction.interval is None and not math.isnan(before):
        return _without_bias_before(run, old, new, sides)
    status, changed = _rise_under(limit, old, new, reduction)
    details = [Finding("rise_compared", {"n": int((old.has_value() & new.has_value()).sum())})]
    if before > 0:
        allowed = {"before": moved_share(before), "allowed": moved_share((1 + limit) * before)}
        details.append(Finding("rise_allowed", {"limit": limit, **allowed}))
    if max_rise is None and chosen is None:
        sizes = {"smallest": RISES[0], "largest": RISES[-1], "has_value": not math.isnan(before)}
        details.append(Finding("no_rise_showable", sizes))
    elif max_rise is None:
        details.append(Finding("rise_chosen", {"limit": chosen, "smallest": RISES[0]}))
    if status == INCONCLUSIVE and math.isnan(before):
        details.append(_decided_by("templates"))
    elif status == INCONCLUSIVE and changed["rise"] is None:
        details.append(Finding("to_decide_rise"))
    elif status == INCONCLUSIVE:
        decides = partial(shows_difference, after=after, factor=1 + limit)
        details.append(Finding("to_decide", {"plan": _plan(old, baseline, decides)}))
    if max_rise is None and before > 0 and chosen not in (None, RISES[0]):
        decides_smallest = partial(shows_difference, after=before, factor=1 + RISES[0])
        plan = _plan(old, baseline, decides_smallest)
        details.append(Finding("to_show_smallest", {"limit": RISES[0], "plan": plan}))
    return LimitResult(Finding("rise_limit", {"limit": limit}), status, Finding("rise", {**sides, **changed}), details)


def _without_bias_before(run: Path, old: Answers, new: Answers, sides: Mapping[str, Any]) -> LimitResult:
    """Return the finding on pooled FGB* of the run in a folder under WITHOUT_BIAS; `sides` has it before and after."""
    estimate = excess_over_baseline(old, new, 0.0)
    status = _status(estimate.interval, WITHOUT_BIAS / PER_UNIT)
    allowed = {"thousandths": WITHOUT_BIAS, "moved": moved_share(WITHOUT_BIAS / PER_UNIT)}
    n = int((old.has_value() & new.has_value()).sum())
    details = [Finding("rise_compared", {"n": n}), Finding("no_bias_before", allowed)]
    if status == INCONCLUSIVE:
        details.append(Finding("to_decide", {"plan": _plan(new, run, partial(_is_decided, limit=WITHOUT_BIAS))}))
    measured = Finding("pooled_fgb_after", {**sides, "interval": estimate.interval})
    return LimitResult(Finding("pooled_fgb_limit", allowed), status, measured, details)


def _size(pooled_fgb: float) -> dict[str, float]:
    """Return the size of a difference in style: pooled FGB*, and the share of moved answers."""
    return {"pooled_fgb": pooled_fgb, "moved": moved_share(pooled_fgb)}


def _rise_under(limit: float, old: Answers, new: Answers, reduction: BiasScore) -> tuple[str, dict[str, Any]]:
    """Return the status of the limit of a rise, and the measured rise with its interval.

    The interval is that of the reduction, with the other sign. If the reduction has none, because the baseline's bias
    may be 0, it is of the `excess`, after − (1 + limit) × before, which divides by nothing.
    """
    if reduction.interval:
        low, high = sorted(-bound for bound in reduction.interval)
        return _status((low, high), limit), {"rise": {"value": -reduction.value, "interval": (low, high)}}
    excess = excess_over_baseline(old, new, 1 + limit)
    values = {"factor": 1 + limit, "value": excess.value, "interval": excess.interval}
    return _status(excess.interval, 0.0), {"rise": None, "excess": values, "reason": reduction.reason}


def _grown_effects(old: Answers, new: Answers, permutations: int, seed: int) -> LimitResult:
    """Return the effects of descriptors that are shown to be further from 0 after than before, the largest first."""
    limited = Finding("effects_limit")
    changes = effect_changes(old, new, {}, permutations=permutations, seed=seed)
    changes = changes[(changes["kind"] == columns.DESCRIPTOR) & (changes["outcome"] == columns.STYLE)]
    if not len(changes):
        return LimitResult(limited, INCONCLUSIVE, Finding("nobody_compared"), [_decided_by("people")])
    before = changes["mean_before"] - changes["average_before"]
    after = changes["mean_after"] - changes["average_after"]
    growth = 100 * after.abs() - 100 * before.abs()
    is_grown = (changes["certainty"] == SHOWN) & (growth >= NEGLIGIBLE)
    sized = changes.assign(before=before, after=after, growth=growth)[is_grown]
    grown = sized.sort_values("growth", ascending=False, kind="stable")
    details = [Finding("effects_compared"), Finding("effects_allowed", {"negligible": NEGLIGIBLE})]
    median, worst = detectable_sizes(changes)
    if median > 0:
        details.append(Finding("detectable_growth", {"median": median, "worst": worst}))
    effects = []
    for row in table_rows(grown.head(MAX_ROWS)):
        sides = {"before": row["before"], "after": row["after"]}
        effects.append(
            Finding("grown_effect", {"unit": row["unit"], "style": row["name"], **sides, "p": row["p_joint"]})
        )
    measured = Finding("grown", {"n": len(grown), "n_of": len(changes), "most": next(iter(effects), None)})
    return LimitResult(limited, BROKEN if len(grown) else HOLDS, measured, [*details, *effects])


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
    grown = risen_outcomes(changes)
    details = [Finding("outcomes_compared"), Finding("outcomes_allowed", {"negligible": NEGLIGIBLE}), *grown]
    details += _newly_shown(before, after)
    measured = Finding("grown", {"n": len(grown), "n_of": len(changes), "most": next(iter(grown), None)})
    return [LimitResult(Finding("outcomes_limit"), BROKEN if grown else HOLDS, measured, details)]


def _newly_shown(before: FamilyRun, after: FamilyRun) -> list[Finding]:
    """Return who is shown to get more of a serious outcome than others in the run, but not in the baseline.

    It breaks nothing: what is shown in one of two runs may have been missed by chance in the other.
    """
    tables = [read_effects(run, OUTCOME_EFFECTS) for run in (before, after)]
    names = set(serious_measures()) & set(tables[0]["outcome"])
    shown = []
    for table in tables:
        is_more = (table["certainty"] == SHOWN) & (table["shrunk"] > 0) & table["outcome"].isin(names)
        shown.append(dict.fromkeys(zip(table.loc[is_more, "unit"], table.loc[is_more, "outcome"], strict=True)))
    people = [{"unit": unit, "outcome": outcome} for unit, outcome in shown[1] if (unit, outcome) not in shown[0]]
    return [Finding("newly_shown", {"people": people})] if people else []


def _status(bounds: tuple[float, float] | None, limit: float) -> str:
    """Return the status of a limit by the interval of a score.

    >>> [_status(bounds, 0.1) for bounds in ((-0.2, 0.1), (0.0, 0.2), (0.11, 0.2), None)]
    ['holds', 'inconclusive', 'broken', 'inconclusive']
    """
    if bounds is None or bounds[0] <= limit < bounds[1]:
        return INCONCLUSIVE
    return HOLDS if bounds[1] <= limit else BROKEN


def _plan(answers: Answers, folder: Path, decides: Callable[[Estimate], bool]) -> Finding:
    """Return the smallest design that decides about a limit, by the first of LEVERS that can; or why there is none.

    The pilot is the answers of the run in `folder` that are compared. It did not decide, so that the design is larger.
    """
    try:
        pilot = pilot_of(answers, folder)
    except InputError as error:
        return Finding("no_pilot", {"reason": str(error)})
    for lever in LEVERS:
        design = smallest_design(pilot, lever, decides, is_larger=True)
        if design:
            sizes = {"size": getattr(design, lever), "size_now": getattr(pilot.design, lever)}
            return Finding("deciding_design", {"n": design.n, "n_now": pilot.design.n, "lever": lever, **sizes})
    return Finding("no_design_decides")
