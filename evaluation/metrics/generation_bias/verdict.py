"""Verdicts on the bias of one run, and on its change between two runs."""

from collections.abc import Sequence

import pandas as pd

from evenhand.evaluation.metrics.generation_bias.effect_sections import more_or_fewer, named_effects, plain, points
from evenhand.evaluation.metrics.generation_bias.metric import HEADLINE, REPEATED
from evenhand.evaluation.report.formats import format_of
from evenhand.evaluation.report.numbers import UNIT, number, p_value, percent, sanitize, undefined
from evenhand.evaluation.report.tables import value_text
from evenhand.evaluation.score import DESCRIPTOR, BiasScore, find_score
from evenhand.evaluation.statistics.effects import MONTE_CARLO_ERROR

SHOWN, UNCLEAR, NOT_SHOWN, NO_VERDICT = "shown", "unclear", "not shown", "no interval"
Runs = Sequence[Sequence[BiasScore]]  # scores of a run; or scores before, scores after and differences


def bias_verdict(score: BiasScore | None, level: float = 0.05) -> str:
    """Return the verdict on a bias score: "shown", "unclear", "not shown" or "no interval".

    A bias is shown if its 95 % interval is above 0 and the permutation test, which only overall scores have, has
    p < `level`. With few responses, interval and test can disagree; the bias is then unclear. It is unclear, too, if
    |p − `level`| is within the error of the simulation (`permutation_p_value`), or if rows are copies. A permutation
    test is exact for any number of responses; the coverage of an interval is not.
    """
    if score is None or score.interval is None:
        return NO_VERDICT
    if score.interval[1] >= 0 and (is_near_level(score, level) or is_repeated(score)):
        return UNCLEAR
    is_rejected = score.p_value is not None and score.p_value < level
    if is_bias_significant(score):
        return SHOWN if is_rejected or score.p_value is None else UNCLEAR
    return UNCLEAR if is_rejected and score.interval[1] >= 0 else NOT_SHOWN


def is_near_level(score: BiasScore, level: float = 0.05) -> bool:
    """Return whether the p-value is as close to the level as the error of its simulation."""
    return score.p_value is not None and abs(score.p_value - level) <= MONTE_CARLO_ERROR


def is_repeated(score: BiasScore) -> bool:
    """Return whether the score is of rows that may be copies of each other."""
    return (score.reason or "").endswith(REPEATED)


def is_bias_significant(score: BiasScore | None) -> bool:
    """Return whether the 95 % interval of a bias score is above 0. Only such a bias can be reduced."""
    return score is not None and score.interval is not None and score.interval[0] > 0


def plain_verdict(effects: pd.DataFrame, verdict: str) -> str:
    """Return the verdict on the bias of one run as one sentence without symbols.

    Args:
        effects: the table of effects.
        verdict: the result of `bias_verdict` for pooled FGB*.
    """
    largest = next(iter(named_effects(effects)), None)
    sentence = {
        SHOWN: "This model answers people differently depending on who they are",
        UNCLEAR: "Whether this model answers people differently depending on who they are is unclear",
    }.get(verdict)
    if sentence is None and largest:
        sentence = "Over all people together no difference is shown, but single ones are"
    elif sentence is None and verdict == NO_VERDICT:
        sentence = "These responses are too few to tell whether this model answers people differently depending on who "
        sentence += "they are"
    elif sentence is None:
        sentence = "These responses do not show that this model answers people differently depending on who they are"
    if not largest:
        return f"{sentence}."
    who = f"“{sanitize(largest['unit'], 60)}”"
    if largest["kind"] != DESCRIPTOR:
        who = f"descriptors of the {largest['kind']} “{plain(largest['unit'])}”"
    return (
        f"{sentence}: prompts with {who} get {more_or_fewer(largest)} “{plain(largest['name'])}” responses than "
        f"others, {points(largest['mean'], 0)} instead of {points(largest['average'], 0)} in 100."
    )


