"""Parts of a report as GitHub-flavoured Markdown, in which no text from outside is markup."""

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from evaluation.report.numbers import visible
from evaluation.report.tables import Table

# What can begin markup anywhere in a line, and what would make a bare address a link.
_MARKUP = re.compile(r"([\\`*_{}\[\]<>|#~!$@&]|:(?=/)|(?<=www)\.)", re.IGNORECASE)


def section(title: str, parts: Iterable[str]) -> str:
    """Return the parts under their heading, or nothing if all of them are empty."""
    text = "\n\n".join(part for part in parts if part)
    return f"## {title}\n\n{text}" if text else ""


def table_block(table: Table) -> str:
    """Return a table under its caption."""
    parts = [f"{escaped(table.caption)}:", _grid_of(table), escaped(table.note)]
    return "\n\n".join(part for part in parts if part) if table.rows or table.note else ""


def _grid_of(table: Table) -> str:
    if not table.rows:
        return ""
    body = [
        [f"{escaped(row.label)}{' **rose**' if row.direction > 0 else ''}"]
        + [f"{escaped(cell.full)} {cell.interval}".rstrip() for cell in row.cells]
        for row in table.rows
    ]
    return _grid(map(escaped, table.columns), body, right_from=1)


def signature_block(signature: Mapping[str, Any]) -> str:
    """Return a signature as JSON in a code block that it cannot end, or nothing if it is empty."""
    if not signature:
        return ""
    text = json.dumps(signature, indent=1, ensure_ascii=False, default=str)
    text = "\n".join(visible(line) for line in text.split("\n"))
    fence = _fence(text, at_least=3)
    return f"{fence}json\n{text}\n{fence}"


def _grid(columns: Iterable[str], rows: Iterable[list[str]], right_from: int) -> str:
    """Return a table; the columns from `right_from` on are flush right."""
    columns = list(columns)
    rule = ["---:" if place >= right_from else ":---" for place in range(len(columns))]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (columns, rule, *rows))


def escaped(text: str) -> str:
    """Return text in which nothing is markup."""
    return _MARKUP.sub(r"\\\1", visible(text))


def _fence(text: str, at_least: int) -> str:
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    return "`" * max(at_least, longest + 1)
