"""What a report shows: scores side by side, which before belongs to which after, and whether it changed."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pandas as pd

from evenhand.evaluation.families.generation_bias.metrics import BIAS
from evenhand.evaluation.report.metrics import metric_of
from evenhand.evaluation.report.numbers import PER_UNIT, decimals_for, value_or
from evenhand.evaluation.results import BiasScore, find_score

HEADLINE = "fgb_pooled_corrected"
BIAS_METRICS = tuple(metric.name for metric in BIAS)


def bias_shown(score: BiasScore | None) -> bool:
    """Whether a bias can be told from none: its 95 % interval lies above 0.

    The one rule of all verdicts: only such a bias can be reduced. The permutation test of the same score asks for as
    much (its p-value is two-sided), and decides nothing: other cuts have none.
    """
    return score is not None and score.interval is not None and score.interval[0] > 0


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
        overlap, which is stricter. A bias that is not shown before cannot have become less.
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
        return (lower > 0) - (upper < 0 and (self.shown or self.metric not in BIAS_METRICS))

    @property
    def shown(self) -> bool:
        """Whether there is a bias before: see `bias_shown`; a reduction is defined only where there is."""
        return bias_shown(self.before) or math.isfinite(value_or(self.reduction, math.nan))

    @property
    def defined(self) -> bool:
        """Whether both sides have a value."""
        return math.isfinite(self.change)

    @property
    def change(self) -> float:
        """After less before; NaN where one of them is not defined."""
        return value_or(self.after, math.nan) - value_or(self.before, math.nan)

    @property
    def relative_change(self) -> float:
        """After over before, less 1; NaN where that is not defined."""
        before = value_or(self.before, math.nan)
        return self.change / before if before else math.nan

    @property
    def digits(self) -> int:
        """How many decimals the values of both sides need, times 1000."""
        return decimals_of([replace(self, truth=None)])


@dataclass(frozen=True)
class ReportData:
    """Everything that a report shows. Without `model_after` it is the report of a single measurement.

    Scores are paired by metric and group. `differences` holds, under the metric names `<metric>_difference` (after
    minus before, in the metric's units: a fall is negative) and `<metric>_reduction` (the fraction of the before
    value that is gone: 0.8 is a fall by 80 %), the paired comparisons with interval and p-value; with the group "seen"
    ("yes" or "no") those of what was tuned on and of what was not, with the group "classifier" ("second") those by a
    second ruler; and the rank correlations `parroting_rho` and `frequency_rho`. `truth` holds what is known without
    sampling, under the same metric names and groups.

    `tables` are those of a comparison, by name (`changes.py`). `samples` and `chosen_samples`, to descriptors of the
    highest b, are as `rows.side_by_side` returns them. `unseen_by` says what was kept from tuning: "descriptor",
    "axis" or "template". `notes` are sentences that the reader must know. `decoding` says how responses were drawn.
    """

    model: str
    scores_before: Sequence[BiasScore]
    model_after: str | None = None
    scores_after: Sequence[BiasScore] = ()
    differences: Sequence[BiasScore] = ()
    truth: Sequence[BiasScore] = ()
    notes: Sequence[str] = ()
    tables: Mapping[str, pd.DataFrame] = field(default_factory=dict)
    samples: pd.DataFrame | None = None
    chosen_samples: pd.DataFrame | None = None
    unseen_by: str = "descriptor"
    signature: Mapping[str, Any] = field(default_factory=dict)
    decoding: str = ""

    @property
    def compared(self) -> bool:
        """Whether there is an "after"."""
        return self.model_after is not None

    def comparisons(self, metric: str, cut: str | None = None) -> list[Comparison]:
        """Return the comparisons of a metric: one for everything, or one for each value of `cut`, largest first."""
        groups = dict.fromkeys(
            tuple(score.group.items())
            for score in (*self.scores_before, *self.scores_after)
            if score.metric == metric and list(score.group) == ([] if cut is None else [cut])
        )
        found = [
            self._comparison(metric_of(metric).label if cut is None else group[0][1], metric, dict(group))
            for group in groups
        ]
        return sorted(found, key=lambda row: (-value_or(row.before or row.after, -math.inf), row.label))

    def overall(self, metric: str) -> Comparison | None:
        """Return the comparison of a metric over everything, if it was measured."""
        return next(iter(self.comparisons(metric)), None)

    def checks(self) -> list[Comparison]:
        """Return the headline for what was tuned on, for what was not, and by the second style classifier.

        What these were before and after is taken from the paired difference where it is not among the scores.
        """
        things = {"axis": "axes"}.get(self.unseen_by, f"{self.unseen_by}s")
        cuts = {
            ("seen", "yes"): f"{things} tuned on",
            ("seen", "no"): f"{things} never tuned on",
            ("classifier", "second"): "by the second style classifier",
        }
        found = []
        for cut, label in cuts.items():
            row = self._comparison(label, HEADLINE, dict([cut]))
            change = row.difference
            if change is not None and change.ideal is not None and math.isfinite(change.value):
                plain = replace(change, metric=HEADLINE, ideal=0.0, interval=None, p_value=None)
                before = row.before or replace(plain, value=-change.ideal)
                row = replace(row, before=before, after=row.after or replace(plain, value=change.value - change.ideal))
            if row.before is not None or change is not None:
                found.append(row)
        return found

    def _comparison(self, label: str, metric: str, group: Mapping[str, str]) -> Comparison:
        return Comparison(
            label,
            metric,
            find_score(self.scores_before, metric, **group),
            find_score(self.scores_after, metric, **group),
            find_score(self.differences, f"{metric}_difference", **group),
            find_score(self.differences, f"{metric}_reduction", **group),
            find_score(self.truth, metric, **group),
        )


def decimals_of(comparisons: Sequence[Comparison]) -> int:
    """Return how many decimals a table of these needs, times 1000."""
    scores = (score for row in comparisons for score in (row.before, row.after, row.truth) if score is not None)
    return decimals_for(score.value * PER_UNIT for score in scores)
