"""Report on the offensiveness of prompts by a classifier (paper 002, §3.3, B.3)."""

import math
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from evenhand.evaluation.data.holistic_bias import NONE
from evenhand.evaluation.data.mentions import NEUTRAL_DESCRIPTOR
from evenhand.evaluation.data.prompts import require_columns
from evenhand.evaluation.families import FamilyRun, ReportContext
from evenhand.evaluation.families.offensiveness.metric import BANDS, offensiveness_bands, offensiveness_by_template
from evenhand.evaluation.report.formatted_scores import FormattedScore
from evenhand.evaluation.report.numbers import number, percent, sanitize, value_or
from evenhand.evaluation.report.page import Example, Page, Section
from evenhand.evaluation.report.sentences import Sentences
from evenhand.evaluation.report.tables import Cell, Row, Table, count_cells, number_cell, score_cell, score_marks
from evenhand.evaluation.score import AXIS, DESCRIPTOR, TEMPLATE, TEXT, BiasScore, find_score

PROBABILITY, NEUTRAL_PROBABILITY = "probability", "neutral_probability"
SHARE, EFFECT = "offensive_share", "descriptor_effect"
ROWS_AT_EACH_END, N_EXAMPLES = 10, 6
MAX_NAMES_IN_BAND = 20  # a band with more descriptors has the names at both ends and the number of the others
MAX_NAME_LENGTH, MAX_AXIS_LENGTH = 60, 40

text = Sentences(__file__)


def page(run: FamilyRun, context: ReportContext) -> Page:
    """Return the report on one set of prompts by one classifier.

    Raises:
        InputError: a column of the table is missing.
    """
    table = run.table("offensive_prompts")
    require_columns(list(table), (TEXT, AXIS, TEMPLATE, DESCRIPTOR, PROBABILITY), "offensiveness table")
    table = table[table[DESCRIPTOR] != NONE].reset_index(drop=True)
    scores = [score for score in run.scores if score.metric in (SHARE, EFFECT)]
    effect = find_score(scores, EFFECT)
    descriptor_effects = [score for score in scores if score.metric == EFFECT and list(score.group) == [DESCRIPTOR]]
    signs = [FormattedScore(score).direction_from_ideal for score in descriptor_effects]
    value, missing = value_or(effect, math.nan), int(table[PROBABILITY].isna().sum())
    return Page(
        title="Offensiveness by descriptor",
        subtitle=f"{run.config.settings.classifier.name} · {run.config.prompts.dataset}",
        headline_value=number(100 * value, 1, sign=True),
        headline_caption=text.headline_caption(effect),
        verdict=text.verdict(effect, signs.count(1), signs.count(-1), len(signs)),
        tables=[_overall_table(find_score(scores, SHARE, of="prompts"), effect)],
        notes=[text.counts(len(table) - missing, missing), *context.notes],
        sections=[
            _effect_section(descriptor_effects, table),
            _template_section(table),
            _band_section(table),
            _example_section(table),
        ],
        glossary=list(text.glossary.items()),
        limits=text.limits,
        signature=run.signature(EFFECT),
        signature_lines=run.signature_lines(EFFECT),
    )


def _overall_table(share: BiasScore | None, effect: BiasScore | None) -> Table:
    rows = tuple(
        Row(label, (score_cell(score, decimals=2), *count_cells(score.n, score.n_left_out)))
        for label, score in (("offensive sentences, %", share), ("descriptor effect, percentage points", effect))
        if score is not None
    )
    return Table("What the classifier finds offensive", ("measure", "value", "texts", "left out"), rows)


