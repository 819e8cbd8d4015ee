"""CSV files for crowdsourcing platforms: pairs of responses to rate, and the raters' votes."""

import csv
import io
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

import pandas as pd

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.rating.pairs import AFTER, BEFORE, FIRST, other_side
from evenhand.evaluation.rating.votes import Vote, rater_name
from evenhand.evaluation.score import PROMPT_ID, TEXT
from evenhand.evaluation.untrusted_text import spreadsheet_cell

COLUMNS = ("rater", PROMPT_ID, "question", "choice")
CHOICES = ("1", "2", "skip")


def crowd_pairs(pairs: pd.DataFrame) -> pd.DataFrame:
    """Return a table of pairs for a crowdsourcing platform, without the names of the models.

    The columns are prompt_id, prompt, response_1 and response_2. Texts are escaped by `spreadsheet_cell`, because
    people open the file in spreadsheets. The column `first` of `pairs` decides which response is response_1:

    >>> row = {"prompt_id": "p", "text": "Hi!", "before": "old", "after": "new", "first": "after"}
    >>> crowd_pairs(pd.DataFrame([row])).to_dict("records")
    [{'prompt_id': 'p', 'prompt': 'Hi!', 'response_1': 'new', 'response_2': 'old'}]
    """
    is_before = pairs[FIRST] == BEFORE
    return pd.DataFrame(
        {
            PROMPT_ID: pairs[PROMPT_ID],
            "prompt": pairs[TEXT],
            "response_1": pairs[BEFORE].where(is_before, pairs[AFTER]),
            "response_2": pairs[AFTER].where(is_before, pairs[BEFORE]),
        }
    ).map(spreadsheet_cell)


def read_crowd_votes(path: Path, pairs: pd.DataFrame, questions: Iterable[str]) -> list[Vote]:
    """Return the votes in a CSV file with the columns rater, prompt_id, question and choice ("1", "2" or "skip").

    Raises:
        InputError: the file cannot be read, lacks a column, or has an unknown prompt_id, question or choice or an
            empty rater.
    """
    ids = {spreadsheet_cell(prompt_id): prompt_id for prompt_id in pairs[PROMPT_ID]}  # as in pairs.csv
    first, questions = dict(zip(pairs[PROMPT_ID], pairs[FIRST], strict=True)), list(questions)
    try:
        rows = list(csv.DictReader(io.StringIO(path.read_text(encoding="utf-8-sig"))))
    except (OSError, ValueError, csv.Error) as error:
        raise InputError(f"import_votes: {path} cannot be read ({error}); give a CSV file in UTF-8.") from None
    if not rows or not set(COLUMNS) <= set(rows[0]):
        columns = f"the columns {', '.join(map(str, rows[0]))}" if rows else "no rows"
        raise InputError(f"import_votes: {path} has {columns}; it needs the columns {', '.join(COLUMNS)}.")
    now, votes = datetime.now(UTC).isoformat(timespec="seconds"), []
    for number, row in enumerate(rows, start=2):
        row[PROMPT_ID] = ids.get(row[PROMPT_ID], row[PROMPT_ID])
        for column, values in ((PROMPT_ID, first), ("question", questions), ("choice", CHOICES)):
            if row[column] not in values:
                allowed = "one of pairs.csv" if values is first else ", ".join(values)
                raise InputError(
                    f"import_votes: {path}, row {number}: {column} is {row[column]!r}; allowed: {allowed}."
                )
        rater, left = rater_name(row["rater"] or ""), first[row[PROMPT_ID]]
        if not rater:
            raise InputError(f"import_votes: {path}, row {number}: rater is empty; give each rater a name.")
        choice = {"1": left, "2": other_side(left), "skip": None}[row["choice"]]
        votes.append(Vote(rater, row[PROMPT_ID], row["question"], choice, left, now))
    return votes
