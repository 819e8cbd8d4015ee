"""Neutral dialogue, which mentions no group of people and on which a model's perplexity is measured."""

from pathlib import Path

import pandas as pd

from evenhand.evaluation import columns
from evenhand.evaluation.data.readers.table_files import read_columns
from evenhand.evaluation.errors import InputError


def load_neutral_dialogue(path: str | Path) -> pd.DataFrame:
    """Return the dialogue pairs in a JSONL file, a table with the columns text (the prompt) and response.

    Raises:
        InputError: the file cannot be read, lacks a column, or has an empty text or fewer than two lines.
    """
    pairs = pd.DataFrame(read_columns(Path(path), "neutral dialogue", known=(columns.TEXT, columns.RESPONSE)))
    for column in (columns.TEXT, columns.RESPONSE):
        if column not in pairs or not pairs[column].map(lambda text: isinstance(text, str) and text.strip()).all():
            raise InputError("neutral_dialogue", f"{path} needs a {column!r} with text in each line.")
    if len(pairs) < 2:
        raise InputError("neutral_dialogue", f"{path} has {len(pairs)} lines; give at least 2, better 500.")
    return pairs[[columns.TEXT, columns.RESPONSE]]
