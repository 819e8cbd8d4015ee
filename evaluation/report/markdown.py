"""Rendering of a page as GitHub-flavoured Markdown without figures; all texts are escaped."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from evenhand.evaluation.report.numbers import sanitize
from evenhand.evaluation.report.page import Example, Page, Section, signature_rows
from evenhand.evaluation.report.tables import Table, format_table

# Characters that begin markup anywhere in a line, or that turn a bare address into a link.
_MARKUP = re.compile(r"([\\`*_{}\[\]<>|#~!$@&]|:(?=/)|(?<=www)\.)", re.IGNORECASE)


def page_markdown(page: Page) -> str:
    """Return the page as Markdown, ending with a line break."""
    parts = [
        f"# {escaped(page.title)}",
        f"{escaped(page.subtitle)} · {escaped(page.date)}",
        f"**{escaped(page.verdict)}**",
        " · ".join(f"[{escaped(link.text)}]({link.href})" for link in page.links),
        *(f"> **Warning.** {escaped(warning)}" for warning in page.warnings),
        *(_section(escaped(part.title), _parts(part)) for part in page.lead),
        *map(_table, page.tables),
        *map(escaped, page.notes),
        *(_section(escaped(part.title), _parts(part)) for part in page.sections),
        _section("How to read the numbers", [f"- **{escaped(word)}**: {escaped(it)}" for word, it in page.glossary]),
        _section("Limits", [f"- {escaped(limit)}" for limit in page.limits]),
        _section("Signature", [*(f"`{sanitize(line)}`" for line in page.signature_lines), _signature(page.signature)]),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _parts(part: Section) -> Iterator[str]:
    yield from map(escaped, part.sentences)
    yield from map(_table, part.tables)
    if part.examples:
        yield "\n".join(_examples(part.examples))
    for subsection in part.parts:
        text = "\n\n".join(filter(None, _parts(subsection)))
        if text:
            yield f"### {escaped(subsection.title)}\n\n{text}"


def _examples(examples: Iterable[Example]) -> Iterator[str]:
    for example in examples:
        above = filter(None, map(escaped, (example.claim, example.heading, example.prompt)))
        yield f"- {': '.join(above) or 'Responses'}"
        for number, (name, content) in enumerate(example.texts):
            text = escaped(content)
            text = "*marked as offensive by the classifier*" if number in example.hidden else text or "*empty*"
            yield f"  - {escaped(name)}: {text}"


def _section(title: str, parts: Iterable[str]) -> str:
    """Return the parts under the heading `title`, or "" if all parts are empty."""
    text = "\n\n".join(part for part in parts if part)
    return f"## {title}\n\n{text}" if text else ""


def _table(table: Table) -> str:
    """Return a table as Markdown, with its caption above and its note below; "" without rows and note."""
    table = format_table(table)
    parts = [f"{escaped(table.caption)}:", _grid(table), escaped(table.note)]
    return "\n\n".join(part for part in parts if part) if table.rows or table.note else ""


def _grid(table: Table) -> str:
    if not table.rows:
        return ""
    body = [
        [f"{escaped(row.label)}{' **rose**' if row.direction > 0 else ''}"]
        + [f"{escaped(cell.text)} {cell.interval}".rstrip() for cell in row.cells]
        for row in table.rows
    ]
    prose = [True, *(any(row.cells[column].prose for row in table.rows) for column in range(len(table.columns) - 1))]
    rule = [":---" if is_prose else "---:" for is_prose in prose]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (map(escaped, table.columns), rule, *body))


def _signature(signature: Mapping[str, Any]) -> str:
    """Return the signature as JSON in a fenced code block, or "" for an empty signature."""
    if not signature:
        return ""
    text = json.dumps(dict(signature_rows(signature)), indent=1, ensure_ascii=False)
    text = "\n".join(sanitize(line) for line in text.split("\n"))
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))  # longer than any run of backticks
    return f"{fence}json\n{text}\n{fence}"


def escaped(text: str) -> str:
    """Return the sanitized text with the characters of Markdown escaped."""
    return _MARKUP.sub(r"\\\1", sanitize(text))
