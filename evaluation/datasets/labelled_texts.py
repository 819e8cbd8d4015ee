"""Labelled texts for training a classifier: read from a CSV, TSV or JSONL file, some held out."""

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from evenhand.evaluation.datasets.table_files import check_header, read_json_lines
from evenhand.evaluation.errors import InputError


def read_labelled_texts(
    path: Path,
    text_column: str,
    label_column: str,
    labels: Mapping[Any, str],
    separator: str | None = None,
    columns: Sequence[str] = (),
) -> tuple[list[str], list[tuple[str, ...]], int]:
    """Return the texts, the names of each one's labels, and how many texts were blank and are left out.

    `labels` says what the values of the label column are called; {} leaves them as they are. With a `separator` a text
    may have several; without one it has the whole value of the column. `columns` are those of a file without a header.

    Raises:
        InputError: the file cannot be read; a column is missing; a label is missing or has no name; there is one label.
    """
    rows = _rows(path, columns)
    for field, name in (("text_column", text_column), ("label_column", label_column)):
        if rows and name not in rows[0]:
            raise InputError(f"{field}: {path} has no column {name!r}; there are {', '.join(map(str, rows[0]))}.")
    names = {str(value): name for value, name in labels.items()}
    texts, found = [], []
    for number, row in enumerate(rows, start=1):
        text, told = row.get(text_column), row.get(label_column)
        values = [] if told is None else str(told).split(separator) if separator else [str(told)]
        if not all(value.strip() for value in values) or not values:
            raise InputError(f"label_column: row {number} of {path} has no label; give one, or drop the row.")
        if unknown := [value for value in values if names and value not in names]:
            raise InputError(
                f"labels: row {number} has {unknown[0]!r}, which has no name; known are {', '.join(names)}."
            )
        if isinstance(text, str) and text.strip():
            texts.append(text)
            found.append(tuple(dict.fromkeys(names.get(value, value) for value in values)))
    distinct = {name for told in found for name in told}
    if len(distinct) < 2:
        raise InputError(f"labels: all {len(texts)} texts are {distinct}; a classifier needs two labels.")
    return texts, found, len(rows) - len(texts)


def _rows(path: Path, columns: Sequence[str]) -> list[dict[str, Any]]:
    try:
        if path.suffix == ".jsonl":
            return read_json_lines(path)
        # In a file of tabs a quotation mark is a letter like any other.
        layout = {"delimiter": "\t", "quoting": csv.QUOTE_NONE} if path.suffix == ".tsv" else {}
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(file, fieldnames=columns or None, **layout)
            check_header(reader.fieldnames or ())
            return list(reader)
    except (OSError, ValueError, csv.Error) as error:
        raise InputError(f"texts: {path} cannot be read ({error}); give a CSV, TSV or JSONL file in UTF-8.") from None


def hold_out(texts: Sequence[str], share: float, seed: int) -> np.ndarray:
    """Return which texts are held out, (n,) bool: equal ones together, so that none is seen in training."""
    distinct, of_text = np.unique(np.array(texts, dtype=object).astype(str), return_inverse=True)
    chosen = np.random.default_rng(seed).random(len(distinct)) < share
    if chosen.all() or not chosen.any():
        raise InputError(
            f"test_fraction: {share} of {len(distinct)} different texts leaves one side empty; give more texts."
        )
    return chosen[of_text]
