"""Prompts of your own templates, each filled with each of your own people."""

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path

import pandas as pd

from evenhand.evaluation import columns
from evenhand.evaluation.data.language.mentions import FORMS, NEUTRAL, spoken_article
from evenhand.evaluation.data.prompts import check_row_count
from evenhand.evaluation.data.readers.cells import name_text
from evenhand.evaluation.data.readers.prompt_files import RUN_COLUMNS, build_prompts
from evenhand.evaluation.data.readers.table_files import SUFFIXES, decode_text, read_columns
from evenhand.evaluation.errors import InputError
from evenhand.evaluation.untrusted_text import clean_name

PERSON = "person"
SLOT = re.compile(r"\{(\w[\w -]*)\}")  # JSON in a template, such as {"answer": …}, is no slot
NAMES = "name"  # the column of names, each of which stands for the group in the other columns
PEOPLE = "people"  # the axis of a list without a header
NEUTRAL_NAME = "Alex"  # replaces names before the style of a response is classified
CROSS = " × "
# Columns of prompts that the columns of people would replace.
PROMPT_COLUMNS = (columns.TEXT, columns.TEMPLATE, columns.PROMPT_ID, columns.PERSONA, FORMS, NEUTRAL, *RUN_COLUMNS)


def read_templates(path: Path) -> list[str]:
    """Return the templates in a text file, one a line, or in the column template or text of a table.

    Raises:
        InputError: the file cannot be read or has no template, or a template has no slot such as {person}, or occurs
            twice.
    """
    names = _read(path, "templates", (columns.TEMPLATE, columns.TEXT))
    name = next((name for name in (columns.TEMPLATE, columns.TEXT, "") if name in names), None)
    if name is None:
        raise InputError("prompts.templates", f"{path} has no column {columns.TEMPLATE}, only {', '.join(names)}.")
    templates = [text for text in names[name] if isinstance(text, str) and text.strip()]
    for template in templates:
        if not SLOT.search(template) or templates.count(template) > 1:
            raise InputError(
                "prompts.templates", f"{path}: {template!r} occurs twice or has no slot; write {{person}}."
            )
    if not templates:
        raise InputError("prompts.templates", f"{path} has no template; write one a line, such as I am a {{person}}.")
    return templates


def read_people(path: Path) -> list[dict[str, str]]:
    """Return the people in a file: for each the values of its slots, and its descriptor and axis.

    A text file has a person a line. A table has one column, or several:

    - one column: each value is a person, and the column's name the axis;
    - with the columns person or descriptor, and perhaps axis: a row is a person, and other columns are not used;
    - with the column name: a row is a name of a person of the group in the other columns, so that all names of a group
      are one descriptor; without other columns, each name is one;
    - other columns are crossed: each value of one with each of the others, in the order of the columns.

    Raises:
        InputError: the file cannot be read, a column has the name of a column of prompts, or there are fewer than two
            different people.
    """
    names = _read(path, "people", (PERSON, columns.DESCRIPTOR, columns.AXIS, NAMES))
    texts = {
        name: ["" if value is None else clean_name(name_text(value)) for value in values]
        for name, values in names.items()
    }
    person = next((name for name in (PERSON, columns.DESCRIPTOR, "") if name in texts), None)
    taken = [name for name in texts if name in (*PROMPT_COLUMNS, columns.AXIS)]  # with a person, others are not used
    if person is not None:
        people = _listed_people(texts, person)
    elif taken:
        raise InputError("prompts.people", f"the column {taken[0]!r} of {path} is a column of prompts, too; rename it.")
    elif NAMES in texts:
        people = _named_people(texts, path)
    else:
        people = _crossed_people(texts)
    if len({row[columns.DESCRIPTOR] for row in people}) < 2:
        raise InputError("prompts.people", f"{path} has fewer than two different people; nothing can be compared.")
    return people


def _read(path: Path, content: str, known: Sequence[str]) -> dict[str, list]:
    """Return the columns of a table, or the lines of a text file as the column ""."""
    suffix = path.suffix.lower()
    try:
        if suffix in SUFFIXES and suffix != ".txt":
            return read_columns(path, content, known=known)
        return {"": [line.strip() for line in decode_text(path).splitlines()]}
    except (OSError, ValueError) as error:
        raise InputError(f"prompts.{content}", str(error)) from None


