"""Sentences about findings: a template of a family has a macro for each kind, which takes the finding's values."""

import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from evenhand.evaluation.doors import spelled
from evenhand.evaluation.facts import Finding, as_finding
from evenhand.evaluation.report.formats import find_format, format_of
from evenhand.evaluation.report.numbers import (
    duration,
    interval,
    number,
    of_100,
    p_text,
    p_value,
    percent,
    plain_name,
    sanitize,
    score_text,
)
from evenhand.evaluation.report.score_sections import value_text
from evenhand.evaluation.score import BiasScore

if TYPE_CHECKING:  # imported at run time, it would delay the command line
    from jinja2.environment import TemplateModule

COMMON = Path(__file__).with_name("words.j2")  # the kinds that all families share


def sentence(finding: Finding, *templates: Path) -> str:
    """Return the sentence about a finding, as plain text.

    It is made by the macro of the finding's kind in the first template that has one; the common template is the last.
    In a macro, the filter `sentence` does the same for a finding among the values.

    Raises:
        ValueError: there is no such macro.
        jinja2.UndefinedError: the macro names a value that the finding does not have.
    """
    for macros in _macros(*templates):
        macro = getattr(macros, finding.kind, None)
        if macro is not None:
            return re.sub(r"[ \n]+", " ", str(macro(finding.values))).strip(" ")
    names = ", ".join(path.name for path in templates)
    raise ValueError(f"no sentence for the kind {finding.kind!r} in {names or COMMON.name}")


def note(file: Path, kind: str, /, **values: object) -> str:
    """Return a sentence of a page that tells how to read it; the template `file`, or the common one, has its macro."""
    return sentence(Finding(kind, values), file)


def document(file: Path, /, **values: object) -> str:
    """Return a Markdown template with its values; its lines stay as they are."""
    from jinja2 import Environment, StrictUndefined

    environment = Environment(
        undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True, autoescape=False
    )
    return environment.from_string(file.read_text(encoding="utf-8")).render(values)


def listed(name: str, *templates: Path) -> list[str]:
    """Return the list of sentences that one of the templates sets, such as "limits"; [] if none does."""
    return next((getattr(macros, name) for macros in _macros(*templates) if hasattr(macros, name)), [])


def has_sentence(kind: str, *templates: Path) -> bool:
    """Return whether one of the templates, or the common one, has a macro for a kind of findings."""
    return any(hasattr(macros, kind) for macros in _macros(*templates))


@cache
def _macros(*templates: Path) -> "list[TemplateModule]":
    """Return the macros of the templates and of the common one."""
    from jinja2 import Environment, StrictUndefined

    environment = Environment(undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, autoescape=False)
    environment.globals["spelled"] = spelled
    environment.filters.update(
        sentence=lambda found: sentence(as_finding(found), *templates),
        value_text=value_text,
        full_text=_full_text,
        label=_label,
        title=_title,
        count=_count,
        counted=counted,
        agreeing=agreeing,
        counts=_counts,
        with_interval=_with_interval,
        bare_value=_bare_value,
        bare_interval=_bare_interval,
        unit=_unit,
        lower_first=_lower_first,
        upper_first=_upper_first,
        number=number,
        duration=duration,
        interval=interval,
        of_100=of_100,
        p_text=p_text,
        p_value=p_value,
        score_text=score_text,
        percent=percent,
        plain_name=plain_name,
        plain_number="{:g}".format,
        sanitize=sanitize,
    )
    return [environment.from_string(path.read_text(encoding="utf-8")).module for path in (*templates, COMMON)]


def _full_text(value: float, metric: str) -> str:
    """Return a value of a metric with its unit."""
    return find_format(metric).full_text(value)


def _label(score: BiasScore) -> str:
    return format_of(score).label


def _title(score: BiasScore) -> str:
    """Return the label of a score with its unit."""
    return format_of(score).title


def _count(n: int) -> str:
    return f"{n:,}"


def counted(n: float, noun: str, plural: str = "") -> str:
    """Return a number with its noun, of which most have an s in the plural.

    >>> counted(1, "answer"), counted(1200, "answer"), counted(2, "person", "people")
    ('1 answer', '1,200 answers', '2 people')
    """
    return f"{n:,.0f} {agreeing(n, noun, plural or f'{noun}s')}"


def agreeing(n: float, singular: str, plural: str) -> str:
    """Return the singular or the plural form of a word, as a number n of things needs it.

    >>> agreeing(1, "does", "do"), agreeing(0, "does", "do")
    ('does', 'do')
    """
    return singular if n == 1 else plural


def _counts(counts: dict[str, int]) -> str:
    """Return counts by what they count as "12: too long; 3: no answer"."""
    return "; ".join(f"{n:,}: {sanitize(name, 200)}" for name, n in counts.items())


def _with_interval(score: BiasScore) -> str:
    """Return a score with its unit and its interval as "95.5 % [91.3, 99.8]"."""
    form = format_of(score)
    return f"{form.full_text(score.value)} {form.interval_text(score.interval)}".rstrip()


def _bare_value(score: BiasScore) -> str:
    """Return a score as a number without its unit."""
    return format_of(score).text(score.value)


def _bare_interval(score: BiasScore) -> str:
    return format_of(score).interval_text(score.interval)


def _unit(score: BiasScore) -> str:
    return format_of(score).unit


def _lower_first(text: str) -> str:
    return text[:1].lower() + text[1:]


def _upper_first(text: str) -> str:
    return text[:1].upper() + text[1:]
