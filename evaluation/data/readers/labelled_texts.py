"""Labelled texts for training a classifier, from a CSV, TSV or JSONL file, and their split into two sets."""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from evenhand.evaluation.data.readers.table_files import read_columns
from evenhand.evaluation.errors import InputError


@dataclass(frozen=True)
class LabelledTexts:
    """Texts, the names of each text's labels, and the number of blank texts, which are left out."""

    texts: list[str]
    labels: list[tuple[str, ...]]
    n_blank: int


def read_labelled_texts(
    path: Path,
    text_column: str,
    label_column: str,
    labels: Mapping[Hashable, str],
    separator: str | None = None,
    columns: Sequence[str] = (),
) -> LabelledTexts:
    """Return the texts in a file that are not blank, and their labels.

    Args:
        text_column, label_column: columns of the text and its label or labels; a list in a cell is several labels.
        labels: value of the label column → name; with {}, the values are the names.
        separator: text between several labels in the label column; None for one label.
        columns: the columns of a file without a header.

    Raises:
        InputError: the file cannot be read, a column or label is missing, a label has no name, or all labels are equal.
    """
    table = read_columns(path, "texts", known=(text_column, label_column), header=columns)
    if missing := [name for name in (text_column, label_column) if table and name not in table]:
        listed = ", ".join(map(str, table))
        raise InputError("text_column, label_column", f"{path} has no column {missing[0]!r}, only {listed}.")
    names = {str(value): name for value, name in labels.items()}
    rows = list(zip(table.get(text_column, ()), table.get(label_column, ()), strict=True))
    texts = []
    text_labels = []
    for number, (text, cell) in enumerate(rows, start=1):
        values = _labels_in(cell, separator)
        if wrong := [value for value in values if not value or (names and value not in names)]:
            known = f" ({', '.join(names)})" if names else ""
            raise InputError("labels", f"row {number} of {path} has {wrong[0]!r}; give a label{known}.")
        if isinstance(text, str) and text.strip():
            texts.append(text)
            text_labels.append(tuple(dict.fromkeys(names.get(value, value) for value in values)))
    if len(set().union(*text_labels)) < 2:
        raise InputError("labels", f"the {len(texts)} texts of {path} have fewer than two different labels.")
    return LabelledTexts(texts=texts, labels=text_labels, n_blank=len(rows) - len(texts))


def _labels_in(cell: object, separator: str | None) -> list[str]:
    """Return the labels in a cell, a list, a text or a number, without outer white space; [""] if it is empty."""
    if isinstance(cell, list):
        values = cell or [""]
    elif isinstance(cell, str) and separator:
        values = cell.split(separator)
    else:
        values = ["" if cell is None else cell]
    return [str(value).strip() for value in values]


def held_out_mask(texts: Sequence[str], share: float, seed: int) -> np.ndarray:
    """Return a random boolean mask, (n,), that is true for held-out texts; equal texts have equal values.

    `share` is the probability that a text is held out.

    Raises:
        InputError: all texts or none are held out.
    """
    distinct, index = np.unique(np.array(texts, dtype=object).astype(str), return_inverse=True)
    chosen = np.random.default_rng(seed).random(len(distinct)) < share
    if chosen.all() or not chosen.any():
        raise InputError("test_fraction", f"{share} of {len(distinct)} texts leaves a set empty; give more texts.")
    return chosen[index]