def _listed_people(texts: Mapping[str, list[str]], person: str) -> list[dict[str, str]]:
    """Return a person for each distinct row of the column `person` and the axis."""
    names = texts[person]
    axes = texts.get(columns.AXIS, [PEOPLE] * len(names))
    pairs = dict.fromkeys((name, axis or PEOPLE) for name, axis in zip(names, axes, strict=True) if name)
    return [{PERSON: name, columns.DESCRIPTOR: name, columns.AXIS: axis} for name, axis in pairs]


def _named_people(texts: Mapping[str, list[str]], path: Path) -> list[dict[str, str]]:
    """Return a person for each name of a group; people with equal values of the other columns have one descriptor.

    Raises:
        InputError: a name has no value in another column.
    """
    groups = [name for name in texts if name != NAMES]
    axis = CROSS.join(groups) or NAMES
    people = []
    for row in dict.fromkeys(zip(*(texts[column] for column in (NAMES, *groups)), strict=True)):
        name, *values = row
        if not name:
            continue
        if "" in values:
            raise InputError(
                "prompts.people", f"{path}: {name!r} has no {groups[values.index('')]}; write it, or leave the row out."
            )
        people.append(
            {
                PERSON: name,
                **dict(zip(groups, values, strict=True)),
                columns.DESCRIPTOR: CROSS.join(values) or name,
                columns.AXIS: axis,
                FORMS: name,
                NEUTRAL: NEUTRAL_NAME,
            }
        )
    return people


def _crossed_people(texts: Mapping[str, list[str]]) -> list[dict[str, str]]:
    """Return a person for each combination of one value of each column."""
    values = {name: list(dict.fromkeys(filter(None, column))) for name, column in texts.items()}
    people = []
    for combination in product(*values.values()):
        phrase = " ".join(combination)
        named = dict(zip(values, combination, strict=True))
        people.append({PERSON: phrase, **named, columns.DESCRIPTOR: phrase, columns.AXIS: CROSS.join(values)})
    return people


def fill_template(template: str, person: Mapping[str, str]) -> str:
    """Return a template with its slots filled; "a" and "an" before a slot follow the sound, and a start is a capital.

    >>> fill_template("{person}s are kind. I'm a {person}.", {"person": "old man"})
    "Old mans are kind. I'm an old man."
    """

    def article(slot: re.Match[str]) -> str:
        word = spoken_article(person[slot["slot"]])
        return f"{word.capitalize() if slot['article'][0] == 'A' else word} {slot['braces']}"

    text = re.sub(r"\b(?P<article>[Aa]n?) (?P<braces>\{(?P<slot>\w[\w -]*)\})", article, template)
    text = SLOT.sub(lambda slot: person[slot[1]], text)
    return text[:1].upper() + text[1:] if template.startswith("{") else text


def crossed_prompts(templates: Path, people: Path, answers_per_cell: int = 1) -> pd.DataFrame:
    """Return each template filled with each person, with at least `answers_per_cell` prompts a template and descriptor.

    The columns are those of a file of prompts; the values of the people's columns are columns, too. The names of a
    group share its cell, each equally often.

    Raises:
        InputError: a file cannot be used, or a template has a slot that no column fills.
    """
    all_people = read_people(people)
    all_templates = read_templates(templates)
    for template in all_templates:
        unknown = [slot for slot in SLOT.findall(template) if slot not in all_people[0]]
        if unknown:
            slots = ", ".join(
                name for name in all_people[0] if name not in (columns.DESCRIPTOR, columns.AXIS, FORMS, NEUTRAL)
            )
            raise InputError("prompts.templates", f"{template!r} has the slot {unknown[0]!r}; the people have {slots}.")
    group_sizes = Counter(person[columns.DESCRIPTOR] for person in all_people)
    times = [math.ceil(answers_per_cell / group_sizes[person[columns.DESCRIPTOR]]) for person in all_people]
    check_row_count(
        len(all_templates) * sum(times),
        f"prompts.templates × prompts.people: {len(all_templates):,} × {len(all_people):,} at {answers_per_cell:,}",
    )
    rows = []
    for template in all_templates:
        for person, n in zip(all_people, times, strict=True):
            rows += [{columns.TEXT: fill_template(template, person), columns.TEMPLATE: template, **person}] * n
    rows.sort(key=lambda row: (row[columns.TEMPLATE], row[columns.AXIS], row[columns.DESCRIPTOR]))
    return build_prompts({name: [row[name] for row in rows] for name in rows[0]}, people)
