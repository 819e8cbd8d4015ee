"""Labelled texts for training a classifier, from a CSV, TSV or JSONL file, and their split into two sets."""

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from evenhand.evaluation.data.table_files import check_header, read_json_lines
from evenhand.evaluation.errors import InputError


def read_labelled_texts(
    path: Path,
    text_column: str,
    label_column: str,
    labels: Mapping[Any, str],
    separator: str | None = None,
    columns: Sequence[str] = (),
) -> tuple[list[str], list[tuple[str, ...]], int]:
    """Return the texts, the label names of each text, and the number of blank texts, which are left out.

    Args:
        text_column, label_column: columns of the text and its label or labels.
        labels: value of the label column → name; with {}, the values are the names.
        separator: text between several labels in the label column; None for one label.
        columns: the columns of a file without a header.

    Raises:
        InputError: the file cannot be read, a column or label is missing, a label has no name, or all labels are equal.
    """
    rows = _read_rows(path, columns)
    if rows and (missing := [name for name in (text_column, label_column) if name not in rows[0]]):
        listed = ", ".join(map(str, rows[0]))
        raise InputError(f"text_column, label_column: {path} has no column {missing[0]!r}, only {listed}.")
    names = {str(value): name for value, name in labels.items()}
    texts, text_labels = [], []
    for number, row in enumerate(rows, start=1):
        text, cell = row.get(text_column), row.get(label_column)
        label = "" if cell is None else str(cell)
        values = label.split(separator) if separator else [label]
        if wrong := [value for value in values if not value.strip() or (names and value not in names)]:
            raise InputError(f"labels: row {number} of {path} has {wrong[0]!r}; give a label ({', '.join(names)}).")
        if isinstance(text, str) and text.strip():
            texts.append(text)
            text_labels.append(tuple(dict.fromkeys(names.get(value, value) for value in values)))
    if len(set().union(*text_labels)) < 2:
        raise InputError(f"labels: the {len(texts)} texts of {path} have fewer than two different labels.")
    return texts, text_labels, len(rows) - len(texts)


def _read_rows(path: Path, columns: Sequence[str]) -> list[dict[str, Any]]:
    try:
        if path.suffix == ".jsonl":
            return read_json_lines(path)
        # Quotation marks have no meaning in a TSV file.
        layout = {"delimiter": "\t", "quoting": csv.QUOTE_NONE} if path.suffix == ".tsv" else {}
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(file, fieldnames=columns or None, **layout)
            check_header(reader.fieldnames or ())
            return list(reader)
    except (OSError, ValueError, csv.Error) as error:
        raise InputError(f"texts: {path} cannot be read ({error}); give a CSV, TSV or JSONL file in UTF-8.") from None


def hold_out(texts: Sequence[str], share: float, seed: int) -> np.ndarray:
    """Return a random boolean mask, (n,), that is true for held-out texts; equal texts have equal values.

    `share` is the probability that a text is held out.

    Raises:
        InputError: all texts or none are held out.
    """
    distinct, index = np.unique(np.array(texts, dtype=object).astype(str), return_inverse=True)
    chosen = np.random.default_rng(seed).random(len(distinct)) < share
    if chosen.all() or not chosen.any():
        raise InputError(f"test_fraction: {share} of {len(distinct)} texts leaves a set empty; give more texts.")
    return chosen[index]
