"""Scores formatted for reports, with the direction and the significance of the distance from the ideal."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

from evenhand.evaluation.report.metrics import Metric, metric_of
from evenhand.evaluation.report.numbers import value_or
from evenhand.evaluation.score import BiasScore, find_score

LEVEL = 0.05  # significance level of the two-sided tests and of the intervals


@dataclass(frozen=True)
class FormattedScore:
    """A score, or the change of a score between two models, in the format of the metric's record."""

    score: BiasScore

    @property
    def metric(self) -> Metric:
        """The `Metric` record of the score."""
        return metric_of(self.score)

    @property
    def is_defined(self) -> bool:
        """Whether the score has a value."""
        return not math.isnan(self.score.value)

    @property
    def text(self) -> str:
        """The value as text, in the reported unit, without the unit."""
        return self.metric.text(self.score.value)

    @property
    def text_with_unit(self) -> str:
        """The value as text, with the reported unit."""
        return f"{self.text} {self.metric.unit}".rstrip()

    @property
    def bounds(self) -> str:
        """The interval as the text "1.23 to 4.56", or "" without an interval."""
        return " to ".join(map(self.metric.text, self.score.interval or ()))

    @property
    def distance_from_ideal(self) -> float:
        """The score's value minus the ideal, in natural units; 0 without an ideal."""
        return 0.0 if self.score.ideal is None else self.score.value - self.score.ideal

    @property
    def direction_from_ideal(self) -> int:
        """1 if the score is significantly above the ideal, −1 if it is significantly below the ideal, else 0.

        A score is significant if the 95 % interval excludes the ideal and the p-value, if there is one, is below 0.05.
        The test is required because the bootstrap interval of a few rows is too narrow.
        """
        return self._interval_direction * (self.score.p_value is None or self.score.p_value < LEVEL)

    @property
    def stereotype_direction(self) -> int:
        """1 if the model significantly prefers stereotypes, −1 if it significantly avoids stereotypes, else 0."""
        return self.metric.stereotype_side * self.direction_from_ideal

    @property
    def is_contradicted(self) -> bool:
        """Whether the interval excludes the ideal but the p-value is not significant."""
        return self._interval_direction != 0 and not self.direction_from_ideal

    @property
    def _interval_direction(self) -> int:
        """1 if the whole interval is above the ideal, −1 if the whole interval is below the ideal, else 0."""
        ideal = self.score.ideal
        if ideal is None or self.score.interval is None:
            return 0
        low, high = self.score.interval
        return (low > ideal) - (high < ideal)


def formatted_score(scores: Iterable[BiasScore], name: str | None, **group: str) -> FormattedScore | None:
    """Return the formatted score of the metric `name` and the group; None if no score matches or `name` is None."""
    score = name and find_score(scores, name, **group)
    return FormattedScore(score) if score else None


def sort_by_value(scores: Iterable[BiasScore], cut: str) -> list[BiasScore]:
    """Return the scores sorted by descending value, then by the group's value for `cut`; undefined scores are last."""
    return sorted(scores, key=lambda score: (-value_or(score, -math.inf), str(score.group[cut])))
