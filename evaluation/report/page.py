"""Contents of a report before rendering: a page is a list of sections with sentences, tables and figures.

All texts are plain strings with formatted numbers. The modules `html` and `terminal` sanitize and render the same page;
`output` writes it. To make a page:

    Page("Title", "model", verdict="One sentence.", sections=[score_section("By axis", scores, "axis")])

In `score_sections`, `score_section` shows any list of scores as dots and intervals, `change_table` scores before and
after.
"""

import datetime
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from urllib.parse import quote

from markupsafe import Markup

from evenhand.evaluation.facts import Facts
from evenhand.evaluation.report.numbers import NO_NUMBER, sanitize
from evenhand.evaluation.score import display_name

SUPERSCRIPTS = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")
MAX_WORD = 4000  # characters of a word in a command
SCORES_TITLE = "The scores"  # the title of the section with the main scores, which summaries of several pages repeat


@dataclass(frozen=True)
class Cell:
    """A cell of a table: a number as `text` with an `interval`, an undefined number with a `reason`, or prose."""

    text: str
    interval: str = ""
    reason: str = ""
    prose: bool = False


@dataclass(frozen=True)
class Mark:
    """A plotted value with an interval, in the metric's reported unit. `role` is "before" or "after"."""

    role: str
    value: float
    interval: tuple[float, float] | None


@dataclass(frozen=True)
class Row:
    """A row of a table; `href` is the target of a link."""

    label: str
    cells: tuple[Cell, ...]
    marks: tuple[Mark, ...] = ()
    href: str = ""


@dataclass(frozen=True)
class Link:
    """A link to a related file: the text of the link, and the file's path relative to the folder of the page.

    `fragment` is the part of the URL after "#", with special characters percent-encoded.
    """

    text: str
    path: str
    fragment: str = ""

    @property
    def href(self) -> str:
        """The path as a relative URL, with special characters percent-encoded."""
        return f"./{quote(self.path)}{'#' if self.fragment else ''}{self.fragment}"


@dataclass(frozen=True)
class Table:
    """A table with a caption above and a note below.

    The first of the `columns` contains the rows' labels. Plots have a line at `ideal`, in the reported unit. In HTML,
    readers can filter the rows by the values of the columns `filters`. `link` leads to a file with all rows.
    """

    caption: str
    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    note: str = ""
    ideal: float = 0.0
    filters: tuple[str, ...] = ()
    link: Link | None = None


@dataclass(frozen=True)
class Step:
    """A step that a reader can take next: a sentence, and a command for a terminal or a link, if there is one.

    Attributes:
        text: the sentence.
        words: the words of the command, none of them quoted yet; a path is a `Path`.
        link: the link.
        is_private: whether the command contains a prompt: no tracker gets it unless the settings ask for it.
    """

    text: str
    words: Sequence[str | Path] = ()
    link: Link | None = None
    is_private: bool = False

    @property
    def command(self) -> str:
        """The command as it is typed here; a path in the working directory is relative to it."""
        return " ".join(typed(str(near(word)) if isinstance(word, Path) else word) for word in self.words)

    @property
    def shared_command(self) -> str:
        """The command for others: a path outside the working directory has only its end, after "…/"."""
        words = []
        for word in self.words:
            shown = near(word) if isinstance(word, Path) else word
            if isinstance(shown, Path) and shown.is_absolute():
                shown = f"…/{display_name(str(shown))}"
            words.append(typed(str(shown)))
        return " ".join(words)


def near(path: Path) -> Path:
    """Return a path relative to the working directory if it is in it, else as it is."""
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


def typed(text: str) -> str:
    r"""Return a text as it is typed in a shell, on one line.

    >>> print(typed("Be kind"), typed("Don't lie.\nBe kind."))
    'Be kind' $'Don\'t lie.\nBe kind.'
    """
    if not {"\n", "\r"} & set(text):
        return shlex.quote(sanitize(text, MAX_WORD))
    for character, escaped in (("\\", "\\\\"), ("'", "\\'"), ("\n", "\\n"), ("\r", "\\r")):
        text = text.replace(character, escaped)
    return f"$'{sanitize(text, MAX_WORD)}'"


@dataclass(frozen=True)
class Figure:
    """A matplotlib chart (`figures.svg`) with a caption above and a note below; a `wide` figure fills the page.

    On narrow screens, the lines `narrow`, if there are any, replace a chart that is unreadable there.
    """

    caption: str
    svg: Markup
    note: str = ""
    wide: bool = True
    narrow: Sequence[str] = ()


@dataclass(frozen=True)
class Example:
    """Texts to read side by side, such as the responses to a `prompt`.

    `texts` are (name, text) pairs; the texts with an index in `hidden` are hidden until the reader clicks, because a
    classifier marked them as offensive. `claim` is a sentence above the texts.
    """

    heading: str
    texts: Sequence[tuple[str, str]]
    prompt: str = ""
    hidden: frozenset[int] = frozenset()
    claim: str = ""


