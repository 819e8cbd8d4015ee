"""Levels of a measure: the mean over answers, and the spread between people, each with its interval."""

import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from evenhand.evaluation.metrics.generation_bias.answers import Answers
from evenhand.evaluation.metrics.generation_bias.engine.estimates import (
    all_cells,
    pooled_estimate,
    root,
)
from evenhand.evaluation.metrics.generation_bias.engine.values import KIND, MeasureValues, with_values
from evenhand.evaluation.metrics.generation_bias.measures import ValueKind
from evenhand.evaluation.score import BiasScore, Form, Signature
from evenhand.evaluation.statistics.intervals import (
    ANY,
    Interval,
    mean_interval,
    share_interval,
    varies,
)
from evenhand.evaluation.statistics.person_pairs import reach_of_constant

OF_MEASURES: Signature = {"outcomes": "3"}  # their version, which their scores add to the signature of a run
CONSTANT = "no interval: every value is the same"
SHARES = (0.0, 1.0)


def level_scores(
    responses: Answers,
    values: MeasureValues,
    p_value: float | None = None,
) -> list[BiasScore]:
    """Return the spread of a measure between people, and the mean of each of its columns.

    The form SPREAD is the root of pooled FGB* of the columns: the standard deviation over descriptors of their mean,
    without the noise of sampling; of classes divided by √2, which makes it the share of responses that change their
    class (`scale_scores`). Ideal 0. Of shares and classes that no person's answers vary in, such as where nobody is
    refused, the interval is exact (`reach_of_constant`).

    Args:
        responses: the rows' templates and descriptors, and the level; their style vectors are not used.
        values: the values of the measure, one row for each response; rare classes are joined already.
        p_value: p-value of the test that people differ, if it was tested.
    """
    cells = all_cells(with_values(responses, values))
    spread = pooled_estimate(cells, level=responses.level)
    value, interval = root(spread.estimate.value, spread.estimate.interval, divisor(values))
    reason = spread.reason if values.has_value.any() else values.no_value
    reach = reach_of_constant(cells, responses.level.tail) if values.kind.is_share and interval is None else None
    if reach is not None:
        interval = (max(0.0, value - reach), min(1.0, value + reach))
        reason = None
    of_spread = BiasScore(
        values.name,
        value,
        ideal=0.0,
        bounds=(0, np.inf),
        n=spread.cells.n,
        interval=interval,
        p_value=None if math.isnan(value) else p_value,
        n_left_out=len(responses) - spread.cells.n,
        reason=reason,
        form=Form.SPREAD,
        caution=spread.caution,
        basis=basis_of(values),
    )
    return [replace(score, signature=OF_MEASURES) for score in (of_spread, *mean_scores(values))]


def mean_scores(values: MeasureValues) -> list[BiasScore]:
    """Return the mean of each column of a measure, in the form MEAN; it has no ideal."""
    scores = []
    for group, column in columns_of(values):
        is_known = np.isfinite(column)
        known = column[is_known]
        n = len(known)
        interval, reason = interval_of_mean(values, is_known, known)
        scores.append(
            BiasScore(
                values.name,
                float(known.mean()) if n else math.nan,
                ideal=None,
                bounds=bounds_of(values),
                n=n,
                interval=interval,
                n_left_out=len(column) - n,
                group=group,
                reason=reason,
                form=Form.MEAN,
                basis=basis_of(values),
            )
        )
    return scores


def interval_of_mean(
    values: MeasureValues, is_known: np.ndarray, known: np.ndarray
) -> tuple[Interval | None, str | None]:
    """Return the 95 % interval of the mean of the known values of a column, and why there is none.

    Of a share it is Wilson's, of a number Student's.
    """
    n = len(known)
    if not n:
        return None, values.no_value
    if values.kind.is_share:
        return share_interval(int(known.sum()), n), None
    if not varies(known):
        return None, CONSTANT
    return mean_interval(known, bounds_of(values), values.strata_of(is_known)), None


def bounds_of(values: MeasureValues) -> Interval:
    """Return the range of the mean of a measure."""
    if values.kind.is_share or values.kind == ValueKind.PROBABILITY:
        return SHARES
    return (0.0, math.inf) if values.kind == ValueKind.RATIO else ANY


def columns_of(values: MeasureValues) -> list[tuple[Mapping[str, str], np.ndarray]]:
    """Return the group and the values, (n,), of each column; an answer without a value has NaN in all of them."""
    numbers = np.where(values.has_value[:, None], values.numbers, np.nan)
    result: list[tuple[Mapping[str, str], np.ndarray]] = []
    for name, column in zip(values.table, numbers.T, strict=True):
        result.append(({"value": str(name)} if values.kind == ValueKind.CLASS else {}, column))
    return result


def divisor(values: MeasureValues) -> float:
    """Return by what pooled FGB* of a measure is divided: a response that changes its class moves two columns."""
    return 2.0 if values.kind == ValueKind.CLASS else 1.0


def basis_of(values: MeasureValues) -> dict[str, str]:
    """Return what another score of the measure must have in common: the kind of its values."""
    return {KIND: values.kind.value}
