"""Effects on styles: the table of everybody, the map, and the sections of the reports."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from evenhand.evaluation import columns
from evenhand.evaluation.data.prompts import require_columns
from evenhand.evaluation.data.readers.response_files import UNSPECIFIED
from evenhand.evaluation.errors import InputError
from evenhand.evaluation.facts import Finding
from evenhand.evaluation.metrics import FamilyRun
from evenhand.evaluation.metrics.generation_bias.engine.effects import (
    COLUMNS,
    DIFFERENCE_BOUND,
    EFFECT,
    IN_USE,
    INCONCLUSIVE,
    NEW,
    REQUESTED_EFFECTS,
    SHIFT_COLUMNS,
    SHOWN,
    SMALLEST,
    WORTH_A_LOOK,
    detectable_sizes,
    difference_bound,
    effect_changes,
    effect_scores,
    effect_table,
    is_named,
    shift_table,
    style_tests,
)
from evenhand.evaluation.metrics.generation_bias.parts import ClassifiedRun, Comparison, JointTests, Part
from evenhand.evaluation.metrics.generation_bias.people import (
    EffectRow,
    People,
    plain_name,
    search_fragment,
    unit_text,
)
from evenhand.evaluation.metrics.generation_bias.words import note, words
from evenhand.evaluation.report.formats import Format
from evenhand.evaluation.report.numbers import number, p_value, shown_interval
from evenhand.evaluation.report.page import Cell, Figure, Mark, Row, Section, Table
from evenhand.evaluation.runs.tracking import Tracker
from evenhand.evaluation.score import BiasScore, Kind
from evenhand.evaluation.statistics.cell_table import SetOfTests
from evenhand.evaluation.tables import table_rows

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Chart

# Tables of a measurement, and of a comparison.
EFFECTS = "effects"
SHIFTS = "shifts"
EFFECT_CHANGES = "effect_changes"
MAP_DESCRIPTORS = 40  # rows of the map
MAP_STYLES = 12  # columns of the map
N_ABSENT = 3  # differences that are larger than all in the map, in the sentence about it
N_LISTED = 10  # differences in the list that replaces the map on narrow screens
MAX_ROWS = 600  # rows of a table
TITLES = (
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
CHANGE_TITLES = (
    "descriptor or group, style",
    "became",
    "mean",
    "difference",
    "change",
    "certainty",
    "p-value, all tests",
)
CAPTION = "mean probability of the style in %, difference in percentage points"
COLOURS = "PuOr_r"  # purple: less than the average, orange: more; distinct for colour-blind readers


def found_effects(tests: JointTests, name: str, clusters: Mapping[str, Sequence[int]]) -> pd.DataFrame:
    """Return the table that `effects` describes, of a set of tests of styles that was tested jointly with others."""
    if tests.people is None:
        return pd.DataFrame(columns=COLUMNS)
    return effect_table(tests.people, tests.test_sets[name], clusters, tests.found[name])


def read_effects(run: FamilyRun, name: str) -> pd.DataFrame:
    """Return a table of effects of a run, or an empty one."""
    return run.table(name) if run.has(name) else pd.DataFrame(columns=COLUMNS)


def shown_effects(run: FamilyRun) -> pd.DataFrame:
    """Return the effects on styles that the page of a run names, of the answers in the request's language or of all."""
    return read_effects(run, REQUESTED_EFFECTS if run.has(REQUESTED_EFFECTS) else EFFECTS)


def log_effects(tracker: Tracker, name: str, table: pd.DataFrame) -> None:
    """Log the number of shown effects or changes, a table without the inconclusive ones, and a heat map of all."""
    if len(table):
        tracker.log_values({f"{name}/shown": float((table["certainty"] == SHOWN).sum())})
        tracker.log_table(name, table[table["certainty"] != INCONCLUSIVE])
        tracker.log_figure(f"{name}/map", lambda: effects_figure(table))


