"""Two or more attributes of people at once: the main effect of each, and whether one depends on the other.

People of `prompts.people` with several columns are combinations, such as “old woman”. A main effect is the difference
between a level ("old") and the mean over levels, with equal weight for each level of the others. Its labels are
permuted within template and levels of the other attributes (Anderson and ter Braak 2003, "Permutation tests for
multi-factorial analysis of variance", §3: exact); the interaction is in `statistics.interactions`.

Names stand for groups. A whole name, with all its answers, is exchanged between the levels of an attribute that it
signals, so that what is shown holds for names like these, and not for one unusual name.

Half of the page's error is for combinations, as on a page without attributes, and half for attributes: an equal part
for each attribute and each pair. (Holm's procedure over sets would not hold for single effects: after a true finding in
one set, the other set would get all of the error again.)
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations

import numpy as np
import pandas as pd

from evenhand.evaluation import columns
from evenhand.evaluation.data.crossed_prompts import CROSS, PERSON
from evenhand.evaluation.data.language.mentions import FORMS
from evenhand.evaluation.facts import Finding
from evenhand.evaluation.metrics import FamilyRun
from evenhand.evaluation.metrics.generation_bias.answers import Answers
from evenhand.evaluation.metrics.generation_bias.engine.effects import (
    COLUMNS,
    FAMILY_LEVEL,
    INCONCLUSIVE,
    SHOWN,
    effect_table,
    style_tests,
)
from evenhand.evaluation.metrics.generation_bias.engine.measure_effects import SCALE, MeasureTests, measure_table
from evenhand.evaluation.metrics.generation_bias.measures import ValueKind
from evenhand.evaluation.metrics.generation_bias.parts import ClassifiedRun, JointTests, Part
from evenhand.evaluation.metrics.generation_bias.parts.effects import effect_interval, read_effects
from evenhand.evaluation.metrics.generation_bias.parts.outcomes import OutcomesPart, effect_row
from evenhand.evaluation.metrics.generation_bias.people import EffectRow, People, compared_people
from evenhand.evaluation.metrics.generation_bias.words import note
from evenhand.evaluation.report.formats import Format
from evenhand.evaluation.report.numbers import number, sanitize
from evenhand.evaluation.report.page import Cell, Row, Section, Table
from evenhand.evaluation.score import BiasScore
from evenhand.evaluation.statistics.cell_table import MIN_TEMPLATES, SetOfTests
from evenhand.evaluation.statistics.cells import to_codes
from evenhand.evaluation.statistics.interactions import Contrasts, crossed_contrasts, nested_contrasts
from evenhand.evaluation.statistics.person_effects import joint_effects
from evenhand.evaluation.tables import table_rows

ATTRIBUTE_EFFECTS = "attribute_effects"  # the table
ATTRIBUTE_EFFECT = "attribute_effect"
ERROR_SHARE = 0.5  # of the page's error, for attributes
MIN_NAMES = 10  # of each level of an attribute that names signal
MIN_NAMES_OF_BOTH = 2  # of each combination of two attributes that names signal: one has no variance
MIN_ROWS = 5  # also if fewer effects are shown
MAX_ROWS = 20


@dataclass(frozen=True)
class Attributes:
    """The attributes of a run's people.

    Attributes:
        levels: attribute → the level of each answer's person, (n,).
        nested: the attributes that names signal: each name has one level.
        name: the name in each answer's prompt, with its groups, (n,); empty without names.
    """

    levels: Mapping[str, pd.Series]
    nested: Sequence[str] = ()
    name: pd.Series = field(default_factory=lambda: pd.Series(dtype=str))

    def others(self, attributes: Sequence[str]) -> np.ndarray:
        """Return a code of the levels of all other attributes, of each answer, (n,)."""
        rest = [series for attribute, series in self.levels.items() if attribute not in attributes]
        if not rest:
            return np.zeros(len(next(iter(self.levels.values()))), dtype=int)
        return to_codes(pd.Series([CROSS.join(values) for values in zip(*rest, strict=True)]))

    @property
    def n_sets(self) -> int:
        """The number of sets of tests: the attributes and their pairs."""
        return len(self.levels) * (len(self.levels) + 1) // 2


class AttributesPart(Part):
    """What each attribute of people does, and whether one depends on another."""

    FORMATS = (
        Format(
            ATTRIBUTE_EFFECT,
            "effect of an attribute",
            "Difference of a level of an attribute from the mean over levels, or the contrast of two attributes.",
            decimals=3,
            ideal=0,
            signed=True,
        ),
    )

    def score(self, run: ClassifiedRun, tests: JointTests) -> list[BiasScore]:
        attributes = attributes_of(run.responses.table)
        permutations = run.config.settings.permutations
        if attributes is None or not permutations:
            return []
        reason = why_not_tested(attributes, run.responses.table)
        if reason:
            run.store.record["attributes_not_tested"] = reason
            return []
        table = attribute_effects(run, attributes)
        run.store.write(ATTRIBUTE_EFFECTS, table)
        scores = []
        for row in table_rows(table[table["certainty"] == SHOWN]):
            scores.append(
                BiasScore(
                    ATTRIBUTE_EFFECT,
                    row["effect"],
                    ideal=0.0,
                    bounds=(-np.inf, np.inf),
                    n=int(row["n"]),
                    n_of="names" if row["of_names"] else "responses",
                    interval=(row["low"], row["high"]),
                    p_value=row["p_joint"],
                    group={row["kind"]: row["unit"], row["outcome"]: row["name"]},
                )
            )
        return scores

    def sections(self, run: FamilyRun) -> list[Section]:
        effects = read_effects(run, ATTRIBUTE_EFFECTS)
        if effects.empty:
            return []
        order = np.argsort(effects["p_joint"].to_numpy(), kind="stable")
        n_shown = int((effects["certainty"] == SHOWN).sum())
        n_rows = min(max(n_shown, MIN_ROWS), MAX_ROWS)
        rows = [_row(row) for row in table_rows(effects.iloc[order].head(n_rows))]
        columns = ("who", "answers", "average", "difference", "unit", "certainty")
        notes = [
            note("attributes", n_shown=n_shown, n=len(effects)),
            note("about_attributes"),
        ]
        caption = "Levels of attributes, and contrasts of two: the surest"
        table = Table(caption, columns, tuple(rows), note("all_attributes"))
        return [Section("Attributes, one by one and together", notes, [table], first_screen=True)]


def shown_attributes(run: FamilyRun) -> list[Finding]:
    """Return [the attributes, one by one and in pairs, of which a difference is shown], or [] if there are none."""
    effects = read_effects(run, ATTRIBUTE_EFFECTS)
    shown = effects[effects["certainty"] == SHOWN]
    if shown.empty:
        return []
    is_style = bool((shown["outcome"] == columns.STYLE).any())
    is_other = bool((shown["outcome"] != columns.STYLE).any())
    names = list(dict.fromkeys(shown["kind"]))
    return [Finding("shown_attributes", {"names": names, "of_style": is_style, "of_others": is_other})]


def _row(row: EffectRow) -> Row:
    """Return the table row of a level or of a combination."""
    certainty = Cell(row["certainty"])
    if row["outcome"] != columns.STYLE:
        shown = effect_row(row)
        return replace(shown, cells=(*shown.cells, certainty))
    values = (
        Cell(f"mean {number(100 * row['mean'], 1)} (n = {row['n']:,.0f})"),
        Cell(number(100 * row["average"], 1)),
        Cell(number(100 * row["effect"], 1, sign=True), effect_interval(row, 100, 1, sign=True)),
        Cell("answers of 100"),
    )
    return Row(sanitize(f"{row['unit']}: {row['name']}", 80), (*values, certainty))


def attributes_of(table: pd.DataFrame) -> Attributes | None:
    """Return the attributes of people that are combinations, or groups under names; None if they are neither.

    A name signals an attribute unless all names have all of its levels, as names at two ages. A name of two groups,
    such as Alex, is one name in each.
    """
    axes = set(table[columns.AXIS])
    attributes = next(iter(axes)).split(CROSS) if len(axes) == 1 else []
    if not attributes or not set(attributes) <= set(table):
        return None
    levels = {attribute: table[attribute].astype(str) for attribute in attributes}
    if not _are_names(table):
        return Attributes(levels) if len(attributes) > 1 else None
    name = table[PERSON].astype(str)
    nested = []
    for attribute, of_answer in levels.items():
        if of_answer.groupby(name).nunique().min() < of_answer.nunique():
            nested.append(attribute)
    of_groups = [levels[attribute] for attribute in nested]
    return Attributes(levels, nested, pd.Series([CROSS.join(parts) for parts in zip(name, *of_groups, strict=True)]))


def _are_names(table: pd.DataFrame) -> bool:
    """Return whether the people are groups, each of which is asked about under names."""
    if PERSON not in table:
        return False
    group = table[columns.DESCRIPTOR].astype(str)
    has_other_text = (table[PERSON].astype(str) != group).any()
    return bool(has_other_text and (FORMS in table or group.str.contains(CROSS, regex=False).all()))


def has_attributes(table: pd.DataFrame) -> bool:
    """Return whether attributes are tested, so that combinations have a part of the page's error only."""
    attributes = attributes_of(table)
    return attributes is not None and not why_not_tested(attributes, table)