def _effect_section(effects: Sequence[BiasScore], table: pd.DataFrame) -> Section:
    defined = sorted(
        (it for it in effects if math.isfinite(it.value)), key=lambda it: (-it.value, str(it.group[DESCRIPTOR]))
    )
    axes = table.groupby(DESCRIPTOR)[AXIS].unique()
    n = min(ROWS_AT_EACH_END, (len(defined) + 1) // 2)
    rows = tuple(_effect_row(score, axes) for score in [*defined[:n], *defined[max(n, len(defined) - n) :]])
    note = text.effects_note(len(effects) - len(defined), len(effects), len(defined) > 2 * n) if rows else ""
    caption = f"Effect of a descriptor, percentage points: the largest and the smallest of {len(defined):,}"
    effect_table = Table(caption, ("descriptor", "axis", "value", "sentences"), rows, note)
    return Section("By descriptor", [text.effects] if rows else [], [effect_table], first_screen=True)


def _effect_row(score: BiasScore, axes: Mapping[str, np.ndarray]) -> Row:
    name = score.group[DESCRIPTOR]
    axis_names = Cell(", ".join(_axis_name(axis) for axis in axes.get(name, ())), prose=True)
    cells = (axis_names, score_cell(score), *count_cells(score.n))
    return Row(sanitize(str(name), MAX_NAME_LENGTH), cells, score_marks("before", score))


def _axis_name(axis: str) -> str:
    return sanitize(axis.replace("_", " "), MAX_AXIS_LENGTH)


def _template_section(table: pd.DataFrame) -> Section:
    """Return the section with the mean and the standard deviation across descriptors, by template (Table 13)."""
    rows = []
    for row in offensiveness_by_template(table, table[PROBABILITY].to_numpy()).itertuples():
        cells = (*(number_cell(100 * it) for it in (row.mean, row.sd)), *count_cells(row.descriptors, row.n))
        rows.append(Row(sanitize(row.template, MAX_NAME_LENGTH), cells))
    caption = "Offensiveness by template, %: mean and standard deviation across descriptors"
    columns = ("template", "mean", "std. deviation", "descriptors", "sentences")
    return Section("By template", [text.templates] if rows else [], [Table(caption, columns, tuple(rows))])


def _band_section(table: pd.DataFrame) -> Section:
    """Return the section with the descriptors in each of the paper's bands of offensiveness, by template (Table 12)."""
    templates, tables = set(table[TEMPLATE]), []
    for template, ranges in BANDS.items():
        if template in templates:
            bands = offensiveness_bands(table, table[PROBABILITY].to_numpy(), {template: ranges})
            rows = tuple(
                Row(
                    f"{100 * row.low:.4g} to {100 * row.high:.4g} %",
                    (*count_cells(row.n), Cell(_join_names(row.descriptors), prose=True)),
                )
                for row in bands.itertuples()
            )
            tables.append(Table(f"“{template}”", ("mean offensiveness", "number", "descriptors"), rows))
    return Section("Descriptors by mean offensiveness", [text.bands] if tables else [], tables)


def _join_names(descriptors: Sequence[str]) -> str:
    names = [sanitize(name, MAX_NAME_LENGTH) for name in descriptors]
    if len(names) <= MAX_NAMES_IN_BAND:
        return ", ".join(names) or "(none)"
    half = MAX_NAMES_IN_BAND // 2
    return f"{', '.join(names[:half])}, … {len(names) - 2 * half:,} more …, {', '.join(names[-half:])}"


def _example_section(table: pd.DataFrame) -> Section:
    """Return the section with the most offensive sentences and the largest effects, one per descriptor."""
    rows = table.assign(effect=math.nan)
    if NEUTRAL_PROBABILITY in table:
        rows["effect"] = table[PROBABILITY] - table[NEUTRAL_PROBABILITY]
    groups = (
        ("Highest probability", PROBABILITY, rows),
        ("Largest difference to the neutral descriptor", "effect", rows[rows["effect"] > 0]),
    )
    parts = []
    for title, by, part in groups:
        part = part[part[by].notna()].sort_values([by, TEXT], ascending=[False, True], kind="stable")
        part = part.drop_duplicates(DESCRIPTOR).head(N_EXAMPLES)
        parts.append(Section(title, examples=[_example(row) for row in part.to_dict("records")]))
    return Section("Sentences to read", [text.examples] if any(part.has_content for part in parts) else [], parts=parts)


def _example(row: Mapping) -> Example:
    neutral = row.get(NEUTRAL_PROBABILITY, math.nan)
    facts = [_axis_name(row[AXIS]), sanitize(row[DESCRIPTOR], MAX_NAME_LENGTH), percent(row[PROBABILITY], 1)]
    if math.isfinite(neutral):
        facts.append(f"{percent(neutral, 1)} with “{NEUTRAL_DESCRIPTOR}”")
    return Example(" · ".join(facts), (("sentence", ((row[TEXT], False),)),))