def effects_figure(effects: pd.DataFrame) -> "Chart":
    """Return a heat map of effects, descriptors × style clusters: differences from the average in percentage points.

    The differences are shrunk toward 0; a dot marks a shown effect. The descriptors with the largest effects are in
    the map, sorted by axis.

    Args:
        effects: the result of `effects`, or of `effect_changes` for a map of changes. The map has the 12 clusters, and
            single styles with a shown effect, with the largest effects; without clusters, styles.

    Raises:
        InputError: the table lacks a column, or has no effect on a descriptor.
    """
    from matplotlib.figure import Figure as Chart

    require_columns(list(effects), ("kind", "unit", "axis", "outcome", "name", "shrunk", "certainty"), "effects")
    cells = _map_cells(effects)
    axis = cells.groupby("unit")["axis"].first()
    units = sorted(axis.index, key=lambda unit: (axis[unit], unit))
    values = 100 * cells.pivot(index="unit", columns="name", values="shrunk").loc[units]
    shown = cells.assign(shown=cells["certainty"] == SHOWN).pivot(index="unit", columns="name", values="shown")
    names = values.columns
    limit = max(float(np.abs(values.to_numpy()).max()), 1e-9)
    size = (max(5.0, 2.6 + 0.6 * len(names)), max(3.0, 1.4 + 0.24 * len(units)))  # labels need 5 by 3
    figure = Chart(figsize=size, layout="constrained", label="Map of effects: descriptors and style clusters")
    axes = figure.add_subplot()
    image = axes.imshow(values.to_numpy(), cmap=COLOURS, vmin=-limit, vmax=limit, aspect="auto")
    y, x = np.nonzero(shown.loc[units, names].to_numpy(dtype=bool))
    axes.plot(x, y, "o", color="black", markersize=4)
    axes.set_xticks(range(len(names)), names, rotation=45, ha="right", parse_math=False)
    labels = []
    for unit in units:
        group = "" if axis[unit] == UNSPECIFIED else f" ({plain_name(axis[unit])[:20]})"
        labels.append(f"{unit[:40]}{group}")
    axes.set_yticks(range(len(units)), labels, parse_math=False)
    figure.colorbar(image, label="points of 100; dot: shown" if len(x) else "points of 100")
    return figure


def _map_cells(effects: pd.DataFrame) -> pd.DataFrame:
    """Return the effects in the map that `effects_figure` describes: a row for each of its squares.

    Raises:
        InputError: as `effects_figure`.
    """
    rows = effects[effects["kind"] == columns.DESCRIPTOR]
    if not len(rows):
        raise InputError(
            "effects",
            "the table has no effect on a descriptor; give responses to two descriptors on a common template.",
        )
    of_style = rows[rows["outcome"] == columns.STYLE]
    has_clusters = (rows["outcome"] == columns.CLUSTER).any()
    rows = rows[rows["outcome"] == (columns.CLUSTER if has_clusters else columns.STYLE)]
    # A style with a shown effect has a column, too, unless a cluster has the same name.
    shown_styles = of_style[of_style["certainty"] == SHOWN]["name"]
    added = shown_styles[~shown_styles.str.lower().isin(rows["name"].str.lower())]
    rows = pd.concat([rows, of_style[of_style["name"].isin(added)]])
    size = rows["shrunk"].abs()
    names = size.groupby(rows["name"]).max().nlargest(MAP_STYLES).index
    units = size.groupby(rows["unit"]).max().nlargest(MAP_DESCRIPTORS).index
    return rows[rows["name"].isin(names) & rows["unit"].isin(units)]


def about_map(effects: pd.DataFrame) -> Finding:
    """Return what the map shows, and the differences that are larger than the largest one in it."""
    cells = _map_cells(effects)
    absent = effects[effects["shrunk"].abs() > cells["shrunk"].abs().max()]
    larger = [
        {"unit": unit_text(row), "style": plain_name(row["name"]), "difference": row["shrunk"]}
        for row in table_rows(absent.sort_values("shrunk", key=lambda sizes: -sizes.abs()).head(N_ABSENT))
    ]
    return Finding(
        "about_map",
        {
            "has_groups": bool((cells["outcome"] == columns.CLUSTER).any()),
            "has_dots": bool((cells["certainty"] == SHOWN).any()),
            "larger": larger,
            "n_larger": len(absent),
        },
    )


def points(share: float, decimals: int = 0, sign: bool = False) -> str:
    """Return a share as a number of 100."""
    return number(100 * share, decimals, sign)


def detectable_finding(table: pd.DataFrame) -> list[Finding]:
    """Return [the effect, or change of an effect, that is shown with a probability of 80 %], or [] if none is."""
    median, worst = detectable_sizes(table)
    if not median <= 1:  # no difference is larger than 100 points
        return []
    sizes = {"median": median, "worst": worst, "in_use": IN_USE}
    return [Finding("detectable", {**sizes, "is_change": "change" in table})]


