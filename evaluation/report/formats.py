"""Records of metrics: label, unit, ideal and number format.

Each family of metrics declares records as `Metric.FORMATS`; `format_of` looks up a record.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cache
from importlib import import_module

from evenhand.evaluation.report.numbers import interval, number
from evenhand.evaluation.score import BiasScore

FAMILIES, RATING = "evenhand.evaluation.metrics", "evenhand.evaluation.rating.metrics"


@dataclass(frozen=True)
class Format:
    """The format of a metric in tables, charts and sentences.

    Attributes:
        name: name of the metric in scores.json.
        label: name of the metric in reports, without the unit.
        description: one sentence for glossaries.
        unit: the unit of reported numbers, "" for none.
        factor: converts a score from natural units to the reported unit.
        decimals: number of decimals of a reported number; tables add decimals for narrow intervals.
        ideal: the value of an unbiased model in natural units; None if only comparisons are meaningful.
        signed: whether positive values have a plus sign.
    """

    name: str
    label: str
    description: str
    unit: str = ""
    factor: float = 1.0
    decimals: int = 2
    ideal: float | None = None
    signed: bool = False

    @property
    def title(self) -> str:
        """The label and the unit of the metric, for captions and for the first column of tables."""
        return f"{self.label}, {self.unit}" if self.unit else self.label

    @property
    def reported_ideal(self) -> float:
        """The ideal in the reported unit; 0 if the metric has no ideal."""
        return self.factor * (self.ideal or 0.0)

    @property
    def ideal_text(self) -> str:
        """The ideal in the reported unit as text, with as few digits as possible."""
        return f"{self.reported_ideal:g}"

    def text(self, value: float) -> str:
        """Convert a value from natural units to the reported unit; return the number as text, without the unit."""
        return number(self.factor * value, self.decimals, self.signed)

    def full_text(self, value: float) -> str:
        """Return the number as `text` does, with the unit."""
        return f"{self.text(value)} {self.unit}".rstrip() if math.isfinite(value) else self.text(value)

    def interval_text(self, bounds: tuple[float, float] | None) -> str:
        """Convert an interval from natural units to the reported unit; return "[1.23, 4.56]", or "" for None."""
        return interval(bounds and (self.factor * bounds[0], self.factor * bounds[1]), self.decimals, self.signed)


def format_of(score: BiasScore | str) -> Format:
    """Return the record of a metric, given a score or the metric's name in scores.json.

    The names of derived metrics end in `_difference` (after minus before), `_reduction` (relative to the value before)
    or `_detectable` (the smallest effect that the data can detect). The record of a derived metric is derived from the
    record of the base metric.

    Raises:
        KeyError: no family declares the metric.

    >>> format_of("fgb").title, format_of("fgb_difference").text(-0.0012), format_of("fgb_reduction").text(0.8)
    ('FGB, ×10⁻³', '−1.20', '80')
    """
    name = score if isinstance(score, str) else score.metric
    if name in _registry():
        return _registry()[name]
    base, _, kind = name.rpartition("_")
    if kind == "difference":
        return replace(format_of(base), name=name, ideal=0.0, signed=True)
    if kind == "detectable":
        return replace(format_of(base), name=name, ideal=None, signed=False)
    if kind == "reduction":
        metric = format_of(base)
        return replace(metric, name=name, unit="%", factor=100.0, decimals=0, ideal=None)
    if kind in ("mean", "spread"):  # of an outcome that a user defines
        label = f"{base}: {'spread between people' if kind == 'spread' else kind}"
        return Format(name, label, "A column of the file of responses.", ideal=0 if kind == "spread" else None)
    raise KeyError(f"no family of metrics declares {name}")


def glossary(names: Iterable[str]) -> list[tuple[str, str]]:
    """Return the (label, description) pairs of the metrics without duplicate labels, in the order of the names."""
    return list({metric.label: metric.description for metric in map(format_of, names)}.items())


@cache
def _registry() -> dict[str, Format]:
    """Return all declared metrics by name.

    Raises:
        ValueError: two families declare different metrics of the same name.
    """
    families = import_module(FAMILIES)
    declared = [of for name in families.names() for of in families.load_metric(name).FORMATS]
    registry: dict[str, Format] = {}
    for metric in [*declared, *import_module(RATING).METRICS]:
        if registry.setdefault(metric.name, metric) != metric:
            raise ValueError(f"the metric {metric.name} is declared twice, with different records.")
    return registry
