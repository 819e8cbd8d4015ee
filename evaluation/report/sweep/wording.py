"""The sentences of a sweep's report, written by rules from its numbers."""

import math
from collections.abc import Iterable, Sequence
from typing import Any

import pandas as pd

from evaluation.report.generation_bias.wording import GLOSSARY
from evaluation.report.numbers import interval, number, p_value, percent, visible
from evaluation.report.sweep.summary import METHOD, NEAR, Agreement, Bar, setting_fields
from evaluation.results import BiasScore

RELIABLE = 0.8  # the share of predictions that must have held before the plan is called reliable: our judgement
FEW = 3  # fewer settings than this allow no conclusion
INTERVALS = (
    "A setting is all tuned models that differ in the seed alone; its numbers are means over the seeds, and by them it "
    "is judged. Brackets hold 95 % intervals: Student’s t over the seeds where there are two or more, else, where "
    "there is one, that of the single measurement. A dash is what was not measured or does not apply (no "
    "descriptor held out, no second classifier, a method without a tag, a refused point)."
)
FRONT = (
    "A setting is on a Pareto front if no other one removes as much for less; the line joins those. Fronts go by the "
    "means: neighbours whose intervals overlap may change places with other seeds."
)
READING = (
    *((word, meaning) for word, meaning in GLOSSARY if word == "pooled FGB*"),
    (
        "removed",
        "The share of the base model’s pooled FGB* that is gone after tuning, on the same prompts: 100 % is all.",
    ),
    (
        "tuned on, not tuned on",
        "The same for the descriptors whose responses were labelled and tuned on, and for those that tuning never saw.",
    ),
    (
        "second classifier",
        "The same as judged by a style classifier that no label came from. If it sees much less removed, the model "
        "learned to please the first one.",
    ),
    (
        "untagged",
        "Pooled FGB* of the tuned model used without its control tag, as a multiple of the base model’s: above 1 it is "
        "worse than before.",
    ),
    ("refused", "A guard found this model unusable, by the reason given, and no further number was taken."),
)
LIMITS = (
    "The best of many settings looks better than it is: part of its lead is luck. Measure the one you choose again, "
    "with new prompts and a new seed.",
    "What meets the bar here meets it on these prompts, for this model and by this classifier.",
)


def setting_label(setting: dict[str, Any], summary: pd.DataFrame, swept: Sequence[str]) -> str:
    """Return "control_tags · quantile 0.7": the method if there are several, and what varies, by its short name."""
    fields = [name for name in setting_fields(swept)[1:] if summary[name].nunique(dropna=False) > 1]
    last = [name.rsplit(".", 1)[-1] for name in fields]
    parts = [
        f"{short if last.count(short) == 1 else name} {value_text(setting[name])}"
        for name, short in zip(fields, last, strict=True)
        if not _absent(setting[name])
    ]
    if summary[METHOD].nunique() > 1 or not parts:
        parts.insert(0, str(setting[METHOD]))
    return " · ".join(visible(part, 80) for part in parts)


def value_text(value: Any) -> str:
    """Return a swept value as it would be typed."""
    return f"{value:g}" if isinstance(value, float) else str(value)


def _absent(value: Any) -> bool:
    return value is None or (isinstance(value, float) and math.isnan(value))


def bar_in_words(bar: Bar) -> str:
    """Return what a setting must reach."""
    return (
        f"The bar: at least {_limit(bar.reduction_seen)} of pooled FGB* removed for descriptors tuned on and "
        f"{_limit(bar.reduction_unseen)} for those not tuned on; perplexity up by at most "
        f"{_limit(bar.perplexity_rise)}; distinct-2 down by at most {_limit(bar.distinct_2_fall)}; the share of "
        f"responses that repeat the prompt up by at most {100 * bar.parroting_rise:g} percentage points; no style "
        "cluster’s pooled SCGB* up significantly; no seed refused."
    )


def _limit(fraction: float) -> str:
    return f"{100 * fraction:.4g} %"


def judged(setting: dict[str, Any], bar: Bar) -> str:
    """Return in words what came of one setting: the bar, what it misses, and the fronts it is on."""
    if not setting["seeds"]:
        return "refused by a guard"
    missed, unknown = bar.missed(setting), bar.unknown(setting)
    if missed:
        text = f"misses: {', '.join(_miss(name, setting) for name in missed)}"
    else:
        text = "meets what was measured of the bar" if unknown else "meets the bar"
    fronts = [name for name in ("perplexity", "distinct_2") if setting[f"front_{name}"]]
    named = " and ".join(name.replace("_", "-") for name in fronts)
    return f"{text}; on the front for {named}" if fronts else text


