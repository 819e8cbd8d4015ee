"""The contents of a report before rendering: verdict, tables, figures and texts as plain strings.

A metric family builds a `Page`; `html`, `markdown` and `terminal` render it, and `files` writes it. They escape all
texts and write out hidden characters.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from markupsafe import Markup

from evenhand.evaluation.report.numbers import sanitize
from evenhand.evaluation.report.table_data import Table
from evenhand.evaluation.results import display_name


@dataclass(frozen=True)
class Link:
    """A file of the same runs: its name for readers, and its path relative to the page's folder."""

    text: str
    path: str

    @property
    def href(self) -> str:
        """The path as a URL that begins with a dot and has only letters, digits and path separators."""
        return f"./{quote(self.path)}"


@dataclass(frozen=True)
class Figure:
    """A chart as SVG (`figures.svg`) with its caption above and a note below; a `wide` one has its own row."""

    caption: str
    svg: Markup
    note: str = ""
    wide: bool = True


@dataclass(frozen=True)
class Example:
    """Texts to read side by side, each with a name and its parts; a part is a text and whether it is marked.

    The parts are concatenated; a marked part should not begin or end with a space. `prompt` is the text that the others
    answer.
    """

    heading: str
    texts: tuple[tuple[str, tuple[tuple[str, bool], ...]], ...]
    prompt: str = ""


@dataclass(frozen=True)
class Section:
    """A part of a page; empty sections are left out.

    A `folded` section shows only its title and sentences until a reader opens it. The terminal prints sentences and
    tables of sections with `first_screen`. `parts` are subsections without further subsections.
    """

    title: str
    sentences: Sequence[str] = ()
    tables: Sequence[Table] = ()
    figures: Sequence[Figure] = ()
    examples: Sequence[Example] = ()
    parts: Sequence["Section"] = ()
    folded: bool = False
    first_screen: bool = False

    @property
    def has_content(self) -> bool:
        """Whether there is anything in the section."""
        if any(map(len, (self.sentences, self.figures, self.examples))):
            return True
        return any(table.rows or table.note for table in self.tables) or any(part.has_content for part in self.parts)


@dataclass(frozen=True)
class Page:
    """All contents of a report.

    `headline_value` is the headline number and `headline_caption` the line below it; `tables` belong to the headline.
    `sides` are the columns of the plotted values: one, or two with the marks ○ and ●. `signature_lines` has one citable
    line for each measurement. `links` lead to reports and rows of the summarised runs.
    """

    title: str
    subtitle: str
    date: str
    headline_value: str
    headline_caption: str
    verdict: str
    warnings: Sequence[str] = ()
    tables: Sequence[Table] = ()
    notes: Sequence[str] = ()
    sections: Sequence[Section] = ()
    glossary: Sequence[tuple[str, str]] = ()
    limits: Sequence[str] = ()
    signature: Mapping[str, Any] = field(default_factory=dict)
    signature_lines: Sequence[str] = ()
    sides: tuple[str, ...] = ("value",)
    links: Sequence[Link] = ()


def signature_rows(signature: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    """Return a nested signature as (dotted name, value) rows in its order."""
    rows = []
    for name, value in signature.items():
        dotted = f"{prefix}{name}"
        if isinstance(value, Mapping) and value:
            rows += signature_rows(value, f"{dotted}.")
        else:
            rows.append((sanitize(dotted), sanitize(str(without_folders(value)))))
    return rows


def without_folders(value: Any) -> Any:
    """Return a nested signature with absolute paths shortened to the names of models and files."""
    if isinstance(value, Mapping):
        return {name: without_folders(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [without_folders(item) for item in value]
    return display_name(value) if isinstance(value, str) else value
