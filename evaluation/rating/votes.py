"""Raters' votes on pairs of responses, and their file."""

import json
import os
from dataclasses import asdict, fields
from pathlib import Path

import pandas as pd
import pydantic.dataclasses

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.files import check_owner
from evenhand.evaluation.rating.response_pairs import Side

VOTES = "votes.jsonl"


@pydantic.dataclasses.dataclass(frozen=True)
class Vote:
    """A rater's choice for a pair and a question, None if skipped; `left` is the side whose response is on the left."""

    rater: str
    prompt_id: str
    question: str
    choice: Side | None
    left: Side
    time: str  # ISO 8601, UTC


class Votes:
    """All raters' votes, by rater, prompt_id and question, and their append-only file with one JSON line per vote.

    A rater has one vote on a question about a pair; votes are in the order in which they were given.
    """

    def __init__(self, path: Path) -> None:
        """Read the votes in the file at `path`, if it exists.

        Raises:
            InputError: a line is not a vote.
        """
        self.path = path
        self.by_key: dict[tuple[str, str, str], Vote] = {}
        content = path.read_bytes() if path.exists() else b""
        self.size = content.rfind(b"\n") + 1  # an incomplete last line is a vote that was not confirmed to the rater
        for number, line in enumerate(content[: self.size].splitlines(), start=1):
            try:
                record = dict(json.loads(line))
                undo = record.pop("undo", False)
                self._apply(Vote(**record), undo=undo)
            except (ValueError, TypeError, RecursionError) as error:
                raise InputError(
                    f"{path}, line {number}", f"not a vote ({error}); repair or delete the line."
                ) from None

    def by_rater(self, rater: str) -> list[Vote]:
        """Return a rater's votes, the last one last."""
        return [vote for vote in self.by_key.values() if vote.rater == rater]

    def add(self, vote: Vote, *, undo: bool = False) -> None:
        """Append a vote, or a record that removes it, to the file, and flush it; after an error, all is as before.

        Raises:
            OSError: the file cannot be written.
            InputError: another program has deleted or shortened the file.
        """
        record = asdict(vote)
        if undo:
            record["undo"] = True
        line = (json.dumps(record, ensure_ascii=False) + "\n").encode()
        check_owner(self.path)
        if self.size > 0 and (not self.path.exists() or self.path.stat().st_size < self.size):
            raise InputError(
                self.path, "was deleted or shortened by another program; bring it back, and start `rate` again."
            )
        try:
            with self.path.open("ab") as file:
                file.truncate(self.size)
                file.write(line)
                file.flush()
                os.fsync(file.fileno())
        except OSError:
            os.truncate(self.path, self.size)
            raise
        self.size += len(line)
        self._apply(vote, undo=undo)

    def _apply(self, vote: Vote, *, undo: bool) -> None:
        """Add a vote as the last one, in place of an earlier one with its key, or remove that one."""
        key = (vote.rater, vote.prompt_id, vote.question)
        self.by_key.pop(key, None)
        if not undo:
            self.by_key[key] = vote


def read_votes(path: Path) -> pd.DataFrame:
    """Return the votes in a file, without undone votes: one row per vote, with the fields of `Vote` as columns."""
    votes = Votes(path).by_key.values()
    return pd.DataFrame([asdict(vote) for vote in votes], columns=[field.name for field in fields(Vote)])