def why_not_tested(attributes: Attributes, table: pd.DataFrame) -> str:
    """Return why main effects and interactions are not tested; "" if they are."""
    levels = pd.DataFrame(dict(attributes.levels))
    n_combinations = len(levels.drop_duplicates())
    n_possible = int(np.prod(levels.nunique()))
    if n_combinations < n_possible:
        return f"only {n_combinations} of {n_possible} combinations of the attributes were asked about"
    if table[columns.TEMPLATE].nunique() < MIN_TEMPLATES:
        return f"fewer than {MIN_TEMPLATES} templates"
    for attribute in attributes.nested:
        fewest = attributes.name.groupby(attributes.levels[attribute]).nunique().min()
        if fewest < MIN_NAMES:
            return f"{attribute}: a level has {fewest} names; {MIN_NAMES} are needed"
    for pair in combinations(attributes.nested, 2):
        fewest = attributes.name.groupby([attributes.levels[attribute] for attribute in pair]).nunique().min()
        if fewest < MIN_NAMES_OF_BOTH:
            combination = CROSS.join(pair)
            return f"{combination}: a combination has {fewest} names; {MIN_NAMES_OF_BOTH} are needed"
    return ""


def names_of_groups(table: pd.DataFrame) -> list[Finding]:
    """Return [how many names stand for the people], or []: permutations of cells take names as given."""
    attributes = attributes_of(table)
    if attributes is None or not attributes.nested:
        return []
    is_tested = not why_not_tested(attributes, table)
    values = {"n": attributes.name.nunique(), "attributes": list(attributes.nested), "is_tested": is_tested}
    return [Finding("these_names", values)]


