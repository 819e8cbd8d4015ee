"""A report of any kind, before it has a form: a verdict, its tables and figures, as plain strings.

A metric family builds a `Page`; `html`, `markdown` and `terminal` show it, and `files` writes it. Whatever in it came
from a model or from a file is escaped there, and hidden characters in it are written out.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from markupsafe import Markup

from evenhand.evaluation.report.numbers import visible
from evenhand.evaluation.report.tables import Table
from evenhand.evaluation.results import display_name


@dataclass(frozen=True)
class Link:
    """Another file of the same runs: what it is, and the way to it from this page's folder, as in a file system."""

    text: str
    path: str

    @property
    def href(self) -> str:
        """The way as an address, which begins with a dot and holds nothing but letters, digits and signs of a path."""
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
    """Texts to read side by side: each has a name and its parts in order, every part with whether it is to be marked.

    The parts are joined as they are; a marked one should not begin or end with a space. `asked` is what the texts
    answer to.
    """

    heading: str
    texts: tuple[tuple[str, tuple[tuple[str, bool], ...]], ...]
    asked: str = ""


@dataclass(frozen=True)
class Section:
    """A part of a page; an empty one is not shown.

    Only the title and the sentences of a `folded` one are seen at first. `first_screen` prints its sentences
    and tables on the terminal too. `parts` are sections below this one, and have none below them.
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
    def shown(self) -> bool:
        """Whether there is anything in it."""
        something = (self.sentences, self.figures, self.examples)
        return (
            any(map(len, something)) or any(t.rows or t.note for t in self.tables) or any(p.shown for p in self.parts)
        )


@dataclass(frozen=True)
class Page:
    """All that a report shows.

    `big` is the one large number and `under` the line that says what it is; `tables` are the headline's. `sides` heads
    the table columns whose marks are drawn: one, or two that are drawn as ○ and as ●. `signature_lines` are what to
    paste into a paper, a line a measurement. `links` lead to the reports and rows behind this page.
    """

    title: str
    subtitle: str
    date: str
    big: str
    under: str
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
    """Return a nested signature as (dotted name, value) rows, in the order given."""
    rows = []
    for name, value in signature.items():
        dotted = f"{prefix}{name}"
        if isinstance(value, Mapping) and value:
            rows += signature_rows(value, f"{dotted}.")
        else:
            rows.append((visible(dotted), visible(str(without_places(value)))))
    return rows


def without_places(value: Any) -> Any:
    """Return a nested signature with models and files by their names, as a page may be read elsewhere."""
    if isinstance(value, Mapping):
        return {name: without_places(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [without_places(item) for item in value]
    return display_name(value) if isinstance(value, str) else value
