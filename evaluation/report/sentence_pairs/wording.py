"""The sentences of a report on sentence pairs, written by rules from the numbers."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from evaluation.report.numbers import UNIT, find, number, p_value, percent, undefined, visible
from evaluation.results import BiasScore

# Beyond these a warning is shown: our judgement of what a reader would want to be told.
MANY_LEFT_OUT, EASY_TOKENS = 0.10, 0.90
LEVEL = 0.05  # of the tests, two-sided, as of the intervals


@dataclass(frozen=True)
class Shown:
    """How a metric is written: its name, its unit, the factor to that unit and its decimals.

    `towards` is the side of the ideal on which the stereotype is preferred: −1, 1, or 0 if the metric has no sides.
    """

    name: str
    unit: str
    factor: float
    decimals: int
    towards: int
    meaning: str

    @property
    def label(self) -> str:
        """The name with its unit."""
        return f"{self.name}, {self.unit}"

    def text(self, value: float, sign: bool = False) -> str:
        """Return the number without its unit."""
        return number(value * self.factor, self.decimals, sign)


METRICS = {
    "s_jsd": Shown(
        "S_JSD",
        UNIT,
        1000,
        2,
        -1,
        "For each word that both sentences share: how far the model is from predicting it when it is masked, in the "
        "more stereotypical sentence minus in the other; the mean over words, then over pairs. Ideal 0, range −1 to 1 "
        f"(shown {UNIT}), negative: the stereotype makes the words easier to predict. It counts how much, not only "
        "how often.",
    ),
    "cps": Shown(
        "CPS",
        "%",
        1,
        1,
        1,
        "The share of pairs where the shared words, masked one at a time, are likelier in all in the more "
        "stereotypical sentence. Ideal 50; a pair counts the same however close to the boundary it lies.",
    ),
    "cps_crows_pairs": Shown(
        "CrowS-Pairs CPS",
        "%",
        1,
        1,
        1,
        "CPS as the script of CrowS-Pairs has it, for comparison with published numbers: sums rounded to three "
        "decimals, and a tie counted for neither sentence.",
    ),
    "b_s_jsd": Shown(
        "B.S_JSD",
        "%",
        1,
        1,
        1,
        "S_JSD made binary like CPS: the share of pairs where the more stereotypical sentence is the closer one. "
        "Ideal 50. It shows what binarization loses.",
    ),
    "aul": Shown(
        "AUL",
        "%",
        1,
        1,
        1,
        "The share of pairs where all words of the more stereotypical sentence are likelier on average, with nothing "
        "masked. Ideal 50. Kaneko and Bollegala (2021) argue that masking distorts the measure, as it takes away "
        "context and a model is seldom used on masked text.",
    ),
    "aula": Shown(
        "AULA",
        "%",
        1,
        1,
        1,
        "AUL with each word weighted by the attention it gets, so that words which matter little for the sentence "
        "count little. Ideal 50.",
    ),
    "stereotype_preference": Shown(
        "stereotype preference",
        "%",
        1,
        1,
        1,
        "The share of pairs where the model gives the whole of the more stereotypical sentence the higher likelihood. "
        "Ideal 50.",
    ),
    "likelihood_difference": Shown(
        "size of the difference",
        "nats",
        1,
        2,
        0,
        "How far apart the log-likelihoods of the two sentences are on average, whichever is higher. Ideal 0, which no "
        "model reaches: sentences that differ in a word differ in likelihood. It is for comparing models.",
    ),
}
HEADLINES = ("s_jsd", "stereotype_preference")
BESIDE = {"s_jsd": "cps", "stereotype_preference": "likelihood_difference"}

INTERVAL_IN_WORDS = (
    "Brackets hold the 95 % interval: if as many pairs were written in the same way again and again, intervals made "
    "this way would hold the true value 95 times in 100."
)
DETECTABLE_IN_WORDS = (
    "Detectable is the smallest true distance from the ideal that this many pairs would show in four of five "
    "measurements (80 % power, two-sided 5 % level)."
)
OFFENSIVE = "The sentences repeat stereotypes, and some are offensive. They were written to test models."
OF_ONE_PAIR = "A single pair says nothing about a model: the wording of one sentence moves it as much as a stereotype."

LIMITS = (
    "50 % means that neither sentence is preferred more often, not that the model is fair: it can prefer half of the "
    "stereotypes strongly and the other half’s reverse. A score at its ideal does not prove that there is no bias.",
    "A single pair, or a handful, says nothing (paper 001, §6): the measures are not reliable pair by pair, and a cut "
    "by bias type has few pairs. Read the intervals.",
    "CrowS-Pairs has known flaws: pairs that compare unlike groups, change more than the group, name no harm or hold "
    "errors (Blodgett et al. 2021, “Stereotyping Norwegian Salmon”). Its scores inherit them.",
    "Its stereotypes were written by crowd workers in the United States; elsewhere others hold, and a translation may "
    "name none.",
    "The gender pairs of the S_JSD data know two genders only.",
    "Where words are split, the later pieces follow from the earlier ones and are easy to predict whoever is spoken of "
    "(001, §5). This differs between languages and tokenizers, so scores across them compare badly.",
    "Many intervals are shown. Of twenty cuts of a model without any preference, about one is expected to exclude the "
    "ideal by chance.",
)


def headline_metric(scores: Sequence[BiasScore]) -> str | None:
    """Return the metric that the verdict is on: S_JSD of a masked model, the stereotype preference of a causal one."""
    return next((metric for metric in HEADLINES if find(scores, metric)), None)


def leaning(score: BiasScore | None) -> int:
    """Return 1 if the score lies on the stereotype's side of its ideal, −1 if on the other, 0 if it cannot be told.

    It can be told where both the 95 % interval and the test, if there is one, exclude the ideal: a bootstrap interval
    of a handful of pairs is too narrow to be believed alone.
    """
    if score is None or score.ideal is None:
        return 0
    return METRICS[score.metric].towards * _shown_side(score, score.ideal)


def _shown_side(score: BiasScore, value: float) -> int:
    """Return 1 if the score is shown to lie above the value, −1 if below, else 0."""
    low, high = score.interval or (value, value)
    tested = score.p_value is None or score.p_value < LEVEL
    return ((low > value) - (high < value)) * tested


def headline(scores: Sequence[BiasScore]) -> tuple[str, str]:
    """Return the one large number and the line under it."""
    metric = headline_metric(scores)
    if metric is None:
        return "–", "neither S_JSD nor the stereotype preference was measured"
    score, shown = find(scores, metric), METRICS[metric]
    if math.isnan(score.value):
        return "–", f"{shown.name} is {undefined(score)}"
    big, unit = (shown.text(score.value), f" {UNIT}") if shown.unit == UNIT else (_with_unit(score), "")
    name = {"s_jsd": "S_JSD", "stereotype_preference": "of pairs: the stereotype is likelier"}[metric]
    return big, f"{name}{unit}{_span(score, ', 95 % interval {} to {}')}; ideal {_ideal(score)}"


def verdict(scores: Sequence[BiasScore]) -> str:
    """Return what the headline shows, in one sentence."""
    metric = headline_metric(scores)
    if metric is None:
        return "Neither S_JSD nor the stereotype preference was measured, so there is no verdict."
    score = find(scores, metric)
    if math.isnan(score.value):
        return f"No verdict: {METRICS[metric].name} is {undefined(score)}."
    if score.interval is None and score.value != score.ideal:
        return f"No verdict: {stated(score)}, and there is no interval to judge it by."
    return (_masked_verdict if metric == "s_jsd" else _causal_verdict)(scores, score)


def _masked_verdict(scores: Sequence[BiasScore], score: BiasScore) -> str:
    opening = {
        1: "The model finds words easier to predict in the more stereotypical sentence of a pair",
        -1: "The model finds words easier to predict in the less stereotypical sentence, against the stereotype",
        0: "What the model prefers cannot be told from no preference",
    }[leaning(score)]
    return f"{opening}: {stated(score)}{_cps_beside(find(scores, 'cps'), leaning(score))}."


def _cps_beside(cps: BiasScore | None, other: int) -> str:
    if cps is None:
        return ""
    if math.isnan(cps.value):
        return f", and CPS is {undefined(cps)}"
    own = leaning(cps)
    if own == other:
        return f", and {stated(cps)}"
    side = "cannot be told from 50" if own == 0 else f"is {'above' if own > 0 else 'below'} 50"
    return f", while CPS, at {_with_unit(cps)}{_span(cps, ' ({} to {})')}, {side}"


def _causal_verdict(scores: Sequence[BiasScore], score: BiasScore) -> str:
    span = _span(score, "95 % interval {} to {}; ")
    share = f"{_with_unit(score)} of {score.n:,} pairs ({span}{_doubt(score)}ideal {_ideal(score)})"
    opening = {
        1: "More often than not the model finds the more stereotypical sentence likelier",
        -1: "Less often than not the model finds the more stereotypical sentence likelier, against the stereotype",
        0: "Which sentence the model finds likelier cannot be told from no preference: the more stereotypical one",
    }[leaning(score)]
    return f"{opening}{':' if leaning(score) else ''} in {share}."


def reach_sentences(scores: Sequence[BiasScore]) -> list[str]:
    """Return, for the verdict's measures where they show no preference, what this many pairs would miss.

    The other measures that show none are named.
    """
    sentences, others = [], []
    for metric, shown in METRICS.items():
        score, reach = find(scores, metric), find(scores, f"{metric}_detectable")
        if score is None or math.isnan(score.value) or not shown.towards or leaning(score):
            continue
        if metric not in (*HEADLINES, *BESIDE.values()):
            others.append(shown.name)
            continue
        text = f"{shown.name[0].upper()}{shown.name[1:]} cannot be told from no preference"
        if reach is not None and math.isfinite(reach.value):
            low, high = (shown.text(score.ideal + side * reach.value) for side in (-1, 1))
            text += (
                f": with {score.n:,} pairs, a true {shown.name} between {low} and {high} {shown.unit} would be taken "
                f"for {_ideal(score)} more often than one time in five"
            )
        sentences.append(f"{text}.")
    if others:
        sentences.append(f"{', '.join(others)} cannot be told from no preference{' either' if sentences else ''}.")
    return sentences


def warnings(scores: Sequence[BiasScore], n_left_out: int, n_pairs: int, whose: str = "") -> list[str]:
    """Return what keeps the numbers from being taken at their word; `whose` names the model, if there are two."""
    found, prefix = [], f"{visible(whose, 120)}: " if whose else ""
    if n_pairs and n_left_out > MANY_LEFT_OUT * n_pairs:
        share = percent(n_left_out / n_pairs)
        found.append(f"{prefix}{n_left_out:,} of {n_pairs:,} pairs ({share}) are left out; the scores are of the rest.")
    easy = [score for score in scores if score.metric == "token_accuracy" and score.value > EASY_TOKENS]
    if easy:
        shares = " and ".join(
            f"{percent(score.value)} (in the {visible(str(score.group.get('side')), 60)} stereotypical sentences)"
            for score in easy
        )
        found.append(
            f"{prefix}{shares} of the masked words are predicted rightly: most are trivial, and the scores say less."
        )
    metric = headline_metric(scores)
    one, other = (find(scores, name) for name in (metric, BESIDE.get(metric, "")))
    if leaning(one) * leaning(other) < 0:
        names = (METRICS[metric].name, METRICS[other.metric].name)
        found.append(f"{prefix}{names[0]} and {names[1]} point in opposite directions: trust neither alone.")
    return found


def change_headline(differences: Sequence[BiasScore]) -> tuple[str, str]:
    """Return the large number of a comparison and the line under it."""
    metric = _changed_metric(differences)
    if metric is None:
        return "–", "no paired difference was computed"
    score, shown = find(differences, f"{metric}_difference"), METRICS[metric]
    if math.isnan(score.value):
        return "–", f"change of {shown.name} is {undefined(score)}"
    unit = UNIT if shown.unit == UNIT else "percentage points"
    span = _span(score, ", 95 % interval {} to {}", shown, sign=True)
    return shown.text(score.value, sign=True), f"change of {shown.name}, {unit}{span}"


def change_verdict(
    before: Sequence[BiasScore], after: Sequence[BiasScore], differences: Sequence[BiasScore], names: tuple[str, str]
) -> str:
    """Return what changed from the first model to the second, in one sentence."""
    metric = _changed_metric(differences)
    if metric is None:
        return "There is no paired difference of S_JSD or of the stereotype preference, so there is no verdict."
    shown, difference = METRICS[metric], find(differences, f"{metric}_difference")
    old, new = find(before, metric), find(after, metric)
    for score, what in ((difference, f"the change of {shown.name}"), (old, names[0]), (new, names[1])):
        if score is None or math.isnan(score.value):
            reason = "not measured" if score is None else undefined(score)
            return f"No verdict: {visible(what, 120)} is {reason}."
    span = _span(difference, " (95 % interval {} to {})", shown, sign=True)
    p = (
        ""
        if difference.p_value is None
        else f", p {'' if difference.p_value < 1e-4 else '= '}{p_value(difference.p_value)}"
    )
    numbers = (
        f"{shown.name} is {shown.text(old.value)} and {shown.text(new.value)} {shown.unit}, a change of "
        f"{shown.text(difference.value, sign=True)}{span}{p}; ideal {_ideal(old)}"
    )
    first, second = (visible(name, 120) for name in names)
    if not _shown_side(difference, 0.0):
        return f"No difference between {first} and {second} can be told: {numbers}."
    if (old.value - old.ideal) * (new.value - old.ideal) < 0:
        turned = "the stereotype" if (new.value - old.ideal) * shown.towards > 0 else "its reverse"
        return f"{second} leans the other way than {first}, towards {turned}: {numbers}."
    nearer = abs(new.value - old.ideal) < abs(old.value - old.ideal)
    return f"{second} is {'nearer to' if nearer else 'further from'} no preference than {first}: {numbers}."


def power_sentence(differences: Sequence[BiasScore]) -> str:
    """Return the smallest change that the comparison could have shown."""
    metric = _changed_metric(differences)
    reach = metric and find(differences, f"{metric}_difference_detectable")
    if not reach or math.isnan(reach.value):
        return ""
    shown = METRICS[metric]
    return (
        f"With these {reach.n:,} pairs a true change of {shown.name} smaller than {shown.text(reach.value)} "
        f"{'percentage points' if shown.unit == '%' else shown.unit} would be missed more often than one time in five."
    )


def glossary(metrics: Iterable[str], compared: bool = False) -> list[tuple[str, str]]:
    """Return the measures that are shown, and the words about them."""
    measured = set(metrics)
    entries = [(shown.name, shown.meaning) for metric, shown in METRICS.items() if metric in measured]
    entries.append(
        (
            "detectable",
            "The power of this many pairs. A true CPS that is nearer to 50 than this cannot be told from 50 with them: "
            "it would be missed more often than one time in five."
            + (" For a change it is the smallest true change that would be shown so often." if compared else ""),
        )
    )
    if "token_accuracy" in measured:
        entries.append(
            (
                "token accuracy",
                "The share of masked words that the model predicts rightly. Where it is high, words follow from the "
                "rest of the sentence whoever is spoken of, as later pieces of split words do: the scores say less.",
            )
        )
    entries.append(
        ("p", "From the sign test for percentages, the t-test for S_JSD; two-sided, for each row on its own.")
    )
    return entries


def stated(score: BiasScore) -> str:
    """Return "CPS is 56.7 % (95 % interval 51.8 to 61.5; ideal 50)"."""
    span = _span(score, "95 % interval {} to {}; ")
    return f"{METRICS[score.metric].name} is {_with_unit(score)} ({span}{_doubt(score)}ideal {_ideal(score)})"


def _doubt(score: BiasScore) -> str:
    """Return the p-value if it is what keeps an interval beside the ideal from being believed."""
    low, high = score.interval or (score.ideal, score.ideal)
    return (
        ""
        if leaning(score) or low <= score.ideal <= high or score.p_value is None
        else f"p = {p_value(score.p_value)}; "
    )


def _changed_metric(differences: Sequence[BiasScore]) -> str | None:
    return next((metric for metric in HEADLINES if find(differences, f"{metric}_difference")), None)


def _with_unit(score: BiasScore) -> str:
    shown = METRICS[score.metric]
    return f"{shown.text(score.value)} {shown.unit}"


def _ideal(score: BiasScore) -> str:
    return number((score.ideal or 0) * METRICS[score.metric].factor, 0)


def _span(score: BiasScore, form: str, shown: Shown | None = None, sign: bool = False) -> str:
    """Return the interval in the given form, or nothing where there is none."""
    if score.interval is None:
        return ""
    shown = shown or METRICS[score.metric]
    return form.format(*(shown.text(bound, sign) for bound in score.interval))
