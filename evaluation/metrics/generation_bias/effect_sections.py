"""Sections on people: who is treated how, with answers to read, a map and a table of all differences, and changes.

All numbers are percentage points of mean probability; differences are shrunk toward 0, with 95 % intervals.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any
from urllib.parse import quote

import numpy as np
import pandas as pd

from evenhand.evaluation.metrics.generation_bias.findings import (
    ANY_LANGUAGE,
    FIRST_OUTCOMES,
    change_text,
    finding_text,
    points,
    style_change_text,
    unit_text,
)
from evenhand.evaluation.metrics.generation_bias.parts.effects import (
    IN_USE,
    INCONCLUSIVE,
    MAX_NAME,
    SHOWN,
    WORTH_A_LOOK,
    detectable_sizes,
    effects_figure,
    plain_name,
)
from evenhand.evaluation.metrics.generation_bias.parts.spread import MOVED, SHARE, SHIFT
from evenhand.evaluation.metrics.generation_bias.styled_responses import StyledResponses
from evenhand.evaluation.report.formats import format_of
from evenhand.evaluation.report.numbers import interval, p_value, sanitize
from evenhand.evaluation.report.page import Cell, Example, Figure, Mark, Row, Section, Table
from evenhand.evaluation.report.tables import scores_table
from evenhand.evaluation.score import AXIS, DESCRIPTOR, NOUN, RESPONSE, TEMPLATE, TEXT, BiasScore, Kind

MAX_NAMED = 5  # people in a sentence
N_LISTED = 10  # differences in the list that replaces the map on narrow screens
MAX_ROWS = 600  # rows of a table
WHO = "Who is treated how"
HOW_SURE = "How sure this is"
NOBODY = "No person and no group of people is shown to be treated differently."
MAP_NOTE = (
    "Mean probability of a group of styles, less the average of all descriptors, for the descriptors with the largest "
    "differences. Orange is more than the average, purple is less; a dot marks a shown difference."
)
CERTAINTY_NOTE = (
    "“Shown”: if everybody were treated alike, 5 of 100 such measurements would still show somebody. “Worth a look”: "
    "about one in ten of these is chance. Differences are shrunk toward 0, since the largest of many are large by "
    "chance, too, and have 95 % intervals."
)
TABLE_NOTE = (
    "The interval of a shown difference allows for its selection. Any other interval is of this difference alone: each "
    "of its ends holds with 95 % confidence. The certainty is of all differences together."
)
CHANGES_NOTE = (
    "“Removed”: shown before, not after, and the change is shown. “Reduced” and “grown”: shown before and after, and "
    "the change is shown. “Kept”: shown before and after, no change is shown. “New”: shown after only, and the change "
    "is shown. “Inconclusive”: anything else. All are in effect_changes.parquet."
)
COLUMNS = (
    "descriptor or group",
    "group",
    "style",
    "difference",
    "certainty",
    "mean",
    "average",
    "n",
    "p-value, all tests",
)
CHANGE_COLUMNS = (
    "descriptor or group, style",
    "became",
    "mean",
    "difference",
    "change",
    "certainty",
    "p-value, all tests",
)
CAPTION = "mean probability of the style in %, difference in percentage points"
ExampleOf = Callable[[Mapping[str, Any]], Example]


def people_section(
    findings: Iterable[Mapping[str, Any]], summaries: Sequence[str], example_of: ExampleOf, language: str = ANY_LANGUAGE
) -> Section:
    """Return the section that names who is shown to be treated differently, each with answers to read.

    Args:
        findings: the rows of the shown effects, the most serious first.
        summaries: sentences on all effects together.
        example_of: a function that returns the answers to the unit of a row.
        language: the language of the requests.
    """
    claims = [replace(example_of(row), claim=finding_text(row, language)) for row in findings]
    sure = Section(HOW_SURE, [*summaries, CERTAINTY_NOTE], first_screen=True)
    return Section(WHO, [] if claims else [NOBODY], examples=claims, parts=[sure], first_screen=True)


def style_summary(effects: pd.DataFrame, shifts: pd.DataFrame | None = None) -> str:
    """Return a sentence on the number of shown differences in style, and on people with many small ones."""
    counts = effects["certainty"].value_counts()
    shown, leads = (int(counts.get(level, 0)) for level in (SHOWN, WORTH_A_LOOK))
    return (
        f"Differences in style shown: {shown:,} of {len(effects):,}; worth a look: {leads:,}."
        f"{shifts_text(effects, shifts)}"
    )


def all_effects_sections(effects: pd.DataFrame) -> list[Section]:
    """Return the map and the table of all differences in style; [] if there are none."""
    if not len(effects):
        return []
    listed = effects.drop_duplicates(["kind", "unit", "mean", "average"])  # a cluster of one style is listed once
    n_more = len(listed) - MAX_ROWS
    note = TABLE_NOTE
    if n_more > 0:
        note += f" {n_more:,} smaller differences are not in this table; effects.parquet has all."
    filters = ("group", "style", "certainty")
    table = replace(effect_table(listed.head(MAX_ROWS)), note=note, filters=filters)
    from evenhand.evaluation.report.figures import svg  # imports matplotlib

    figure = Figure("", svg(effects_figure(effects)), narrow=_largest_lines(effects))
    return [
        Section("The largest differences at a glance", [MAP_NOTE], figures=[figure]),
        Section("All differences in style", ["A link leads to the answers."], [table]),
    ]


def _largest_lines(effects: pd.DataFrame) -> list[str]:
    """Return the largest differences of descriptors as lines, one for each descriptor."""
    rows = effects[effects["kind"] == DESCRIPTOR].drop_duplicates("unit").head(N_LISTED)
    lines = []
    for row in rows.to_dict("records"):
        difference = points(row["shrunk"], 1, sign=True)
        lines.append(f"{unit_text(row)}, {plain_name(row['name'])}: {difference} ({row['certainty']})")
    return lines


def size_section(effects: pd.DataFrame, scores: Sequence[BiasScore]) -> Section:
    """Return the section on the size of the whole difference in several units, and on what the run can detect."""
    table = scores_table(
        "Size of the whole difference",
        [score for score in scores if score.metric in (MOVED, SHIFT, SHARE) or score.kind == Kind.DETECTABLE],
        "measure",
        label=_size_label,
        counted="responses",
        note="The smallest pooled FGB* is shown with a probability of 80 %.",
    )
    title = "The size in other units, and what this run can detect"
    return Section(title, detectable_text(effects), [table], folded=True)


def shifts_text(effects: pd.DataFrame, shifts: pd.DataFrame | None) -> str:
    """Return a sentence on people of whom only the whole mix of styles is shown to differ, or ""."""
    if shifts is None or not len(shifts):
        return ""
    named = set(effects.loc[(effects["certainty"] == SHOWN) & (effects["kind"] == DESCRIPTOR), "unit"])
    only = [unit for unit in shifts.loc[shifts["certainty"] == SHOWN, "unit"] if unit not in named]
    if not only:
        return ""
    listed = ", ".join(f"“{sanitize(unit, MAX_NAME)}”" for unit in only[:MAX_NAMED])
    more = f" and {len(only) - MAX_NAMED:,} more" if len(only) > MAX_NAMED else ""
    return f" Many styles together, but none alone, are shown to differ for {listed}{more}."


def effect_table(effects: pd.DataFrame) -> Table:
    """Return a table with a row for each effect."""
    return Table(f"Differences; {CAPTION}", COLUMNS, tuple(_row(row) for row in effects.to_dict("records")))


def _size_label(score: BiasScore) -> str:
    title = ": ".join([format_of(score).title, *score.group.values()])
    return f"smallest detectable {title}" if score.kind == Kind.DETECTABLE else title


def largest_text(effects: pd.DataFrame) -> str:
    """Return the largest shown effect as a clause; "" if none is shown."""
    shown = effects[effects["certainty"] == SHOWN]
    if not len(shown):
        return ""
    text = finding_text(shown.iloc[0].to_dict())
    return text[0].lower() + text[1:-1]


def detectable_text(table: pd.DataFrame) -> list[str]:
    """Return a sentence on the effect, or change of an effect, that is shown with a probability of 80 %; [] if none."""
    size, worst = detectable_sizes(table)
    if not size <= 1:  # no difference is larger than 100 points
        return []
    what, runs = ("change", "comparisons") if "change" in table else ("difference", "runs")
    at_worst = f"at worst {points(worst, 1)}" if worst <= 1 else "in some cases none"
    return [
        f"8 of 10 such {runs} show a {what} of {points(size, 1)} points (median; {at_worst}) in a style of at least "
        f"{100 * IN_USE:.0f} % of the responses; with four times as many responses, half of it."
    ]


def _row(row: Mapping[str, Any]) -> Row:
    cells = [
        Cell(plain_name(row["axis"]), prose=True),
        Cell(plain_name(row["name"]), prose=True),
        Cell(points(row["shrunk"], 1, sign=True), _interval(row)),
        Cell(row["certainty"], prose=True),
        Cell(points(row["mean"], 1)),
        Cell(points(row["average"], 1)),
        Cell(f"{row['n']:,.0f}"),
        Cell(p_value(row["p_page"])),
    ]
    column, value = (DESCRIPTOR, row["unit"]) if row["kind"] == DESCRIPTOR else (AXIS, row["axis"])
    return Row(unit_text(row), tuple(cells), href=f"./responses.html#{column}={quote(value, safe='')}")


def effect_example(
    run: StyledResponses, effect: Mapping, columns: Sequence[int], offensive: Sequence[bool] | None = None
) -> Example:
    """Return a response to a unit (a descriptor or a group), then one to other descriptors, each under its prompt.

    Where the unit gets more of the style than the average, its response is the one with the most of this style, and the
    other is drawn at random; where it gets less, the other way round. Both have the same template and, if any such pair
    exists, the same noun. The draw has a fixed seed. The example is empty if no template is common to both.
    `columns` are those of the effect's styles; `offensive` is whether each response is offensive, and hidden, (n,).
    """
    table = run.table
    unit = table[DESCRIPTOR].astype(str) if effect["kind"] == DESCRIPTOR else run.groups()[effect["kind"]]
    is_unit = (unit == effect["unit"]).to_numpy()
    p = run.vectors[:, list(columns)].sum(axis=1)
    carriers = is_unit & np.isfinite(p)
    others = ~is_unit & np.isfinite(p)
    if effect["shrunk"] <= 0:
        carriers, others = others, carriers
    for keys in ([TEMPLATE, NOUN], [TEMPLATE]):
        present = [key for key in keys if key in table]
        prompt = table.groupby(present, observed=True, dropna=False).ngroup().to_numpy()
        rows = np.flatnonzero(carriers & np.isin(prompt, prompt[others]))
        if len(rows):
            break
    else:
        return Example("", ())
    row = int(rows[np.argmax(p[rows])])
    among = np.flatnonzero(others & (prompt == prompt[row]))
    other = int(np.random.default_rng(row).choice(among))
    pair = (row, other) if is_unit[row] else (other, row)
    texts = tuple((table[TEXT].iloc[place], table[RESPONSE].iloc[place]) for place in pair)
    hidden = frozenset(n for n in (0, 1) if offensive is not None and offensive[pair[n]])
    return Example("", texts, hidden=hidden)


def change_example(
    before: StyledResponses,
    after: StyledResponses,
    effect: Mapping[str, Any],
    columns: tuple[Sequence[int], Sequence[int]],
    offensive: Sequence[np.ndarray] | None = None,
) -> Example:
    """Return the answers before and after to one prompt of a unit (a descriptor or a group).

    The prompt is the one whose answers carry the effect most: the answer before if the effect is shown before only, the
    answer after if it is shown after only, else both. The example is empty if no prompt has both.

    Args:
        before, after: the responses of both runs to the same prompts, row by row.
        effect: the unit (kind, unit), and shrunk_before, shrunk_after, certainty_before and certainty_after.
        columns: the columns of the effect's styles, before and after.
        offensive: whether each response before, and each one after, is offensive, and hidden, (n,) each.
    """
    table = before.table
    unit = table[DESCRIPTOR].astype(str) if effect["kind"] == DESCRIPTOR else before.groups()[effect["kind"]]
    weight = np.zeros(len(table))
    shown = [side for side in ("before", "after") if effect[f"certainty_{side}"] == SHOWN]
    for side, run, of_side in (("before", before, columns[0]), ("after", after, columns[1])):
        if side in shown or not shown:
            weight = weight + np.sign(effect[f"shrunk_{side}"]) * run.vectors[:, list(of_side)].sum(axis=1)
    rows = np.flatnonzero((unit == effect["unit"]).to_numpy() & np.isfinite(weight) & after.has_vector())
    if not len(rows):
        return Example("", ())
    row = int(rows[np.argmax(weight[rows])])
    texts = [(side, run.table[RESPONSE].iloc[row]) for side, run in (("before", before), ("after", after))]
    hidden = frozenset(n for n in (0, 1) if offensive is not None and offensive[n][row])
    return Example("", texts, prompt=table[TEXT].iloc[row], hidden=hidden)


def changes_section(
    outcomes: Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]],
    styles: Sequence[Mapping[str, Any]],
    changes: pd.DataFrame,
    example_of: ExampleOf,
    language: str = ANY_LANGUAGE,
) -> Section:
    """Return the section on who is treated how before and after: people with answers, counts, a folded table of all.

    The tables have the effects that are shown before or after, and the changes that are shown or worth a look.

    Args:
        outcomes: the rows before and after of the outcomes to name.
        styles: the rows of `changes` to name.
        changes: the table of `effect_changes`; empty if the runs were measured without permutations.
        example_of: a function that returns the answers before and after to the unit of a row.
        language: the language of the requests.
    """
    serious = []
    other = []
    for before, after in outcomes:
        sides = {f"{name}_before": before[name] for name in ("shrunk", "certainty")}
        sides |= {f"{name}_after": after[name] for name in ("shrunk", "certainty")}
        example = replace(example_of({**before, **sides}), claim=change_text(before, after, language))
        if before["outcome"] in FIRST_OUTCOMES:
            serious.append(example)
        else:
            other.append(example)
    of_styles = [replace(example_of(row), claim=style_change_text(row)) for row in styles]
    claims = serious + of_styles + other
    sentences: list[str] = []
    if not claims and len(changes):
        sentences.append("No person and no group is shown to be treated differently, neither before nor after.")
    parts = []
    if len(changes):
        parts.append(Section(HOW_SURE, [_change_summary(changes), *detectable_text(changes)], first_screen=True))
        parts.append(_all_changes(changes))
    return Section(f"{WHO}, before and after", sentences, examples=claims, parts=parts, first_screen=True)


def _change_summary(changes: pd.DataFrame) -> str:
    single = changes[changes["outcome"] == "style"]
    was_shown = single["certainty_before"] == SHOWN
    became = ", ".join(f"{n:,} {name}" for name, n in single.loc[was_shown, "transition"].value_counts().items())
    return (
        f"Differences in style shown before: {was_shown.sum():,} of {len(single):,}{f' ({became})' if became else ''}; "
        f"new after: {(single['transition'] == 'new').sum():,}. Changes shown: "
        f"{(single['certainty'] == SHOWN).sum():,}; if nothing had changed, 5 of 100 comparisons would show any."
    )


def _all_changes(changes: pd.DataFrame) -> Section:
    levels = changes[["certainty_before", "certainty_after"]]
    listed = changes[(levels == SHOWN).any(axis=1) | (changes["certainty"] != INCONCLUSIVE)]
    note = CHANGES_NOTE
    if len(listed) > MAX_ROWS:
        note += f" {len(listed) - MAX_ROWS:,} more are in effect_changes.parquet."
    table = _change_table("Differences that are shown, and changes that are shown or worth a look", listed)
    return Section("All changes", [note], [table] if table.rows else [], folded=True)


def _change_table(caption: str, changes: pd.DataFrame) -> Table:
    rows = []
    for row in changes.head(MAX_ROWS).to_dict("records"):
        cells = (
            Cell(row["transition"], prose=True),
            Cell(f"{points(row['mean_before'], 1)} → {points(row['mean_after'], 1)}"),
            Cell(f"{points(row['shrunk_before'], 1, True)} → {points(row['shrunk_after'], 1, True)}"),
            Cell(points(row["shrunk"], 1, sign=True), _interval(row)),
            Cell(row["certainty"], prose=True),
            Cell(p_value(row["p_page"])),
        )
        marks = tuple(Mark(side, 100 * row[f"shrunk_{side}"], None) for side in ("before", "after"))
        rows.append(Row(f"{unit_text(row)}, {plain_name(row['name'])}", cells, marks))
    return Table(f"{caption}; {CAPTION}", CHANGE_COLUMNS, tuple(rows))


def _interval(row: Mapping[str, Any]) -> str:
    if not np.isfinite(row["low"]):
        return ""  # the style never varies
    return interval((100 * row["low"], 100 * row["high"]), 1, sign=True)
