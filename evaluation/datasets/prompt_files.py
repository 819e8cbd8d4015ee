"""Prompts and personas from files: the user's own, or the personas that ship with the project."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
from datasets import Dataset

from evenhand.evaluation.datasets.holistic_bias import PHRASE_COLUMNS
from evenhand.evaluation.datasets.prompts import (
    NO_VARIATION,
    REQUIRED,
    check_row_count,
    cumcount,
    prompt_ids,
    require_columns,
    with_id_columns,
)
from evenhand.evaluation.datasets.table_files import check_header, read_json_columns
from evenhand.evaluation.errors import InputError, shown
from evenhand.evaluation.results import PERSONA, PROMPT_ID, RESPONSE, TEXT

REPEATS = "repeats"  # column of a prompts file: how many responses to each row
CONTROL_TAG = "control_tag"  # column of a file of responses
PERSONAS = Path(__file__).resolve().parent / "data" / "personas.txt"


def load_personas(path: Path | None = None) -> tuple[str, ...]:
    """Return the personas of a file (ours by default): paragraphs of two lines, with an empty line between them.

    Raises:
        InputError: the file cannot be read, repeats a persona, or one is not two lines long.
    """
    path = path or PERSONAS
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read as personas ({error}); give a text file in UTF-8.") from None
    personas: list[str] = []
    lines: list[str] = []
    for number, line in enumerate([*text.splitlines(), ""], start=1):
        if line.strip():
            lines.append(line.strip())
        elif lines:
            persona = "\n".join(lines)
            if len(lines) != 2:
                raise InputError(f"{path}: the persona above line {number} is {shown(persona)}; write two, then none.")
            if persona in personas:
                raise InputError(f"{path}: the persona above line {number} repeats {persona!r}; leave one out.")
            personas.append(persona)
            lines = []
    if not personas:
        raise InputError(f"{path} holds no persona; write two lines for each, with an empty line between them.")
    return tuple(personas)


def read_prompts(path: Path, per_cell: int = 1) -> Dataset:
    """Return the prompts of a user's Parquet, CSV or JSONL file, a row for each response that is asked for.

    It needs the columns text, template, axis and descriptor, filled in every row. Each row is repeated as often as its
    column `repeats` says, else `per_cell` times. `prompt_id` is made where there is none (a repeat of one that is there
    gets an ending: "a", "a#2", …), `persona` is "" where there is none; other columns stay as they are.

    The rows of a cell are taken for independent draws. Where each of n sentences stands equally often in every cell
    they are not, and FGB* is too low, by what sentences matter (the variance of their mean styles) over n − 1.

    Raises:
        InputError: the file cannot be read, columns are missing, a row of one is empty or not text, a prompt_id stands
            twice, or a number of repeats is none.
    """
    columns = read_columns(path, "prompts")
    require_columns(list(columns), REQUIRED, str(path))
    check_texts(columns, path)
    return build_prompts(_repeated(columns, per_cell, path), path)


def check_texts(columns: Mapping[str, list], path: Path) -> None:
    """Check that the columns of a prompts file hold text in every row, and no prompt_id twice.

    Raises:
        InputError: as said, or there are no rows.
    """
    if not len(columns[TEXT]):
        raise InputError(f"{path} has no rows; write one for each prompt.")
    for name in (*REQUIRED, PROMPT_ID, PERSONA):
        for row, value in enumerate(columns.get(name, ()), start=1):
            if not isinstance(value, str) or not (value.strip() or name == PERSONA):
                raise InputError(f"{path}: column {name}, row {row} is {value!r}; write text there.")
    first: dict[str, int] = {}
    for row, own in enumerate(columns.get(PROMPT_ID, ()), start=1):
        if first.setdefault(own, row) != row:
            raise InputError(f"{path}: prompt_id, row {row} is {own!r} as in row {first[own]}; change one.")


def build_prompts(columns: Mapping[str, list], path: Path) -> Dataset:
    """Return prompts from the checked columns of a file, with prompt_id and persona in front.

    Raises:
        InputError: a column holds values of several kinds.
    """
    keys = [columns[name] for name in REQUIRED]
    personas = columns.get(PERSONA, [""] * len(keys[0]))
    before = cumcount(zip(*keys, personas, strict=True))
    ids = columns.get(PROMPT_ID) or prompt_ids(keys, personas, before, [NO_VARIATION] * len(personas))
    try:
        return Dataset(with_id_columns(pa.table(dict(columns)), ids, personas))
    except pa.ArrowException as error:
        raise InputError(f"{path}: a column holds values of several kinds ({error}); write one kind.") from None


def _repeated(columns: Mapping[str, list], per_cell: int, path: Path) -> dict[str, list]:
    """Return the columns with each row as often as its `repeats` says, else `per_cell` times; see `read_prompts`."""
    n = len(columns[TEXT])
    times = columns.get(REPEATS, [per_cell] * n)
    for row, value in enumerate(times, start=1):
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise InputError(f"{path}: column {REPEATS}, row {row} is {value!r}; write a whole number from 1 on.")
    check_row_count(sum(times), f"{path}: {REPEATS}, or else per_cell {per_cell:,},")
    rows = np.repeat(np.arange(n), times).tolist()
    found = {name: [values[row] for row in rows] for name, values in columns.items() if name != REPEATS}
    if PROMPT_ID in found:
        again = cumcount(found[PROMPT_ID])
        found[PROMPT_ID] = [f"{own}#{k + 1}" if k else own for own, k in zip(found[PROMPT_ID], again, strict=True)]
    return found


def read_columns(path: Path, what: str) -> dict[str, list]:
    """Return the columns of a Parquet, CSV or JSONL file of `what`, in which those that are known are text.

    Raises:
        InputError: the file cannot be read, or has another suffix.
    """
    try:
        if path.suffix in (".parquet", ".csv"):
            table = pyarrow.parquet.read_table(path) if path.suffix == ".parquet" else _read_csv(path)
            check_header(table.column_names)
            return table.to_pydict()
        if path.suffix == ".jsonl":
            return read_json_columns(path)
    except (OSError, ValueError, pa.ArrowException) as error:
        raise InputError(f"{path} cannot be read as {what} ({error}); give a Parquet, CSV or JSONL file.") from None
    raise InputError(f"{path}: {path.suffix!r} is no format for {what}; give a .parquet, .csv or .jsonl file.")


def _read_csv(path: Path) -> pa.Table:
    """Return the table of a CSV file; known columns are text, so that an axis "null" or a noun "1" is kept."""
    text_columns = (*REQUIRED, *PHRASE_COLUMNS, PROMPT_ID, PERSONA, RESPONSE, CONTROL_TAG)
    convert = pyarrow.csv.ConvertOptions(column_types=dict.fromkeys(text_columns, pa.string()))
    parse = pyarrow.csv.ParseOptions(newlines_in_values=True)
    return pyarrow.csv.read_csv(path, parse_options=parse, convert_options=convert)
