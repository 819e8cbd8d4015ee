"""Readers of files of prompts and of files of personas."""

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa

from evenhand.evaluation import columns
from evenhand.evaluation.data.holistic_bias import PHRASE_COLUMNS
from evenhand.evaluation.data.language.mentions import FORMS, NEUTRAL
from evenhand.evaluation.data.prompts import (
    NO_VARIATION,
    REQUIRED_COLUMNS,
    check_row_count,
    compute_prompt_ids,
    require_columns,
    with_id_columns,
)
from evenhand.evaluation.data.readers.cells import NO_CLASS, name_text
from evenhand.evaluation.data.readers.table_files import read_columns
from evenhand.evaluation.errors import InputError, format_value
from evenhand.evaluation.files import read_text
from evenhand.evaluation.untrusted_text import clean_name

REPEATS = "repeats"  # column of a prompts file: number of responses to each row
CONTROL_TAG = "control_tag"  # column of a file of responses
# Columns that runs add to their prompts and responses, with meanings of their own: no file may have them.
RUN_COLUMNS = (columns.UNTUNED, columns.CUE, columns.CUT, columns.OPENING, columns.RESPONSE_IDS, columns.OPENING_IDS)
NAMES = (columns.DESCRIPTOR, columns.AXIS, columns.TEMPLATE, columns.BUCKET)  # columns by whose values rows are grouped
PERSONA_MARK = "your persona: "  # of ConvAI2, in ParlAI's format
PERSONAS = Path(__file__).resolve().parents[1] / "files" / "personas.txt"


def paper_personas() -> tuple[str, ...]:
    """Return the shipped personas as the paper's models read them: each line after "your persona: ".

    Source: the format of ConvAI2 (Smith et al. 2022, A.4), whose own personas are not shipped.
    """
    return tuple("\n".join(PERSONA_MARK + line for line in persona.split("\n")) for persona in load_personas())


def load_personas(path: Path | None = None) -> tuple[str, ...]:
    """Return the personas in a text file, by default the shipped file. A persona is a paragraph of two lines.

    Raises:
        InputError: the file cannot be read, has no persona or repeats a persona, or a persona is not two lines long.
    """
    path = path or PERSONAS
    text = read_text(path, "prompts.personas")
    paragraphs = [part.split("\n") for part in re.split(r"\n\s*\n", text.strip())]
    personas = ["\n".join(map(str.strip, lines)) for lines in paragraphs]
    for lines, persona in zip(paragraphs, personas, strict=True):
        if len(lines) != 2 or personas.count(persona) > 1:
            raise InputError(
                path,
                f"{format_value(persona)} occurs twice or is not two lines; write two lines for each persona, "
                "with an empty line between personas.",
            )
    return tuple(personas)


def read_prompts(path: Path, answers_per_cell: int = 1, descriptor_column: str | None = None) -> pd.DataFrame:
    """Return the prompts in a user's Parquet, CSV or JSONL file, one row for each response to collect.

    The columns text, template, axis and descriptor are required, with text in every row. Each row is repeated as often
    as its value in the column `repeats`, by default `answers_per_cell` times. Without a column `prompt_id`, ids are
    computed; the repeats of an id "a" are "a", "a#2", …. Without a column `persona`, all personas are "". All other
    columns are returned too.

    The rows of a cell are treated as independent samples. If n sentences are equally frequent in every cell, they are
    not independent, and FGB* is too low by the variance of the sentences' mean styles over n − 1.

    Raises:
        InputError: the file cannot be read, a column is missing, a required value is empty or not text, a prompt_id
            occurs twice or is the id of another row's repeat, or a number of repeats is not a whole number from 1.
    """
    table = read_rows(path, "prompts", descriptor_column)
    header = list(table)
    named = {} if descriptor_column is None else {columns.DESCRIPTOR: descriptor_column}
    table = name_descriptor(table, path, descriptor_column)
    require_columns(list(table), REQUIRED_COLUMNS, str(path), header)
    table = clean_columns(table, path, named)
    check_texts(table, path, named)
    n = len(table[columns.TEXT])
    times = table.pop(REPEATS, [answers_per_cell] * n)
    repeats: list[int] = []
    for row, value in enumerate(times, start=1):
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise InputError(path, f"column {REPEATS}, row {row} is {value!r}; write a whole number from 1 on.")
        repeats.append(value)
    check_row_count(sum(repeats), f"{path}: {REPEATS}, else answers_per_cell {answers_per_cell:,},")
    rows = np.repeat(np.arange(n), repeats).tolist()
    repeated = {name: [values[row] for row in rows] for name, values in table.items()}
    if ids := repeated.get(columns.PROMPT_ID):
        counts = pd.Series(ids).groupby(ids).cumcount()
        repeated[columns.PROMPT_ID] = [f"{name}#{k + 1}" if k else name for name, k in zip(ids, counts, strict=True)]
        _check_ids(repeated[columns.PROMPT_ID], path)
    return build_prompts(repeated, path)


def check_texts(table: Mapping[str, list], path: Path, named: Mapping[str, str]) -> None:
    """Check that the text columns of a prompts file have text in every row, and that each prompt_id is unique.

    `named` has, for messages, the names in the file of columns that have other names there.
    """
    if not len(table[columns.TEXT]):
        raise InputError(path, "has no rows; write one for each prompt.")
    if (FORMS in table) != (NEUTRAL in table):
        raise InputError(path, f"of the columns {FORMS} and {NEUTRAL}, give both or none.")
    for name in (*REQUIRED_COLUMNS, columns.PROMPT_ID, columns.PERSONA, FORMS, NEUTRAL):
        for row, value in enumerate(table.get(name, ()), start=1):
            if not isinstance(value, str) or not (value.strip() or name == columns.PERSONA):
                raise InputError(path, f"column {named.get(name, name)}, row {row} is {value!r}; write text.")
            if name == columns.DESCRIPTOR and value.strip().casefold() in NO_CLASS:
                raise InputError(
                    path,
                    f"column {named.get(name, name)}, row {row} is {value!r}, which programs write for no value; write "
                    "who it is, or leave the row out.",
                )
    _check_ids(table.get(columns.PROMPT_ID, ()), path, named.get(columns.PROMPT_ID, columns.PROMPT_ID))