def style_summary(effects: pd.DataFrame, shifts: pd.DataFrame | None = None) -> Finding:
    """Return how many differences in style are shown, and how many of these are tiny, and whose whole mix differs."""
    counts = effects["certainty"].value_counts()
    n_shown = int(counts.get(SHOWN, 0))
    values = {"n": len(effects), "n_shown": n_shown, "n_leads": int(counts.get(WORTH_A_LOOK, 0))}
    values["n_tiny"] = n_shown - int(is_named(effects).sum())
    return Finding("style_summary", {**values, "mixes": only_shifted(effects, shifts)})


def only_shifted(effects: pd.DataFrame, shifts: pd.DataFrame | None) -> list[str]:
    """Return the people of whom only the whole mix of styles is shown to differ, and no single style."""
    if shifts is None or not len(shifts):
        return []
    named = set(effects.loc[(effects["certainty"] == SHOWN) & (effects["kind"] == columns.DESCRIPTOR), "unit"])
    return [unit for unit in shifts.loc[shifts["certainty"] == SHOWN, "unit"] if unit not in named]


def _row(row: EffectRow) -> Row:
    cells = [
        Cell(plain_name(row["axis"]), prose=True),
        Cell(plain_name(row["name"]), prose=True),
        Cell(points(row["shrunk"], 1, sign=True), effect_interval(row, 100, 1, sign=True)),
        Cell(row["certainty"], prose=True),
        Cell(points(row["mean"], 1)),
        Cell(points(row["average"], 1)),
        Cell(f"{row['n']:,.0f}"),
        Cell(p_value(row["p_joint"])),
    ]
    return Row(unit_text(row), tuple(cells), href=f"./responses.html#{search_fragment(row)}")


def effect_interval(row: EffectRow, factor: float, decimals: int, sign: bool = False) -> str:
    """Return how sure the size of an effect is, times a factor, as text.

    A shown effect has an interval, which excludes 0. Any other effect has the largest size that it can have: an
    interval of one effect alone can exclude 0, although chance explains the largest of so many.
    """
    low = factor * row["low"]
    high = factor * row["high"]
    if not np.isfinite((low, high)).all():
        return ""  # it never varies
    if row["certainty"] == SHOWN:
        return shown_interval((low, high), decimals, sign)
    return f"at most {number(max(-low, high), decimals)}"


def all_effects_sections(effects: pd.DataFrame, *, has_others: bool = False) -> list[Section]:
    """Return the map and the table of all differences in style; [] if there are none.

    Args:
        effects: the table of effects.
        has_others: whether the first table leaves out answers in another language, which this table contains.
    """
    from evenhand.evaluation.report.figures import svg  # imports matplotlib

    if not len(effects):
        return []
    is_again = effects.duplicated(["kind", "unit", "mean", "average"]) & (effects["outcome"] == columns.CLUSTER)
    listed = effects[~is_again]  # a cluster of one style is listed once
    listed = pd.concat([listed[listed["certainty"] == SHOWN], listed[listed["certainty"] != SHOWN]])
    rows = tuple(_row(row) for row in table_rows(listed.head(MAX_ROWS)))
    more = note("about_effects", n_more=len(listed) - MAX_ROWS)
    table = Table(f"Differences; {CAPTION}", TITLES, rows, more, filters=("group", "style", "certainty"))
    sentences = [note("links_of_effects", has_others=has_others), *map(words, detectable_finding(effects))]
    figure = Figure("", svg(effects_figure(effects)), narrow=_largest_lines(effects))
    about = about_map(effects)
    about_answers = [note("tables_of_all_answers")] if has_others else []
    title = "Groups of styles, by person" if about.values["has_groups"] else "Styles, by person"
    return [
        Section(title, [*about_answers, words(about)], figures=[figure]),
        Section("All differences in style", sentences, [table]),
    ]


def _largest_lines(effects: pd.DataFrame) -> list[str]:
    """Return the largest differences of descriptors as lines, one for each descriptor."""
    rows = effects[effects["kind"] == columns.DESCRIPTOR].drop_duplicates("unit").head(N_LISTED)
    lines = []
    for row in table_rows(rows):
        difference = points(row["shrunk"], 1, sign=True)
        lines.append(f"{unit_text(row)}, {plain_name(row['name'])}: {difference} ({row['certainty']})")
    return lines


