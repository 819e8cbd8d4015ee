"""Report on what an offensiveness classifier makes of the sentences themselves (paper 002, §3.3, B.3)."""

import math
from collections.abc import Mapping, Sequence
from datetime import date

import numpy as np
import pandas as pd

from evenhand.evaluation.datasets.holistic_bias import NONE
from evenhand.evaluation.datasets.mentions import NEUTRAL_DESCRIPTOR
from evenhand.evaluation.datasets.prompts import need
from evenhand.evaluation.families import FamilyRun, ReportContext
from evenhand.evaluation.families.offensiveness.metric import BANDS, offensiveness_bands, offensiveness_by_template
from evenhand.evaluation.report.numbers import find, finite, number, percent, visible
from evenhand.evaluation.report.page import Example, Page, Section
from evenhand.evaluation.report.sentences import Sentences
from evenhand.evaluation.report.tables import Cell, Row, Table, marks_of, number_cell, score_cell
from evenhand.evaluation.results import AXIS, DESCRIPTOR, TEMPLATE, TEXT, BiasScore

PROBABILITY, NEUTRAL_PROBABILITY = "probability", "neutral_probability"
SHARE, EFFECT = "offensive_share", "descriptor_effect"
EFFECTS_SHOWN, EXAMPLES_SHOWN = 10, 6  # at each end
NAMED_IN_BAND = 20  # descriptors; the others are counted
LONGEST_NAME, LONGEST_AXIS = 60, 40

say = Sentences(__file__)


def page(measured: FamilyRun, known: ReportContext) -> Page:
    """Return the report of one classifier on one set of sentences.

    Raises:
        InputError: a column of the table is missing.
    """
    table = measured.table("offensive_prompts")
    need(list(table), (TEXT, AXIS, TEMPLATE, DESCRIPTOR, PROBABILITY), "offensiveness table")
    table = table[table[DESCRIPTOR] != NONE].reset_index(drop=True)
    scores = [score for score in measured.scores if score.metric in (SHARE, EFFECT)]
    effect = find(scores, EFFECT)
    single = [score for score in scores if score.metric == EFFECT and list(score.group) == [DESCRIPTOR]]
    above, below = (
        sum(it.interval is not None and sign * it.interval[bound] > 0 for it in single)
        for sign, bound in ((1, 0), (-1, 1))
    )
    value, missing = finite(effect, math.nan), int(table[PROBABILITY].isna().sum())
    return Page(
        title="Offensiveness by descriptor",
        subtitle=f"{measured.config.settings.classifier.name} · {measured.config.prompts.dataset}",
        date=date.today().isoformat(),
        big=number(100 * value, 1, sign=True),
        under=say.under(effect),
        verdict=say.verdict(effect, above, below, len(single)),
        tables=[_overall_table(find(scores, SHARE, of="prompts"), effect)],
        notes=[say.counts(len(table) - missing, missing), *known.notes],
        sections=[
            _effect_section(single, table),
            _template_section(table),
            _band_section(table),
            _example_section(table),
        ],
        glossary=list(say.glossary.items()),
        limits=say.limits,
        signature=measured.signature(EFFECT),
        signature_lines=measured.signature_lines(EFFECT),
    )


def _overall_table(share: BiasScore | None, effect: BiasScore | None) -> Table:
    rows = tuple(
        Row(label, (score_cell(score, digits=2), Cell(f"{score.n:,}"), Cell(f"{score.n_left_out:,}")))
        for label, score in (("offensive sentences, %", share), ("descriptor effect, percentage points", effect))
        if score is not None
    )
    return Table("What the classifier finds offensive", ("measure", "value", "texts", "left out"), rows)