@dataclass(frozen=True)
class Section:
    """A section of a page. Pages omit empty sections.

    If `folded` is true, the page displays only the section's title and sentences until the reader opens the section.
    The terminal prints only sections with `first_screen`. `parts` are subsections, which have no subsections.
    A section whose sentences, captions or figures contain prompts `is_private`: no tracker gets it unless the settings
    ask for it.
    """

    title: str
    sentences: Sequence[str] = ()
    tables: Sequence[Table] = ()
    figures: Sequence[Figure] = ()
    examples: Sequence[Example] = ()
    parts: Sequence["Section"] = ()
    folded: bool = False
    first_screen: bool = False
    is_private: bool = False

    @property
    def has_content(self) -> bool:
        """Whether the section has sentences, figures, examples, a non-empty table, or a part with content."""
        if self.sentences or self.figures or self.examples:
            return True
        has_table = any(table.rows or table.note for table in self.tables)
        return has_table or any(part.has_content for part in self.parts)


@dataclass(frozen=True)
class Page:
    """All contents of a report.

    Attributes:
        headline_value, headline_caption: a large number, and the line below the number.
        first_table: what must be seen first, below the number.
        explanations: sentences below the headline, such as what it may mean.
        notes, private_notes: sentences on how the numbers were made; private ones contain prompts, and no tracker gets
            them unless the settings ask for it.
        steps: what the reader can do next.
        sides: names of the columns with the plotted values: one, or two with the marks ○ and ●.
        signature_lines: a citable line for each measurement.
        links: links to reports and rows of the summarised runs.
        facts: what the page tells, as data; None for a page that is not of one family.
    """

    title: str
    subtitle: str
    date: str = field(default_factory=lambda: datetime.date.today().isoformat())
    headline_value: str = "–"
    headline_caption: str = ""
    verdict: str = ""
    warnings: Sequence[str] = ()
    notes: Sequence[str] = ()
    sections: Sequence[Section] = ()
    glossary: Sequence[tuple[str, str]] = ()
    limits: Sequence[str] = ()
    signature: Mapping[str, object] = field(default_factory=dict)
    signature_lines: Sequence[str] = ()
    sides: tuple[str, ...] = ("value",)
    links: Sequence[Link] = ()
    first_table: Table | None = None
    explanations: Sequence[str] = ()
    steps: Sequence[Step] = ()
    private_notes: Sequence[str] = ()
    facts: Facts | None = None

    def all_sections(self) -> Iterator[Section]:
        """Yield the sections and subsections that have content, in the order of the page."""
        for section in self.sections:
            for part in [section, *section.parts]:
                if part.has_content:
                    yield part


def signature_rows(signature: Mapping[str, object], prefix: str = "") -> list[tuple[str, str]]:
    """Return a nested signature as (dotted name, value) rows, with absolute paths shortened by `display_name`."""
    rows = []
    for name, value in signature.items():
        dotted = f"{prefix}{name}"
        if isinstance(value, Mapping) and value:
            rows += signature_rows(value, f"{dotted}.")
        else:
            rows.append((sanitize(dotted), sanitize(str(_without_folders(value)))))
    return rows


def _without_folders(value: object) -> object:
    if isinstance(value, (list, tuple)):
        return [_without_folders(item) for item in value]
    return display_name(value) if isinstance(value, str) else value


def format_table(table: Table) -> Table:
    """Return the table with sanitized texts and a footnote with the reasons why cells are undefined."""
    reasons = list(dict.fromkeys(cell.reason for row in table.rows for cell in row.cells if cell.reason))
    marks = {}
    for number_of_reason, reason in enumerate(reasons, 1):
        superscript = str(number_of_reason).translate(SUPERSCRIPTS) if len(reasons) > 1 else ""
        marks[reason] = NO_NUMBER + superscript
    rows = []
    for row in table.rows:
        cells = []
        for cell in row.cells:
            text = marks[cell.reason] if cell.reason else sanitize(cell.text)
            cells.append(replace(cell, text=text, reason=""))
        rows.append(replace(row, label=sanitize(row.label), cells=tuple(cells)))
    notes = [sanitize(table.note)] if table.note else []
    if marks:
        footnotes = [f"{mark} undefined: {sanitize(reason).rstrip('.')}" for reason, mark in marks.items()]
        notes.append(f"{'; '.join(footnotes)}.")
    return replace(
        table,
        caption=sanitize(table.caption),
        columns=tuple(sanitize(column) for column in table.columns),
        rows=tuple(rows),
        note=" ".join(notes),
    )
