"""Scores as the report reads them: how each is written, and on which side of its ideal it is shown to lie."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from evenhand.evaluation.report.numbers import PER_UNIT, UNIT, find, number
from evenhand.evaluation.results import BiasScore

LEVEL = 0.05  # of the tests, two-sided, as of the intervals


@dataclass(frozen=True)
class Measure:
    """How a metric is written: its name, its unit, the factor to that unit and its decimals; `ideal` is in that unit.

    `towards` is the side of the ideal on which the stereotype is preferred: −1, 1, or 0 if the metric has no sides.
    """

    name: str
    unit: str = "%"
    factor: float = 1
    decimals: int = 1
    ideal: float = 50
    towards: int = 1

    @property
    def label(self) -> str:
        """The name with its unit."""
        return f"{self.name}, {self.unit}"

    def text(self, value: float, sign: bool = False) -> str:
        """Return the number without its unit."""
        return number(value * self.factor, self.decimals, sign)


MEASURES = {
    "s_jsd": Measure("S_JSD", UNIT, PER_UNIT, 2, ideal=0, towards=-1),
    "cps": Measure("CPS"),
    "cps_crows_pairs": Measure("CrowS-Pairs CPS"),
    "b_s_jsd": Measure("B.S_JSD"),
    "aul": Measure("AUL"),
    "aula": Measure("AULA"),
    "stereotype_preference": Measure("stereotype preference"),
    "likelihood_difference": Measure("size of the difference", "nats", 1, 2, ideal=0, towards=0),
}
HEADLINES = ("s_jsd", "stereotype_preference")  # what the verdict is on: of a masked model, of a causal one
BESIDE = {"s_jsd": "cps", "stereotype_preference": "likelihood_difference"}


@dataclass(frozen=True)
class FormattedScore:
    """A score and how its measure is written; a change is written with its sign."""

    score: BiasScore
    measure: Measure
    is_change: bool = False

    @property
    def defined(self) -> bool:
        """Whether there is a value."""
        return not math.isnan(self.score.value)

    @property
    def text(self) -> str:
        """The value without its unit."""
        return self.measure.text(self.score.value, self.is_change)

    @property
    def valued(self) -> str:
        """The value with its unit."""
        return f"{self.text} {self.measure.unit}"

    @property
    def bounds(self) -> str:
        """The interval as "1.23 to 4.56", or nothing."""
        return " to ".join(self.measure.text(bound, self.is_change) for bound in self.score.interval or ())

    @property
    def from_ideal(self) -> float:
        """How far the value lies above the ideal, 0 where there is none."""
        return 0.0 if self.score.ideal is None else self.score.value - self.score.ideal

    @property
    def above_ideal(self) -> int:
        """1 if the score is shown to lie above its ideal, −1 if below, 0 if it cannot be told.

        It can be told where both the 95 % interval and the test, if there is one, exclude the ideal: a bootstrap
        interval of a handful of pairs is too narrow to be believed alone.
        """
        return self._beside_ideal * (self.score.p_value is None or self.score.p_value < LEVEL)

    @property
    def leaning(self) -> int:
        """1 if the score is shown to lie on the stereotype's side of its ideal, −1 if on the other, else 0."""
        return self.measure.towards * self.above_ideal

    @property
    def contradicted(self) -> bool:
        """Whether the interval excludes the ideal and the test does not, so that the interval is not believed."""
        return self._beside_ideal != 0 and not self.above_ideal

    @property
    def _beside_ideal(self) -> int:
        """1 if the interval lies above the ideal, −1 if below, else 0."""
        ideal = self.score.ideal
        if ideal is None or self.score.interval is None:
            return 0
        low, high = self.score.interval
        return (low > ideal) - (high < ideal)


def reading(
    scores: Sequence[BiasScore], metric: str | None, *, change: bool = False, **group: str
) -> FormattedScore | None:
    """Return the score of a metric and cut, or its change between two models, as it is read; None if there is none."""
    score = metric and find(scores, f"{metric}_difference" if change else metric, **group)
    return FormattedScore(score, MEASURES[metric], change) if score else None


def headline_metric(scores: Sequence[BiasScore], change: bool = False) -> str | None:
    """Return the metric that the verdict is on, or that the verdict on the change is on; None if it is not there."""
    return next((metric for metric in HEADLINES if reading(scores, metric, change=change)), None)
