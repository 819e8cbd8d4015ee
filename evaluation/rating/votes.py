"""Raters' votes in an append-only file, one JSON line per vote.

A vote is on the disk before the rater sees the next question. An incomplete last line is a vote that was not confirmed
to the rater; the line is removed when the file is opened again.
"""

import errno
import json
import logging
import os
import unicodedata
from dataclasses import asdict, dataclass
from pathlib import Path

import pandas as pd

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.rating.pairs import SIDES
from evenhand.evaluation.score import PROMPT_ID

log = logging.getLogger("evenhand")

VOTES = "votes.jsonl"
MAX_NAME_LENGTH = 60  # characters
Item = tuple[str, str]  # the prompt_id of a pair, and the name of a question


@dataclass(frozen=True)
class Vote:
    """A rater's choice for a pair and a question: "before", "after" or None (skipped); `left` is the side on the left.

    A side is "before" or "after", the model before or after tuning.
    """

    rater: str
    prompt_id: str
    question: str
    choice: str | None
    left: str
    time: str  # ISO 8601, UTC


class Votes:
    """All raters' votes in a file, which the object closes at the end of a `with` block."""

    def __init__(self, path: Path) -> None:
        """Read the votes in the file at `path`, remove an incomplete last line, and open the file for new votes.

        Raises:
            InputError: the file cannot be read or written, or a line is not a vote.
        """
        self._votes = _replay(path)
        try:
            self._file = path.open("ab", buffering=0)
            length = _complete_length(path)
            if length < path.stat().st_size:
                log.warning("%s: removed an incomplete vote, which a killed server left", path)
                os.truncate(path, length)
        except OSError as error:
            raise InputError(f"cannot write {path}: {error.strerror or error}; choose another --output_dir.") from None

    def __enter__(self) -> "Votes":
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def __len__(self) -> int:
        return len(self._votes)

    def items(self, rater: str) -> set[Item]:
        """Return the items, (prompt_id, question), that a rater has answered or skipped."""
        return {(prompt_id, question) for name, prompt_id, question in self._votes if name == rater}

    def add(self, vote: Vote) -> None:
        """Append a vote to the file, and flush the file to the disk.

        Raises:
            ValueError: the rater has already voted on the same item.
            OSError: the file cannot be written, for example because the disk is full.
        """
        key = (vote.rater, vote.prompt_id, vote.question)
        if key in self._votes:
            raise ValueError("{} has already voted on {}, {}".format(*key))
        self._append(asdict(vote))
        self._votes[key] = vote

    def undo(self, rater: str, time: str) -> bool:
        """Append a record that removes a rater's last vote; return False if the rater has no vote."""
        last = next((key for key in reversed(self._votes) if key[0] == rater), None)
        if last is None:
            return False
        self._append({"rater": rater, PROMPT_ID: last[1], "question": last[2], "undo": True, "time": time})
        del self._votes[last]
        return True

    def _append(self, record: dict) -> None:
        """Append a record to the file and flush it to the disk; if this fails, restore the file and raise OSError."""
        line = (json.dumps(record, ensure_ascii=False) + "\n").encode()
        size = os.fstat(self._file.fileno()).st_size
        try:
            if self._file.write(line) < len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.fsync(self._file.fileno())
        except OSError:
            self._file.truncate(size)
            raise


def rater_name(text: str) -> str:
    """Return the normal form of a rater's name: visible characters, single spaces, at most 60 characters.

    The name is in Unicode's normal form NFC. The function is idempotent: NFC and spaces are normalized after invisible
    characters are removed, because a removal can join spaces, or a letter and its accent; a prefix of an NFC string is
    in NFC too.

    >>> rater_name(" Anna  B.\x07 ")
    'Anna B.'
    >>> rater_name("Ann \u200b B")
    'Ann B'
    """
    spaced = " ".join(text.split())  # before the removal, because tabs and line ends are control characters
    visible = "".join(character for character in spaced if not unicodedata.category(character).startswith("C"))
    return " ".join(unicodedata.normalize("NFC", visible).split())[:MAX_NAME_LENGTH].rstrip()


def read_votes(path: Path) -> pd.DataFrame:
    """Return the votes in a file, without undone votes: one row per vote, with the fields of `Vote` as columns.

    Raises:
        InputError: the file cannot be read, or a line is not a vote.
    """
    return pd.DataFrame(map(asdict, _replay(path).values()), columns=list(Vote.__dataclass_fields__))


def _replay(path: Path) -> dict[tuple[str, str, str], Vote]:
    """Return the votes in a file without undone votes: (rater, prompt_id, question) → vote, in the order of voting."""
    votes: dict[tuple[str, str, str], Vote] = {}
    number = 0
    try:
        text = path.read_bytes()[: _complete_length(path)].decode() if path.exists() else ""
        for number, line in enumerate(text.split("\n")[:-1], start=1):  # noqa: B007 – used in the error
            record = json.loads(line)
            if record.pop("undo", False):
                del votes[record["rater"], record[PROMPT_ID], record["question"]]
            else:
                vote = Vote(**record)
                if vote.left not in SIDES or vote.choice not in (*SIDES, None):
                    raise ValueError(f"choice {vote.choice!r}, left {vote.left!r}")
                votes[vote.rater, vote.prompt_id, vote.question] = vote
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}.") from None
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise InputError(f"{path}, line {number}: not a vote ({error}); repair or delete the line.") from None
    return votes


def _complete_length(path: Path) -> int:
    return path.read_bytes().rfind(b"\n") + 1
