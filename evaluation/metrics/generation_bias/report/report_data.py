"""Data of a report on generation bias: scores of one run, or paired scores of two runs and their changes."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pandas as pd

from evenhand.evaluation.metrics.generation_bias.metrics import BIAS
from evenhand.evaluation.report.formats import format_of
from evenhand.evaluation.report.numbers import PER_UNIT, decimals_for, value_or
from evenhand.evaluation.report.tables import ScoreChange
from evenhand.evaluation.score import BiasScore, find_score

HEADLINE = "fgb_pooled_corrected"
SHOWN, UNCLEAR, NOT_SHOWN, NO_INTERVAL = "shown", "unclear", "not shown", "no interval"
BIAS_METRICS = tuple(metric.name for metric in BIAS)


def bias_verdict(score: BiasScore | None, level: float = 0.05) -> str:
    """Return the verdict on a bias score: "shown", "unclear", "not shown" or "no interval".

    A bias is shown if its 95 % interval is above 0 and the permutation test, which only overall scores have, has
    p < `level`. With few responses, interval and test can disagree; the bias is then unclear. A permutation test is
    exact for any number of responses; the coverage of an interval is not.
    """
    if score is None or score.interval is None:
        return NO_INTERVAL
    is_rejected = score.p_value is not None and score.p_value < level
    if is_bias_significant(score):
        return SHOWN if is_rejected or score.p_value is None else UNCLEAR
    return UNCLEAR if is_rejected and score.interval[1] >= 0 else NOT_SHOWN


def is_bias_significant(score: BiasScore | None) -> bool:
    """Return whether the 95 % interval of a bias score is above 0. Only such a bias can be reduced.

    The permutation test is not used, since only the overall score has a permutation test.
    """
    return score is not None and score.interval is not None and score.interval[0] > 0


@dataclass(frozen=True)
class Comparison(ScoreChange):
    """The change of a metric between two runs, for all responses or one group; a bias also has a relative reduction."""

    truth: BiasScore | None = None
    metric: str = ""
    reduction: BiasScore | None = None

    @property
    def direction(self) -> int:
        """−1 if the score fell significantly, 1 if it rose, else 0.

        The score rose or fell if the 95 % interval of the paired difference excludes 0. Without a difference, the 95 %
        intervals before and after must not overlap, which is stricter. A bias that is not significant before cannot
        fall.
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
        return (lower > 0) - (upper < 0 and (self.has_bias_before or self.metric not in BIAS_METRICS))

    @property
    def has_bias_before(self) -> bool:
        """Whether the bias before is significant or has a defined reduction."""
        return is_bias_significant(self.before) or math.isfinite(value_or(self.reduction, math.nan))

    @property
    def verdicts(self) -> tuple[str, str]:
        """The verdicts (`bias_verdict`) on the bias before and after."""
        return bias_verdict(self.before), bias_verdict(self.after)

    @property
    def digits(self) -> int:
        """The number of decimals for displaying the scores before and after, times 1000."""
        return decimals_of([replace(self, truth=None)])


@dataclass(frozen=True)
class ReportData:
    """Data of a report on one run, or on two runs if `model_after` is set. Scores are paired by metric and group.

    Attributes:
        differences: scores of the comparison, among them `<metric>_difference` (after − before, in the metric's units)
            and `<metric>_reduction` (1 − after / before). The group "seen" is "yes" for prompts that tuning used and
            "no" for other prompts; the group "classifier" is "second" for the second style classifier.
        truth: exact scores of a testbed model, with the same metrics and groups.
        notes: sentences for the top of the report.
        tables: tables of the comparison by name (`page.TABLES`).
        samples, chosen_samples: results of `styled_responses.paired_samples`; chosen samples are responses to the
            descriptors with the highest mean bias value b.
        unseen_by: kind of values that tuning did not use: "descriptor", "axis" or "template".
        decoding: description of the decoding of the responses.
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
    def is_comparison(self) -> bool:
        """Whether the report compares two runs."""
        return self.model_after is not None

    def comparisons(self, metric: str, breakdown: str | None = None) -> list[Comparison]:
        """Return a metric's overall comparison, or one for each group of a breakdown such as "axis", largest first."""
        groups = dict.fromkeys(
            tuple(score.group.items())
            for score in (*self.scores_before, *self.scores_after)
            if score.metric == metric and list(score.group) == ([] if breakdown is None else [breakdown])
        )
        rows = [
            self._comparison(format_of(metric).label if breakdown is None else group[0][1], metric, dict(group))
            for group in groups
        ]
        return sorted(rows, key=lambda row: (-value_or(row.before or row.after, -math.inf), row.label))

    def overall(self, metric: str) -> Comparison | None:
        """Return the comparison of a metric over all responses; None if the metric was not measured."""
        return next(iter(self.comparisons(metric)), None)

    def checks(self) -> list[Comparison]:
        """Return comparisons of pooled FGB* for prompts used in tuning, other prompts, and the second style classifier.

        Scores before and after that were not measured are computed from the paired difference.
        """
        units = {"axis": "axes"}.get(self.unseen_by, f"{self.unseen_by}s")
        groups = {
            ("seen", "yes"): f"{units} tuned on",
            ("seen", "no"): f"{units} never tuned on",
            ("classifier", "second"): "by the second style classifier",
        }
        rows = []
        for group, label in groups.items():
            row = self._comparison(label, HEADLINE, dict([group]))
            change = row.difference
            if change is not None and change.ideal is not None and math.isfinite(change.value):
                plain = replace(change, metric=HEADLINE, ideal=0.0, interval=None, p_value=None)
                before = row.before or replace(plain, value=-change.ideal)
                row = replace(row, before=before, after=row.after or replace(plain, value=change.value - change.ideal))
            if row.before is not None or change is not None:
                rows.append(row)
        return rows

    def _comparison(self, label: str, metric: str, group: Mapping[str, str]) -> Comparison:
        return Comparison(
            label,
            find_score(self.scores_before, metric, **group),
            find_score(self.scores_after, metric, **group),
            find_score(self.differences, f"{metric}_difference", **group),
            find_score(self.truth, metric, **group),
            metric=metric,
            reduction=find_score(self.differences, f"{metric}_reduction", **group),
        )


def decimals_of(comparisons: Sequence[Comparison]) -> int:
    """Return the number of decimals for a table of comparisons, whose scores are displayed times 1000."""
    scores = (score for row in comparisons for score in (row.before, row.after, row.truth) if score is not None)
    return decimals_for(score.value * PER_UNIT for score in scores)