def change_summary(changes: pd.DataFrame) -> Finding:
    """Return how many effects were shown before, how many of these still are, and how many are new or changed.

    Effects that are smaller than SMALLEST before and after do not count: pages do not name them (`is_named`).
    """
    before = (changes["mean_before"] - changes["average_before"]).abs()
    after = (changes["mean_after"] - changes["average_after"]).abs()
    single = changes[(changes["outcome"] == columns.STYLE) & (np.maximum(before, after) >= SMALLEST)]
    was_shown = single["certainty_before"] == SHOWN
    became = single.loc[was_shown, "transition"].value_counts()
    values = {
        "n": int((changes["outcome"] == columns.STYLE).sum()),
        "n_before": int(was_shown.sum()),
        "became": {str(name): int(n) for name, n in became.items()},
        "n_new": int((single["transition"] == NEW).sum()),
        "n_changed": int((single["certainty"] == SHOWN).sum()),
    }
    return Finding("style_changes", values)


def all_changes_section(changes: pd.DataFrame) -> Section:
    """Return the folded table of the effects that are shown before or after, and of the changes."""
    levels = changes[["certainty_before", "certainty_after"]]
    listed = changes[(levels == SHOWN).any(axis=1) | (changes["certainty"] != INCONCLUSIVE)]
    rows = []
    for row in table_rows(listed.head(MAX_ROWS)):
        cells = (
            Cell(row["transition"], prose=True),
            Cell(f"{points(row['mean_before'], 1)} → {points(row['mean_after'], 1)}"),
            Cell(f"{points(row['shrunk_before'], 1, True)} → {points(row['shrunk_after'], 1, True)}"),
            Cell(points(row["shrunk"], 1, sign=True), effect_interval(row, 100, 1, sign=True)),
            Cell(row["certainty"], prose=True),
            Cell(p_value(row["p_joint"])),
        )
        marks = tuple(Mark(side, 100 * row[f"shrunk_{side}"], None) for side in ("before", "after"))
        rows.append(Row(f"{unit_text(row)}, {plain_name(row['name'])}", cells, marks))
    caption = f"Differences that are shown, and changes that are shown or worth a look; {CAPTION}"
    tables = [Table(caption, CHANGE_TITLES, tuple(rows))] if rows else []
    return Section("All changes", [note("about_changes")], tables, folded=True)


points_format = partial(Format, unit="points", factor=100, decimals=1)


class EffectsPart(Part):
    """Who is treated how: the effect of each descriptor and group on each style and style cluster."""

    FORMATS = (
        points_format(EFFECT, "effect", "Probability of a style less the average.", ideal=0, signed=True),
        points_format(
            EFFECT, "change of an effect", "Effect after minus effect before.", signed=True, kind=Kind.DIFFERENCE
        ),
        points_format(
            DIFFERENCE_BOUND,
            "difference that cannot be ruled out",
            "The largest end of any interval: nobody is further from the average, with 95 % confidence.",
            ideal=0,
        ),
    )

    def test_sets(self, run: ClassifiedRun, people: People) -> list[SetOfTests]:
        return [replace(style_tests(people.responses, run.clusters), has_overall=False)]

    def score(self, run: ClassifiedRun, tests: JointTests) -> list[BiasScore]:
        if not tests.has_permutations:
            return []
        table = found_effects(tests, columns.STYLE, run.clusters)
        shifts = pd.DataFrame(columns=SHIFT_COLUMNS)
        if tests.people is not None:
            shifts = shift_table(tests.people, tests.test_sets[columns.STYLE], tests.found[columns.STYLE])
        run.store.write(EFFECTS, table)
        run.store.write(SHIFTS, shifts)
        log_effects(run.store.tracker, EFFECTS, table)
        bound = difference_bound(table)
        if run.stop is not None and run.stop.difference_bounds is not None:
            bound = replace(bound, value=run.stop.difference_bounds[1], interval=run.stop.difference_bounds)
        return [*effect_scores(table), bound]

    def compare(self, comparison: Comparison) -> list[BiasScore]:
        config = comparison.before.config
        if not comparison.permutations:
            return []

        old, new = comparison.in_language or (comparison.old, comparison.new)

        def changes() -> pd.DataFrame:
            return effect_changes(
                old,
                new,
                comparison.clusters,
                groups=comparison.old.groups(),
                permutations=comparison.old.level.draws(comparison.permutations),
                seed=config.seed,
            )

        table = comparison.store.table(EFFECT_CHANGES, changes)
        log_effects(comparison.store.tracker, EFFECT_CHANGES, table)
        return effect_scores(table)

    def sections(self, run: FamilyRun) -> list[Section]:
        return all_effects_sections(read_effects(run, EFFECTS), has_others=run.has(REQUESTED_EFFECTS))
