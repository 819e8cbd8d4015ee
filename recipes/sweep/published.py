r"""Tables 8 and 9 of Smith et al. 2022 for the settings of a sweep: in the report, as CSV and as LaTeX.

Table 8 has FGB and the PGB of each style cluster, Table 9 the SCGB of each style cluster, for the base model and each
tuned model. The values are uncorrected, as in the paper, and multiplied by 1000. A LaTeX table needs the package
booktabs. A value is bold if its interval is below the intervals of all others in its column.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from evenhand.evaluation.csv_files import csv_text
from evenhand.evaluation.files import write_text
from evenhand.evaluation.report.formats import Format
from evenhand.evaluation.report.numbers import PER_UNIT, UNIT
from evenhand.evaluation.report.page import Table
from evenhand.evaluation.score import display_name
from evenhand.recipes.sweep.setting_tables import SettingRow, base_rows, metric_table
from evenhand.recipes.sweep.summary import THRESHOLD_COLUMNS, Sweep, published_columns

NOTE = (
    "As in Smith et al. 2022, Tables 8 and 9: uncorrected, so that the noise of the responses is a part of each value. "
    "Compare only values from equally many responses to a template and descriptor."
)
BOLD = r"Bold: the 95\,\% interval is below the intervals of all others in the column."
LATEX_ESCAPES = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
LATEX_ESCAPES |= {character: f"\\{character}" for character in "&%$#_{}"}


@dataclass(frozen=True)
class PublishedTable:
    """A table of the paper: its file name, its caption, and the metrics in its columns."""

    name: str
    caption: str
    metrics: tuple[str, ...]

    def columns(self, columns: Sequence[str]) -> dict[str, str]:
        """Return value name → heading for the columns that this table of the paper has."""
        headings = {}
        for name in columns:
            metric, _, cluster = name.partition(": ")
            if metric in self.metrics:
                headings[name] = cluster or "FGB"
        return headings


TABLES = (
    PublishedTable("table_8", "FGB, and PGB by style cluster", ("fgb", "pgb")),
    PublishedTable("table_9", "SCGB by style cluster", ("scgb",)),
)


def published_tables(settings: Sequence[SettingRow], columns: Sequence[str]) -> list[Table]:
    """Return both tables, as tables of a report, of the base model and the settings."""
    if not columns:
        return []
    rows = [*base_rows(settings, columns), *settings]
    tables = []
    for table in TABLES:
        formats = [
            Format(name, heading, "", factor=PER_UNIT, decimals=2) for name, heading in table.columns(columns).items()
        ]
        tables.append(metric_table(f"{table.caption}, {UNIT}; ideal 0", rows, formats, NOTE))
    return tables


def write_published_tables(folder: Path, sweep: Sweep) -> list[Path]:
    """Write both tables of a sweep as CSV, with intervals, and as LaTeX; return the paths of the files."""
    settings = sweep.settings
    columns = published_columns(sweep.points)
    rows = [*base_rows(settings, columns), *settings]
    rows = [row for row in rows if math.isfinite(row.get("fgb", math.nan))]
    files: list[Path] = []
    if not rows:
        return files
    base_model = latex_text(display_name(sweep.base_model))
    for table in TABLES:
        headings = table.columns(columns)
        csv = csv_table(rows, headings)
        caption = f"{table.caption}, $\\times 10^{{-3}}$; ideal 0. Base model: {base_model}. {BOLD}"
        for suffix, text in (("csv", csv), ("tex", latex_table(rows, headings, caption, table.name))):
            path = folder / f"{table.name}.{suffix}"
            write_text(path, text)
            files.append(path)
    return files


def csv_table(rows: Sequence[SettingRow], headings: dict[str, str]) -> str:
    """Return labels, thresholds, and values ×1000 with the ends of their 95 % intervals, as CSV."""
    table = []
    for row in rows:
        line = {"model": row["label"]}
        for name in THRESHOLD_COLUMNS:
            line[name] = row[name]
        for name, heading in headings.items():
            for end in ("", "_low", "_high"):
                line[f"{heading}{end}"] = PER_UNIT * row[f"{name}{end}"]
        table.append(line)
    return csv_text(list(table[0]), table)


def latex_table(rows: Sequence[SettingRow], headings: dict[str, str], caption: str, label: str) -> str:
    """Return a LaTeX table of labels, β, the share labelled `bias`, and values ×1000.

    Args:
        caption: LaTeX.
    """
    heads = ["Model", r"$\beta$", r"labelled \texttt{bias}", *map(latex_text, headings.values())]
    lines = [" & ".join(heads) + r" \\", r"\midrule"]
    for row in rows:
        has_threshold = math.isfinite(row["beta"])
        beta = f"{row['beta']:.2g}" if has_threshold else ""
        share = f"{100 * row['share_labelled_bias']:.0f}\\,\\%" if has_threshold else ""
        cells = [latex_text(row["label"]), beta, share]
        for name in headings:
            value = f"{PER_UNIT * row[name]:.2f}"
            cells.append(f"\\textbf{{{value}}}" if is_shown_lowest(row, rows, name) else value)
        lines.append(" & ".join(cells) + r" \\")
    alignment = "l" + "r" * (len(heads) - 1)
    return "\n".join(
        [
            r"\begin{table}",
            r"\centering",
            f"\\caption{{{caption}}}",
            f"\\label{{tab:{label}}}",
            f"\\begin{{tabular}}{{{alignment}}}",
            r"\toprule",
            *lines,
            r"\bottomrule",
            r"\end{tabular}",
            r"\end{table}",
            "",
        ]
    )


def is_shown_lowest(row: SettingRow, rows: Sequence[SettingRow], name: str) -> bool:
    """Return whether the interval of a row's value is below the intervals of the values of all other rows."""
    others = [other for other in rows if other is not row]
    return all(row[f"{name}_high"] < other[f"{name}_low"] for other in others)


def latex_text(text: str) -> str:
    """Return a text with LaTeX's special characters escaped.

    >>> latex_text("control_tags · 50 %")
    'control\\\\_tags · 50 \\\\%'
    """
    return re.sub(r"[\\~^&%$#_{}]", lambda match: LATEX_ESCAPES[match.group()], text)