def attribute_effects(run: ClassifiedRun, attributes: Attributes) -> pd.DataFrame:
    """Return a table as of `effects`, with a row for each level and outcome, and for each contrast of two attributes.

    The column `kind` has the attribute or the pair, `unit` the level or the combination; `of_names` says whether n
    counts names. A contrast has no mean and no average but that of all people.
    """
    level = run.responses.level.part(ERROR_SHARE / attributes.n_sets)
    permutations = level.draws(run.config.settings.permutations)
    rng = np.random.default_rng(run.config.seed)
    tables = []
    for attribute in attributes.levels:
        people, test_sets = _level_test_sets(run, attributes, attribute)
        found = joint_effects(people.design, test_sets, permutations, rng, level)
        for test_set, effects in zip(test_sets, found, strict=True):
            if isinstance(test_set, MeasureTests):
                of_set = measure_table(people, test_set, effects)
            else:
                of_set = effect_table(people, test_set, {}, effects)
            of_names = attribute in attributes.nested
            tables.append(of_set.assign(kind=attribute, of_names=of_names))
    for first, second in combinations(attributes.levels, 2):
        tables.append(_interaction(run, attributes, (first, second), permutations, rng, FAMILY_LEVEL * level.share))
    return pd.concat(tables, ignore_index=True)


