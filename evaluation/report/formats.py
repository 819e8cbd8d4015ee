"""Records of metrics: label, unit, ideal and number format.

Each family of metrics declares records as `Family.FORMATS` when it is loaded; `format_of` looks up a record.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

from evenhand.evaluation.report.numbers import interval, number
from evenhand.evaluation.score import BiasScore, Form, Kind

COLUMN = "A column of the file of responses."  # an outcome that a user defines
_DECLARED: dict[tuple[str, Form, Kind], "Format"] = {}  # of the families that are loaded


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
        form, kind: the form and the kind of the scores that have this format.
    """

    name: str
    label: str
    description: str
    unit: str = ""
    factor: float = 1.0
    decimals: int = 2
    ideal: float | None = None
    signed: bool = False
    form: Form = Form.PLAIN
    kind: Kind = Kind.LEVEL

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


def declare(formats: Iterable[Format]) -> None:
    """Register how reports show the metrics of a family: their labels, units and ideals.

    Raises:
        ValueError: another family declares a metric of the same name, form and kind with another record.
    """
    for metric in formats:
        if _DECLARED.setdefault((metric.name, metric.form, metric.kind), metric) != metric:
            raise ValueError(f"the metric {metric.name} is declared twice, with different records.")


def format_of(score: BiasScore) -> Format:
    """Return the record of a score's metric, form and kind.

    Raises:
        KeyError: no family declares the metric.
    """
    return find_format(score.metric, score.form, score.kind)


def find_format(metric: str, form: Form = Form.PLAIN, kind: Kind = Kind.LEVEL) -> Format:
    """Return the record of a metric, form and kind.

    Families declare the records of levels. Unless a family declares it, too, the record of a difference, of a reduction
    or of the smallest detectable value is derived from the record of the level.

    Raises:
        KeyError: no family that is loaded declares the metric.

    >>> from evenhand.evaluation.metrics import generation_bias
    >>> find_format("fgb").title, find_format("fgb", kind=Kind.DIFFERENCE).text(-0.0012)
    ('FGB, thousandths', '−1.20')
    >>> find_format("fgb", Form.POOLED_CORRECTED, Kind.REDUCTION).full_text(0.8)
    '80 %'
    """
    if (metric, form, kind) in _DECLARED:
        return _DECLARED[metric, form, kind]
    if (metric, form, Kind.LEVEL) in _DECLARED:
        level = _DECLARED[metric, form, Kind.LEVEL]
    elif form == Form.SPREAD:
        level = Format(metric, f"{metric}: spread between people", COLUMN, ideal=0, form=form)
    elif form == Form.MEAN:
        level = Format(metric, f"{metric}: mean", COLUMN, form=form)
    else:
        raise KeyError(f"no family of metrics declares {metric}, form {form}")
    if kind == Kind.DIFFERENCE:
        return replace(level, kind=kind, ideal=0.0, signed=True)
    if kind in (Kind.DETECTABLE, Kind.DETECTABLE_DIFFERENCE):
        return replace(level, kind=kind, ideal=None, signed=False)
    if kind == Kind.REDUCTION:
        return replace(level, kind=kind, unit="%", factor=100.0, decimals=0, ideal=None)
    return level


def glossary(metrics: Iterable[Format]) -> list[tuple[str, str]]:
    """Return the (label, description) pairs of the metrics without duplicate labels, in the given order."""
    return list({metric.label: metric.description for metric in metrics}.items())
