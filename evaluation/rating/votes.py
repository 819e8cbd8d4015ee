"""Raters' votes in an append-only file, one JSON line per vote.

A vote is on the disk before the rater sees the next question. An incomplete last line is a vote that was not confirmed
to the rater; the line is removed when the file is opened again.
"""

import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

import pandas as pd
from pydantic.dataclasses import dataclass

from evenhand.evaluation.errors import InputError

VOTES = "votes.jsonl"
KEY = "rater", "prompt_id", "question"  # a rater has one vote on a question about a pair
Side = Literal["before", "after"]  # the model before or after tuning


@dataclass(frozen=True)
class Vote:
    """A rater's choice for a pair and a question, None if skipped; `left` is the side whose response is on the left."""

    rater: str
    prompt_id: str
    question: str
    choice: Side | None
    left: Side
    time: str  # ISO 8601, UTC


class Votes:
    """All raters' votes, by KEY in the order of voting, and their file."""

    def __init__(self, path: Path) -> None:
        """Read the votes in the file at `path`, and remove an incomplete last line."""
        self.path, self.by_key = path, _read(path)
        with path.open("ab") as file:
            file.truncate(len(_complete_lines(path)))

    def of(self, rater: str) -> list[Vote]:
        """Return a rater's votes, the last one last."""
        return [vote for vote in self.by_key.values() if vote.rater == rater]

    def add(self, vote: Vote, *, undo: bool = False) -> None:
        """Append a vote, or a record that removes it, to the file; flush the file to the disk.

        Raises:
            OSError: the record cannot be written, for example because the disk is full; the file is as before.
        """
        record = asdict(vote) | ({"undo": True} if undo else {})
        size = self.path.stat().st_size
        try:
            with self.path.open("ab") as file:
                file.write((json.dumps(record, ensure_ascii=False) + "\n").encode())
                file.flush()
                os.fsync(file.fileno())
        except OSError:
            os.truncate(self.path, size)
            raise
        _apply(self.by_key, record)


def read_votes(path: Path) -> pd.DataFrame:
    """Return the votes in a file, without undone votes: one row per vote, with the fields of `Vote` as columns.

    Raises:
        InputError: a line is not a vote.
    """
    return pd.DataFrame(map(asdict, _read(path).values()), columns=list(Vote.__dataclass_fields__))


def _read(path: Path) -> dict[tuple[str, ...], Vote]:
    votes: dict[tuple[str, ...], Vote] = {}
    for number, line in enumerate(_complete_lines(path).split(b"\n")[:-1], start=1):
        try:
            _apply(votes, json.loads(line))
        except (ValueError, TypeError, KeyError) as error:
            raise InputError(f"{path}, line {number}: not a vote ({error}); repair or delete the line.") from None
    return votes


def _apply(votes: dict[tuple[str, ...], Vote], record: dict[str, Any]) -> None:
    key = tuple(record[name] for name in KEY)
    votes.pop(key, None)
    if not record.pop("undo", False):
        votes[key] = Vote(**record)


def _complete_lines(path: Path) -> bytes:
    content = path.read_bytes() if path.exists() else b""
    return content[: content.rfind(b"\n") + 1]