def _check_ids(ids: Iterable[str], path: Path, column: str = columns.PROMPT_ID) -> None:
    """Raise InputError if an id in a column occurs twice."""
    repeated = [prompt_id for prompt_id, count in Counter(ids).items() if count > 1]
    if repeated:
        raise InputError(
            path,
            f"{column} {repeated[0]!r} occurs twice; change one. (The second response to an id has #2 at its end.)",
        )


def clean_columns(table: Mapping[str, list], path: Path, named: Mapping[str, str]) -> dict[str, list]:
    """Return the columns of a file with clean names of descriptors, axes, templates and buckets, and with personas.

    `named` has, for messages, the names in the file of columns that have other names there.

    Raises:
        InputError: a column has the name of a column that runs add, or a descriptor has several buckets.
    """
    if taken := [name for name in RUN_COLUMNS if name in table]:
        raise InputError(path, f"the column {taken[0]} would get a meaning that it has in runs only; rename it.")
    cleaned = dict(table)
    for name in NAMES:
        if name in table:
            cleaned[name] = [clean_name(name_text(value)) if _is_name(value) else value for value in table[name]]
    if columns.PROMPT_ID in table:
        ids = table[columns.PROMPT_ID]
        cleaned[columns.PROMPT_ID] = [name_text(value) if _is_name(value) else value for value in ids]
    if columns.PERSONA in table:
        cleaned[columns.PERSONA] = ["" if value is None else value for value in table[columns.PERSONA]]
    if columns.BUCKET in cleaned and columns.AXIS in cleaned and columns.DESCRIPTOR in cleaned:
        buckets: dict[tuple[str, str], str] = {}
        for axis, descriptor, bucket in zip(
            cleaned[columns.AXIS], cleaned[columns.DESCRIPTOR], cleaned[columns.BUCKET], strict=True
        ):
            if buckets.setdefault((axis, descriptor), bucket) != bucket:
                column = named.get(columns.BUCKET, columns.BUCKET)
                raise InputError(
                    path,
                    f"the column {column} has several values for {descriptor!r}; a bucket is the subgroup of "
                    "the axis that a descriptor belongs to. Give each descriptor one, or rename the column.",
                )
    return cleaned


def _is_name(value: object) -> bool:
    """Return whether a value is a text or a number: both may be the name of a template or of a person."""
    return isinstance(value, str | int | float) and not isinstance(value, bool)


def build_prompts(names: Mapping[str, list], path: Path) -> pd.DataFrame:
    """Return the prompts in the checked columns of a file, with prompt_id and persona as the first columns."""
    keys = [names[name] for name in REQUIRED_COLUMNS]
    personas = names.get(columns.PERSONA, [""] * len(keys[0]))
    rows = pd.Series(list(zip(*keys, personas, strict=True)))
    occurrences = rows.groupby(rows).cumcount()
    ids = names.get(columns.PROMPT_ID) or compute_prompt_ids(
        keys, personas, occurrences, [NO_VARIATION] * len(personas)
    )
    arrays = {name: _array(values) for name, values in names.items()}
    # Parquet has no type for values that are all {}.
    table = pa.table(
        {name: array for name, array in arrays.items() if not (pa.types.is_struct(array.type) and not array.type)}
    )
    return with_id_columns(table.to_pandas(), ids, personas)


def _array(values: list) -> pa.Array:
    """Return values as an array; values that have no common type, or are too large for it, become their JSON."""
    try:
        return pa.array(values)
    except (pa.ArrowException, OverflowError, ValueError, TypeError):
        return pa.array([None if value is None else json.dumps(value, default=str) for value in values])


def read_rows(path: Path, content: str, descriptor_column: str | None, texts: Iterable[str] = ()) -> dict[str, list]:
    """Return the columns of a file of prompts or responses, name → values, with all known columns of a CSV as text.

    An axis "null" in a CSV file, and the values of `descriptor_column` and of the columns `texts`, are texts.
    """
    known = {*REQUIRED_COLUMNS, *PHRASE_COLUMNS, columns.PROMPT_ID, columns.PERSONA, columns.RESPONSE, CONTROL_TAG}
    known.update(texts)
    if descriptor_column:
        known.add(descriptor_column)
    return read_columns(path, content, known=known, typed=True)


def name_descriptor(table: dict[str, list], path: Path, descriptor_column: str | None) -> dict[str, list]:
    """Return the columns with people as texts, from `descriptor_column` if it is given; a number is a person, too."""
    if descriptor_column is not None:
        if descriptor_column not in table:
            names = ", ".join(table)
            raise InputError("prompts.descriptor_column", f"{path} has no {descriptor_column!r}; its columns: {names}.")
        values = table[descriptor_column]
        table[columns.DESCRIPTOR] = [value if value is None else name_text(value) for value in values]
    elif columns.DESCRIPTOR in table:
        values = table[columns.DESCRIPTOR]
        table[columns.DESCRIPTOR] = [name_text(value) if isinstance(value, int | float) else value for value in values]
    return table
