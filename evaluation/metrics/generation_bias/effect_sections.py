"""Sections on effects: the largest in sentences with responses, a map, a table of all, and changes before and after.

All numbers are percentage points of mean probability; differences are shrunk toward 0, with 95 % intervals.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from urllib.parse import quote

import numpy as np
import pandas as pd

from evenhand.evaluation.metrics.generation_bias.parts.effects import (
    IN_USE,
    INCONCLUSIVE,
    SHOWN,
    WORTH_A_LOOK,
    detectable_sizes,
    effects_figure,
)
from evenhand.evaluation.metrics.generation_bias.parts.spread import MOVED, SHARE, SHIFT
from evenhand.evaluation.metrics.generation_bias.styled_responses import StyledResponses
from evenhand.evaluation.report.formats import format_of
from evenhand.evaluation.report.numbers import interval, number, p_value, sanitize
from evenhand.evaluation.report.page import Cell, Example, Figure, Mark, Row, Section, Table
from evenhand.evaluation.report.tables import scores_table
from evenhand.evaluation.score import DESCRIPTOR, NOUN, RESPONSE, TEMPLATE, TEXT, BiasScore, Kind

N_SENTENCES, N_CHANGES, MAX_ROWS = 5, 10, 600  # effects in sentences, changes on the first screen, rows of a table
MAP_NOTE = (
    "Mean probability of a group of styles, less the average of all descriptors, for the descriptors with the largest "
    "differences. Orange is more than the average, purple is less; a dot marks a shown difference."
)
CERTAINTY_NOTE = (
    "“Shown”: if everybody were treated alike, 5 of 100 such measurements would still show somebody. “Worth a look”: "
    "about one in ten of these is chance. Differences are shrunk toward 0 and have 95 % intervals."
)
CHANGES_NOTE = (
    "“Removed”: shown before, not after, and the change is shown. “Reduced” and “grown”: shown before and after, and "
    "the change is shown. “Kept”: shown before and after, no change is shown. “New”: shown after only, and the change "
    "is shown. “Inconclusive”: anything else. All effects are in effect_changes.parquet."
)
COLUMNS = ("descriptor or group", "axis", "style", "difference", "certainty", "mean", "average", "n", "p, all tests")
CHANGE_COLUMNS = ("descriptor or group, style", "became", "mean", "difference", "change", "certainty", "p, all tests")
CAPTION = "mean probability of the style in %, difference in percentage points"


def lead_sections(
    effects: pd.DataFrame,
    scores: Sequence[BiasScore],
    example_of: Callable[[Mapping], Example],
    shifts: pd.DataFrame | None = None,
) -> list[Section]:
    """Return the sections that open a report; [] if there are no effects.

    `example_of(effect)` has the responses to an effect's unit, and `shifts` is the table of `shift_table`.
    """
    if not len(effects):
        return []
    from evenhand.evaluation.report.figures import svg  # imports matplotlib

    claims = [replace(example_of(row), claim=effect_text(row)) for row in _named_effects(effects)]
    counts = effects["certainty"].value_counts()
    shown, leads = (int(counts.get(level, 0)) for level in (SHOWN, WORTH_A_LOOK))
    summary = f"Effects shown: {shown:,} of {len(effects):,}; worth a look: {leads:,}.{shifts_text(effects, shifts)}"
    size = scores_table(
        "Size of the whole difference",
        [it for it in scores if it.metric in (MOVED, SHIFT, SHARE) or it.kind == Kind.DETECTABLE],
        "measure",
        label=_size_label,
        counted="responses",
        note="The smallest pooled FGB* is shown with a probability of 80 %.",
    )
    title = "How large it is, and what this measurement can detect"
    part = Section(title, _detectable_text(effects), [size], first_screen=True)
    listed = effects.drop_duplicates(["kind", "unit", "mean", "average"])  # a cluster of one style is listed once
    n_more = len(listed) - MAX_ROWS
    note = (
        "The interval of a shown effect allows for its selection. Any other interval is of this effect alone: each of "
        "its ends holds with 95 % confidence. The certainty is of all effects together."
    )
    note += f" {n_more:,} smaller effects are not in this table; effects.parquet has all." if n_more > 0 else ""
    table = replace(effect_table(listed.head(MAX_ROWS)), note=note, filters=("axis", "style", "certainty"))
    return [
        Section("Who is treated how", [summary, CERTAINTY_NOTE], examples=claims, parts=[part], first_screen=True),
        Section("Largest effects at a glance", [MAP_NOTE], figures=[Figure("", svg(effects_figure(effects)))]),
        Section("All effects", ["A link leads to the responses."], [table]),
    ]


def shifts_text(effects: pd.DataFrame, shifts: pd.DataFrame | None) -> str:
    """Return a sentence on people of whom only the whole mix of styles is shown to differ, or ""."""
    if shifts is None or not len(shifts):
        return ""
    named = set(effects.loc[(effects["certainty"] == SHOWN) & (effects["kind"] == DESCRIPTOR), "unit"])
    only = [unit for unit in shifts.loc[shifts["certainty"] == SHOWN, "unit"] if unit not in named]
    if not only:
        return ""
    listed = ", ".join(f"“{sanitize(unit, 60)}”" for unit in only[:N_SENTENCES])
    more = f" and {len(only) - N_SENTENCES:,} more" if len(only) > N_SENTENCES else ""
    return f" Many styles together, but none alone, are shown to differ for {listed}{more}."


def effect_table(effects: pd.DataFrame) -> Table:
    """Return a table with a row for each effect."""
    return Table(f"Effects; {CAPTION}", COLUMNS, tuple(_row(row) for row in effects.to_dict("records")))


def _size_label(score: BiasScore) -> str:
    title = ": ".join([format_of(score).title, *score.group.values()])
    return f"smallest detectable {title}" if score.kind == Kind.DETECTABLE else title


def _named_effects(effects: pd.DataFrame) -> list[dict]:
    """Return the largest shown effect of each descriptor or group, at most N_SENTENCES."""
    shown = effects[effects["certainty"] == SHOWN].drop_duplicates(["kind", "unit"])
    return shown.head(N_SENTENCES).to_dict("records")


def effect_text(row: Mapping) -> str:
    """Return an effect as a sentence: who gets more or fewer responses of a style, with one interval.

    >>> row = {"kind": "descriptor", "unit": "deaf", "name": "fear", "mean": 0.3, "average": 0.05, "shrunk": 0.2}
    >>> effect_text({**row, "low": 0.1, "high": 0.35, "hits": 15.0, "n": 50})
    '“deaf” gets more “fear” responses: 15 of 50; 5 of 100 on average; difference +20 [+10, +35] of 100.'
    """
    who = _who(row)
    average = f"{_points(row['average'], 0)} of 100 on average"
    bounds = interval((100 * row["low"], 100 * row["high"]), 0, sign=True)
    difference = f"difference {_points(row['shrunk'], 0, sign=True)} {bounds} of 100"
    return f"{who[0].upper()}{who[1:]} gets {_more_or_fewer(row)}: {share_text(row)}; {average}; {difference}."


def share_text(row: Mapping) -> str:
    """Return how many of a unit's answers have a property: a count where it is one, else the mean probability."""
    if np.isfinite(row["hits"]):
        return f"{row['hits']:,.0f} of {row['n']:,.0f}"
    return f"{_points(row['mean'], 0)} of 100 (n = {row['n']:,.0f})"


