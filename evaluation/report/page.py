"""Contents of a report before rendering: verdict, tables, figures and texts as plain strings.

A family of metrics builds a `Page`. The modules `html`, `markdown` and `terminal` sanitize and render a page, and
`files` writes the rendered page.
"""

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from markupsafe import Markup

from evenhand.evaluation.report.numbers import sanitize
from evenhand.evaluation.report.table_data import Table
from evenhand.evaluation.score import display_name


@dataclass(frozen=True)
class Link:
    """A link to a related file: the text of the link, and the file's path relative to the folder of the page."""

    text: str
    path: str

    @property
    def href(self) -> str:
        """The path as a relative URL, with special characters percent-encoded."""
        return f"./{quote(self.path)}"


@dataclass(frozen=True)
class Figure:
    """A chart as SVG (`figures.svg`) with a caption above and a note below; a `wide` figure fills the page."""

    caption: str
    svg: Markup
    note: str = ""
    wide: bool = True


@dataclass(frozen=True)
class Example:
    """Texts to read side by side, such as the responses to a `prompt`.

    Attributes:
        heading: the heading of the example.
        texts: a (name, parts) pair for each text, where each part is (text, whether the part is highlighted). Parts are
            concatenated; a highlighted part should not begin or end with a space.
        prompt: the prompt that the texts respond to.
        hidden: indices of the texts that are hidden until the reader clicks, because a classifier marked them as
            offensive.
        claim: a sentence above the texts.
        anchor: the name of the example for links within the page.
    """

    heading: str
    texts: tuple[tuple[str, tuple[tuple[str, bool], ...]], ...]
    prompt: str = ""
    hidden: frozenset[int] = frozenset()
    claim: str = ""
    anchor: str = ""


@dataclass(frozen=True)
class Section:
    """A section of a page. Pages omit empty sections.

    If `folded` is true, the page displays only the section's title and sentences until the reader opens the section.
    The terminal prints only sections with `first_screen`. `parts` are subsections, which have no subsections.
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
        """Whether the section has sentences, figures, examples, a non-empty table, or a part with content."""
        if any(map(len, (self.sentences, self.figures, self.examples))):
            return True
        return any(table.rows or table.note for table in self.tables) or any(part.has_content for part in self.parts)


@dataclass(frozen=True)
class Page:
    """All contents of a report.

    Attributes:
        headline_value, headline_caption: the headline number, and the line below the number.
        tables: the tables of the headline.
        lead: sections directly after the verdict. If there are any, the headline number and its tables follow them.
        sides: names of the columns with the plotted values: one, or two with the marks ○ and ●.
        signature_lines: a citable line for each measurement.
        links: links to reports and rows of the summarised runs.
    """

    title: str
    subtitle: str
    date: str = field(default_factory=lambda: datetime.date.today().isoformat())
    headline_value: str = "–"
    headline_caption: str = ""
    verdict: str = ""
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
    lead: Sequence[Section] = ()


def signature_rows(signature: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    """Return a nested signature as (dotted name, value) rows, in the order of the signature."""
    rows = []
    for name, value in signature.items():
        dotted = f"{prefix}{name}"
        if isinstance(value, Mapping) and value:
            rows += signature_rows(value, f"{dotted}.")
        else:
            rows.append((sanitize(dotted), sanitize(str(without_folders(value)))))
    return rows


def without_folders(value: Any) -> Any:
    """Return a nested signature in which `display_name` has shortened the absolute paths."""
    if isinstance(value, Mapping):
        return {name: without_folders(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [without_folders(item) for item in value]
    return display_name(value) if isinstance(value, str) else value
