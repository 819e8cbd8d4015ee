"""Verdicts of reports: on the bias of one run, and on its change between two runs."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pandas as pd

from evenhand.evaluation import columns
from evenhand.evaluation.facts import Finding
from evenhand.evaluation.metrics.generation_bias.accepted import ACCEPTED_EFFECT, MAX_NAMED
from evenhand.evaluation.metrics.generation_bias.decision import FELL, NOTHING_BEFORE, ROSE, UNCHANGED
from evenhand.evaluation.metrics.generation_bias.engine.effects import DIFFERENCE_BOUND, EFFECT, SHOWN, SMALLEST
from evenhand.evaluation.metrics.generation_bias.findings import person_finding
from evenhand.evaluation.metrics.generation_bias.headline import is_bias_significant, unclear_reason
from evenhand.evaluation.metrics.generation_bias.measures import misread_in_cut_answers, serious_measures
from evenhand.evaluation.metrics.generation_bias.measures.language import LANGUAGE
from evenhand.evaluation.metrics.generation_bias.measures.other_language import OTHER_LANGUAGE
from evenhand.evaluation.metrics.generation_bias.parts.outcomes import person_dependent
from evenhand.evaluation.metrics.generation_bias.people import EffectRow
from evenhand.evaluation.report.score_sections import Runs, group_label
from evenhand.evaluation.score import BiasScore, Form, Kind, find_score
from evenhand.evaluation.tables import table_rows

# Verdicts on one run, and on a change.
UNCLEAR = "unclear"
NOT_SHOWN = "not shown"
NO_VERDICT = "no interval"
NO_STYLES = "no styles"
MAX_FINDINGS = 2  # people in a verdict, besides the one with the largest difference in style, and other outcomes


def bias_verdict(score: BiasScore | None) -> str:
    """Return the verdict on a bias score: "shown", "unclear", "not shown" or "no interval".

    A bias is shown if its 95 % interval is above 0 and the permutation test, which only overall scores have, has
    p ≤ 0.05. With few responses, interval and test can disagree; the bias is then unclear. With one template it is
    unclear, too. A permutation test is exact for any number of responses; the coverage of an interval is not.
    """
    if score is not None and unclear_reason(score):
        return UNCLEAR
    if score is None or score.interval is None:
        return NO_VERDICT
    return SHOWN if is_bias_significant(score) else NOT_SHOWN


def run_verdict(
    scores: Sequence[BiasScore],
    named: Sequence[EffectRow],
    outcome_effects: pd.DataFrame,
    style: Finding,
    language: str | None,
    *,
    are_cut: bool = False,
) -> Finding:
    """Return the verdict on one run: who gets other answers, what else depends on the person, and styles.

    Args:
        scores: the scores of the run.
        named: the rows of the shown effects, the most serious first.
        outcome_effects: the effects on outcomes, the largest first.
        style: the finding on styles.
        language: the language of the requests.
        are_cut: whether most answers were cut: nothing is said of measures of whole answers, such as the length.
    """
    serious = [row for row in named if row["outcome"] in serious_measures()][:MAX_FINDINGS]
    names = person_dependent(scores, outcome_effects, without={row["outcome"] for row in serious})
    if are_cut:
        names = [name for name in names if not misread_in_cut_answers(name)]
    shown = [*named, *table_rows(outcome_effects[outcome_effects["certainty"] == SHOWN])]
    values = {
        "serious": [person_finding(row, language) for row in serious],
        "style": style,
        "outcomes": [_outcome_finding(name, scores, shown, language) for name in names[:MAX_FINDINGS]],
        "further": names[MAX_FINDINGS:],
    }
    return Finding("run_verdict", values)


def _outcome_finding(
    name: str, scores: Sequence[BiasScore], shown: Sequence[EffectRow], language: str | None
) -> Finding:
    """Return in what people differ: the first of the shown effects on an outcome, and its spread between people."""
    names = (OTHER_LANGUAGE, LANGUAGE) if name == LANGUAGE else (name,)
    rows = [row for row in shown if row["outcome"] in names]
    spread = next(score for score in scores if score.form == Form.SPREAD and score.metric in names)
    largest = person_finding(rows[0], language) if rows else None
    return Finding("outcome_differs", {"largest": largest, "spread": spread})


def difference_limit(scores: Sequence[BiasScore], group: Mapping[str, str]) -> float | None:
    """Return how large a difference in style of anybody cannot be ruled out, in [0, 1]; None if it is unknown."""
    score = find_score(scores, DIFFERENCE_BOUND, Form.PLAIN, Kind.LEVEL, **group)
    return None if score is None or score.interval is None else score.value


@dataclass(frozen=True)
class StyleScores:
    """Pooled FGB* of two runs, and its difference and reduction; None: there is no such score."""

    before: BiasScore | None
    after: BiasScore | None
    difference: BiasScore | None
    reduction: BiasScore | None


def comparison_verdict(
    found: StyleScores,
    changes: Sequence[BiasScore],
    *,
    are_tested: bool,
    in_language: bool = False,
    language: str | None = None,
) -> Finding:
    """Return the verdict on the change of pooled FGB*.

    A bias fell or rose if the 95 % interval of the paired difference excludes 0. A bias that is not significant before,
    and has no defined reduction, cannot fall.

    Args:
        found: pooled FGB*.
        changes: the scores of the comparison.
        are_tested: whether changes of single differences were tested, for which the runs need permutations.
        in_language: whether pooled FGB* is of the answers in the language of the requests only.
        language: the name of this language; None if it is not known, or if there are several.
    """
    for side, score in (("before", found.before), ("after", found.after)):
        if score is None or math.isnan(score.value):
            return Finding("no_change_verdict", {"side": side, "reason": None if score is None else score.reason})
    assert found.before and found.after
    direction = change_direction(found.difference)
    reduction = found.reduction
    has_reduction = reduction is not None and not math.isnan(reduction.value)
    if direction != ROSE and not has_reduction and not is_bias_significant(found.before):
        direction = NOTHING_BEFORE
    values = {
        "direction": direction,
        "are_tested": are_tested,
        "n_singles": sum(
            score.metric == EFFECT and columns.STYLE in score.group and abs(score.value) >= SMALLEST
            for score in changes
        ),
        "before": bias_verdict(found.before),
        "remains": bias_verdict(found.after),
        "unclear_after": unclear_reason(found.after),
        "unclear_before": None if direction == NOTHING_BEFORE else unclear_reason(found.before),
        "no_percentage": None,
        "in_language": in_language,
        "language": language,
    }
    if direction != NOTHING_BEFORE and reduction is not None and not has_reduction:
        values["no_percentage"] = reduction.reason
    return Finding("change_verdict", values)


def change_direction(change: BiasScore | None) -> str:
    """Return whether a paired difference is shown to be a rise or a fall: ROSE, FELL or UNCHANGED."""
    if change is None or change.interval is None:
        return UNCHANGED
    low, high = change.interval
    if low > 0:
        return ROSE
    return FELL if high < 0 else UNCHANGED


def comparison_explanations(runs: Runs, group: Mapping[str, str]) -> list[Finding]:
    """Return what stands below the verdict of a comparison: on evenness, and on accepted differences.

    Args:
        runs: the scores before, after, and of the comparison.
        group: the group of the scores of styles that the page shows first.
    """
    found = []
    limits = [difference_limit(scores, group) for scores in runs[:2]]
    if None not in limits:
        found.append(Finding("limits_before_after", {"before": limits[0], "after": limits[1]}))
    accepted = accepted_changes(runs)
    if accepted:
        values = {"changes": accepted[:MAX_NAMED], "n_more": max(0, len(accepted) - MAX_NAMED)}
        found.append(Finding("accepted_changes", values))
    return found


@dataclass(frozen=True)
class AcceptedChange:
    """What became of an accepted difference: both values, and whether a change is shown."""

    label: str
    before: float
    after: float
    is_shown: bool


def accepted_changes(runs: Runs) -> list[AcceptedChange]:
    """Return what became of each accepted difference."""
    found = []
    for change in runs[2]:
        if change.metric != ACCEPTED_EFFECT or change.kind != Kind.DIFFERENCE:
            continue
        before = find_score(runs[0], ACCEPTED_EFFECT, **change.group)
        after = find_score(runs[1], ACCEPTED_EFFECT, **change.group)
        if before is None or after is None or math.isnan(change.value):
            continue
        is_shown = change.interval is not None and (change.interval[0] > 0 or change.interval[1] < 0)
        found.append(AcceptedChange(group_label(change), before.value, after.value, is_shown))
    return found
