"""Prompts and personas from files: the user's own, or the personas that ship with the project."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
from datasets import Dataset

from evenhand.evaluation.datasets.holistic_bias import PHRASE_COLUMNS
from evenhand.evaluation.datasets.prompts import NO_VARIATION, REQUIRED, led_by, need, prompt_ids, times_before
from evenhand.evaluation.errors import InputError
from evenhand.evaluation.results import PERSONA, PROMPT_ID

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
                raise InputError(f"{path}: the persona above line {number} is {persona!r}; write two lines, then none.")
            if persona in personas:
                raise InputError(f"{path}: the persona above line {number} repeats {persona!r}; leave one out.")
            personas.append(persona)
            lines = []
    if not personas:
        raise InputError(f"{path} holds no persona; write two lines for each, with an empty line between them.")
    return tuple(personas)


def read_prompts(path: Path) -> Dataset:
    """Return the prompts of a user's Parquet, CSV or JSONL file.

    It needs the columns text, template, axis and descriptor, filled in every row. `prompt_id` is made where there is
    none, `persona` is "" where there is none; other columns stay as they are.

    The rows of a cell are taken for independent draws. Where each of n sentences stands once in every cell they are
    not, and FGB* is too low, by what sentences matter (the variance of their mean styles) over n − 1.

    Raises:
        InputError: the file cannot be read, a column is missing, a row of one is empty or not text, or a prompt_id
            stands twice.
    """
    columns = _read_columns(path)
    need(list(columns), REQUIRED, str(path))
    n = len(columns[REQUIRED[0]])
    if not n:
        raise InputError(f"{path} has no rows; write one for each prompt.")
    for name in (*REQUIRED, PROMPT_ID, PERSONA):
        for row, value in enumerate(columns.get(name, ()), start=1):
            if not isinstance(value, str) or not (value.strip() or name == PERSONA):
                raise InputError(f"{path}: column {name}, row {row} is {value!r}; write text there.")
    personas = columns.get(PERSONA, [""] * n)
    keys = [columns[name] for name in REQUIRED]
    ids = columns.get(PROMPT_ID) or prompt_ids(
        keys, personas, times_before(zip(*keys, personas, strict=True)), [NO_VARIATION] * n
    )
    first: dict[str, int] = {}
    for row, prompt_id in enumerate(ids, start=1):
        if first.setdefault(prompt_id, row) != row:
            raise InputError(f"{path}: prompt_id, row {row} is {prompt_id!r} as in row {first[prompt_id]}; change one.")
    try:
        return Dataset(led_by(pa.table(columns), ids, personas))
    except pa.ArrowException as error:
        raise InputError(f"{path}: a column holds values of several kinds ({error}); write one kind.") from None


def _read_columns(path: Path) -> dict[str, list]:
    try:
        if path.suffix == ".parquet":
            return pyarrow.parquet.read_table(path).to_pydict()
        if path.suffix == ".csv":  # known columns are text: the axis "null" and a noun "1" stay what they are
            known = dict.fromkeys((*REQUIRED, *PHRASE_COLUMNS, PROMPT_ID, PERSONA), pa.string())
            parse = pyarrow.csv.ParseOptions(newlines_in_values=True)
            convert = pyarrow.csv.ConvertOptions(column_types=known)
            return pyarrow.csv.read_csv(path, parse_options=parse, convert_options=convert).to_pydict()
        if path.suffix == ".jsonl":
            rows = [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line.strip()]
            if not all(isinstance(row, dict) for row in rows):
                raise ValueError("each line must be one JSON object")
            return {name: [row.get(name) for row in rows] for name in dict.fromkeys(key for row in rows for key in row)}
    except (OSError, ValueError, pa.ArrowException) as error:
        raise InputError(f"{path} cannot be read as prompts ({error}); give a Parquet, CSV or JSONL file.") from None
    raise InputError(f"{path}: {path.suffix!r} is no format for prompts; give a .parquet, .csv or .jsonl file.")