def _test_sets(run: ClassifiedRun, people: People) -> list[SetOfTests]:
    """Return the set of tests of styles, without clusters, and the sets of the measures."""
    return [style_tests(people.responses, {}), *OutcomesPart().test_sets(run, people)]


def _level_test_sets(run: ClassifiedRun, attributes: Attributes, attribute: str) -> tuple[People, list[SetOfTests]]:
    """Return the levels of an attribute as people, who are exchanged where all else is equal, and what is tested.

    What is equal is the template and the other attributes; of an attribute that names signal, a name is one row.
    """
    table = run.responses.table
    others = attributes.others([attribute])
    relabelled = table[[columns.TEMPLATE]].assign(
        **{
            columns.TEMPLATE: [
                f"{template} {code}" for template, code in zip(table[columns.TEMPLATE], others, strict=True)
            ],
            columns.DESCRIPTOR: attributes.levels[attribute],
            columns.AXIS: attribute,
        }
    )
    has_value = np.any([run.responses.has_value(), *(values.has_value for values in run.outcomes.values())], axis=0)
    people = compared_people(replace(run.responses, table=relabelled), None, has_value)
    if people is None:
        raise ValueError(f"no template has answers to two levels of {attribute}")
    test_sets = _test_sets(run, people)
    if attribute not in attributes.nested:
        return people, test_sets
    rows = people.is_compared
    template = to_codes(table[columns.TEMPLATE][rows])
    name, first = np.unique(attributes.name[rows], return_index=True)
    name_of_row = np.searchsorted(name, attributes.name[rows])
    of_names = pd.DataFrame(
        {
            columns.TEMPLATE: others[rows][first],
            columns.DESCRIPTOR: attributes.levels[attribute][rows].to_numpy()[first],
            columns.AXIS: attribute,
        }
    )
    test_sets = [
        replace(test_set, values=name_means(test_set.values, template, name_of_row), are_shares=False)
        for test_set in test_sets
    ]
    answers = Answers(of_names, test_sets[0].values, run.responses.columns)
    people = compared_people(answers, None, np.ones(len(answers), dtype=bool))
    if people is None:
        raise ValueError(f"no name has another level of {attribute} to be compared with")
    return people, test_sets


def name_means(values: np.ndarray, template: np.ndarray, name: np.ndarray) -> np.ndarray:
    """Return the mean of each name over its answers, less the templates' means plus the mean of all, (names, c).

    Args:
        values: values of n answers, (n, c); NaN where an answer has none.
        template, name: codes of each answer's template and name, (n,).
    """
    frame = pd.DataFrame(values)
    of_template = frame.groupby(template).transform("mean")
    return (frame - of_template).groupby(name).mean().to_numpy() + frame.mean().to_numpy()


def _interaction(
    run: ClassifiedRun,
    attributes: Attributes,
    pair: tuple[str, str],
    permutations: int,
    rng: np.random.Generator,
    level: float,
) -> pd.DataFrame:
    """Return the rows of the contrasts of two attributes; without those of measures that lack values in many cells."""
    table = run.responses.table
    everybody = compared_people(run.responses, None)
    if everybody is None:
        raise ValueError("no two people can be compared")
    rows = everybody.is_compared
    template = to_codes(table[columns.TEMPLATE][rows])
    levels = [attributes.levels[attribute][rows].reset_index(drop=True) for attribute in pair]
    codes = [to_codes(series) for series in levels]
    names = [np.unique(series) for series in levels]
    test_sets = _test_sets(run, everybody)
    of_names = set(pair) <= set(attributes.nested)
    values = np.concatenate([test_set.values for test_set in test_sets], axis=1)
    listed = pd.concat([_columns(test_set, run.responses.columns) for test_set in test_sets], ignore_index=True)
    if of_names:
        name, first = np.unique(attributes.name[rows], return_index=True)
        means = name_means(values, template, np.searchsorted(name, attributes.name[rows]))
        is_known = np.isfinite(means).all(axis=0)
        means = means[:, is_known]
        found = nested_contrasts(means, codes[0][first], codes[1][first], permutations, rng, level)
        n = len(means)
    else:
        cells = cell_means(values, template, codes)
        is_complete, is_known = complete_cells(cells)
        cells = cells[is_complete][..., is_known]
        found = crossed_contrasts(cells, permutations, rng, level)
        n = int(rows.sum())
    units = [CROSS.join(each) for each in ((first, second) for first in names[0] for second in names[1])]
    average = np.nanmean(values, axis=0)[is_known]
    return _contrast_table(found, units, listed.iloc[np.flatnonzero(is_known)], average, level).assign(
        kind=CROSS.join(pair), axis=CROSS.join(pair), n=n, of_names=of_names
    )


