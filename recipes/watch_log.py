"""The log of `watch`: the lines that it has gained, as rows with a person and an answer."""

import codecs
import hashlib
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from evenhand.evaluation import columns
from evenhand.evaluation.data.readers.chats import value_at
from evenhand.evaluation.data.readers.response_files import UNSPECIFIED, ResponseFile, read_responses
from evenhand.evaluation.errors import InputError
from evenhand.evaluation.untrusted_text import clean_name
from evenhand.recipes.command_settings import WatchSettings
from evenhand.recipes.watch_state import State

HEAD_BYTES = 4096  # at the start of the log, by which a rotated file is known
ALWAYS_GIVEN = (columns.TEXT, columns.RESPONSE, columns.TEMPLATE, columns.AXIS)
MAX_NO_ANSWERS = 100  # of the new lines: of more, a setting or the log is wrong


def read_new_rows(settings: WatchSettings, state: State) -> pd.DataFrame | None:
    """Return the rows of the complete lines that were added to the log, None if there are none; move `state.offset`.

    Lines that are no JSON object or no answer, and rows that do not say who asked, are counted and left out: the log
    goes on behind them. If all lines of the first call are so, or many are no answers, the log is of another kind, or a
    column has another name.
    """
    lines = added_lines(settings.logs, state)
    readable = [line for line in lines if is_object(line)]
    if lines and not readable and not state.answers:
        raise InputError("logs", f"no line of {settings.logs} is a JSON object in UTF-8; give a log of JSON lines.")
    if not readable:
        state.unreadable += len(lines)
        return None
    if state.answers:  # a column that no new line has is no wrong name
        settings = settings.replaced(columns=columns_in(readable, settings))
    try:
        answers = readable
        rows = read_lines(readable, settings)
    except InputError as error:
        answers = answer_lines(readable, settings)
        if not answers:
            raise error
        rows = read_lines(answers, settings)
    state.unreadable += len(lines) - len(answers)
    has_person = rows[columns.DESCRIPTOR] != UNSPECIFIED
    if not has_person.any() and not state.answers:
        raise InputError("logs", f"{settings.logs} does not say who asked; name it by --columns '{{descriptor: …}}'.")
    state.without_person += int((~has_person).sum())
    rows = rows[has_person].reset_index(drop=True)
    rows[columns.DESCRIPTOR] = [clean_name(str(name)) for name in rows[columns.DESCRIPTOR]]
    return rows if columns.TEMPLATE in rows else rows.assign(**{columns.TEMPLATE: UNSPECIFIED})


def added_lines(path: Path, state: State) -> list[bytes]:
    """Return the complete lines that were added to the log, without blank ones; move `state.offset` behind them.

    Raises:
        InputError: the log is not the one that was read so far.
    """
    with path.open("rb") as file:
        head = hashlib.sha256(file.read(min(state.offset, HEAD_BYTES))).hexdigest()
        is_shorter = path.stat().st_size < state.offset
        if state.offset and (is_shorter or head != state.head):
            raise InputError(
                "logs",
                f"{path} is another file than the one that was read so far; append to one file, or give "
                "another --output_dir.",
            )
        file.seek(state.offset)
        added = file.read()
        complete = added[: added.rfind(b"\n") + 1]  # the last line may still be being written
        lines = complete.split(b"\n")
        if state.offset == 0:
            lines[0] = lines[0].removeprefix(codecs.BOM_UTF8)
        state.offset += len(complete)
        file.seek(0)
        state.head = hashlib.sha256(file.read(min(state.offset, HEAD_BYTES))).hexdigest()
    return [line for line in lines if line.strip()]


def read_lines(lines: Sequence[bytes], settings: WatchSettings) -> pd.DataFrame:
    """Return a row for each line of the log. InputError if a line, which is a JSON object, has no answer."""
    with tempfile.TemporaryDirectory() as folder:
        part = Path(folder) / f"{settings.logs.stem}.jsonl"
        part.write_bytes(b"\n".join(lines) + b"\n")
        try:
            return pd.DataFrame(read_responses(ResponseFile(part, named=settings.columns, unknown=UNSPECIFIED)))
        except InputError as error:
            new_lines = f"{settings.logs} (its new lines)"
            field, problem = (
                text.replace(str(part), new_lines).replace("responses.columns", "columns")
                for text in (error.field, error.problem)
            )
            raise InputError(field.replace("responses", "logs"), problem) from None


def answer_lines(lines: Sequence[bytes], settings: WatchSettings) -> list[bytes]:
    """Return the lines with an answer; [] if more than MAX_NO_ANSWERS have none.

    Lines are read together. If that fails, each half of them is read, and so on down to the single lines that fail.
    """
    parts = [list(lines)]
    answers: list[bytes] = []
    n_others = 0
    while parts and n_others <= MAX_NO_ANSWERS:
        part = parts.pop()
        middle = len(part) // 2
        try:
            read_lines(part, settings.replaced(columns=columns_in(part, settings)))
            answers += part
        except InputError:
            n_others += len(part) == 1
            parts += [half for half in (part[middle:], part[:middle]) if len(part) > 1]
    return answers if n_others <= MAX_NO_ANSWERS else []


def columns_in(lines: Sequence[bytes], settings: WatchSettings) -> dict[str, str]:
    """Return `settings.columns` without optional columns that are in no line."""
    rows = [json.loads(line) for line in lines]
    found = {}
    for name, place in settings.columns.items():
        if name in ALWAYS_GIVEN or any(value_at(row, place) is not None for row in rows):
            found[name] = place
    return found


def is_object(line: bytes) -> bool:
    """Return whether a line is a JSON object in UTF-8."""
    try:
        return isinstance(json.loads(line.decode("utf-8")), dict)
    except (ValueError, RecursionError):
        return False