def _effect_section(single: Sequence[BiasScore], table: pd.DataFrame) -> Section:
    """Return the descriptors with the largest and with the smallest effect."""
    defined = sorted(
        (it for it in single if math.isfinite(it.value)), key=lambda it: (-it.value, str(it.group[DESCRIPTOR]))
    )
    axes = table.groupby(DESCRIPTOR)[AXIS].unique()
    n = min(EFFECTS_SHOWN, (len(defined) + 1) // 2)
    rows = tuple(_effect_row(score, axes) for score in [*defined[:n], *defined[max(n, len(defined) - n) :]])
    note = say.effects_note(len(single) - len(defined), len(single), len(defined) > 2 * n) if rows else ""
    caption = f"Effect of a descriptor, percentage points: the largest and the smallest of {len(defined):,}"
    shown = Table(caption, ("descriptor", "axis", "value", "sentences"), rows, note)
    return Section("By descriptor", [say.effects] if rows else [], [shown], first_screen=True)


def _effect_row(score: BiasScore, axes: Mapping[str, np.ndarray]) -> Row:
    name = score.group[DESCRIPTOR]
    of_axes = Cell(", ".join(_axis_name(axis) for axis in axes.get(name, ())), prose=True)
    cells = (of_axes, score_cell(score), Cell(f"{score.n:,}"))
    return Row(visible(str(name), LONGEST_NAME), cells, marks_of("before", score))


def _axis_name(axis: str) -> str:
    return visible(axis.replace("_", " "), LONGEST_AXIS)


def _template_section(table: pd.DataFrame) -> Section:
    """Return mean and standard deviation across descriptors by template (Table 13)."""
    found = offensiveness_by_template(table, table[PROBABILITY].to_numpy())
    rows = []
    for row in found.itertuples():
        shares = (number_cell(100 * it) for it in (row.mean, row.sd))
        cells = (*shares, Cell(f"{row.descriptors:,}"), Cell(f"{row.n:,}"))
        rows.append(Row(visible(row.template, LONGEST_NAME), cells))
    caption = "Offensiveness by template, %: mean and standard deviation across descriptors"
    columns = ("template", "mean", "std. deviation", "descriptors", "sentences")
    return Section("By template", [say.templates] if rows else [], [Table(caption, columns, tuple(rows))])


def _band_section(table: pd.DataFrame) -> Section:
    """Return which descriptors fall into the paper's ranges of offensiveness, for its templates (Table 12)."""
    present, tables = set(table[TEMPLATE]), []
    for template, ranges in BANDS.items():
        if template in present:
            found = offensiveness_bands(table, table[PROBABILITY].to_numpy(), {template: ranges})
            rows = tuple(
                Row(
                    f"{100 * row.low:.4g} to {100 * row.high:.4g} %",
                    (Cell(f"{row.n:,}"), Cell(_named(row.descriptors), prose=True)),
                )
                for row in found.itertuples()
            )
            tables.append(Table(f"“{template}”", ("mean offensiveness", "number", "descriptors"), rows))
    return Section("Descriptors by mean offensiveness", [say.bands] if tables else [], tables)


def _named(descriptors: Sequence[str]) -> str:
    names = [visible(name, LONGEST_NAME) for name in descriptors]
    if len(names) <= NAMED_IN_BAND:
        return ", ".join(names) or "(none)"
    half = NAMED_IN_BAND // 2
    return f"{', '.join(names[:half])}, … {len(names) - 2 * half:,} more …, {', '.join(names[-half:])}"


def _example_section(table: pd.DataFrame) -> Section:
    """Return the most offensive sentences, and those that their descriptor made so, one for each descriptor."""
    rows = table.assign(rise=math.nan)
    if NEUTRAL_PROBABILITY in table:
        rows["rise"] = table[PROBABILITY] - table[NEUTRAL_PROBABILITY]
    groups = (
        ("Highest probability", PROBABILITY, rows),
        ("Largest difference to the neutral descriptor", "rise", rows[rows["rise"] > 0]),
    )
    parts = []
    for title, by, part in groups:
        part = part[part[by].notna()].sort_values([by, TEXT], ascending=[False, True], kind="stable")
        part = part.drop_duplicates(DESCRIPTOR).head(EXAMPLES_SHOWN)
        parts.append(Section(title, examples=[_example(row) for row in part.to_dict("records")]))
    return Section("Sentences to read", [say.examples] if any(part.shown for part in parts) else [], parts=parts)


def _example(row: Mapping) -> Example:
    neutral = row.get(NEUTRAL_PROBABILITY, math.nan)
    facts = [_axis_name(row[AXIS]), visible(row[DESCRIPTOR], LONGEST_NAME), percent(row[PROBABILITY], 1)]
    if math.isfinite(neutral):
        facts.append(f"{percent(neutral, 1)} with “{NEUTRAL_DESCRIPTOR}”")
    return Example(" · ".join(facts), (("sentence", ((row[TEXT], False),)),))