def largest_text(effects: pd.DataFrame) -> str:
    """Return a clause on the largest shown effect: who gets more or fewer responses of a style; "" if there is none."""
    for row in _named_effects(effects)[:1]:
        sides = f"{share_text(row)}, on average {_points(row['average'], 0)} of 100"
        return f"prompts with {_who(row)} get {_more_or_fewer(row)} than the average: {sides}"
    return ""


def _plain(name: str) -> str:
    """Return a name from a table as words: SYMPATHY and body_type become sympathy and body type."""
    words = sanitize(name.replace("_", " ").replace("(none)", "other"), 60)
    return words.lower() if words == words.upper() else words


def _points(share: float, decimals: int = 1, sign: bool = False) -> str:
    return number(100 * share, decimals, sign)


def _more_or_fewer(row: Mapping) -> str:
    return f"{'more' if row['shrunk'] > 0 else 'fewer'} “{_plain(row['name'])}” responses"


def _who(row: Mapping) -> str:
    return f"“{_unit(row)}”" if row["kind"] == DESCRIPTOR else f"the {row['kind']} “{_plain(row['unit'])}”"


def _unit(row: Mapping) -> str:
    return sanitize(row["unit"], 60) if row["kind"] == DESCRIPTOR else f"{_plain(row['unit'])} ({row['kind']})"


def _detectable_text(table: pd.DataFrame) -> list[str]:
    """Return a sentence on the effect, or change of an effect, that is shown with a probability of 80 %; [] if none."""
    size, worst = detectable_sizes(table)
    if not size <= 1:  # no difference is larger than 100 points
        return []
    what, runs = ("change", "comparisons") if "change" in table else ("difference", "runs")
    at_worst = f"at worst {_points(worst)}" if worst <= 1 else "in some cases none"
    return [
        f"8 of 10 such {runs} show a {what} of {_points(size)} points (median; {at_worst}) in a style of at least "
        f"{100 * IN_USE:.0f} % of the responses; with four times as many responses, half of it."
    ]