def cell_means(values: np.ndarray, template: np.ndarray, codes: Sequence[np.ndarray]) -> np.ndarray:
    """Return the means of the answers by template and levels of two attributes, (T, a, b, c); NaN without answers."""
    shape = [int(code.max()) + 1 for code in (template, *codes)]
    index = pd.MultiIndex.from_product([range(size) for size in shape])
    means = pd.DataFrame(values).groupby([template, *codes]).mean().reindex(index)
    return means.to_numpy().reshape(*shape, values.shape[1])


def complete_cells(cells: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return which templates, (T,) bool, and which columns, (c,) bool, are compared: all of their cells have a value.

    Columns are chosen from the fullest on, while half of the templates, and at least MIN_TEMPLATES, have all of them.

    Args:
        cells: means by template, levels of two attributes, and column, (T, a, b, c); NaN without a value.
    """
    has_values = np.asarray(np.isfinite(cells).all(axis=(1, 2)))
    is_complete = np.ones(len(cells), dtype=bool)
    is_known = np.zeros(cells.shape[3], dtype=bool)
    for column in np.argsort(-has_values.sum(axis=0), kind="stable"):
        both = is_complete & has_values[:, column]
        if both.sum() >= max(MIN_TEMPLATES, len(cells) / 2):
            is_complete = both
            is_known[column] = True
    return is_complete, is_known


def _columns(test_set: SetOfTests, styles: Sequence[str]) -> pd.DataFrame:
    """Return outcome, name, scale and unit of each column of a set of tests."""
    if isinstance(test_set, MeasureTests):
        return pd.DataFrame(test_set.columns, columns=["outcome", "name"]).assign(
            **{SCALE: test_set.scale.value, "divisor": test_set.unit}
        )
    return pd.DataFrame({"outcome": columns.STYLE, "name": list(styles), SCALE: ValueKind.SHARE.value, "divisor": 1.0})


def _contrast_table(
    found: Contrasts, units: Sequence[str], columns: pd.DataFrame, average: np.ndarray, level: float
) -> pd.DataFrame:
    """Return a row for each contrast and column, in the unit of the column."""
    table = pd.DataFrame({"unit": units}).merge(columns.assign(average=average), how="cross")
    for name, values in (("effect", found.value), ("low", found.low), ("high", found.high)):
        table[name] = values
    in_unit = ["effect", "low", "high", "average"]
    table[in_unit] = table[in_unit].mul(table["divisor"], axis=0)
    is_ratio = table[SCALE] == ValueKind.RATIO.value
    typical = np.expm1(table["average"])
    for name in ("effect", "low", "high"):
        table[name] = table[name].where(~is_ratio, np.expm1(table["average"] + table[name]) - typical)
    table["average"] = table["average"].where(~is_ratio, typical)
    share = level / FAMILY_LEVEL
    p_joint = np.minimum(found.p / share, 1.0)
    table = table.assign(
        mean=table["average"] + table["effect"],
        shrunk=table["effect"],
        p_joint=p_joint,
        p_set=found.p,
        certainty=np.where(found.p <= level, SHOWN, INCONCLUSIVE),
        hits=np.nan,
    )
    return table.drop(columns="divisor").reindex(columns=[*COLUMNS, SCALE])