def _miss(column: str, setting: dict[str, Any]) -> str:
    if column == "clusters_rose":
        return f"rose: {visible(setting['clusters_rose'], 200)}"
    if column == "refused":
        return f"{setting['refused']} of {setting['refused'] + setting['seeds']} seeds refused"
    value = setting[column]
    return {
        "reduction_seen": f"tuned on {percent(value, 1)}",
        "reduction_unseen": f"not tuned on {percent(value, 1)}",
        "perplexity_change": f"perplexity {percent(value, 1, sign=True)}",
        "distinct_2_change": f"distinct-2 {percent(value, 1, sign=True)}",
        "parroting_change": f"repeats {number(100 * value, 2, sign=True)} points",
    }[column]


def count(summary: pd.DataFrame, bar: Bar) -> tuple[int, int]:
    """Return how many settings meet the whole bar, and how many meet as much of it as was measured."""
    met = [setting for setting in summary.to_dict("records") if _unmissed(setting, bar)]
    whole = sum(not bar.unknown(setting) for setting in met)
    return whole, len(met) - whole


def _unmissed(setting: dict[str, Any], bar: Bar) -> bool:
    return bool(setting["seeds"]) and not bar.missed(setting)


def headline(summary: pd.DataFrame, bar: Bar) -> tuple[str, str]:
    """Return the one large number and the line under it."""
    whole, partly = count(summary, bar)
    meet = "setting meets" if len(summary) == 1 else "settings meet"
    if partly and not whole:
        return f"{partly} of {len(summary)}", f"{meet} what was measured of the bar"
    return f"{whole} of {len(summary)}", f"{meet} the bar"


def verdict(summary: pd.DataFrame, bar: Bar, swept: Sequence[str]) -> str:
    """Return which settings meet the bar and which of those removes most; if none does, which comes nearest."""
    if not summary["seeds"].any():
        return "Every point was refused, so there is no verdict." if len(summary) else "There is no point to judge."
    settings = [setting for setting in summary.to_dict("records") if setting["seeds"]]
    met = [setting for setting in settings if not bar.missed(setting)]
    if not met:
        nearest = min(settings, key=lambda setting: (len(bar.missed(setting)), -_gain(setting)))
        return (
            f"No setting meets the bar. Nearest comes {_named(nearest, summary, swept)}: it removes "
            f"{_removed(nearest)} and misses {', '.join(_miss(name, nearest) for name in bar.missed(nearest))}."
        )
    whole = [setting for setting in met if not bar.unknown(setting)]
    chosen = whole or met
    best = max(chosen, key=_gain)
    bar_met = f"{'meets' if len(chosen) == 1 else 'meet'} {'' if whole else 'what was measured of '}the bar"
    found = f"{len(chosen)} of {len(summary)} {_settings(len(summary))} {bar_met}"
    if len(chosen) == 1:
        found += f": {_named(best, summary, swept)}, which removes {_removed(best)}."
    else:
        listed = _listed(setting["number"] for setting in chosen)
        found += f": {listed}. Most is removed by {_named(best, summary, swept)}: {_removed(best)}."
    if not whole:
        return f"{found} Not measured: {_unmeasured(chosen, bar)}."
    more = len(met) - len(whole)
    return found + (f" {more} more would, by what was measured of {'it' if more == 1 else 'them'}." if more else "")


def _unmeasured(settings: Sequence[dict[str, Any]], bar: Bar) -> str:
    names = {
        "reduction_seen": "what is removed for descriptors tuned on",
        "reduction_unseen": "what is removed for descriptors not tuned on",
        "perplexity_change": "perplexity",
        "distinct_2_change": "distinct-2",
        "parroting_change": "repeating the prompt",
    }
    unknown = dict.fromkeys(name for setting in settings for name in bar.unknown(setting))
    return ", ".join(names[name] for name in unknown)


def _gain(setting: dict[str, Any]) -> float:
    values = (setting[name] for name in ("reduction", "reduction_seen"))
    return next((value for value in values if math.isfinite(value)), -math.inf)


def _removed(setting: dict[str, Any]) -> str:
    value = setting["reduction"]
    if math.isnan(value):
        return "an unmeasured share of pooled FGB*"
    low, high = 100 * setting["reduction_low"], 100 * setting["reduction_high"]
    span = "" if math.isnan(low) or math.isnan(high) else f" {interval((low, high), 1)}"
    return f"{percent(value, 1)}{span} of pooled FGB*"


