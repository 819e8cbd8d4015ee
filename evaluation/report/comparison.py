"""Scores side by side: which before belongs to which after, whether it changed, and how a number is written."""

import math
import re
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass, replace

from evaluation.report.content import ReportContent
from evaluation.results import BiasScore, find_score

METRIC_NAMES = {
    "fgb": "FGB",
    "fgb_corrected": "FGB*",
    "fgb_pooled_corrected": "pooled FGB*",
    "pgb": "PGB",
    "pgb_corrected": "PGB*",
    "pgb_pooled_corrected": "pooled PGB*",
    "scgb": "SCGB",
    "scgb_corrected": "SCGB*",
    "scgb_pooled_corrected": "pooled SCGB*",
}
HEADLINE = "fgb_pooled_corrected"
UNIT = "×10⁻³"
PER_UNIT = 1000.0  # bias metrics are shown times 1000, as in paper 002, Table 4

# Characters that would hide, reorder or break what is around them. Joiners stay: emoji and several scripts need them.
_INVISIBLE = {"Cc", "Cf", "Cs", "Zl", "Zp"}
_JOINERS = "\u200c\u200d"


@dataclass(frozen=True)
class Comparison:
    """One metric of one cut, before and after; what was not measured is None."""

    label: str
    metric: str
    before: BiasScore | None
    after: BiasScore | None = None
    difference: BiasScore | None = None
    reduction: BiasScore | None = None
    truth: BiasScore | None = None

    @property
    def direction(self) -> int:
        """-1 if the score fell, 1 if it rose, 0 if neither can be said.

        Judged by the 95 % interval of the paired difference; without one, by two 95 % intervals that do not
        overlap, which is stricter.
        """
        if self.before is None or self.after is None:
            return 0
        if self.difference is not None:
            lower, upper = self.difference.interval or (0.0, 0.0)
        elif self.before.interval is not None and self.after.interval is not None:
            lower = self.after.interval[0] - self.before.interval[1]
            upper = self.after.interval[1] - self.before.interval[0]
        else:
            return 0
        return (lower > 0) - (upper < 0)


def compare(content: ReportContent, metric: str, cut: str | None = None) -> list[Comparison]:
    """Return the comparisons of a metric: one for everything, or one for each value of `cut`, largest first."""
    groups = {
        tuple(score.group.items())
        for score in (*content.scores_before, *content.scores_after)
        if score.metric == metric and list(score.group) == ([] if cut is None else [cut])
    }
    comparisons = [
        Comparison(
            label=METRIC_NAMES.get(metric, metric) if cut is None else group[0][1],
            metric=metric,
            before=_score(content.scores_before, metric, group),
            after=_score(content.scores_after, metric, group),
            difference=_score(content.differences, f"{metric}_difference", group),
            reduction=_score(content.differences, f"{metric}_reduction", group),
            truth=_score(content.truth, metric, group),
        )
        for group in groups
    ]
    return sorted(comparisons, key=lambda row: (-finite(row.before or row.after, -math.inf), row.label))


def compare_further(content: ReportContent) -> list[Comparison]:
    """Return the headline for what was tuned on, for what was not, and by the second style classifier, as there are.

    What these were before and after is taken from the paired difference where it is not among the scores.
    """
    things = {"axis": "axes"}.get(content.unseen_by, f"{content.unseen_by}s")
    cuts = {
        ("seen", "yes"): f"{things} tuned on",
        ("seen", "no"): f"{things} never tuned on",
        ("classifier", "second"): "by the second style classifier",
    }
    found = []
    for cut, label in cuts.items():
        group = (cut,)
        difference = _score(content.differences, f"{HEADLINE}_difference", group)
        before, after = (_score(scores, HEADLINE, group) for scores in (content.scores_before, content.scores_after))
        if difference is not None and difference.ideal is not None and math.isfinite(difference.value):
            plain = replace(difference, metric=HEADLINE, ideal=0.0, interval=None, p_value=None)
            before = before or replace(plain, value=-difference.ideal)
            after = after or replace(plain, value=difference.value - difference.ideal)
        if before is not None or difference is not None:
            reduction = _score(content.differences, f"{HEADLINE}_reduction", group)
            found.append(Comparison(label, HEADLINE, before, after, difference, reduction))
    return found


def _score(scores: Iterable[BiasScore], metric: str, group: tuple[tuple[str, str], ...]) -> BiasScore | None:
    try:
        return find_score(list(scores), metric, **dict(group))
    except KeyError:
        return None


def finite(score: BiasScore | None, otherwise: float) -> float:
    """Return the score's value if there is one that is finite."""
    return score.value if score is not None and math.isfinite(score.value) else otherwise


def decimals_for(values: Iterable[float]) -> int:
    """Return how many decimals a column needs: two, or more where its largest number is below 0.1 in size."""
    largest = max((abs(value) for value in values if math.isfinite(value)), default=1.0)
    return 2 if largest == 0 else min(6, max(2, 1 - math.floor(math.log10(largest))))


def number(value: float, decimals: int = 2, sign: bool = False) -> str:
    """Return the number, rounded, with a true minus sign; what is shown as zero has no sign."""
    sign = sign and round(value, decimals) != 0
    return f"{value:{'+' if sign else ''}z,.{decimals}f}".replace("-", "−").replace("inf", "∞")


def interval(bounds: tuple[float, float] | None, decimals: int = 2, sign: bool = False) -> str:
    """Return "[1.23, 4.56]", or nothing where there is no interval."""
    return "" if bounds is None else f"[{number(bounds[0], decimals, sign)}, {number(bounds[1], decimals, sign)}]"


def percent(fraction: float, decimals: int = 0, sign: bool = False) -> str:
    """Return a fraction as a percentage."""
    return f"{number(100 * fraction, decimals, sign)} %"


def p_value(p: float) -> str:
    """Return "0.012", two digits, or "< 0.0001"."""
    return "< 0.0001" if p < 1e-4 else f"{p:.2g}"


def undefined(score: BiasScore) -> str:
    """Return why the score has no value."""
    return f"undefined: {visible(score.reason or '')}"


def visible(text: str, longest: int = 1000) -> str:
    """Return text on one line with nothing hidden in it: control, bidirectional and lone surrogate characters are
    written out, and what exceeds `longest` characters is counted instead of shown.
    """
    shown = re.sub(r"\r\n?|\n", "↵ ", text[:longest])
    shown = "".join(
        f"⟨U+{ord(character):04X}⟩"
        if unicodedata.category(character) in _INVISIBLE and character not in _JOINERS
        else character
        for character in shown
    )
    left_out = len(text) - longest
    return f"{shown} … ({left_out:,} more characters)" if left_out > 0 else shown