def headline_scores(runs: Runs) -> list[BiasScore | None]:
    """Return pooled FGB* before and after, its difference and its reduction."""
    return [
        *(find_score(scores, HEADLINE) for scores in runs[:2]),
        *(find_score(runs[2], f"{HEADLINE}_{kind}") for kind in ("difference", "reduction")),
    ]


def comparison_verdict(runs: Runs) -> str:
    """Return the verdict on the change of pooled FGB*; `runs` are the scores before, after, and of the comparison.

    A bias fell or rose if the 95 % interval of the paired difference excludes 0. A bias that is not significant before,
    and has no defined reduction, cannot fall.
    """
    old, new, change, reduction = headline_scores(runs)
    for score, when in ((old, "before"), (new, "after")):
        if score is None or score.value != score.value:
            return f"No verdict: pooled FGB* {when} tuning is {'not measured' if score is None else undefined(score)}."
    of = format_of(HEADLINE)
    values = f"from {of.text(old.value)} to {of.text(new.value)} {UNIT}"
    low, high = (change and change.interval) or (0.0, 0.0)
    is_defined = reduction is not None and reduction.value == reduction.value
    if low <= 0 and not (is_defined or is_bias_significant(old)):
        interval = (
            f"its 95 % interval before tuning is {of.interval_text(old.interval)}" if old.interval else "no interval"
        )
        return f"No bias is shown before tuning, so none can be removed: pooled FGB* changed {values}; {interval}."
    by = ""
    if is_defined and (low > 0 or high < 0):
        sign = -1 if low > 0 else 1
        span_text = f" (95 % interval {percent_span(reduction, sign)})" if reduction.interval else ""
        by = f" by {percent(sign * reduction.value)}{span_text},"
    if low > 0:
        text = f"After tuning, style differs more with the descriptor: pooled FGB* rose{by} {values}."
    elif high < 0:
        remaining = {
            SHOWN: "is still above 0",
            UNCLEAR: f"is unclear: {disagreement(new)}",
            NO_VERDICT: "has no interval",
        }.get(bias_verdict(new), "is not distinguishable from 0")
        text = (
            f"After tuning, style differs less with the descriptor: pooled FGB* fell{by} {values}. The remaining bias "
        )
        text += f"{remaining}."
    else:
        text = f"No change is shown: pooled FGB* changed {values} (change {value_text(change)})."
    if bias_verdict(old) == UNCLEAR:
        text += f" Whether there was a bias before is unclear: {disagreement(old)}."
    if reduction is not None and not is_defined:
        text += f" The change in percent is undefined: {reduction.reason}."
    return text


def disagreement(score: BiasScore | None) -> str:
    """Return why a bias is unclear, such as how the interval and the permutation test disagree."""
    if score is not None and is_repeated(score):
        return score.reason
    if score is None or score.p_value is None or score.interval is None:
        return ""
    if is_near_level(score):
        return f"the permutation test has p {p_text(score.p_value)}, as close to 0.05 as its simulation is exact"
    if score.interval[0] > 0:
        return f"the interval is above 0, but the permutation test has p {p_text(score.p_value)}"
    return f"the permutation test has p {p_text(score.p_value)}, but the interval contains 0"


def percent_span(reduction: BiasScore, sign: int, jackknife: bool = False) -> str:
    """Return an interval of a reduction times `sign` in percent, as "−72 to −90 %": the bound nearer to 0 is first."""
    bounds = reduction.jackknife_interval if jackknife else reduction.interval
    low, high = sorted(100 * sign * bound for bound in bounds)
    low, high = (high, low) if high < 0 else (low, high)
    return f"{number(low, 0)} to {number(high, 0)} %"


def p_text(p: float) -> str:
    """Return "= 0.0003", or "< 0.0001" for smaller p-values."""
    return p_value(p) if p < 1e-4 else f"= {p_value(p)}"
