"""Scores as reports write them: number, interval, and on which side of its ideal a score significantly lies."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

from evenhand.evaluation.report.metrics import Metric, metric_of
from evenhand.evaluation.report.numbers import value_or
from evenhand.evaluation.results import BiasScore, find_score

LEVEL = 0.05  # of the tests, two-sided, as of the intervals


@dataclass(frozen=True)
class FormattedScore:
    """A score, or the change of one between two models, with the record of its metric."""

    score: BiasScore

    @property
    def metric(self) -> Metric:
        """How the metric is written."""
        return metric_of(self.score)

    @property
    def is_defined(self) -> bool:
        """Whether there is a value."""
        return not math.isnan(self.score.value)

    @property
    def text(self) -> str:
        """The value without its unit."""
        return self.metric.text(self.score.value)

    @property
    def text_with_unit(self) -> str:
        """The value with its unit."""
        return f"{self.text} {self.metric.unit}".rstrip()

    @property
    def bounds(self) -> str:
        """The interval as "1.23 to 4.56", or nothing."""
        return " to ".join(map(self.metric.text, self.score.interval or ()))

    @property
    def distance_from_ideal(self) -> float:
        """The distance of the value above the ideal, in natural units; 0 if there is no ideal."""
        return 0.0 if self.score.ideal is None else self.score.value - self.score.ideal

    @property
    def direction_from_ideal(self) -> int:
        """1 if the score lies significantly above its ideal, −1 if below, 0 if neither is significant.

        Significant means that both the 95 % interval and the test, if there is one, exclude the ideal: a bootstrap
        interval of a handful of rows is too narrow to be used alone.
        """
        return self._side_of_interval * (self.score.p_value is None or self.score.p_value < LEVEL)

    @property
    def stereotype_direction(self) -> int:
        """1 if the score lies significantly on the stereotype's side of its ideal, −1 if on the other side, else 0."""
        return self.metric.stereotype_side * self.direction_from_ideal

    @property
    def is_contradicted(self) -> bool:
        """Whether the interval excludes the ideal and the test does not."""
        return self._side_of_interval != 0 and not self.direction_from_ideal

    @property
    def _side_of_interval(self) -> int:
        """1 if the interval lies above the ideal, −1 if below, else 0."""
        ideal = self.score.ideal
        if ideal is None or self.score.interval is None:
            return 0
        low, high = self.score.interval
        return (low > ideal) - (high < ideal)


def formatted_score(scores: Iterable[BiasScore], name: str | None, **group: str) -> FormattedScore | None:
    """Return the score of this name and cut as reports write it; None if the scores have none, or `name` is None."""
    score = name and find_score(scores, name, **group)
    return FormattedScore(score) if score else None


def sort_by_value(scores: Iterable[BiasScore], cut: str) -> list[BiasScore]:
    """Return scores by value, the largest first and undefined ones last; equal ones by the value of the cut."""
    return sorted(scores, key=lambda score: (-value_or(score, -math.inf), str(score.group[cut])))
