"""Human texts: GoEmotions' comments (Demszky et al. 2020) and Topical-Chat's turns (Gopalakrishnan et al. 2019).

The project does not contain the texts. They are read from a folder, and FILES contains the SHA-256 of each file.
A comment's hash decides whether the comment is in the dialogue model's bank or among the style classifiers' texts.
"""

import hashlib
import json
import re
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path

import pandas as pd

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.runs.files import sha256_of
from evenhand.evaluation.score import RESPONSE, TEXT

EMOTION = "emotion"
FILES = {
    "goemotions/original/train.tsv": "1c254a142be5c00e80d819b9ae1bbd36d94b2eeb8f4b1271846508d57e57d9c5",
    "goemotions/original/dev.tsv": "575489c079c9de1097062a01738f998590d6b7ead66dd1c9fd1d2ba01fd8bc62",
    "goemotions/original/test.tsv": "0587b2dd8b27b97352adbfc3fb083d46005c8946657fdc2b1ca8b1cc7f1f8be4",
    "goemotions/original/labels.txt": "45c3ef86782d2a4d7fedcd6d8c111aa0d0e94720689bd164fac94fefb4495a89",
    "topical_chat/valid_freq.json": "d14e8bde94fa5556d4aad8fd3fb666df674e4fef8b4193c8c3c06c72822a366b",
    "topical_chat/test_freq.json": "3c65693d59e40a1fb58ead35dcfe85fbcc88ea93a4d74557df620996f72c8f08",
}
TRAIN, DEV, TEST, LABELS, TALK, TALK_HELD_OUT = FILES
SEPARATOR = ","  # between the label ids of a comment
# What the bank takes: short comments of letters and simple punctuation with one label, so many of each emotion at most.
PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9 ,.!?'-]*")
WORDS = range(2, 13)
MAX_OF_AN_EMOTION = 150
MAX_TURN_WORDS = 14  # words


def check_data(folder: Path) -> None:
    """Raise InputError unless the data files exist and have the SHA-256 of the testbed's data.

    Raises:
        InputError: a file is missing or differs.
    """
    for name, digest in FILES.items():
        path = folder / name
        if not path.is_file():
            raise InputError(
                f"data: there is no {path}; give the folder that holds GoEmotions as goemotions/original and "
                "Topical-Chat as topical_chat."
            )
        if sha256_of(path) != digest:
            raise InputError(f"data: {path} is not the file that the testbed was made of (SHA-256 {digest}).")


@cache
def emotions(folder: Path) -> tuple[str, ...]:
    """Return the names of the S = 28 emotions in the order of their ids (27 emotions and neutral)."""
    return tuple((folder / LABELS).read_text(encoding="utf-8").split())


def bank(folder: Path) -> pd.DataFrame:
    """Return the comments of the dialogue model's bank (columns text, emotion), chosen by their hashes."""
    comments = _plain(folder, TRAIN)
    return comments.groupby(EMOTION, sort=False).head(MAX_OF_AN_EMOTION).reset_index(drop=True)


def held_out_comments(folder: Path) -> list[str]:
    """Return short comments with one label from GoEmotions' development split; no model is trained on them."""
    known = set(bank(folder)[TEXT])
    return [text for text in _plain(folder, DEV)[TEXT] if text not in known]


def classifier_texts(folder: Path) -> pd.DataFrame:
    """Return the style classifiers' training comments (columns text, emotion ids), which are not in the bank's half."""
    rows = _comments(folder, TRAIN)
    return rows[[not is_of_bank(text) for text in rows[TEXT]]].reset_index(drop=True)


def is_of_bank(text: str) -> bool:
    """Return whether a comment is in the bank's half of the training split; spaces and quotation marks are ignored."""
    return hashlib.sha256(_tidy(text).encode()).digest()[0] % 2 == 0


def small_talk(folder: Path, held_out: bool) -> pd.DataFrame:
    """Return short turns of human conversations with their answers (columns text, response).

    Held-out turns are from other conversations than the training turns.
    """
    conversations = json.loads((folder / (TALK_HELD_OUT if held_out else TALK)).read_text(encoding="utf-8"))
    pairs = [
        pair
        for conversation in conversations.values()
        for pair in _turns([row["message"] for row in conversation["content"]])
    ]
    return pd.DataFrame(pairs, columns=[TEXT, RESPONSE]).drop_duplicates(ignore_index=True)


def _turns(messages: list[str]) -> Iterator[tuple[str, str]]:
    tidy = [_tidy(message) for message in messages]
    for turn, answer in pairwise(tidy):
        if all(2 <= len(text.split()) <= MAX_TURN_WORDS for text in (turn, answer)):
            yield turn, answer


def _plain(folder: Path, file: str) -> pd.DataFrame:
    """Return the bank's half of a file, cleaned: short comments with one label (columns text, emotion)."""
    rows = _comments(folder, file)
    rows = rows[
        [is_of_bank(text) and SEPARATOR not in ids for text, ids in zip(rows[TEXT], rows[EMOTION], strict=True)]
    ]
    names = emotions(folder)
    comments = pd.DataFrame({TEXT: rows[TEXT].map(_tidy), EMOTION: [names[int(ids)] for ids in rows[EMOTION]]})
    comments = comments.drop_duplicates(TEXT, keep=False)
    is_plain = [PLAIN.fullmatch(text) is not None and len(text.split()) in WORDS for text in comments[TEXT]]
    return comments[is_plain].sort_values(TEXT, key=lambda texts: texts.map(_digest), ignore_index=True)


def _comments(folder: Path, file: str) -> pd.DataFrame:
    lines = (folder / file).read_text(encoding="utf-8").split("\n")
    return pd.DataFrame([line.split("\t")[:2] for line in lines if line], columns=[TEXT, EMOTION])


def _tidy(text: str) -> str:
    return " ".join(text.replace("’", "'").replace("‘", "'").split())


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