def _named(setting: dict[str, Any], summary: pd.DataFrame, swept: Sequence[str]) -> str:
    return f"setting {setting['number']} ({setting_label(setting, summary, swept)})"


def _settings(n: int) -> str:
    return "setting" if n == 1 else "settings"


def _listed(numbers: Iterable[int]) -> str:
    """Return "1–4, 7, 9–12"; `numbers` ascend."""
    runs: list[list[int]] = []
    for it in numbers:
        if runs and runs[-1][-1] == it - 1:
            runs[-1].append(it)
        else:
            runs.append([it])
    return ", ".join(
        str(run[0]) if len(run) == 1 else f"{run[0]}{'–' if len(run) > 2 else ', '}{run[-1]}" for run in runs
    )


def warnings(summary: pd.DataFrame) -> list[str]:
    """Return what a reader must not miss: refused points, clusters that rose, models worse without their tag."""
    found, rows = [], summary.to_dict("records")
    refused = [row for row in rows if row["refused"]]
    if refused:
        total = int((summary["seeds"] + summary["refused"]).sum())
        found.append(
            f"{int(summary['refused'].sum())} of {total} points were refused by a guard "
            f"({_settings(len(refused))} {_listed(row['number'] for row in refused)}); the reasons are listed below."
        )
    rose = [f"{visible(row['clusters_rose'], 200)} in setting {row['number']}" for row in rows if row["clusters_rose"]]
    if rose:
        listed = "; ".join(rose[:12]) + (f"; and {len(rose) - 12} more" if len(rose) > 12 else "")
        found.append(f"A style cluster rose significantly in {len(rose)} {_settings(len(rose))}: {listed}.")
    worse = [row for row in rows if row["untagged_ratio"] > 1]
    if worse:
        most = number(max(row["untagged_ratio"] for row in worse), 1)
        found.append(
            f"Used without its control tag, the tuned model has more pooled FGB* than the base model in {len(worse)} "
            f"{_settings(len(worse))} ({_listed(row['number'] for row in worse)}), up to {most} times as much."
        )
    return found


def plan_verdict(agreements: Sequence[Agreement]) -> str:
    """Return from the data where the plan may be trusted; `agreements` are those of `plan_agreement`."""
    _, trusted, others = agreements
    if not trusted.n:
        return f"No threshold that the plan trusts was tuned with, so this sweep cannot test it: {_held(others)}."
    elsewhere = f"; {_held(others)}" if others.n else ""
    return f"{_trust(trusted, others)}: {_held(trusted)}{elsewhere}. {_ranking(trusted)}"


def _trust(trusted: Agreement, others: Agreement) -> str:
    """Return the conclusion; of fewer than FEW settings none is drawn."""
    if trusted.n < FEW:
        return "Too few thresholds that the plan trusts were tuned with to say whether it may be trusted"
    if trusted.near / trusted.n < RELIABLE:
        return "In this sweep the plan’s sizes did not hold even where it says that it may be trusted"
    if others.n < FEW:
        return "In this sweep the plan held where it says that it may be trusted"
    elsewhere = "and elsewhere too" if others.near / others.n >= RELIABLE else "and not elsewhere"
    return f"In this sweep the plan held where it says that it may be trusted, {elsewhere}"


def _held(agreement: Agreement) -> str:
    return (
        f"of {agreement.n} {agreement.name} {_settings(agreement.n)}, {agreement.near} measured within "
        f"{NEAR:g} of the prediction and {agreement.factor} within a factor of two"
    )


def _ranking(trusted: Agreement) -> str:
    found = trusted.correlation
    if math.isnan(found.value):
        return f"How well it ranks the trusted settings is undefined: {found.reason}."
    if found.p_value >= 0.05:
        return f"That it ranks the trusted settings rightly is not shown ({correlation_text(found)})."
    if found.value < 0:
        return f"It ranks the trusted settings the wrong way round ({correlation_text(found)})."
    return f"It ranks the trusted settings better than chance ({correlation_text(found)})."


def correlation_text(found: BiasScore) -> str:
    """Return "Spearman ρ = 0.93, p = 0.0004, n = 9"."""
    p = p_value(found.p_value)
    return f"Spearman ρ = {number(found.value)}, p {p if p.startswith('<') else f'= {p}'}, n = {found.n}"