def _row(row: Mapping) -> Row:
    cells = (
        *(Cell(_plain(row[name]), prose=True) for name in ("axis", "name")),
        Cell(_points(row["shrunk"], sign=True), _interval(row)),
        Cell(row["certainty"], prose=True),
        *(Cell(_points(row[name])) for name in ("mean", "average")),
        Cell(f"{row['n']:,.0f}"),
        Cell(p_value(row["p_page"])),
    )
    column, value = (DESCRIPTOR, row["unit"]) if row["kind"] == DESCRIPTOR else ("axis", row["axis"])
    return Row(_unit(row), cells, href=f"./responses.html#{column}={quote(value, safe='')}")


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
    p, is_own = run.vectors[:, list(columns)].sum(axis=1), (unit == effect["unit"]).to_numpy()
    sides = is_own & np.isfinite(p), ~is_own & np.isfinite(p)
    carriers, others = sides if effect["shrunk"] > 0 else sides[::-1]
    for keys in ([TEMPLATE, NOUN], [TEMPLATE]):
        prompt = table.groupby([it for it in keys if it in table], observed=True, dropna=False).ngroup().to_numpy()
        rows = np.flatnonzero(carriers & np.isin(prompt, prompt[others]))
        if len(rows):
            break
    else:
        return Example("", ())
    row = int(rows[np.argmax(p[rows])])
    among = np.flatnonzero(others & (prompt == prompt[row]))
    pair = row, int(np.random.default_rng(row).choice(among))
    pair = pair if is_own[row] else pair[::-1]
    texts = tuple((table[TEXT].iloc[place], table[RESPONSE].iloc[place]) for place in pair)
    hidden = frozenset(n for n in (0, 1) if offensive is not None and offensive[pair[n]])
    return Example("", texts, hidden=hidden)


def effect_change_section(changes: pd.DataFrame) -> Section:
    """Return the section on changed effects: counts, the largest changes, and a folded table of all.

    The tables have the effects that are shown before or after, and the changes that are shown or worth a look. The
    section has no content if the table of changes is empty.
    """
    title = "Who is treated how, before and after"
    if not len(changes):
        return Section(title)
    single = changes[changes["outcome"] == "style"]
    was_shown = single["certainty_before"] == SHOWN
    became = ", ".join(f"{n:,} {name}" for name, n in single.loc[was_shown, "transition"].value_counts().items())
    summary = (
        f"Effects shown before: {was_shown.sum():,} of {len(single):,}{f' ({became})' if became else ''}; new "
        f"after: {(single['transition'] == 'new').sum():,}. Changes shown: "
        f"{(single['certainty'] == SHOWN).sum():,}; if nothing had changed, 5 of 100 comparisons would show any."
    )
    levels = changes[["certainty_before", "certainty_after"]]
    listed = changes[(levels == SHOWN).any(axis=1) | (changes["certainty"] != INCONCLUSIVE)]
    largest = _change_table("Largest effects and changes", listed[listed["outcome"] == "style"].head(N_CHANGES))
    more = f" {len(listed) - MAX_ROWS:,} more are in effect_changes.parquet." if len(listed) > MAX_ROWS else ""
    table = _change_table("All effects that are shown, and all changes that are shown or worth a look", listed)
    part = Section("All of them", [f"{CHANGES_NOTE}{more}"], [table] if table.rows else [], folded=True)
    return Section(title, [summary, *_detectable_text(changes)], [largest], parts=[part], first_screen=True)


def _change_table(caption: str, changes: pd.DataFrame) -> Table:
    def both(row: Mapping, name: str, sign: bool = False) -> str:
        return " → ".join(_points(row[f"{name}_{side}"], sign=sign) for side in ("before", "after"))

    rows = []
    for row in changes.head(MAX_ROWS).to_dict("records"):
        cells = (
            Cell(row["transition"], prose=True),
            Cell(both(row, "mean")),
            Cell(both(row, "shrunk", sign=True)),
            Cell(_points(row["shrunk"], sign=True), _interval(row)),
            Cell(row["certainty"], prose=True),
            Cell(p_value(row["p_page"])),
        )
        marks = tuple(Mark(side, 100 * row[f"shrunk_{side}"], None) for side in ("before", "after"))
        rows.append(Row(f"{_unit(row)}, {_plain(row['name'])}", cells, marks))
    return Table(f"{caption}; {CAPTION}", CHANGE_COLUMNS, tuple(rows))


def _interval(row: Mapping) -> str:
    if not np.isfinite(row["low"]):
        return ""  # the style never varies
    return interval((100 * row["low"], 100 * row["high"]), 1, sign=True)
