"""Effects of each descriptor and group on a measure: its values on the scale of its test, and the table of effects."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from evenhand.evaluation.metrics.generation_bias.answers import Answers
from evenhand.evaluation.metrics.generation_bias.engine.effects import COLUMNS, effect_table
from evenhand.evaluation.metrics.generation_bias.engine.levels import level_scores
from evenhand.evaluation.metrics.generation_bias.engine.values import MeasureValues, join_rare
from evenhand.evaluation.metrics.generation_bias.measures import ValueKind
from evenhand.evaluation.metrics.generation_bias.people import People, compared_people
from evenhand.evaluation.score import BiasScore
from evenhand.evaluation.statistics.cell_table import SetOfTests
from evenhand.evaluation.statistics.person_effects import Effects, joint_effects

SCALE = "scale"  # the column with the scale on which effects are analysed
MEASURE_COLUMNS = [*COLUMNS, SCALE]
SIZES = ("effect", "shrunk", "low", "high", "detectable", "at_most", "at_least", "mean", "average")  # in one unit


@dataclass(frozen=True)
class MeasureTests(SetOfTests):
    """A measure on the scale on which its effects are tested.

    Attributes:
        columns: measure and name of each column.
        scale: SHARE, of 0 and 1 and of classes; RATIO, of numbers from 0, such as lengths: log(1 + x), so that a mean
            is that of the typical answer and a few very long answers do not decide; NUMBER: the mid-rank over n, in
            [0, 1].
        unit: what the numbers were divided by, their standard deviation, so that a test does not depend on their unit;
            1 for shares.
    """

    columns: Sequence[tuple[str, str]] = ()
    scale: ValueKind = ValueKind.SHARE
    unit: float = 1.0


def measure_tests(parts: Sequence[MeasureValues]) -> MeasureTests:
    """Return the set of tests of a measure; of several if they are computed from the first one and are shares."""
    columns = [(values.name, str(column)) for values in parts for column in values.table]
    numbers = np.concatenate([values.numbers for values in parts], axis=1)
    name = parts[0].name
    if parts[0].kind.is_share:
        return MeasureTests(name, numbers, columns=columns)
    scale = parts[0].kind
    if scale == ValueKind.RATIO:
        numbers = np.log1p(numbers)
    else:
        ranks = pd.DataFrame(numbers).rank().to_numpy()
        numbers = (ranks - 0.5) / np.isfinite(numbers).sum(axis=0)
    known = numbers[np.isfinite(numbers)]
    deviation = float(known.std()) if len(known) else 0.0
    unit = deviation if deviation > 0 else 1.0
    return MeasureTests(name, numbers / unit, are_shares=False, columns=columns, scale=scale, unit=unit)


def measure_table(people: People, test_set: MeasureTests, found: Effects) -> pd.DataFrame:
    """Return a table as of `effects` with a row for each unit and column of a measure, in the measure's unit.

    The column `outcome` has the measure's name, `scale` the scale of its analysis. Of the scale NUMBER, numbers are
    ranks in [0, 1], whose average is ½. Of RATIO, a mean is the typical answer's value, exp(mean of log(1 + x)) − 1;
    differences and bounds are from it.
    """
    columns = pd.DataFrame(test_set.columns, columns=["outcome", "name"])
    names = [str(number) for number in columns.index]
    responses = replace(people.responses, values=test_set.values, columns=names)
    table = effect_table(replace(people, responses=responses), test_set, {}, found)
    of_column = columns.loc[table["name"].astype(int)].reset_index(drop=True)
    table = table.assign(outcome=of_column["outcome"], name=of_column["name"], scale=test_set.scale.value)
    for column in SIZES:
        table[column] *= test_set.unit
    if test_set.scale != ValueKind.RATIO:
        return table
    average = table["average"]
    typical = np.expm1(average)
    for column in ("effect", "shrunk", "low", "high", "detectable", "at_most"):
        table[column] = np.expm1(average + table[column]) - typical
    table["at_least"] = typical - np.expm1(average - table["at_least"])
    table["mean"] = np.expm1(table["mean"])
    table["average"] = typical
    return table


def tested_measures(
    responses: Answers,
    values: Mapping[str, MeasureValues],
    permutations: int,
    seed: int,
) -> tuple[dict[str, float | None], pd.DataFrame]:
    """Return the p-value of each measure and the table of all effects, tested jointly; None without permutations.

    Args:
        responses: the rows' templates, descriptors and axes, and the level; their style vectors are not used.
        values: the values of the measures, one row for each response.
        permutations: the number of permutations.
        seed: the seed of the permutations.
    """
    empty = pd.DataFrame(columns=MEASURE_COLUMNS)
    if not values:
        return {}, empty
    has_any = np.any([of_measure.has_value for of_measure in values.values()], axis=0)
    people = compared_people(responses, responses.groups(), has_any)
    if people is None:
        return dict.fromkeys(values), empty
    test_sets = [measure_tests([of_measure.rows(people.is_compared)]) for of_measure in values.values()]
    rng = np.random.default_rng(seed)
    found = joint_effects(people.design, test_sets, permutations, rng, responses.level)
    p_values = {}
    tables = []
    for test_set, effects in zip(test_sets, found, strict=True):
        p_values[test_set.name] = effects.overall_joint if permutations else None
        tables.append(measure_table(people, test_set, effects))
    return p_values, pd.concat(tables, ignore_index=True)


def measure_bias(
    responses: Answers,
    values: MeasureValues,
    *,
    permutations: int,
    seed: int = 0,
) -> tuple[list[BiasScore], pd.DataFrame]:
    """Return how much a measure depends on the descriptor, as scores, and the effects on each descriptor.

    Returns:
        The scores (`level_scores`); the p-value is of the permutation test that the measure does not depend on the
        descriptor. And a table as of `effects`, in units of the measure (`measure_table`).
    """
    joined = join_rare(values)
    p_values, table = tested_measures(responses, {joined.name: joined}, permutations, seed)
    return level_scores(responses, joined, p_values[joined.name]), table
