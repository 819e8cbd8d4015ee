"""Scores side by side: which before belongs to which after, and whether it changed."""

import math
from dataclasses import dataclass, replace

from evaluation.report.generation_bias.content import GenerationContent
from evaluation.report.numbers import find, finite
from evaluation.results import BiasScore

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


def compare(content: GenerationContent, metric: str, cut: str | None = None) -> list[Comparison]:
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
            before=find(content.scores_before, metric, **dict(group)),
            after=find(content.scores_after, metric, **dict(group)),
            difference=find(content.differences, f"{metric}_difference", **dict(group)),
            reduction=find(content.differences, f"{metric}_reduction", **dict(group)),
            truth=find(content.truth, metric, **dict(group)),
        )
        for group in groups
    ]
    return sorted(comparisons, key=lambda row: (-finite(row.before or row.after, -math.inf), row.label))


def compare_further(content: GenerationContent) -> list[Comparison]:
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
        difference = find(content.differences, f"{HEADLINE}_difference", **dict(group))
        before, after = (
            find(scores, HEADLINE, **dict(group)) for scores in (content.scores_before, content.scores_after)
        )
        if difference is not None and difference.ideal is not None and math.isfinite(difference.value):
            plain = replace(difference, metric=HEADLINE, ideal=0.0, interval=None, p_value=None)
            before = before or replace(plain, value=-difference.ideal)
            after = after or replace(plain, value=difference.value - difference.ideal)
        if before is not None or difference is not None:
            reduction = find(content.differences, f"{HEADLINE}_reduction", **dict(group))
            found.append(Comparison(label, HEADLINE, before, after, difference, reduction))
    return found
