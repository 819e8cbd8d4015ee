"""Votes on disk: a file that is only ever appended to, a line a vote, each there before the rater is told that it is.

A line that was being written when the process was killed has no end. It was never acknowledged, and is taken away when
the file is opened again.
"""

import errno
import json
import logging
import os
import unicodedata
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

import pandas as pd

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.rating.pairs import SIDES
from evenhand.evaluation.results import PROMPT_ID

log = logging.getLogger("evenhand")

VOTES = "votes.jsonl"
MAX_NAME_LENGTH = 60  # characters
Item = tuple[str, str]  # the prompt_id of a pair, and the name of a question


@dataclass(frozen=True)
class Vote:
    """What a rater chose, "before" or "after", None where they skipped; and which of both stood on the left."""

    rater: str
    prompt_id: str
    question: str
    choice: str | None
    left: str
    time: str  # ISO 8601, UTC

    @property
    def item(self) -> Item:
        """What was judged."""
        return self.prompt_id, self.question


class Votes:
    """The votes of all raters, as a file holds them; a context that closes it."""

    def __init__(self, path: Path) -> None:
        """Read the file, and keep it open for further votes.

        Raises:
            InputError: it cannot be read or written, or a line is no vote.
        """
        self._votes = _replay(path)
        try:
            self._file = path.open("ab", buffering=0)
            whole = _complete_length(path)
            if whole < path.stat().st_size:
                log.warning("%s: a vote that was being written when the server was killed is not kept", path)
                os.truncate(path, whole)
        except OSError as error:
            raise InputError(f"cannot write {path}: {error.strerror or error}; choose another --output_dir.") from None

    def __enter__(self) -> "Votes":
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def __len__(self) -> int:
        return len(self._votes)

    def items(self, rater: str) -> set[Item]:
        """Return what a rater has judged or skipped."""
        return {(prompt_id, question) for name, prompt_id, question in self._votes if name == rater}

    def add(self, *votes: Vote) -> None:
        """Append votes, on the disk when this returns: all of them or none.

        Raises:
            ValueError: a rater has judged the same before.
            OSError: the disk is full, or cannot be written.
        """
        keys = [(vote.rater, *vote.item) for vote in votes]
        for place, key in enumerate(keys):
            if key in self._votes or key in keys[:place]:
                raise ValueError("{} has judged {} by {} before".format(*key))
        self._append([asdict(vote) for vote in votes])
        self._votes.update(zip(keys, votes, strict=True))

    def undo(self, rater: str, time: str) -> bool:
        """Append that a rater takes their last vote back; False where there is none."""
        last = next((key for key in reversed(self._votes) if key[0] == rater), None)
        if last is None:
            return False
        self._append([{"rater": rater, PROMPT_ID: last[1], "question": last[2], "undo": True, "time": time}])
        del self._votes[last]
        return True

    def _append(self, records: Iterable[dict]) -> None:
        """Write lines to the disk, or leave the file as it was."""
        lines = "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records).encode()
        size = os.fstat(self._file.fileno()).st_size
        try:
            if self._file.write(lines) < len(lines):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.fsync(self._file.fileno())
        except OSError:
            self._file.truncate(size)
            raise


def rater_name(text: str) -> str:
    """Return a rater's name in its normal form: visible characters in Unicode's NFC, single spaces, 60 characters.

    The function is idempotent: the normal form of a normal form is the same string. Removing an invisible character
    can bring spaces together, or a letter and its accent, so NFC and the spaces come after the removal. A prefix of
    NFC is NFC.

    >>> rater_name(" Anna  B.\x07 ")
    'Anna B.'
    >>> rater_name("Ann \u200b B")
    'Ann B'
    """
    spaced = " ".join(text.split())  # first, because tabs and line ends are control characters, too
    seen = "".join(each for each in spaced if not unicodedata.category(each).startswith("C"))
    return " ".join(unicodedata.normalize("NFC", seen).split())[:MAX_NAME_LENGTH].rstrip()


def read_votes(path: Path) -> pd.DataFrame:
    """Return the votes that were not taken back, a row each, with the fields of `Vote` as columns.

    Raises:
        InputError: the file cannot be read, or a line is no vote.
    """
    return pd.DataFrame(map(asdict, _replay(path).values()), columns=list(Vote.__dataclass_fields__))


def _replay(path: Path) -> dict[tuple[str, str, str], Vote]:
    """Return the votes of a file by rater, prompt and question, in the order in which they were given."""
    votes: dict[tuple[str, str, str], Vote] = {}
    number = 0
    try:
        text = path.read_bytes()[: _complete_length(path)].decode() if path.exists() else ""
        for number, line in enumerate(text.split("\n")[:-1], start=1):  # noqa: B007 – it is in the error
            record = json.loads(line)
            if record.pop("undo", False):
                del votes[record["rater"], record[PROMPT_ID], record["question"]]
            else:
                vote = Vote(**record)
                if vote.left not in SIDES or vote.choice not in (*SIDES, None):
                    raise ValueError(f"choice {vote.choice!r}, left {vote.left!r}")
                votes[vote.rater, *vote.item] = vote
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}.") from None
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise InputError(f"{path}, line {number}: is no vote ({error}); repair the line, or take it out.") from None
    return votes


def _complete_length(path: Path) -> int:
    """Return how many bytes of a file are whole lines."""
    return path.read_bytes().rfind(b"\n") + 1
