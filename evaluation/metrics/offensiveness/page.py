"""Report on the offensiveness of prompts by a classifier (Smith et al. 2022, §3.3, B.3)."""

import math

import numpy as np
import pandas as pd

from evenhand.evaluation.data.holistic_bias import NONE
from evenhand.evaluation.data.mentions import NEUTRAL_DESCRIPTOR
from evenhand.evaluation.data.prompts import require_columns
from evenhand.evaluation.metrics import FamilyRun, ReportContext
from evenhand.evaluation.metrics.offensiveness.metric import offensiveness_by_template
from evenhand.evaluation.report.formats import format_of, glossary
from evenhand.evaluation.report.numbers import percent, sanitize, value_or
from evenhand.evaluation.report.page import Cell, Example, Page, Row, Section, Table
from evenhand.evaluation.report.tables import (
    count_cells,
    number_cell,
    score_section,
    scores_table,
    significant_direction,
    value_text,
)
from evenhand.evaluation.score import AXIS, DESCRIPTOR, TEMPLATE, TEXT, find_score

PROBABILITY, NEUTRAL_PROBABILITY = "probability", "neutral_probability"
SHARE, EFFECT = "offensive_share", "descriptor_effect"
ROWS_AT_EACH_END, N_EXAMPLES = 10, 6
LIMITS = [
    "The numbers describe the classifier as much as the text. Some classifiers treat the mere mention of a group as "
    "offensive. A high number for a descriptor does not mean that the word, or the people, are offensive.",
    "Some descriptors are derogatory words, and a classifier should mark them. An effect of 0 for all descriptors is "
    "therefore not the goal.",
    f"The neutral descriptor is “{NEUTRAL_DESCRIPTOR}”. Another word would change all effects by the same amount.",
    "Of twenty descriptors without an effect, about one is expected to have an interval that excludes 0 by chance.",
]


def page(run: FamilyRun, context: ReportContext) -> Page:
    """Return the report on one set of prompts by one classifier.

    Raises:
        InputError: a column of the table is missing.
    """
    table = run.table("offensive_prompts")
    require_columns(list(table), (TEXT, AXIS, TEMPLATE, DESCRIPTOR, PROBABILITY), "offensiveness table")
    table = table[table[DESCRIPTOR] != NONE].reset_index(drop=True)
    effect, missing = find_score(run.scores, EFFECT), int(table[PROBABILITY].isna().sum())
    effects = [score for score in run.scores if score.metric == EFFECT and list(score.group) == [DESCRIPTOR]]
    directions, axes = [significant_direction(score) for score in effects], table.groupby(DESCRIPTOR)[AXIS].unique()
    verdicts = {
        1: "On average, a descriptor makes a sentence more offensive to the classifier",
        -1: "On average, a descriptor makes a sentence less offensive to the classifier",
        0: "The mean effect of a descriptor is not significantly different from 0",
    }
    verdict = verdicts[significant_direction(effect)]
    if effect is None or effect.interval is None:
        verdict = "No verdict on the mean effect of a descriptor"
    return Page(
        title="Offensiveness by descriptor",
        subtitle=f"{run.config.settings.classifier.name} · {run.config.prompts.dataset}",
        headline_value=format_of(EFFECT).text(value_or(effect, math.nan)),
        headline_caption="percentage points: how much a descriptor raises the probability of being offensive, compared "
        f"with “{NEUTRAL_DESCRIPTOR}”; ideal 0",
        verdict=f"{verdict}: {value_text(effect)}. Of {len(effects):,} descriptors, {directions.count(1):,} have an "
        f"interval "
        f"above 0, and {directions.count(-1):,} below 0.",
        tables=[
            scores_table(
                "What the classifier finds offensive",
                [find_score(run.scores, SHARE, of="prompts"), effect],
                "measure",
                label=lambda score: format_of(score).title,
                counted="texts",
            )
        ],
        notes=[
            f"{len(table) - missing:,} sentences with a descriptor have a probability; {missing:,} have none and are "
            f"left out.",
            *context.notes,
        ],
        sections=[
            score_section(
                "By descriptor",
                (score for score in effects if math.isfinite(score.value)),
                "descriptor",
                [
                    "The value is the probability that a sentence is offensive, minus the probability for the same "
                    "sentence "
                    f"with “{NEUTRAL_DESCRIPTOR}” in place of its descriptor. Intervals are over templates."
                ],
                further={"axis": lambda it: Cell(_names(axes.get(it.group[DESCRIPTOR], ())), prose=True)},
                first_screen=True,
                counted="sentences",
                n_ends=ROWS_AT_EACH_END,
                note="Part of the distance of the extremes from 0 is chance.",
            ),
            _template_section(table),
            _example_section(table),
        ],
        glossary=glossary((SHARE, EFFECT)),
        limits=LIMITS,
        signature=run.signature(EFFECT),
        signature_lines=run.signature_lines(EFFECT),
    )


def _names(names: np.ndarray) -> str:
    return sanitize(", ".join(name.replace("_", " ") for name in names), 100)


def _template_section(table: pd.DataFrame) -> Section:
    """Return the section with the mean and the standard deviation across descriptors (Smith et al. 2022, Table 13)."""
    rows = []
    for row in offensiveness_by_template(table, table[PROBABILITY].to_numpy()).itertuples():
        cells = (*(number_cell(100 * it) for it in (row.mean, row.sd)), *count_cells(row.descriptors, row.n))
        rows.append(Row(sanitize(row.template, 60), cells))
    columns = ("template", "mean", "std. deviation", "descriptors", "sentences")
    caption = "Offensiveness by template, %: mean and standard deviation across descriptors"
    return Section("By template", tables=[Table(caption, columns, tuple(rows))])


def _example_section(table: pd.DataFrame) -> Section:
    """Return the section with the sentences of the highest probability, one for each descriptor."""
    rows = table[table[PROBABILITY].notna()].sort_values([PROBABILITY, TEXT], ascending=[False, True], kind="stable")
    examples = []
    for row in rows.drop_duplicates(DESCRIPTOR).head(N_EXAMPLES).to_dict("records"):
        neutral = row.get(NEUTRAL_PROBABILITY, math.nan)
        against = f" · {percent(neutral, 1)} with “{NEUTRAL_DESCRIPTOR}”" if math.isfinite(neutral) else ""
        heading = f"{_names([row[AXIS]])} · {sanitize(row[DESCRIPTOR], 60)} · {percent(row[PROBABILITY], 1)}{against}"
        examples.append(Example(heading, (("sentence", row[TEXT]),)))
    note = ["These sentences were written to test models. Some are offensive. Each descriptor has at most one."]
    return Section("The most offensive sentences", note if examples else [], examples=examples)
