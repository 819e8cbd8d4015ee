"""The page of all answers, person by person. It is readable without its script, which only filters."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from markupsafe import Markup

from evenhand.evaluation import columns
from evenhand.evaluation.data.readers.response_files import UNSPECIFIED
from evenhand.evaluation.report.html import macro, render
from evenhand.evaluation.report.numbers import sanitize

MAX_BYTES = 5_800_000  # of all answers; style sheet and script fit into the rest of 6 MB
MAX_LENGTH = 2000  # characters of a text
MIN_PEOPLE = 8  # so many named people fit, or so many if nobody is named, however many answers each of them has
MAX_LEFT_OUT = 500  # names of people who are left out


@dataclass(frozen=True)
class ShownAnswers:
    """The answers of one run.

    Attributes:
        texts: the n answers.
        labels: name → the label of each answer, (n,), "" for none, such as its style, language or outcomes. A page can
            be filtered by each name. Several labels of an answer are separated by line ends.
    """

    texts: Sequence[str]
    labels: Mapping[str, Sequence[str]]


@dataclass(frozen=True)
class Person:
    """A person on the page: name, group, the HTML of the answers that are shown, and how many there are."""

    name: str
    group: str
    items: Sequence[Markup]
    n: int


def answers_html(
    title: str, subtitle: str, prompts: pd.DataFrame, sides: Mapping[str, ShownAnswers], first: Sequence[str] = ()
) -> str:
    """Return the HTML of a page with all answers of a run, or of two runs to the same prompts, by person.

    If they do not all fit into MAX_BYTES, whole people are left out, and of a person with very many answers a random
    part is shown; the page says of whom. The people who come first share the page before the others get a part.

    Args:
        title: the title of the page.
        subtitle: what was measured.
        prompts: n rows with the columns axis, descriptor and text.
        sides: the answers of each run, by its name.
        first: the people who come first, such as those whom the report names.
    """
    rows: dict[tuple[str, str], list[int]] = {}
    for place, key in enumerate(zip(prompts[columns.DESCRIPTOR], prompts[columns.AXIS], strict=True)):
        rows.setdefault(key, []).append(place)
    rank = {name: place for place, name in enumerate(dict.fromkeys(first))}
    random = np.random.default_rng(0)
    listed = sorted(rows)
    keys = [listed[place] for place in random.permutation(len(rows))]
    keys.sort(key=lambda key: rank.get(key[0], len(rank)))  # stable: the others stay in random order
    n_named = sum(key[0] in rank for key in keys)
    texts = prompts[columns.TEXT].to_numpy()
    people: dict[tuple[str, str], Person] = {}
    size = 0
    for key in keys:
        n_alike = n_named if key[0] in rank else len(keys)
        limit = MAX_BYTES // min(n_alike, MIN_PEOPLE)
        items = _items(random.permutation(rows[key]).tolist(), texts, sides, limit)
        size += sum(len(item.encode()) for item in items)
        if size > MAX_BYTES:
            break
        group = "" if key[1] == UNSPECIFIED else sanitize(key[1])
        people[key] = Person(sanitize(key[0]), group, items, len(rows[key]))
    shown = [people[key] for key in sorted(people, key=lambda key: (rank.get(key[0], len(rank)), key))]
    left_out = sorted(sanitize(name, 60) for name, _ in rows.keys() - people.keys())
    return render(
        "responses.html.j2",
        "responses",
        title=sanitize(title),
        subtitle=sanitize(subtitle),
        people=shown,
        n=len(prompts),
        n_shown=sum(len(person.items) for person in shown),
        left_out=left_out[:MAX_LEFT_OUT],
        n_left_out=len(left_out),
        is_first_named=bool(shown and shown[0].name in rank),
    )


def _items(rows: Sequence[int], texts: Sequence[str], sides: Mapping[str, ShownAnswers], limit: int) -> list[Markup]:
    """Return the HTML of answers in the order of the prompts: of all rows, or of the first ones that fit."""
    item = macro("answer.html.j2", "item")
    found = {}
    size = 0
    for row in rows:
        answers = [
            {
                "side": name if len(sides) > 1 else "",
                "labels": [
                    (kind, sanitize(label, 60))
                    for kind, of_kind in side.labels.items()
                    for label in str(of_kind[row]).split("\n")
                    if label
                ],
                "text": sanitize(str(side.texts[row]), MAX_LENGTH),
            }
            for name, side in sides.items()
        ]
        found[row] = item(sanitize(str(texts[row]), MAX_LENGTH), answers)
        size += len(found[row].encode())
        if size > limit and len(found) > 1:
            del found[row]
            break
    return [found[row] for row in sorted(found)]
